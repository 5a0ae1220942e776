"""`metrics.prom`: the run in Prometheus' text format, for node_exporter's textfile collector.

A partial run says so in every series that could be taken for a verdict about the cluster.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

from validation.model import RunReport, Standing, Verdict, printable
from validation.report import words

Series = tuple[Mapping[str, str], float]


def render(report: RunReport) -> str:
    lines = []
    for name, text, series in _families(report):
        lines += [f"# HELP plumbline_{name} {text}", f"# TYPE plumbline_{name} gauge"]
        lines += [f"plumbline_{name}{_labels(labels)} {value:.17g}" for labels, value in series]
    return "\n".join(lines) + "\n"


def _families(report: RunReport) -> Iterator[tuple[str, str, list[Series]]]:
    partial = "true" if report.left_out else "false"
    scope = {"cluster": report.cluster, "suite": report.suite, "partial": partial}
    yield "exit_code", "Exit code of the last run.", [(scope, report.exit_code)]
    yield "duration_seconds", "How long the run took.", [(scope, round(report.seconds, 1))]
    started = datetime.fromisoformat(report.started).timestamp()
    yield "started_timestamp_seconds", "When the run began.", [(scope, started)]
    yield (
        "results",
        "Judgements by verdict.",
        [
            ({**scope, "verdict": v.value}, sum(r.verdict is v for r in report.results))
            for v in Verdict
        ],
    )
    yield (
        "nodes",
        "Nodes by what the run makes of them.",
        [
            ({**scope, "standing": which.value}, len(words.standing(report, which)))
            for which in Standing
        ],
    )
    if report.left_out:
        series: list[Series] = [({**scope, "what": what}, 1) for what in report.left_out]
        yield "left_out", "What a partial run was not asked for.", series
    yield "measured", "What was measured.", list(_measured(report))


def _measured(report: RunReport) -> Iterator[Series]:
    for result in report.results:
        what = {
            "cluster": report.cluster,
            "check": result.check,
            "subject": result.subject.name,
            "verdict": result.verdict.value,
        }
        values = dict.fromkeys((*((result.value,) if result.value else ()), *result.metrics))
        for metric in values:
            if not isinstance(metric.value, str):
                yield {**what, "metric": metric.name, "unit": metric.unit}, metric.value


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_quoted(text)}"' for name, text in labels.items()) + "}"


def _quoted(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
