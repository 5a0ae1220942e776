"""A run between its command line and its report: what is asked, of whom, and who does it.

Shared by a single run, a burn-in and tests in the background.
"""

import argparse
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from validation import local
from validation.checks.registry import CHECKS
from validation.declare.whole import doubts
from validation.execution.folder import RunFolder
from validation.execution.journal import Begun
from validation.execution.request import CONTAINER, WISHES, Asked
from validation.model import Outcome, RunReport, node_reports, overall, settle
from validation.plan import Plan
from validation.slurm.client import CommandLineClient, SlurmClient
from validation.tiers import Walk
from validation.transport import Transport


def begun_now(arguments: Sequence[str], now: datetime) -> Begun:
    run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    started = now.isoformat(timespec="seconds")
    return Begun(run_id, secrets.token_hex(8), started, str(Path.cwd()), tuple(arguments), {})


@dataclass(frozen=True, slots=True)
class Going:
    """A run that has begun: what it was asked, and what it goes through."""

    options: argparse.Namespace
    asked: Asked
    begun: Begun
    transport: Transport
    folder: RunFolder

    def client(self, planned: Plan, number: int = 0) -> SlurmClient:
        """For one walk through a plan; `number` is that of a round."""
        slurm_id = self.begun.slurm_id(number)
        if self.options.local:
            return local.LocalClient(slurm_id, planned.python)
        wishes = planned.submission.words
        return CommandLineClient(self.transport, slurm_id, planned.python, wishes)


def report_of(
    planned: Plan, walk: Walk, client: SlurmClient, going: Going, seconds: float
) -> RunReport:
    options, begun, folder = going.options, going.begun, going.folder
    results = tuple(settle(planned.checks, walk.results))
    return RunReport(
        run_id=planned.run_id,
        suite=planned.suite,
        cluster=planned.cluster,
        via=client.via,
        slurm=walk.slurm,
        started=begun.started,
        seconds=seconds,
        verdict=overall(planned.checks, walk.results),
        results=results,
        nodes=node_reports(
            planned.nodes, walk.states, results, planned.suite_checks, planned.checks
        ),
        jobs=walk.jobs,
        checks={name: check.info for name, check in CHECKS.items()},
        notes=(*client.notes, *walk.notes, *doubts(planned.nodes)),
        left_out=planned.left_out,
        interrupted=walk.interrupted,
        repeat=_repeat(options),
        resume=_resume_command(options, walk, folder),
        local=options.local,
        output=str(folder.path),
    )


def _resume_command(options: argparse.Namespace, walk: Walk, folder: RunFolder) -> str:
    """The command line that goes on with a run that did not come to its end; empty for others."""
    if options.local or not (walk.interrupted or lost(walk)):
        return ""
    return shlex.join([*options.program, "--resume", str(folder.path)])


def lost(walk: Walk) -> bool:
    """Whether contact was lost on the way."""
    return any(item.reply and item.reply.outcome is Outcome.LOST for item in walk.jobs)


def _repeat(options: argparse.Namespace) -> str:
    """The command line for another run like this one, without its selection of nodes."""
    words = [*options.program]
    words += ["--here"] if options.here else []
    words += ["--local"] if options.local else []
    words += [word for text in options.inventory or [] for word in ("-i", text)]
    for name in (
        "suite",
        "duration",
        "partition",
        *WISHES,
        "declaration",
        "thresholds",
        "metrics",
        "history",
    ):
        value = getattr(options, name)
        if value is not None:
            words += [f"--{name}", str(value)]
    for name in CONTAINER:
        if (value := getattr(options, f"container_{name}")) is not None:
            words.append(f"--container-{name}={value}")
    words += [f"--srun-option={option}" for option in options.srun_option or []]
    return shlex.join(words)
