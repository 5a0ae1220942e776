"""One page that needs nothing else: no script, no font, no picture from elsewhere.

Its own script only filters rows; the page is complete without it, and its policy lets a browser run
no other. The page is a Jinja2 template with autoescape; whatever is put into it is first made one
printable line. This module prepares what the template shows, and computes nothing but coordinates.
"""

import base64
import hashlib
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
    Tier,
    Verdict,
)
from validation.report import advice, scaling, words

TEMPLATES = Path(__file__).parent / "templates"

_LONG_LIST = 400  # characters of a node list in a cell
_EACH = 20_000  # rows of nodes by themselves: more than that is no page
_STANDINGS = (Standing.FAILING, Standing.SUSPECT, Standing.UNPROVEN, Standing.PASSING)


def check() -> None:
    """Raises EnvironmentProblem where the page could not be made."""
    _environment()


def render(report: RunReport) -> str:
    rows = list(words.rows(report.results))
    rows.sort(key=lambda row: words.WORST_FIRST.index(row.verdict))
    fine = (Verdict.PASS, Verdict.SKIP)
    proofs = {(r.check, r.subject.name): r.proof for r in report.results if r.proof}
    each = list(words.folded_away(report.results))
    page = _environment().get_template("report.html.j2")
    text = page.render(
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
        scaled=list(map(_scaled, scaling.tables(report.results))),
        nodes=_nodes(report),
        each=each[:_EACH],
        more_of_each=max(len(each) - _EACH, 0),
        jobs=list(_ran(report.jobs, proofs)),
        script_hash=_script_hash(),
        sources=list(dict.fromkeys(_sources(report.results))),
        checks=[report.checks[name] for name in dict.fromkeys(r.check for r in report.results)],
    )
    return str(text)


def page(template: str, **values: object) -> str:
    """A page of another program's, from its template beside this one's.

    Raises EnvironmentProblem where Jinja2 is missing.
    """
    return str(_environment().get_template(template).render(**values))


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


@cache
def _script_hash() -> str:
    """As the page's policy names it: of the text between the tags, as the template puts it."""
    text = str(_environment().get_template("filter.js").render())
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


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
            words.named([item.node.name for item in items], _LONG_LIST),
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
    alone: bool = True  # whether it is one job

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


def _ran(jobs: Sequence[JobReport], proofs: Mapping[tuple[str, str], Proof]) -> Iterator[_Ran]:
    """Jobs of many nodes that ended well are one row, as long as they were asked for the same."""
    groups: dict[object, list[JobReport]] = {}
    for number, item in enumerate(jobs):
        well = item.job.tier is Tier.NODE and item.reply and item.reply.exit_code == 0
        image = item.job.container.image if item.job.container else ""
        groups.setdefault((item.job.payload, image) if well else number, []).append(item)
    for items in groups.values():
        if len(items) <= words.FOLD:
            yield from (_Ran.of(item, proofs) for item in items)
            continue
        seconds = [item.reply.seconds for item in items if item.reply and item.reply.seconds]
        first = items[0].job
        where = words.named([name for item in items for name in item.job.hosts])
        took = f"{duration(min(seconds))} to {duration(max(seconds))}" if seconds else "–"
        yield _Ran(
            f"{first.payload}-… ({len(items)} jobs)",
            f"1 rank on each of {where}"
            + (f", in {first.container.image}" if first.container else ""),
            words.ended(items[0].reply),
            "–",
            took,
            "each node's own words are in results.jsonl",
            alone=False,
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
    """Bus bandwidth over message size of one operation, in the coordinates of its picture."""

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
        by_way: dict[str, list[tuple[str, float]]] = {}
        for metric in result.metrics:
            if metric.name.startswith("busbw ") and not isinstance(metric.value, str):
                # A check of several operations puts the operation before the size.
                *words_before, number, unit = metric.name.removeprefix("busbw ").split(" ")
                points = by_way.setdefault(" ".join(words_before), [])
                points.append((f"{number} {unit}", float(metric.value)))
        for way, measured in by_way.items():
            if len(measured) > 1:
                yield _plot(result, way, measured)


def _plot(result: Result, way: str, measured: Sequence[tuple[str, float]]) -> Plot:
    judged = result.value is not None and result.value.name == f"busbw {way} {measured[-1][0]}"
    limit = _number(result.threshold) if judged or not way else None
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
        title=f"{way or result.check} on {compress(result.subject.nodes)}",
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


# --- efficiency over ranks -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    """One efficiency at each size; what is not measured at a size has no point."""

    name: str
    style: str  # of its class in style.css
    points: tuple[_Point, ...]

    @property
    def line(self) -> str:
        return " ".join(f"{point.x},{point.y}" for point in self.points)


@dataclass(frozen=True, slots=True)
class Scaled:
    """Efficiency over the number of ranks, in the coordinates of its picture, and the table."""

    table: scaling.Table
    width: int
    height: int
    left: int
    right: int
    bottom: int
    lines: tuple[_Line, ...]
    ticks: tuple[_Tick, ...]
    sizes: tuple[tuple[float, str], ...]  # where on the axis each is, and its name

    @property
    def words(self) -> str:
        """What the picture shows, for who cannot see it."""
        return "; ".join(
            f"{line.name}: " + ", ".join(f"{point.size} {point.value}" for point in line.points)
            for line in self.lines
        )


def _scaled(table: scaling.Table) -> Scaled:
    values = [value for _, line in table.lines for value in line if value is not None]
    top = _round_up(max([1.0, *values]))
    span_x, span_y = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(index: int) -> float:
        return round(_LEFT + span_x * (index + 0.5) / len(table.sizes), 1)

    def y(value: float) -> float:
        return round(_HEIGHT - _BOTTOM - value / top * span_y, 1)

    lines = tuple(
        _Line(
            name,
            f"line{scaling.LINES.index(name)}",
            tuple(
                _Point(x(index), y(value), f"{table.sizes[index]} ranks", words.number(value))
                for index, value in enumerate(line)
                if value is not None
            ),
        )
        for name, line in table.lines
    )
    ticks = tuple(_Tick(y(top * part / 4), words.number(top * part / 4)) for part in range(5))
    sizes = tuple((x(index), str(ranks)) for index, ranks in enumerate(table.sizes))
    frame = (_WIDTH, _HEIGHT, _LEFT, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM)
    return Scaled(table, *frame, lines, ticks, sizes)


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
