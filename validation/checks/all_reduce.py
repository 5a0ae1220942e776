"""Every rank sums with every other, rightly and fast enough.

What it checks   the sum is right in every element at every size; bus bandwidth at the largest size
                 reaches the threshold; exactly the asked ranks and nodes took part
Why it matters   data-parallel training waits for the slowest all_reduce; a wrong sum trains garbage
What to do       No answer: read the job's stderr, the node named there first. Too slow: repeat with
                 halves of the nodes (`--nodes`), the slow half holds the link or node; with
                 NCCL_DEBUG=INFO the job's output says which network NCCL chose. A wrong sum: take
                 the nodes out of service until memory and GPUs are tested. No threshold: compare
                 with the vendor's figure, then record it in a thresholds file of your own.

Bus bandwidth = bytes / time * 2(n-1)/n for n ranks, 1 GB = 1e9 bytes (nccl-tests,
doc/PERFORMANCE.md). It is computed here from the measured times; the payload's own figure must
agree with it.
"""

import math
from collections.abc import Sequence
from typing import cast

from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict
from validation.thresholds import Rules

NAME = "all_reduce"
TIER = Tier.CLUSTER
PAYLOAD = "all_reduce"

_ELEMENT_BYTES = 4  # float32


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float:
    """GB/s on the busiest link of a ring."""
    return size / seconds / 1e9 * 2 * (ranks - 1) / ranks


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        asked = cast(Sequence[int], job.config["sizes_bytes"])
        rows = document.measured.items("sizes")
        sizes = [row.whole("bytes") for row in rows]
        if sizes != list(asked):
            raise Unusable(f"measured sizes {sizes}, asked for {list(asked)}")
        measured = [_bandwidth(row, job.ranks) for row in rows]
        metrics = tuple(
            Metric(f"busbw {_size(size)}", round(value, 4), "GB/s")
            for size, value in zip(sizes, measured, strict=True)
        )
        largest, bandwidth = sizes[-1], measured[-1]
        value = Metric(f"busbw {_size(largest)}", round(bandwidth, 4), "GB/s")
        threshold = _threshold(job, rules, largest)
        if threshold is None:
            verdict = Verdict.INCONCLUSIVE
            message = _nothing_to_judge_by(job, rules, value)
        else:
            verdict = threshold.judge(bandwidth)
            message = _message(verdict, value, threshold)
        return Result(
            NAME, TIER, job.subject, verdict, message, value, threshold, metrics, document.proof
        )

    return answer(NAME, job, reply, judge)


def _bandwidth(row: Fields, ranks: int) -> float:
    size = row.whole("bytes")
    if row.whole("elements") * _ELEMENT_BYTES != size:
        raise Unusable(f"{row.whole('elements')} elements are not {size} bytes of float32")
    if wrong := row.whole("wrong"):
        raise Unusable(f"{wrong} elements of the sum over {_size(size)} are wrong")
    shortest, median, longest = (
        row.number(name) for name in ("time_s_min", "time_s_median", "time_s_max")
    )
    if not 0 < shortest <= median <= longest:
        raise Unusable(f"impossible times for {_size(size)}: {shortest}, {median}, {longest} s")
    bandwidth = bus_bandwidth(size, median, ranks)
    claimed = row.number("busbw_gbs")
    if not math.isclose(bandwidth, claimed, rel_tol=0.01, abs_tol=0.001):
        raise Unusable(
            f"the payload claims {claimed:.4g} GB/s for {_size(size)}, its times give "
            f"{bandwidth:.4g}"
        )
    return bandwidth


def _threshold(job: Job, rules: Rules, size: int) -> Threshold | None:
    if rules.model is None or job.backend is None:
        return None
    return rules.model.bandwidth(
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
