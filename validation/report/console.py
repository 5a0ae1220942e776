"""The end of a run in the terminal: a line for each result, then what to do."""

import os
import textwrap
from typing import TextIO

from cluster.text import printable
from cluster.watching import columns, fitted, table
from validation.model import RunReport, Verdict
from validation.report import advice, words

_HEADER = ("tier", "check", "subject", "value", "threshold", "verdict")
_COLOURS = {
    Verdict.PASS: "32",
    Verdict.WARN: "33",
    Verdict.FAIL: "1;31",
    Verdict.SKIP: "2",
    Verdict.INCONCLUSIVE: "1;33",
}
_WIDTH = 120  # of messages, where no terminal says
_STEPS = 8  # more failures than this are counted, the reports have them all


def render(report: RunReport, *, width: int | None = None, colour: bool = False) -> str:
    """`width` is that of the terminal; without one, only messages are wrapped."""
    lines = [*fitted(words.title(report), width), ""]
    lines += _table(list(words.rows(report.results)), width, colour)
    lines.append("")
    for note in report.notes:
        lines += fitted(f"  note: {printable(note)}", width)
    lines += _verdict(report, width, colour)
    lines += _next(report, width or _WIDTH)
    lines += [f"  go on: {report.resume}", ""] if report.resume else []
    lines += [f"  details: {report.output}/report.html"] if report.output else []
    return "\n".join(lines) + "\n"


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


def _verdict(report: RunReport, width: int | None, colour: bool) -> list[str]:
    text = f"  {_paint(report.verdict.name, report.verdict, colour)}  {words.tally(report)}"
    text += f" · exit {report.exit_code}"
    sentences = (f"  {sentence}" for sentence in words.headline(report))
    return [part for line in (text, *sentences) for part in fitted(line, width)]


def _next(report: RunReport, width: int) -> list[str]:
    steps = advice.next_steps(report)
    lines = []
    for step in steps[:_STEPS]:
        lines += ["", *fitted(f"  {printable(step.title)}", width)]
        lines += [f"    {part}" for part in textwrap.wrap(step.advice, max(width - 4, 24))]
        for index, command in enumerate(step.commands):
            lines.append(f"    {'next:' if index == 0 else '     '} {printable(command)}")
    if len(steps) > _STEPS:
        lines += ["", f"  and {len(steps) - _STEPS} more: see the report"]
    if steps:
        lines.append("")
    return lines


def _paint(text: str, verdict: Verdict, colour: bool) -> str:
    return f"\x1b[{_COLOURS[verdict]}m{text}\x1b[0m" if colour else text
