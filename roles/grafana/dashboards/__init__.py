"""Grafana's dashboards as code; scripts/dashboards writes them as Grafana reads them."""

import json
from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from roles.grafana.dashboards import cluster, gpus, jobs, node, slurm, validation

FOLDER = Path(__file__).parents[1] / "files/var/lib/grafana/dashboards"
BOARDS = (
    cluster.BOARD,
    gpus.BOARD,
    node.BOARD,
    slurm.BOARD,
    jobs.BOARD,
    validation.BOARD,
)


def files() -> Mapping[str, str]:
    """Each file in FOLDER by its name, and its text."""
    return {
        f"{board.uid}.json": json.dumps(
            board, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False
        )
        + "\n"
        for board in BOARDS
    }
