"""One run as the history keeps it, made of a report or of the folder that a run left behind."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cluster import version
from cluster.errors import PlumblineError
from cluster.text import printable
from validation.history.figures import Worse, worse
from validation.model import Metric, Result, RunReport, Tier, Verdict


class NoRun(PlumblineError):
    """Why a folder cannot be read as a run."""


@dataclass(frozen=True, slots=True)
class Judged:
    check: str
    tier: str
    subject: str
    verdict: str
    message: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that a run measured. `threshold` is what it was held against, if it was judged."""

    check: str
    subject: str
    name: str
    unit: str
    value: float
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    run_id: str
    suite: str
    cluster: str
    started: float  # seconds since 1970, UTC
    seconds: float
    verdict: str
    version: str  # of the Plumbline that ran it; empty where a folder does not say
    partial: bool
    interrupted: bool
    results: tuple[Judged, ...]
    figures: tuple[Figure, ...]


def of_report(report: RunReport) -> Run:
    return Run(
        run_id=report.run_id,
        suite=report.suite,
        cluster=report.cluster,
        started=datetime.fromisoformat(report.started).timestamp(),
        seconds=report.seconds,
        verdict=report.verdict.value,
        version=version.VERSION,
        partial=bool(report.left_out),
        interrupted=report.interrupted,
        results=tuple(
            Judged(r.check, r.tier.value, r.subject.name, r.verdict.value, printable(r.message))
            for r in report.results
        ),
        figures=_once(figure for result in report.results for figure in _of_result(result)),
    )


def _of_result(result: Result) -> Iterator[Figure]:
    limit = result.threshold.value if result.threshold else None
    judged = result.value
    if judged is not None:
        yield from _figure(result.check, result.subject.name, judged, limit)
    for metric in result.metrics:
        yield from _figure(result.check, result.subject.name, metric, None)


def _figure(check: str, subject: str, metric: Metric, limit: Any) -> Iterator[Figure]:
    """Nothing where it is no finite number, or one that is not kept."""
    number = _number(metric.value)
    if number is not None and worse(check, metric.name, metric.unit) is not Worse.OMIT:
        yield Figure(check, subject, metric.name, metric.unit, number, _number(limit))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _once(figures: Iterable[Figure]) -> tuple[Figure, ...]:
    """The first of those that are told twice: the judged one."""
    known: dict[tuple[str, str, str, str], Figure] = {}
    for figure in figures:
        known.setdefault((figure.check, figure.subject, figure.name, figure.unit), figure)
    return tuple(known.values())


# --- of a folder -----------------------------------------------------------------------------


def of_folder(folder: Path) -> Run:
    """The run that left this folder. Raises NoRun."""
    try:
        text = (folder / "summary.json").read_text(encoding="utf-8")
    except OSError as error:
        raise NoRun(f"{folder}: summary.json: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise NoRun(f"{folder}: summary.json is no text: {error}") from error
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("schema") not in (1, 2):
            raise NoRun(f"{folder}: summary.json is of another schema than 1 or 2")
        return _run(document, folder)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise NoRun(f"{folder}: summary.json is not a run's: {error!r}") from error


def _run(document: Mapping[str, Any], folder: Path) -> Run:
    results = tuple(
        Judged(
            str(row["check"]),
            Tier(row["tier"]).value,
            str(row["subject"]["name"]),
            Verdict(row["verdict"]).value,
            printable(str(row["message"])),
        )
        for row in document["results"]
    )
    rows = document["results"] if document["schema"] == 1 else _of_both(document, folder)
    return Run(
        run_id=str(document["run"]),
        suite=str(document["suite"]),
        cluster=str(document["cluster"]),
        started=datetime.fromisoformat(document["started"]).timestamp(),
        seconds=float(document["seconds"]),
        verdict=Verdict(document["verdict"]).value,
        version="",
        partial=bool(document["partial"]),
        interrupted=bool(document["interrupted"]),
        results=results,
        figures=_once(figure for row in rows for figure in _of_row(row)),
    )


def _of_both(document: Mapping[str, Any], folder: Path) -> Iterator[Mapping[str, Any]]:
    """The results with all that was measured, which results.jsonl alone has of nodes."""
    settled = {(row["check"], row["subject"]["name"]) for row in document["results"]}
    try:
        with open(folder / "results.jsonl", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                if (row["check"], row["subject"]["name"]) in settled:
                    yield row
    except OSError as error:
        raise NoRun(f"{folder}: results.jsonl: {error.strerror}") from error


def _of_row(row: Mapping[str, Any]) -> Iterator[Figure]:
    check, subject = str(row["check"]), str(row["subject"]["name"])
    judged, limit = row["value"], row["threshold"]
    if judged is not None:
        yield from _figure(check, subject, _metric(judged), limit["value"] if limit else None)
    for metric in row["metrics"]:
        yield from _figure(check, subject, _metric(metric), None)


def _metric(row: Mapping[str, Any]) -> Metric:
    return Metric(str(row["name"]), row["value"], str(row["unit"]))
