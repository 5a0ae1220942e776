"""all_reduce gives the right sum on every rank, and is fast enough.

What it checks   The sum is right in every element of every call, at every size. Bus bandwidth at
                 the largest size reaches the threshold and does not exceed what hardware can do. No
                 size, and no single call, is far slower than the others let expect. Exactly the
                 requested ranks and nodes took part, with one version of torch and NCCL, over the
                 declared fabric (from NCCL's own log). Meanwhile NVML is asked of the boards: none
                 is held back by heat or power supply, and none counts new errors. With a single
                 rank, no speed is judged.
Why it matters   Data-parallel training waits for the slowest all_reduce. A wrong sum spoils the
                 training.
What to do       Too slow: a slow node or link delays all others. One size or one call too slow:
                 look for packets that are lost or sent again, and for what else ran on the nodes. A
                 wrong sum: take the named nodes out of service until memory and GPUs are tested.
                 Too fast: check the clocks of the nodes.

Bus bandwidth = bytes / time * 2(n-1)/n for n ranks, 1 GB = 1e9 bytes (nccl-tests,
doc/PERFORMANCE.md). It is computed here from the measured times; the payload's own figure must
agree with it.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from validation.checks import boards, commands, curve, transport
from validation.checks.document import Document, Fields, Unusable
from validation.checks.together import Judged, answer, expected, hosts, named
from validation.checks.transport import Paths
from validation.model import (
    Job,
    Metric,
    Rank,
    Reply,
    Result,
    Sample,
    Threshold,
    Tier,
    Verdict,
    When,
)
from validation.thresholds import Collective, CollectiveRule, Outliers, Rules

NAME = "all_reduce"
TIER = Tier.CLUSTER
PAYLOAD = "all_reduce"

CAUSES = {
    "Too slow": When(r"at least \S+ expected|close to the threshold", (commands.PACKETS,)),
    "One size or one call too slow": When(
        r"times what the other sizes|times the median", (commands.PACKETS,)
    ),
    "A wrong sum": When(r"elements of the sum", (commands.KERNEL,)),
    "Too fast": When(r"more than any link carries", (commands.CLOCK,)),
}
SHARED = (transport, boards)

_ELEMENT_BYTES = 4  # float32
_FUNCTION = "AllReduce"  # as NCCL's log has it


@dataclass(frozen=True, slots=True)
class Size:
    """What was measured with one buffer size."""

    bytes: int
    busbw_gbs: float
    wrong_by_rank: tuple[int, ...]
    calls_s: tuple[float, ...]
    work_s_by_rank: tuple[float, ...]

    @property
    def times(self) -> curve.Times:
        return curve.Times(size_name(self.bytes), self.bytes, self.calls_s)

    @property
    def metric(self) -> Metric:
        return Metric(f"busbw {size_name(self.bytes)}", round(self.busbw_gbs, 4), "GB/s")


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """GB/s on the busiest link of a ring; one rank has none."""
    return size / seconds / 1e9 * 2 * (ranks - 1) / ranks if ranks > 1 else 0.0


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    return of_sums(job, reply, rules, watched=rules)


def of_sums(job: Job, reply: Reply, rules: Rules, watched: Rules | None = None) -> Result:
    """What the sums of a job came to; `watched` as in `together.answer`."""

    def judge(document: Document) -> Judged:
        wanted = cast(Sequence[int], job.config["sizes_bytes"])
        rows = document.measured.items("sizes")
        measured = [row.whole("bytes") for row in rows]
        if measured != list(wanted):
            raise Unusable(f"measured sizes {measured}, asked for {list(wanted)}")
        sizes = [_read(row, job) for row in rows]
        paths = paths_of(job, document)
        found = _judged(job, rules, sizes, document, paths)
        metrics = tuple(size.metric for size in sizes)
        unjudged: tuple[Sample, ...] = ()
        if rule_of(job, rules, sizes[-1].bytes, paths) is None:
            unjudged = (sample(job, sizes[-1].bytes, sizes[-1].metric, paths),)
        return replace(found, metrics=metrics, unjudged=unjudged)

    return answer(NAME, job, reply, judge, watched=watched)


def _judged(
    job: Job, rules: Rules, sizes: Sequence[Size], document: Document, paths: Paths
) -> Judged:
    if wrong := next((size for size in sizes if any(size.wrong_by_rank)), None):
        message, blamed = _who_is_wrong(wrong, document.proof.ranks)
        return Judged(Verdict.FAIL, message, *_wrong(wrong), blamed)
    for size in sizes:
        rule = rule_of(job, rules, size.bytes, paths)
        added = in_switches(job, document, _FUNCTION, size.bytes)
        for found in too_fast(job, rules, size.metric, size.busbw_gbs, rule, in_switches=added):
            return found
    if job.ranks == 1:
        # Of one rank no link carries anything, so there is no speed to judge.
        return Judged(Verdict.PASS, "", *_wrong(sizes[-1]))
    return _speed(job, rules, sizes, document, paths)


def _speed(
    job: Job, rules: Rules, sizes: Sequence[Size], document: Document, paths: Paths
) -> Judged:
    limits = rules.common.outliers[job.backend or ""]
    largest = sizes[-1]
    rule = rule_of(job, rules, largest.bytes, paths)
    value = largest.metric
    threshold = None if rule is None else rule.threshold
    verdict = None if threshold is None else threshold.judge(largest.busbw_gbs)
    if threshold is not None and verdict is Verdict.FAIL:
        message = expected(verdict, value, threshold)
        message, blamed = who_is_slow(message, largest, document, limits)
        return Judged(verdict, message, value, threshold, blamed)
    if apart := curve.outliers([size.times for size in sizes], limits):
        message, blamed = who_is_slow(apart[0].sentence, largest, document, limits)
        return Judged(Verdict.FAIL, message, apart[0].value, apart[0].threshold, blamed)
    if threshold is None or verdict is None:
        message = nothing_to_judge_by(job, rules, value, paths)
        return Judged(Verdict.INCONCLUSIVE, message, value, None)
    return Judged(verdict, expected(verdict, value, threshold), value, threshold)


def _read(row: Fields, job: Job) -> Size:
    size = row.whole("bytes")
    if row.text("dtype") != job.config["dtype"]:
        raise Unusable(f"summed {row.text('dtype')}, {job.config['dtype']} was asked for")
    if row.whole("elements") * _ELEMENT_BYTES != size:
        raise Unusable(f"{row.whole('elements')} elements are not {size} bytes of float32")
    calls_s = read_calls(row, job, size_name(size))
    work_s = read_work(row, job)
    wrong = row.numbers("wrong_by_rank")
    if len(wrong) != job.ranks or any(count < 0 or count != int(count) for count in wrong):
        raise Unusable(f"wrong_by_rank has no count for each of {job.ranks} ranks: {wrong[:16]}")
    shortest, median, longest = (
        row.number(name) for name in ("time_s_min", "time_s_median", "time_s_max")
    )
    if not (_possible(shortest, job) and shortest <= median <= longest):
        raise Unusable(f"impossible times for {size_name(size)}: {shortest}, {median}, {longest} s")
    of_calls = (min(calls_s), statistics.median(calls_s), max(calls_s))
    if any(
        not math.isclose(claimed, actual)
        for claimed, actual in zip((shortest, median, longest), of_calls, strict=True)
    ):
        raise Unusable(
            f"the payload claims {shortest:.4g}, {median:.4g} and {longest:.4g} s for "
            f"{size_name(size)}, its calls give {', '.join(f'{item:.4g}' for item in of_calls)}"
        )
    bandwidth = bus_bandwidth(size, median, job.ranks)
    claimed = row.number("busbw_gbs")
    if not math.isclose(bandwidth, claimed, rel_tol=0.01, abs_tol=0.001):
        raise Unusable(
            f"the payload claims {claimed:.4g} GB/s for {size_name(size)}, its times give "
            f"{bandwidth:.4g}"
        )
    return Size(size, bandwidth, tuple(int(count) for count in wrong), calls_s, work_s)


def read_calls(row: Fields, job: Job, name: str) -> tuple[float, ...]:
    """Seconds of every call that was asked for, on the slowest rank; each one was checked."""
    asked = cast(int, job.config["warmup"]) + cast(int, job.config["iterations"])
    if row.whole("calls_checked") != asked:
        raise Unusable(f"{name}: {row.whole('calls_checked')} of {asked} calls were checked")
    calls = row.numbers("calls_s")
    if len(calls) != job.config["iterations"]:
        raise Unusable(
            f"{name}: {len(calls)} calls were timed, {job.config['iterations']} asked for"
        )
    if not all(_possible(seconds, job) for seconds in calls):
        raise Unusable(f"impossible times of calls: {min(calls):.3g} to {max(calls):.3g} s")
    return calls


def _possible(seconds: float, job: Job) -> bool:
    """Whether a call may have taken so long. For one rank NCCL may have nothing to do: no time."""
    return 0 <= seconds <= job.run_limit_s and (seconds > 0 or job.ranks == 1)


def read_work(row: Fields, job: Job) -> tuple[float, ...]:
    """Seconds of each rank's own work around a call."""
    work = row.numbers("work_s_by_rank")
    if len(work) != job.ranks:
        raise Unusable(f"work_s_by_rank is of {len(work)} ranks, {job.ranks} were asked for")
    if not all(0 < seconds <= job.run_limit_s for seconds in work):
        raise Unusable(f"impossible times of work: {min(work):.3g} to {max(work):.3g} s")
    return work


