"""The end of a run in the terminal: a line for each result, then what to do."""

import os
import textwrap
from collections import Counter
from dataclasses import replace
from typing import TextIO

from cluster.text import printable
from cluster.watching import columns, fitted, table
from validation.model import RunReport, Verdict
from validation.report import advice, scaling, words

_HEADER = ("tier", "check", "subject", "value", "threshold", "verdict")
_COLOURS = {
    Verdict.PASS: "32",
    Verdict.WARN: "33",
    Verdict.FAIL: "1;31",
    Verdict.SKIP: "2",
    Verdict.INCONCLUSIVE: "1;33",
}
_WIDTH = 120  # of messages, where no terminal says
_LINES = 100  # a person reads no more; the page has everything
_STEPS = 8  # more failures than this are counted, the reports have them all
_TABLE_LINES = 45  # that the steps leave for the table, where it needs them
_NOTES = 6  # of which as many lines are shown
_MESSAGE = 200  # characters, where there are more rows than room
_COMMAND = 400  # characters; nobody reads a longer one, and the page has it to copy


def render(report: RunReport, *, width: int | None = None, colour: bool = False) -> str:
    """`width` is that of the terminal; without one, only messages are wrapped.

    At most _LINES lines, whatever the number of nodes: the verdict, then what to do first, and of
    the table what is worst. The page has everything.
    """
    head = [*fitted(words.title(report), width), ""]
    end = [*_scaling(report, width), "", *_notes(report, width), *_verdict(report, width, colour)]
    last = [f"  details: {report.output}/report.html"] if report.output else []
    rows = list(words.rows(report.results))
    lines = _table(rows, width, colour)
    room = _LINES - len(head) - len(end) - len(last)
    steps = _next(report, width or _WIDTH, room - min(len(lines), _TABLE_LINES))
    if len(lines) > room - len(steps):
        lines = _shortened(rows, width, colour, room - len(steps))
    return "\n".join([*head, *lines, *end, *steps, *last]) + "\n"


def _notes(report: RunReport, width: int | None) -> list[str]:
    notes = [fitted(f"  note: {printable(note)}", width) for note in report.notes]
    lines = [line for note in notes[:_NOTES] for line in note[:_NOTES]]
    if len(notes) > _NOTES:
        lines.append(f"  and {len(notes) - _NOTES} more notes: see the report")
    return lines


def _shortened(rows: list[words.Row], width: int | None, colour: bool, room: int) -> list[str]:
    """The table with the worst rows that there is room for, in their order."""
    short = [replace(row, message=printable(row.message, _MESSAGE)) for row in rows]
    order = sorted(range(len(rows)), key=lambda index: words.WORST_FIRST.index(rows[index].verdict))
    # A row has a line and, where the terminal is narrow, a few more: as many rows as fit.
    for number in range(min(len(rows), room), 0, -1):
        kept = sorted(order[:number])
        left_out = [rows[index] for index in order[number:]]
        lines = _table([short[index] for index in kept], width, colour)
        if left_out:
            lines += fitted(f"  {_left_out(left_out)}", width)
        if len(lines) <= room:
            return lines
    return [f"  {words.count(len(rows), 'row')}: see the report"]


def _left_out(rows: list[words.Row]) -> str:
    counts = Counter(row.verdict for row in rows)
    parts = [
        f"{counts[verdict]} {verdict.name}" for verdict in words.WORST_FIRST if counts[verdict]
    ]
    return f"and {words.count(len(rows), 'more row')} ({', '.join(parts)}): see the report"


def terminal_width(stream: TextIO) -> int | None:
    """Of the terminal, or COLUMNS; none elsewhere."""
    return columns() if stream.isatty() or os.environ.get("COLUMNS") else None


def _table(rows: list[words.Row], width: int | None, colour: bool) -> list[str]:
    cells = [_HEADER] + [
        (row.tier, row.check, row.subject, row.value, row.threshold, row.verdict.name)
        for row in rows
    ]
    header, *plain = table(cells, width)
    # Messages go behind the verdict where there is room, else on lines of their own.
    column = max(len(line) for row in (header, *plain) for line in row) + 2
    lines = header
    for row, parts in zip(rows, plain, strict=True):
        name = row.verdict.name
        last = next(index for index, line in enumerate(parts) if line.endswith(name))
        shown = list(parts)
        shown[last] = parts[last].removesuffix(name) + _paint(name, row.verdict, colour)
        room = (width or _WIDTH) - column
        if row.message and len(row.message) <= room and header:
            shown[last] += " " * (column - len(parts[last])) + row.message
        elif row.message:
            wrapped = textwrap.wrap(row.message, max((width or _WIDTH) - 8, 24))
            shown += [f"        {part}" for part in wrapped]
        lines += shown
    return lines


def _scaling(report: RunReport, width: int | None) -> list[str]:
    """How trainings grow with their ranks, a row for each size."""
    lines = []
    for found in scaling.tables(report.results):
        lines += ["", f"  {found.title}"]
        lines += [line for row in table([found.header, *found.rows], width) for line in row]
    return lines


def _verdict(report: RunReport, width: int | None, colour: bool) -> list[str]:
    text = f"  {_paint(report.verdict.name, report.verdict, colour)}  {words.tally(report)}"
    text += f" · exit {report.exit_code}"
    sentences = (f"  {sentence}" for sentence in words.headline(report))
    return [part for line in (text, *sentences) for part in fitted(line, width)]


def _next(report: RunReport, width: int, room: int) -> list[str]:
    """The first step always, whatever room there is."""
    steps = advice.next_steps(report)
    lines: list[str] = []
    for number, step in enumerate(steps):
        shown = _step(step, width)
        if number == _STEPS or (number and len(lines) + len(shown) > room - 3):
            lines += ["", f"  and {len(steps) - number} more: see the report"]
            break
        lines += shown
    if steps:
        lines.append("")
    return lines


def _step(step: advice.Step, width: int) -> list[str]:
    lines = ["", *fitted(f"  {printable(step.title)}", width)]
    lines += [f"    {part}" for part in textwrap.wrap(step.advice, max(width - 4, 24))]
    for index, command in enumerate(step.commands):
        text = printable(command)
        if len(text) > _COMMAND:
            text = f"{text.split()[0]} … (a long command: see the report)"
        lines.append(f"    {'next:' if index == 0 else '     '} {text}")
    return lines


def _paint(text: str, verdict: Verdict, colour: bool) -> str:
    return f"\x1b[{_COLOURS[verdict]}m{text}\x1b[0m" if colour else text
