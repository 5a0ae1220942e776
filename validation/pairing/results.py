"""What pairs of nodes measured, held against each other, and what follows for each node.

Pure: rounds runs the pairs, validation.localise chooses them and draws the conclusion.
"""

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from cluster.hostlist import compress
from validation.checks import pairs
from validation.localise import Findings, Narrowed, Seen, Topology, conclude
from validation.localise import by_rail as rails_of
from validation.model import Metric, Result, Subject, Threshold, Tier, Verdict


@dataclass(frozen=True, slots=True)
class Measured:
    """A pair of one round, and its own answer's verdict."""

    nodes: tuple[str, ...]
    round: int
    result: Result

    @property
    def busbw_gbs(self) -> float | None:
        """None where no speed was judged: nothing came back, or what came back was wrong."""
        value = self.result.value
        return float(value.value) if value is not None and value.unit == "GB/s" else None


def beside_others(share: Threshold, typical: float) -> Threshold:
    """What a pair must reach where the faster half of the pairs reaches `typical` GB/s.

    `share` says which part of that, see thresholds/common.yml.
    """
    part = float(share.value)
    source = f"{part:g} of the {typical:.4g} GB/s of the faster half of the pairs; {share.source}"
    return replace(share, value=round(part * typical, 4), unit="GB/s", source=source)


