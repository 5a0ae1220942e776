"""The walk through the tiers, with a Slurm client that answers as told."""

import json

import pytest

from validation import tiers
from validation.checks import CHECKS
from validation.errors import TransportError, Unreachable
from validation.model import (
    MungeReply,
    NodeState,
    Outcome,
    Reply,
    Tier,
    Verdict,
    node_reports,
    overall,
    settle,
)
from validation.plan import Selection
from validation.slurm.client import JobProgress, Progress, SlurmDown
from validation.tests import standin
from validation.tests.conftest import make_plan

THREE = tuple((f"gpu{number}", "virtual", 2) for number in (1, 2, 3))


class FakeBatch:
    def __init__(self, slurm, lanes):
        self.slurm = slurm
        self.jobs = [job for lane in lanes for job in lane]
        self.polls = 0

    def start(self):
        self.slurm.log.append(("start", [job.name for job in self.jobs]))
        if self.slurm.start_error:
            raise self.slurm.start_error

    def poll(self):
        self.polls += 1
        if self.slurm.interrupt_on in [job.name for job in self.jobs]:
            raise KeyboardInterrupt
        if self.slurm.poll_errors:
            raise self.slurm.poll_errors.pop()
        replies = tuple(reply for job in self.jobs if (reply := self.slurm.reply(job)))
        done = tuple(JobProgress(job.name, "done", "1", 1.0, "") for job in self.jobs)
        return Progress(not self.slurm.lost, done, replies, self.slurm.lost)

    def cancel(self):
        self.slurm.log.append(("cancel", [job.name for job in self.jobs]))
        return Progress(True, (), ())

    def close(self):
        self.slurm.log.append(("close", [job.name for job in self.jobs]))


class FakeSlurm:
    """replies: by job, a Reply, None for silence, or what to change in a healthy answer."""

    via = "test"
    notes = ()

    def __init__(self, plan, states=None, replies=None):
        self.plan = plan
        self.states = states or {}
        self.replies = replies or {}
        self.log = []
        self.start_error = None
        self.poll_errors = []
        self.lost = ""
        self.interrupt_on = None
        self.down = None

    def node_states(self):
        if self.down:
            raise self.down
        states = {
            node.name: NodeState(node.name, "idle", 2, 2000, f"gpu:{node.gpus.count}")
            for node in self.plan.nodes
        }
        return "24.11.5", {**states, **self.states}

    def prepare(self, lanes, at_once):
        return FakeBatch(self, lanes)

    def reply(self, job):
        change = self.replies.get(job.name, {})
        if change is None or isinstance(change, Reply):
            return change
        if job.payload == "node":
            document = standin.node(job.hosts[0], {"munge_credential": "x"}, **change)
        else:
            document = getattr(standin, job.payload)(
                job.hosts, job.config, job.ranks_per_node, **change
            )
        text = standin.line(document)
        now = document["measured"].get("time_ns", 1)
        munge = MungeReply(None, 0, "Success (0)")
        return Reply(job.name, Outcome.EXITED, 0, "7", text, document_ns=now, munge=munge)

    @property
    def started(self):
        return [names for what, names in self.log if what == "start"]


class Silent:
    def __init__(self):
        self.results = []

    def stage(self, text):
        pass

    def progress(self, progress):
        pass

    def job(self, report):
        pass

    def result(self, result):
        self.results.append(result)


def walk(slurm):
    observer = Silent()
    found = tiers.walk(slurm.plan, slurm, observer, interval_s=0)
    assert list(found.results) == observer.results
    # Whatever happened: every planned check has exactly one result.
    assert sorted((r.check, r.subject.name) for r in found.results) == sorted(
        (c.check, c.subject.name) for c in slurm.plan.checks
    )
    return found


def verdict(slurm, found):
    return overall(slurm.plan.checks, found.results)


def messages(found, verdict=Verdict.FAIL):
    return {(r.check, r.subject.name): r.message for r in found.results if r.verdict is verdict}


def test_a_healthy_cluster_passes():
    slurm = FakeSlurm(make_plan())
    found = walk(slurm)
    assert verdict(slurm, found) is Verdict.PASS
    assert slurm.started == [["node-gpu1", "node-gpu2"], ["all_reduce", "ddp", "pipeline"]]
    assert [what for what, _ in slurm.log] == ["start", "close", "start", "close"]


