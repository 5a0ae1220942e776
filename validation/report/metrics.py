"""`metrics.prom`: the run in Prometheus' text format, for node_exporter's textfile collector.

A judgement is told with its verdict, its time, what was judged and what that was held against, each
with the labels suite, check, subject and node. What else a node measured is told node by node where
the judgement is not green; of all others it is told how far they lie apart, so that the file of a
large cluster stays one that a scrape can carry. `node` is empty where the subject is several
nodes: node_exporter hands that on, and Prometheus (`speaks_of_nodes` in its jobs) does not put the
host there that the file lies on, which would accuse it.

What a partial run did not judge is not forgotten: see `render`.
"""

import re
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from cluster.text import printable
from validation.model import Metric, Result, RunReport, Standing, Tier, Verdict
from validation.report import words

PREFIX = "plumbline_validation_"

_FAMILIES = {
    "exit_code": "Exit code of the last run.",
    "duration_seconds": "How long the run took.",
    "last_run_timestamp_seconds": "When the run began.",
    "results": "Judgements by verdict.",
    "nodes": "Nodes by what the run makes of them.",
    "left_out": "What a partial run was not asked for.",
    "verdict": "1 for the verdict that was given last.",
    "timestamp_seconds": "When the run began that gave it.",
    "blamed": "1 for a node that is at fault for a failure of several nodes.",
    "value": "What was measured.",
    "spread": "The least, the median and the largest of what passing nodes measured.",
    "threshold": "What the measured value was held against.",
}


@dataclass(frozen=True)
class Series:
    family: str
    labels: Mapping[str, str]
    value: float

    @property
    def judged(self) -> tuple[str, str] | None:
        """Check and subject; None of what is about the run."""
        return (self.labels["check"], self.labels["subject"]) if "subject" in self.labels else None


def render(report: RunReport, former: str = "") -> str:
    """The run, and of a partial run also what it leaves standing of the text before it.

    A partial run replaces what it judged of single nodes. Of several nodes only a failure counts:
    that a few of them, or a few checks, passed does not take back what failed with all.
    """
    series = list(_of_run(report))
    earlier = parse(former) if report.left_out else []
    known = {item.judged for item in earlier}
    replaced = set()
    for result in report.results:
        key = (_text(result.check), _text(result.subject.name))
        if key not in known or _counts(result):
            replaced.add(key)
            series += _of_result(report, result)
    series += _spreads(report)
    series = [*_kept(earlier, replaced), *series]
    lines = []
    for family, text in _FAMILIES.items():
        if of_family := [item for item in series if item.family == family]:
            lines += [f"# HELP {PREFIX}{family} {text}", f"# TYPE {PREFIX}{family} gauge"]
            lines += [_line(item) for item in of_family]
    return "\n".join(lines) + "\n"


def _counts(result: Result) -> bool:
    """Whether what a partial run found takes the place of what an earlier one did."""
    if result.tier is Tier.NODE:
        return result.verdict is not Verdict.INCONCLUSIVE
    return result.verdict is Verdict.FAIL


def _kept(earlier: Iterable[Series], replaced: Collection[tuple[str, str]]) -> Iterator[Series]:
    for item in earlier:
        if item.judged is None:
            if item.labels.get("partial") == "false":
                yield item
        elif item.judged not in replaced:
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


def _of_result(report: RunReport, result: Result) -> Iterator[Series]:
    alone = result.tier is Tier.NODE
    what = {
        "suite": report.suite,
        "check": result.check,
        "subject": result.subject.name,
        "node": result.subject.name if alone else "",
    }
    yield Series("verdict", {**what, "verdict": result.verdict.value}, 1)
    yield Series("timestamp_seconds", what, _began(report))
    if result.verdict is Verdict.FAIL and not alone:
        for node in result.blamed or ():
            yield Series("blamed", {**what, "node": node}, 1)
    values: dict[tuple[str, str], float] = {}
    for metric in _each(result) if _whole(result) else _judged(result):
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
    return (*_judged(result), *result.metrics)


def _whole(result: Result) -> bool:
    """Whether all that was measured is told: of what is not green, and of nodes together."""
    return result.tier is not Tier.NODE or result.verdict is not Verdict.PASS


def _spreads(report: RunReport) -> Iterator[Series]:
    """What is not told node by node, over the nodes that passed."""
    numbers: dict[tuple[str, str, str], list[float]] = {}
    for result in report.results:
        if not _whole(result):
            told = {(metric.name, metric.unit) for metric in _judged(result)}
            for metric in result.metrics:
                if not isinstance(metric.value, str) and (metric.name, metric.unit) not in told:
                    key = (result.check, _GPU.sub("GPU ", metric.name), metric.unit)
                    numbers.setdefault(key, []).append(metric.value)
    scope = {"suite": report.suite, "partial": "true" if report.left_out else "false"}
    for (check, name, unit), values in numbers.items():
        labels = {**scope, "check": check, "metric": name, "unit": unit}
        for statistic, of in (("min", min), ("median", statistics.median), ("max", max)):
            yield Series("spread", {**labels, "statistic": statistic}, of(values))


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
    return _text(text).replace("\\", "\\\\").replace('"', '\\"')
