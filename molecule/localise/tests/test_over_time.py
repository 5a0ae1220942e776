"""Runs over time on the same nodes: a burn-in that is interrupted, tests that a job pre-empts."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live_cluster import REPOSITORY
from tests.live_validator import idle, of_container, on, start, wait_until

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


# --- runs compared --------------------------------------------------------------------------------

LINKS = ("--suite", "network", "--only", "pairs")
EQUAL_PAIRS = 10
OF_EACH = 5  # runs before and after


@contextlib.contextmanager
def a_limited_link(node: str, gb_per_second: float) -> Iterator[None]:
    """What this node sends passes at this rate and no more."""
    tc = ("nsenter", "--target={pid}", "--net", "tc", "qdisc")
    limit = ("rate", f"{gb_per_second * 8:.3f}gbit", "burst", "256kb", "latency", "50ms")
    of_container(node, *tc, "add", "dev", "eth0", "root", "tbf", *limit)
    try:
        yield
    finally:
        of_container(node, *tc, "del", "dev", "eth0", "root")


def bandwidth(folders: list[Path], node: str) -> float:
    """The median bus bandwidth of this node's pairs in these runs, GB/s."""
    results = [
        item
        for folder in folders
        for item in json.loads((folder / "summary.json").read_text())["results"]
        if item["check"] == "pairs" and item["subject"]["name"] == node
    ]
    return statistics.median(metric["value"] for item in results for metric in item["metrics"])


def compared(before: list[Path], after: list[Path]) -> subprocess.CompletedProcess[str]:
    history = before[0].parent / "history.sqlite"
    command = [sys.executable, "-m", "validation.compare", "--history", str(history), "--json"]
    sides = ["--before", *map(str, before), "--after", *map(str, after)]
    return subprocess.run(
        [*command, *sides], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )


def worse(done: subprocess.CompletedProcess[str]) -> dict[tuple[str, str], float]:
    """What got worse, by figure and place, and by how much."""
    findings = json.loads(done.stdout)["worse"]
    return {(item["figure"], item["where"]): item["change"] for item in findings}


@pytest.mark.long
def test_a_regression_is_named_and_noise_is_not(tmp_path):
    def runs(name: str, count: int) -> list[Path]:
        ended = [start(tmp_path / f"{name}-{number}", *LINKS).end() for number in range(count)]
        assert [done.code for done in ended] == [0] * count, ended[-1].output
        return [done.folder for done in ended]

    equal = runs("equal", EQUAL_PAIRS + 1)
    for first, second in itertools.pairwise(equal):
        done = compared([first], [second])
        assert done.returncode in (0, 3), done.stdout
        assert not worse(done)
    assert not worse(compared(equal[-2 * OF_EACH : -OF_EACH], equal[-OF_EACH:]))

    # Slower by half, which is well within what a run by itself lets pass.
    with a_limited_link("gpu3", bandwidth(equal[-OF_EACH:], "gpu3") / 2):
        after = runs("limited", OF_EACH)
    done = compared(equal[-OF_EACH:], after)
    assert done.returncode == 1, done.stdout
    named = worse(done)
    assert named
    assert all("gpu3" in figure or where == "gpu3" for figure, where in named), named
