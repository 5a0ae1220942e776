"""The walk through the tiers, with a Slurm client that answers as told."""

import json
import os
import signal
from dataclasses import replace

import pytest

from cluster.declaration import Submission
from cluster.errors import EnvironmentProblem
from cluster.slurm import node_states
from cluster.slurm.node_states import NodeState
from validation import interrupts
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
)
from validation.plan import Selection
from validation.slurm.client import Progress, SlurmDown
from validation.tests import standin
from validation.tests.conftest import make_plan
from validation.tests.fake_slurm import FakeBatch, FakeSlurm, walk, walked
from validation.tiers import ledger

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE
THREE = tuple((f"gpu{number}", "virtual", 2) for number in (1, 2, 3))


def states(**by_node):
    """What Slurm says of these nodes."""
    return {name: NodeState(name, text, 2, 2000, "gpu:virtual:2") for name, text in by_node.items()}


def on_three(states=None, replies=None):
    return FakeSlurm(make_plan(*THREE), states, replies)


def test_a_healthy_cluster_passes():
    slurm = FakeSlurm(make_plan())
    run = walked(slurm)
    assert run.verdict is PASS
    assert slurm.started == [["node-gpu1", "node-gpu2"], ["all_reduce", "ddp", "pipeline"]]
    assert [what for what, _ in slurm.log] == ["start", "close", "start", "close"]


def test_a_node_that_slurm_drained_gets_no_job_and_fails():
    slurm = on_three({"gpu2": NodeState("gpu2", "drained", 2, 2000, "gpu:virtual:2", "bad fan")})
    run = walked(slurm)
    assert slurm.started[0] == ["node-gpu1", "node-gpu3"]
    failed = run.failed
    assert failed["slurm_state", "gpu2"] == "Slurm says drained (bad fan)"
    assert failed["gpus", "gpu2"] == "not run: Slurm says drained (bad fan)"
    assert len(failed) == 10
    assert run.verdict is FAIL
    # The others go on without it.
    ddp = next(result for result in run.results if result.check == "ddp")
    assert ddp.verdict is PASS
    assert ddp.subject.nodes == ("gpu1", "gpu3")


def test_a_node_that_slurm_does_not_list_fails(monkeypatch):
    slurm = on_three()
    monkeypatch.setattr(slurm, "node_states", lambda: ("24.11.5", {}))
    run = walked(slurm)
    assert slurm.started == []
    owed = {(c.check, c.subject.name) for c in slurm.plan.checks if c.skip is None}
    assert set(run.failed) == owed - {("accounting", "slurm")}
    assert run.failed["ddp", "virtual"] == "only 0 of 3 nodes left"


def test_a_node_that_fails_its_own_checks_leaves_the_later_tiers():
    slurm = on_three(replies={"node-gpu3": {"gpus": 1}})
    run = walked(slurm)
    assert list(run.failed) == [("gpus", "gpu3")]
    assert run.jobs[-1].job.hosts == ("gpu1", "gpu2")
    assert [report.passing for report in run.nodes] == [True, True, False]


def test_one_node_left_of_two_fails_the_cluster_tier():
    slurm = FakeSlurm(make_plan(), replies={"node-gpu2": {"cpus": 1}})
    run = walked(slurm)
    assert run.failed["pipeline", "virtual"] == "only 1 of 2 nodes left"
    assert len(slurm.started) == 1
    # That is the fault of the one that is missing; nothing is proven of the other.
    assert run.standings == {"gpu1": Standing.UNPROVEN, "gpu2": Standing.FAILING}


def test_a_warning_keeps_a_node_in():
    slurm = FakeSlurm(make_plan())
    slurm.change = ahead(gpu2=0.7)
    run = walked(slurm)
    assert run.verdict is WARN
    assert len(run.jobs) == 5


