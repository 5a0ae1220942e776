"""The walk through the tiers, with a Slurm client that answers as told."""

import json
import os
import signal

import pytest

from cluster.declaration import Submission
from cluster.errors import EnvironmentProblem
from cluster.slurm import node_states
from cluster.slurm.node_states import NodeState
from validation import interrupts, tiers
from validation.checks.registry import ALONE, CHECKS
from validation.errors import TransportError, Unreachable
from validation.model import (
    Contact,
    Outcome,
    Reply,
    Standing,
    Start,
    Tier,
    Verdict,
    node_reports,
    overall,
    settle,
)
from validation.plan import Selection
from validation.slurm.client import Progress, SlurmDown
from validation.tests import standin
from validation.tests.conftest import make_plan
from validation.tests.fake_slurm import FakeBatch, FakeSlurm, Silent, walk

THREE = tuple((f"gpu{number}", "virtual", 2) for number in (1, 2, 3))


def verdict(slurm, run):
    return overall(slurm.plan.checks, run.results)


def messages(run, verdict=Verdict.FAIL):
    return {(r.check, r.subject.name): r.message for r in run.results if r.verdict is verdict}


def standings(slurm, run):
    results = settle(slurm.plan.checks, run.results)
    reports = node_reports(slurm.plan.nodes, run.states, results, slurm.plan.suite_checks)
    return {report.node.name: report.standing for report in reports}


def test_a_healthy_cluster_passes():
    slurm = FakeSlurm(make_plan())
    run = walk(slurm)
    assert verdict(slurm, run) is Verdict.PASS
    assert slurm.started == [["node-gpu1", "node-gpu2"], ["all_reduce", "ddp", "pipeline"]]
    assert [what for what, _ in slurm.log] == ["start", "close", "start", "close"]


def test_a_node_that_slurm_drained_gets_no_job_and_fails():
    slurm = FakeSlurm(make_plan(*THREE))
    slurm.states["gpu2"] = NodeState("gpu2", "drained", 2, 2000, "gpu:virtual:2", "bad fan")
    run = walk(slurm)
    assert slurm.started[0] == ["node-gpu1", "node-gpu3"]
    failed = messages(run)
    assert failed["slurm_state", "gpu2"] == "Slurm says drained (bad fan)"
    assert failed["gpus", "gpu2"] == "not run: Slurm says drained (bad fan)"
    assert len(failed) == 9
    assert verdict(slurm, run) is Verdict.FAIL
    # The others go on without it.
    ddp = next(result for result in run.results if result.check == "ddp")
    assert ddp.verdict is Verdict.PASS
    assert ddp.subject.nodes == ("gpu1", "gpu3")


def test_a_node_that_slurm_does_not_list_fails(monkeypatch):
    slurm = FakeSlurm(make_plan(*THREE))
    monkeypatch.setattr(slurm, "node_states", lambda: ("24.11.5", {}))
    run = walk(slurm)
    assert slurm.started == []
    owed = {(c.check, c.subject.name) for c in slurm.plan.checks if c.skip is None}
    assert set(messages(run)) == owed - {("accounting", "slurm")}
    assert messages(run)["ddp", "virtual"] == "only 0 of 3 nodes left"


def test_a_node_that_fails_its_own_checks_leaves_the_later_tiers():
    slurm = FakeSlurm(make_plan(*THREE), replies={"node-gpu3": {"gpus": 1}})
    run = walk(slurm)
    assert list(messages(run)) == [("gpus", "gpu3")]
    assert run.jobs[-1].job.hosts == ("gpu1", "gpu2")
    results = settle(slurm.plan.checks, run.results)
    reports = node_reports(slurm.plan.nodes, run.states, results, slurm.plan.suite_checks)
    assert [report.passing for report in reports] == [True, True, False]


def test_one_node_left_of_two_fails_the_cluster_tier():
    slurm = FakeSlurm(make_plan(), replies={"node-gpu2": {"cpus": 1}})
    run = walk(slurm)
    assert messages(run)["pipeline", "virtual"] == "only 1 of 2 nodes left"
    assert len(slurm.started) == 1
    # That is the fault of the one that is missing; nothing is proven of the other.
    assert standings(slurm, run) == {"gpu1": Standing.UNPROVEN, "gpu2": Standing.FAILING}


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
    run = walk(slurm)
    assert verdict(slurm, run) is Verdict.WARN
    assert len(run.jobs) == 5


