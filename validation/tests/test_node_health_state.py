"""What a node tells Slurm: hypothesis plays operators, prolog failures and interruptions."""

import contextlib
import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cluster.slurm.drain_reasons import reason
from validation.node_health import main, slurm, state
from validation.node_health.state import Drain, Files, JobFailure, Step, View, decide, must_look

BAD = {"gpu_ecc": reason("gpu_ecc", "GPU 1: 2 uncorrectable ECC errors")}
OTHER = {"munge": reason("munge", "munged does not answer")}
OURS = Drain({"gpu_ecc": None}, (BAD["gpu_ecc"],), True, 0.0)
PROLOG = JobFailure("prolog", 0.0, {"gpu_ecc": BAD["gpu_ecc"]}, (1,))
WELL = View(False, "")


def drained(text):
    return View(True, text)


def test_a_healthy_node_has_no_word_with_slurm():
    assert not must_look(None, None, {}, 1.0)


def test_a_known_failure_is_not_told_twice_until_it_is_time_to_look_again():
    assert not must_look(OURS, None, BAD, 1.0)
    assert must_look(OURS, None, BAD | OTHER, 1.0)
    assert must_look(OURS, None, BAD, state.LOOK_AGAIN_S)
    assert must_look(replace(OURS, at=100.0), None, BAD, 1.0)  # the clock was set back
    assert must_look(replace(OURS, told=False), None, BAD, 1.0)


def test_a_failure_drains_with_its_reason_written_down_first():
    step = decide(None, None, BAD, WELL, 5.0)
    assert step.say == BAD["gpu_ecc"]
    assert step.before == Drain({"gpu_ecc": None}, (BAD["gpu_ecc"],), False, 5.0)
    assert step.after == Drain({"gpu_ecc": None}, (BAD["gpu_ecc"],), True, 5.0)


def test_the_generic_reason_of_slurmctld_is_replaced_by_ours():
    step = decide(None, PROLOG, BAD, drained("Prolog error"), 5.0)
    assert step.say == BAD["gpu_ecc"]
    assert step.before is not None
    assert step.after is not None
    assert "Prolog error" in step.before.reasons
    assert step.after.checks == {"gpu_ecc": (1,)}


def test_a_prolog_error_that_is_not_ours_stays():
    """Some other prolog failed, or ours failed as an epilog."""
    assert decide(None, None, BAD, drained("Prolog error"), 5.0).say is None
    epilog = replace(PROLOG, context="epilog")
    assert not decide(None, epilog, {}, drained("Prolog error"), 5.0).undrain


def test_what_healed_before_slurmctld_drained_is_waited_for():
    step = decide(None, PROLOG, {}, WELL, 5.0)
    assert step == Step(after=None)
    returned = Step(after=None, undrain=True, job_done=True)
    assert decide(None, PROLOG, {}, drained("Prolog error"), 10.0) == returned
    assert decide(None, PROLOG, {}, WELL, state.PENDING_S).job_done


def test_several_failures_are_one_reason():
    assert state.together(BAD | OTHER) == f"{BAD['gpu_ecc']} (and munge)"


class Cut(BaseException):
    """The process is killed."""


class FakeSlurm:
    """slurmctld and scontrol; `cut` calls from now the process dies, before or after the call."""

    def __init__(self):
        self.drained, self.reason = False, ""
        self.calls = self.undrained = 0
        self.cut = None

    def _dies(self):
        self.calls += 1
        if self.cut is not None:
            self.cut -= 1
            if self.cut < 0:
                self.cut = None
                raise Cut

    def look(self, node):
        self._dies()
        return View(self.drained, self.reason)

    def drain(self, node, text):
        self._dies()
        self.drained, self.reason = True, text
        self._dies()

    def undrain(self, node):
        self._dies()
        assert self.drained
        assert not self.operators(), f"an operator's drain was undone: {self.reason}"
        self.drained, self.reason = False, ""
        self.undrained += 1
        self._dies()

    def operators(self):
        return self.drained and self.reason.startswith("operator")

    def prolog_failed(self, context):
        """As validate_node_specs in slurmctld: a drained node is left alone."""
        if not self.drained:
            self.drained, self.reason = True, state.GENERIC[context]


EVENTS = st.one_of(
    st.sampled_from(["break", "break other", "mend", "operator", "resume", "check"]),
    st.tuples(st.just("cut"), st.integers(0, 4)),
    st.tuples(st.just("job"), st.sampled_from(["prolog", "epilog"]), st.booleans()),
    st.tuples(st.just("sleep"), st.sampled_from([1.0, 60.0, 700.0])),
)


