"""Shows what runs found over time: the runs, or the figures of a node or a check.

    python -m validation.history                      the runs
    python -m validation.history gpu17                what was judged of a node, and its figures
    python -m validation.history gemm --metric bf16   a figure of a check over all nodes
    python -m validation.history --import results/*   runs from before there was a history

The figure of a run is the median over the GPUs and nodes that are shown. Exit code 0, or 2 where
the command line or the history is not right.
"""

import argparse
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from cluster import version
from cluster.errors import PlumblineError, UsageError
from cluster.files import write_whole
from cluster.text import duration, printable
from cluster.watching import columns, fitted, table
from validation import terminal
from validation.history import plots, runs, store
from validation.history.figures import pooled
from validation.history.runs import Judged
from validation.history.store import History, Known, Point
from validation.model import EXIT_USAGE
from validation.report import html, words

DEFAULT = Path("results") / store.NAME
_RUNS = 20  # the last ones, where nothing else is asked for
_FIGURES = 30  # lines; more are counted
_DAY_S = 86400.0


def main(arguments: Sequence[str] | None = None) -> int:
    terminal.prepare()
    options = _parser().parse_args(arguments)
    try:
        lines = _imported(options) if options.folders is not None else _shown(options)
        terminal.say("\n".join(lines) + "\n")
    except PlumblineError as error:
        terminal.say(f"history: {error}\n", sys.stderr)
        return EXIT_USAGE
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m validation.history",
        description="Show the runs of a cluster, or the figures of a node or a check over time.",
    )
    parser.add_argument("what", nargs="?", metavar="NODE|CHECK")
    parser.add_argument(
        "--history",
        metavar="FILE",
        type=Path,
        default=DEFAULT,
        help=f"file that runs are kept in (default: {DEFAULT})",
    )
    parser.add_argument(
        "--since", metavar="WHEN", help="from then on: a date such as 2026-11-01, or 30d, 12h"
    )
    parser.add_argument("--last", metavar="N", type=int, help=f"so many runs (default: {_RUNS})")
    parser.add_argument("--suite", help="runs of this suite only")
    parser.add_argument(
        "--metric", metavar="TEXT", help="figures that have this in their name, such as bf16"
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a page with plots too")
    parser.add_argument(
        "--import",
        dest="folders",
        metavar="FOLDER",
        nargs="+",
        type=Path,
        help="keep the runs that left these folders; other files are passed over",
    )
    version.add_option(parser)
    return parser


# --- what is asked for -----------------------------------------------------------------------


def _chosen(history: History, options: argparse.Namespace) -> list[Known]:
    known = history.runs(_since(options.since))
    if options.suite is not None:
        if options.suite not in {run.suite for run in history.runs()}:
            raise UsageError(f"--suite: {history.path} has no run of a suite {options.suite}")
        known = [run for run in known if run.suite == options.suite]
    if options.last is not None and options.last < 1:
        raise UsageError(f"--last: expected a number of runs from 1 on, found {options.last}")
    if not known:
        raise UsageError(f"{history.path} has no run since {options.since or 'it began'}")
    return known[-(options.last or (len(known) if options.since else _RUNS)) :]


_AGO = {"h": 3600.0, "d": _DAY_S, "w": 7 * _DAY_S}


def _since(text: str | None) -> float:
    if text is None:
        return 0.0
    if match := re.fullmatch(r"(\d{1,5})([hdw])", text):
        return time.time() - int(match[1]) * _AGO[match[2]]
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--since: expected a date such as 2026-11-01, or 12h, 30d or 8w; found {text!r}"
        ) from None
    return (when if when.tzinfo else when.astimezone()).timestamp()


def _shown(options: argparse.Namespace) -> Iterator[str]:
    with store.read(options.history) as history:
        known = _chosen(history, options)
        if options.what is None:
            if options.metric is not None:
                raise UsageError("--metric: name a node or a check too, such as gemm")
            shown: list[_Series] = []
            lines = _table(known)
        else:
            subject, check = _meant(history, options.what)
            shown = _series(history.over_time(known, subject, check), options.metric)
            lines = [
                *_verdicts(known, history.results_of(subject, check), subject),
                *_figures(shown, options),
            ]
    if options.html is not None:
        _write(options.html, _page(options, known, shown))
        lines.append(f"  written to {options.html}")
    yield from lines