def fields(reply):
    return {name: getattr(reply, name) for name in Reply.__slots__}


def test_a_silent_node_fails_and_costs_only_itself():
    slurm = FakeSlurm(make_plan(*THREE), replies={"node-gpu1": None})
    run = walk(slurm)
    failed = messages(run)
    assert (
        failed["cpus", "gpu1"] == "nothing is known of this job: the login node no longer knows it"
    )
    assert ("cancel", ["node-gpu1", "node-gpu2", "node-gpu3"]) in slurm.log
    assert slurm.started[1] == ["all_reduce", "ddp", "pipeline"]


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("mixed", "", Verdict.INCONCLUSIVE),
        ("allocated", "ReqNodeNotAvail", Verdict.INCONCLUSIVE),
        ("idle", "Resources", Verdict.INCONCLUSIVE),
        ("idle", "QOSMaxJobsPerUserLimit", Verdict.INCONCLUSIVE),
        ("idle", "AssocGrpGRES", Verdict.INCONCLUSIVE),
        ("idle", "Licenses", Verdict.INCONCLUSIVE),
        ("idle", "BeginTime", Verdict.INCONCLUSIVE),
        ("idle", "PartitionTimeLimit", Verdict.INCONCLUSIVE),
        ("idle", "PartitionDown", Verdict.INCONCLUSIVE),
        ("idle", "InvalidAccount", Verdict.INCONCLUSIVE),
        ("idle", "Reservation", Verdict.INCONCLUSIVE),
        ("idle", "Dependency", Verdict.INCONCLUSIVE),
        ("idle~", "None", Verdict.INCONCLUSIVE),
        ("idle", "ReqNodeNotAvail", Verdict.INCONCLUSIVE),
        ("idle", "NodeDown", Verdict.INCONCLUSIVE),
        ("idle", "SystemFailure", Verdict.FAIL),
        ("idle", "", Verdict.INCONCLUSIVE),
    ],
)
def test_only_what_is_a_nodes_fault_fails_a_node_that_got_no_job(state, reason, expected):
    waited = Reply("node-gpu2", Outcome.QUEUE_LIMIT, reason=reason)
    slurm = FakeSlurm(make_plan(*THREE), replies={"node-gpu2": waited})
    slurm.states["gpu2"] = NodeState("gpu2", state, 2, 2000, "gpu:virtual:2")
    run = walk(slurm)
    assert verdict(slurm, run) is expected
    assert run.jobs[-1].job.hosts == ("gpu1", "gpu3")
    assert standings(slurm, run)["gpu2"] is Standing.UNPROVEN


@pytest.mark.parametrize("state", ["idle~", "idle#", "mixed#"])
def test_a_node_that_power_saving_wakes_is_said_to_be_waking(state):
    waited = Reply("node-gpu2", Outcome.QUEUE_LIMIT, reason="None")
    slurm = FakeSlurm(make_plan(*THREE), replies={"node-gpu2": waited})
    slurm.states["gpu2"] = NodeState("gpu2", state, 2, 2000, "gpu:virtual:2")
    inconclusive = messages(walk(slurm), Verdict.INCONCLUSIVE)
    assert "gpu2 is still being powered up" in inconclusive["cpus", "gpu2"]


@pytest.mark.parametrize("state", ["down*", "idle*", "drained", "inval"])
@pytest.mark.parametrize(
    "reason", ["ReqNodeNotAvail,_UnavailableNodes:gpu2", "NodeDown", "None", ""]
)
def test_a_node_that_went_down_while_its_job_waited_fails(state, reason):
    waited = Reply("node-gpu2", Outcome.QUEUE_LIMIT, reason=reason)
    slurm = FakeSlurm(make_plan(*THREE), replies={"node-gpu2": waited})
    slurm.later["gpu2"] = NodeState("gpu2", state, 2, 2000, "gpu:virtual:2")
    run = walk(slurm)
    assert f"gpu2 is {state} meanwhile" in messages(run)["cpus", "gpu2"]
    assert standings(slurm, run)["gpu2"] is Standing.FAILING


REFUSED = "127.0.0.1:6818"


