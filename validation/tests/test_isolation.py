"""Jobs beside each other on a node reach their own GPUs: the check, the payload and the plan."""

import copy
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.readers import nvml
from validation import allocations, thresholds
from validation.checks import isolation
from validation.checks.comparison import ComparedNode
from validation.model import Outcome, Reply, Verdict
from validation.payloads import isolation as payload
from validation.slurm import job as jobs
from validation.tests import standin, standin_isolation
from validation.tests.conftest import make_plan
from validation.tests.judging import assert_told, put

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE
REFUSED = standin_isolation.REFUSED


def jobs_of(plan):
    return [job for job in plan.node_jobs if job.payload == "isolation"]


def judged(*changes, model="h100_sxm", silent=(), **of_all):
    """Of one node with two GPUs; changes are (part, path, value)."""
    members = []
    for job in jobs_of(make_plan(("gpu1", model, 2), suite="gpu")):
        part = job.config["part"]
        measured = copy.deepcopy(standin_isolation.measured(job.config, **of_all))
        for of, path, value in changes:
            if of == part:
                put(measured, path, value)
        text = standin.line(standin.of_node("isolation", "gpu1", measured, job.config))
        reply = Reply(job.name, Outcome.EXITED, 0, "17", text)
        members.append(ComparedNode(job, None if part in silent else reply, thresholds.load(model)))
    (result,) = isolation.compare(members)
    assert_told(result)
    return result


def opened(*parts, number=0):
    return [(part, ("devices", number, "denied"), None) for part in parts]


ALL = ("first", "second", "none")


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ([], PASS, ""),
        (
            opened("second"),
            FAIL,
            "the job that asked for a GPU (second) reaches /dev/nvidia0, /dev",
        ),
        (opened("none", number=1), FAIL, "the job that asked for no GPU reaches /dev/nvidia1"),
        (
            [("second", ("devices", 1, "denied"), REFUSED), *opened("second")],
            FAIL,
            "two jobs were given /dev/nvidia0",
        ),
        (
            [("first", ("devices", 0, "denied"), REFUSED)],
            FAIL,
            "the job that asked for a GPU (first) reaches none",
        ),
        (
            [("first", ("gpus",), ["GPU-gpu1-0", "GPU-gpu1-1"])],
            FAIL,
            "to the job that asked for a GPU (first) NVML lists 2 GPUs",
        ),
        ([("none", ("gpus",), ["GPU-gpu1-0"])], FAIL, "to the job that asked for no GPU NVML"),
        ([("none", ("nvml",), "Driver/library mismatch")], PASS, ""),
        ([("none", ("devices",), [])], FAIL, "0 device files of GPUs, 2 are declared"),
        (
            [("first", ("met",), ["none"])],
            UNKNOWN,
            "the job that asked for a GPU (second) did not run beside that for a GPU (first)",
        ),
        ([("none", ("part",), "first")], FAIL, "answered as 'first', was asked as 'none'"),
        ([("none", ("devices",), ...)], FAIL, "the answer has no measured.devices"),
        ([("none", ("gpus",), [3])], FAIL, "measured.gpus is no list of texts"),
    ],
)
def test_what_a_job_reaches_is_judged(changes, verdict, words):
    result = judged(*changes)
    assert (result.verdict, result.subject.name) == (verdict, "gpu1")
    assert result.message.startswith(words)
    assert bool(result.message) == bool(words)


def test_virtual_gpus_that_a_site_does_not_confine_are_a_warning_and_real_ones_are_not():
    """Every job reaches everything, and slurmd says that it confines no devices."""
    free = [change for number in (0, 1) for change in opened(*ALL, number=number)]
    assert judged(*free, model="virtual", constrained="no").verdict is WARN
    assert judged(*free, model="virtual", constrained=None).verdict is WARN
    assert judged(*free, model="virtual").verdict is FAIL
    assert judged(*free, constrained="no").verdict is FAIL
    none = [(part, ("devices", own, "denied"), REFUSED) for own, part in enumerate(ALL[:2])]
    assert judged(*none, model="virtual").verdict is WARN
    assert judged(*none).verdict is FAIL


@pytest.mark.parametrize("part", ALL)
def test_without_one_of_the_jobs_nothing_is_known(part):
    result = judged(silent=(part,))
    assert result.verdict is UNKNOWN
    assert result.message.startswith("no answer of the job that asked for")


# --- the plan and the commands -----------------------------------------------------------------


def test_three_jobs_of_a_node_are_planned_and_run_after_all_others():
    plan = make_plan(("gpu1", "h100_sxm", 8), ("gpu2", "virtual", 2), suite="gpu")
    assert [job.name for job in jobs_of(plan)] == [
        f"isolation-{node}-{part}" for node in ("gpu1", "gpu2") for part in ALL
    ]
    assert [lane[0].name for lane in plan.side_by_side] == [job.name for job in jobs_of(plan)]
    assert not {job.payload for lane in plan.node_lanes for job in lane} & {"isolation"}
    first, _, none = jobs_of(plan)[:3]
    assert (first.gres, none.gres) == ("gpu:h100_sxm:1", "none")
    meetings = {job.hosts: job.config["meeting"] for job in jobs_of(plan)}
    assert len(set(meetings.values())) == 2
    other = make_plan(("gpu1", "h100_sxm", 8), suite="gpu")
    assert jobs_of(other)[0].config["meeting"] not in meetings.values()


