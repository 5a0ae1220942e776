"""Every rank sums with every other, rightly and fast enough.

What it checks   the sum is right in every element of every call, at every size; bus bandwidth at
                 the largest size reaches the threshold and is none that no hardware has; exactly
                 the asked ranks and nodes took part, over the declared fabric (NCCL's own log)
Why it matters   data-parallel training waits for the slowest all_reduce; a wrong sum trains garbage
What to do       Too slow: the slow node or link holds all others up. Over sockets where InfiniBand
                 is declared: look at the links of the nodes that are named, and at NCCL_IB_HCA and
                 the like in validation_environment. A wrong sum: take the nodes that are named out
                 of service until memory and GPUs are tested. Too fast to be true: look at the
                 clocks of the nodes.

Bus bandwidth = bytes / time * 2(n-1)/n for n ranks, 1 GB = 1e9 bytes (nccl-tests,
doc/PERFORMANCE.md). It is computed here from the measured times; the payload's own figure must
agree with it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from validation.checks import transport
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Rank, Reply, Result, Threshold, Tier, Verdict, worst
from validation.thresholds import Rules

NAME = "all_reduce"
TIER = Tier.CLUSTER
PAYLOAD = "all_reduce"

_ELEMENT_BYTES = 4  # float32


@dataclass(frozen=True, slots=True)
class Size:
    """What was measured with one buffer size."""

    bytes: int
    busbw_gbs: float
    wrong_by_rank: tuple[int, ...]

    @property
    def metric(self) -> Metric:
        return Metric(f"busbw {_size(self.bytes)}", round(self.busbw_gbs, 4), "GB/s")


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """GB/s on the busiest link of a ring."""
    return size / seconds / 1e9 * 2 * (ranks - 1) / ranks


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        asked = cast(Sequence[int], job.config["sizes_bytes"])
        rows = document.measured.items("sizes")
        found = [row.whole("bytes") for row in rows]
        if found != list(asked):
            raise Unusable(f"measured sizes {found}, asked for {list(asked)}")
        sizes = [_read(row, job) for row in rows]
        largest = sizes[-1]
        threshold = _threshold(job, rules, largest.bytes)
        fast = _too_fast(job, rules, sizes)
        value, message, blamed = largest.metric, "", None
        if wrong := next((size for size in sizes if any(size.wrong_by_rank)), None):
            verdict = Verdict.FAIL
            value, threshold = _wrong(wrong)
            message, blamed = _who_is_wrong(wrong, document.proof.ranks)
        elif fast is not None:
            verdict = Verdict.FAIL
            value, threshold = fast
            message = (
                f"{value.name} is {value.value} {value.unit}, more than any link carries "
                f"({threshold.value}): the measurement is wrong"
            )
        elif threshold is None:
            verdict = Verdict.INCONCLUSIVE
            message = _nothing_to_judge_by(job, rules, value)
        else:
            verdict = threshold.judge(largest.busbw_gbs)
            message = _message(verdict, value, threshold)
        result = Result(
            NAME,
            TIER,
            job.subject,
            verdict,
            message,
            value,
            threshold,
            tuple(size.metric for size in sizes),
            document.proof,
            blamed,
        )
        return _over_what_is_declared(result, job, document)

    return answer(NAME, job, reply, judge)


def _over_what_is_declared(result: Result, job: Job, document: Document) -> Result:
    """The result, or the worse one that NCCL's own logs speak for."""
    if job.backend != "nccl":
        return result
    hosts = [rank.host for rank in sorted(document.proof.ranks, key=lambda rank: rank.rank)]
    logs = [log.values for log in document.measured.items("transport")]
    first = job.nodes[0]
    problem = transport.judge(logs, hosts, first.fabric, first.gpus)
    if problem is None:
        return result
    verdict = worst((result.verdict, problem.verdict))
    if verdict is result.verdict and verdict is not problem.verdict:
        return result  # the failure that is told already is what counts
    message = "; ".join(part for part in (result.message, problem.sentence) if part)
    blamed = result.blamed if result.verdict is verdict else problem.nodes
    return replace(result, verdict=verdict, message=message, blamed=blamed)


