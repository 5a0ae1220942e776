"""A run between its command line and its report: what is asked, of whom, and who does it.

Shared by a single run, a burn-in and tests in the background.
"""

import argparse
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from cluster import declaration
from cluster.declaration import Declaration, Submission
from cluster.errors import UsageError
from validation import cluster, kept, local, plan, suites
from validation.checks.registry import CHECKS
from validation.declaring import doubts
from validation.kept import Begun
from validation.model import Outcome, RunReport, Tier, node_reports, overall, settle
from validation.output import RunFolder
from validation.plan import Plan, Selection
from validation.slurm.client import CommandLineClient, SlurmClient
from validation.suites import Suite
from validation.tiers import Walk
from validation.transport import Transport, inventory
from validation.transport.here import Here

# Options that srun has too, and what they name.
WISHES = {
    "account": "account",
    "qos": "quality of service",
    "reservation": "reservation",
    "constraint": "required node features",
}

CONTAINER = {
    "image": "run the payloads in this container with pyxis (none: without a container)",
    "mounts": "mounts of the container: SOURCE:TARGET,…",
    "python": "the Python in it, with torch (default: python3)",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for, and of which cluster."""

    selection: Selection
    suite: Suite
    inventories: tuple[str, ...]
    declared: Declaration
    site_thresholds: Path | None

    def plan(self, run_id: str, secret: str) -> Plan:
        return plan.make(
            self.declared, self.suite, self.selection, run_id, self.site_thresholds, secret
        )

    def in_reservation(self, nodes: str, name: str) -> "Asked":
        """The same checks on these nodes, in the reservation that keeps them."""
        submission = replace(self.selection.submission, reservation=name)
        chosen = replace(self.selection, nodes=nodes, exclude=None, submission=submission)
        return replace(self, selection=chosen)

    def without(self, checks: Sequence[str]) -> "Asked":
        skip = (*self.selection.skip, *checks)
        return replace(self, selection=replace(self.selection, skip=skip))

    @property
    def interval_s(self) -> float:
        """Between two looks. One at this machine costs nothing, through Ansible a second or two."""
        return 1.0 if self.inventories else 0.3

    def of_nodes(self, names: Sequence[str]) -> "Asked":
        """The same about these nodes, without what only several of them could prove."""
        chosen = replace(self.selection, nodes=",".join(names), exclude=None)
        asked = replace(self, selection=chosen)
        owed = asked.plan("", "").checks
        more = {item.check for item in owed if item.unproven or item.tier is Tier.CLUSTER}
        return asked.without([name for name in self.suite.checks if name in more])

    def follows_from(self, planned: Plan) -> dict[str, str]:
        return kept.follows_from(self.declared, self.suite, planned)


def asked_by(options: argparse.Namespace) -> Asked:
    selection = Selection(
        only=_names(options.only) if options.only is not None else None,
        skip=_names(options.skip or []),
        nodes=options.nodes,
        exclude=options.exclude,
        partition=options.partition,
        submission=_submission(options),
    )
    usual = local.SUITE if options.local else "gpu" if options.background else "quick"
    suite = suites.load(options.suite or usual)
    inventories = cluster.inventories(options)
    declared = cluster.declared(options, inventories)
    thresholds = cluster.site_thresholds(options, inventories)
    return Asked(selection, suite, tuple(inventories), declared, thresholds)


def begun_now(arguments: Sequence[str], now: datetime) -> Begun:
    run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    started = now.isoformat(timespec="seconds")
    return Begun(run_id, secrets.token_hex(8), started, str(Path.cwd()), tuple(arguments), {})


def transport_of(options: argparse.Namespace, asked: Asked) -> Transport:
    if options.here or options.local:
        return Here()
    declared = asked.declared
    return inventory.Inventory(asked.inventories, declared.submit_hosts, declared.submission.user)


@dataclass(frozen=True, slots=True)
class Going:
    """A run that has begun: what it was asked, and what it goes through."""

    options: argparse.Namespace
    asked: "Asked"
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


def _submission(options: argparse.Namespace) -> Submission:
    for option in options.srun_option or []:
        if problem := declaration.option_problem(option or ""):
            raise UsageError(f"--srun-option: {problem}")
    named = {name: getattr(options, name) for name in WISHES}
    for name, value in named.items():
        if value is not None and (not value.strip() or not value.isprintable()):
            raise UsageError(f"--{name}: expected a name, found {value!r}")
    inside = {f"container_{name}": getattr(options, f"container_{name}") for name in CONTAINER}
    for name in CONTAINER:
        value = inside[f"container_{name}"]
        if value is not None and (problem := declaration.container_problem(name, value)):
            raise UsageError(f"--container-{name}: {problem}")
    if options.local and any(inside.values()):
        raise UsageError("--container-image: containers are started by Slurm, not with --local")
    return Submission(**named, srun_options=tuple(options.srun_option or ()), **inside)


def _names(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())
