"""How far something is that may take long, told every few seconds; what is quick tells nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

EVERY_S = 5.0

T = TypeVar("T")


class Stage(str):
    """A line that the next one replaces, where that can be (callback_plugins/watch.py)."""

    __slots__ = ()


class Progress:
    """Tells through `say`, such as `Display().display`."""

    def __init__(
        self, say: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say = say
        self._clock = clock
        self._printed_at = clock()

    def over(self, items: Collection[T], what: str) -> Iterator[T]:
        """The items; the line says how many of them are done."""
        for done, item in enumerate(items):
            if self._clock() - self._printed_at >= EVERY_S:
                self._printed_at = self._clock()
                self._say(Stage(f"{what}: {done} of {len(items)}"))
            yield item


def silent() -> Progress:
    return Progress(lambda _: None)
