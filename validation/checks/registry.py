"""The checks, in the order in which they run and are reported.

Each is a module: a docstring that says what it checks, why it matters and what to do (reports and
the site's page of checks show the same words), and a pure `evaluate`, which judges an answer by
itself, or `compare`, which judges those of all nodes together once they are there. A check makes no
jobs of its own: several are judged by one payload's answer.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

from validation.checks import (
    accounting,
    alike,
    all_reduce,
    checkpoint,
    clock,
    clocks,
    collectives,
    copies,
    cores,
    cpus,
    cuda,
    dcgm,
    ddp,
    disk,
    drift,
    driver,
    ecc,
    expert_parallel,
    fsdp,
    gemm,
    gpus,
    hbm,
    host_memory,
    host_stragglers,
    hostname,
    inference,
    infiniband,
    isolation,
    limits,
    links,
    load_clocks,
    load_ecc,
    memory,
    mesh,
    mig,
    munge,
    network,
    nvlink,
    pairs,
    pcie,
    peers,
    pipeline,
    port_errors,
    processes,
    repeatable,
    resume,
    same_bits,
    same_hcas,
    same_product,
    same_sums,
    scaling,
    schedules,
    shared_fs,
    slurm_state,
    soak,
    soak_stragglers,
    stragglers,
    tensor_parallel,
    tmp,
    torch,
    xid,
)
from validation.checks.comparison import ComparedNode
from validation.checks.soaked import OverTime
from validation.model import Case, CheckInfo, Job, Reply, Result, Tier, Verdict, When
from validation.thresholds import Rules

Evaluate = Callable[[Job, Reply, Rules], Result]
Compare = Callable[[Sequence[ComparedNode]], Sequence[Result]]

ALONE = "one rank: it computes correctly, but nothing was communicated"


@dataclass(frozen=True, slots=True)
class Check:
    """`payload` and `evaluate` are None for slurm_state and accounting, which need no job.

    compare     judges the answers of all nodes, in the place of `evaluate`; None where each is
                judged by itself
    fewest      GPUs of alike nodes below which there is nothing to compare
    over_time   judges nodes by all rounds of a burn-in together; None where each round is judged
    fewest_alike   alike nodes below which there is nothing to compare
    """

    info: CheckInfo
    payload: str | None
    evaluate: Evaluate | None
    compare: Compare | None = None
    fewest: int = 0
    over_time: OverTime | None = None
    fewest_alike: int = 0


_SECTIONS = ("What it checks", "Why it matters", "What to do")


def describe(module: ModuleType) -> CheckInfo:
    """A check's documentation out of its module's docstring.

    What it has in common with other checks (SHARED) brings its own advice and causes.
    """
    text = inspect.getdoc(module) or ""
    sections = _sections(module)
    lines = [line.strip() for line in sections["What to do"].splitlines()]
    commands = tuple(line[2:] for line in lines if line.startswith("$ "))
    own = [line for line in lines if not line.startswith("$ ")]
    shared: Sequence[ModuleType] = getattr(module, "SHARED", ())
    advice = _flow(" ".join([*own, *(_sections(part)["What to do"] for part in shared)]))
    causes = {
        label: when
        for part in (module, *shared)
        for label, when in getattr(part, "CAUSES", {}).items()
    }
    return CheckInfo(
        module.NAME,
        module.TIER,
        text.splitlines()[0],
        _flow(sections["What it checks"]),
        _flow(sections["Why it matters"]),
        advice,
        commands,
        getattr(module, "FEWEST_NODES", 1),
        _cases(advice, commands, causes),
    )


def _sections(module: ModuleType) -> dict[str, str]:
    text = inspect.getdoc(module) or ""
    return dict(re.findall(rf"^({'|'.join(_SECTIONS)}) +(.+(?:\n +.*)*)", text, flags=re.MULTILINE))


def _cases(advice: str, commands: tuple[str, ...], causes: Mapping[str, When]) -> tuple[Case, ...]:
    """The parts of the advice that begin with a cause and a colon, each up to the next.

    Raises ValueError for a cause that the advice does not name exactly once.
    """
    for label in causes:
        if advice.count(f"{label}:") != 1:
            raise ValueError(f"the advice does not have {label!r} and a colon once: {advice}")
    begins = {label: advice.index(f"{label}:") for label in causes}
    ends = [*sorted(begins.values()), len(advice)]
    return tuple(
        Case(
            label.replace("`", "").lower(),
            when.words,
            advice[begins[label] : next(end for end in ends if end > begins[label])].strip(),
            when.commands or commands,
        )
        for label, when in causes.items()
    )


def _flow(text: str) -> str:
    return " ".join(text.split())


def _evaluate(module: ModuleType) -> Evaluate | None:
    """How a job's answer is judged. Ranks that name their GPUs are held against the declaration."""
    if module.PAYLOAD is None or not hasattr(module, "evaluate"):
        return None
    judge: Evaluate = module.evaluate
    if module.TIER is Tier.NODE:
        return judge

    def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
        return _alone(job, gpus.held_against_names(job, judge(job, reply, rules), rules))

    return evaluate


def _alone(job: Job, result: Result) -> Result:
    """What one rank got right says nothing of communication, and the report must not sound so."""
    others = len(job.candidates) > 1  # what one node resumes, two have written
    if job.ranks > 1 or others or result.verdict is not Verdict.PASS:
        return result
    return replace(result, message=ALONE)


CHECKS: Mapping[str, Check] = {
    module.NAME: Check(
        describe(module),
        module.PAYLOAD,
        _evaluate(module),
        getattr(module, "compare", None),
        getattr(module, "FEWEST_GPUS", 0),
        getattr(module, "over_time", None),
        getattr(module, "FEWEST_ALIKE", 0),
    )
    for module in (
        slurm_state,
        accounting,
        hostname,
        cpus,
        memory,
        gpus,
        tmp,
        munge,
        clock,
        network,
        torch,
        limits,
        shared_fs,
        infiniband,
        port_errors,
        same_hcas,
        disk,
        host_memory,
        cores,
        host_stragglers,
        driver,
        ecc,
        xid,
        pcie,
        nvlink,
        clocks,
        processes,
        mig,
        alike,
        cuda,
        gemm,
        hbm,
        copies,
        peers,
        links,
        load_clocks,
        load_ecc,
        repeatable,
        same_product,
        stragglers,
        isolation,
        dcgm,
        soak,
        drift,
        same_bits,
        soak_stragglers,
        pairs,
        all_reduce,
        collectives,
        ddp,
        pipeline,
        fsdp,
        tensor_parallel,
        schedules,
        expert_parallel,
        mesh,
        checkpoint,
        resume,
        inference,
        scaling,
        same_sums,
    )
}
