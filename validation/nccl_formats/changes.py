"""What another release of NCCL prints differently from the newest that is recorded."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from validation.nccl_formats import Recorded

_LIKE = 0.6  # of difflib: the changes that are recorded are 0.75 and more alike
_MOST = 3
_WORD = re.compile(r"[A-Za-z]{3,}")


@dataclass(frozen=True)
class Change:
    """A line whose strings are not in the library. like are texts that could have replaced them,
    the most alike first.
    """

    name: str
    before: tuple[str, ...]
    like: tuple[str, ...]


def changes(known: Recorded, texts: Collection[str]) -> Iterator[Change]:
    """The recorded lines that these texts of a library do not have as the newest release has them.

    A line that the newest release does not print any more is missing in each later one too.
    """
    for name, formats in known.lines.items():
        newest = formats[-1]
        missing = [text for text in newest.strings if text not in texts]
        if missing:
            yield Change(name, newest.strings, _alike(missing[0], texts))


def replacement(change: Change) -> tuple[str, ...] | None:
    """The strings that have come in place of a line's, where one text alone can be meant."""
    if len(change.like) != 1 or len(change.before) != 1:
        return None
    return change.like


def _alike(text: str, texts: Collection[str]) -> tuple[str, ...]:
    words = set(_WORD.findall(text))
    near = [other for other in texts if words & set(_WORD.findall(other))]
    return tuple(difflib.get_close_matches(text, near, n=_MOST, cutoff=_LIKE))
