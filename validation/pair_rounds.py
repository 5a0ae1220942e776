"""Rounds of pairs of nodes, until what is bad has a name; then the same for each rail.

A rail is one network card of every node and what is between these: a card that NCCL says it uses
carries all there is while NCCL_IB_HCA names no other. So a slow card is told from a slow node.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from validation import localise, pairing
from validation.checks import transport
from validation.localise import Topology
from validation.model import Job, Reply, Result, Threshold
from validation.pairing import Found, Measured
from validation.plan import MOST_ROUNDS, Group

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


def of_nodes(rounds: Rounds) -> tuple[Found, tuple[str, ...]]:
    """What the nodes' pairs come to, and the rails that NCCL used between them."""
    measured: list[Measured] = []
    rails: dict[str, None] = {}

    def take(number: int) -> Take:
        def judge(job: Job, reply: Reply) -> None:
            measured.append(Measured(job.hosts, number, rounds.judge(job, reply, False)))
            rails.update(dict.fromkeys(transport.cards(job, reply)))

        return judge

    _until_named(rounds, measured, take, None)
    return pairing.found(rounds.names, rounds.topology, measured, rounds.share), tuple(rails)


def of_rails(rounds: Rounds, rails: Sequence[str]) -> tuple[Result, ...]:
    """What is bad of each of several rails; `names` has no node that is bad as a whole."""
    if len(rails) < 2 or len(rounds.names) < 2:
        return ()
    results: list[Result] = []
    for rail in rails:
        measured: list[Measured] = []

        def take(number: int, measured: list[Measured] = measured) -> Take:
            def judge(job: Job, reply: Reply) -> None:
                measured.append(Measured(job.hosts, number, rounds.judge(job, reply, True)))

            return judge

        _until_named(rounds, measured, take, rail)
        found = pairing.found(rounds.names, rounds.topology, measured, rounds.share)
        results += [
            replace(result, message=f"{rail}: {result.message}")
            for result in found.results
            if not result.verdict.green
        ]
    return tuple(results)


def _until_named(
    rounds: Rounds, measured: list[Measured], take: Callable[[int], Take], rail: str | None
) -> None:
    group = rounds.group
    nodes = {node.name: node for node in (*group.nodes, *group.referees)}
    what = f"pairs of {group.name}" + (f" over {rail}" if rail else "")
    for number in range(1, MOST_ROUNDS + 2):  # the last one confirms
        seen = pairing.seen(measured, rounds.share)
        chosen = localise.next_round(rounds.names, rounds.topology, seen, rounds.referees)
        findings = localise.conclude(rounds.names, rounds.topology, seen)
        chosen += pairing.to_confirm(findings, measured, chosen)
        if not chosen:
            return
        lanes = [[group.job_of(number, [nodes[name] for name in pair], rail)] for pair in chosen]
        rounds.run(f"{what}, round {number}", lanes, take(number))