def test_a_silent_node_fails_and_costs_only_itself():
    slurm = on_three(replies={"node-gpu1": None})
    run = walked(slurm)
    assert run.failed["cpus", "gpu1"].startswith("nothing is known of this job: the login node no")
    assert ("cancel", ["node-gpu1", "node-gpu2", "node-gpu3"]) in slurm.log
    assert slurm.started[1] == ["all_reduce", "ddp", "pipeline"]


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("mixed", "", UNKNOWN),
        ("allocated", "ReqNodeNotAvail", UNKNOWN),
        ("idle", "Resources", UNKNOWN),
        ("idle", "QOSMaxJobsPerUserLimit", UNKNOWN),
        ("idle", "AssocGrpGRES", UNKNOWN),
        ("idle", "Licenses", UNKNOWN),
        ("idle", "BeginTime", UNKNOWN),
        ("idle", "PartitionTimeLimit", UNKNOWN),
        ("idle", "PartitionDown", UNKNOWN),
        ("idle", "InvalidAccount", UNKNOWN),
        ("idle", "Reservation", UNKNOWN),
        ("idle", "Dependency", UNKNOWN),
        ("idle~", "None", UNKNOWN),
        ("idle", "ReqNodeNotAvail", UNKNOWN),
        ("idle", "NodeDown", UNKNOWN),
        ("idle", "SystemFailure", FAIL),
        ("idle", "", UNKNOWN),
    ],
)
def test_only_what_is_a_nodes_fault_fails_a_node_that_got_no_job(state, reason, expected):
    waited = Reply("node-gpu2", Outcome.QUEUE_LIMIT, reason=reason)
    slurm = on_three(states(gpu2=state), {"node-gpu2": waited})
    run = walked(slurm)
    assert run.verdict is expected
    assert run.jobs[-1].job.hosts == ("gpu1", "gpu3")
    assert run.standings["gpu2"] is Standing.UNPROVEN


@pytest.mark.parametrize("state", ["idle~", "idle#", "mixed#"])
def test_a_node_that_power_saving_wakes_is_said_to_be_waking(state):
    waited = Reply("node-gpu2", Outcome.QUEUE_LIMIT, reason="None")
    slurm = on_three(states(gpu2=state), {"node-gpu2": waited})
    inconclusive = walked(slurm).unknown
    assert "gpu2 is still being powered up" in inconclusive["cpus", "gpu2"]


@pytest.mark.parametrize("state", ["down*", "idle*", "drained", "inval"])
@pytest.mark.parametrize(
    "reason", ["ReqNodeNotAvail,_UnavailableNodes:gpu2", "NodeDown", "None", ""]
)
def test_a_node_that_went_down_while_its_job_waited_fails(state, reason):
    waited = Reply("node-gpu2", Outcome.QUEUE_LIMIT, reason=reason)
    slurm = on_three(replies={"node-gpu2": waited})
    slurm.later = states(gpu2=state)
    run = walked(slurm)
    assert f"gpu2 is {state} meanwhile" in run.failed["cpus", "gpu2"]
    assert run.standings["gpu2"] is Standing.FAILING


PORT = "127.0.0.1:6818"


def test_a_node_whose_slurmd_does_not_listen_gets_no_job_and_fails():
    slurm = on_three()
    slurm.contacts = Contact(refused={"gpu2": PORT})
    run = walked(slurm)
    message = f"Slurm says idle, but slurmd does not answer: {PORT} refuses test"
    assert run.failed["slurm_state", "gpu2"] == message
    assert run.failed["clock", "gpu2"] == f"not run: {message}"
    assert slurm.started == [["node-gpu1", "node-gpu3"], ["all_reduce", "ddp", "pipeline"]]
    assert run.standings["gpu2"] is Standing.FAILING
    assert run.jobs[-1].job.hosts == ("gpu1", "gpu3")


def test_all_nodes_without_a_slurmd_are_told_and_none_is_accused():
    """What lies between the login node and all of them may as well be the cause."""
    slurm = on_three()
    slurm.contacts = Contact(refused=dict.fromkeys(("gpu1", "gpu2", "gpu3"), PORT))
    run = walked(slurm)
    assert run.verdict is FAIL
    assert slurm.started == []
    assert run.failed["slurm_state", "gpu1"].endswith("refuses test, as do all other nodes")
    assert set(run.standings.values()) == {Standing.UNPROVEN}


def test_only_nodes_that_slurm_takes_for_well_and_awake_are_looked_at():
    slurm = on_three(states(gpu1="down*", gpu2="idle~"))
    walk(slurm)
    assert slurm.looked == [["gpu3"]]


def test_a_node_from_which_nothing_comes_back_holds_up_no_other():
    """A firewall does the same: its own job tells."""
    slurm = on_three()
    slurm.contacts = Contact(mute={"gpu2": PORT})
    run = walked(slurm)
    assert run.verdict is PASS
    (shared,) = slurm.shared[0]
    assert [job.name for job in shared.jobs] == ["node-gpu1", "node-gpu3"]
    assert slurm.started[0] == ["node-gpu1", "node-gpu2", "node-gpu3"]
    assert [node.name for node in slurm.shared[1][0].nodes] == ["gpu1", "gpu2", "gpu3"]


