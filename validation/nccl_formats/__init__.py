"""What NCCL's log lines look like, release by release: recorded out of NCCL's own libraries.

payloads/nccl_log.py reads the lines; its tests go through every release of recorded.yml. A new
release is read with `python -m validation.nccl_formats LIBRARY`, which says what changed, and with
`--write` becomes a change of that file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml

RECORDED = Path(__file__).parent / "recorded.yml"
_HEAD = """\
---
# Formats of lines in NCCL's debug log, from the release on that brought them: written by
# `python -m validation.nccl_formats`. `strings` are those in the library of which a line is put
# together, where it is not one alone; none where they were not among those recorded. Libraries:
# libnccl.so.2 of nvidia-nccl-cu12, and of nvidia-nccl-cu13 for 2.30.7.
"""
_WIDTH = 100  # of a text in the file


@dataclass(frozen=True)
class Format:
    """since is the first of the recorded releases that has it. format is the line's beginning or
    whole text, in C's words; strings are what the library has of it.
    """

    since: str
    format: str
    strings: tuple[str, ...]


@dataclass(frozen=True)
class Recorded:
    releases: tuple[str, ...]
    lines: Mapping[str, tuple[Format, ...]]  # by a name of ours, in the order of releases

    @property
    def newest(self) -> str:
        return self.releases[-1]

    def formats(self, name: str) -> dict[str, str]:
        """A line's formats by the release that brought each."""
        return {each.since: each.format for each in self.lines[name]}

    def with_release(self, release: str, changed: Mapping[str, tuple[str, ...]]) -> Recorded:
        """The same with another release, in which these lines have other strings."""
        lines = {name: list(formats) for name, formats in self.lines.items()}
        for name, strings in changed.items():
            lines[name].append(Format(release, "".join(strings).rstrip("\n"), strings))
        releases = sorted({*self.releases, release}, key=number)
        return replace(
            self, releases=tuple(releases), lines={name: tuple(f) for name, f in lines.items()}
        )


def number(release: str) -> tuple[int, ...]:
    """ "2.30.7+cuda13.0" is (2, 30, 7)."""
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", release)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


@cache
def recorded() -> Recorded:
    document = yaml.safe_load(RECORDED.read_text(encoding="utf-8"))
    return Recorded(
        tuple(document["releases"]),
        {
            name: tuple(
                Format(row["since"], row["format"], tuple(row.get("strings", (row["format"],))))
                for row in rows
            )
            for name, rows in document["lines"].items()
        },
    )


def render(what: Recorded) -> str:
    """The file's text."""
    lines = [_HEAD, "releases:\n"]
    lines += [f"  - {release}\n" for release in what.releases]
    lines.append("\nlines:\n")
    for name, formats in what.lines.items():
        lines.append(f"  {name}:\n")
        for each in formats:
            lines.append(f"    - since: {each.since}\n      format: {_quoted(each.format)}\n")
            if not each.strings:
                lines.append("      strings: []\n")
            elif each.strings != (each.format,):
                lines.append("      strings:\n")
                lines += [f"        - {_quoted(text)}\n" for text in each.strings]
    return "".join(lines)


def _quoted(text: str) -> str:
    """A double-quoted text of YAML, over several lines where it is long."""
    parts = [text[start : start + _WIDTH] for start in range(0, len(text), _WIDTH)]
    quoted = [json.dumps(part, ensure_ascii=False)[1:-1] for part in parts]
    # A blank at the beginning of a line would be lost.
    for place, part in enumerate(quoted[1:], 1):
        quoted[place] = f"\\{part}" if part.startswith(" ") else part
    return '"' + "\\\n          ".join(quoted) + '"'
