"""What a notebook's page says of its job."""

from __future__ import annotations

import pytest

from cluster.slurm.job_reasons import CAUSES, Cause
from roles.jupyterhub.files.portal import states


def waiting(reason: str, start: str = "N/A") -> states.Job:
    return states.read(0, f"PENDING   ;{reason}   ;n/a  ;{start};")


def test_a_running_job() -> None:
    job = states.read(0, "RUNNING   ;None  ;gpu1   ;2026-11-26T10:00:00;\n")
    assert (job.runs, job.waits, job.host, job.never) == (True, False, "gpu1", "")


def test_a_job_that_runs_will_not_wait_for_ever() -> None:
    assert states.read(0, "RUNNING;PartitionTimeLimit;gpu1;;").never == ""


@pytest.mark.parametrize("host", ["n/a", "(null)", "None assigned", ""])
def test_a_job_that_had_no_host_is_said_without_one(host: str) -> None:
    assert states.read(0, f"CANCELLED;;{host};;").ended == "The job ended: it was stopped."


def test_slurm_that_does_not_answer_says_nothing_about_the_job() -> None:
    job = states.read(1, "RUNNING;None;gpu1;;")
    assert job.unknown
    assert not (job.runs)
    assert not (job.waits)


def test_a_job_that_waits_says_why_and_until_when() -> None:
    assert waiting("Resources", "2026-11-26T10:00:00").waiting == (
        "The job waits: no such GPU, CPU or memory is free now. "
        "Slurm expects it to start at 2026-11-26 10:00:00."
    )
    assert (
        "another job of yours must end first (QOSMaxGRESPerUser)"
        in waiting("QOSMaxGRESPerUser").waiting
    )
    assert waiting("").waiting == "The job waits: Slurm does not say why."


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("PartitionTimeLimit", "Choose a shorter time."),
        ("BadConstraints", "Choose fewer CPUs or GPUs, or less memory."),
        ("JobHeldAdmin", "Ask your operator."),
        ("QOSMaxWallDurationPerJobLimit", "more than one job may have"),
        ("AssocMaxGRESPerJob", "more than one job may have"),
    ],
)
def test_a_job_that_will_never_start_is_given_up(reason: str, advice: str) -> None:
    assert advice in waiting(reason).never


@pytest.mark.parametrize("reason", ["Resources", "Priority", "None", "QOSMaxJobsPerUserLimit"])
def test_a_job_that_others_are_before_is_waited_for(reason: str) -> None:
    assert waiting(reason).never == ""


def test_every_reason_for_another_request_is_given_up() -> None:
    kept = [
        reason
        for reason, cause in CAUSES.items()
        if cause is Cause.REQUEST and not waiting(reason).never
    ]
    assert kept == ["Dependency"]


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ("NODE_FAIL", "The job on gpu1 ended: its node failed."),
        ("TIMEOUT", "its time was over."),
        ("CANCELLED by 2001", "The job on gpu1 ended: it was stopped."),
        ("OUT_OF_MEMORY", "it used more memory than it had."),
        ("SOMETHING_NEW", "The job on gpu1 ended: Slurm says SOMETHING_NEW."),
    ],
)
def test_how_a_job_ended(state: str, sentence: str) -> None:
    assert sentence in states.read(0, f"{state};;gpu1;;").ended
