"""Reports of made-up runs: a healthy one, one of each verdict, one whose nodes say evil things."""

from dataclasses import replace
from typing import Any

from cluster.slurm.node_states import NodeState
from validation import tiers
from validation.checks.registry import CHECKS
from validation.model import Outcome, Reply, RunReport, node_reports, overall, settle
from validation.tests.conftest import make_plan
from validation.tests.fake_slurm import FakeSlurm, Silent

EVIL = "</script><script>alert(1)</script>\x1b[31m\x00 & \"'\ud800"


def report_of(slurm, **changes):
    walk = tiers.walk(slurm.plan, slurm, Silent(), interval_s=0)
    results = tuple(settle(slurm.plan.checks, walk.results))
    report = RunReport(
        run_id=slurm.plan.run_id,
        suite="quick",
        cluster="plumbline",
        via="login1",
        slurm=walk.slurm,
        started="2026-01-02T03:04:05+00:00",
        seconds=21.4,
        verdict=overall(slurm.plan.checks, walk.results),
        results=results,
        nodes=node_reports(
            slurm.plan.nodes, walk.states, results, slurm.plan.suite_checks, slurm.plan.checks
        ),
        jobs=walk.jobs,
        checks={name: check.info for name, check in CHECKS.items()},
        repeat="python -m validation.run --here",
        output="results/x",
    )
    return replace(report, **changes)


def healthy():
    slurm = FakeSlurm(make_plan())
    slurm.replies = {f"node-gpu{number}": {"time_ns": 10**18} for number in (1, 2)}
    return report_of(slurm)


def mixed_bag():
    """One of each: a drained node, a node alone of its kind, a wrong sum, a hang, no threshold."""
    plan = make_plan(
        *((f"gpu{number}", "virtual", 2) for number in range(1, 9)),
        ("h1", "h100_sxm", 4),
        ("c1", "none", 0),
    )
    names = ["NVIDIA H100 80GB HBM3"] * 4
    replies: dict[str, Any] = {f"node-gpu{number}": {"time_ns": 10**18} for number in range(1, 9)}
    replies["node-gpu3"] = {"gpus": 1, "time_ns": 10**18}
    replies["node-h1"] = {"gpus": 4, "names": names, "time_ns": 10**18}
    replies["node-c1"] = {"gpus": 0, "time_ns": 10**18}
    replies["all_reduce-virtual"] = {"wrong": 5}
    replies["ddp-virtual"] = Reply("ddp-virtual", Outcome.RUN_LIMIT, job_id="9")
    states = {"gpu2": NodeState("gpu2", "drained", 2, 2000, "gpu:2", "bad <fan>")}
    return report_of(FakeSlurm(plan, states, replies))


def evil():
    states = {"gpu1": NodeState("gpu1", "down", 2, 2000, "gpu:2", EVIL)}
    report = report_of(FakeSlurm(make_plan(), states))
    bad = replace(report.results[0], message=EVIL)
    return replace(report, results=(bad, *report.results[1:]), notes=(EVIL,), via=EVIL)
