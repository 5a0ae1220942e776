"""Rounds of pairs of nodes, until what is bad has a name; then larger groups, then each rail.

Two nodes of a thousand are paired once at most, so that most links are in no pair. Among few nodes
every link is tried. Among many, groups of 4, 8, 16 … nodes show what pairs did not, up to all of
them, and a group that fails is halved until it is as small as what fails.

A rail is one network card of every node and what is between these: a card that NCCL says it uses
carries all there is while NCCL_IB_HCA names no other. So a slow card is told from a slow node.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from validation import localise
from validation.checks import transport
from validation.localise import Narrowed, Seen, Topology
from validation.model import Job, Reply, Result, Threshold
from validation.pairing import results
from validation.pairing.results import Found, Measured
from validation.plan import MOST_ROUNDS, Group

EVERY_LINK = 6  # nodes up to which each pair is tried: five rounds of three pairs

Take = Callable[[Job, Reply], None]


@dataclass(frozen=True, slots=True)
class Rounds:
    """What pairs are made of, and how they are run.

    names     of the group's nodes that are looked at
    referees  names of idle nodes that may be paired with them
    share     of what other pairs reach, see thresholds/common.yml
    run       runs lanes of jobs after telling what they are, and hands over every reply
    judge     a pair's own answer, and whether it ran over one of several rails
    """

    group: Group
    names: tuple[str, ...]
    referees: tuple[str, ...]
    topology: Topology
    share: Threshold
    run: Callable[[str, Sequence[Sequence[Job]], Take], None]
    judge: Callable[[Job, Reply, bool], Result]


def of_nodes(rounds: Rounds, *, groups: bool) -> tuple[Found, tuple[str, ...]]:
    """What the nodes' pairs come to, and the rails that NCCL used between them.

    groups  whether larger groups are run too where pairs find nothing; otherwise one of all nodes
            is known to have failed
    """
    measured: list[Measured] = []
    rails: dict[str, None] = {}

    def take(number: int) -> Take:
        def judge(job: Job, reply: Reply) -> None:
            measured.append(Measured(job.hosts, number, rounds.judge(job, reply, False)))
            rails.update(dict.fromkeys(transport.cards(job, reply)))

        return judge

    _until_named(rounds, measured, take, None)
    found = results.found(rounds.names, rounds.topology, measured, rounds.share)
    if not found.findings.clear or len(rounds.names) <= EVERY_LINK:
        return found, tuple(rails)
    narrowed = _groups(rounds, grow=groups)
    for small in (item.nodes for item in narrowed if len(item.nodes) <= EVERY_LINK):
        _until_named(replace(rounds, names=small), measured, take, None)
    found = results.found(rounds.names, rounds.topology, measured, rounds.share)
    named = [set(link.nodes) for link in found.findings.links]
    left = (item for item in narrowed if not any(link <= set(item.nodes) for link in named))
    return replace(found, narrowed=tuple(left)), tuple(rails)


def _groups(rounds: Rounds, *, grow: bool) -> tuple[Narrowed, ...]:
    """The smallest groups that fail, of nodes of which any two are good."""
    failing: list[tuple[str, ...]] = [] if grow else [rounds.names]
    for step in localise.ramp(rounds.names, rounds.topology) if grow else ():
        if len(step[0]) > 2:
            failing += _failing(rounds, step)
        if failing:
            break
    return tuple(item for group in failing for item in _narrowed(rounds, group))


def _narrowed(rounds: Rounds, group: tuple[str, ...]) -> list[Narrowed]:
    """The smallest groups of one that fail; what is between two halves is looked for crosswise."""
    seen = [Seen(group, False, 0)]
    halves: tuple[tuple[str, ...], ...]
    while True:
        halves, found = localise.narrow(group, rounds.topology, seen)
        if not halves:
            break
        bad = _failing(rounds, halves)
        seen += [Seen(half, half not in bad, 0) for half in halves]
    smallest: list[Narrowed] = []
    for item in found:
        crossing: list[tuple[str, ...]] = []
        if item.halves_good and len(item.nodes) > EVERY_LINK:
            for pairs_of_quarters in _crosswise(item.nodes):
                crossing += _failing(rounds, pairs_of_quarters)
        smallest += [less for each in crossing for less in _narrowed(rounds, each)] or [item]
    return smallest


def _crosswise(nodes: tuple[str, ...]) -> list[tuple[tuple[str, ...], ...]]:
    """Each quarter of the first half with each of the second, in two steps of disjoint groups."""
    middle = len(nodes) // 2
    first, second = nodes[:middle], nodes[middle:]
    a, b = first[: middle // 2], first[middle // 2 :]
    c, d = second[: len(second) // 2], second[len(second) // 2 :]
    return [(a + c, b + d), (a + d, b + c)]


def _failing(rounds: Rounds, groups: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Those of disjoint groups of nodes that fail, or are slow beside the others."""
    measured: list[Measured] = []

    def take(job: Job, reply: Reply) -> None:
        measured.append(Measured(job.hosts, 0, rounds.judge(job, reply, False)))

    nodes = {node.name: node for node in rounds.group.nodes}
    lanes = [[rounds.group.job_of(0, [nodes[name] for name in group])] for group in groups]
    rounds.run(f"groups of {len(groups[0])} nodes of {rounds.group.name}", lanes, take)
    ok = {one.nodes: one.ok for one in results.seen(measured, rounds.share)}
    return [group for group in groups if ok.get(group) is False]


def of_rails(rounds: Rounds, rails: Sequence[str]) -> tuple[Result, ...]:
    """What is bad of each of several rails; `names` has no node that is bad as a whole."""
    if len(rails) < 2 or len(rounds.names) < 2:
        return ()
    by_rail: dict[str, list[Measured]] = {rail: [] for rail in rails}
    for rail, measured in by_rail.items():

        def take(number: int, measured: list[Measured] = measured) -> Take:
            def judge(job: Job, reply: Reply) -> None:
                measured.append(Measured(job.hosts, number, rounds.judge(job, reply, True)))

            return judge

        _until_named(rounds, measured, take, rail)
    return results.of_rails(rounds.names, rounds.topology, by_rail, rounds.share)


def _until_named(
    rounds: Rounds, measured: list[Measured], take: Callable[[int], Take], rail: str | None
) -> None:
    group = rounds.group
    nodes = {node.name: node for node in (*group.nodes, *group.referees)}
    what = f"pairs of {group.name}" + (f" over {rail}" if rail else "")
    few = rail is None and len(rounds.names) <= EVERY_LINK
    most = MOST_ROUNDS + 1 + (EVERY_LINK if few else 0)  # the last one confirms
    for number in range(1, most + 1):
        seen = results.seen(measured, rounds.share)
        chosen = localise.next_round(rounds.names, rounds.topology, seen, rounds.referees)
        findings = localise.conclude(rounds.names, rounds.topology, seen)
        chosen += results.to_confirm(findings, measured, chosen)
        if not chosen and few:
            chosen = results.untried(rounds.names, measured)
        if not chosen:
            return
        lanes = [[group.job_of(number, [nodes[name] for name in pair], rail)] for pair in chosen]
        rounds.run(f"{what}, round {number}", lanes, take(number))
