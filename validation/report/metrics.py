"""`metrics.prom`: the run in Prometheus' text format, for node_exporter's textfile collector.

The file of a large cluster has to stay one that a scrape can carry, so what is fine is told in sum:
of each check how many judgements came out how, how far what passing nodes measured lies apart, and
how far from its threshold; of each node its worst verdict, and when a run judged it. A judgement of
a node that neither passed nor is skipped is told by itself, and so is each of several nodes: with
its verdict, and with what was judged and what that was held against. What was not run on a node
because of another failure there is one series a node.

`node` is empty where the subject is several nodes: node_exporter hands that on, and Prometheus
(`speaks_of_nodes` in its jobs) does not put the host there that the file lies on, which would
accuse it.

What a partial run did not judge is not forgotten: see `render`.
"""

import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from cluster.text import label, printable
from validation.model import (
    Metric,
    Result,
    RunReport,
    Standing,
    Threshold,
    Tier,
    Verdict,
    worst,
)
from validation.report import words

PREFIX = "plumbline_validation_"

_FAMILIES = {
    "exit_code": "Exit code of the last run.",
    "duration_seconds": "How long the run took.",
    "last_run_timestamp_seconds": "When the run began.",
    "results": "Judgements by verdict.",
    "nodes": "Nodes by what the run makes of them.",
    "left_out": "What a partial run was not asked for.",
    "judged": "Judgements of single nodes by check and verdict.",
    "spread": "The least, the median and the largest of what passing nodes measured.",
    "margin": "The same of what was judged, divided by its threshold.",
    "node_verdict": "1 for the worst of the verdicts that were given last of a node.",
    "timestamp_seconds": "When the run began that judged it last.",
    "verdict": "1 for the verdict that was given last, where it is not a pass of a single node.",
    "not_run": "1 for the checks of a node that did not run because of another failure there.",
    "blamed": "1 for a node that is at fault for a failure of several nodes.",
    "value": "What was measured.",
    "threshold": "What the measured value was held against.",
}

# Of a check and a verdict, so many nodes are told with what they measured.
_WITH_VALUES = 64


@dataclass(frozen=True)
class Series:
    family: str
    labels: Mapping[str, str]
    value: float

    @property
    def judged(self) -> tuple[str, str] | None:
        """Check and subject; None of what is about the run, and no check of a node as a whole."""
        if "subject" not in self.labels:
            return None
        return self.labels.get("check", ""), self.labels["subject"]


def render(report: RunReport, former: str = "") -> str:
    """The run, and of a partial run also what it leaves standing of the text before it.

    A partial run replaces what it judged of single nodes. Of several nodes only a failure counts:
    that a few of them, or a few checks, passed does not take back what failed with all.
    """
    former_series = parse(former) if report.left_out else []
    known = _Known.of(former_series)
    counting = [r for r in report.results if not known.has(r) or _counts(r)]
    told = _Told.of(counting)
    replaced = {_key(result) for result in counting}
    series = [
        *_kept(former_series, replaced),
        *_of_run(report),
        *_sums(report),
        *(item for result in told.alone for item in _of_result(report, result, told)),
    ]
    series += _not_run(report, former_series, replaced, told)
    series += _of_nodes(report, former_series, counting, series)
    lines = []
    for family, text in _FAMILIES.items():
        if of_family := [item for item in series if item.family == family]:
            lines += [f"# HELP {PREFIX}{family} {text}", f"# TYPE {PREFIX}{family} gauge"]
            lines += [_line(item) for item in of_family]
    return "\n".join(lines) + "\n"


def _key(result: Result) -> tuple[str, str]:
    return _text(result.check), _text(result.subject.name)


def _counts(result: Result) -> bool:
    """Whether what a partial run found takes the place of what an earlier one did."""
    if result.tier is Tier.NODE:
        return result.verdict is not Verdict.INCONCLUSIVE
    return result.verdict is Verdict.FAIL


@dataclass(frozen=True)
class _Known:
    """What an earlier run judged. Of a node that passed, its check and itself are all that is
    told.
    """

    alone: frozenset[tuple[str, str]]
    checks: frozenset[str]
    nodes: frozenset[str]

    @classmethod
    def of(cls, series: Collection[Series]) -> "_Known":
        return cls(
            frozenset(item.judged for item in series if item.judged and item.judged[0]),
            frozenset(item.labels["check"] for item in series if item.family == "judged"),
            frozenset(item.labels["node"] for item in series if item.family == "node_verdict"),
        )

    def has(self, result: Result) -> bool:
        check, subject = _key(result)
        if result.tier is Tier.NODE and check in self.checks and subject in self.nodes:
            return True
        return (check, subject) in self.alone


