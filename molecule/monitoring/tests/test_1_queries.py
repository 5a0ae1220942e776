"""Every query of the dashboards and of the alerts has an answer, or is listed with the reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import dashboards_live
from tests.live_cluster import PLAIN, REPOSITORY, virtual_cluster

CLUSTER = os.environ.get("PLUMBLINE_ON", "test-cluster-monitoring")
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
INVENTORIES = ("-i", str(INVENTORY), "-i", str(REPOSITORY / "inventory/demo/groups.yml"))
TEXTFILES = "/var/lib/prometheus/node-exporter-validation"
# The stand-in is NVML's: what only DCGM tells is missing, and hardware that no container has.
LACKING = "dcgm,infiniband,shared_filesystem,edac,native"


def test_all_have_data_while_jobs_use_the_gpus(tmp_path: Path) -> None:
    proven = subprocess.run(
        [
            *(sys.executable, "-m", "validation.run", *INVENTORIES, "--suite", "quick"),
            *("--metrics", TEXTFILES, "--output", tmp_path / "run"),
        ],
        cwd=REPOSITORY,
        env=os.environ | PLAIN,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert proven.returncode == 0, proven.stdout + proven.stderr
    started = virtual_cluster(
        CLUSTER, "ssh", "login1", "sbatch --parsable -N2 --gres=gpu:2 --wrap 'srun sleep 600'"
    )
    assert started.returncode == 0, started.stderr
    try:
        done = dashboards_live.ask(CLUSTER, INVENTORY, tmp_path, LACKING)
    finally:
        virtual_cluster(CLUSTER, "ssh", "login1", f"scancel {started.stdout.strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
