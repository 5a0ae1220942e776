"""What the checks share that hold nodes against each other, once all of them have answered.

Compared is only what is alike by declaration: nodes with as many GPUs of one model, and for what is
of the host with as many CPUs. A value that
most of them have is taken for the right one where most are three at least, and not all in one of
several nodes: of two that differ nobody knows which one is wrong. Then all are told, and none of
several nodes is accused.

A node that could not be compared, because the others did not answer, is inconclusive. The cost
grows with the number of answers and not with its square.

What to do       No majority: an update or a replacement is incomplete; find out which value is
                 meant, and give it to all nodes. Nothing to compare with: the other nodes of this
                 kind did not answer, or nothing tells the value; repair these nodes first, then
                 repeat the run with all of them.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cluster.declaration import Node
from cluster.hostlist import compress
from cluster.majority import most
from cluster.text import printable
from validation.checks.document import Document, Unusable, read, unusable_result
from validation.checks.health import Finding, summary
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

CAUSES = {
    "No majority": When(r"which is right is not known"),
    "Nothing to compare with": When(
        r"nothing to compare|no other node answered|does not tell", ("sinfo --Node --long",)
    ),
}

_SHOWN = 4  # values that are told where none is that of most


@dataclass(frozen=True, slots=True)
class ComparedNode:
    """A node that is to be compared: its job, and its answer, None where it got no job."""

    job: Job
    reply: Reply | None
    rules: Rules


@dataclass(frozen=True, slots=True)
class Fact:
    """Something of a node, of its GPU `index` or of its `part`, that has to be the same elsewhere.

    what    in words: "VBIOS"
    equals  which facts have to have one value: those with this and `what` in common
    """

    index: int | None
    what: str
    equals: tuple[Hashable, ...]
    value: str
    part: str = ""

    @property
    def key(self) -> Hashable:
        return (self.what, self.units, self.equals)

    @property
    def units(self) -> str:
        if self.part:
            return "parts"
        return "nodes" if self.index is None else "GPUs"

    def of(self, host: str) -> str:
        """Whose it is: "gpu3", "gpu3 GPU 1" or "gpu3 mlx5_0"."""
        gpu = "" if self.index is None else f"GPU {self.index}"
        return " ".join(word for word in (host, gpu, self.part) if word)


@dataclass(frozen=True, slots=True)
class Facts:
    """What an answer says; `lacking` is what it should have said and did not."""

    facts: tuple[Fact, ...]
    lacking: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()


Said = TypeVar("Said")


def alike_gpus(node: Node) -> Hashable:
    """What nodes have in common whose GPUs are compared: as many of one model."""
    return node.gpus


def alike_host(node: Node) -> Hashable:
    """What nodes have in common whose hosts are compared."""
    return (node.gpus, node.cpus)


@dataclass(frozen=True, slots=True)
class Kind:
    """So many nodes that are alike by declaration.

    `missing` names those of which nothing is known: the end of a sentence, or nothing.
    """

    count: int
    missing: str


def of_each_kind(
    check: str,
    all_members: Iterable[ComparedNode],
    understand: Callable[[Job, Document], Said],
    judge: Callable[[Kind, Sequence[tuple[Job, Document, Said]]], Iterable[Result]],
    alike: Callable[[Node], Hashable] = alike_gpus,
) -> list[Result]:
    """The results of all nodes that got a job: those that can be compared, kind by kind.

    `understand` raises Unusable for an answer that says nothing; that is the node's result then.
    """
    kinds: dict[Hashable, list[ComparedNode]] = {}
    for member in all_members:
        kinds.setdefault(alike(member.job.nodes[0]), []).append(member)
    results = []
    for members in kinds.values():
        answers = []
        for member in members:
            if member.reply is None:
                continue
            try:
                document = read(member.job, member.reply)
                answers.append((member.job, document, understand(member.job, document)))
            except Unusable as unusable:
                results.append(unusable_result(check, member.job, member.reply, unusable))
        nodes = [member.job.hosts[0] for member in members]
        spoke = {job.hosts[0] for job, _, _ in answers}
        silent = [name for name in nodes if name not in spoke]
        missing = f"; nothing is known of {compress(silent)}" if silent else ""
        results += judge(Kind(len(nodes), missing), answers)
    return results


def all_equal(
    check: str,
    threshold: Threshold,
    all_members: Iterable[ComparedNode],
    understand: Callable[[Job, Document], Facts],
    alike: Callable[[Node], Hashable] = alike_gpus,
) -> list[Result]:
    """Holds the facts of all nodes against each other; see Fact for which have to be equal."""

    def judge(kind: Kind, answers: Sequence[tuple[Job, Document, Facts]]) -> Iterable[Result]:
        equals: dict[Hashable, list[tuple[str, Fact]]] = {}
        for job, _, facts in answers:
            for fact in facts.facts:
                equals.setdefault(fact.key, []).append((job.hosts[0], fact))
        unlike: dict[str, dict[Finding, bool]] = {job.hosts[0]: {} for job, _, _ in answers}
        for members in equals.values():
            for host, finding, own in _unlike(members):
                unlike[host][finding] = own
        for job, document, facts in answers:
            alone = [fact for fact in facts.facts if len(equals[fact.key]) == 1]
            findings = unlike[job.hosts[0]]
            verdict, message = Verdict.PASS, ""
            several = kind.count > 1
            if findings:
                verdict, message = Verdict.FAIL, summary(findings)
            elif several and len(answers) == 1:
                verdict, message = Verdict.INCONCLUSIVE, "no other node answered" + kind.missing
            elif facts.lacking or len(alone) == len(facts.facts) or (several and alone):
                verdict = Verdict.INCONCLUSIVE
                message = _not_compared(facts.lacking, alone) + kind.missing
            yield Result(
                check,
                Tier.NODE,
                job.subject,
                verdict,
                printable(message, 300),
                Metric("unlike", len(findings), "values"),
                threshold,
                facts.metrics,
                document.proof,
                None if any(findings.values()) else (),
            )

    return of_each_kind(check, all_members, understand, judge, alike)


def _unlike(members: Sequence[tuple[str, Fact]]) -> Iterator[tuple[str, Finding, bool]]:
    """Whose value is another than it should be, and whether it is that node's own fault."""
    values = [fact.value for _, fact in members]
    if len(set(values)) == 1:
        return
    common = most(values)
    hosts = dict.fromkeys(host for host, _ in members)
    backed = {host for host, fact in members if fact.value == common}
    if common is None or len(backed) < min(2, len(hosts)):  # GPUs of one node are one opinion
        finding = Finding(Verdict.FAIL, _different(members))
        for host in hosts:
            yield host, finding, len(hosts) == 1
        return
    count = values.count(common)
    for host, fact in members:
        if fact.value != common:
            most_have = f"{count} of {len(values)} {fact.units} have {common}"
            text = f"{fact.part and f'{fact.part}: '}{fact.what} {fact.value}, {most_have}"
            yield host, Finding(Verdict.FAIL, text, fact.index), True


def _different(members: Sequence[tuple[str, Fact]]) -> str:
    """All values and who has them, where no value is that of most."""
    holders: dict[str, dict[str, None]] = {}
    for host, fact in members:
        holders.setdefault(fact.value, {})[fact.of(host)] = None
    parts = []
    for value, those in list(holders.items())[:_SHOWN]:
        more = f" and {len(those) - _SHOWN} more" if len(those) > _SHOWN else ""
        parts.append(f"{value} on {', '.join(list(those)[:_SHOWN])}{more}")
    if len(holders) > _SHOWN:
        parts.append(f"{len(holders) - _SHOWN} other values")
    return f"{members[0][1].what} differs, and which is right is not known: {'; '.join(parts)}"


def _not_compared(lacking: Sequence[str], alone: Sequence[Fact]) -> str:
    if lacking:
        return "; ".join(lacking[:_SHOWN])
    names = [fact.what if fact.index is None else f"GPU {fact.index} {fact.what}" for fact in alone]
    shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    return f"there is nothing to compare with: {shown}" if names else "there is nothing to compare"
