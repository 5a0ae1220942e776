"""Pairs of nodes: what they say of nodes and links, and what becomes of jobs that waited."""

from dataclasses import replace

import pytest

from cluster.slurm.node_states import NodeState
from validation import plan as plans
from validation import suites, tiers
from validation.model import Outcome, Reply, Standing, Verdict
from validation.plan import Selection
from validation.tests import standin
from validation.tests.conftest import make_plan
from validation.tests.fake_slurm import FakeSlurm, Silent, Walked

PASS, FAIL, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE
FIVE = tuple((f"gpu{number}", "virtual", 2) for number in range(1, 6))
FOUR, TWO = FIVE[:4], FIVE[:2]
NETWORK = suites.load("network")
# Of `network` what is about pairs; its other jobs of all nodes fail with a bad node too.
PAIRS = replace(NETWORK, checks=tuple(name for name in NETWORK.checks if name != "collectives"))
WAITED = "plumbline: pairs, rank 0 on {}: no progress for 30 s; all ranks still respond\n"


class Cluster(FakeSlurm):
    """Nodes and links that are slow or cut; whoever works with them is."""

    def __init__(self, plan, slow=(), cut=(), slow_links=(), once=(), lossy=()):
        super().__init__(plan)
        self.slow, self.cut = set(slow), [set(link) for link in cut]
        self.slow_links = [set(link) for link in slow_links]
        self.lossy = [set(link) for link in lossy]  # as fast as others
        self.once = [set(link) for link in once]  # links that fail the first time
        self.change = self._change

    def _change(self, job, reply):
        hosts = set(job.hosts)
        if len(hosts) < 2:
            return reply
        broken = [link for link in [*self.cut, *self.once] if link <= hosts]
        if broken:
            self.once = [link for link in self.once if link not in broken]
            return replace(reply, exit_code=1, stdout="", stderr=WAITED.format(job.hosts[0]))
        if self.slow & hosts or any(link <= hosts for link in self.slow_links):
            return self._slower(job, reply)
        if job.payload == "pairs" and hosts in self.lossy:
            rows = [{"sent": 9000, "again": 460, "needless": 10}] * job.ranks
            document = standin.pairs(job.hosts, job.config, job.ranks_per_node, tcp=rows)
            return replace(reply, stdout=standin.line(document))
        return reply

    def _slower(self, job, reply):
        if job.payload not in ("pairs", "all_reduce"):
            return reply
        answer = getattr(standin, job.payload)
        document = answer(job.hosts, job.config, job.ranks_per_node, busbw_gbs=0.02)
        return replace(reply, stdout=standin.line(document))


def walked(slurm):
    run = tiers.walk(slurm.plan, slurm, Silent(), interval_s=0)
    return Walked(slurm.plan, run)


def pairs_of(slurm):
    return [name for names in slurm.started for name in names if name.startswith("pairs")]


# --- where a suite asks for them ------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [TWO, FIVE[:3], FOUR, FIVE], ids=len)
def test_each_node_of_a_healthy_cluster_passes(nodes):
    slurm = Cluster(make_plan(*nodes, suite=PAIRS))
    run = walked(slurm)
    assert run.verdict is PASS
    assert set(run.standings.values()) == {Standing.PASSING}
    assert {subject for check, subject in run.passed if check == "pairs"} == {n[0] for n in nodes}


@pytest.mark.parametrize("nodes", [FIVE[:3], FOUR, FIVE], ids=len)
@pytest.mark.parametrize("bad", ["gpu1", "gpu3"])
def test_a_slow_node_is_named_and_no_other(nodes, bad):
    slurm = Cluster(make_plan(*nodes, suite=PAIRS), slow=[bad])
    run = walked(slurm)
    assert list(run.failed) == [("pairs", bad)]
    assert run.failed["pairs", bad].startswith(f"{bad} is at fault: it failed with every partner")
    others = {name: Standing.PASSING for name, *_ in nodes if name != bad}
    assert run.standings == {bad: Standing.FAILING, **others}


