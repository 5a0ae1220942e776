"""The one error that a payload raises on purpose, and how the others are told."""

from __future__ import annotations

from collections.abc import Iterable


class CannotRun(Exception):
    """The payload cannot measure anything here; the message is one sentence for the operator.

    `blamed` are the nodes whose fault it is, where that is known. `linger_s` is how long the rank
    stays after it has said so: srun ends all others with the first that goes, and what they have to
    say may contradict.
    """

    def __init__(self, sentence: str, blamed: Iterable[str] = (), linger_s: float = 0) -> None:
        super().__init__(sentence)
        self.blamed = tuple(blamed)
        self.linger_s = linger_s


def first_line(error: BaseException) -> str:
    """An error without the C++ stack that torch appends to it."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