def test_a_node_that_slurm_drained_gets_no_job_and_fails():
    slurm = FakeSlurm(make_plan(*THREE))
    slurm.states["gpu2"] = NodeState("gpu2", "drained", 2, 2000, "gpu:2", "bad fan")
    found = walk(slurm)
    assert slurm.started[0] == ["node-gpu1", "node-gpu3"]
    failed = messages(found)
    assert failed["slurm_state", "gpu2"] == "Slurm says drained (bad fan)"
    assert failed["gpus", "gpu2"] == "not run: Slurm says drained (bad fan)"
    assert len(failed) == 6
    assert verdict(slurm, found) is Verdict.FAIL
    # The others go on without it.
    ddp = next(result for result in found.results if result.check == "ddp")
    assert ddp.verdict is Verdict.PASS
    assert ddp.subject.nodes == ("gpu1", "gpu3")


def test_a_node_that_slurm_does_not_list_fails(monkeypatch):
    slurm = FakeSlurm(make_plan(*THREE))
    monkeypatch.setattr(slurm, "node_states", lambda: ("24.11.5", {}))
    found = walk(slurm)
    assert slurm.started == []
    assert set(messages(found)) == {(c.check, c.subject.name) for c in slurm.plan.checks}
    assert messages(found)["ddp", "virtual"] == "only 0 of 3 nodes left"


def test_a_node_that_fails_its_own_checks_leaves_the_later_tiers():
    slurm = FakeSlurm(make_plan(*THREE), replies={"node-gpu3": {"gpus": 1}})
    found = walk(slurm)
    assert list(messages(found)) == [("gpus", "gpu3")]
    assert found.jobs[-1].job.hosts == ("gpu1", "gpu2")
    results = settle(slurm.plan.checks, found.results)
    reports = node_reports(slurm.plan.nodes, found.states, results)
    assert [report.passing for report in reports] == [True, True, False]


def test_one_node_left_of_two_fails_the_cluster_tier():
    slurm = FakeSlurm(make_plan(), replies={"node-gpu2": {"cpus": 1}})
    found = walk(slurm)
    assert messages(found)["pipeline", "virtual"] == "only 1 of 2 nodes left"
    assert len(slurm.started) == 1
    # That is the fault of the one that is missing.
    results = settle(slurm.plan.checks, found.results)
    reports = node_reports(slurm.plan.nodes, found.states, results)
    assert [report.passing for report in reports] == [True, False]


def test_a_warning_keeps_a_node_in(monkeypatch):
    late = {"time_ns": 10**18}
    slurm = FakeSlurm(make_plan(), replies={"node-gpu2": late})
    healthy = slurm.reply

    def shifted(job):
        reply = healthy(job)
        if job.name == "node-gpu2":
            return Reply(**{**fields(reply), "document_ns": 10**18 - 7 * 10**8})
        return reply

    monkeypatch.setattr(slurm, "reply", shifted)
    found = walk(slurm)
    assert verdict(slurm, found) is Verdict.WARN
    assert len(found.jobs) == 5


def fields(reply):
    return {name: getattr(reply, name) for name in Reply.__slots__}


def test_a_silent_node_fails_and_costs_only_itself():
    slurm = FakeSlurm(make_plan(*THREE), replies={"node-gpu1": None})
    found = walk(slurm)
    failed = messages(found)
    assert failed["cpus", "gpu1"] == "nothing is known of this job: the login node forgot it"
    assert ("cancel", ["node-gpu1", "node-gpu2", "node-gpu3"]) in slurm.log
    assert slurm.started[1] == ["all_reduce", "ddp", "pipeline"]


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("mixed", "", Verdict.INCONCLUSIVE),
        ("allocated", "ReqNodeNotAvail", Verdict.INCONCLUSIVE),
        ("idle", "Resources", Verdict.INCONCLUSIVE),
        ("idle", "ReqNodeNotAvail", Verdict.FAIL),
        ("idle", "", Verdict.FAIL),
    ],
)
def test_a_busy_node_is_inconclusive_an_idle_one_that_takes_no_job_fails(state, reason, expected):
    waited = Reply("node-gpu2", Outcome.QUEUE_LIMIT, reason=reason)
    slurm = FakeSlurm(make_plan(*THREE), replies={"node-gpu2": waited})
    slurm.states["gpu2"] = NodeState("gpu2", state, 2, 2000, "gpu:2")
    found = walk(slurm)
    assert verdict(slurm, found) is expected
    assert found.jobs[-1].job.hosts == ("gpu1", "gpu3")


