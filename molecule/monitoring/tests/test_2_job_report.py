"""job-report, of a job that used what was meant: CPU, memory and GPU are those that it had."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from tests import live_cluster
from tests.patience import until

on = partial(live_cluster.on, live_cluster.under_test())
DESCRIPTION = "/etc/plumbline-fake-nvml.conf"
CPU_S, MEMORY_MIB, WALL_S, GPU_PERCENT = 20, 300, 75, 70
# Twenty seconds of one CPU however long they take, and longer than Slurm's 30 s between two looks.
PROGRAM = f"""
import time
held = bytearray({MEMORY_MIB} << 20)
held[::4096] = bytes(1) * len(held[::4096])
end = time.monotonic() + {WALL_S}
while time.process_time() < {CPU_S}:
    pass
time.sleep(max(0, end - time.monotonic()))
"""


@pytest.fixture
def busy_gpu():
    """The first GPU of gpu1 is as busy as it should be."""
    line = f"gpu.0.utilization_gpu = {GPU_PERCENT}"
    on("gpu1", f"echo '{line}' | sudo tee -a {DESCRIPTION} > /dev/null")
    yield
    on("gpu1", f"sudo sed -i '/^{line}$/d' {DESCRIPTION}")


def report(job: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(on("login1", f"job-report --json {job}"))
    return document


def ended(job: str) -> bool:
    return "COMPLETED" in on("login1", f"sacct -XnP -o state -j {job}")


def test_a_job_is_reported_to_have_used_what_it_used(busy_gpu):
    on("login1", f"cat > used.py <<'END'\n{PROGRAM}\nEND")
    options = "-w gpu1 -N1 -c2 --mem=600 --gres=gpu:1 --output=/dev/null"
    job = on(
        "login1",
        f'PROGRAM="$(cat used.py)" sbatch --parsable {options} '
        "--wrap 'srun python3 -c \"$PROGRAM\"'",
    )
    little = "-w gpu2 -c1 --mem=100 --output=/dev/null"
    idle = on("login1", f"sbatch --parsable {little} --wrap 'sleep 5'")
    until(lambda: ended(job) and ended(idle), seconds=300)

    usage = report(job)
    assert usage["not_known"] == []
    assert CPU_S <= usage["job"]["cpu_s"] < CPU_S + 5
    elapsed = usage["job"]["elapsed_s"]
    assert usage["cpu_ratio"] == pytest.approx(usage["job"]["cpu_s"] / (2 * elapsed), rel=0.01)
    mib = usage["job"]["memory_peak_bytes"] / (1 << 20)
    assert MEMORY_MIB <= mib < MEMORY_MIB + 60
    assert usage["memory_ratio"] == pytest.approx(mib / 600, rel=0.01)
    (gpu,) = usage["gpus"]["each"]
    assert (gpu["node"], gpu["gpu"]) == ("gpu1", "0")
    assert gpu["busy"] == pytest.approx(GPU_PERCENT)
    assert usage["gpu_ratio"] == pytest.approx(GPU_PERCENT / 100)

    nothing = report(idle)
    assert nothing["job"]["cpu_s"] < 2
    assert nothing["gpus"] is None
