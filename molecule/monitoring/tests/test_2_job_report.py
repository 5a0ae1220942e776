"""job-report, of a job that used what was meant: CPU, memory and GPU are those that it had.

And of a month: what accounting has of its jobs, added up once more here.
"""

from __future__ import annotations

import json
import re
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


def accounted(month: str) -> dict[str, float]:
    """State of a job's end -> GPU-hours, by sacct alone."""
    hours: dict[str, float] = {}
    shown = on(
        "login1", f"sudo sacct -aDXnP -S {month}-01 -E now -o State,ElapsedRaw,AllocTRES"
    ).splitlines()
    for line in shown:
        state, seconds, tres = line.split("|")
        gpus = re.search(r"gres/gpu=(\d+)", tres)
        name = state.split()[0]
        hours[name] = hours.get(name, 0) + int(seconds) * int(gpus[1] if gpus else 0) / 3600
    return hours


def test_a_month_is_what_accounting_has() -> None:
    """A job that fails with two GPUs is wasted, to the exporter as well."""
    failing = "sbatch --parsable -w gpu1 -c1 --mem=100 --gres=gpu:2 --output=/dev/null"
    job = on("login1", f"{failing} --wrap 'sleep 40; exit 3'")
    until(lambda: "FAILED" in on("login1", f"sacct -XnP -o state -j {job}"), seconds=300)
    month = on("login1", "date +%Y-%m")

    document = json.loads(on("login1", f"sudo job-report --month {month} --json"))
    (total,) = (row for row in document["rows"] if row["kind"] == "total")
    hours = accounted(month)
    assert hours["FAILED"] >= 2 * 40 / 3600
    assert total["gpu_hours_failed"] == pytest.approx(hours["FAILED"], abs=0.002)
    assert total["gpu_hours_completed"] == pytest.approx(hours["COMPLETED"], abs=0.002)
    assert total["gpu_hours"] == pytest.approx(sum(hours.values()), abs=0.02)
    assert document["not_known"] == []
    assert {row["node"] for row in document["rows"] if row["kind"] == "node"} >= {"gpu1", "gpu2"}

    def told() -> bool:
        text = on("ctl1", "sudo cat /var/lib/prometheus/node-exporter/slurm.prom")
        found = re.search(r'ended_jobs_gpu_seconds\{outcome="failed"\} (\S+)', text)
        return found is not None and float(found[1]) / 3600 == pytest.approx(
            hours["FAILED"], abs=0.002
        )

    until(told, seconds=900)  # accounting is asked every ten minutes


def of_month(node: str) -> tuple[int, float, str]:
    """Interruptions of a node, its hours out of service, and the reason of the last."""
    document = json.loads(on("login1", 'sudo job-report --month "$(date +%Y-%m)" --json'))
    (row,) = (row for row in document["rows"] if row.get("node") == node)
    return row["interruptions"], row["down_hours"], row["last_reason"]


def out_for_a_moment(node: str, reason: str) -> tuple[int, float, str]:
    """What the month says of it afterwards."""
    _, before, _ = of_month(node)
    on("ctl1", f"sudo scontrol update nodename={node} state=drain reason='{reason}'")
    until(lambda: of_month(node)[1] > before, seconds=120)
    on("ctl1", f"sudo scontrol update nodename={node} state=resume")
    return of_month(node)


def test_a_month_counts_faults_as_interruptions_and_not_what_people_drain() -> None:
    before = of_month("gpu2")
    assert out_for_a_moment("gpu2", "new cable")[::2] == before[::2]
    interruptions, _, _ = of_month("gpu1")
    xid = "[plumbline:gpu_xid] GPU 1: XID 79"
    assert out_for_a_moment("gpu1", xid)[::2] == (interruptions + 1, xid)
