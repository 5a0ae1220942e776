"""Larger groups, for what pairs do not show: a spine that is too narrow, a collective's own way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.hostlist import listed
from validation.localise.evidence import Seen, gather
from validation.localise.topology import Topology

Members = tuple[str, ...]
SMALLEST = 2


def ramp(nodes: Sequence[str], topology: Topology) -> tuple[tuple[Members, ...], ...]:
    """Steps of disjoint groups of 2, 4, 8 … nodes that run side by side; the last is all nodes.

    Groups grow by the declared topology: within switches first, then across.
    """
    ordered = _ordered(nodes, topology)
    steps: list[tuple[Members, ...]] = []
    size = SMALLEST
    while size < len(ordered):
        groups = [ordered[first : first + size] for first in range(0, len(ordered), size)]
        if len(groups[-1]) == 1:  # an odd node is not dropped
            groups[-2:] = [groups[-2] + groups[-1]]
        steps.append(tuple(groups))
        size *= 2
    if len(ordered) > 1 and (not steps or len(steps[-1]) > 1):
        steps.append((ordered,))
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The smallest group that still fails."""

    nodes: Members
    halves_good: bool

    @property
    def sentence(self) -> str:
        if self.halves_good:
            return (
                f"{listed(self.nodes)} fail together, and each half of them alone is good: it "
                "shows at this size only, or lies between the halves."
            )
        return f"{listed(self.nodes)} fail together: pairs tell which of them."


def narrow(
    group: Sequence[str], topology: Topology, seen: Iterable[Seen]
) -> tuple[tuple[Members, ...], tuple[Narrowed, ...]]:
    """Halves of a failing group to run next, and once there are none, where it fails.

    A failing half is halved again, down to pairs; of a group whose halves are good, the halves are
    what cannot be told apart.
    """
    known = {frozenset(one.nodes): one.ok for one in seen if one.ok is not None}
    run: list[Members] = []
    found: list[Narrowed] = []
    waiting = [_ordered(group, topology)]
    for members in waiting:
        if len(members) < 2 * SMALLEST:
            found.append(Narrowed(members, False))
            continue
        middle = len(members) // 2
        halves = (members[:middle], members[middle:])
        unknown = [half for half in halves if frozenset(half) not in known]
        bad = [half for half in halves if known.get(frozenset(half)) is False]
        run += unknown
        waiting += bad
        if not unknown and not bad:
            found.append(Narrowed(members, True))
    return tuple(run), () if run else tuple(found)


def _ordered(nodes: Sequence[str], topology: Topology) -> Members:
    """Nodes of a group beside each other, by the largest groups first."""
    paths = gather(nodes, topology, ()).paths
    return tuple(sorted(dict.fromkeys(nodes), key=lambda node: paths[node][::-1]))
