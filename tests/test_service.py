"""Who goes out of service, who is waited for, who comes back; answers as Slurm 24.11 gave them."""

import pytest

from playbooks.plugin_utils import service as s

MINE = "[plumbline:reboot] new kernel, by ops on control [root@2026-11-22T06:03:27]"
ANSWER = f"""answers
gpu1 IDLE
gpu2 MIXED+DRAIN {MINE}
gpu3 IDLE+DRAIN bad fan [ops@2026-11-21T16:43:23]
gpu4 DOWN+NOT_RESPONDING Not responding [slurm@2026-11-21T16:43:23]
gpu5 DOWN waits for a board [root@2026-11-21T16:43:23]
gpu6 IDLE+DRAIN {MINE}
gpu7 ALLOCATED+DRAIN bad fan [ops@2026-11-21T16:43:23]
gpu8 IDLE+COMPLETING+DRAIN {MINE}
gpu9 MIXED
-- slurmd --
gpu1 2026-11-22T06:02:54
gpu2 2026-11-22T06:02:54
gpu6 2026-11-22T06:20:00
-- jobs --
7 R ann 2026-11-22T09:30:00 gpu[2,7]
8 S bob N/A gpu2
9 PD bob N/A gpu1
"""
EMPTY = "answers\n-- slurmd --\n-- jobs --\n"


@pytest.mark.parametrize("output", ["", "scontrol: error", "answers\ngpu1 IDLE\n-- slurmd --\n"])
def test_what_is_no_answer_is_not_no_jobs(output):
    with pytest.raises(ValueError, match="Slurm was asked"):
        s.busy(output, ["gpu1"])


@pytest.mark.parametrize(
    ("output", "node", "slurmd", "due", "place"),
    [
        (ANSWER, "gpu1", True, True, "turn"),
        (ANSWER, "gpu1", True, False, "now"),
        (ANSWER, "gpu2", True, True, "left"),
        (ANSWER, "gpu2", True, False, "left"),
        (ANSWER, "gpu3", True, True, "turn"),  # somebody else's: worked on, with a turn like others
        (ANSWER, "gpu1", False, True, "now"),
        (ANSWER, "new", True, True, "now"),
        ("absent", "gpu1", True, True, "now"),
        ("silent", "gpu1", True, True, "turn"),
        ("silent", "gpu1", True, False, "now"),
    ],
)
def test_whose_turn_is_when(output, node, slurmd, due, place):
    assert s.place(output, node, slurmd, due) == place


def test_only_nodes_in_service_are_drained():
    everyone = [f"gpu{number}" for number in range(1, 10)]
    assert s.to_drain(ANSWER, everyone) == ["gpu1", "gpu4", "gpu9"]


def test_no_node_goes_out_while_another_is_out():
    out = s.out_already(ANSWER, ["gpu1"])
    assert [word.split()[0] for word in out] == ["gpu2", "gpu6", "gpu8"]
    assert s.out_already(ANSWER, ["gpu1", "gpu2", "gpu6", "gpu8"]) == []
    assert s.out_already(EMPTY, ["gpu1"]) == []


def test_one_that_failed_in_this_run_counts_whoever_keeps_it():
    (out,) = s.out_already(EMPTY, ["gpu1"], ["gpu1", "gpu3"])
    assert out == "gpu3 (slurmctld does not know the node)"


def test_one_that_waits_for_slurm_is_ours_and_keeps_no_other_in_service():
    waiting = ANSWER.replace(MINE, "[plumbline:slurm] another MIG layout [root@2026-11-22]")
    assert s.place(waiting, "gpu6", True, False) == "left"
    assert (s.waits(waiting, "gpu6"), s.waits(ANSWER, "gpu6")) == (True, False)
    assert not s.waits(waiting, "gpu1")
    assert not s.waits("absent", "gpu6")
    assert s.out_already(waiting, ["gpu1"]) == []
    assert s.to_drain(waiting, ["gpu1", "gpu6"]) == ["gpu1"]
    assert s.to_return(waiting, ["gpu6"]) == ["gpu6"]
    # One that failed while it waited counts like any other, and waits on.
    assert s.out_already(waiting, ["gpu1"], ["gpu6"]) != []
    assert s.reason("it is cut wrongly", waits=True).startswith(s.WAITS)