@dataclass(frozen=True)
class _Told:
    """Which results are told by themselves, and which as one series of their node."""

    alone: tuple[Result, ...]
    with_values: frozenset[tuple[str, str]]
    not_run: tuple[Result, ...]

    @classmethod
    def of(cls, results: Iterable[Result]) -> "_Told":
        told = [r for r in results if r.tier is not Tier.NODE or r.verdict not in _FINE]
        found: dict[str, list[Verdict]] = {}  # by node, what is more than a consequence
        for result in told:
            if not _follows(result):
                found.setdefault(result.subject.name, []).append(result.verdict)
        alone: list[Result] = []
        follows: list[Result] = []
        seen: Counter[tuple[str, Verdict]] = Counter()
        with_values = set()
        for result in told:
            others = found.get(result.subject.name, ())
            # Nothing hides behind what is less bad.
            if _follows(result) and worst([result.verdict, *others]) in others:
                follows.append(result)
                continue
            alone.append(result)
            seen[result.check, result.verdict] += 1
            if seen[result.check, result.verdict] <= _WITH_VALUES:
                with_values.add(_key(result))
        return cls(tuple(alone), frozenset(with_values), tuple(follows))


_FINE = (Verdict.PASS, Verdict.SKIP)


def _follows(result: Result) -> bool:
    return (
        result.tier is Tier.NODE and result.value is None and result.message.startswith("not run: ")
    )


def _kept(earlier: Iterable[Series], replaced: Collection[tuple[str, str]]) -> Iterator[Series]:
    """What stands of each check; what is about a node as a whole is computed anew."""
    for item in earlier:
        if item.judged is None:
            if item.labels.get("partial") == "false":
                yield item
        elif item.judged[0] and item.judged not in replaced:
            yield item


def _of_run(report: RunReport) -> Iterator[Series]:
    partial = "true" if report.left_out else "false"
    scope = {"cluster": report.cluster, "suite": report.suite, "partial": partial}
    yield Series("exit_code", scope, report.exit_code)
    yield Series("duration_seconds", scope, round(report.seconds, 1))
    yield Series("last_run_timestamp_seconds", scope, _began(report))
    for verdict in Verdict:
        count = sum(result.verdict is verdict for result in report.results)
        yield Series("results", {**scope, "verdict": verdict.value}, count)
    for which in Standing:
        count = len(words.standing(report, which))
        yield Series("nodes", {**scope, "standing": which.value}, count)
    for what in report.left_out:
        yield Series("left_out", {**scope, "what": what}, 1)


def _sums(report: RunReport) -> Iterator[Series]:
    """What is not told node by node: how many, how far apart, how far from the threshold."""
    scope = {"suite": report.suite, "partial": "true" if report.left_out else "false"}
    verdicts: Counter[tuple[str, str]] = Counter()
    numbers: dict[tuple[str, str, str], list[float]] = {}
    margins: dict[tuple[str, str, str], list[float]] = {}
    for result in report.results:
        if result.tier is not Tier.NODE:
            continue
        verdicts[result.check, result.verdict.value] += 1
        if result.verdict is not Verdict.PASS:
            continue
        for metric in _each(result):
            if not isinstance(metric.value, str):
                key = (result.check, _GPU.sub("GPU ", metric.name), metric.unit)
                numbers.setdefault(key, []).append(metric.value)
        limit, value = result.threshold, result.value
        if not limit or not value or limit.op not in ("≥", "≤"):
            continue
        if (margin := _margin(value, limit)) is not None:
            margins.setdefault((result.check, value.name, limit.op), []).append(margin)
    for (check, verdict), count in verdicts.items():
        yield Series("judged", {**scope, "check": check, "verdict": verdict}, count)
    for (check, name, unit), values in numbers.items():
        yield from _spread(
            "spread", {**scope, "check": check, "metric": name, "unit": unit}, values
        )
    for (check, name, op), values in margins.items():
        yield from _spread("margin", {**scope, "check": check, "metric": name, "op": op}, values)


def _spread(family: str, labels: Mapping[str, str], values: Sequence[float]) -> Iterator[Series]:
    for statistic, of in (("min", min), ("median", statistics.median), ("max", max)):
        yield Series(family, {**labels, "statistic": statistic}, of(values))


def _margin(value: Metric, limit: Threshold) -> float | None:
    if isinstance(value.value, str) or isinstance(limit.value, str) or not limit.value:
        return None
    return value.value / limit.value


