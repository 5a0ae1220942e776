"""One page that needs nothing else: no script, no font, no picture from elsewhere.

The page is a Jinja2 template with autoescape; whatever is put into it is first made one printable
line. This module prepares what the template shows, and computes nothing but coordinates.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cluster.errors import EnvironmentProblem
from cluster.hostlist import compress
from cluster.text import duration, printable
from validation.model import (
    JobReport,
    NodeReport,
    Proof,
    Result,
    RunReport,
    Standing,
    Threshold,
    Verdict,
)
from validation.report import advice, words

TEMPLATES = Path(__file__).parent / "templates"

# What is wrong stands first.
_ORDER = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.WARN, Verdict.PASS, Verdict.SKIP)
_STANDINGS = (Standing.FAILING, Standing.SUSPECT, Standing.UNPROVEN, Standing.PASSING)


def check() -> None:
    """Raises EnvironmentProblem where the page could not be made."""
    _environment()


def render(report: RunReport) -> str:
    rows = list(words.rows(report.results))
    rows.sort(key=lambda row: _ORDER.index(row.verdict))
    fine = (Verdict.PASS, Verdict.SKIP)
    proofs = {(r.check, r.subject.name): r.proof for r in report.results if r.proof}
    return page(
        "report.html.j2",
        report=report,
        headline=words.headline(report),
        title=words.title(report),
        tally=words.tally(report),
        began=words.moment(report.started),
        took=duration(report.seconds),
        steps=advice.next_steps(report),
        bad=[row for row in rows if row.verdict not in fine],
        good=[row for row in rows if row.verdict in fine],
        plots=list(_plots(report.results)),
        nodes=_nodes(report),
        jobs=[_Ran.of(item, proofs) for item in report.jobs],
        sources=list(dict.fromkeys(_sources(report.results))),
        checks=[report.checks[name] for name in dict.fromkeys(r.check for r in report.results)],
    )


def page(template: str, **shown: object) -> str:
    """A page of one of the templates."""
    return str(_environment().get_template(template).render(**shown))


@cache
def _environment() -> Any:
    try:
        # Not imported above: a login node may lack it, and should be told so in a sentence.
        jinja2 = importlib.import_module("jinja2")
        markupsafe = importlib.import_module("markupsafe")
    except ImportError as error:
        raise EnvironmentProblem(
            "Jinja2 is not installed (package python3-jinja2, or see requirements.txt)"
        ) from error

    def with_code(text: str) -> Any:
        """Words in backticks as code."""
        parts = [markupsafe.escape(part) for part in printable(text).split("`")]
        for index in range(1, len(parts), 2):
            parts[index] = markupsafe.Markup("<code>{}</code>").format(parts[index])
        return markupsafe.Markup("").join(parts)

    def harmless(value: object) -> object:
        return value if isinstance(value, markupsafe.Markup) else printable(str(value))

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["with_code"] = with_code
    return environment


# --- nodes -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """Nodes of which the run makes the same, for the same reason."""

    standing: Standing
    names: str
    state: str
    reason: str


def _nodes(report: RunReport) -> list[_Group]:
    groups: dict[tuple[Standing, str, str], list[NodeReport]] = {}
    for item in sorted(report.nodes, key=lambda item: _STANDINGS.index(item.standing)):
        kind = words.kind_of(item.reason)
        groups.setdefault((item.standing, item.state, kind), []).append(item)
    return [
        _Group(
            standing,
            compress(item.node.name for item in items),
            state,
            ("one of those that failed together: " if standing is Standing.SUSPECT else "")
            + words.for_all([(item.node.name, item.reason) for item in items]),
        )
        for (standing, state, _), items in groups.items()
    ]


# --- what ran --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ran:
    """A job, as a row."""

    name: str
    placement: str
    ended: str
    job_id: str
    took: str
    proof: str

    @classmethod
    def of(cls, item: JobReport, proofs: Mapping[tuple[str, str], Proof]) -> "_Ran":
        job, reply = item.job, item.reply
        proof = next(filter(None, (proofs.get((c, job.subject.name)) for c in job.checks)), None)
        placement = f"{words.count(job.ranks, 'rank')} on {compress(job.hosts)}"
        placement += f", in {job.container.image}" if job.container else ""
        seconds = reply.seconds if reply else None
        return cls(
            job.name,
            f"{placement}, {job.backend}" if job.backend else placement,
            words.ended(reply),
            (reply and reply.job_id) or "–",
            "–" if seconds is None else duration(seconds),
            words.proof(proof) if proof else "–",
        )


def _sources(results: Sequence[Result]) -> Iterator[tuple[str, str, str]]:
    for result in results:
        limit = result.threshold
        if limit and limit.provenance not in ("declared", "defined"):
            yield result.check, words.threshold(limit), limit.source


# --- bandwidth over size ---------------------------------------------------------------------

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 16, 44


@dataclass(frozen=True, slots=True)
class _Point:
    x: float
    y: float
    size: str
    value: str


@dataclass(frozen=True, slots=True)
class _Tick:
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Bus bandwidth over message size of one all_reduce, in the coordinates of its picture."""

    title: str
    verdict: Verdict
    width: int
    height: int
    left: int
    right: int  # where the axis ends
    bottom: int
    points: tuple[_Point, ...]
    ticks: tuple[_Tick, ...]
    limit: _Tick | None  # the threshold, which holds for the largest size

    @property
    def line(self) -> str:
        return " ".join(f"{point.x},{point.y}" for point in self.points)

    @property
    def words(self) -> str:
        """What the picture shows, for who cannot see it."""
        return ", ".join(f"{point.size}: {point.value}" for point in self.points)


def _plots(results: Sequence[Result]) -> Iterator[Plot]:
    for result in results:
        measured = [
            (metric.name.removeprefix("busbw "), float(metric.value))
            for metric in result.metrics
            if metric.name.startswith("busbw ") and not isinstance(metric.value, str)
        ]
        if len(measured) > 1:
            yield _plot(result, measured)


def _plot(result: Result, measured: Sequence[tuple[str, float]]) -> Plot:
    limit = _number(result.threshold)
    top = _round_up(max([value for _, value in measured] + ([limit] if limit else [])))
    span_x, span_y = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def y(value: float) -> float:
        return round(_HEIGHT - _BOTTOM - value / top * span_y, 1)

    points = tuple(
        _Point(
            round(_LEFT + span_x * (index + 0.5) / len(measured), 1),
            y(value),
            size,
            f"{words.number(value)} GB/s",
        )
        for index, (size, value) in enumerate(measured)
    )
    ticks = tuple(_Tick(y(top * part / 4), words.number(top * part / 4)) for part in range(5))
    return Plot(
        title=f"{result.check} on {compress(result.subject.nodes)}",
        verdict=result.verdict,
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_WIDTH - _RIGHT,
        bottom=_HEIGHT - _BOTTOM,
        points=points,
        ticks=ticks,
        limit=_Tick(y(limit), f"at least {words.number(limit)}") if limit else None,
    )


def _number(limit: Threshold | None) -> float | None:
    if limit is None or limit.op != "≥" or isinstance(limit.value, str):
        return None
    return float(limit.value)


def _round_up(value: float) -> float:
    """A round number above the value, for the end of an axis."""
    if value <= 0:
        return 1.0
    step = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.1
    while step > value:
        step /= 10
    return next(step * factor for factor in (1, 2, 4, 6, 8, 10) if step * factor >= value)