def test_a_node_whose_slurmd_does_not_listen_gets_no_job_and_fails():
    slurm = FakeSlurm(make_plan(*THREE))
    slurm.contacts = Contact(refused={"gpu2": REFUSED})
    run = walk(slurm)
    message = f"Slurm says idle, but slurmd does not answer: {REFUSED} refuses test"
    assert messages(run)["slurm_state", "gpu2"] == message
    assert messages(run)["clock", "gpu2"] == f"not run: {message}"
    assert slurm.started == [["node-gpu1", "node-gpu3"], ["all_reduce", "ddp", "pipeline"]]
    assert standings(slurm, run)["gpu2"] is Standing.FAILING
    assert run.jobs[-1].job.hosts == ("gpu1", "gpu3")


def test_all_nodes_without_a_slurmd_are_told_and_none_is_accused():
    """What lies between the login node and all of them may as well be the cause."""
    slurm = FakeSlurm(make_plan(*THREE))
    slurm.contacts = Contact(refused=dict.fromkeys(("gpu1", "gpu2", "gpu3"), REFUSED))
    run = walk(slurm)
    assert verdict(slurm, run) is Verdict.FAIL
    assert slurm.started == []
    assert messages(run)["slurm_state", "gpu1"].endswith("refuses test, as do all other nodes")
    assert set(standings(slurm, run).values()) == {Standing.UNPROVEN}


def test_only_nodes_that_slurm_takes_for_well_and_awake_are_looked_at():
    slurm = FakeSlurm(make_plan(*THREE))
    slurm.states["gpu1"] = NodeState("gpu1", "down*", 2, 2000, "gpu:virtual:2")
    slurm.states["gpu2"] = NodeState("gpu2", "idle~", 2, 2000, "gpu:virtual:2")
    walk(slurm)
    assert slurm.looked == [["gpu3"]]


def test_a_node_from_which_nothing_comes_back_holds_up_no_other():
    """A firewall does the same: its own job tells."""
    slurm = FakeSlurm(make_plan(*THREE))
    slurm.contacts = Contact(mute={"gpu2": REFUSED})
    run = walk(slurm)
    assert verdict(slurm, run) is Verdict.PASS
    (shared,) = slurm.shared[0]
    assert [job.name for job in shared.jobs] == ["node-gpu1", "node-gpu3"]
    assert slurm.started[0] == ["node-gpu1", "node-gpu2", "node-gpu3"]
    assert [node.name for node in slurm.shared[1][0].nodes] == ["gpu1", "gpu2", "gpu3"]


def test_what_one_job_waited_for_in_vain_is_told_once():
    stuck = Reply("all_reduce", Outcome.QUEUE_LIMIT, reason="SystemFailure")
    skipped = {
        name: Reply(name, Outcome.SKIPPED, reason="all_reduce") for name in ("ddp", "pipeline")
    }
    slurm = FakeSlurm(make_plan(*THREE), replies={"all_reduce": stuck, **skipped})
    run = walk(slurm)
    assert list(messages(run)) == [("all_reduce", "virtual")]
    message = "not run: all_reduce did not start on the same nodes in time"
    assert messages(run, Verdict.INCONCLUSIVE) == dict.fromkeys(
        (("ddp", "virtual"), ("pipeline", "virtual")), message
    )
    assert verdict(slurm, run) is Verdict.FAIL


def test_the_limits_of_a_tier_follow_from_what_the_one_before_took(monkeypatch):
    slurm = FakeSlurm(make_plan())
    healthy = slurm.reply

    def slowly(job):
        seconds = {"node-gpu1": 2, "node-gpu2": 5}.get(job.name, 1)
        starts = (Start(job.hosts[0], 0, seconds * 10**9),)
        return Reply(**{**fields(healthy(job)), "submitted_ns": 0, "starts": starts})

    monkeypatch.setattr(slurm, "reply", slowly)
    walk(slurm)
    assert slurm.slowest == [None, 5.0]


def test_groups_whose_measurement_waited_in_vain_do_not_go_on():
    nodes = (*THREE, ("h1", "virtual", 4), ("h2", "virtual", 4))
    slurm = FakeSlurm(make_plan(*nodes), replies={f"node-h{n}": {"gpus": 4} for n in (1, 2)})
    first, second = (job.name for group in slurm.plan.groups for job in group.jobs[:1])
    slurm.replies[first] = Reply(first, Outcome.QUEUE_LIMIT, reason="ReqNodeNotAvail")
    run = walk(slurm)
    rest = [job.name for job in slurm.plan.groups[0].jobs[1:]]
    assert slurm.started[1] == [first, second]
    assert not set(rest) & set(slurm.started[2])
    sentences = [r.message for r in run.results if r.subject.name == slurm.plan.groups[0].name]
    assert sentences.count(f"not run: {first} did not start on the same nodes in time") == 2