def test_what_one_job_waited_for_in_vain_is_told_once():
    stuck = Reply("all_reduce", Outcome.QUEUE_LIMIT, reason="SystemFailure")
    skipped = {
        name: Reply(name, Outcome.SKIPPED, reason="all_reduce") for name in ("ddp", "pipeline")
    }
    slurm = on_three(replies={"all_reduce": stuck, **skipped})
    run = walked(slurm)
    assert list(run.failed) == [("all_reduce", "virtual")]
    message = "not run: all_reduce waited in vain on the same nodes"
    assert run.unknown == dict.fromkeys((("ddp", "virtual"), ("pipeline", "virtual")), message)
    assert run.verdict is FAIL


def test_the_limits_of_a_tier_follow_from_what_the_one_before_took():
    def slowly(job, reply):
        seconds = {"node-gpu1": 2, "node-gpu2": 5}.get(job.name, 1)
        return replace(reply, submitted_ns=0, starts=(Start(job.hosts[0], 0, seconds * 10**9),))

    slurm = FakeSlurm(make_plan())
    slurm.change = slowly
    walk(slurm)
    assert slurm.slowest == [None, 5.0]


def test_groups_whose_measurement_waited_in_vain_do_not_go_on():
    nodes = (*THREE, ("h1", "virtual", 4), ("h2", "virtual", 4))
    slurm = FakeSlurm(make_plan(*nodes), replies={f"node-h{n}": {"gpus": 4} for n in (1, 2)})
    first, second = (job.name for group in slurm.plan.groups for job in group.jobs[:1])
    slurm.replies[first] = Reply(first, Outcome.QUEUE_LIMIT, reason="ReqNodeNotAvail")
    run = walked(slurm)
    rest = [job.name for job in slurm.plan.groups[0].jobs[1:]]
    assert slurm.started[1] == [first, second]
    assert not set(rest) & set(slurm.started[2])
    sentences = [r.message for r in run.results if r.subject.name == slurm.plan.groups[0].name]
    assert sentences.count(f"not run: {first} waited in vain on the same nodes") == 2


def test_an_unknown_model_is_inconclusive_never_a_pass():
    replies = {"node-x1": {"gpus": 4, "names": ["TPU"] * 4}}
    slurm = FakeSlurm(make_plan(("x1", "tpu_v9", 4)), replies=replies)
    run = walked(slurm)
    assert list(run.unknown) == [("gpus", "x1"), ("all_reduce", "tpu_v9")]
    assert run.verdict is UNKNOWN


def test_a_single_virtual_node_trains_alone_and_says_so():
    slurm = FakeSlurm(make_plan(("gpu1", "virtual", 2)))
    run = walked(slurm)
    assert run.verdict is PASS
    passes = run.passed
    for check in ("all_reduce", "ddp", "pipeline"):
        assert passes[check, "virtual"] == ALONE


def test_a_node_with_one_gpu_trains_alone_and_can_fail():
    slurm = FakeSlurm(make_plan(("gpu1", "h100_sxm", 1)))
    slurm.replies = {"node-gpu1": {"gpus": 1, "names": [standin.GPU]}}
    assert walked(slurm).verdict is PASS
    slurm.replies["all_reduce"] = {"wrong": 3}
    run = walked(slurm)
    assert run.verdict is FAIL
    assert "are wrong" in run.failed["all_reduce", "h100_sxm"]


def test_a_run_of_slurm_state_alone_passes_without_a_job():
    slurm = FakeSlurm(make_plan(selection=Selection(only=("slurm_state",))))
    assert walked(slurm).verdict is PASS
    assert slurm.log == []


# --- what goes wrong on the way --------------------------------------------------------------


def test_a_controller_that_is_down_fails_every_node():
    slurm = FakeSlurm(make_plan())
    slurm.down = SlurmDown("sinfo: no controller")
    run = walked(slurm)
    assert run.failed["slurm_state", "gpu1"] == "sinfo: no controller"
    assert run.failed["ddp", "virtual"] == "not run: sinfo: no controller"
    assert run.verdict is FAIL


