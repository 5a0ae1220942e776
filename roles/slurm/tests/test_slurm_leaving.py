"""Nodes that leave, and what is bound to them; answers as Slurm 24.11 gave them."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from roles.slurm.plugin_utils import leaving as s

MINE = "leaves the cluster [root@2026-11-22T22:31:05]"
STAY = ["gpu1"]


def answer(*nodes: str, jobs: str = "", reservations: str = "") -> str:
    lines = "\n".join(["gpu1 IDLE", *nodes])
    return f"answers\n{lines}\n-- jobs --\n{jobs}\n-- reservations --\n{reservations}\n"


DRAINED = answer(f"gpu2 IDLE+DRAIN {MINE}")
BUSY = answer("gpu2 MIXED", jobs="7_3|R|ops|gpu[1-2]|\n8|PD|eve||\n9_[4-9%2]|PD|eve||gpu2\n")


# --- the gate ------------------------------------------------------------------------------------


def test_what_stays_is_no_concern():
    assert s.leaving_refusals(answer(), STAY, "ctl1") == []
    assert s.leaving_refusals(BUSY, ["gpu1", "gpu2"], "ctl1") == []
    assert s.leaving_refusals("absent", STAY, "ctl1") == []


def test_a_node_in_service_does_not_leave():
    [sentence] = s.leaving_refusals(answer("gpu2 IDLE", "gpu3 IDLE"), STAY, "ctl1")
    assert sentence.startswith("gpu[2-3]: in Slurm, not in slurm_compute any more, and in service;")
    assert "remove-nodes.yml" in sentence


@pytest.mark.parametrize(
    "state", [f"IDLE+DRAIN {MINE}", "DOWN+NOT_RESPONDING", "UNKNOWN*", "IDLE+DYNAMIC_NORM"]
)
def test_one_that_gets_no_jobs_and_has_none_leaves_and_one_that_is_not_ours_stays(state):
    assert s.leaving_refusals(answer(f"gpu2 {state}"), STAY, "ctl1") == []


def test_jobs_and_reservations_are_named():
    [sentence] = s.leaving_refusals(BUSY, STAY, "ctl1")
    assert "job 7_3 (ops) runs there, job 9_[4-9%2] (eve) waits for it by name;" in sentence
    reserved = answer(f"gpu2 IDLE+DRAIN {MINE}", reservations="maint gpu[1-2]\nother gpu1")
    [sentence] = s.leaving_refusals(reserved, STAY, "ctl1")
    assert "reserved (maint);" in sentence
    jobs = "".join(f"{n}|R|ops|gpu2|\n" for n in range(1, 8))
    [sentence] = s.leaving_refusals(answer("gpu2 ALLOCATED", jobs=jobs), STAY, "ctl1")
    assert "jobs 1 (ops), 2 (ops), 3 (ops), 4 (ops), 5 (ops) and 2 more run there" in sentence


def test_a_job_that_is_just_ending_counts():
    [sentence] = s.leaving_refusals(answer("gpu2 COMPLETING+DRAIN leaves"), STAY, "ctl1")
    assert "a job is just ending there" in sentence


def test_a_slurmctld_that_does_not_answer_is_no_leave():
    [sentence] = s.leaving_refusals("silent\ngpu[1-3]\ncpu1", STAY, "ctl1")
    assert sentence.startswith("gpu[2-3],cpu1: ") or sentence.startswith("cpu1,gpu[2-3]: ")
    assert "slurmctld on ctl1 does not answer" in sentence
    assert s.leaving_refusals("silent\ngpu1", STAY, "ctl1") == []


@pytest.mark.parametrize("output", ["", "scontrol: error", "answers\ngpu1 IDLE\n-- jobs --\n"])
def test_what_is_no_answer_is_not_taken_for_no_jobs(output):
    with pytest.raises(ValueError, match="Slurm was asked what leaves"):
        s.leaving_refusals(output, STAY, "ctl1")


# --- the removal ---------------------------------------------------------------------------------


def test_a_job_that_runs_refuses_the_removal_unless_it_is_told_what_to_do():
    running = answer("gpu2 MIXED", jobs="7|R|ops|gpu2|")
    [sentence] = s.removal_refusals(running, STAY, "ctl1", 0, False)
    assert sentence.startswith("gpu2 stays, for job 7 (ops) runs there; wait")
    assert "slurm_removal_wait=" in sentence
    assert "slurm_removal_cancel_jobs=true" in sentence
    assert s.removal_refusals(running, STAY, "ctl1", 60, False) == []
    assert s.removal_refusals(running, STAY, "ctl1", 0, True) == []


def test_no_waiting_helps_a_job_that_asks_for_the_node():
    pending = answer("gpu2 IDLE", jobs="9|PD|eve||gpu2")
    [sentence] = s.removal_refusals(pending, STAY, "ctl1", 60, False)
    assert "job 9 (eve) waits for it by name" in sentence
    assert s.removal_refusals(pending, STAY, "ctl1", 60, True) == []


def test_a_reservation_is_left_to_people():
    reserved = answer("gpu2 IDLE", reservations="maint gpu[1-2]")
    [sentence] = s.removal_refusals(reserved, STAY, "ctl1", 60, True)
    assert sentence.endswith("scontrol update reservationname=maint nodes-=gpu2")


def test_what_is_drained_keeps_its_reason():
    reply = answer("gpu2 IDLE+DRAIN bad fan [ops@2026]", "gpu3 DOWN+NOT_RESPONDING", "gpu4 MIXED")
    assert s.to_drain(reply, STAY) == ["gpu3", "gpu4"]


def test_jobs_are_named_as_scancel_reads_them():
    assert s.to_cancel(BUSY, STAY, pending=False) == ["7_3"]
    assert s.to_cancel(BUSY, STAY, pending=True) == ["9"]


def test_a_dead_node_that_holds_jobs_is_set_down():
    reply = answer(
        "gpu2 ALLOCATED+DRAIN+NOT_RESPONDING leaves",
        "gpu3 DOWN+DRAIN+NOT_RESPONDING leaves",
        "gpu4 MIXED+DRAIN leaves",
        jobs="7|R|ops|gpu[2,4]|",
    )
    assert s.to_set_down(reply, STAY) == ["gpu2"]


def test_what_is_still_bound_is_waited_for():
    assert s.still_bound(DRAINED, STAY) == {}
    assert s.still_bound(answer("gpu2 IDLE"), STAY) == {"gpu2": "in service"}
    assert list(s.still_bound(BUSY, STAY)) == ["gpu2"]
    assert s.still_bound("silent\ngpu[1-2]", STAY) == {"gpu2": "slurmctld does not answer"}


# --- the question itself, with Slurm's commands as 24.11 answers them ----------------------------

NODE = (
    "NodeName={name} CoresPerSocket=2  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.00 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:virtual:2 NodeAddr=10.89.2.14 "
    "NodeHostName={name}  RealMemory=2048 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 "
    "Owner=N/A Partitions=gpu  BootTime=None LastBusyTime=Unknown {reason}"
)
SCONTROL = f"""
case "$*" in
    *node) echo '{NODE.format(name="gpu1", state="ALLOCATED", reason="")}'
           echo '{NODE.format(name="gpu2", state="IDLE+DRAIN", reason=f"Reason={MINE} ")}' ;;
    *reservation) echo 'ReservationName=mm StartTime=2026 Nodes=gpu[1-2] NodeCnt=2' ;;
