"""Says what got worse between runs, and knows a change from the spread of the figures.

    python -m validation.compare RUN RUN                  before, after
    python -m validation.compare --last 5                 the last run with the five before it
    python -m validation.compare RUN --last 5             this run with the five before it
    python -m validation.compare --before R R R --after R R R

A RUN is the folder of one, its id in the history or the beginning of that, or `last`. Exit codes:
0 nothing got worse, 1 something got worse, 2 usage, 3 something may have got worse and cannot be
told.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

from cluster import version
from cluster.errors import PlumblineError, UsageError
from cluster.files import write_whole
from cluster.watching import columns, fitted, table
from validation import terminal
from validation.compare.judging import LEAST, Comparison, Finding, Outcome, Side, compare
from validation.history import runs, store
from validation.history.store import History, Known
from validation.model import EXIT_USAGE
from validation.report import html, words

DEFAULT = Path("results") / store.NAME
_ROWS = 30  # of each kind in a terminal; the page and --json have all


def main(arguments: Sequence[str] | None = None) -> int:
    terminal.prepare()
    options = _parser().parse_args(arguments)
    try:
        before, after = _sides(options)
        found = compare(before, after, options.least / 100)
        if options.html is not None:
            _write(options.html, _page(found, before, after))
        said = _json(found) if options.json else "\n".join(_lines(found, before, after)) + "\n"
        terminal.say(said)
    except PlumblineError as error:
        terminal.say(f"compare: {error}\n", sys.stderr)
        return EXIT_USAGE
    return found.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m validation.compare",
        description="Say what got worse between runs of a cluster.",
        epilog="Exit codes: 0 nothing got worse, 1 something got worse, 2 usage, 3 something may "
        "have got worse and cannot be told. A RUN is a folder, an id or its beginning, or `last`.",
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="the run before and the run after")
    parser.add_argument("--before", nargs="+", metavar="RUN", help="runs before")
    parser.add_argument("--after", nargs="+", metavar="RUN", help="runs after")
    parser.add_argument(
        "--last", type=int, metavar="N", help="before: the N runs of the same suite before the run"
    )
    parser.add_argument(
        "--history",
        metavar="FILE",
        type=Path,
        default=DEFAULT,
        help=f"file that runs are kept in (default: {DEFAULT})",
    )
    parser.add_argument(
        "--least",
        metavar="PERCENT",
        type=float,
        default=LEAST * 100,
        help=f"smallest change that is named (default: {LEAST:.0%})".replace("%", "%%"),
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a page too")
    parser.add_argument("--json", action="store_true", help="print everything as JSON instead")
    version.add_option(parser)
    return parser


# --- which runs --------------------------------------------------------------------------------


def _sides(options: argparse.Namespace) -> tuple[list[Side], list[Side]]:
    """Before and after. Raises UsageError, NoHistory, NoRun."""
    if not 0 < options.least < 100:
        raise UsageError(f"--least: expected a percentage between 0 and 100, not {options.least:g}")
    with ExitStack() as stack:
        known = _Runs(options.history, stack)
        if options.before or options.after:
            if options.runs or options.last is not None:
                raise UsageError("name runs with --before and --after, or without them, not both")
            if not (options.before and options.after):
                raise UsageError("--before and --after belong together: name runs for both")
            before, after = options.before, options.after
        elif options.last is not None:
            if options.last < 1:
                raise UsageError(f"--last: expected a number from 1 on, not {options.last}")
            if len(options.runs) > 1:
                raise UsageError("--last: name one run, or none for the last one")
            after = [known.side(text) for text in options.runs or ["last"]]
            return known.earlier(after[0], options.last), after
        elif len(options.runs) == 2:
            before, after = options.runs[:1], options.runs[1:]
        else:
            raise UsageError(
                f"which runs? {len(options.runs)} named; name two, or --last N, or --before RUN … "
                "--after RUN …"
            )
        sides = [known.side(text) for text in before], [known.side(text) for text in after]
    ids = [side.run_id for of_side in sides for side in of_side]
    if twice := [run_id for run_id in ids if ids.count(run_id) > 1]:
        raise UsageError(f"run {twice[0]} is named twice")
    return sides


class _Runs:
    """Runs by what a command line calls them; the history is opened where one is looked up."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self._history: History | None = None

    @property
    def history(self) -> History:
        if self._history is None:
            self._history = self._stack.enter_context(store.read(self._path))
        return self._history

    def side(self, text: str) -> Side:
        folder = Path(text)
        if (folder / "summary.json").is_file():
            run = runs.of_folder(folder)
            return Side(run.run_id, run.suite, run.started, run.results, run.figures)
        if folder.is_dir():
            raise UsageError(f"{folder} has no summary.json: it is no folder of a finished run")
        known = self.history.runs()
        if text == "last" and known:
            return self._kept(known[-1])
        fitting = [run for run in known if run.run_id == text] or [
            run for run in known if run.run_id.startswith(text)
        ]
        if not fitting:
            raise UsageError(
                f"there is no run {text!r}, neither as a folder nor in {self.history.path}; "
                "`python -m validation.history` lists them"
            )
        if len(fitting) > 1:
            names = words.listed([run.run_id for run in fitting], 4)
            raise UsageError(f"{text!r} is the beginning of {len(fitting)} runs: {names}")
        return self._kept(fitting[0])

    def earlier(self, after: Side, number: int) -> list[Side]:
        """Complete runs of the same suite before it, the latest ones."""
        fitting = [
            run
            for run in self.history.runs()
            if run.started < after.started
            and (run.suite, run.partial, run.interrupted) == (after.suite, False, False)
        ]
        if not fitting:
            raise UsageError(
                f"--last: {self.history.path} has no complete run of suite {after.suite} before "
                f"{after.run_id}"
            )
        return [self._kept(run) for run in fitting[-number:]]

    def _kept(self, run: Known) -> Side:
        results, figures = self.history.results(run), self.history.figures(run)
        return Side(run.run_id, run.suite, run.started, tuple(results), tuple(figures))