def _meant(history: History, what: str) -> tuple[str | None, str | None]:
    """The subject or the check of this name. Raises UsageError."""
    checks, subjects = history.checks(), history.subjects()
    if what in checks:
        return None, what
    if what in subjects:
        return what, None
    raise UsageError(
        f"{history.path} knows no node and no check {what!r}; checks are "
        f"{words.listed(checks, 40)}; nodes are {words.named(subjects)}"
        if checks
        else f"{history.path} has no results yet"
    )


# --- runs ------------------------------------------------------------------------------------


def _began(run: Known) -> str:
    return f"{datetime.fromtimestamp(run.started, timezone.utc):%Y-%m-%d %H:%M}"


def _results(run: Known) -> str:
    counts = dict(run.counts)
    order = [verdict.value for verdict in words.WORST_FIRST]
    parts = [f"{counts[verdict]} {verdict}" for verdict in order if verdict in counts]
    marks = [
        word for word, on in (("partial", run.partial), ("interrupted", run.interrupted)) if on
    ]
    return ", ".join(parts) + (f" ({', '.join(marks)})" if marks else "")


def _table(known: Sequence[Known]) -> list[str]:
    header = ("began (UTC)", "run", "suite", "cluster", "took", "verdict", "results")
    cells = [
        (
            *(_began(run), run.run_id, run.suite, run.cluster, duration(run.seconds)),
            *(run.verdict.upper(), _results(run)),
        )
        for run in known
    ]
    return [line for row in table([header, *cells], columns()) for line in row]


# --- verdicts --------------------------------------------------------------------------------


def _verdicts(
    known: Sequence[Known], results: Sequence[tuple[int, Judged]], subject: str | None
) -> list[str]:
    """Of each run what was not green of the node or the check."""
    by_run: dict[int, list[Judged]] = {}
    for number, judged in results:
        by_run.setdefault(number, []).append(judged)
    order = [verdict.value for verdict in words.WORST_FIRST]
    cells = []
    for run in known:
        mine = sorted(by_run.get(run.number, ()), key=lambda item: order.index(item.verdict))
        if not mine:
            continue
        bad = [item for item in mine if item.verdict not in ("pass", "skip")]
        names = [item.check if subject else item.subject for item in bad]
        said = f"{words.listed(names, 3)}: {bad[0].message}" if bad else ""
        cells.append((_began(run), run.suite, mine[0].verdict.upper(), printable(said, 200)))
    if not cells:
        return ["  none of these runs judged it"]
    header = ("began (UTC)", "suite", "verdict", "what did not pass")
    return [line for row in table([header, *cells], columns()) for line in row]


# --- figures ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Series:
    """A figure over time."""

    check: str
    name: str
    unit: str
    samples: tuple[plots.Sample, ...]
    limit: float | None

    @property
    def values(self) -> list[float]:
        return [sample.value for sample in self.samples]

    @property
    def title(self) -> str:
        return f"{self.check}: {self.name}"


def _series(points: Sequence[Point], metric: str | None) -> list[_Series]:
    names = {point.figure.name for point in points}
    exact = metric in names
    groups: dict[tuple[str, str, str], dict[int, list[Point]]] = {}
    for point in points:
        figure = point.figure
        if metric is None:
            name = pooled(figure.name)
        elif exact:
            name = figure.name if figure.name == metric else ""
        else:
            name = pooled(figure.name) if metric.lower() in figure.name.lower() else ""
        if name:
            of_run = groups.setdefault((figure.check, name, figure.unit), {})
            of_run.setdefault(point.run.number, []).append(point)
    if points and not groups:
        raise UsageError(
            f"--metric: no figure has {metric!r} in its name; there is "
            f"{words.listed(sorted({pooled(name) for name in names}), 12)}"
        )
    series = []
    for (check, name, unit), by_run in groups.items():
        limits = [p.figure.threshold for of_run in by_run.values() for p in of_run]
        known = {limit for limit in limits if limit is not None}
        samples = tuple(
            plots.Sample(
                of_run[0].run.started,
                statistics.median(point.figure.value for point in of_run),
                of_run[0].run.run_id,
                of_run[0].run.verdict == "fail",
            )
            for of_run in by_run.values()
        )
        limit = known.pop() if len(known) == 1 else None
        series.append(_Series(check, name, unit, samples, limit))
    return sorted(series, key=lambda item: (item.check, item.name))


