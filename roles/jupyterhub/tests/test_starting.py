"""What the page of a starting notebook says, and when it is given up."""

from __future__ import annotations

import pytest

from roles.jupyterhub.files.portal.request import Refused
from roles.jupyterhub.files.portal.starting import Starting, refusal
from roles.jupyterhub.files.portal.states import Job

RUNS = Job("RUNNING", host="gpu1")
WAITS = Job("PENDING", "Resources")


def test_a_notebook_is_there_once_its_job_runs_and_told_its_port() -> None:
    starting = Starting("7")
    assert starting.place(WAITS, 0, 600) == ""
    assert starting.place(RUNS, 0, 600) == ""
    assert starting.told({"port": 43210})
    assert starting.place(WAITS, 0, 600) == ""  # Slurm is the one who knows the host
    assert starting.place(RUNS, 0, 600) == "gpu1:43210"


def test_every_sentence_is_said_once_and_in_order() -> None:
    starting = Starting("7")
    for job in (WAITS, WAITS, Job(""), Job(""), RUNS, RUNS):
        starting.place(job, 0, 600)
    assert starting.said == [
        "The job waits: no such GPU, CPU or memory is free now.",
        "Slurm does not answer; the portal asks again.",
        "Job 7 runs on gpu1; the notebook starts there.",
    ]


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (Job("PENDING", "PartitionTimeLimit"), "The job cannot start: it asks for more time"),
        (Job("NODE_FAIL", host="gpu1"), "The job on gpu1 ended: its node failed."),
        (Job("NOT_FOUND"), "The job ended: Slurm says NOT_FOUND."),
    ],
)
def test_what_will_not_come_is_a_sentence(job: Job, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        Starting("7", port=43210).place(job, 0, 600)
    assert str(refused.value).startswith(sentence)


def test_a_queue_is_waited_in_for_so_long_and_no_longer() -> None:
    starting = Starting("7")
    assert starting.place(WAITS, 600, 600) == ""
    with pytest.raises(Refused, match="After 10 minutes the portal cancelled it"):
        starting.place(WAITS, 601, 600)
    assert starting.place(RUNS, 601, 600) == ""  # it starts, and the hub has its own patience
    assert starting.place(Job(""), 601, 600) == ""


def test_why_it_cannot_start_is_told_by_the_job() -> None:
    starting = Starting("7", port=43210)
    assert starting.told({"problem": " No module \n named jupyterlab " + "x" * 1000})
    with pytest.raises(Refused, match=r"^No module named jupyterlab x{470,}") as refused:
        starting.place(RUNS, 0, 600)
    assert len(str(refused.value)) == 500


@pytest.mark.parametrize(
    "document",
    [
        *({"port": port} for port in (1023, 65536, -1, True, "43210", 43210.0, None, [43210])),
        *({"problem": problem} for problem in ("", "  ", 7, None, ["x"])),
        {},
        {"cmd": ["/bin/sh"], "args": ["-c", "id"], "job_id": "1"},
    ],
)
def test_a_notebooks_token_tells_nothing_else(document: dict[str, object]) -> None:
    starting = Starting("7")
    assert not starting.told(document)
    assert starting == Starting("7")


@pytest.mark.parametrize("port", [1024, 65535])
def test_ports_that_are_no_ones_service(port: int) -> None:
    starting = Starting("7")
    assert starting.told({"port": port})
    assert starting.port == port


@pytest.mark.parametrize(
    ("stderr", "sentence"),
    [
        (
            "sbatch: warning: x\nsbatch: error: Batch job submission failed: Invalid account\n\n",
            "Slurm does not take the job: Batch job submission failed: Invalid account",
        ),
        ("sbatch: fatal: no slurm.conf", "Slurm does not take the job: no slurm.conf"),
        ("Nothing can be written", "Slurm does not take the job: Nothing can be written"),
        (" \n", "Slurm does not take the job: sbatch did not say why"),
    ],
)
def test_slurms_own_refusal(stderr: str, sentence: str) -> None:
    assert refusal(stderr) == sentence