def test_two_bad_nodes_are_named_at_once():
    slurm = Cluster(make_plan(*FIVE, suite=PAIRS), slow=["gpu2"], cut=[("gpu5", "gpu1")])
    slurm.cut = [{"gpu5", f"gpu{number}"} for number in (1, 2, 3, 4)]
    run = walked(slurm)
    assert list(run.failed) == [("pairs", "gpu2"), ("pairs", "gpu5")]
    assert [n for n, s in run.standings.items() if s is Standing.PASSING] == [
        "gpu1", "gpu3", "gpu4"
    ]  # fmt: skip


@pytest.mark.parametrize("nodes", [FOUR, FIVE], ids=len)
@pytest.mark.parametrize("kind", ["cut", "slow_links", "lossy"])
def test_a_bad_link_is_named_and_no_node(nodes, kind):
    slurm = Cluster(make_plan(*nodes, suite=PAIRS), **{kind: [("gpu1", "gpu2")]})
    run = walked(slurm)
    assert list(run.failed) == [("pairs", "gpu1-gpu2")]
    assert "the link between gpu1 and gpu2" in run.failed["pairs", "gpu1-gpu2"].lower()
    assert ("of the TCP segments from" in run.failed["pairs", "gpu1-gpu2"]) == (kind == "lossy")
    standings = {name: Standing.PASSING for name, *_ in nodes}
    standings |= dict.fromkeys(("gpu1", "gpu2"), Standing.UNPROVEN)
    assert run.standings == standings


@pytest.mark.parametrize("nodes", [FOUR, FIVE], ids=len)
def test_what_a_pair_fails_once_and_not_again_is_nobodys_fault(nodes):
    slurm = Cluster(make_plan(*nodes, suite=PAIRS), once=[("gpu1", "gpu2")])
    assert walked(slurm).verdict is PASS


def test_two_alone_cannot_be_told_apart():
    run = walked(Cluster(make_plan(*TWO, suite=PAIRS), cut=[("gpu1", "gpu2")]))
    assert list(run.failed) == [("pairs", "gpu[1-2]")]
    assert set(run.standings.values()) == {Standing.SUSPECT}


def test_a_node_that_fails_takes_no_part_in_jobs_of_all_nodes():
    nodes = make_plan(*FOUR, suite="full", selection=Selection(only=("pairs", "all_reduce")))
    slurm = Cluster(nodes, slow=["gpu2"])
    slurm.states = {name: NodeState(name, "idle", 2, 2000, "gpu:virtual:2") for name, *_ in FOUR}
    walked(slurm)
    together = next(job for job in slurm.prepared[-1][0] if job.name == "all_reduce")
    assert together.hosts == ("gpu1", "gpu3", "gpu4")


# --- where all nodes together fail ----------------------------------------------------------------


def test_a_healthy_cluster_runs_no_pairs():
    slurm = Cluster(make_plan(*FOUR))
    assert walked(slurm).verdict is PASS
    assert pairs_of(slurm) == []


def test_pairs_name_the_slow_node_of_a_job_of_all():
    slurm = Cluster(make_plan(*FOUR), slow=["gpu3"])
    run = walked(slurm)
    assert list(run.failed) == [("all_reduce", "virtual")]
    assert "gpu3 is at fault" in run.failed["all_reduce", "virtual"]
    assert run.standings["gpu3"] is Standing.FAILING
    assert Standing.SUSPECT not in run.standings.values()


