"""The verdicts on a cluster's security as a table for people, and as JSON for programs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cluster.hostlist import compress
from cluster.text import printable
from playbooks.plugin_utils.security import (
    ABSENT,
    FAILS,
    HOLDS,
    OFF,
    STATED,
    TESTED,
    UNKNOWN,
    Host,
    Row,
)

WIDTH = 118
COLUMNS = ("NO", "ITEM", "VERDICT", "WHAT")
WORDS = {
    HOLDS: "hold",
    FAILS: "do not hold",
    UNKNOWN: "could not be asked",
    OFF: "are switched off by the inventory or left to the site",
    ABSENT: "have no host that was asked",
    TESTED: "are shown by tests, not by a live cluster",
    STATED: "are answered by a sentence in the documentation",
}


def hosts_of(document: Mapping[str, Mapping[str, Any]]) -> list[Host]:
    """From the file that playbooks/verify-security.yml wrote."""
    return [
        Host(
            name=name,
            groups=frozenset(told["groups"]),
            declared=told.get("declared") or {},
            facts=told.get("facts") or {},
            errors=told.get("errors") or {},
            away=printable(told.get("away") or ""),
        )
        for name, told in document.items()
    ]


def table(rows: Sequence[Row]) -> str:
    """A line or more for each item; what to do; a last line that counts."""
    cells = [(row.number, row.key, row.verdict, _what(row)) for row in rows]
    widths = [max(len(line[n]) for line in (COLUMNS, *cells)) for n in range(3)]
    lines = []
    for *first, what in (COLUMNS, *cells):
        head = "  ".join(cell.ljust(width) for cell, width in zip(first, widths, strict=True))
        indent = " " * (len(head) + 2)
        for number, part in enumerate(what.splitlines() or [""]):
            lines += textwrap.wrap(
                part,
                WIDTH,
                initial_indent=indent if number else f"{head}  ",
                subsequent_indent=f"{indent}  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
    if wrong := [row for row in rows if row.cure and row.problems]:
        lines += ["", "What to do:"]
        lines += [f"  {row.key}: {row.cure}." for row in wrong]
    return "\n".join([*lines, "", _counted(rows)])


def _what(row: Row) -> str:
    if row.verdict in {TESTED, STATED}:
        return f"{row.sentence}: {row.cure}"
    if row.verdict == ABSENT:
        return f"{row.sentence}: no host that was asked has it"
    parts = [row.sentence]
    if row.hosts:
        parts[0] += f": {compress(row.hosts)}"
    parts += [
        f"{compress(names)}: {printable(sentence)}" for sentence, names in row.problems.items()
    ]
    return "\n".join(parts)


def _counted(rows: Iterable[Row]) -> str:
    counted = Counter(row.verdict for row in rows)
    parts = [f"{counted[verdict]} {words}" for verdict, words in WORDS.items() if counted[verdict]]
    return f"Of {sum(counted.values())} items {'; '.join(parts)}."


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return list(_documents(rows))


def _documents(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {
            "number": row.number,
            "item": row.key,
            "sentence": row.sentence,
            "verdict": row.verdict.lower(),
            "hosts": list(row.hosts),
            "problems": [
                {"sentence": sentence, "hosts": list(names)}
                for sentence, names in row.problems.items()
            ],
            "cure": row.cure,
        }