def reference(measured: Sequence[Measured]) -> float | None:
    """The median speed of the faster half: of two pairs the faster one's. None of fewer than two.

    Up to half of the pairs may be bad without moving it.
    """
    speeds = sorted(
        (speed for item in measured if (speed := _sound(item)) is not None), reverse=True
    )
    if len(speeds) < 2:
        return None
    return statistics.median(speeds[: (len(speeds) + 1) // 2])


def _sound(item: Measured) -> float | None:
    return None if item.result.verdict is Verdict.FAIL else item.busbw_gbs


def seen(
    measured: Sequence[Measured], share: Threshold, typical: float | None = None
) -> list[Seen]:
    """Which pairs are good, which are not, and of which nothing is known.

    Of a pair that was measured again the last time counts. `typical` is the speed that they are
    held against where others than these pairs tell it.
    """
    last = {frozenset(item.nodes): item for item in measured}.values()
    typical = typical or reference([*last])
    return [Seen(item.nodes, _good(item, share, typical), item.round) for item in last]


def to_confirm(
    findings: Findings, measured: Sequence[Measured], chosen: Sequence[tuple[str, str]]
) -> tuple[tuple[str, str], ...]:
    """Pairs that failed once although both nodes are good: a link is named when it fails again.

    Nodes and groups of them need no more: they failed with several partners. `chosen` are the pairs
    of the round that these join, as far as their nodes are free.
    """
    times = Counter(frozenset(item.nodes) for item in measured)
    used = {name for pair in chosen for name in pair}
    joining = []
    for link in findings.links:
        if times[frozenset(link.nodes)] == 1 and used.isdisjoint(link.nodes):
            joining.append(link.nodes)
            used.update(link.nodes)
    return tuple(joining)


def _good(item: Measured, share: Threshold, typical: float | None) -> bool | None:
    if item.result.verdict is Verdict.FAIL:
        # What is the fault of no node of the pair says nothing about them.
        return None if item.result.blamed == () else False
    if (speed := item.busbw_gbs) is None:
        return None
    return typical is None or beside_others(share, typical).judge(speed) is not Verdict.FAIL


def untried(names: Sequence[str], measured: Sequence[Measured]) -> tuple[tuple[str, str], ...]:
    """Disjoint pairs of these nodes that were not measured yet, as many as there are."""
    tried = {frozenset(item.nodes) for item in measured}
    used: set[str] = set()
    chosen: list[tuple[str, str]] = []
    for one, other in combinations(names, 2):
        if not {one, other} & used and frozenset((one, other)) not in tried:
            chosen.append((one, other))
            used |= {one, other}
    return tuple(chosen)


@dataclass(frozen=True, slots=True)
class Found:
    """What the pairs of a group came to.

    results   one for each node, then one for each link and group of nodes that is at fault, and
              for nodes that cannot be told apart
    narrowed  the smallest groups that fail, where any two nodes are good together
    """

    findings: Findings
    results: tuple[Result, ...]
    narrowed: tuple[Narrowed, ...] = ()

    def of_groups(self) -> tuple[Result, ...]:
        """A failure for each group that fails although any two of its nodes are good."""
        return tuple(
            Result(
                pairs.NAME,
                Tier.CLUSTER,
                Subject(compress(item.nodes), item.nodes),
                Verdict.FAIL,
                item.sentence.rstrip("."),
                Metric("nodes that fail together", len(item.nodes), "nodes"),
                Threshold("=", 0, "nodes", "defined", "all nodes are good together"),
                blamed=(),
            )
            for item in self.narrowed
        )

    def set_aside(self) -> frozenset[str]:
        """Good nodes that the others can do without: the second of each bad link, and what is
        behind a bad switch, where that is the smaller part. With them a job of all nodes would
        only fail for what is known.
        """
        behind = [group.nodes for group in self.findings.groups]
        everyone = {
            result.subject.name for result in self.results if len(result.subject.nodes) == 1
        }
        few = [name for nodes in behind if 2 * len(nodes) < len(everyone) for name in nodes]
        return frozenset([*few, *(link.nodes[1] for link in self.findings.links)])

    def named(self, result: Result) -> Result:
        """A failure of all nodes together, and what their pairs say of it."""
        among = set(result.subject.nodes)
        nodes = tuple(node.name for node in self.findings.nodes if node.name in among)
        sentences = [sentence.rstrip(".") for sentence in self.findings.sentences]
        sentences += [item.sentence.rstrip(".") for item in self.narrowed]
        told = "; ".join(sentences[:_TOLD]) or "any two of them are good together"
        if len(sentences) > _TOLD:
            told += f"; and {len(sentences) - _TOLD} more"
        known = nodes or self.findings.links or self.findings.groups
        return replace(
            result,
            message=f"{result.message}; pairs of nodes: {told}",
            blamed=nodes if known else None,
        )


_TOLD = 3  # findings in one sentence


def found(
    names: Sequence[str], topology: Topology, measured: Sequence[Measured], share: Threshold
) -> Found:
    """What the pairs prove of these nodes; `measured` may have others that helped."""
    findings = conclude(names, topology, seen(measured, share))
    nodes = tuple(_of_node(name, findings, measured, share) for name in names)
    return Found(findings, (*nodes, *_of_several(findings, measured, share)))


def _of_node(
    name: str, findings: Findings, measured: Sequence[Measured], share: Threshold
) -> Result:
    typical = reference(measured)
    mine = [item for item in measured if name in item.nodes]
    good = [item for item in mine if _good(item, share, typical)]
    metrics = tuple(
        Metric(f"busbw to {_partner(item, name)}", round(item.busbw_gbs, 4), "GB/s")
        for item in mine
        if item.busbw_gbs is not None
    )
    subject = Subject.node(name)
    if fault := next((node for node in findings.nodes if node.name == name), None):
        message = f"{fault.sentence.rstrip('.')}; {_why(mine, share, typical)}"
        bad = _count(mine, share, typical)
        return Result(pairs.NAME, Tier.CLUSTER, subject, Verdict.FAIL, message, *bad, metrics)
    if not good:
        doubt = next((item for item in findings.undecided if name in item.nodes), None)
        message = doubt.reason.rstrip(".") if doubt else "it ran well with no other node"
        if why := _why(mine, share, typical):
            message += f"; {why}"
        verdict = Verdict.INCONCLUSIVE
        what = (subject, verdict, message, None, None, metrics)
        return Result(pairs.NAME, Tier.CLUSTER, *what, blamed=())
    best = max(good, key=lambda item: item.busbw_gbs or 0.0)
    result = replace(best.result, subject=subject, metrics=metrics)
    if result.verdict.green or typical is None or best.busbw_gbs is None:
        return result
    threshold = beside_others(share, typical)
    return replace(
        result, verdict=Verdict.PASS, message="", threshold=threshold, blamed=None, unjudged=()
    )


def _of_several(
    findings: Findings, measured: Sequence[Measured], share: Threshold
) -> Iterator[Result]:
    typical = reference(measured)

    def result(
        name: str, nodes: tuple[str, ...], message: str, blamed: tuple[str, ...] | None
    ) -> Result:
        among = [item for item in measured if set(item.nodes) <= set(nodes)]
        bad = among or [item for item in measured if set(item.nodes) & set(nodes)]
        if why := _why(bad, share, typical):
            message = f"{message}; {why}"
        what = (Subject(name, nodes), Verdict.FAIL, message, *_count(bad, share, typical))
        return Result(pairs.NAME, Tier.CLUSTER, *what, blamed=blamed)

    for group in findings.groups:
        yield result(", ".join(group.labels), group.nodes, group.sentence.rstrip("."), ())
    for link in findings.links:
        yield result("-".join(link.nodes), link.nodes, link.sentence.rstrip("."), ())
    for doubt in findings.undecided:
        failed = [item for item in measured if _good(item, share, typical) is False]
        if any(set(item.nodes) & set(doubt.nodes) for item in failed):
            yield result(compress(doubt.nodes), doubt.nodes, doubt.reason.rstrip("."), None)


def of_rails(
    names: Sequence[str],
    topology: Topology,
    by_rail: Mapping[str, Sequence[Measured]],
    share: Threshold,
) -> tuple[Result, ...]:
    """What is bad of several rails, by the pairs over each. Nothing where all is well.

    All rails are held against the same speed: one that is slow for every node is slow.
    """
    everything = [item for measured in by_rail.values() for item in measured]
    typical = reference(everything)
    judged = {rail: seen(measured, share, typical) for rail, measured in by_rail.items()}
    found = rails_of(names, topology, judged)

    def result(
        subject: Subject, sentence: str, items: Sequence[Measured], blamed: tuple[str, ...] | None
    ) -> Result:
        bad = _count(items, share, typical)
        message = "; ".join(filter(None, [sentence.rstrip("."), _why(items, share, typical)]))
        verdict = Verdict.FAIL if bad[0].value else Verdict.INCONCLUSIVE
        what = (subject, verdict, message, *bad)
        return Result(pairs.NAME, Tier.CLUSTER, *what, blamed=blamed)

    results = [
        result(
            Subject.node(node.name),
            node.sentence,
            [item for item in everything if node.name in item.nodes],
            None,
        )
        for node in found.nodes
    ]
    results += [
        result(
            Subject.node(hca.node),
            hca.sentence,
            [item for item in by_rail[hca.rail] if hca.node in item.nodes],
            None,
        )
        for hca in found.hcas
    ]
    told = {rail: f"The rail {rail} is at fault: no pair ran well over it" for rail in found.lost}
    told |= {
        rail: f"Over {rail}: {' '.join(findings.sentences)}"
        for rail, findings in found.rest.items()
    }
    results += [
        result(Subject(f"rail {rail}", tuple(names)), sentence, by_rail[rail], ())
        for rail, sentence in told.items()
    ]
    return tuple(results)


def _partner(item: Measured, name: str) -> str:
    return next(other for other in item.nodes if other != name)


def _why(items: Sequence[Measured], share: Threshold, typical: float | None) -> str:
    """What the first pair that was bad says of itself."""
    for item in items:
        if item.result.verdict is Verdict.FAIL:
            return f"{' and '.join(item.nodes)}: {item.result.message}"
        if _good(item, share, typical) is False and typical is not None:
            limit = beside_others(share, typical)
            return (
                f"{' and '.join(item.nodes)}: {item.busbw_gbs:.4g} GB/s, at least {limit.value} "
                "expected by what other pairs reach"
            )
    return ""


def _count(
    items: Sequence[Measured], share: Threshold, typical: float | None
) -> tuple[Metric, Threshold]:
    bad = sum(_good(item, share, typical) is False for item in items)
    source = "every pair of good nodes is good"
    return Metric("bad pairs", bad, "pairs"), Threshold("=", 0, "pairs", "defined", source)
