"""Each hint, and each case in which it has to be silent."""

import pytest

from roles.job_report.files.job_report import report, usage
from roles.job_report.files.job_report.hints import hints
from roles.job_report.tests.recorded import job, row, steps

DAY = str(24 * 60)  # minutes
CPUS_ALONE = "billing=16,cpu=16,mem=64G,node=1"


def gpus(*busy_and_peak):
    uses = (
        usage.GpuUse("gpu1", str(number), "", busy, peak, None, None, None)
        for number, (busy, peak) in enumerate(busy_and_peak)
    )
    return usage.Gpus(tuple(uses), "by the job's id")


BUSY, IDLE = (70.0, 90.0), (0.0, 0.0)


def with_gpus(count, *measured, **changes):
    tres = f"cpu=16,gres/gpu={count},mem=64G"
    changes = {"AllocTRES": tres, "NodeList": "gpu1"} | changes
    return hints(job(row("4711.0"), **changes), gpus(*measured))


def test_gpus_that_were_not_used():
    (sentence,) = with_gpus(4, BUSY, IDLE, IDLE, IDLE)
    assert sentence == (
        "It had 4 GPUs and used 1: ask for 1, or start the program once for each GPU "
        "(torchrun, srun)."
    )
    (sentence,) = with_gpus(1, IDLE)
    assert sentence.startswith("It had a GPU and used none: ")
    (sentence,) = with_gpus(2, BUSY, IDLE, State="RUNNING", End="Unknown")
    assert "used 1 so far" in sentence


def test_gpus_that_waited():
    (sentence,) = with_gpus(2, (5.0, 90.0), (5.0, 40.0))
    assert sentence.startswith("Its GPUs were busy 5% of the time: ")
    assert with_gpus(1, (5.0, 90.0))[0].startswith("Its GPU was busy 5%")


@pytest.mark.parametrize(
    ("count", "measured", "changes"),
    [
        (2, [BUSY, BUSY], {}),
        (2, [(15.0, 20.0), (15.0, 20.0)], {}),  # low, but not sure to be waste
        (2, [(0.5, 1.5), BUSY], {}),  # used once
        (4, [BUSY, IDLE], {}),  # two were not measured
        (2, [BUSY, (None, None)], {}),
        (1, [(None, None)], {}),  # an instance of MIG
        (2, [BUSY, IDLE], {"ElapsedRaw": "599"}),
        (2, [BUSY, IDLE], {"Start": "Unknown", "End": "Unknown", "State": "PENDING"}),
    ],
)
def test_gpus_of_which_nothing_is_said(count, measured, changes):
    assert with_gpus(count, *measured, **changes) == ()


def test_without_metrics_nothing_is_said_of_gpus():
    assert hints(job(row("4711.0")), None) == ()


def cpus(**changes):
    return hints(job(row("4711.0"), **({"AllocTRES": CPUS_ALONE} | changes)), None)


def test_cpus_that_were_not_used():
    (sentence,) = cpus(TotalCPU="01:00:00")
    assert sentence.startswith("It had 16 CPUs and kept 1.0 busy: ask for fewer")


@pytest.mark.parametrize(
    "changes",
    [
        {"TotalCPU": "04:00:00"},
        {"TotalCPU": ""},  # Slurm has not counted
        {"TotalCPU": "01:00:00", "AllocCPUS": "3"},
        {"TotalCPU": "01:00:00", "AllocTRES": "cpu=16,gres/gpu=1"},
        {"TotalCPU": "01:00:00", "ElapsedRaw": "599"},
        {"TotalCPU": "01:00:00", "State": "FAILED"},
        {"TotalCPU": "01:00:00", "State": "RUNNING", "End": "Unknown"},
    ],
)
def test_cpus_of_which_nothing_is_said(changes):
    assert cpus(**changes) == ()


def memory(peak="1536M", more=(), **changes):
    changes = {"NodeList": "gpu1"} | changes
    return hints(job(*steps(peak=peak), *more, **changes), None)


def test_memory_that_was_not_used():
    (sentence,) = memory()
    assert sentence == "It used 2% of its 64.0 GiB of memory: ask for less, such as --mem=3G."
    (sentence,) = memory(NodeList="gpu[1-2]")
    assert sentence.endswith("ask for less.")  # one of them may have needed most of it


@pytest.mark.parametrize(
    ("peak", "more", "changes"),
    [
        ("8G", (), {}),  # 12%
        ("1G", (), {"AllocTRES": "cpu=1,mem=16G"}),  # nobody waits for that
        ("1G", (), {"AllocTRES": "cpu=1"}),  # memory is not counted
        ("1G", [row("4711.1", TRESUsageInTot="mem=6G")], {}),  # both together may have used 7 GiB
        ("1G", [row("4711.1")], {}),  # a step without a sample may have used all of it
        ("1G", (), {"ElapsedRaw": "599"}),
        ("1G", (), {"State": "OUT_OF_MEMORY"}),
        ("1G", (), {"State": "CANCELLED by 2001"}),
        ("1G", (), {"State": "RUNNING", "End": "Unknown"}),
    ],
)
def test_memory_of_which_nothing_is_said(peak, more, changes):
    assert memory(peak, more, **changes) == ()


def test_time_that_was_not_used():
    (sentence,) = cpus(TimelimitRaw=DAY)
    assert sentence == (
        "It ended after 4% of its time limit: jobs with a shorter one start earlier, such as "
        "--time=02:00:00."
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"TimelimitRaw": "600"},  # 10%
        {"TimelimitRaw": "240", "ElapsedRaw": "1200"},  # three hours and forty minutes
        {"TimelimitRaw": "UNLIMITED"},
        {"TimelimitRaw": DAY, "ElapsedRaw": "599"},
        {"TimelimitRaw": DAY, "State": "FAILED"},
        {"TimelimitRaw": DAY, "State": "RUNNING", "End": "Unknown"},
    ],
)
def test_time_of_which_nothing_is_said(changes):
    assert cpus(**changes) == ()


def test_a_report_has_them_in_text_and_document():
    of_job = job(row("4711.0"), AllocTRES="cpu=16,gres/gpu=2,mem=64G")
    built = report.build(of_job, lambda _: usage.Measured(gpus=gpus(BUSY, IDLE)))
    assert "\nHints:\n  It had 2 GPUs and used 1: ask for 1" in report.text(built)
    assert len(report.document(built)["hints"]) == 1
    assert "Hints" not in report.text(report.build(job(), lambda _: usage.Measured()))
