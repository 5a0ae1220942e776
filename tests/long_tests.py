"""Which tests `scripts/test` leaves for `scripts/test --full`; the summary counts them.

They say so of themselves. `@pytest.mark.long` leaves a test. `@pytest.mark.sample(3)` leaves all
but three of the cases of a test, for cases that differ in little and cost much: the first, the
last, and one between them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import pytest

SHORT = os.environ.get("PLUMBLINE_LONG_TESTS") == "no"


def left(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    short = []
    for item in items:
        if item.get_closest_marker("long"):
            yield item
        elif item.get_closest_marker("sample"):
            short.append(item)
    for _, same in groupby(sorted(short, key=_function), key=_function):
        cases = list(same)
        kept = sampled(len(cases), _wanted(cases[0]))
        yield from (case for place, case in enumerate(cases) if place not in kept)


def sampled(cases: int, wanted: int) -> set[int]:
    """The places of as many cases as are wanted, from the first to the last, evenly.

    >>> sorted(sampled(9, 3))
    [0, 4, 8]
    """
    if wanted < 2 or cases <= wanted:
        return set(range(min(cases, wanted)))
    return {place * (cases - 1) // (wanted - 1) for place in range(wanted)}


def _wanted(item: pytest.Item) -> int:
    marker = item.get_closest_marker("sample")
    assert marker is not None
    (wanted,) = marker.args
    if not isinstance(wanted, int) or wanted < 1:
        raise pytest.UsageError(f"{item.nodeid}: sample takes a number of cases, 1 or more")
    return wanted


def _function(item: Any) -> str:
    return f"{item.path}::{getattr(item, 'cls', None)}::{item.originalname}"
