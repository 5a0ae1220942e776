"""The lines by which a person watches a run: in place on a terminal, one below another elsewhere.

Deployment and validation show the same lines: what is done, how many of how many, the time so far
and the time that is expected. The characters are ASCII, which every terminal has.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from cluster.text import duration

EVERY_S = 0.5  # a line on a terminal is drawn anew
STILL_S = 60.0  # without a terminal, a line says that the run goes on
LEAST = 20  # columns: below that, lines are cut no further
_DETAIL = 12  # a detail with less room than this is left out


def is_live(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a line may change in place: on a terminal that somebody looks at."""
    plain = any(environment.get(name) for name in ("CI", "NO_COLOR"))
    return stream.isatty() and not plain and environment.get("TERM") not in (None, "", "dumb")


def columns(without_terminal: int = 120) -> int:
    """Of the terminal, or COLUMNS; at least LEAST."""
    return max(shutil.get_terminal_size((without_terminal, 24)).columns, LEAST)


def clipped(text: str, width: int) -> str:
    """The text, or its beginning."""
    return text if len(text) <= width else text[: max(width - 3, 0)].rstrip() + "..."[:width]


def folded(names: Sequence[str], width: int) -> str:
    """Names in one line: `a, b and 3 more`."""
    for shown in range(len(names), 1, -1):
        text = ", ".join(names[:shown]) + _more(len(names) - shown)
        if len(text) <= width:
            return text
    more = _more(len(names) - 1)
    return clipped(names[0], max(width - len(more), 3)) + more if names else ""


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """A sentence as lines of this width; names and paths stay whole, whatever their length."""
    return textwrap.wrap(
        text,
        max(width, LEAST),
        initial_indent=indent,
        subsequent_indent=indent + "    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def timing(seconds: float, expected: float | None, words: str = "of about") -> str:
    """The time so far, and what is expected where that is known."""
    so_far = duration(seconds)
    return f"{so_far} {words} {duration(expected)}" if expected else so_far


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a run that goes on."""

    what: str
    done: int
    of: int
    unit: str
    time: str
    detail: str = ""

    def line(self, width: int) -> str:
        """In this width: the detail gives way first, then the name of the step."""
        text = f"{self.what}: {self.done} of {self.of} {self.unit}, {self.time}"
        room = width - len(text) - 2
        if self.detail and room >= min(_DETAIL, len(self.detail)):
            return f"{text}, {clipped(self.detail, room)}"
        if len(text) <= width:
            return text
        end = f": {self.done}/{self.of}, {self.time}"
        if width - len(end) < _DETAIL:
            end = f": {self.done}/{self.of}, {self.time.partition(' of ')[0]}"
        return clipped(self.what, max(width - len(end), 3)) + end


class Line:
    """The last line of a terminal, drawn in place: a return, the text, and what clears the rest."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""

    def show(self, text: str) -> None:
        """Raises OSError or ValueError where the terminal is gone."""
        if text != self._shown:
            self._write(f"\r{text}\x1b[K")
            self._shown = text

    def clear(self) -> None:
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = ""

    def _write(self, text: str) -> None:
        encoding = self._stream.encoding or "ascii"
        self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()


# --- tables --------------------------------------------------------------------------------------

_GAP = "  "  # before each column
_NARROW = 12  # a column is made no narrower than this


def fitted(line: str, width: int | None) -> list[str]:
    """A line with its indentation, wrapped where it is wider than the terminal."""
    if width is None or len(line) <= width:
        return [line]
    text = line.lstrip(" ")
    return wrapped(text, width, indent=" " * (len(line) - len(text)))


def table(cells: Sequence[Sequence[str]], width: int | None = None) -> list[list[str]]:
    """The lines of each row, the header's first: left-aligned columns, two blanks apart.

    width  of the terminal: long cells go on below themselves, and where even that does not fit, a
           row is one sentence with the names of its columns, and the header has no line
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    over = sum(widths) + len(_GAP) * len(widths) - (width or sys.maxsize)
    while over > 0 and (widest := max(widths)) > _NARROW:
        widths[widths.index(widest)] -= 1
        over -= 1
    if over > 0:
        return _sentences(cells, width or 0)
    return [list(_in_columns(row, widths)) for row in cells]


def _in_columns(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    parts = [
        textwrap.wrap(cell, size) if len(cell) > size else [cell]
        for cell, size in zip(row, widths, strict=True)
    ]
    for line in itertools.zip_longest(*parts, fillvalue=""):
        padded = (part.ljust(size) for part, size in zip(line, widths, strict=True))
        yield (_GAP + _GAP.join(padded)).rstrip()


def _sentences(cells: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    header, *rows = cells
    return [
        [],
        *(
            textwrap.wrap(
                ", ".join(f"{name} {cell}" for name, cell in zip(header, row, strict=True)),
                width,
                initial_indent=_GAP,
                subsequent_indent=2 * _GAP,
            )
            for row in rows
        ),
    ]