# --- what is said ------------------------------------------------------------------------------


def _headline(found: Comparison) -> str:
    bad, open_ = found.of(Outcome.WORSE), found.of(Outcome.CANNOT_TELL)
    if bad:
        more = f"; of {len(open_)} more it cannot be told" if open_ else ""
        return f"{words.count(len(bad), 'figure')} got worse{more}."
    if open_:
        return f"Of {words.count(len(open_), 'figure')} it cannot be told whether they got worse."
    if not found.findings:
        return "The runs have no figure in common: it cannot be told whether anything got worse."
    return "Nothing got worse."


def _method(found: Comparison) -> str:
    if found.sample == "runs":
        how = "the runs are the sample: permutation of runs, the largest statistic of all figures"
    else:
        how = "too few runs to be a sample, so the nodes are, each beside itself"
    return f"{words.count(len(found.findings), 'question')}; {how}"


def _told(side: Sequence[Side], name: str) -> str:
    moments = [
        f"{datetime.fromtimestamp(run.started, timezone.utc):%Y-%m-%d %H:%M} ({run.run_id})"
        for run in side
    ]
    suites = words.listed(list(dict.fromkeys(run.suite for run in side)), 3)
    runs_of = words.count(len(side), "run")
    return f"{name}: {runs_of} of suite {suites}: {words.listed(moments, 2)}"


def _cells(item: Finding) -> tuple[str, ...]:
    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.4g} {item.unit}".strip()

    return (
        item.check,
        item.figure,
        item.where,
        number(item.before),
        number(item.after),
        "–" if item.change is None else f"{item.change:+.1%}",
        "–" if item.delta is None else f"{item.delta:+.2f}",
        "–" if item.p is None else f"{item.p:.3g}",
    )


_HEADER = ("check", "figure", "where", "before", "after", "change", "delta", "p")
_TITLES = {
    Outcome.WORSE: "Worse",
    Outcome.CANNOT_TELL: "Cannot be told",
    Outcome.NOT_WORSE: "Not worse",
}


def _lines(found: Comparison, before: Sequence[Side], after: Sequence[Side]) -> Iterator[str]:
    width = columns()
    for text in (_told(before, "before"), _told(after, "after"), _method(found)):
        yield from fitted(f"  {text}", width)
    for outcome in (Outcome.WORSE, Outcome.CANNOT_TELL):
        items = found.of(outcome)
        if not items:
            continue
        yield ""
        yield f"  {_TITLES[outcome].upper()}"
        cells = table([_HEADER, *map(_cells, items[:_ROWS])], width)
        yield from cells[0]
        for item, row in zip(items, cells[1:], strict=False):
            yield from row
            yield from fitted(f"      {item.why}", width)
        if len(items) > _ROWS:
            yield f"  and {len(items) - _ROWS} more: see --html or --json"
    yield ""
    yield from fitted(f"  {_headline(found)} exit {found.exit_code}", width)


def _page(found: Comparison, before: Sequence[Side], after: Sequence[Side]) -> str:
    names = (*_HEADER, "why")
    sections = [
        (
            _TITLES[outcome],
            [list(zip(names, (*_cells(i), i.why), strict=True)) for i in found.of(outcome)],
        )
        for outcome in Outcome
        if found.of(outcome)
    ]
    return html.page(
        "compare.html.j2",
        headline=_headline(found),
        colour={0: "pass", 1: "fail"}.get(found.exit_code, "inconclusive"),
        sides=[_told(before, "before"), _told(after, "after")],
        method=_method(found),
        sections=sections,
    )


def _json(found: Comparison) -> str:
    document = {
        "schema": 1,
        "exit_code": found.exit_code,
        "before": found.before,
        "after": found.after,
        "sample": found.sample,
        **{
            outcome.name.lower(): [
                {**dataclasses.asdict(item), "outcome": item.outcome.value}
                for item in found.of(outcome)
            ]
            for outcome in Outcome
        },
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise UsageError(f"--html: {path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
