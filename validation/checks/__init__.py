"""The checks, in the order in which they run and are reported.

Each is a module: a docstring that says what it checks, why it matters and what to do (reports and
`docs/validation.md` show the same words), and a pure `evaluate`. A check makes no jobs of its own:
several are judged by one payload's answer.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType

from validation.checks import (
    accounting,
    all_reduce,
    clock,
    clocks,
    copies,
    cpus,
    cuda,
    ddp,
    driver,
    ecc,
    gemm,
    gpus,
    hbm,
    hostname,
    memory,
    mig,
    munge,
    nvlink,
    pcie,
    peers,
    pipeline,
    processes,
    repeatable,
    slurm_state,
    tmp,
    torch,
    xid,
)
from validation.model import CheckInfo, Job, Reply, Result, Tier
from validation.thresholds import Rules

Evaluate = Callable[[Job, Reply, Rules], Result]


@dataclass(frozen=True, slots=True)
class Check:
    """`payload` and `evaluate` are None for slurm_state and accounting, which need no job."""

    info: CheckInfo
    payload: str | None
    evaluate: Evaluate | None


_SECTIONS = ("What it checks", "Why it matters", "What to do")


def describe(module: ModuleType) -> CheckInfo:
    """A check's documentation out of its module's docstring."""
    text = inspect.getdoc(module) or ""
    found = dict(
        re.findall(rf"^({'|'.join(_SECTIONS)}) +(.+(?:\n +.*)*)", text, flags=re.MULTILINE)
    )
    lines = [line.strip() for line in found["What to do"].splitlines()]
    return CheckInfo(
        module.NAME,
        module.TIER,
        text.splitlines()[0],
        _flow(found["What it checks"]),
        _flow(found["Why it matters"]),
        " ".join(line for line in lines if not line.startswith("$ ")),
        tuple(line[2:] for line in lines if line.startswith("$ ")),
    )


def _flow(text: str) -> str:
    return " ".join(text.split())


def _evaluate(module: ModuleType) -> Evaluate | None:
    """How a job's answer is judged. Ranks that name their GPUs are held against the declaration."""
    if module.PAYLOAD is None:
        return None
    judge: Evaluate = module.evaluate
    if module.TIER is Tier.NODE:
        return judge
    return lambda job, reply, rules: gpus.held_against_names(judge(job, reply, rules), rules)


CHECKS: Mapping[str, Check] = {
    module.NAME: Check(describe(module), module.PAYLOAD, _evaluate(module))
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
        torch,
        driver,
        ecc,
        xid,
        pcie,
        nvlink,
        clocks,
        processes,
        mig,
        cuda,
        gemm,
        hbm,
        copies,
        peers,
        repeatable,
        all_reduce,
        ddp,
        pipeline,
    )
}
