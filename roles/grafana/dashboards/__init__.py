"""Grafana's dashboards as code. The JSON that Grafana reads is made where it is used.

At deployment by the role's filter, for a Grafana of somebody else's by `scripts/dashboards write`.
"""

import json
from collections.abc import Mapping

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from roles.grafana.dashboards import (
    cluster,
    collectives,
    fleet,
    gpus,
    history,
    job,
    job_use,
    jobs,
    node,
    slurm,
    user,
    validation,
)

BOARDS = (
    cluster.BOARD,
    fleet.BOARD,
    gpus.BOARD,
    node.BOARD,
    slurm.BOARD,
    jobs.BOARD,
    job.BOARD,
    user.BOARD,
    job_use.BOARD,
    collectives.BOARD,
    validation.BOARD,
    history.BOARD,
)


def files() -> Mapping[str, str]:
    """The text of each dashboard, by the name of its file."""
    return {
        f"{board.uid}.json": json.dumps(
            board, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False
        )
        + "\n"
        for board in BOARDS
    }
