"""What the command line asks for, and of which cluster.

Shared by a single run, a burn-in and tests in the background.
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cluster import declaration
from cluster.declaration import Declaration, Submission
from cluster.errors import UsageError
from validation import cluster, local, plan, suites
from validation.execution import journal
from validation.model import Tier
from validation.plan import Plan, Selection
from validation.suites import Suite
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


_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


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

    def in_reservation(self, nodes: str, name: str, *, alone: bool = False) -> "Asked":
        """The same checks on these nodes, in the reservation that keeps them.

        `alone` leaves out once more what takes several nodes: of several of a kind one may be left.
        """
        submission = replace(self.selection.submission, reservation=name)
        chosen = replace(self.selection, nodes=nodes, exclude=None, submission=submission)
        reserved = replace(self, selection=chosen)
        return reserved.alone() if alone else reserved

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

    def alone(self) -> "Asked":
        """The same about the nodes that are selected, each by itself.

        What is left is all that is asked: a node that passes it is proven.
        """
        asked = self.of_nodes([node.name for node in self.plan("", "").nodes])
        planned = {item.check for item in asked.plan("", "").checks}
        checks = tuple(name for name in self.suite.checks if name in planned)
        selection = replace(asked.selection, only=None, skip=())
        return replace(asked, selection=selection, suite=replace(self.suite, checks=checks))

    def follows_from(self, planned: Plan) -> dict[str, str]:
        return journal.follows_from(self.declared, self.suite, planned)


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
    asked = Asked(selection, suite, tuple(inventories), declared, thresholds)
    return asked.alone() if options.alone else asked


def transport_of(options: argparse.Namespace, asked: Asked) -> Transport:
    if options.here or options.local:
        return Here()
    declared = asked.declared
    return inventory.Inventory(asked.inventories, declared.submit_hosts, declared.submission.user)


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


def seconds_of(text: str, option: str = "--duration") -> int:
    """A duration such as 24h, 20m or 2h30m. Raises UsageError."""
    match = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip())
    parts = match.groups() if match else ()
    total = sum(
        int(part) * unit for part, unit in zip(parts, _UNITS.values(), strict=False) if part
    )
    if total <= 0:
        raise UsageError(f"{option}: {text!r} is no duration; give one such as 24h or 2h30m")
    return total