def test_an_unknown_model_is_inconclusive_never_a_pass():
    nodes = (("x1", "tpu_v9", 4),)
    slurm = FakeSlurm(make_plan(*nodes), replies={"node-x1": {"gpus": 4, "names": ["TPU"] * 4}})
    slurm.states["x1"] = NodeState("x1", "idle", 2, 2000, "gpu:tpu_v9:4")
    run = walk(slurm)
    assert list(messages(run, Verdict.INCONCLUSIVE)) == [
        ("gpus", "x1"),
        ("all_reduce", "tpu_v9"),
    ]
    assert verdict(slurm, run) is Verdict.INCONCLUSIVE


def test_a_single_virtual_node_trains_alone_and_says_so():
    slurm = FakeSlurm(make_plan(("gpu1", "virtual", 2)))
    run = walk(slurm)
    assert verdict(slurm, run) is Verdict.PASS
    passes = messages(run, Verdict.PASS)
    for check in ("all_reduce", "ddp", "pipeline"):
        assert passes[check, "virtual"] == ALONE


def test_a_node_with_one_gpu_trains_alone_and_can_fail():
    slurm = FakeSlurm(make_plan(("gpu1", "h100_sxm", 1)))
    slurm.replies = {"node-gpu1": {"gpus": 1, "names": [standin.GPU]}}
    assert verdict(slurm, walk(slurm)) is Verdict.PASS
    slurm.replies["all_reduce"] = {"wrong": 3}
    run = walk(slurm)
    assert verdict(slurm, run) is Verdict.FAIL
    assert "are wrong" in messages(run)["all_reduce", "h100_sxm"]


def test_a_run_of_slurm_state_alone_passes_without_a_job():
    slurm = FakeSlurm(make_plan(selection=Selection(only=("slurm_state",))))
    assert verdict(slurm, walk(slurm)) is Verdict.PASS
    assert slurm.log == []


# --- what goes wrong on the way --------------------------------------------------------------


def test_a_controller_that_is_down_fails_every_node():
    slurm = FakeSlurm(make_plan())
    slurm.down = SlurmDown("sinfo: no controller")
    run = walk(slurm)
    assert messages(run)["slurm_state", "gpu1"] == "sinfo: no controller"
    assert messages(run)["ddp", "virtual"] == "not run: sinfo: no controller"
    assert verdict(slurm, run) is Verdict.FAIL


def test_a_login_node_that_was_never_reached_is_no_verdict():
    slurm = FakeSlurm(make_plan())
    slurm.down = Unreachable("login1 is unreachable")
    with pytest.raises(Unreachable):
        tiers.walk(slurm.plan, slurm, Silent(), interval_s=0)


def test_a_login_node_that_stumbles_is_asked_again():
    slurm = FakeSlurm(make_plan())
    slurm.poll_errors = [TransportError("once")] * 4
    assert verdict(slurm, walk(slurm)) is Verdict.PASS


def test_a_login_node_that_stumbles_now_and_then_is_never_given_up(monkeypatch):
    """Only failures in a row count: over hours a few will come together."""
    slurm = FakeSlurm(make_plan())
    healthy = FakeBatch.poll

    def poll(batch):
        batch.polls += 1
        if batch.polls % 2:
            raise TransportError("once more")
        return Progress(False, (), ()) if batch.polls < 30 else healthy(batch)

    monkeypatch.setattr(FakeBatch, "poll", poll)
    assert verdict(slurm, walk(slurm)) is Verdict.PASS


def test_jobs_of_which_none_ends_are_given_up(monkeypatch):
    """The launcher answers, and says for ever that all is well."""
    slurm = FakeSlurm(make_plan())
    hours = iter(range(0, 10**9, 3600))
    monkeypatch.setattr("time.monotonic", lambda: next(hours))
    monkeypatch.setattr(FakeBatch, "poll", lambda batch: Progress(False, (), ()))
    run = walk(slurm)
    assert "no job ended for" in messages(run)["cpus", "gpu1"]
    assert verdict(slurm, run) is Verdict.FAIL
    assert ("cancel", ["node-gpu1", "node-gpu2"]) in slurm.log


