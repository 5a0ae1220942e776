"""What the tests of reliability say of accounting that is not exact, and which faults there are."""

from __future__ import annotations

import re

import pytest

from tests import live_cluster, processes
from tests.live_cluster import REPOSITORY
from tests.reliability.faults import FAULTS
from tests.reliability.load import Row, problems

JOBS = {"7", "8_1", "8_2"}
ROWS = [Row(job, "COMPLETED") for job in sorted(JOBS)]
STEPS = [Row(f"{job}{step}", "COMPLETED") for job in sorted(JOBS) for step in ("", ".batch", ".0")]


def test_each_job_once_completed_and_with_its_step_is_no_problem():
    assert problems(JOBS, ROWS, STEPS, 0) == []


@pytest.mark.parametrize(
    ("rows", "steps", "again", "said"),
    [
        (ROWS[:-1], STEPS, 0, ["accounting does not have 8_2"]),
        ([*ROWS, ROWS[0]], STEPS, 0, ["accounting has 7 2 times"]),
        ([*ROWS, Row("9", "COMPLETED")], STEPS, 0, ["accounting has 9, which nobody submitted"]),
        ([Row("7", "NODE_FAIL"), *ROWS[1:]], STEPS, 0, ["7 is NODE_FAIL"]),
        (ROWS, STEPS[:-1], 0, ["the step of 8_2 is not in accounting as completed"]),
        (ROWS, STEPS, 1, ["1 jobs began twice, although nothing that knew of them was lost"]),
    ],
)
def test_what_is_not_exact_is_a_sentence(rows, steps, again, said):
    assert problems(JOBS, rows, steps, again) == said


def test_the_alert_of_each_fault_is_one_that_prometheus_has():
    rules = (REPOSITORY / "roles/prometheus/files/etc/prometheus/rules").glob("*.yml")
    known = {name for path in rules for name in re.findall(r"alert: (\w+)", path.read_text())}
    assert {fault.alert["alertname"] for fault in FAULTS.values() if fault.alert} <= known


def test_what_is_done_after_a_crash_is_what_the_page_says() -> None:
    first, *others = live_cluster.after_a_crash()
    assert first == "scontrol reconfigure"
    assert [re.findall(r"xargs .*scontrol (\w+)", command) for command in others] == [
        ["requeue"],
        ["release"],
        ["update"],
    ]


@pytest.mark.parametrize(
    ("shown", "requeued"),
    [("29 11:45 Prolog", "29"), ("29 1-02:00:01 Prolog", "29"), ("29 0:59 Prolog", ""),
     ("4 11:45 None", "")],
)  # fmt: skip
def test_jobs_that_are_long_in_their_prolog_are_requeued(shown: str, requeued: str) -> None:
    choice = live_cluster.after_a_crash()[1].split(" | ")[1]
    done = processes.run("sh", "-c", choice, input=f"{shown}\n")
    assert done.stdout.strip() == requeued