def _of_result(report: RunReport, result: Result, told: _Told) -> Iterator[Series]:
    alone = result.tier is Tier.NODE
    what = {
        "suite": report.suite,
        "check": result.check,
        "subject": result.subject.name,
        "node": result.subject.name if alone else "",
    }
    yield Series("verdict", {**what, "verdict": result.verdict.value}, 1)
    if not alone:
        yield Series("timestamp_seconds", what, _began(report))
        if result.verdict is Verdict.FAIL:
            for node in result.blamed or ():
                yield Series("blamed", {**what, "node": node}, 1)
    if _key(result) not in told.with_values:
        return
    values: dict[tuple[str, str], float] = {}
    for metric in _judged(result) if alone else _each(result):
        if not isinstance(metric.value, str):
            # A series that is there twice would cost all of node_exporter's.
            values.setdefault((metric.name, metric.unit), metric.value)
    for (name, unit), number in values.items():
        yield Series("value", {**what, "metric": name, "unit": unit}, number)
    limit, value = result.threshold, result.value
    if limit is not None and value is not None and not isinstance(limit.value, str):
        named = {"metric": value.name, "unit": limit.unit, "op": limit.op}
        yield Series("threshold", {**what, **named}, limit.value)


def _judged(result: Result) -> tuple[Metric, ...]:
    return (result.value,) if result.value else ()


def _each(result: Result) -> tuple[Metric, ...]:
    """The judged one, and each other that is not the same told again."""
    judged = _judged(result)
    known = {(metric.name, metric.unit) for metric in judged}
    return (*judged, *(m for m in result.metrics if (m.name, m.unit) not in known))


def _not_run(
    report: RunReport,
    earlier: Iterable[Series],
    replaced: Collection[tuple[str, str]],
    told: _Told,
) -> Iterator[Series]:
    """One series for each node and verdict, with the names of the checks."""
    checks: dict[tuple[str, str], list[str]] = {}
    for item in earlier:
        if item.family == "not_run":
            node = item.labels["node"]
            names = [c for c in item.labels["checks"].split(",") if (c, node) not in replaced]
            checks[node, item.labels["verdict"]] = names
    for result in told.not_run:
        check, node = _key(result)
        checks.setdefault((node, result.verdict.value), []).append(check)
    for (node, verdict), names in checks.items():
        if names:
            labels = {"suite": report.suite, "subject": node, "node": node, "verdict": verdict}
            yield Series("not_run", {**labels, "checks": ",".join(names)}, 1)


def _of_nodes(
    report: RunReport,
    earlier: Iterable[Series],
    counting: Iterable[Result],
    told: Iterable[Series],
) -> Iterator[Series]:
    """Each node's worst verdict, and when a run judged it."""
    began: dict[str, float] = {}
    for item in earlier:
        if item.family == "timestamp_seconds" and "check" not in item.labels:
            began[item.labels["node"]] = item.value
    began |= {
        _text(result.subject.name): _began(report)
        for result in counting
        if result.tier is Tier.NODE
    }
    verdicts: dict[str, list[Verdict]] = {node: [Verdict.PASS] for node in began}
    for item in told:
        if item.family in ("verdict", "not_run") and item.labels["node"] in verdicts:
            verdicts[item.labels["node"]].append(Verdict(item.labels["verdict"]))
    for node, when in began.items():
        what = {"suite": report.suite, "subject": node, "node": node}
        yield Series("node_verdict", {**what, "verdict": worst(verdicts[node]).value}, 1)
        yield Series("timestamp_seconds", what, when)


_GPU = re.compile(r"\bGPU \d+[, ]*")  # the GPUs of all nodes are one population


def _began(report: RunReport) -> float:
    return datetime.fromisoformat(report.started).timestamp()


# --- the text format: https://prometheus.io/docs/instrumenting/exposition_formats/ -----------

_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LINE = re.compile(rf'{PREFIX}(\w+)\{{((?:\w+="(?:[^"\\]|\\.)*",?)+)\}} (\S+)')


def parse(text: str) -> list[Series]:
    """What a text has that `render` made. Raises ValueError for any other."""
    series = []
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or match[1] not in _FAMILIES:
            raise ValueError(f"not written by a validation: {printable(line, 60)!r}")
        labels = {name: re.sub(r"\\(.)", r"\1", text) for name, text in _LABEL.findall(match[2])}
        series.append(Series(match[1], labels, float(match[3])))
    return series


def _line(series: Series) -> str:
    labels = ",".join(f'{name}="{_quoted(text)}"' for name, text in series.labels.items())
    return f"{PREFIX}{series.family}{{{labels}}} {series.value:.17g}"


def _text(text: str) -> str:
    """As it is read again: nothing invisible, and nothing that no file can hold."""
    return printable(text).encode(errors="replace").decode()


def _quoted(text: str) -> str:
    return label(_text(text))
