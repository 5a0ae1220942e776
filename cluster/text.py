"""Text from elsewhere, made fit to be shown."""

from __future__ import annotations


def printable(text: str, limit: int | None = None) -> str:
    """Text from elsewhere, safe for a terminal, a report or XML: one line, nothing invisible."""
    line = "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(line.split())
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"


def label(text: str) -> str:
    """As the value of a label between quotes in Prometheus' text format, which may have any
    character: https://prometheus.io/docs/instrumenting/exposition_formats/#comments-help-text-and-type-information
    """
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def first_line(error: BaseException) -> str:
    """An error without the C++ stack that torch appends to it."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
