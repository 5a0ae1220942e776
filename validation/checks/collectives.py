"""Every collective that trainings use gives the right data at every size, and is fast enough.

What it checks   all_reduce, all_gather, reduce_scatter, all_to_all, broadcast and sendrecv, over
                 sizes from 8 bytes on, out of place and in place where torch has both. Every
                 element of every call is the one that its sender gave for this receiver in this
                 call. At the largest size each operation reaches its threshold. No size is far
                 slower than latency and bandwidth of the others let expect, and no call far slower
                 than the median. No rank is far slower than the others in what it does alone.
                 NCCL's algorithm, protocol, transport and network devices stand beside each number,
                 and the figures of nccl-tests where it is installed. Meanwhile NVML is asked of the
                 boards: none is held back by heat or power supply, and none counts new errors.
Why it matters   all_reduce alone says little of a training that shards its model: FSDP waits for
                 all_gather and reduce_scatter, experts for all_to_all, pipelines for sendrecv. Each
                 has its own algorithm, and a link that only all_to_all uses can be the slow one.
What to do       Wrong elements: take the named node out of service until its memory and GPUs are
                 tested. Between two nodes, either of them or the link can be the cause; the check
                 pairs tells them apart. Slow at the largest size: compare the transport and the
                 devices beside the number with those of an earlier run. Slow at one size or in one
                 call: look for packets that are lost or sent again, and for what else ran on the
                 nodes. A rank's own work: look at the clocks, the CPUs and the other processes of
                 its node. Too fast: check the clocks of the nodes.

Bus bandwidth is nccl-tests' (doc/PERFORMANCE.md), computed here from the median time of a size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from cluster.text import printable
from validation.checks import all_reduce, boards, commands, curve, transport
from validation.checks.all_reduce import size_name
from validation.checks.document import Document, Fields, Unusable
from validation.checks.together import Judged, answer, expected, named
from validation.checks.transport import Paths
from validation.model import Job, Metric, Rank, Reply, Result, Threshold, Tier, Verdict, When
from validation.payloads import bandwidth
from validation.payloads.collectives import OPERATIONS, WAYS, fitting, moved
from validation.thresholds import Rules

NAME = "collectives"
TIER = Tier.CLUSTER
PAYLOAD = "collectives"

CAUSES = {
    "Wrong elements": When(r"elements of .* are wrong", (commands.KERNEL, commands.COUNTERS)),
    "Slow at the largest size": When(
        r"at least \S+ expected|close to the threshold", (commands.PACKETS, commands.PORTS)
    ),
    "Slow at one size or in one call": When(
        r"times what the other sizes|times the median", (commands.PACKETS, commands.BUSY)
    ),
    "A rank's own work": When(r"for their own work", (commands.BUSY,)),
    "Too fast": When(r"more than any link carries", (commands.CLOCK,)),
}
SHARED = (transport, boards)

# How NCCL's log names an operation. What goes from one rank to another it does not name.
_FUNCTIONS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
}
# Operations in which each message goes straight from its sender to its receiver.
_DIRECT = ("all_to_all", "sendrecv")

_NAMED = 3  # findings in a message
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Wrong:
    """Elements that are wrong on one rank; who sent them, None where ranks add up."""

    receiver: Rank
    sender: Rank | None
    elements: int


@dataclass(frozen=True, slots=True)
class Size:
    """One size of one way. `asked_bytes` is the size's name, `bytes` what its blocks came to."""

    way: str
    operation: str
    asked_bytes: int
    bytes: int
    calls_s: tuple[float, ...]
    wrong: tuple[Wrong, ...]
    busbw_gbs: float

    @property
    def name(self) -> str:
        return f"{self.way} {size_name(self.asked_bytes)}"

    @property
    def times(self) -> curve.Times:
        return curve.Times(self.name, self.bytes, self.calls_s)

    @property
    def metric(self) -> Metric:
        return Metric(f"busbw {self.name}", round(self.busbw_gbs, 4), "GB/s")


@dataclass(frozen=True, slots=True)
class Way:
    """An operation, out of place or in place; and each rank's own work at the largest size."""

    operation: str
    sizes: tuple[Size, ...]
    work_s_by_rank: tuple[float, ...]

    @property
    def largest(self) -> Size:
        return self.sizes[-1]


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Judged:
        ways = _read(job, document)
        seconds = _second_opinions(job, document)
        paths = all_reduce.paths_of(job, document)
        findings = [*_wrong_elements(ways, job), *_wrong_by_nccl_tests(seconds)]
        unjudged: tuple[Way, ...] = ()
        judged = [_no_wrong_elements(ways)]
        if job.ranks > 1:  # what a rank does alone goes over no link
            findings += _speeds(job, rules, ways, paths, document)
            findings += _apart(job, rules, ways, document)
            known = [(way, limit) for way in ways if (limit := _limit(job, rules, way, paths))]
            judged = [(way.largest.metric, limit) for way, limit in known] or judged
            unjudged = tuple(way for way in ways if way not in [way for way, _ in known])
        if unjudged:
            findings.append(_without_threshold(job, rules, unjudged, paths))
        return replace(
            _together(findings, judged),
            metrics=(*_metrics(job, document, ways), *_beside(seconds)),
            unjudged=tuple(_samples(job, unjudged, paths)),
        )

    return answer(NAME, job, reply, judge, watched=rules)


