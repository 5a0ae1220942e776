"""Groups that nodes are declared to be in, such as switches and racks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cluster.declaration import Declaration


@dataclass(frozen=True, slots=True)
class Level:
    """Groups of one kind; a node is in one of them at most.

    name    what such a group is called in a sentence: "switch", "rack"
    groups  name of each group, and its nodes
    """

    name: str
    groups: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Topology:
    """The declared groups, those of the smallest groups first; none where nothing is declared.

    Levels mostly lie within each other, as leaf switches do below a spine, and need not: a rack
    may have nodes of two switches, and a switch nodes of two racks.
    """

    levels: tuple[Level, ...] = ()

    @classmethod
    def declared(cls, declaration: Declaration) -> Topology:
        """Switches, those above them and racks, as the inventory has them."""
        switches: dict[str, list[str]] = {}
        racks: dict[str, list[str]] = {}
        for node in declaration.nodes.values():
            if node.switch:
                switches.setdefault(node.switch, []).append(node.name)
            if node.rack:
                racks.setdefault(node.rack, []).append(node.name)
        levels = [("switch", switches), ("rack", racks)]
        above = _above(declaration.switches, racks | switches)
        levels += [("switch", groups) for groups in above]
        return cls.of((name, groups) for name, groups in levels)

    @classmethod
    def of(cls, levels: Iterable[tuple[str, Mapping[str, Iterable[str]]]]) -> Topology:
        """Levels in any order; those without a group are left out."""
        known = [
            Level(name, {group: tuple(nodes) for group, nodes in groups.items()})
            for name, groups in levels
            if groups
        ]
        return cls(tuple(sorted(known, key=_mean)))


def _mean(level: Level) -> float:
    """How many nodes a group of it has."""
    return sum(map(len, level.groups.values())) / len(level.groups)


def _above(
    switches: Mapping[str, tuple[str, ...]], leaves: Mapping[str, list[str]]
) -> list[dict[str, list[str]]]:
    """Nodes of the switches above others, in a list of how far above leaves they are."""
    levels: list[dict[str, list[str]]] = []
    known: dict[str, list[str]] = dict(leaves)
    waiting = dict(switches)
    while waiting:
        ready = {
            name: [node for child in below for node in known.get(child, ())]
            for name, below in waiting.items()
            if not any(child in waiting for child in below)
        }
        if not ready:  # the declaration's reader refuses circles
            raise ValueError(f"switches lie below each other: {', '.join(waiting)}")
        levels.append(ready)
        known |= ready
        waiting = {name: below for name, below in waiting.items() if name not in ready}
    return levels