def test_a_login_node_that_was_never_reached_is_no_verdict():
    slurm = FakeSlurm(make_plan())
    slurm.down = Unreachable("login1 is unreachable")
    with pytest.raises(Unreachable):
        walk(slurm)


def test_a_login_node_that_stumbles_is_asked_again():
    slurm = FakeSlurm(make_plan())
    slurm.poll_errors = [TransportError("once")] * 4
    assert walked(slurm).verdict is PASS


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
    assert walked(slurm).verdict is PASS


def test_jobs_of_which_none_ends_are_given_up(monkeypatch):
    """The launcher answers, and says for ever that all is well."""
    slurm = FakeSlurm(make_plan())
    hours = iter(range(0, 10**9, 3600))
    monkeypatch.setattr("time.monotonic", lambda: next(hours))
    monkeypatch.setattr(FakeBatch, "poll", lambda batch: Progress(False, (), ()))
    run = walked(slurm)
    assert "no job ended for" in run.failed["cpus", "gpu1"]
    assert run.verdict is FAIL
    assert ("cancel", ["node-gpu1", "node-gpu2"]) in slurm.log


def test_a_login_node_that_goes_away_fails_what_is_left():
    slurm = FakeSlurm(make_plan())
    slurm.poll_errors = [Unreachable("login1 is unreachable")] * 5
    run = walked(slurm)
    assert "lost contact: login1 is unreachable" in run.failed["cpus", "gpu1"]
    assert run.verdict is FAIL
    assert set(run.standings.values()) == {Standing.UNPROVEN}  # it blames no node


def test_jobs_that_cannot_be_started_are_no_verdict_on_any_node():
    slurm = FakeSlurm(make_plan())
    slurm.start_error = TransportError("disk full")
    with pytest.raises(TransportError, match="disk full"):
        walk(slurm)


def test_a_launcher_that_died_fails_what_did_not_answer():
    slurm = FakeSlurm(make_plan(), replies={"node-gpu1": None})
    slurm.lost = "the launcher died: Traceback"
    run = walked(slurm)
    assert "the launcher died" in run.failed["clock", "gpu1"]
    assert ("clock", "gpu2") not in run.failed


def test_ctrl_c_cancels_and_keeps_what_is_known():
    slurm = FakeSlurm(make_plan())
    slurm.interrupt_on = "ddp"
    run = walked(slurm)
    assert run.walk.interrupted
    assert ("cancel", ["all_reduce", "ddp", "pipeline"]) in slurm.log
    assert run.verdict is FAIL
    node_tier = [result for result in run.results if result.tier is Tier.NODE]
    assert {result.verdict for result in node_tier} == {PASS, Verdict.SKIP}
    assert "interrupted" in run.failed["ddp", "virtual"]


def test_a_check_that_breaks_fails_and_hides_nothing(monkeypatch, caplog):
    def explode(job, reply, rules):
        raise ZeroDivisionError("oops")

    check = CHECKS["ddp"]
    broken = {**CHECKS, "ddp": type(check)(check.info, check.payload, explode)}
    monkeypatch.setattr(ledger, "CHECKS", broken)
    slurm = FakeSlurm(make_plan())
    run = walked(slurm)
    assert list(run.failed) == [("ddp", "virtual")]
    assert "the check itself failed" in run.failed["ddp", "virtual"]
    assert "ZeroDivisionError" in caplog.text


def test_an_answer_that_cannot_be_compared_is_the_fault_of_its_node_alone(caplog):
    slurm = on_three()
    slurm.change = lambda job, reply: (
        replace(reply, starts=(Start("gpu2", 10**400, reply.document_ns),))
        if job.name == "node-gpu2"
        else reply
    )
    run = walked(slurm)
    assert list(run.failed) == [("clock", "gpu2")]
    assert run.failed["clock", "gpu2"].startswith("the answer cannot be compared: OverflowError")
    assert run.standings["gpu2"] is Standing.FAILING
    assert slurm.started[1] == ["all_reduce", "ddp", "pipeline"]
    assert "OverflowError" in caplog.text


def test_a_comparison_that_breaks_accuses_no_node(monkeypatch, caplog):
    clock = CHECKS["clock"]
    assert clock.compare is not None
    compare = clock.compare

    def explode(members):
        if len(members) > 1:
            raise ZeroDivisionError("oops")
        return compare(members)

    monkeypatch.setattr(ledger, "CHECKS", {**CHECKS, "clock": replace(clock, compare=explode)})
    run = walked(FakeSlurm(make_plan()))
    assert {key for key in run.failed if key[0] == "clock"} == {
        ("clock", "gpu1"),
        ("clock", "gpu2"),
    }
    assert "the check itself failed" in run.failed["clock", "gpu1"]
    assert set(run.standings.values()) == {Standing.UNPROVEN}
    assert "ZeroDivisionError" in caplog.text