def _figures(series: Sequence[_Series], options: argparse.Namespace) -> list[str]:
    if not series:
        return ["", "  no figure of it is kept: see docs/operate/history.md for those that are"]
    width = columns()
    if len(series) == 1:
        (only,) = series
        first, last = (_day(sample.when) for sample in (only.samples[0], only.samples[-1]))
        limit = "" if only.limit is None else f"; the threshold (-) is {only.limit:.4g}"
        text = f"  {only.title} in {only.unit or 'numbers'}, {first} to {last}{limit}"
        return ["", *fitted(text, width), *plots.chart(only.samples, min(width, 100), only.limit)]
    header = ("figure", "over time", "last", "median", "least", "most", "unit")
    blocks = plots.BLOCKS if _blocks() else plots.PLAIN
    cells = [
        (
            item.title,
            plots.sparkline(item.values, 20, blocks),
            f"{item.values[-1]:.4g}",
            f"{statistics.median(item.values):.4g}",
            *(f"{least_or_most(item.values):.4g}" for least_or_most in (min, max)),
            item.unit,
        )
        for item in series[:_FIGURES]
    ]
    lines = ["", *(line for row in table([header, *cells], width) for line in row)]
    if len(series) > _FIGURES:
        lines.append(f"  and {len(series) - _FIGURES} more: choose with --metric")
    return lines


def _blocks() -> bool:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        plots.BLOCKS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return os.environ.get("TERM") != "dumb"


def _day(when: float) -> str:
    return f"{datetime.fromtimestamp(when, timezone.utc):%Y-%m-%d}"


# --- a page ----------------------------------------------------------------------------------


def _page(options: argparse.Namespace, known: Sequence[Known], series: Sequence[_Series]) -> str:
    return html.page(
        "history.html.j2",
        title=options.what or "all runs",
        history=str(options.history),
        runs=[
            {
                "began": _began(run),
                "name": run.run_id,
                "suite": run.suite,
                "verdict": run.verdict,
                "results": _results(run),
            }
            for run in known
        ],
        figures=[
            {
                "title": item.title,
                "last": f"{item.values[-1]:.4g} {item.unit}".strip(),
                "svg": plots.svg(item.samples, item.unit, item.limit),
            }
            for item in series
        ],
    )


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise UsageError(f"--html: {path}: {error.strerror}") from error


# --- older runs ------------------------------------------------------------------------------


def _imported(options: argparse.Namespace) -> Iterator[str]:
    """A line for each folder that is no run, and what was kept. Raises where nothing could be."""
    if options.what is not None:
        raise UsageError("--import: name folders behind it, and no node or check before")
    folders = [path for path in options.folders if path.is_dir()]
    if missing := [str(path) for path in options.folders if not path.exists()]:
        raise UsageError(f"--import: there is no {words.listed(missing, 3)}")
    runs_there = [path for path in folders if (path / "summary.json").is_file()]
    if not runs_there:
        raise UsageError("--import: none of these is the folder of a finished run")
    try:
        options.history.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--history: {options.history.parent}: {error.strerror}") from error
    new = there = 0
    refused = [
        f"{path}: no summary.json: it did not end" for path in folders if path not in runs_there
    ]
    with store.opened(options.history) as history:
        for folder in runs_there:
            try:
                added = history.add(runs.of_folder(folder))
            except runs.NoRun as error:
                refused.append(str(error))
                continue
            new, there = new + added, there + (not added)
    if not new + there:
        raise UsageError("\n".join(["--import: none of these could be read", *refused]))
    yield from (f"  left out: {problem}" for problem in refused)
    yield f"  {words.count(new, 'run')} added to {options.history}" + (
        f", {there} already there" if there else ""
    )


if __name__ == "__main__":
    sys.exit(main())
