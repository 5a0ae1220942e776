"""A node finds other nodes by their names, and whole packets get there.

What it checks   Each node resolves the names of up to nine others: the eight that follow it, and
                 the first, where the ranks of all nodes meet. Each name leads to an address that
                 the other node has. A packet of the largest size reaches every node that a small
                 one reaches.
Why it matters   Ranks and Slurm's daemons find each other by name: with a wrong address in
                 /etc/hosts or DNS, each cluster job waits until its time is up. If only small
                 packets pass, jobs connect and then hang.
What to do       A name: correct the line of /etc/hosts on the node (a run of the playbook writes
                 it), or the DNS. A packet: compare the MTU of the interfaces on both nodes and of
                 the switch ports between them, and look for a firewall that drops large packets.
                 Nothing to compare with: no other node answered; repair these first.
                 $ ssh {node} 'getent ahosts {node}; ip -brief address'
                 $ ssh {node} ip link
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cluster.hostlist import compress
from cluster.text import printable
from validation.checks.comparison import ComparedNode
from validation.checks.document import Document, Fields, Unusable, read, unusable_result
from validation.model import Job, Metric, Result, Threshold, Tier, Verdict, When

NAME = "network"
TIER = Tier.NODE
PAYLOAD = "node"

CAUSES = {
    "A name": When(
        r"its name leads|has no address|which has",
        ("ssh {node} 'getent ahosts {node}; ip -brief address'",),
    ),
    "Nothing to compare with": When(r"no other node answered", ("sinfo --Node --long",)),
    "A packet": When(r"packets of", ("ssh {node} ip link",)),
}

FEWEST_NODES = 2
NEXT = 8  # nodes after each one whose names it is asked for

_THRESHOLD = Threshold(
    "=", 0, "nodes", "defined", "every name leads to its node, with whole packets"
)


def others(name: str, nodes: Sequence[str]) -> list[str]:
    """Whose names a node is asked for: every name is asked of several, at a cost that is even."""
    place = nodes.index(name)
    ring = [*nodes[place + 1 :], *nodes[:place]][:NEXT]
    return list(dict.fromkeys([*ring, *(first for first in nodes[:1] if first != name)]))


@dataclass(frozen=True, slots=True)
class _Way:
    """From one node to another; `addresses` of the name, and whether packets came."""

    source: str
    target: str
    addresses: frozenset[str]
    error: str
    mtu: int
    small: bool
    large: bool


@dataclass(frozen=True, slots=True)
class _Node:
    job: Job
    document: Document
    addresses: frozenset[str]
    ways: tuple[_Way, ...]


@dataclass(frozen=True, slots=True)
class _Problem:
    """`own` is false where it is not known which end of a way is at fault."""

    text: str
    target: str
    own: bool = True


def compare(members: Sequence[ComparedNode]) -> list[Result]:
    results, nodes = [], {}
    for member in members:
        if member.reply is None:
            continue
        try:
            node = _node(member.job, read(member.job, member.reply))
            nodes[node.job.hosts[0]] = node
        except Unusable as unusable:
            results.append(unusable_result(NAME, member.job, member.reply, unusable))
    # What is known of a node that did not answer is told by the checks that did not hear it.
    ways = [way for node in nodes.values() for way in node.ways if way.target in nodes]
    problems = [*_of_names(ways, nodes), *_of_packets(ways)]
    for name, node in nodes.items():
        judged = [way for way in ways if way.source == name]
        results.append(_result(node, judged, [problem for of, problem in problems if of == name]))
    return results


def _node(job: Job, document: Document) -> _Node:
    network = document.measured.inner("network")
    name, asked = job.hosts[0], job.config["other_nodes"]
    assert isinstance(asked, list)  # the plan made it
    ways = tuple(_way(name, fields) for fields in network.items("ways"))
    if [way.target for way in ways] != asked:
        raise Unusable(f"the names of {len(ways)} nodes were tried, not those of {compress(asked)}")
    addresses = frozenset(network.text("addresses").split())
    if not addresses:
        raise Unusable("the node has no address but that of its loopback")
    return _Node(job, document, addresses, ways)


def _way(source: str, fields: Fields) -> _Way:
    addresses = frozenset(fields.text("addresses").split())
    error = fields.maybe_text("error") or ""
    if bool(addresses) == bool(error):
        raise Unusable("a name has either addresses or a reason why there are none")
    small, large = fields.flag("small"), fields.flag("large")
    if large and not small:
        raise Unusable("a large packet came where no small one did")
    target, mtu = fields.text("name"), fields.whole("mtu")
    return _Way(source, target, addresses, error, mtu, small, large)


def _of_names(ways: Iterable[_Way], nodes: dict[str, _Node]) -> Iterator[tuple[str, _Problem]]:
    """A name that is wrong on all of several nodes is its node's fault, or the DNS's."""
    by_target: dict[str, list[_Way]] = {}
    for way in ways:
        by_target.setdefault(way.target, []).append(way)
    for target, asked in by_target.items():
        has = nodes[target].addresses
        wrong = [way for way in asked if not way.addresses & has]
        if len(wrong) == len(asked) > 1:
            where = _words(wrong[0].addresses) or f"nowhere ({wrong[0].error})"
            text = f"its name leads {len(wrong)} nodes to {where}; it has {_words(has)}"
            yield target, _Problem(text, target)
            continue
        for way in wrong:
            what = (
                f"has {_words(way.addresses)}" if way.addresses else f"has no address ({way.error})"
            )
            text = f"it {what} for {target}, which has {_words(has)}"
            yield way.source, _Problem(text, target)


def _of_packets(ways: Iterable[_Way]) -> Iterator[tuple[str, _Problem]]:
    """A node that loses large packets with all others, at least two, is at fault for them."""
    tried: dict[str, set[str]] = {}
    lost: dict[str, set[str]] = {}
    mtus: dict[frozenset[str], int] = {}
    for way in ways:
        if not way.small:
            continue
        for one, other in ((way.source, way.target), (way.target, way.source)):
            tried.setdefault(one, set()).add(other)
            if not way.large:
                lost.setdefault(one, set()).add(other)
        if not way.large:
            mtus[frozenset((way.source, way.target))] = way.mtu
    at_fault = {name for name, those in lost.items() if len(those) > 1 and those == tried[name]}
    for name, those in lost.items():
        for other in sorted(those):
            if other in at_fault and name not in at_fault:
                continue
            mtu = mtus[frozenset((name, other))]
            ends = " and ".join(sorted((name, other)))
            text = f"packets of {mtu} bytes are lost between {ends}, small ones arrive"
            yield name, _Problem(text, other, name in at_fault and other not in at_fault)


def _words(addresses: Iterable[str]) -> str:
    # Link-local ones lead nowhere by themselves.
    return " and ".join(sorted(a for a in addresses if not a.startswith("fe80:")))


def _result(node: _Node, ways: Sequence[_Way], problems: Sequence[_Problem]) -> Result:
    wrong = {problem.target for problem in problems}
    verdict, message = _THRESHOLD.judge(len(wrong)), ""
    if problems:
        more = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        message = printable(problems[0].text, 250) + more
    elif not ways:
        verdict, message = Verdict.INCONCLUSIVE, "no other node answered"
    elif not any(way.small for way in ways):
        message = "only names were judged: no node answered a packet"
    own = not problems or any(problem.own for problem in problems)
    return Result(
        NAME,
        TIER,
        node.job.subject,
        verdict,
        message,
        Metric("not reached", len(wrong), "nodes"),
        _THRESHOLD,
        (Metric("tried", len(ways), "nodes"),),
        node.document.proof,
        None if own else (),
    )