# --- reading ---------------------------------------------------------------------------------


def _read(job: Job, document: Document) -> list[Way]:
    operations = cast(Sequence[str], job.config["operations"])
    wanted = [(name, in_place) for name in operations for in_place in WAYS[name]]
    rows = document.measured.items("ways")
    measured = [(row.text("operation"), row.flag("in_place")) for row in rows]
    if measured != wanted:
        raise Unusable(f"{len(measured)} ways of operations were measured, not those asked for")
    sizes = _sizes(job, document)
    ranks = {rank.rank: rank for rank in document.proof.ranks}
    return [_way(job, row, sizes, ranks) for row in rows]


def _sizes(job: Job, document: Document) -> tuple[int, ...]:
    """The sizes that were to be measured: those for which the smallest GPU has room."""
    asked = tuple(cast(Sequence[int], job.config["sizes_bytes"]))
    memory = None
    if document.measured.has("memory_bytes"):
        memory = document.measured.whole("memory_bytes")
    if (memory is None) != (job.backend != "nccl"):
        raise Unusable(f"memory_bytes is {memory}, with {job.backend}")
    if not (sizes := fitting(asked, memory)):
        raise Unusable(f"a GPU has {memory} bytes of memory, too few for any size")
    return sizes


def _way(job: Job, row: Fields, wanted: Sequence[int], ranks: dict[int, Rank]) -> Way:
    operation = row.text("operation")
    way = operation
    if len(WAYS[operation]) > 1 and row.flag("in_place"):
        way = f"{operation} in place"
    sizes = row.items("sizes")
    if len(sizes) != len(wanted):
        raise Unusable(f"{way}: {len(sizes)} sizes were measured, {len(wanted)} asked for")
    read = tuple(
        _size(job, item, way, operation, asked, ranks)
        for item, asked in zip(sizes, wanted, strict=True)
    )
    return Way(operation, read, all_reduce.read_work(row, job))


def _size(
    job: Job, row: Fields, way: str, operation: str, asked: int, ranks: dict[int, Rank]
) -> Size:
    name = f"{way} {size_name(asked)}"
    size = row.whole("bytes")
    if size != (expected := moved(operation, asked, job.ranks)):
        raise Unusable(f"{name}: {size} bytes were moved, {expected} asked for")
    calls_s = all_reduce.read_calls(row, job, name)
    median = curve.Times(name, size, calls_s).median_s
    speed = bandwidth.busbw(operation, job.ranks, size, median)
    wrong = tuple(_cell(item, operation, ranks) for item in _cells(row))
    return Size(way, operation, asked, size, calls_s, wrong, speed)


def _cells(row: Fields) -> Sequence[Any]:
    cells = row.values.get("wrong")
    if not isinstance(cells, list):
        raise Unusable("wrong is no list")
    return cells


def _cell(cell: Any, operation: str, ranks: dict[int, Rank]) -> Wrong:
    """[receiver, sender or null, elements]"""
    adding = operation in ("all_reduce", "reduce_scatter")
    match cell:
        case [int(receiver), int() | None as sender, int(elements)] if (
            receiver in ranks
            and elements > 0
            and not any(isinstance(item, bool) for item in cell)
            and (sender is None if adding else sender in ranks)
        ):
            return Wrong(ranks[receiver], None if sender is None else ranks[sender], elements)
    raise Unusable(f"{operation}: {printable(repr(cell), 60)} says of no ranks what is wrong")


@dataclass(frozen=True, slots=True)
class Second:
    """What nccl-tests says of an operation on one node. error says why it has no figures."""

    host: str
    operation: str
    bytes: int
    busbw_gbs: float
    in_place_busbw_gbs: float
    wrong: int
    error: str | None

    @property
    def name(self) -> str:
        return f"nccl-tests {self.operation} {size_name(self.bytes)}"