def test_what_waited_in_vain_is_run_without_the_bad_node():
    """One job waits for a silent node, not three; the others prove the rest of the cluster."""
    slurm = Cluster(make_plan(*FOUR))
    slurm.cut = [{"gpu3", f"gpu{number}"} for number in (1, 2, 4)]
    slurm.replies |= {
        name: Reply(name, Outcome.SKIPPED, reason="all_reduce") for name in ("ddp", "pipeline")
    }
    change = slurm.change

    def skip_the_first_time(job, reply):
        slurm.replies.pop("pipeline", None)
        if job.name in ("ddp", "pipeline") and len(job.hosts) == 4:
            return Reply(job.name, Outcome.SKIPPED, reason="all_reduce")
        slurm.replies.pop("ddp", None)
        return change(job, reply)

    slurm.replies.clear()
    slurm.change = skip_the_first_time
    run = walked(slurm)
    assert list(run.failed) == [("all_reduce", "virtual")]
    assert ("ddp", "virtual") in run.passed
    assert ("pipeline", "virtual") in run.passed
    assert run.standings["gpu3"] is Standing.FAILING


def test_an_idle_third_node_tells_two_apart():
    nodes = make_plan(*FIVE, selection=Selection(nodes="gpu[1-2]"))
    slurm = Cluster(nodes, slow=["gpu2"])
    idle = {f"gpu{n}": NodeState(f"gpu{n}", "idle", 2, 2000, "gpu:virtual:2") for n in (3, 4, 5)}
    slurm.states |= idle
    run = walked(slurm)
    assert run.standings == {"gpu1": Standing.UNPROVEN, "gpu2": Standing.FAILING}
    busy = {name: replace(state, state="allocated") for name, state in idle.items()}
    slurm = Cluster(nodes, slow=["gpu2"])
    slurm.states |= busy
    assert set(walked(slurm).standings.values()) == {Standing.SUSPECT}
    assert pairs_of(slurm) == []


def test_all_pairs_of_a_round_are_steps_of_one_allocation():
    slurm = Cluster(make_plan(*FOUR, suite=PAIRS))
    walked(slurm)
    (shared,) = slurm.shared[1]
    assert [job.hosts for job in shared.jobs] == [("gpu1", "gpu2"), ("gpu3", "gpu4")]
    assert plans.MOST_ROUNDS == 4


# --- groups of many nodes ------------------------------------------------------------------------

EIGHT = tuple((f"gpu{number}", "virtual", 2) for number in range(1, 9))


def test_among_many_nodes_groups_find_a_link_that_was_in_no_pair():
    slurm = Cluster(make_plan(*EIGHT, suite=PAIRS), cut=[("gpu1", "gpu4")])
    run = walked(slurm)
    assert list(run.failed) == [("pairs", "gpu1-gpu4")]
    assert [n for n, s in run.standings.items() if s is not Standing.PASSING] == ["gpu1", "gpu4"]


@pytest.mark.parametrize("link", [("gpu1", "gpu12"), ("gpu3", "gpu16"), ("gpu7", "gpu9")])
def test_a_link_between_the_halves_of_many_nodes_is_found_crosswise(link):
    sixteen = tuple((f"gpu{number}", "virtual", 2) for number in range(1, 17))
    run = walked(Cluster(make_plan(*sixteen, suite=PAIRS), cut=[link]))
    assert list(run.failed) == [("pairs", "-".join(link))]


def test_what_only_all_nodes_together_show_is_told_as_that():
    slurm = Cluster(make_plan(*EIGHT, suite=PAIRS))
    slurm.cut = [{f"gpu{number}" for number in range(1, 9)}]
    run = walked(slurm)
    assert list(run.failed) == [("pairs", "gpu[1-8]")]
    assert "it shows at this size only" in run.failed["pairs", "gpu[1-8]"]
    assert set(run.standings.values()) == {Standing.UNPROVEN}


def test_a_job_of_many_that_fails_is_halved_until_it_is_small():
    slurm = Cluster(make_plan(*EIGHT), cut=[("gpu5", "gpu7")])
    run = walked(slurm)
    assert ("pairs", "gpu5-gpu7") in run.failed
    assert "between gpu5 and gpu7" in run.failed["all_reduce", "virtual"]
    assert Standing.FAILING not in run.standings.values()


