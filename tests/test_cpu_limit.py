"""What a test may take of the CPU: what is counted, and what is said of it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import cpu_limit
from tests.processes import run

BUSY = "import time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\n"


def took(work: Callable[[], object]) -> float:
    began = cpu_limit.used()
    work()
    return cpu_limit.used() - began


def test_its_own_time_and_that_of_its_processes_is_counted() -> None:
    assert took(lambda: time.sleep(0.3)) < 0.2
    until = time.process_time() + 0.5
    assert took(lambda: [None for _ in iter(lambda: time.process_time() < until, False)]) >= 0.45
    assert took(lambda: subprocess.run([sys.executable, "-c", BUSY], check=True)) >= 0.45


def test_processes_that_go_on_are_counted_too() -> None:
    """A server that is asked by several tests, and what it has started and waited for."""
    nested = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])\n"
    for program in (BUSY, nested):
        process = subprocess.Popen(
            [sys.executable, "-c", program + "input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            before = cpu_limit.used()
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"
            time.sleep(0.2)
            assert cpu_limit.used() - before >= 0.3
        finally:
            process.communicate("\n")


def test_what_serves_all_tests_is_charged_to_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_limit, "_shared", [])
    assert took(lambda: cpu_limit.share(30)) < -29


def test_what_is_within_the_limit_is_not_spoken_of() -> None:
    assert cpu_limit.complaint(cpu_limit.LIMIT_S, 1) == ""
    assert "7.0 CPU-seconds, 5 are the limit" in cpu_limit.complaint(7, 1)
    assert not cpu_limit.is_failure(2 * cpu_limit.LIMIT_S, 1)
    assert cpu_limit.is_failure(2.1 * cpu_limit.LIMIT_S, 1)


def test_a_slow_machine_is_allowed_for_and_a_fast_one_is_not_held_to_less() -> None:
    assert cpu_limit.complaint(7, 1.5) == ""
    assert not cpu_limit.is_failure(15, 2)
    assert cpu_limit.complaint(4, 0.5) == ""
    assert cpu_limit.is_failure(11, 0.5)


TESTS = """
import pytest
from tests import cpu_limit

used = cpu_limit.used
took = 0
cpu_limit.used = lambda: used() + took
cpu_limit.yardstick = lambda: 1.0

def work(seconds):
    global took
    took += seconds

def test_short(): work(1)
def test_longer(): work(7)
def test_far_too_long(): work(11)
@pytest.mark.heavy("it is worth it")
def test_heavy(): work(100)
"""


def test_pytest_fails_who_takes_too_much(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "conftest.py").write_text((repository / "conftest.py").read_text())
    (tmp_path / "test_busy.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.pytest]\npythonpath = ["{repository}"]\nmarkers = ["heavy", "long"]\n'
    )
    done = run(sys.executable, "-m", "pytest", "--numprocesses=0", cwd=tmp_path)
    assert "1 failed, 3 passed" in done.stdout
    assert "FAILED test_busy.py::test_far_too_long" in done.stdout
    assert "test_busy.py::test_longer: 7.0 CPU-seconds, 5 are the limit" in done.stdout
    # How much of it the summary at the end repeats depends on the terminal, and on CI.
    complaints = re.findall(r"\S+ CPU-seconds, 5 are the limit", done.stdout)
    assert set(complaints) == {f"{s} CPU-seconds, 5 are the limit" for s in ("7.0", "11.0")}