@pytest.mark.parametrize(
    ("node", "skip"),
    [
        (("c1", "none", 0), "no GPU is declared"),
        (("c1", "t4", 1), "two jobs cannot have a GPU and a CPU each"),
        (("c1", "t4", 2), None),
    ],
)
def test_where_two_jobs_cannot_be_side_by_side_the_plan_says_why(node, skip):
    checks = make_plan(node, suite="gpu").checks
    assert [check.skip for check in checks if check.check == isolation.NAME] == [skip]


def test_jobs_ask_for_a_part_and_their_allocation_for_all_of_it():
    plan = make_plan(*((f"gpu{number}", "h100_sxm", 8) for number in (1, 2)), suite="gpu")
    (allocation,) = allocations.share(plan.side_by_side, frozenset({"gpu1", "gpu2"}), 64)
    assert len(allocation.lanes) == 6
    command = jobs.allocation_command("r", allocation)
    assert {"--gres=gpu:h100_sxm:8", "--exclusive", "--mem=0"} <= set(command)
    first, _, none = jobs_of(plan)[:3]
    step = jobs.step_command("r", first, "python3")
    assert {"--gres=gpu:h100_sxm:1", "--exact", "--cpus-per-task=1", "--mem=500"} <= set(step)
    step = jobs.step_command("r", none, "python3")
    assert {"--gres=none", "--overlap"} <= set(step)
    alone = jobs.command("r", first, "python3")
    assert "--gres=gpu:h100_sxm:1" in alone
    assert not {"--exclusive", "--exact", "--mem=0"} & set(alone)


def test_the_jobs_of_a_node_are_never_in_two_allocations():
    nodes = [f"gpu{number}" for number in range(1, 41)]
    plan = make_plan(*((name, "h100_sxm", 8) for name in nodes), suite="gpu")
    shared = allocations.share(plan.side_by_side, frozenset(nodes), 64)
    of_nodes = [{job.hosts[0] for job in allocation.jobs} for allocation in shared]
    assert sum(map(len, of_nodes)) == len(set().union(*of_nodes)) == 40


# --- the payload -------------------------------------------------------------------------------


def no_gpu(limit_s, names):
    return nvml.System("no driver"), []


def config(part, meet_s=30.0, meeting="x"):
    return payload.Config(part=part, meeting=f"{meeting}-{os.getpid()}", meet_s=meet_s)


def test_a_job_is_there_however_often_it_was_asked_for():
    """Those that wait for a third call a second one many times, and nobody takes their calls."""
    first = config("first", meeting="z")
    assert not payload._is_there(first, "first")
    with payload._present(first, "first"):
        assert all(payload._is_there(first, "first") for _ in range(100))
    assert not payload._is_there(first, "first")


def test_jobs_meet_look_and_stay_until_the_others_have_looked(tmp_path, monkeypatch):
    (tmp_path / "nvidia0").write_text("")
    (tmp_path / "nvidiactl").write_text("")
    answers = {}
    looking = threading.Barrier(3, timeout=30)

    def devices(dev):
        looking.wait()  # all three are there at once
        return iter([])

    monkeypatch.setattr(payload, "_devices", devices)
    monkeypatch.setattr(payload, "_constrained", lambda: None)

    def run(part):
        answers[part] = payload.measure(config(part), tmp_path, {}, no_gpu)

    threads = [threading.Thread(target=run, args=(part,)) for part in ALL]
    for thread in threads:
        thread.start()
        time.sleep(5 * payload._POLL_S)  # the first ones ask several times
    for thread in threads:
        thread.join(60)
    assert {part: set(answer["met"]) for part, answer in answers.items()} == {
        part: set(ALL) - {part} for part in ALL
    }


def test_a_job_that_nobody_joins_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(payload, "_constrained", lambda: "yes")
    answer = payload.measure(config("none", 0.2, "y"), tmp_path, {}, no_gpu)
    assert (answer["met"], answer["nvml"], answer["constrained"]) == ([], "no driver", "yes")


def test_only_a_refusal_keeps_a_device_from_a_job(tmp_path, monkeypatch):
    """A device without a driver, as on a virtual node, was reached."""
    usual = os.open
    errors = {"nvidia1": PermissionError(1, REFUSED), "nvidia2": OSError(6, "No such device")}

    def open_(path, flags):
        if error := errors.get(Path(path).name):
            raise error
        return usual(path, flags)

    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(os, "open", open_)
    assert list(payload._devices(tmp_path)) == [
        {"number": 0, "denied": None},
        {"number": 1, "denied": REFUSED},
        {"number": 2, "denied": None},
    ]


def test_a_part_is_one_gpu_of_whatever_a_site_calls_them():
    (first, *_) = jobs_of(make_plan(("gpu1", "h100_sxm", 8), suite="gpu"))
    gpus = replace(first.nodes[0].gpus, gres="gpu:half:4,gpu:full:4")
    assert replace(first, nodes=(replace(first.nodes[0], gpus=gpus),)).gres == "gpu:half:1"
