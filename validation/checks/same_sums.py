"""Collectives give the same bits in every call, on every rank and in every round.

What it checks   all_reduce, all_gather and broadcast of seeded random numbers are repeated over all
                 nodes. Every call gives the same bits as the first one, and all ranks have the same
                 result. In a burn-in, so do all rounds over the same nodes. NCCL adds along a ring.
Why it matters   Numbers that change on their way, in a network card or in a GPU's memory, change a
                 training without an error.
What to do       A node that differs: take the named node out of service, test its memory and GPUs,
                 and check the error counters of its network cards. No node differs: all ranks have
                 the same wrong numbers, so repeat the run with half of the nodes until the cause is
                 among few.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster.text import printable
from validation.checks import commands
from validation.checks.document import Document, Unusable, answer, read
from validation.model import Job, Metric, Rank, Reply, Result, Threshold, Tier, Verdict, When
from validation.payloads.same_sums import OPERATIONS
from validation.thresholds import Rules

NAME = "same_sums"
TIER = Tier.CLUSTER
PAYLOAD = "same_sums"

CAUSES = {
    "A node that differs": When(r"otherwise on", (commands.KERNEL, commands.COUNTERS)),
    "No node differs": When(r"came out in \d+ ways(?!, otherwise)", (commands.COUNTERS,)),
}

_SAME = Threshold("=", 1, "results", "defined", "the same numbers are added in the same order")
_HASH = re.compile(r"[0-9a-f]{16}")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        ranks = document.proof.ranks
        texts: list[str] = []
        blamed: dict[str, None] = {}
        most = 1
        known = True
        for operation, found in results(job, document).items():
            counted = Counter(digest for own in found for digest in own)
            most = max(most, len(counted))
            if len(counted) == 1:
                continue
            others = _others(found, ranks)
            known = known and bool(others)
            blamed |= dict.fromkeys(others)
            texts.append(f"{operation} came out in {len(counted)} ways{_named(others)}")
        return Result(
            NAME,
            TIER,
            job.subject,
            Verdict.FAIL if texts else Verdict.PASS,
            printable("; ".join(texts), 300),
            Metric("different results", most, "results"),
            _SAME,
            (),
            document.proof,
            tuple(blamed) if blamed and known else None,
        )

    return answer(NAME, job, reply, judge)


def results(job: Job, document: Document) -> dict[str, list[dict[str, int]]]:
    """Of each operation, the hashes of each rank and how often each came."""
    rows = document.measured.items("operations")
    names = [row.text("operation") for row in rows]
    if names != list(OPERATIONS):
        raise Unusable(f"repeated {names}, asked for {list(OPERATIONS)}")
    found = {}
    for name, row in zip(names, rows, strict=True):
        calls, hashes = row.whole("calls"), row.items("hashes")
        if len(hashes) != job.ranks:
            raise Unusable(f"{name}: results of {len(hashes)} of {job.ranks} ranks")
        counts = [{digest: own.whole(digest) for digest in own.values} for own in hashes]
        for own in counts:
            if calls < 2 or sum(own.values()) != calls or not all(map(_HASH.fullmatch, own)):
                raise Unusable(f"{name}: no hash of each of {calls} calls")
        found[name] = counts
    return found


def _others(found: Sequence[dict[str, int]], ranks: Sequence[Rank]) -> list[str]:
    """Nodes with ranks whose results are not those of most ranks; none where nobody knows."""
    counted = Counter(tuple(sorted(own)) for own in found)
    (common, count), *_ = counted.most_common(1)
    if 2 * count <= len(found) or len(common) != 1:
        return []
    hosts = [rank.host for rank, own in zip(ranks, found, strict=True) if [*own] != [*common]]
    return list(dict.fromkeys(hosts))


def _named(hosts: Sequence[str]) -> str:
    return f", otherwise on {', '.join(hosts)}" if hosts else ""


@dataclass(frozen=True, slots=True)
class Sums:
    """What came out over these nodes, in one round.

    same_as  what decides the order of adding, beside the nodes: versions and GPUs of the ranks
    hashes   of each operation, the different hashes of all ranks
    """

    group: str
    hosts: tuple[str, ...]
    same_as: str
    hashes: Mapping[str, tuple[str, ...]]


def sums(job: Job, reply: Reply) -> Sums | None:
    """Of one round; None where the answer is none, which its own result says."""
    try:
        document = read(job, reply)
        found = results(job, document)
    except Unusable:
        return None
    versions = {f"{rank.torch} {rank.nccl} {rank.gpu}" for rank in document.proof.ranks}
    hashes = {name: tuple(sorted({h for own in each for h in own})) for name, each in found.items()}
    return Sums(job.subject.name, job.hosts, ", ".join(sorted(versions)), hashes)


def over_rounds(rounds: Sequence[Sums]) -> dict[str, str]:
    """By group, which of its operations came out differently in different rounds."""
    seen: dict[tuple[str, tuple[str, ...], str], dict[str, set[str]]] = {}
    for item in rounds:
        own = seen.setdefault((item.group, item.hosts, item.same_as), {})
        for name, hashes in item.hashes.items():
            own.setdefault(name, set()).update(hashes)
    differing: dict[str, str] = {}
    for (group, _, _), operations in seen.items():
        for name, found in operations.items():
            if len(found) > 1:
                text = f"{name} came out in {len(found)} ways over the rounds"
                differing.setdefault(group, text)
    return differing