def test_an_unknown_model_is_inconclusive_never_a_pass():
    nodes = (("x1", "tpu_v9", 4),)
    slurm = FakeSlurm(make_plan(*nodes), replies={"node-x1": {"gpus": 4, "names": ["TPU"] * 4}})
    slurm.states["x1"] = NodeState("x1", "idle", 2, 2000, "gpu:tpu_v9:4")
    found = walk(slurm)
    assert list(messages(found, Verdict.INCONCLUSIVE)) == [("all_reduce", "tpu_v9")]
    assert verdict(slurm, found) is Verdict.INCONCLUSIVE


def test_a_single_virtual_node_passes_and_skips_by_declaration():
    slurm = FakeSlurm(make_plan(("gpu1", "virtual", 2)))
    found = walk(slurm)
    assert verdict(slurm, found) is Verdict.PASS
    assert set(messages(found, Verdict.SKIP).values()) == {"one rank: nothing to communicate"}


def test_a_run_of_slurm_state_alone_passes_without_a_job():
    slurm = FakeSlurm(make_plan(selection=Selection(only=("slurm_state",))))
    assert verdict(slurm, walk(slurm)) is Verdict.PASS
    assert slurm.log == []


# --- what goes wrong on the way --------------------------------------------------------------


def test_a_controller_that_is_down_fails_every_node():
    slurm = FakeSlurm(make_plan())
    slurm.down = SlurmDown("sinfo: no controller")
    found = walk(slurm)
    assert messages(found)["slurm_state", "gpu1"] == "sinfo: no controller"
    assert messages(found)["ddp", "virtual"] == "not run: sinfo: no controller"
    assert verdict(slurm, found) is Verdict.FAIL


def test_a_login_node_that_was_never_reached_is_no_verdict():
    slurm = FakeSlurm(make_plan())
    slurm.down = Unreachable("login1 is unreachable")
    with pytest.raises(Unreachable):
        tiers.walk(slurm.plan, slurm, Silent(), interval_s=0)


def test_a_login_node_that_stumbles_is_asked_again():
    slurm = FakeSlurm(make_plan())
    slurm.poll_errors = [TransportError("once")] * 4
    assert verdict(slurm, walk(slurm)) is Verdict.PASS


def test_a_login_node_that_goes_away_fails_what_is_left():
    slurm = FakeSlurm(make_plan())
    slurm.poll_errors = [Unreachable("login1 is unreachable")] * 5
    found = walk(slurm)
    assert "lost contact: login1 is unreachable" in messages(found)["cpus", "gpu1"]
    assert verdict(slurm, found) is Verdict.FAIL


def test_jobs_that_cannot_be_started_fail():
    slurm = FakeSlurm(make_plan())
    slurm.start_error = TransportError("disk full")
    assert "disk full" in messages(walk(slurm))["cpus", "gpu1"]


def test_a_launcher_that_died_fails_what_did_not_answer():
    slurm = FakeSlurm(make_plan(), replies={"node-gpu1": None})
    slurm.lost = "the launcher died: Traceback"
    found = walk(slurm)
    assert "the launcher died" in messages(found)["clock", "gpu1"]
    assert ("clock", "gpu2") not in messages(found)


def test_ctrl_c_cancels_and_keeps_what_is_known():
    slurm = FakeSlurm(make_plan())
    slurm.interrupt_on = "ddp"
    found = walk(slurm)
    assert found.interrupted
    assert ("cancel", ["all_reduce", "ddp", "pipeline"]) in slurm.log
    assert verdict(slurm, found) is Verdict.FAIL
    node_tier = [result for result in found.results if result.tier is Tier.NODE]
    assert {result.verdict for result in node_tier} == {Verdict.PASS}
    assert "interrupted" in messages(found)["ddp", "virtual"]


def test_a_check_that_breaks_fails_and_hides_nothing(monkeypatch, caplog):
    def explode(job, reply, rules):
        raise ZeroDivisionError("oops")

    check = CHECKS["ddp"]
    broken = {**CHECKS, "ddp": type(check)(check.info, check.payload, explode)}
    monkeypatch.setattr(tiers, "CHECKS", broken)
    slurm = FakeSlurm(make_plan())
    found = walk(slurm)
    assert list(messages(found)) == [("ddp", "virtual")]
    assert "the check itself failed" in messages(found)["ddp", "virtual"]
    assert "ZeroDivisionError" in caplog.text


def test_the_proof_says_what_really_ran():
    found = walk(FakeSlurm(make_plan()))
    proof = next(result.proof for result in found.results if result.check == "ddp")
    assert (proof.world_size, proof.backend, proof.hosts) == (2, "gloo", ("gpu1", "gpu2"))
    assert json.loads(found.jobs[-1].reply.stdout)["proof"]["world_size"] == 2
