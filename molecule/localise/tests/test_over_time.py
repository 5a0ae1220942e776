"""Runs over time on the same nodes: a burn-in that is interrupted, tests that a job pre-empts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live_cluster import REPOSITORY
from tests.live_validator import idle, on, start, wait_until

ALL = [f"gpu{number}" for number in range(1, 6)]


@pytest.fixture(autouse=True)
def idle_afterwards():
    yield
    wait_until("an idle cluster", idle)


# --- a burn-in ------------------------------------------------------------------------------------

ROUND = ("--suite", "burn-in", "--skip", "dcgm")


def rounds(folder: Path) -> list[dict]:
    path = folder / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.long
def test_a_burn_in_of_twenty_minutes_goes_on_after_an_interruption(tmp_path):
    folder = tmp_path / "burn-in"
    begun = start(folder, *ROUND, "--duration", "20m")
    wait_until("two rounds", lambda: len(rounds(folder)) >= 2, 900)
    begun.process.send_signal(signal.SIGINT)
    interrupted = begun.end()
    assert f"--resume {folder}" in interrupted.output
    before = rounds(folder)
    wait_until("an idle cluster", idle)
    done = subprocess.run(
        [sys.executable, "-m", "validation.run", "--resume", str(folder)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    after = rounds(folder)
    assert after[: len(before)] == before
    assert len(after) > len(before)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["seconds"] >= 20 * 60
    assert summary["unproven_nodes"] == ALL  # without dcgm it proves no node
    passed = {item["check"] for item in summary["results"] if item["verdict"] == "pass"}
    assert passed >= {"soak", "drift", "same_bits", "same_sums"}


# --- in the background ----------------------------------------------------------------------------


def test_a_job_preempts_a_test_in_the_background(tmp_path):
    """The job starts at once; the node that was being tested comes first the next time."""
    folder, background = tmp_path / "background", ("--background", "--qos", "scavenger")
    begun = start(folder, *background, "--suite", "gpu", "--at-most", "10m")
    ours = "squeue -h -t R -q scavenger -o %N"
    wait_until("a test", lambda: on("ctl1", ours).strip() in ALL)
    tested = on("ctl1", ours).strip()
    job = "runuser -u ada -- sbatch --parsable --chdir=/tmp -N5 --exclusive --wrap 'sleep 600'"
    number = on("login1", job).strip()
    wait_until("the job", lambda: on("ctl1", f"squeue -h -t R -j {number}") != "", 60)
    said = begun.end()  # by itself: no node is idle
    on("ctl1", f"scancel {number}")
    assert said.code == 3, said.output
    assert f"{tested}  untested  pre-empted during" in said.output
    wait_until("an idle cluster", idle)
    again = start(folder, *background, "--suite", "gpu", "--at-most", "4m").end()
    passed = [line.split()[0] for line in again.output.splitlines() if line.endswith("  PASS")]
    assert passed, again.output
    assert passed[0] == tested