def test_a_login_node_that_goes_away_fails_what_is_left():
    slurm = FakeSlurm(make_plan())
    slurm.poll_errors = [Unreachable("login1 is unreachable")] * 5
    run = walk(slurm)
    assert "lost contact: login1 is unreachable" in messages(run)["cpus", "gpu1"]
    assert verdict(slurm, run) is Verdict.FAIL


def test_jobs_that_cannot_be_started_are_no_verdict_on_any_node():
    slurm = FakeSlurm(make_plan())
    slurm.start_error = TransportError("disk full")
    with pytest.raises(TransportError, match="disk full"):
        tiers.walk(slurm.plan, slurm, Silent(), interval_s=0)


def test_a_launcher_that_died_fails_what_did_not_answer():
    slurm = FakeSlurm(make_plan(), replies={"node-gpu1": None})
    slurm.lost = "the launcher died: Traceback"
    run = walk(slurm)
    assert "the launcher died" in messages(run)["clock", "gpu1"]
    assert ("clock", "gpu2") not in messages(run)


def test_ctrl_c_cancels_and_keeps_what_is_known():
    slurm = FakeSlurm(make_plan())
    slurm.interrupt_on = "ddp"
    run = walk(slurm)
    assert run.interrupted
    assert ("cancel", ["all_reduce", "ddp", "pipeline"]) in slurm.log
    assert verdict(slurm, run) is Verdict.FAIL
    node_tier = [result for result in run.results if result.tier is Tier.NODE]
    assert {result.verdict for result in node_tier} == {Verdict.PASS, Verdict.SKIP}
    assert "interrupted" in messages(run)["ddp", "virtual"]


def test_a_check_that_breaks_fails_and_hides_nothing(monkeypatch, caplog):
    def explode(job, reply, rules):
        raise ZeroDivisionError("oops")

    check = CHECKS["ddp"]
    broken = {**CHECKS, "ddp": type(check)(check.info, check.payload, explode)}
    monkeypatch.setattr(tiers, "CHECKS", broken)
    slurm = FakeSlurm(make_plan())
    run = walk(slurm)
    assert list(messages(run)) == [("ddp", "virtual")]
    assert "the check itself failed" in messages(run)["ddp", "virtual"]
    assert "ZeroDivisionError" in caplog.text


def test_the_proof_says_what_really_ran():
    run = walk(FakeSlurm(make_plan()))
    proof = next(result.proof for result in run.results if result.check == "ddp")
    assert (proof.world_size, proof.backend, proof.hosts) == (2, "gloo", ("gpu1", "gpu2"))
    assert json.loads(run.jobs[-1].reply.stdout)["proof"]["world_size"] == 2


# --- whose fault it is -----------------------------------------------------------------------


def ended(job, **changes):
    return Reply(job, Outcome.EXITED, 1, "7", **changes)


def test_a_node_that_went_down_under_a_job_is_named_and_the_other_is_not():
    slurm = FakeSlurm(make_plan(), replies={"ddp": Reply("ddp", Outcome.RUN_LIMIT)})
    slurm.later = {"gpu2": NodeState("gpu2", "down*", 2, 2000, "gpu:virtual:2", "Not responding")}
    run = walk(slurm)
    assert messages(run)["ddp", "virtual"].startswith("gpu2 is down* (Not responding) meanwhile")
    assert standings(slurm, run) == {"gpu1": Standing.UNPROVEN, "gpu2": Standing.FAILING}


def test_whom_the_ranks_waited_for_is_named():
    stderr = "plumbline: blamed gpu2\nplumbline: ddp, rank 0 on gpu1: rank 1 on gpu2 did not come\n"
    slurm = FakeSlurm(make_plan(), replies={"ddp": ended("ddp", stderr=stderr)})
    run = walk(slurm)
    assert "rank 1 on gpu2 did not come" in messages(run)["ddp", "virtual"]
    assert standings(slurm, run) == {"gpu1": Standing.UNPROVEN, "gpu2": Standing.FAILING}