def test_a_healthy_cluster_of_many_nodes_passes():
    slurm = Cluster(make_plan(*EIGHT, suite=PAIRS))
    assert walked(slurm).verdict is PASS
    assert pairs_of(slurm)[4:] == [
        "pairs-0-gpu1-and-3-more", "pairs-0-gpu5-and-3-more", "pairs-0-gpu1-and-7-more"
    ]  # fmt: skip


# --- rails ----------------------------------------------------------------------------------------


def on_rails(job, document, slow=()):
    """Two cards on each node, unless the job names one; `slow` are cards of nodes."""
    only = dict(job.environment).get("NCCL_IB_HCA", "").removeprefix("=")
    document["proof"]["environment"] = dict(job.environment)
    for log in document["measured"]["transport"]:
        (device,) = log["devices"]
        names = [only] if only else ["mlx5_0:1", "mlx5_1:1"]
        log["devices"] = [{**device, "index": i, "name": name} for i, name in enumerate(names)]
        (network,) = (way for way in log["transports"] if way["kind"] == "NET")
        log["transports"] += [{**network, "device": i} for i in range(1, len(names))]
    if any((host, only) in slow for host in job.hosts):
        for size in document["measured"]["sizes"]:
            for key in ("time_s_median", "time_s_min", "time_s_max"):
                size[key] *= 2
            for key in ("algbw_gbs", "busbw_gbs"):
                size[key] /= 2
    return document


class OnRails(FakeSlurm):
    def __init__(self, plan, slow=()):
        super().__init__(plan)
        self.change = lambda job, reply: self._on_rails(job, reply, slow)

    def _on_rails(self, job, reply, slow):
        if job.payload != "pairs":
            return reply
        fabric = job.nodes[0].fabric
        document = standin.pairs(
            job.hosts, job.config, job.ranks_per_node, busbw_gbs=350, fabric=fabric
        )
        return replace(reply, stdout=standin.line(on_rails(job, document, slow)))


def on_eight_gpus(slow=()):
    nodes = tuple((f"gpu{number}", "h100_sxm", 8, "ib_ndr400") for number in range(1, 5))
    plan = make_plan(*nodes, suite=PAIRS)
    slurm = OnRails(plan, slow)
    for node in plan.nodes:
        names = [standin.GPU] * 8
        slurm.replies[f"node-{node.name}"] = {"names": names, "gpus": 8}
    return slurm


def test_each_rail_is_measured_by_itself():
    slurm = on_eight_gpus()
    run = walked(slurm)
    assert run.verdict is PASS
    assert [name for name in pairs_of(slurm) if "mlx5" in name] == [
        *("pairs-mlx5_0:1-1-gpu1-gpu2", "pairs-mlx5_0:1-1-gpu3-gpu4"),
        *("pairs-mlx5_1:1-1-gpu1-gpu2", "pairs-mlx5_1:1-1-gpu3-gpu4"),
    ]


def test_a_slow_card_of_one_node_is_named():
    run = walked(on_eight_gpus(slow=[("gpu3", "mlx5_1:1")]))
    assert list(run.failed) == [("pairs", "gpu3")]
    assert run.failed["pairs", "gpu3"].startswith("mlx5_1:1 of gpu3 is at fault")
    assert run.standings["gpu3"] is Standing.FAILING
    assert sorted(map(str, run.standings.values())).count(str(Standing.PASSING)) == 3


def test_a_rail_that_is_slow_for_every_node_is_named():
    """Beside each other its pairs are alike; the other rail shows what they lack."""
    run = walked(on_eight_gpus(slow=[(f"gpu{number}", "mlx5_1:1") for number in range(1, 5)]))
    assert list(run.failed) == [("pairs", "rail mlx5_1:1")]
    assert run.failed["pairs", "rail mlx5_1:1"].startswith("The rail mlx5_1:1 is at fault")
    assert set(run.standings.values()) == {Standing.UNPROVEN}
