"""Every reason that Slurm can give, and whose matter it is."""

from pathlib import Path

import pytest

from cluster.slurm.job_reasons import CAUSES, Cause, cause, of_account, refusal

RECORDED = {
    path.stem: path.read_text().split()
    for path in sorted((Path(__file__).parent / "job_reasons").glob("*.txt"))
}


def test_lists_of_the_oldest_and_the_newest_version_are_recorded():
    assert list(RECORDED) == ["22.05", "26.05"]
    assert all(len(names) > 180 for names in RECORDED.values())


@pytest.mark.parametrize("version", RECORDED)
def test_every_reason_of_a_version_is_in_the_table(version):
    assert [name for name in RECORDED[version] if name not in CAUSES] == []


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Resources", Cause.BUSY),
        ("Priority", Cause.BUSY),
        ("Reservation", Cause.BUSY),
        ("BeginTime", Cause.BUSY),
        ("Licenses", Cause.BUSY),
        ("QOSMaxJobsPerUserLimit", Cause.LIMIT),
        ("QOSGrpGRES", Cause.LIMIT),
        ("AssocGrpCPURunMinutesLimit", Cause.LIMIT),
        ("MaxGRESRunMinsPerUser", Cause.LIMIT),
        ("PartitionTimeLimit", Cause.REQUEST),
        ("PartitionDown", Cause.REQUEST),
        ("InvalidAccount", Cause.REQUEST),
        ("Dependency", Cause.REQUEST),
        ("ReqNodeNotAvail", Cause.NODE),
        ("ReqNodeNotAvail,_UnavailableNodes:gpu2", Cause.NODE),
        ("ReqNodeNotAvail, May be reserved for other job", Cause.BUSY),
        ("ReqNodeNotAvail,_Reserved_for_maintenance", Cause.BUSY),
        (
            "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_"
            "partitions",
            Cause.NODE,
        ),
        ("launch_failed_requeued_held", Cause.NODE),
        ("BlockMaxError", Cause.NODE),
        ("BlockFreeAction", Cause.BUSY),
        ("Nodes required for job are DOWN, DRAINED: gpu2 or reserved for jobs", Cause.NODE),
        ("launch failure limit exceeded requeued held", Cause.NODE),
        ("user env retrieval failed requeued held", Cause.NODE),
        ("job_requeued_in_held_state", Cause.REQUEST),
        ("job requeued in special exit state", Cause.REQUEST),
        ("Reservation nightly is invalid", Cause.REQUEST),
        ("Reservation_nightly_was_deleted", Cause.REQUEST),
        ("Reservation nightly, which this job was running under, has ended", Cause.REQUEST),
        (
            "uid 7 not in group permitted to use this partition (gpu). groups allowed: a",
            Cause.REQUEST,
        ),
        ("Job is at or exceeds QOS normal's group max TRES(cpu) minutes of 10", Cause.LIMIT),
        ("Job is at or exceeds association (acc=a/user=b/part=c) group wall limit 5", Cause.LIMIT),
        ("burst_buffer/lua: Stage-out in progress", Cause.BUSY),
        ("burst_buffer/datawarp: Invalid burst buffer spec (x)", Cause.REQUEST),
        ("burst_buffer/datawarp: Delete buffer x permission denied", Cause.REQUEST),
        ("burst_buffer/lua: post_run: no room", Cause.CLUSTER),
        ("Burst buffer pre_run error", Cause.CLUSTER),
        ("RaisedSignal:9(Killed)", Cause.REQUEST),
        ("None", Cause.UNKNOWN),
        ("", Cause.UNKNOWN),
        ("SomethingOf2031", Cause.UNKNOWN),
    ],
)
def test_whose_matter_a_reason_is(reason, expected):
    assert cause(reason) is expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Invalid partition name specified", Cause.REQUEST),
        ("Invalid account or account/partition combination specified", Cause.REQUEST),
        ("Requested time limit is invalid", Cause.REQUEST),
        (
            "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
            Cause.LIMIT,
        ),
        ("Requested node configuration is not available", Cause.NODE),
        ("Unable to contact slurm controller", Cause.CLUSTER),
        ("Invalid generic resource (gres) specification", Cause.CLUSTER),
        ("Invalid Trackable RESource (TRES) specification", Cause.CLUSTER),
    ],
)
@pytest.mark.parametrize("attempt", ["allocate resources", "create step for job 7"])
def test_what_a_refused_submission_says(attempt, words, expected):
    sentence = f"Unable to {attempt}: {words}"
    assert refusal(f"srun: error: {sentence}\n") == (sentence, expected)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Invalid account or account/partition combination specified", True),
        ("Invalid qos specification", True),
        ("Invalid or unknown association", True),
        ("InvalidAccount", True),
        ("AccountNotAllowed", True),
        ("QOSNotAllowed", True),
        ("AccountingPolicy", False),
        ("QOSMaxJobsPerUserLimit", False),
        ("Invalid accounting frequency requested", False),
        ("Invalid partition name specified", False),
    ],
)
def test_what_is_about_the_account_is_told_from_limits(message, expected):
    assert of_account(message) is expected


def test_an_ordinary_failure_is_no_refusal():
    assert refusal("srun: error: gpu2: task 1: Exited with exit code 1\n") is None
    assert refusal("plumbline: ddp, rank 1 on gpu2: Invalid argument\n") is None