def _second_opinions(job: Job, document: Document) -> list[Second]:
    """Of each node that has nccl-tests; none without GPUs."""
    if not document.measured.has("nccl_tests"):
        if job.backend == "nccl":
            raise Unusable("it does not say whether nccl-tests is installed")
        return []
    asked = cast(Sequence[int], job.config["sizes_bytes"])
    operations = cast(Sequence[str], job.config["operations"])
    seconds = []
    for node in document.measured.items("nccl_tests"):
        host, size = node.text("host"), node.whole("bytes")
        if host not in document.proof.hosts or size not in asked:
            raise Unusable(f"nccl-tests ran with {size} bytes on {printable(host, 60)}")
        for row in node.items("figures"):
            second = Second(
                host,
                row.text("operation"),
                size,
                row.number("busbw_gbs"),
                row.number("in_place_busbw_gbs"),
                row.whole("wrong"),
                row.maybe_text("error"),
            )
            speeds = (second.busbw_gbs, second.in_place_busbw_gbs)
            if second.operation not in operations or (second.error is None) != (min(speeds) > 0):
                raise Unusable(f"{printable(second.name, 60)} on {host} has no figures")
            seconds.append(second)
    return seconds


# --- judging ---------------------------------------------------------------------------------


def _no_wrong_elements(ways: Sequence[Way]) -> tuple[Metric, Threshold]:
    count = sum(item.elements for way in ways for size in way.sizes for item in size.wrong)
    source = "every element is known beforehand, bit by bit; sums are whole numbers that are exact"
    return Metric("wrong elements", count), Threshold("=", 0, "", "defined", source)


def _wrong_elements(ways: Sequence[Way], job: Job) -> Iterator[Judged]:
    """The first size of each way that has any."""
    _, threshold = _no_wrong_elements(ways)
    for way in ways:
        size = next((size for size in way.sizes if size.wrong), None)
        if size is None:
            continue
        count = sum(item.elements for item in size.wrong)
        value = Metric(f"wrong elements {size.name}", count)
        sentence = f"{count} elements of {size.name} are wrong, {_where(size.wrong, job)}"
        yield Judged(Verdict.FAIL, sentence, value, threshold, at_fault(way.operation, size.wrong))


def _wrong_by_nccl_tests(seconds: Sequence[Second]) -> Iterator[Judged]:
    """It ran on one node alone, so what is wrong there is that node's own fault."""
    threshold = Threshold("=", 0, "", "defined", "nccl-tests knows every element beforehand")
    for second in seconds:
        if second.wrong:
            value = Metric(f"wrong elements {second.name}", second.wrong)
            sentence = f"{second.wrong} elements of {second.name} are wrong, on {second.host} alone"
            yield Judged(Verdict.FAIL, sentence, value, threshold, (second.host,))


def _where(wrong: Sequence[Wrong], job: Job) -> str:
    receivers = list(dict.fromkeys(item.receiver for item in wrong))
    senders = list(dict.fromkeys(item.sender for item in wrong if item.sender is not None))
    came = f", sent by {_some(senders, job.ranks)}" if senders else ""
    return f"on {_some(receivers, job.ranks)}{came}"


def _some(ranks: Sequence[Rank], of: int) -> str:
    if len(ranks) == of and of > 1:
        return f"all {of} ranks"
    return named(ranks, most=2)


def at_fault(operation: str, wrong: Sequence[Wrong]) -> tuple[str, ...] | None:
    """The node that spoiled these elements, if no other can have done it; None if it is not known.

    What a rank has wrong of itself, no other had a hand in. What comes straight from its sender
    was spoiled by the receiver where it is wrong from several nodes, and by the sender where it is
    wrong on several. In all else others pass it on, or a link can be the cause.
    """
    receivers = {item.receiver.host for item in wrong}
    senders = {item.sender.host for item in wrong if item.sender is not None}
    if not senders:
        # A sum that all others have right was spoiled where it is wrong. A block of a sum is on one
        # rank alone, and any rank may have spoiled it.
        return tuple(receivers) if operation == "all_reduce" and len(receivers) == 1 else None
    direct = operation in _DIRECT
    if len(receivers) == 1 and (receivers <= senders or (direct and len(senders) > 1)):
        return tuple(receivers)
    if direct and len(senders) == 1 and len(receivers - senders) > 1:
        return tuple(senders)
    return None


def _limit(job: Job, rules: Rules, way: Way, paths: Paths) -> Threshold | None:
    size = way.largest.asked_bytes
    rule = all_reduce.rule_of(job, rules, size, paths, way.operation)
    return None if rule is None else rule.threshold