def who_is_slow(
    message: str, largest: Size, document: Document, limits: Outliers
) -> tuple[str, tuple[str, ...] | None]:
    """The message, with the node whose own work is slow, if it is one alone."""
    slow = curve.slow_ranks([largest.work_s_by_rank], document.proof.ranks, limits.rank)
    if slow is None or slow.host is None:
        return message, None
    return f"{message}; {slow.finding.sentence}", (slow.host,)


def _wrong(size: Size) -> tuple[Metric, Threshold]:
    source = "all sums are whole numbers that float32 holds exactly"
    return (
        Metric(f"wrong elements {size_name(size.bytes)}", sum(size.wrong_by_rank)),
        Threshold("=", 0, "", "defined", source),
    )


def _who_is_wrong(size: Size, ranks: Sequence[Rank]) -> tuple[str, tuple[str, ...] | None]:
    """The failure in a sentence, and the node that alone has it, if it is one alone.

    A sum that went wrong on its way is wrong on every rank that it reached. One that is right on
    all nodes but one was spoiled there.
    """
    bad = [rank for rank in ranks if size.wrong_by_rank[rank.rank]]
    who = f"all {len(ranks)} ranks" if len(bad) == len(ranks) else named(bad)
    elements = (
        f"{sum(size.wrong_by_rank)} elements of the sum over {size_name(size.bytes)} are wrong"
    )
    blamed = hosts(bad)
    return f"{elements}, on {who}", blamed if len(blamed) == 1 else None


