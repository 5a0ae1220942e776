"""Every query of the dashboards and of the alerts has an answer, or is listed with the reason."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests import dashboards_live
from tests.live_cluster import on, operate, sources, under_test, virtual_cluster

CLUSTER = under_test()
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
TEXTFILES = "/var/lib/prometheus/node-exporter-validation"
# The stand-in is NVML's: what only DCGM tells is missing, and hardware that no container has.
LACKING = "dcgm,nvlink5,pages,nccl,infiniband,shared_filesystem,edac,store,raid,bond,native,backup"


def test_all_have_data_while_jobs_use_the_gpus(tmp_path: Path) -> None:
    proven = operate(
        *(sys.executable, "-m", "validation.run", *sources(INVENTORY), "--suite", "quick"),
        *("--metrics", TEXTFILES, "--output", tmp_path / "run"),
    )
    assert proven.returncode == 0, proven.stdout + proven.stderr
    job = on(CLUSTER, "login1", "sbatch --parsable -N2 --gres=gpu:2 --wrap 'srun sleep 600'")
    try:
        done = dashboards_live.ask(CLUSTER, INVENTORY, tmp_path, LACKING)
    finally:
        virtual_cluster(CLUSTER, "ssh", "login1", f"scancel {job}")
    assert done.returncode == 0, done.stdout + done.stderr