def _speeds(
    job: Job, rules: Rules, ways: Sequence[Way], paths: Paths, document: Document
) -> Iterator[Judged]:
    """Sizes that came faster than anything carries them; the largest against its threshold."""
    for way in ways:
        rule = all_reduce.rule_of(job, rules, way.largest.asked_bytes, paths, way.operation)
        for size in way.sizes:
            function = _FUNCTIONS.get(way.operation, "")
            added = all_reduce.in_switches(job, document, function, size.bytes)
            yield from all_reduce.too_fast(
                job, rules, size.metric, size.busbw_gbs, rule, in_switches=added
            )
        if rule is None:
            continue
        value, threshold = way.largest.metric, rule.threshold
        verdict = threshold.judge(way.largest.busbw_gbs)
        if verdict is not Verdict.PASS:
            yield Judged(verdict, expected(verdict, value, threshold), value, threshold)


def _apart(job: Job, rules: Rules, ways: Sequence[Way], document: Document) -> Iterator[Judged]:
    """What is slow beside the others: sizes, calls, ranks."""
    limits = rules.common.outliers[job.backend or ""]
    for way in ways:
        for found in curve.outliers([size.times for size in way.sizes], limits):
            yield Judged(Verdict.FAIL, found.sentence, found.value, found.threshold)
    work = [way.work_s_by_rank for way in ways]
    if slow := curve.slow_ranks(work, document.proof.ranks, limits.rank):
        found = slow.finding
        blamed = None if slow.host is None else (slow.host,)
        yield Judged(Verdict.FAIL, found.sentence, found.value, found.threshold, blamed)


def _without_threshold(job: Job, rules: Rules, unjudged: Sequence[Way], paths: Paths) -> Judged:
    names = ", ".join(dict.fromkeys(way.operation for way in unjudged))
    value = unjudged[0].largest.metric
    sentence = all_reduce.nothing_to_judge_by(job, rules, value, paths, names)
    return Judged(Verdict.INCONCLUSIVE, sentence, value, None)


def _together(findings: Sequence[Judged], judged: Sequence[tuple[Metric, Threshold]]) -> Judged:
    """The worst findings in a sentence. A node is at fault where one finding names it, and no
    other names another one."""
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.WARN):
        if of_it := [finding for finding in findings if finding.verdict is verdict]:
            more = f"; and {len(of_it) - _NAMED} more" if len(of_it) > _NAMED else ""
            text = "; ".join(finding.message for finding in of_it[:_NAMED])
            named = {finding.blamed for finding in of_it} - {None}
            blamed = named.pop() if len(named) == 1 else None
            message = printable(text, _LONGEST - len(more)) + more
            return Judged(verdict, message, of_it[0].value, of_it[0].threshold, blamed)
    value, threshold = min(judged, key=_room)
    return Judged(Verdict.PASS, "", value, threshold)


def _room(item: tuple[Metric, Threshold]) -> float:
    """How far a figure is above its threshold; the one with the least is shown."""
    metric, threshold = item
    if threshold.op == "=":
        return 0.0
    return float(metric.value) / float(threshold.value)


# --- what is shown ---------------------------------------------------------------------------


def _metrics(job: Job, document: Document, ways: Sequence[Way]) -> Iterator[Metric]:
    logs = [log.values for log in document.measured.items("transport")] if _nccl(job) else []
    carriers = transport.carriers(logs)
    for way in ways:
        for size in way.sizes:
            yield size.metric
            function = _FUNCTIONS.get(way.operation, "")
            if how := transport.chosen(logs, function, size.bytes):
                yield Metric(f"algorithm {size.name}", how)
        if job.ranks > 1:
            model = curve.fit([size.times for size in way.sizes])
            yield Metric(f"latency {way.largest.way}", float(f"{model.latency_s:.4g}"), "s")
    if carriers:
        yield Metric("transport", carriers)


def _beside(seconds: Sequence[Second]) -> Iterator[Metric]:
    """Of each operation the slowest node, and the first on which it gave no figures."""
    for operation in OPERATIONS:
        of_it = [second for second in seconds if second.operation == operation]
        for second in [second for second in of_it if second.error is not None][:1]:
            why = printable(second.error or "no reason", _LONGEST)
            yield Metric(f"{second.name} on {second.host}", f"no figures: {why}")
        if known := [second for second in of_it if second.error is None]:
            slowest = min(known, key=lambda second: second.busbw_gbs)
            yield Metric(f"{slowest.name} on {slowest.host} alone", slowest.busbw_gbs, "GB/s")


def _nccl(job: Job) -> bool:
    return job.backend == "nccl"


def _samples(job: Job, unjudged: Sequence[Way], paths: Paths) -> Iterator[Any]:
    """One for each operation: of its ways the slower one."""
    for operation in OPERATIONS:
        if found := [way.largest for way in unjudged if way.operation == operation]:
            slowest = min(found, key=lambda size: size.busbw_gbs)
            yield all_reduce.sample(job, slowest.asked_bytes, slowest.metric, paths, operation)
