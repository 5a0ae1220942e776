"""A healthy answer for each check that judges one, and a check's verdict on any answer."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from validation.checks.comparison import ComparedNode
from validation.checks.registry import CHECKS
from validation.model import Job, MungeReply, Outcome, Reply, Result, Subject, Verdict
from validation.tests import (
    standin,
    standin_compute,
    standin_health,
    standin_host,
    standin_isolation,
)
from validation.tests.conftest import make_plan
from validation.tests.judging import assert_advised, rules_of

REAL = tuple((f"gpu{number}", "h100_sxm", 2, "ib_ndr400") for number in (1, 2))
VIRTUAL = tuple((f"gpu{number}", "virtual", 2) for number in (1, 2))
NEIGHBOURS = tuple((f"gpu{number}", "h100_sxm", 2, "ib_ndr400") for number in (1, 2, 3, 4))
SHARED = ("/home", "/scratch")
ARRIVED_NS = 10**18
MUNGE = MungeReply(None, 0, "Success (0)")


@dataclass(frozen=True, slots=True)
class Answer:
    job: Job
    document: dict[str, Any]


def _planned(payload: str, nodes: Any = REAL, suite: str = "quick") -> Job:
    jobs: tuple[Job, ...] = make_plan(*nodes, suite=suite, shared=SHARED).jobs
    return next(job for job in jobs if job.payload == payload)


def _node() -> Answer:
    job = _planned("node")
    config = {**job.config, "munge_credential": "MUNGE:login:"}
    names = [standin.GPU] * 2
    return Answer(job, standin.node("gpu1", config, names=names, time_ns=ARRIVED_NS))


def _neighbours() -> list[Answer]:
    """Of nodes that try to reach each other."""
    jobs = [job for job in make_plan(*NEIGHBOURS).jobs if job.payload == "node"]
    return [Answer(job, standin.node(job.hosts[0], job.config)) for job in jobs]


def _cuda() -> Answer:
    job = _planned("cuda")
    return Answer(job, standin.cuda("gpu1", job.config))


def _host(payload: str) -> Answer:
    job = _planned(payload, suite="gpu")
    node = replace(job.nodes[0], shared_filesystems=SHARED)
    job = replace(job, nodes=(node,), config={**job.config, "shared_filesystems": list(SHARED)})
    if payload == "host":
        measured = standin_host.host(job.config, "ib_ndr400")
    else:
        measured = standin_host.host_speed(job.config)
    return Answer(job, standin.of_node(payload, "gpu1", measured, job.config))


def _beside() -> list[Answer]:
    """Of jobs side by side on one node."""
    jobs = [job for job in make_plan(REAL[0], suite="gpu").jobs if job.payload == "isolation"]
    return [
        Answer(job, standin.of_node("isolation", "gpu1", measured, job.config))
        for job in jobs
        for measured in [standin_isolation.measured(job.config)]
    ]


def _hosts() -> list[Answer]:
    """Of nodes whose hosts are compared: one may be lost, and the others are enough."""
    nodes = [(f"gpu{number}", *REAL[0][1:]) for number in range(1, 7)]
    jobs = [job for job in make_plan(*nodes, suite="gpu").jobs if job.payload == "host_speed"]
    return [
        Answer(job, standin.of_node("host_speed", job.hosts[0], measured, job.config))
        for job in jobs
        for measured in [standin_host.host_speed(job.config)]
    ]


def _health() -> Answer:
    job = standin_health.job_for()
    measured = standin_health.measured()
    measured["kernel_log"]["events"] = [standin_health.event(63, "Row Remapper: a new row")]
    return Answer(job, standin.of_node("health", "gpu1", measured, job.config))


def _compute(gpus: int = 2) -> Answer:
    job = standin_compute.job(count=gpus, dtypes=["bf16", "fp8"])
    return Answer(job, standin_compute.document(job))


def _dcgm() -> Answer:
    health = standin_health.job_for()
    config = {"level": 3, "gpus": 2, "nonce": health.config["nonce"]}
    job = replace(health, payload="dcgm", config=config)
    measured = {"level": 3, "status": 0, "reason": "2 GPUs passed", "passed": 2}
    return Answer(job, standin.of_node("dcgm", "gpu1", measured, config))


def _soak() -> Answer:
    job = _planned("soak", suite="burn-in")
    return Answer(job, standin.soak(job.hosts, job.config, rates=(50.0,)))


def _same_sums() -> Answer:
    job = _planned("same_sums", suite="burn-in")
    return Answer(job, standin.same_sums(job.hosts, job.config, job.ranks_per_node))


def _cluster(payload: str) -> Answer:
    """Collectives on virtual GPUs, of which a bandwidth is known; the trainings by NCCL."""
    suite = {"all_reduce": "quick", "collectives": "network"}.get(payload, "training")
    return _answered(_planned(payload, REAL if suite == "training" else VIRTUAL, suite))


def _restarted(payload: str) -> Answer:
    """Four nodes, of which two write and two resume."""
    return _answered(_planned(payload, NEIGHBOURS, "training"))


def _answered(job: Job) -> Answer:
    payload = job.payload
    answer = getattr(standin, payload)
    fabric = job.nodes[0].fabric
    return Answer(job, answer(job.hosts, job.config, job.ranks_per_node, fabric=fabric))


def _pair() -> Answer:
    group = make_plan(*VIRTUAL, suite="network").groups[0]
    job = group.job_of(1, group.nodes)
    return Answer(job, standin.pairs(job.hosts, job.config, job.ranks_per_node))


RESTARTED = ("checkpoint", "resume", "inference", "scaling")
TRAININGS = ("ddp", "pipeline", "fsdp", "tensor_parallel", "schedules", "expert_parallel", "mesh")

_ANSWERS: dict[str, Callable[[], Answer]] = {
    "node": _node,
    "cuda": _cuda,
    "host": lambda: _host("host"),
    "host_speed": lambda: _host("host_speed"),
    "health": _health,
    "compute": _compute,
    "dcgm": _dcgm,
    "soak": _soak,
    "same_sums": _same_sums,
    "pairs": _pair,
    "all_reduce": lambda: _cluster("all_reduce"),
    "collectives": lambda: _cluster("collectives"),
    **{payload: partial(_cluster, payload) for payload in TRAININGS},
    **{payload: partial(_restarted, payload) for payload in RESTARTED},
}
ANSWERED = tuple(name for name, check in CHECKS.items() if check.payload)


@functools.cache
def healthy(check: str) -> Answer:
    payload = CHECKS[check].payload
    assert payload
    if check == "network":
        return _neighbours()[0]
    if check == "host_stragglers":
        return _hosts()[0]
    if check == "isolation":
        return _beside()[0]
    if check == "peers":  # of fewer GPUs no bandwidth between two is known
        return _compute(8)
    return _ANSWERS[payload]()


@functools.cache
def _others(check: str) -> tuple[tuple[Job, str], ...]:
    """Three more healthy nodes, for a check that compares."""
    if check == "network":
        return tuple((other.job, standin.line(other.document)) for other in _neighbours()[1:])
    if check == "isolation":
        return tuple((other.job, standin.line(other.document)) for other in _beside()[1:])
    if check == "host_stragglers":
        return tuple((other.job, standin.line(other.document)) for other in _hosts()[1:])
    others = []
    for number in (2, 3, 4):
        host = f"gpu{number}"
        answer = healthy(check)
        node = replace(answer.job.nodes[0], name=host)
        subject = Subject.node(host)
        job = replace(answer.job, nodes=(node,), subject=subject, name=f"job-{host}")
        proof = {**answer.document["proof"], "host": host}
        others.append((job, standin.line({**answer.document, "proof": proof})))
    return tuple(others)


def result(check: str, job: Job, text: str, **changes: Any) -> Result:
    """Of this answer; a check that compares has three healthy ones beside it.

    `changes` are of the reply that brings it. Whatever it is, it is one of the check's cases.
    """
    found = _result(check, job, text, **changes)
    assert_advised(found)
    return found


def _result(check: str, job: Job, text: str, **changes: Any) -> Result:
    rules = rules_of(job.nodes[0].hardware)
    healthy = Reply(job.name, Outcome.EXITED, 0, "17", text, document_ns=ARRIVED_NS, munge=MUNGE)
    reply = replace(healthy, **changes)
    if judge := CHECKS[check].evaluate:
        return judge(job, reply, rules)
    compare = CHECKS[check].compare
    assert compare
    others = (
        ComparedNode(other, replace(healthy, stdout=text), rules) for other, text in _others(check)
    )
    first, *rest = compare([ComparedNode(job, reply, rules), *others])
    assert {other.verdict for other in rest} <= {Verdict.PASS}  # it costs nobody else's verdict
    return first


def verdict(check: str, job: Job, text: str) -> Verdict:
    return result(check, job, text).verdict
