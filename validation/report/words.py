"""How values, thresholds and verdicts are put into words; every report uses the same ones."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cluster.hostlist import compress
from cluster.text import duration, printable
from validation import nccl_formats
from validation.model import (
    Metric,
    Proof,
    Reply,
    Result,
    RunReport,
    Standing,
    Threshold,
    Tier,
    Value,
    Verdict,
    exit_status,
)

FOLD = 4  # what is the same on more nodes than this is one row
# What is wrong stands first.
WORST_FIRST = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.WARN, Verdict.PASS, Verdict.SKIP)
_KINDS = 12  # more rows than this of one check and verdict are one
_LONG = 40  # characters; nodes whose list is longer are counted
_LONG_LIST = 400  # characters of a node list in a sentence


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: one result, or several that say the same."""

    tier: str
    check: str
    subject: str
    value: str
    threshold: str
    verdict: Verdict
    message: str
    nodes: tuple[str, ...] = ()  # of the node tier


def number(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def metric(value: Metric | None) -> str:
    if value is None:
        return "–"
    if value.unit or isinstance(value.value, str):
        return printable(f"{number(value.value)} {value.unit}".strip())
    return printable(f"{value.name} {number(value.value)}")


def threshold(limit: Threshold | None) -> str:
    if limit is None:
        return "–"
    return printable(f"{limit.op} {number(limit.value)} ({limit.provenance})")


def gpu_hours(hours: float) -> str:
    return f"{hours:.2g} GPU-hours" if hours else "0 GPU-hours"


def count(number_of: int, noun: str) -> str:
    return f"{number_of} {noun}" + ("" if number_of == 1 else "s")


def backends(report: RunReport) -> str:
    names = sorted({item.job.backend for item in report.jobs if item.job.backend})
    return ", ".join(names)


def images(report: RunReport) -> list[str]:
    """What the containers of the run's jobs were made of."""
    names = (item.job.container.image for item in report.jobs if item.job.container)
    return list(dict.fromkeys(names))


def title(report: RunReport) -> str:
    nodes = [item.node for item in report.nodes]
    gpus = sum(node.gpus.count for node in nodes)
    kinds = sorted({node.hardware for node in nodes} | {node.fabric for node in nodes})
    if any(node.gpus.nvml for node in nodes):
        kinds.append("a stand-in for NVML")
    partial = f" (partial: without {'; '.join(report.left_out)})" if report.left_out else ""
    parts = [
        f"suite {report.suite}{partial}",
        f"{count(len(nodes), 'node')}, {count(gpus, 'GPU')} ({', '.join(kinds)})",
        *([backends(report)] if backends(report) else []),
        *([f"Slurm {report.slurm}"] if report.slurm else []),
        *(f"in {image}" for image in images(report)),
        duration(report.seconds),
        gpu_hours(report.gpu_hours),
    ]
    return printable(" · ".join(["plumbline", *parts]))


def subject(result: Result, several_groups: bool) -> str:
    if result.tier is Tier.NODE:
        return result.subject.name
    nodes = count(len(result.subject.nodes), "node")
    return f"{nodes} ({result.subject.name})" if several_groups else nodes


def rows(results: Sequence[Result]) -> Iterator[Row]:
    """The table, without rows that only repeat another one."""
    groups: dict[str, set[str]] = {}
    for result in results:
        groups.setdefault(result.check, set()).add(result.subject.name)
    several = any(len(groups[r.check]) > 1 for r in results if r.tier is Tier.CLUSTER)
    alike: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        alike.setdefault(_repeated(result), []).append(result)
    table: list[Row] = []
    for same in alike.values():
        first = same[0]
        if not _passes(first):
            more = f" and {len(same) - 1} more" if len(same) > 1 else ""
            table.append(_row(first, first.check + more, several))
        elif len(same) > FOLD:
            table.append(_folded(same))
        else:
            table += [_row(result, result.check, several) for result in same]
    yield from _on_many_nodes(table)


def folded_away(results: Sequence[Result]) -> Iterator[Row]:
    """Each node's own row of what did not pass, where the table has one row for many nodes."""
    groups: dict[tuple[str, Verdict], list[Result]] = {}
    for result in results:
        if result.tier is Tier.NODE and result.verdict not in (Verdict.PASS, Verdict.SKIP):
            groups.setdefault((result.check, result.verdict), []).append(result)
    for alike in groups.values():
        if len(alike) > FOLD:
            yield from (_row(result, result.check, False) for result in alike)


def alike(results: Sequence[Result]) -> Iterator[list[Result]]:
    """Results that say the same of many nodes together, each other one alone.

    As in the table, what differs in its numbers alone is the same, and where a check has many kinds
    of message, all of them are. What passed is alike.
    """
    checks: dict[object, dict[str, list[Result]]] = {}
    for number, result in enumerate(results):
        alone = len(result.subject.nodes) != 1
        key = number if alone else (result.check, result.tier, result.verdict)
        kind = "" if result.verdict is Verdict.PASS else kind_of(result.message)
        checks.setdefault(key, {}).setdefault(kind, []).append(result)
    for kinds in checks.values():
        shown: list[list[Result]] = []
        for same in kinds.values():
            shown += [same] if len(same) > FOLD else [[result] for result in same]
        yield from [[r for same in shown for r in same]] if len(shown) > _KINDS else shown


def _on_many_nodes(rows: Sequence[Row]) -> Iterator[Row]:
    """A rack without power says the same of each of its nodes: that is one row.

    What differs in its numbers alone is the same: each node's own stands in the page. Where a check
    has many kinds of message, all of them are one row.
    """
    for alike in _grouped(rows, _same_check):
        shown: list[Row] = []
        for same in _grouped(alike, _same_kind):
            shown += [_of_many_nodes(same)] if len(same) > FOLD else same
        yield from [_of_many_nodes(alike)] if len(shown) > _KINDS else shown


def _grouped(rows: Iterable[Row], kind: Callable[[Row], Row]) -> Iterator[list[Row]]:
    """Rows of the node tier by their kind; each that passes, or is of several nodes, alone."""
    groups: dict[object, list[Row]] = {}
    for number, row in enumerate(rows):
        alone = row.verdict is Verdict.PASS or row.tier != Tier.NODE.value
        groups.setdefault(number if alone else kind(row), []).append(row)
    yield from groups.values()


def _same_kind(row: Row) -> Row:
    return replace(row, subject="", value="", nodes=(), message=kind_of(row.message))


def _same_check(row: Row) -> Row:
    return replace(row, subject="", value="", nodes=(), threshold="", message="")


def _of_many_nodes(rows: Sequence[Row]) -> Row:
    first = rows[0]
    nodes = tuple(dict.fromkeys(name for row in rows for name in row.nodes))
    values = listed(list(dict.fromkeys(row.value for row in rows)), 2)
    limits = list(dict.fromkeys(row.threshold for row in rows))
    return replace(
        first,
        nodes=nodes,
        subject=named(nodes, _LONG),
        value=values,
        threshold=limits[0] if len(limits) == 1 else "as declared",
        message=for_all([(row.subject, row.message) for row in rows]),
    )


def named(nodes: Sequence[str], long: int = 100) -> str:
    """Nodes as a node list, or their number where that is longer than so many characters."""
    names = compress(nodes)
    return names if len(names) <= long else count(len(nodes), "node")


def for_all(messages: Sequence[tuple[str, str]]) -> str:
    """One message for nodes whose messages are of one kind; each is a node's name and its own."""
    name, message = messages[0]
    if all(other == message for _, other in messages):
        return message
    beside = "with other numbers on the others"
    if any(kind_of(other) != kind_of(message) for _, other in messages):
        beside = "in other words on the others"
    return f"{message} (on {name}; {beside})"


def kind_of(message: str) -> str:
    """A message without its numbers and names: what it has in common with another node's.

    >>> kind_of("GPU 3: 12 PCIe replays in 60 s of work, on GPU-5f3a")
    'GPU #: # PCIe replays in # s of work, on #'
    """
    return re.sub(r"[\w.+-]*\d[\w.+-]*", "#", message)


def _passes(result: Result) -> bool:
    return result.tier is Tier.NODE and result.verdict is Verdict.PASS


def _repeated(result: Result) -> tuple[object, ...]:
    """What results have in common of which one row is enough."""
    if _passes(result):
        return (result.check, result.message)
    if result.value is None and result.message:
        # One fault, told by each check that would have judged something else.
        return (result.subject.name, result.verdict, result.message)
    return (result.check, result.subject.name, result.verdict)


def _row(result: Result, check: str, several_groups: bool) -> Row:
    return Row(
        result.tier.value,
        check,
        subject(result, several_groups),
        metric(result.value),
        threshold(result.threshold),
        result.verdict,
        printable(result.message),
        result.subject.nodes if result.tier is Tier.NODE else (),
    )


def range_of(results: Sequence[Result]) -> tuple[str, str]:
    """Value and threshold of nodes that say the same."""
    values = [result.value for result in results if result.value]
    texts = list(dict.fromkeys(metric(value) for value in values))
    numbers = [v.value for v in values if not isinstance(v.value, str)]
    if len(texts) > 1 and len(numbers) == len(values):
        unit = values[0].unit
        value = f"{number(min(numbers))} … {number(max(numbers))} {unit}".strip()
    else:
        value = listed(texts or [metric(None)], 2)
    limits = list(dict.fromkeys(threshold(result.threshold) for result in results))
    return value, limits[0] if len(limits) == 1 else "as declared"


def _folded(results: Sequence[Result]) -> Row:
    value, limit = range_of(results)
    first = results[0]
    return Row(
        first.tier.value,
        first.check,
        count(len(results), "node"),
        value,
        limit,
        first.verdict,
        printable(first.message),
    )


def tally(report: RunReport) -> str:
    parts = [
        f"{number_of} {verdict.value}"
        for verdict in Verdict
        if (number_of := sum(result.verdict is verdict for result in report.results))
    ]
    return ", ".join(parts)


def standing(report: RunReport, which: Standing) -> list[str]:
    """The nodes of which the run makes this."""
    return [item.node.name for item in report.nodes if item.standing is which]


def listed(names: Sequence[str], at_most: int) -> str:
    """Names as a person says them: `cpus, memory and 3 more`."""
    if len(names) > at_most + 1:
        return f"{', '.join(names[:at_most])} and {len(names) - at_most} more"
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def headline(report: RunReport) -> list[str]:
    """What came out, in sentences; the first one is the outcome."""
    total = count(len(report.nodes), "node")
    sentences = ["The run was interrupted before its end."] if report.interrupted else []
    sentences += _outcome(report, total)
    if unproven := standing(report, Standing.UNPROVEN):
        sentences.append(f"Not proven: {_in_a_sentence(unproven)}.")
    if report.left_out:
        sentences.append(f"This was a partial run. Left out: {'; '.join(report.left_out)}.")
    return [printable(sentence) for sentence in sentences]


def _outcome(report: RunReport, total: str) -> list[str]:
    passes = standing(report, Standing.PASSING)
    if report.verdict.green and len(passes) == len(report.nodes):
        warned = ", some of it with a warning" if report.verdict is Verdict.WARN else ""
        return [f"All {total} pass{warned}." if len(passes) > 1 else f"The node passes{warned}."]
    if report.verdict.green:
        return ["Nothing that was tested failed."]
    if report.verdict is Verdict.INCONCLUSIVE:
        return ["Nothing failed, but not everything could be proven."]
    sentences = []
    if failing := standing(report, Standing.FAILING):
        verb = "fails" if len(failing) == 1 else "fail"
        sentences.append(f"{len(failing)} of {total} {verb}: {_in_a_sentence(failing)}.")
    suspects: dict[tuple[str, ...], list[str]] = {}
    for result in report.results:
        alone = len(result.subject.nodes) == 1
        if result.verdict is Verdict.FAIL and result.blamed is None and not alone:
            suspects.setdefault(result.subject.nodes, []).append(result.check)
    for nodes, checks in list(suspects.items())[:FOLD]:
        sentences.append(
            f"One of {_in_a_sentence(nodes)} is at fault in {listed(checks, 3)}; which one is not "
            "known."
        )
    if len(suspects) > FOLD:
        sentences.append(f"The same holds for {len(suspects) - FOLD} more groups of nodes.")
    if not sentences:
        sentences.append("Something failed, but no node is at fault.")
    return sentences


def _in_a_sentence(nodes: Sequence[str]) -> str:
    """Nodes as a node list; of many that lie apart, the first ones."""
    names = compress(nodes)
    if len(names) <= _LONG_LIST:
        return names
    return f"{compress(nodes[:FOLD])} and {len(nodes) - FOLD} more"


def moment(iso: str) -> str:
    """A time as a person reads it; what cannot be read stays as it is."""
    try:
        when = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    return f"{when.day} {when:%B %Y, %H:%M} {when.tzname() or ''}".strip()


def ended(reply: Reply | None) -> str:
    """How a job ended."""
    if reply is None:
        return "–"
    if reply.exit_code is not None:
        return exit_status(reply.exit_code)
    return reply.outcome.value.replace("_", " ")


def proof(evidence: Proof) -> str:
    """What really ran, in one line."""
    parts = []
    if evidence.job_id:
        parts.append(f"job {evidence.job_id}")
    if evidence.world_size is not None:
        parts.append(
            f"{count(evidence.world_size, 'rank')} on {count(len(evidence.hosts), 'node')} "
            f"({compress(evidence.hosts)})"
        )
    elif evidence.hosts:
        parts.append(f"on {compress(evidence.hosts)}")
    for name, value in (
        ("backend", evidence.backend),
        ("torch", evidence.torch),
        ("NCCL", evidence.nccl and f"{evidence.nccl}{_unknown(evidence.nccl)}"),
        ("Python", evidence.python),
        ("in a container of", evidence.container),
    ):
        if value:
            parts.append(f"{name} {value}")
    return printable(", ".join(parts))


def _unknown(release: str) -> str:
    """What is to be said of a release of NCCL whose log nobody has recorded."""
    newest = nccl_formats.recorded().newest
    if nccl_formats.number(release) <= nccl_formats.number(newest):
        return ""
    return f" (newer than {newest}, the newest whose log is known)"
