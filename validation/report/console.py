"""The end of a run in the terminal: a line for each result, then what to do."""

import shutil
import textwrap
from collections.abc import Sequence

from cluster.text import printable
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
_STEPS = 8  # more failures than this are counted, the reports have them all


def render(report: RunReport, *, width: int = 120, colour: bool = False) -> str:
    lines = [words.title(report), ""]
    lines += _table(list(words.rows(report.results)), width, colour)
    lines.append("")
    lines += [f"  note: {printable(note)}" for note in report.notes]
    lines += _verdict(report, colour)
    lines += _next(report, width)
    lines += [f"  details: {report.output}/report.html"] if report.output else []
    return "\n".join(lines) + "\n"


def terminal_width() -> int:
    return shutil.get_terminal_size((120, 40)).columns


def table(cells: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned columns, two blanks apart, indented by two."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _table(rows: list[words.Row], width: int, colour: bool) -> list[str]:
    cells = [_HEADER] + [
        (row.tier, row.check, row.subject, row.value, row.threshold, row.verdict.name)
        for row in rows
    ]
    plain = table(cells)
    # Messages go behind the verdict where there is room, else on lines of their own.
    column = max(len(line) for line in plain) + 2
    lines = [plain[0]]
    for row, line in zip(rows, plain[1:], strict=True):
        name = row.verdict.name
        head = line[: len(line) - len(name)]
        text = head + _paint(name, row.verdict, colour)
        if row.message and column + len(row.message) <= width:
            lines.append(text + " " * (column - len(line)) + row.message)
        elif row.message:
            wrapped = textwrap.wrap(row.message, max(width - 8, 40))
            lines += [text, *(f"        {part}" for part in wrapped)]
        else:
            lines.append(text)
    return lines


def _verdict(report: RunReport, colour: bool) -> list[str]:
    text = f"  {_paint(report.verdict.name, report.verdict, colour)}  {words.tally(report)}"
    text += f" · exit {report.exit_code}"
    return [text, *(f"  {sentence}" for sentence in words.headline(report))]


def _next(report: RunReport, width: int) -> list[str]:
    steps = advice.next_steps(report)
    lines = []
    for step in steps[:_STEPS]:
        lines += ["", f"  {printable(step.title)}"]
        lines += [f"    {part}" for part in textwrap.wrap(step.advice, max(width - 4, 40))]
        for index, command in enumerate(step.commands):
            lines.append(f"    {'next:' if index == 0 else '     '} {printable(command)}")
    if len(steps) > _STEPS:
        lines += ["", f"  and {len(steps) - _STEPS} more: see the report"]
    if steps:
        lines.append("")
    return lines


def _paint(text: str, verdict: Verdict, colour: bool) -> str:
    return f"\x1b[{_COLOURS[verdict]}m{text}\x1b[0m" if colour else text