def test_ranks_that_do_not_agree_make_suspects():
    stderr = "plumbline: blamed gpu2\nplumbline: blamed gpu1\n"
    slurm = FakeSlurm(make_plan(), replies={"ddp": ended("ddp", stderr=stderr)})
    run = walk(slurm)
    assert standings(slurm, run) == {"gpu1": Standing.SUSPECT, "gpu2": Standing.SUSPECT}


@pytest.mark.parametrize(
    "line",
    [
        "srun: error: Node failure on gpu2",
        "srun: error: Task launch for StepId=7.0 failed on node gpu2: Communication connection "
        "failure",
    ],
)
def test_the_node_that_srun_names_is_blamed(line):
    slurm = FakeSlurm(make_plan(), replies={"ddp": ended("ddp", stderr=line)})
    assert standings(slurm, walk(slurm))["gpu1"] is Standing.UNPROVEN


def test_a_cluster_job_whose_nodes_are_only_busy_is_inconclusive():
    waited = Reply("node-gpu2", Outcome.QUEUE_LIMIT, reason="Resources")
    slurm = FakeSlurm(make_plan(), replies={"node-gpu2": waited})
    slurm.states["gpu2"] = NodeState("gpu2", "allocated", 2, 2000, "gpu:virtual:2")
    run = walk(slurm)
    assert messages(run) == {}
    assert verdict(slurm, run) is Verdict.INCONCLUSIVE
    inconclusive = messages(run, Verdict.INCONCLUSIVE)
    assert inconclusive["ddp", "virtual"] == "only 1 of 2 nodes left; gpu2 could not be judged"
    assert set(standings(slurm, run).values()) == {Standing.UNPROVEN}


def test_a_lost_login_node_blames_no_node():
    slurm = FakeSlurm(make_plan())
    slurm.poll_errors = [Unreachable("login1 is unreachable")] * 5
    run = walk(slurm)
    assert set(standings(slurm, run).values()) == {Standing.UNPROVEN}


REFUSED = "srun: error: Unable to allocate resources: Invalid account or account/partition"
FEATURE = "srun: error: Unable to allocate resources: Requested node configuration is not available"


@pytest.mark.parametrize("line", [REFUSED, FEATURE])
def test_an_account_that_slurm_refuses_everywhere_is_one_sentence(line):
    replies = {f"node-gpu{n}": ended(f"node-gpu{n}", stderr=line) for n in (1, 2)}
    slurm = FakeSlurm(make_plan(), replies=replies)
    with pytest.raises(EnvironmentProblem, match="no job of this user: Unable to allocate"):
        tiers.walk(slurm.plan, slurm, Silent(), interval_s=0)


def test_a_user_without_an_account_is_told_how_to_get_one():
    replies = {f"node-gpu{n}": ended(f"node-gpu{n}", stderr=REFUSED) for n in (1, 2)}
    slurm = FakeSlurm(make_plan(), replies=replies)
    with pytest.raises(EnvironmentProblem, match=r"partition; give the user an account, in slurm_"):
        tiers.walk(slurm.plan, slurm, Silent(), interval_s=0)


def test_one_refused_job_is_no_nodes_fault():
    slurm = FakeSlurm(make_plan(*THREE), replies={"node-gpu2": ended("node-gpu2", stderr=REFUSED)})
    run = walk(slurm)
    assert verdict(slurm, run) is Verdict.INCONCLUSIVE
    assert standings(slurm, run)["gpu2"] is Standing.UNPROVEN


def test_a_node_that_the_inventory_does_not_declare_is_noted():
    slurm = FakeSlurm(make_plan(selection=Selection(nodes="gpu1")))
    slurm.states["gpu9"] = NodeState("gpu9", "idle", 2, 2000, "gpu:virtual:2")
    slurm.states["gpu2"] = NodeState("gpu2", "idle", 2, 2000, "gpu:virtual:2")
    notes = walk(slurm).notes
    assert notes == ("Slurm also has gpu9, which the inventory does not declare",)


def test_accounting_that_does_not_answer_fails_the_run_and_no_node():
    slurm = FakeSlurm(make_plan())
    slurm.accounting_error = "sacctmgr: error: Unable to connect to slurmdbd"
    run = walk(slurm)
    assert list(messages(run)) == [("accounting", "slurm")]
    assert set(standings(slurm, run).values()) == {Standing.UNPROVEN}