# --- which GPUs a node has ---------------------------------------------------------------------

BOARDS = tuple((name, "h100_sxm", 2) for name in ("gpu1", "gpu2", "gpu3"))


def on_boards(change):
    """Three nodes with two GPUs each; `change` alters the documents of jobs."""
    slurm = FakeSlurm(make_plan(*BOARDS))
    slurm.replies = {f"node-{name}": {"names": [standin.GPU] * 2} for name, _, _ in BOARDS}

    def altered(job, reply):
        document = json.loads(reply.stdout)
        change(job, document)
        return replace(reply, stdout=standin.line(document))

    slurm.change = altered
    return slurm


def test_two_nodes_that_list_the_same_gpus_both_fail_and_neither_is_accused():
    def same(job, document):
        if job.name == "node-gpu3":
            for gpu in document["measured"]["gpus"]:
                gpu["uuid"] = gpu["uuid"].replace("gpu3", "gpu1")

    run = walked(on_boards(same))
    assert run.failed["gpus", "gpu3"] == "gpu1 has GPU-gpu1-0 too: one answers for the other"
    assert run.failed["gpus", "gpu1"] == "gpu3 has GPU-gpu1-0 too: one answers for the other"
    assert ("gpus", "gpu2") not in run.failed
    assert run.standings["gpu1"] is not Standing.FAILING


@pytest.mark.parametrize("payload", ["cuda", "ddp"])
def test_a_node_that_computes_on_another_gpu_than_it_listed_is_named(payload):
    def other(job, document):
        if job.name == "cuda-gpu3" == f"{payload}-gpu3":
            document["measured"]["gpus"][1]["start"]["uuid"] = "GPU-x"
        if job.name == "ddp" == payload:
            document["proof"]["ranks"][5]["gpu_uuid"] = "GPU-x"
            board = document["measured"]["boards"][2]["boards"][1]
            for told in (board["before"], board["after"]):  # NVML was asked of the one in use
                told["values"]["uuid"] = "GPU-x"

    run = walked(on_boards(other))
    subject = "gpu3" if payload == "cuda" else "h100_sxm"
    assert run.failed[payload, subject] == "gpu3 used GPU-x, which was none of its GPUs before"
    assert {name for name, own in run.standings.items() if own is Standing.FAILING} == {"gpu3"}


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
    run = walked(slurm)
    assert run.failed["ddp", "virtual"].startswith("gpu2 is down* (Not responding) meanwhile")
    assert run.standings == {"gpu1": Standing.UNPROVEN, "gpu2": Standing.FAILING}


def test_whom_the_ranks_waited_for_is_named():
    stderr = "plumbline: blamed gpu2\nplumbline: ddp, rank 0 on gpu1: rank 1 on gpu2 did not come\n"
    slurm = FakeSlurm(make_plan(), replies={"ddp": ended("ddp", stderr=stderr)})
    run = walked(slurm)
    assert "rank 1 on gpu2 did not come" in run.failed["ddp", "virtual"]
    assert run.standings == {"gpu1": Standing.UNPROVEN, "gpu2": Standing.FAILING}


def test_ranks_that_do_not_agree_make_suspects():
    stderr = "plumbline: blamed gpu2\nplumbline: blamed gpu1\n"
    slurm = FakeSlurm(make_plan(), replies={"ddp": ended("ddp", stderr=stderr)})
    run = walked(slurm)
    assert run.standings == {"gpu1": Standing.SUSPECT, "gpu2": Standing.SUSPECT}


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
    assert walked(slurm).standings["gpu1"] is Standing.UNPROVEN


def test_a_cluster_job_whose_nodes_are_only_busy_is_inconclusive():
    waited = Reply("node-gpu2", Outcome.QUEUE_LIMIT, reason="Resources")
    slurm = FakeSlurm(make_plan(), states(gpu2="allocated"), {"node-gpu2": waited})
    run = walked(slurm)
    assert run.failed == {}
    assert run.verdict is UNKNOWN
    assert run.unknown["ddp", "virtual"] == "only 1 of 2 nodes left; gpu2 could not be judged"
    assert set(run.standings.values()) == {Standing.UNPROVEN}


