"""What the checks of ranks that work together share: their results, and words for ranks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from validation.checks import boards, nccl_notes, transport
from validation.checks.document import Document, Fields, Unusable
from validation.checks.document import answer as answered
from validation.model import Job, Metric, Rank, Reply, Result, Sample, Threshold, Verdict
from validation.thresholds import Rules


@dataclass(frozen=True, slots=True)
class Judged:
    """What a check found in an answer; see Result."""

    verdict: Verdict
    message: str
    value: Metric
    threshold: Threshold | None
    blamed: tuple[str, ...] | None = None
    metrics: tuple[Metric, ...] = ()
    unjudged: tuple[Sample, ...] = ()


def answer(
    check: str,
    job: Job,
    reply: Reply,
    judge: Callable[[Document], Judged],
    watched: Rules | None = None,
) -> Result:
    """What a check found, or the worse that NCCL's own logs speak for.

    watched   by which rules boards are judged, where NVML was asked of them meanwhile
    """

    def held(document: Document) -> Result:
        found = judge(document)
        result = Result(
            check,
            job.tier,
            job.subject,
            found.verdict,
            found.message,
            found.value,
            found.threshold,
            found.metrics,
            document.proof,
            found.blamed,
            found.unjudged,
        )
        result = transport.held_against(result, job, document, nccl_notes.read(reply.stderr))
        return result if watched is None else boards.held_against(result, job, document, watched)

    return answered(check, job, reply, held)


def of_each(
    document: Document, rows: Sequence[Fields], order: Sequence[int]
) -> Iterator[tuple[Rank, Fields]]:
    """The ranks and their figures. Raises Unusable for figures of other ranks than asked for."""
    numbers = [row.whole("rank") for row in rows]
    if numbers != list(order):
        all_of_them = list(order) == list(range(len(order)))
        asked = f"0 to {len(order) - 1}" if all_of_them else list(order)[:16]
        raise Unusable(f"figures of the ranks {numbers[:16]}, asked for {asked}")
    took_part = {rank.rank: rank for rank in document.proof.ranks}
    return ((took_part[number], row) for number, row in zip(numbers, rows, strict=True))


def named(ranks: Sequence[Rank], most: int = 4) -> str:
    names = [f"rank {rank.rank} on {rank.host}" for rank in ranks[:most]]
    return " and ".join(names) + (f" and {len(ranks) - most} more" if len(ranks) > most else "")


def hosts(ranks: Sequence[Rank]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rank.host for rank in ranks))


def expected(verdict: Verdict, value: Metric, threshold: Threshold) -> str:
    """Why a figure that has to reach a threshold is not green."""
    if verdict is Verdict.PASS:
        return ""
    figure = f"{value.name} is {value.value} {value.unit}".rstrip()
    if verdict is Verdict.WARN:
        return f"{figure}, close to the threshold; healthy: ≥ {threshold.warn}"
    return f"{figure}, at least {threshold.value} expected"
