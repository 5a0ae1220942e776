"""The walk through the tiers on a simulated Slurm: who differs from the others leaves the later
tiers, and nobody else does."""

import os
import sys
from dataclasses import replace

import pytest

from cluster import declaration
from validation import interrupts, plan, suites, tiers
from validation.model import Standing, Verdict
from validation.plan import Selection
from validation.slurm.client import CommandLineClient
from validation.tests import simulated_slurm, standin_compute, standin_health
from validation.tests.conftest import declare
from validation.tests.fake_slurm import Silent, Walked
from validation.tests.judging import changed
from validation.transport.here import Here

NAMES = ("gpu1", "gpu2", "gpu3", "gpu4")
COMPARED = ("alike", "same_product", "stragglers")


def both():
    """Every check of a node with GPUs that this file is about, and one of the cluster tier."""
    gpu, quick = suites.load("gpu"), suites.load("quick")
    checks = ("slurm_state", "clock", *COMPARED, "links", "ddp")
    return replace(gpu, checks=checks, cluster=quick.cluster, queue_limit_s=20)


class Cluster:
    def __init__(self, tmp_path, monkeypatch):
        self.path, self.monkeypatch = tmp_path, monkeypatch

    def walk(self, faults=None, states=None, selection=None, observer=None):
        nodes = [(name, "h100_sxm", 2) for name in NAMES]
        document = {**declare(*nodes), "python": sys.executable}
        declared = declaration.parse(document, "test")
        known = {name: ["idle", 2, 2000, "gpu:h100_sxm:2", "none"] for name in NAMES}
        programs = simulated_slurm.install(self.path, {**known, **(states or {})}, faults)
        self.monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        run_plan = plan.make(declared, both(), selection or Selection(), f"test-{os.getpid()}")
        client = CommandLineClient(Here(), run_plan.run_id, run_plan.python)
        walk = tiers.walk(run_plan, client, observer or Silent(), interval_s=0.05)
        return Walked(run_plan, walk)


def trained(outcome):
    """The nodes that trained together."""
    hosts = [item.job.hosts for item in outcome.jobs if item.job.payload == "ddp"]
    return hosts[0] if hosts else ()


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    return Cluster(tmp_path, monkeypatch)


def health(**changes):
    return {"answer": {"measured": {**standin_health.measured(2), **changes}}}


def compute(path, value):
    """A healthy node's figures, one of them changed."""
    config = dict(both().node["compute"]["cuda"].config)
    document = standin_compute.document(standin_compute.job(count=2, **config, nonce="x"))
    return {"answer": {"measured": changed(document["measured"], (path, value))}}


def slow(tflops):
    config = dict(standin_compute.job(count=2).config)
    return standin_compute.gemm("bf16", config, tflops)


@pytest.mark.long
def test_nodes_that_are_alike_go_on_together(cluster):
    outcome = cluster.walk()
    assert set(outcome.verdicts.values()) == {Verdict.PASS}, outcome.messages
    assert trained(outcome) == NAMES


FAULTS = {
    "alike": (
        "health-gpu3",
        health(nvml={**standin_health.measured(2)["nvml"], "driver": "570.1"}),
        "driver 570.1, 3 of 4 nodes have 580.82.07",
    ),
    "same_product": (
        "compute-gpu3",
        compute(("gpus", 1, "gemm", 0, "products"), [{"hash": "1" * 16}] * 4),
        "GPU 1: bf16 product 1111111111111111, 7 of 8 GPUs have 00d1ce5eed00d1ce",
    ),
    "stragglers": (
        "compute-gpu3",
        compute(("gpus", 1, "gemm", 0), slow(400.0)),
        "GPU 1, bf16 is 400.0 TFLOPS; the median of 8 GPUs is 730",
    ),
    "links": (
        "compute-gpu3",
        compute(("links", "gpus", 1, "width"), 8),
        "GPU 1: 8 PCIe lanes of 16 while it copied",
    ),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("check", FAULTS)
def test_the_node_at_fault_is_named_and_leaves_the_cluster_tier(cluster, check):
    job, fault, message = FAULTS[check]
    outcome = cluster.walk({job: fault})
    failed = {key for key, verdict in outcome.verdicts.items() if verdict is not Verdict.PASS}
    assert failed == {(check, "gpu3")}, outcome.messages
    assert outcome.verdicts[check, "gpu3"] is Verdict.FAIL
    assert outcome.messages[check, "gpu3"] == message
    assert trained(outcome) == ("gpu1", "gpu2", "gpu4")
    assert outcome.standings["gpu3"] is Standing.FAILING
    assert set(outcome.standings.values()) == {Standing.FAILING, Standing.PASSING}


def test_without_a_majority_the_run_fails_and_no_node_leaves_it(cluster):
    other = health(nvml={**standin_health.measured(2)["nvml"], "driver": "570.1"})
    outcome = cluster.walk({"health-gpu3": other, "health-gpu4": other})
    assert {outcome.verdicts["alike", name] for name in NAMES} == {Verdict.FAIL}
    assert trained(outcome) == NAMES
    assert set(outcome.standings.values()) == {Standing.UNPROVEN}


@pytest.mark.long
def test_a_node_that_is_drained_is_missing_and_the_others_are_compared(cluster):
    outcome = cluster.walk(states={"gpu2": ["drained", 2, 2000, "gpu:h100_sxm:2", "bad fan"]})
    for check in COMPARED:
        assert outcome.messages[check, "gpu2"] == "not run: Slurm says drained (bad fan)"
        assert outcome.verdicts[check, "gpu1"] is Verdict.PASS
    assert trained(outcome) == ("gpu1", "gpu3", "gpu4")


@pytest.mark.long
def test_one_node_that_is_left_says_that_it_could_not_be_compared(cluster):
    down = ["down", 2, 2000, "gpu:h100_sxm:2", "none"]
    outcome = cluster.walk(states=dict.fromkeys(("gpu2", "gpu3", "gpu4"), down))
    for check in COMPARED:
        assert outcome.verdicts[check, "gpu1"] is Verdict.INCONCLUSIVE
        assert outcome.messages[check, "gpu1"].endswith("; nothing is known of gpu[2-4]")


def test_one_selected_node_compares_its_own_gpus_where_these_are_enough(cluster):
    outcome = cluster.walk(selection=Selection(nodes="gpu1"))
    assert outcome.verdicts["alike", "gpu1"] is Verdict.PASS
    assert outcome.verdicts["same_product", "gpu1"] is Verdict.PASS
    assert outcome.verdicts["stragglers", "gpu1"] is Verdict.INCONCLUSIVE
    assert "3 are needed for a comparison" in outcome.messages["stragglers", "gpu1"]


def test_an_interrupted_run_has_a_result_for_every_node_and_none_that_nobody_compared(cluster):
    class Impatient(Silent):
        def job(self, report):
            if report.job.name == "health-gpu1":
                raise KeyboardInterrupt

    with interrupts.caught():
        outcome = cluster.walk(observer=Impatient())
    assert outcome.walk.interrupted
    for check in COMPARED:
        for name in NAMES:
            assert outcome.verdicts[check, name] is not None
    assert Verdict.FAIL in {outcome.verdicts["same_product", name] for name in NAMES}
    assert trained(outcome) == ()