REFUSED = "srun: error: Unable to allocate resources: Invalid account or account/partition"
FEATURE = "srun: error: Unable to allocate resources: Requested node configuration is not available"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (REFUSED, "no job of this user: Unable to allocate resources: Invalid account"),
        (REFUSED, "partition; give the user an account, in slurm_"),
        (FEATURE, "no job of this user: Unable to allocate resources: Requested node"),
    ],
)
def test_what_slurm_refuses_everywhere_is_one_sentence_and_no_verdict(line, words):
    replies = {f"node-gpu{n}": ended(f"node-gpu{n}", stderr=line) for n in (1, 2)}
    with pytest.raises(EnvironmentProblem, match=words):
        walk(FakeSlurm(make_plan(), replies=replies))


def test_one_refused_job_is_no_nodes_fault():
    slurm = on_three(replies={"node-gpu2": ended("node-gpu2", stderr=REFUSED)})
    run = walked(slurm)
    assert run.verdict is UNKNOWN
    assert run.standings["gpu2"] is Standing.UNPROVEN


def test_a_node_that_the_inventory_does_not_declare_is_noted():
    plan = make_plan(selection=Selection(nodes="gpu1"))
    slurm = FakeSlurm(plan, states(gpu9="idle", gpu2="idle"))
    notes = walk(slurm).notes
    assert notes == ("Slurm also has gpu9, which the inventory does not declare",)


def test_accounting_that_does_not_answer_fails_the_run_and_no_node():
    slurm = FakeSlurm(make_plan())
    slurm.accounting_error = "sacctmgr: error: Unable to connect to slurmdbd"
    run = walked(slurm)
    assert list(run.failed) == [("accounting", "slurm")]
    assert set(run.standings.values()) == {Standing.UNPROVEN}


def ahead(**seconds):
    """The nodes' clocks are ahead by so much; lines take no time."""

    def shifted(job, reply):
        if job.payload != "node" or job.hosts[0] not in seconds:
            return reply
        return replace(reply, document_ns=reply.document_ns - int(seconds[job.hosts[0]] * 1e9))

    return shifted


def test_a_login_node_whose_clock_is_off_is_named_instead_of_all_nodes():
    slurm = on_three()
    slurm.change = ahead(gpu1=30.0, gpu2=30.1, gpu3=30.2)
    run = walked(slurm)
    assert set(run.failed) == {("clock", f"gpu{number}") for number in (1, 2, 3)}
    assert "login node's clock is 30.1 s behind those of all" in run.failed["clock", "gpu1"]
    # The nodes go on, and none of them is accused.
    assert slurm.started[1] == ["all_reduce", "ddp", "pipeline"]
    assert set(run.standings.values()) == {Standing.UNPROVEN}


def test_clocks_that_are_off_by_different_times_are_the_nodes():
    slurm = on_three()
    slurm.change = ahead(gpu1=30.0, gpu2=35.0, gpu3=400.0)
    run = walked(slurm)
    assert "ahead of the login node's" in run.failed["clock", "gpu1"]
    assert set(run.standings.values()) == {Standing.FAILING}


def test_one_clock_that_is_off_is_the_nodes():
    slurm = on_three()
    slurm.change = ahead(gpu2=30.0)
    run = walked(slurm)
    assert list(run.failed) == [("clock", "gpu2")]
    assert run.standings["gpu2"] is Standing.FAILING


# --- what proves nothing ---------------------------------------------------------------------


def test_one_selected_node_leaves_communication_unproven():
    selection = Selection(only=("all_reduce",), nodes="gpu1")
    slurm = FakeSlurm(make_plan(selection=selection))
    run = walked(slurm)
    assert run.verdict is UNKNOWN
    assert "nothing was communicated" in run.unknown["all_reduce", "virtual"]
    # What it computed is looked at all the same.
    assert [job.job.name for job in run.jobs] == ["all_reduce"]
    slurm.replies = {"all_reduce": {"wrong": 1}}
    assert walked(slurm).verdict is FAIL


def test_two_nodes_that_are_unlike_leave_communication_unproven():
    slurm = FakeSlurm(make_plan(("a", "h100_sxm", 1), ("b", "h100_sxm", 1, "ib_ndr400")))
    slurm.replies = {f"node-{name}": {"gpus": 1, "names": [standin.GPU]} for name in "ab"}
    run = walked(slurm)
    assert run.failed == {}
    assert run.verdict is UNKNOWN
    assert "no other selected node is of its kind" in str(run.unknown)


