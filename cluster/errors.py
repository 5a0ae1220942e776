"""Errors that the halves have in common; each message is for the operator, without a traceback.

PlumblineError          one sentence; a run ends with exit code 2
├── UsageError          the command line names something that does not exist
├── DataError           a declaration, suite or threshold file is wrong; lists every problem
└── EnvironmentProblem  something that a program needs is missing on this machine

CannotRun               a reader or payload cannot measure anything here
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class PlumblineError(Exception):
    """What went wrong, in one sentence; never shown with a traceback."""


class UsageError(PlumblineError):
    """The command line asks for something that does not exist."""


class DataError(PlumblineError):
    """A data file is wrong. All its problems at once, so that one edit can mend them."""

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.source = source
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{source}: {problem}" for problem in self.problems))


class EnvironmentProblem(PlumblineError):
    """Something that a program needs is missing on this machine."""


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