def test_one_that_dropped_out_of_a_run_is_resumed_at_the_end_of_the_next():
    """It may have jobs, which nobody waits for, and holds no other node back."""
    dropped = ANSWER.replace(MINE, s.reason("dropped out of a run", unfit=True))
    assert s.place(dropped, "gpu2", True, False) == "now"
    assert s.place(dropped, "gpu2", True, True) == "turn"
    assert s.waits(dropped, "gpu2")
    assert s.out_already(dropped, ["gpu1"]) == []
    assert s.to_return(dropped, ["gpu1", "gpu2"]) == ["gpu2"]


def test_only_nodes_that_get_jobs_are_drained_when_they_drop_out():
    answer = ANSWER.replace("gpu9 MIXED", "gpu9 IDLE+POWERED_DOWN")
    everyone = [*(f"gpu{number}" for number in range(1, 10)), "new"]
    assert s.in_service(answer, everyone) == ["gpu1"]
    assert s.in_service(ANSWER, everyone) == ["gpu1", "gpu9"]
    assert s.in_service("absent", everyone) == []
    assert s.in_service("silent", everyone) == []


def test_every_job_is_waited_for():
    nodes = ["gpu2", "gpu3", "gpu5", "gpu6", "gpu7", "gpu8"]
    assert s.busy(ANSWER, nodes) == {
        "gpu2": "jobs 7 (ann), 8 (bob)",
        "gpu7": "job 7 (ann)",
        "gpu8": "a job that is just ending",
    }


def test_a_node_that_is_not_drained_may_get_a_job_at_any_time():
    assert s.busy(ANSWER, ["gpu1"]) == {"gpu1": "it is not drained any more"}
    assert s.busy("silent", ["gpu6"]) == {"gpu6": "slurmctld does not answer"}
    assert s.busy(EMPTY, ["gpu6"]) == {"gpu6": "slurmctld does not know the node any more"}


def test_only_ours_return():
    assert s.to_return(ANSWER, ["gpu1", "gpu3", "gpu5", "gpu6", "gone"]) == ["gpu6"]
    assert s.kept_out(ANSWER, ["gpu1", "gpu3", "gpu4", "gpu5", "gpu6"]) == {
        "gpu3": "bad fan [ops@2026-11-21T16:43:23]",
        "gpu5": "waits for a board [root@2026-11-21T16:43:23]",
    }


@pytest.mark.parametrize(
    ("node", "booted", "silent"),
    [
        ("gpu6", "2026-11-22T06:20:01", []),
        ("gpu6", "2026-11-22T06:30:00", ["gpu6"]),
        ("gpu6", "", ["gpu6"]),
        ("gpu4", "2026-11-22T06:20:00", ["gpu4"]),
    ],
)
def test_a_slurmd_of_before_the_reboot_is_none(node, booted, silent):
    assert s.silent(ANSWER, {node: booted}) == silent


def test_the_start_of_slurmd_is_read():
    output = "Actual Boards  = 1\nBoot time      = 2026-11-22T06:02:54\nHostname = x\n"
    assert s.slurmd_start(output) == "2026-11-22T06:02:54"
    assert s.slurmd_start("slurm_load_slurmd_status: Connection refused") == ""


def test_what_did_not_come_back_is_told():
    assert s.not_back(ANSWER, ["gpu1", "gpu3", "gpu9"]) == {}
    reasons = s.not_back(ANSWER, ["gpu4", "gpu6"])
    assert reasons["gpu4"].startswith("slurmctld holds it as DOWN+NOT_RESPONDING: Not responding ")
    assert reasons["gpu6"].startswith("slurmctld holds it as DRAIN+IDLE: [plumbline:reboot]")


def test_a_reason_is_one_line_of_a_bounded_length():
    assert s.reason('new\n "kernel"') == "[plumbline:reboot] new 'kernel'"
    assert len(s.reason("x" * 999)) < 230
    assert " on " in s.operator()
