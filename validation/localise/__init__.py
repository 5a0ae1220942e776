"""Finds which node, link or group of nodes is at fault, by rounds of pairs that run side by side.

    seen: tuple[Seen, ...] = ()
    while pairs := next_round(nodes, topology, seen):
        seen += measure(pairs)
    print(conclude(nodes, topology, seen).sentences)

Everything here is pure: what to measure next, and what the measurements mean.
"""

from validation.localise.evidence import Seen
from validation.localise.findings import Findings, Group, Link, Node, Undecided
from validation.localise.rails import Hca, Rails, by_rail
from validation.localise.ramp import Narrowed, narrow, ramp
from validation.localise.rounds import MOST_ROUNDS, next_round
from validation.localise.topology import Level, Topology
from validation.localise.verdict import conclude

__all__ = [
    "MOST_ROUNDS",
    "Findings",
    "Group",
    "Hca",
    "Level",
    "Link",
    "Narrowed",
    "Node",
    "Rails",
    "Seen",
    "Topology",
    "Undecided",
    "by_rail",
    "conclude",
    "narrow",
    "next_round",
    "ramp",
]
