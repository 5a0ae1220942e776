"""Runs checks: all at once, each with a hard limit of its own, killed with its process group.

A check that does not answer in time has failed. So has one that ends in an error: what could not be
asked is not well. All checks that need NVML share one pass, which has the longest of their limits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from cluster import apart, processes
from validation.node_health import node
from validation.node_health.config import Check, HealthSettings
from validation.node_health.outcome import FAIL, PASS, Outcome

JobGpus = Mapping[str, "frozenset[int] | None"]

_GPU = "gpu_"  # how the names of builtins begin that ask NVML
_NVML = 0.7  # of the limit
_LINES = 3  # of a command's output that are told


def run(
    config: HealthSettings,
    checks: Sequence[Check],
    environment: Mapping[str, str],
    job_gpus: JobGpus,
) -> dict[str, Outcome]:
    """The outcomes by the checks' names, in their order.

    `environment` is added to that of commands; `job_gpus` are the GPUs of the job that a check is
    about. Takes at most the longest limit and two seconds.
    """
    asking = [check for check in checks if (check.builtin or "").startswith(_GPU)]
    outcomes: dict[str, Outcome] = {}
    if asking:
        outcomes, asking = _declared(config, asking)
    others = [check for check in checks if check not in asking and check.name not in outcomes]
    works: list[Callable[[], Any]] = [_work(config, check, environment) for check in others]
    limits = [check.timeout_s for check in others]
    if asking:
        longest = max(check.timeout_s for check in asking)
        works.append(partial(_gpus, config, asking, job_gpus, longest))
        limits.append(longest)
    ends = apart.run(works, limits)
    for check, end in zip(others, ends, strict=False):
        outcomes[check.name] = _read(end, end.answer)
    for check in asking:
        answer = ends[-1].answer
        outcomes[check.name] = _read(ends[-1], answer and answer.get(check.name))
    return {check.name: outcomes[check.name] for check in checks}


def _declared(
    config: HealthSettings, asking: list[Check]
) -> tuple[dict[str, Outcome], list[Check]]:
    """What does not apply, and the rest: nodes without GPUs import nothing for them."""
    from validation.node_health import gpus

    outcomes = {check.name: gpus.applies(config, check) for check in asking}
    skipped = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
    return skipped, [check for check in asking if check.name not in skipped]


def _read(end: apart.Ended, answer: Mapping[str, str] | None) -> Outcome:
    if end.error is not None:
        return Outcome(FAIL, end.error)
    return Outcome(**answer) if answer else Outcome(FAIL, "it ended without an answer")


def _gpus(
    config: HealthSettings, checks: Sequence[Check], job_gpus: JobGpus, limit_s: float
) -> dict[str, dict[str, str]]:
    from validation.node_health import gpus

    # nvml.py tells what a hanging driver was asked last, if it has the time to: a process that
    # cannot be killed costs it two seconds of ours.
    measured = gpus.read(checks, _NVML * limit_s)
    outcomes = gpus.judged(config, checks, measured, job_gpus)
    return {name: asdict(outcome) for name, outcome in outcomes.items()}


def _work(
    config: HealthSettings, check: Check, environment: Mapping[str, str]
) -> Callable[[], dict[str, str]]:
    if check.builtin is not None:
        return lambda: asdict(node.BUILTINS[str(check.builtin)](config, check.arguments))
    return lambda: asdict(_command(check.command, {**os.environ, **environment}))


def _command(command: Sequence[str], environment: Mapping[str, str]) -> Outcome:
    """0 is well; with any other status its last lines say what is wrong."""
    try:
        done = processes.run(
            command, None, environment=environment, one_stream=True, any_status=True
        )
    except processes.CommandFailed as error:
        return Outcome(FAIL, str(error))
    if done.status == 0:
        return Outcome(PASS)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    last_lines = " / ".join(lines[-_LINES:]) or f"{command[0]} says nothing"
    return Outcome(FAIL, f"{last_lines} (exit status {done.status})")