def of(*names, change):
    """The documents of these jobs are changed."""

    def changed(job, reply):
        if job.name not in names:
            return reply
        document = json.loads(reply.stdout)
        change(job, document)
        return replace(reply, stdout=standin.line(document))

    return changed


def test_an_answer_of_an_earlier_run_is_refused_in_both_tiers():
    def replayed(job, document):
        document["nonce"] = "20250101T000000Z-ab12-0123-" + job.name

    slurm = on_three()
    slurm.change = of("node-gpu1", "ddp", change=replayed)
    run = walked(slurm)
    assert "of another job or run" in run.failed["cpus", "gpu1"]
    assert "of another job or run" in run.failed["ddp", "virtual"]


def test_ranks_on_other_gpus_than_declared_fail_and_name_their_node():
    def swapped(job, document):
        for rank in document["proof"]["ranks"]:
            if rank["host"] == "h2":
                rank["gpu"] = "NVIDIA A100-SXM4-80GB"

    slurm = FakeSlurm(make_plan(*((name, "h100_sxm", 2, "ib_ndr400") for name in ("h1", "h2"))))
    slurm.replies = {f"node-{name}": {"names": [standin.GPU] * 2} for name in ("h1", "h2")}
    slurm.change = of("ddp", change=swapped)
    run = walked(slurm)
    assert "NVML says NVIDIA A100-SXM4-80GB" in run.failed["ddp", "h100_sxm"]
    assert run.standings == {"h1": Standing.UNPROVEN, "h2": Standing.FAILING}


def test_a_node_where_cuda_does_not_start_fails_by_name_and_the_others_go_on():
    slurm = FakeSlurm(make_plan(*((f"h{number}", "h100_sxm", 2) for number in (1, 2, 3))))
    slurm.replies = {f"node-h{number}": {"names": [standin.GPU] * 2} for number in (1, 2, 3)}
    error = "RuntimeError: Error 802: system not yet initialized"
    slurm.replies["cuda-h2"] = {"errors": {0: error, 1: error}}
    run = walked(slurm)
    assert run.failed == {("cuda", "h2"): f"all 2 GPUs: {error}"}
    assert run.standings["h2"] is Standing.FAILING
    jobs = {item.job.name: item.job.hosts for item in run.jobs}
    assert jobs["cuda-h2"] == ("h2",)
    assert [jobs[name] for name in ("all_reduce", "ddp", "pipeline")] == [("h1", "h3")] * 3


def test_measurements_of_two_groups_do_not_run_at_once():
    nodes = (*THREE, ("c1", "none", 0), ("c2", "none", 0))
    slurm = FakeSlurm(make_plan(*nodes))
    slurm.replies = {f"node-{name}": {"gpus": 0} for name in ("c1", "c2")}
    walk(slurm)
    names = [[[job.name for job in lane] for lane in batch] for batch in slurm.prepared[1:]]
    assert names == [
        [["all_reduce-virtual", "all_reduce-cpu"]],
        [["ddp-virtual", "pipeline-virtual"], ["ddp-cpu", "pipeline-cpu"]],
    ]


def test_only_free_nodes_share_an_allocation():
    slurm = FakeSlurm(make_plan(*THREE, ("gpu4", "virtual", 2)), states(gpu4="mixed"))
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
    for submission, expected in ((Submission(), UNKNOWN), (wishes, PASS)):
        plan = make_plan(selection=Selection(submission=submission))
        slurm = FakeSlurm(plan, states(gpu1="maint", gpu2="maint"))
        run = walked(slurm)
        assert run.verdict is expected
        assert Standing.FAILING not in run.standings.values()


def test_a_signal_during_tidying_does_not_cut_it_short(monkeypatch):
    slurm = FakeSlurm(make_plan())

    def close(batch):
        os.kill(os.getpid(), signal.SIGHUP)
        slurm.log.append(("close", [job.name for job in batch.jobs]))

    monkeypatch.setattr(FakeBatch, "close", close)
    with interrupts.caught():
        run = walked(slurm)
    assert run.walk.interrupted
    assert ("close", ["node-gpu1", "node-gpu2"]) in slurm.log
    assert len(slurm.started) == 1