esac
"""
SQUEUE = "echo '1_[5-40]|PD|root||'; echo '6|PD|root||gpu2'; echo '1_1|R|root|gpu1|'"


def question_output(folder: Path, scontrol: str, squeue: str) -> str:
    """What the role's question prints, where the first controller has these commands."""
    for name, script in (("scontrol", scontrol), ("squeue", squeue)):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    (folder / "nodes.conf").write_text(
        "# ours\nNodeName=gpu[1-2] NodeAddr=10.89.2.[12-13] Cpus=2\n"
    )
    role = yaml.safe_load((Path(__file__).parents[1] / "vars/main.yml").read_text())
    question = role["__slurm_read_leaving"].replace("/etc/slurm", str(folder))
    environ = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.check_output(["bash", "-c", question], env=environ, text=True)


def test_the_question_brings_what_is_read(tmp_path):
    leaving = s.read(question_output(tmp_path, SCONTROL, SQUEUE), STAY)
    assert list(leaving.nodes) == ["gpu2"]
    assert leaving.nodes["gpu2"].drained
    assert leaving.nodes["gpu2"].reason == MINE
    assert leaving.pending == {"gpu2": ["6 (root)"]}
    assert leaving.running == {}
    assert leaving.reserved == {"gpu2": ["mm"]}


def test_without_reservations_none_is_made_up(tmp_path):
    reply = question_output(
        tmp_path, SCONTROL.replace("ReservationName=mm", "No reservations"), SQUEUE
    )
    assert s.read(reply, STAY).reserved == {}


@pytest.mark.parametrize("broken", ["scontrol", "squeue"])
def test_a_command_that_fails_is_a_slurmctld_that_does_not_answer(tmp_path, broken):
    commands = {"scontrol": SCONTROL, "squeue": SQUEUE} | {broken: "exit 1"}
    reply = question_output(tmp_path, **commands)
    assert reply.splitlines() == ["silent", "gpu[1-2]"]
    assert list(s.read(reply, STAY).nodes) == ["gpu2"]