class World:
    def __init__(self, folder, monkeypatch):
        self.files = Files(folder / "disk", folder / "spare")
        self.files.keep_drain(None)
        self.slurm, self.failing, self.now = FakeSlurm(), {}, 0.0
        self.late = None  # a prolog's failure that slurmctld has not heard of yet
        for name in ("look", "drain", "undrain"):
            monkeypatch.setattr(slurm, name, getattr(self.slurm, name))
        monkeypatch.setattr("time.time", lambda: self.now)
        monkeypatch.setattr(main, "_say", lambda text: None)
        monkeypatch.setattr("syslog.syslog", lambda *arguments: None)

    def check(self):
        failing = dict(self.failing)
        drain, job = self.files.drain(), self.files.job()
        with contextlib.suppress(Cut):
            assert main.tell("n1", self.files, drain, job, failing) == 0

    def do(self, event):
        if event == "break":
            self.failing |= BAD
        elif event == "break other":
            self.failing |= OTHER
        elif event == "mend":
            self.failing = {}
        elif event == "operator":
            self.slurm.drained, self.slurm.reason = True, "operator: new board"
        elif event == "resume":
            self.slurm.drained, self.slurm.reason = False, ""
        elif event == "check":
            self.check()
        elif event[0] == "cut":
            self.slurm.cut = event[1]
            self.check()
            self.slurm.cut = None
        elif event[0] == "job" and self.failing and not self.slurm.drained:
            self.files.keep_job(JobFailure(event[1], self.now, dict(self.failing), ()))
            self.late = event[1]
            if event[2]:
                self.hears()
        elif event[0] == "sleep":
            self.hears()
            self.now += event[1]

    def hears(self):
        if self.late is not None:
            self.slurm.prolog_failed(self.late)
            self.late = None


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(events=st.lists(EVENTS, max_size=25))
@example(events=["break", ("job", "prolog", False), "check", "resume"])
@example(events=["break", ("job", "prolog", False), "check", "mend", "check"])
def test_whatever_happens_only_what_is_ours_is_returned_and_it_is(events, tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.files.forget_job(world.files.job())
    for event in events:
        world.do(event)
        assert not (event == "check" and world.slurm.operators() and not world.slurm.drained)
    operators = world.slurm.operators()
    # All is mended, slurmctld has heard everything, and the checks run twice more.
    world.failing = {}
    world.hears()
    world.check()
    world.check()
    assert world.slurm.operators() == operators
    assert world.slurm.drained == operators, world.slurm.reason
    calls = world.slurm.calls
    if world.now and world.files.job() is None:
        world.check()
        assert world.slurm.calls == calls, "a healthy node goes on asking"


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(events=st.lists(EVENTS, max_size=25))
def test_a_failing_node_is_out_of_service(events, tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.files.forget_job(world.files.job())
    for event in events:
        world.do(event)
    world.failing = dict(BAD)
    world.now += state.LOOK_AGAIN_S
    world.check()
    assert world.slurm.drained
    known = world.slurm.calls
    world.check()
    assert world.slurm.calls == known, "a failure that Slurm knows is told again"


def test_a_drain_returns_exactly_once(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.do("break")
    world.check()
    assert world.slurm.reason == BAD["gpu_ecc"]
    world.do("mend")
    for _ in range(5):
        world.check()
    assert world.slurm.undrained == 1


@pytest.mark.parametrize("cut", range(5))
def test_an_interruption_anywhere_is_made_good(cut, tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.do("break")
    world.do(("cut", cut))
    world.check()
    assert world.slurm.reason == BAD["gpu_ecc"]
    world.do("mend")
    world.do(("cut", cut))
    world.check()
    assert not world.slurm.drained


def test_a_disk_that_cannot_be_written_to_is_made_up_for_in_memory(tmp_path):
    (tmp_path / "disk").write_text("a file where the folder should be")
    files = Files(tmp_path / "disk", tmp_path / "spare")
    files.keep_drain(OURS)
    assert files.drain() == OURS
    (tmp_path / "disk").unlink()
    files.keep_drain(replace(OURS, told=False))
    assert not (tmp_path / "spare" / "drain.json").exists()
    assert files.drain() == replace(OURS, told=False)


def test_a_prolog_that_fails_while_one_is_dealt_with_is_not_forgotten(tmp_path):
    files = Files(tmp_path, tmp_path / "spare")
    files.keep_job(PROLOG)
    files.keep_job(replace(PROLOG, at=7.0))
    files.forget_job(PROLOG)
    assert files.job() == replace(PROLOG, at=7.0)


def test_half_a_file_is_none(tmp_path):
    (tmp_path / "drain.json").write_text(json.dumps({"checks": {}})[:-3])
    assert Files(tmp_path, tmp_path / "spare").drain() is None


def test_one_run_at_a_time(tmp_path):
    files = Files(tmp_path, tmp_path / "spare")
    with files.lock() as first, files.lock() as second:
        assert (first, second) == (True, False)


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("NodeName=n State=IDLE Weight=1", View(False, "")),
        ("NodeName=n State=IDLE+DRAIN Reason=Prolog error [slurm@2026-11-22T06:00:00]",
         View(True, "Prolog error")),
        ("NodeName=n State=MIXED+DRAIN+RESERVED Reason=[plumbline:munge] it [x] is [root@1]",
         View(True, "[plumbline:munge] it [x] is")),
        ("NodeName=n State=IDLE* Reason=Not responding [slurm@2026-11-22T06:00:00]",
         View(False, "Not responding")),
    ],
)  # fmt: skip
def test_the_word_of_scontrol_is_read(text, view):
    assert slurm.parse(text) == view


def test_silence_of_scontrol_is_no_answer():
    with pytest.raises(slurm.SlurmError, match="nothing of a state"):
        slurm.parse("Node n not found")
