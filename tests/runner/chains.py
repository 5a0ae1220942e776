"""Which roles are tested one after the other on one node.

`scenario_builds_on` in roles/ROLE/molecule/default/molecule.yml names the roles that a role builds
on. Applied to one node in that order, each is the preparation of the next, and none is installed
twice for them. A chain is such an order: no role in it comes before one that it builds on. What
builds on roles that are tested elsewhere joins a node that has them, until that chain is long
enough; what builds on nothing, and what a scenario with nodes of its own tests, has a bare node for
itself. A node gets a simulated NVML and loses it while it runs, so it does not need one of its own.

`scenario_long` says why scripts/test leaves a role for scripts/test --full.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    import yaml
except ModuleNotFoundError:
    sys.exit("role-chains: run it with .venv/bin/python, which scripts/setup makes")

from tests.runner import budget

# Chains run beside the cluster, so a longer one would end after it, and what is left on a node by
# strangers would grow.
LONGEST = 14

# What scripts/virtual-cluster starts for a chain.
NODES = "--single=node --gpus=2"

BuildsOn = Mapping[str, frozenset[str]]


class Wrong(Exception):
    """A scenario that cannot be planned; one sentence."""


@dataclass(frozen=True, slots=True)
class Scenarios:
    """The roles, by what their scenarios say: all that there are with what each builds on, those
    that have nodes of their own, and those that are left for --full.
    """

    builds_on: dict[str, frozenset[str]]
    alone: frozenset[str] = frozenset()
    long: frozenset[str] = frozenset()


@dataclass
class Chain:
    """Roles in the order of their tests, and all that is on their node in the end."""

    roles: list[str] = field(default_factory=list)
    applied: set[str] = field(default_factory=set)


def everything_below(builds_on: BuildsOn) -> dict[str, frozenset[str]]:
    """Each role with all that it builds on, directly or not."""
    by_role: dict[str, frozenset[str]] = {}

    def below(role: str, above: tuple[str, ...]) -> frozenset[str]:
        if role in above:
            raise Wrong(f"these roles build on each other: {', '.join(sorted(above))}")
        if role not in by_role:
            direct = builds_on.get(role, frozenset())
            by_role[role] = direct.union(*(below(other, (*above, role)) for other in direct))
        return by_role[role]

    for role in builds_on:
        below(role, ())
    return by_role


def chains(builds_on: BuildsOn, alone: frozenset[str] = frozenset()) -> list[list[str]]:
    """Every role once, after those it builds on."""
    below = everything_below(builds_on)
    planned: list[Chain] = []
    left = set(builds_on)

    def start(roles: list[str]) -> None:
        planned.append(Chain(roles, set(roles).union(*(below[role] for role in roles))))
        left.difference_update(roles)

    for role in sorted(alone):
        start([role])
    while left:
        # The role with most below it that has no place yet: its chain gives them one. Then the role
        # with most below it at all: it can join few.
        role = max(sorted(left), key=lambda name: (len(below[name] & left), len(below[name])))
        first = sorted(below[role] & left, key=lambda name: (len(below[name]), name))
        home = next(
            (
                chain
                for chain in planned
                if below[role]
                and below[role] <= chain.applied
                and len(chain.roles) < LONGEST
                and not alone & set(chain.roles)
            ),
            None,
        )
        if first or home is None:
            start([*first, role])
        else:
            home.roles.append(role)
            home.applied.add(role)
            left.remove(role)
    return longest_first((chain.roles for chain in planned), {})


def longest_first(planned: Iterable[list[str]], cost: Mapping[str, float]) -> list[list[str]]:
    """Chains in the order in which they begin: what is long and begins last ends last, alone.

    A role that has no cost yet counts as much as another.
    """
    usual = sum(cost.values()) / len(cost) if cost else 1.0

    def length(roles: list[str]) -> float:
        return sum(cost.get(role, usual) for role in roles)

    return sorted(planned, key=length, reverse=True)


def costs(records: Mapping[budget.Key, float]) -> dict[str, float]:
    """What each role cost, here and on its node, by the budget's records."""
    by_role: dict[str, float] = {}
    for (part, measure), record in records.items():
        kind, _, role = part.partition(" ")
        if kind == "role" and measure in budget.COSTS:
            name = role.partition(" ")[0]
            by_role[name] = by_role.get(name, 0.0) + record
    return by_role


def variables(scenario: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a molecule.yml sets for all nodes."""
    for key in ("provisioner", "inventory", "group_vars", "all"):
        scenario = scenario.get(key) or {}
    return scenario


def needs_own_nodes(environment: Mapping[str, str]) -> bool:
    """Whether a scenario asks for other nodes than those of a chain."""
    nodes = environment.get("PLUMBLINE_NODES", NODES).split()
    return [word for word in nodes if word != "--nvml"] != NODES.split()


def read(repository: Path) -> Scenarios:
    """`scenario_own_node` is for a role that cannot follow others, or that others cannot follow."""
    builds_on: dict[str, frozenset[str]] = {}
    alone: set[str] = set()
    long: set[str] = set()
    for path in sorted(repository.glob("roles/*/molecule/default/molecule.yml")):
        role = path.relative_to(repository).parts[1]
        scenario = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        declared = variables(scenario)
        if declared.get("scenario_own_node") or needs_own_nodes(
            scenario.get("ansible", {}).get("env") or {}
        ):
            alone.add(role)
        if declared.get("scenario_long"):
            long.add(role)
        builds_on[role] = frozenset(declared.get("scenario_builds_on", ()))
    for folder in sorted(repository.glob("roles/*/tasks")):
        if folder.parent.name not in builds_on:
            raise Wrong(f"roles/{folder.parent.name} has no scenario: nothing tests this role")
    for role, others in builds_on.items():
        if unknown := sorted(others - builds_on.keys()):
            raise Wrong(
                f"roles/{role}/molecule/default/molecule.yml: there is no role {unknown[0]} "
                "with a scenario"
            )
    return Scenarios(builds_on, frozenset(alone), frozenset(long))