def clocks(slurm, monkeypatch, **offsets_s):
    """The nodes' clocks are off by so much; lines take no time."""
    healthy = slurm.reply

    def shifted(job):
        reply = healthy(job)
        if offset := offsets_s.get(job.hosts[0]) if job.payload == "node" else None:
            return Reply(**{**fields(reply), "document_ns": reply.document_ns - int(offset * 1e9)})
        return reply

    monkeypatch.setattr(slurm, "reply", shifted)


def test_a_login_node_whose_clock_is_off_is_named_instead_of_all_nodes(monkeypatch):
    slurm = FakeSlurm(make_plan(*THREE))
    clocks(slurm, monkeypatch, gpu1=30.0, gpu2=30.1, gpu3=30.2)
    run = walk(slurm)
    failed = messages(run)
    assert set(failed) == {("clock", f"gpu{number}") for number in (1, 2, 3)}
    assert failed["clock", "gpu1"].startswith(
        "the login node's clock is 30.1 s behind those of all"
    )
    # The nodes go on, and none of them is accused.
    assert slurm.started[1] == ["all_reduce", "ddp", "pipeline"]
    assert set(standings(slurm, run).values()) == {Standing.UNPROVEN}


def test_one_clock_that_is_off_is_the_nodes(monkeypatch):
    slurm = FakeSlurm(make_plan(*THREE))
    clocks(slurm, monkeypatch, gpu2=30.0)
    run = walk(slurm)
    assert list(messages(run)) == [("clock", "gpu2")]
    assert standings(slurm, run)["gpu2"] is Standing.FAILING


# --- what proves nothing ---------------------------------------------------------------------


def test_one_selected_node_leaves_communication_unproven():
    selection = Selection(only=("all_reduce",), nodes="gpu1")
    slurm = FakeSlurm(make_plan(selection=selection))
    run = walk(slurm)
    assert verdict(slurm, run) is Verdict.INCONCLUSIVE
    assert (
        "nothing was communicated" in messages(run, Verdict.INCONCLUSIVE)["all_reduce", "virtual"]
    )
    # What it computed is looked at all the same.
    assert [job.job.name for job in run.jobs] == ["all_reduce"]
    slurm.replies = {"all_reduce": {"wrong": 1}}
    assert verdict(slurm, walk(slurm)) is Verdict.FAIL


def test_two_nodes_that_are_unlike_leave_communication_unproven():
    slurm = FakeSlurm(make_plan(("a", "h100_sxm", 1), ("b", "h100_sxm", 1, "ib_ndr400")))
    slurm.replies = {f"node-{name}": {"gpus": 1, "names": [standin.GPU]} for name in "ab"}
    run = walk(slurm)
    assert messages(run) == {}
    assert verdict(slurm, run) is Verdict.INCONCLUSIVE
    assert "no other selected node is of its kind" in str(messages(run, Verdict.INCONCLUSIVE))


def test_an_answer_of_an_earlier_run_is_refused_in_both_tiers(monkeypatch):
    slurm = FakeSlurm(make_plan(*THREE))
    healthy = slurm.reply

    def replayed(job):
        reply = healthy(job)
        if job.name not in ("node-gpu1", "ddp"):
            return reply
        old = json.loads(reply.stdout)
        old["nonce"] = "20250101T000000Z-ab12-0123-" + job.name
        return Reply(**{**fields(reply), "stdout": json.dumps(old, separators=(",", ":"))})

    monkeypatch.setattr(slurm, "reply", replayed)
    run = walk(slurm)
    assert "of another job or run" in messages(run)["cpus", "gpu1"]
    assert "of another job or run" in messages(run)["ddp", "virtual"]


def test_ranks_on_other_gpus_than_declared_fail_and_name_their_node(monkeypatch):
    nodes = tuple((f"h{number}", "h100_sxm", 2, "ib_ndr400") for number in (1, 2))
    slurm = FakeSlurm(make_plan(*nodes))
    for name in ("h1", "h2"):
        slurm.replies[f"node-{name}"] = {"names": [standin.GPU] * 2}
    healthy = slurm.reply

    def swapped(job):
        reply = healthy(job)
        if job.name != "ddp":
            return reply
        document = json.loads(reply.stdout)
        for rank in document["proof"]["ranks"]:
            if rank["host"] == "h2":
                rank["gpu"] = "NVIDIA A100-SXM4-80GB"
        return Reply(**{**fields(reply), "stdout": json.dumps(document, separators=(",", ":"))})

    monkeypatch.setattr(slurm, "reply", swapped)
    run = walk(slurm)
    assert "NVML says NVIDIA A100-SXM4-80GB" in messages(run)["ddp", "h100_sxm"]
    assert standings(slurm, run)["h2"] is Standing.FAILING
    assert standings(slurm, run)["h1"] is Standing.UNPROVEN