def too_fast(
    job: Job,
    rules: Rules,
    value: Metric,
    speed: float,
    rule: CollectiveRule | None,
    *,
    in_switches: bool = False,
) -> Iterator[Judged]:
    """What came faster than anything carries it, for each limit that says so.

    Where switches add up, bus bandwidth is no wire's, and a wire's limit does not hold for it.
    """
    limits = [rules.common.bus_bandwidth[job.backend or ""]]
    if rule is not None and rule.ceiling is not None and not in_switches:
        limits.append(rule.ceiling)
    for limit in limits:
        if limit.judge(speed) is Verdict.FAIL:
            message = (
                f"{value.name} is {value.value} {value.unit}, more than any link carries "
                f"({limit.value}): the measurement is wrong"
            )
            yield Judged(Verdict.FAIL, message, value, limit)


def paths_of(job: Job, document: Document) -> Paths:
    if job.backend != "nccl":
        return Paths()
    logs = [log.values for log in document.measured.items("transport")]
    hosts = [rank.host for rank in sorted(document.proof.ranks, key=lambda rank: rank.rank)]
    return transport.paths(logs, hosts, job.nodes[0].fabric)


def in_switches(job: Job, document: Document, function: str, size: int) -> bool:
    """Whether NCCL had switches add up at this size, as its logs say."""
    if job.backend != "nccl":
        return False
    logs = [log.values for log in document.measured.items("transport")]
    return transport.in_switches(logs, function, size)


def collective(job: Job, size: int, paths: Paths, operation: str = NAME) -> Collective:
    """What the speed of a job's largest size depends on."""
    return Collective(
        operation,
        cast(str, job.config["dtype"]),
        len(job.nodes),
        job.ranks_per_node,
        paths.links,
        job.nodes[0].fabric,
        job.backend or "",
        size,
        paths.between,
        paths.ports,
    )


def rule_of(
    job: Job, rules: Rules, size: int, paths: Paths, operation: str = NAME
) -> CollectiveRule | None:
    return rules.model.collective(collective(job, size, paths, operation)) if rules.model else None


def sample(job: Job, size: int, metric: Metric, paths: Paths, operation: str = NAME) -> Sample:
    """The speed of the largest size, for a baseline."""
    keys = (
        ("operation", operation),
        ("dtype", job.config["dtype"]),
        ("nodes", len(job.nodes)),
        ("ranks_per_node", job.ranks_per_node),
        ("links", paths.links or "any"),
        # Within a node nothing goes over the network between them.
        ("fabric", job.nodes[0].fabric if len(job.nodes) > 1 else "any"),
        ("backend", job.backend),
        ("min_bytes", size),
        *((("between", paths.between),) if paths.between else ()),
    )
    repetitions = cast(int, job.config["iterations"])
    return Sample("collectives", keys, float(metric.value), metric.unit, repetitions)


def nothing_to_judge_by(
    job: Job, rules: Rules, value: Metric, paths: Paths, operations: str = ""
) -> str:
    """`operations`: where several were measured, those without a threshold."""
    measured = f"measured {value.value} {value.unit}"
    if rules.model is None:
        return f"no thresholds file for the model {rules.hardware}: {measured}; record a baseline"
    nodes = "1 node" if len(job.nodes) == 1 else f"{len(job.nodes)} nodes"
    inside = f"{paths.links} inside, " if paths.links else ""
    between = job.nodes[0].fabric
    if paths.between == "mnnvl":
        between = "NVLink between them"
    elif paths.ports:
        between += f" with {paths.ports} {'port' if paths.ports == 1 else 'ports'} each"
    of = f"{operations} on {rules.hardware}" if operations else rules.hardware
    return (
        f"no threshold recorded for {of}, {nodes} × {job.ranks_per_node} ranks, {inside}"
        f"{between}, {job.backend}: {measured}; record a baseline"
    )


def size_name(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"