def _read(row: Fields, job: Job) -> Size:
    size = row.whole("bytes")
    if row.text("dtype") != job.config["dtype"]:
        raise Unusable(f"summed {row.text('dtype')}, {job.config['dtype']} was asked for")
    if row.whole("elements") * _ELEMENT_BYTES != size:
        raise Unusable(f"{row.whole('elements')} elements are not {size} bytes of float32")
    calls = cast(int, job.config["warmup"]) + cast(int, job.config["iterations"])
    if row.whole("calls_checked") != calls:
        raise Unusable(f"{row.whole('calls_checked')} of {calls} calls were checked")
    wrong = row.numbers("wrong_by_rank")
    if len(wrong) != job.ranks or any(count < 0 or count != int(count) for count in wrong):
        raise Unusable(f"wrong_by_rank has no count for each of {job.ranks} ranks: {wrong[:16]}")
    shortest, median, longest = (
        row.number(name) for name in ("time_s_min", "time_s_median", "time_s_max")
    )
    if not 0 < shortest <= median <= longest:
        raise Unusable(f"impossible times for {_size(size)}: {shortest}, {median}, {longest} s")
    bandwidth = bus_bandwidth(size, median, job.ranks)
    claimed = row.number("busbw_gbs")
    if not math.isclose(bandwidth, claimed, rel_tol=0.01, abs_tol=0.001):
        raise Unusable(
            f"the payload claims {claimed:.4g} GB/s for {_size(size)}, its times give "
            f"{bandwidth:.4g}"
        )
    return Size(size, bandwidth, tuple(int(count) for count in wrong))


def _wrong(size: Size) -> tuple[Metric, Threshold]:
    source = "all sums are whole numbers that float32 holds exactly"
    return (
        Metric(f"wrong elements {_size(size.bytes)}", sum(size.wrong_by_rank)),
        Threshold("=", 0, "", "defined", source),
    )


def _who_is_wrong(size: Size, ranks: Sequence[Rank]) -> tuple[str, tuple[str, ...] | None]:
    """The failure in a sentence, and the node that alone has it, if it is one alone.

    A sum that went wrong on its way is wrong on every rank that it reached. One that is right on
    all nodes but one was spoiled there.
    """
    bad = [rank for rank in ranks if size.wrong_by_rank[rank.rank]]
    named = " and ".join(f"rank {rank.rank} on {rank.host}" for rank in bad[:4])
    if len(bad) > 4:
        named += f" and {len(bad) - 4} more"
    if len(bad) == len(ranks):
        named = f"all {len(ranks)} ranks"
    elements = f"{sum(size.wrong_by_rank)} elements of the sum over {_size(size.bytes)} are wrong"
    hosts = tuple(dict.fromkeys(rank.host for rank in bad))
    return f"{elements}, on {named}", hosts if len(hosts) == 1 else None


def _too_fast(job: Job, rules: Rules, sizes: Sequence[Size]) -> tuple[Metric, Threshold] | None:
    """The first size that came faster than anything carries it."""
    for size in sizes:
        limits = [rules.common.bus_bandwidth[job.backend or ""]]
        if rule := _ceiling(job, rules, size.bytes):
            limits.append(rule)
        for limit in limits:
            if limit.judge(size.busbw_gbs) is Verdict.FAIL:
                return size.metric, limit
    return None


def _threshold(job: Job, rules: Rules, size: int) -> Threshold | None:
    if rules.model is None or job.backend is None:
        return None
    return rules.model.bandwidth(
        len(job.nodes), job.ranks_per_node, job.nodes[0].fabric, job.backend, size
    )


def _ceiling(job: Job, rules: Rules, size: int) -> Threshold | None:
    if rules.model is None or job.backend is None:
        return None
    return rules.model.ceiling(
        len(job.nodes), job.ranks_per_node, job.nodes[0].fabric, job.backend, size
    )


def _nothing_to_judge_by(job: Job, rules: Rules, value: Metric) -> str:
    measured = f"measured {value.value} {value.unit}"
    if rules.model is None:
        return f"no thresholds file for the model {rules.hardware}: {measured}; record a baseline"
    nodes = "1 node" if len(job.nodes) == 1 else f"{len(job.nodes)} nodes"
    return (
        f"no threshold recorded for {rules.hardware}, {nodes} × {job.ranks_per_node} ranks, "
        f"{job.nodes[0].fabric}, {job.backend}: {measured}; record a baseline"
    )


def _message(verdict: Verdict, value: Metric, threshold: Threshold) -> str:
    if verdict is Verdict.PASS:
        return ""
    if verdict is Verdict.WARN:
        return f"{value.value} {value.unit} is close to the threshold; healthy: ≥ {threshold.warn}"
    return f"{value.name} is {value.value} {value.unit}, at least {threshold.value} expected"


def _size(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"