def test_a_node_where_cuda_does_not_start_fails_by_name_and_the_others_go_on():
    slurm = FakeSlurm(make_plan(*((f"h{number}", "h100_sxm", 2) for number in (1, 2, 3))))
    for name in ("h1", "h2", "h3"):
        slurm.states[name] = NodeState(name, "idle", 2, 2000, "gpu:h100_sxm:2")
        slurm.replies[f"node-{name}"] = {"names": [standin.GPU] * 2}
    error = "RuntimeError: Error 802: system not yet initialized"
    slurm.replies["cuda-h2"] = {"errors": {0: error, 1: error}}
    run = walk(slurm)
    assert messages(run) == {("cuda", "h2"): f"all 2 GPUs: {error}"}
    assert standings(slurm, run)["h2"] is Standing.FAILING
    jobs = {item.job.name: item.job.hosts for item in run.jobs}
    assert jobs["cuda-h2"] == ("h2",)
    assert [jobs[name] for name in ("all_reduce", "ddp", "pipeline")] == [("h1", "h3")] * 3


def test_measurements_of_two_groups_do_not_run_at_once():
    nodes = (*THREE, ("c1", "none", 0), ("c2", "none", 0))
    slurm = FakeSlurm(make_plan(*nodes))
    for name in ("c1", "c2"):
        slurm.states[name] = NodeState(name, "idle", 2, 2000, "")
        slurm.replies[f"node-{name}"] = {"gpus": 0}
    walk(slurm)
    names = [[[job.name for job in lane] for lane in batch] for batch in slurm.prepared[1:]]
    assert names == [
        [["all_reduce-virtual", "all_reduce-cpu"]],
        [["ddp-virtual", "pipeline-virtual"], ["ddp-cpu", "pipeline-cpu"]],
    ]


def test_only_free_nodes_share_an_allocation():
    slurm = FakeSlurm(make_plan(*THREE, ("gpu4", "virtual", 2)))
    slurm.states["gpu4"] = NodeState("gpu4", "mixed", 2, 2000, "gpu:virtual:2")
    walk(slurm)
    (node_tier,), cluster_tier = slurm.shared
    assert [node.name for node in node_tier.nodes] == ["gpu1", "gpu2", "gpu3"]
    assert cluster_tier == ()  # it needs gpu4 too, which others use


@pytest.mark.parametrize(
    ("state", "free"),
    [
        *[("idle", True), ("IDLE", True), ("maint", True), ("idle$", True)],
        *[("idle~", False), ("idle#", False), ("planned", False), ("idle-", False)],
        *[("mixed", False), ("allocated", False), ("completing", False), ("idle*", False)],
    ],
)
def test_what_counts_as_free(state, free):
    assert node_states.free(NodeState("gpu1", state, 2, 2000, "")) is free


def test_a_maintenance_reservation_can_be_validated_from_inside():
    wishes = Submission(reservation="maintenance")
    for submission, expected in ((Submission(), Verdict.INCONCLUSIVE), (wishes, Verdict.PASS)):
        slurm = FakeSlurm(make_plan(selection=Selection(submission=submission)))
        for name in ("gpu1", "gpu2"):
            slurm.states[name] = NodeState(name, "maint", 2, 2000, "gpu:virtual:2")
        run = walk(slurm)
        assert verdict(slurm, run) is expected
        assert Standing.FAILING not in standings(slurm, run).values()


def test_a_signal_during_tidying_does_not_cut_it_short(monkeypatch):
    slurm = FakeSlurm(make_plan())

    def close(batch):
        os.kill(os.getpid(), signal.SIGHUP)
        slurm.log.append(("close", [job.name for job in batch.jobs]))

    monkeypatch.setattr(FakeBatch, "close", close)
    with interrupts.caught():
        run = walk(slurm)
    assert run.interrupted
    assert ("close", ["node-gpu1", "node-gpu2"]) in slurm.log
    assert len(slurm.started) == 1
