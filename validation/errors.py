"""Every error this package raises on purpose.

PlumblineError              one sentence for the operator; the run ends with exit code 2
├── UsageError              the command line names something that does not exist
├── DataError               a declaration, suite or threshold file is wrong; lists every problem
├── EnvironmentProblem      something that a run needs is missing on this machine
└── TransportError          the login node could not be used
    └── Unreachable         it did not answer at all: another one may
"""

from collections.abc import Sequence


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
    """Something that a run needs is missing on this machine."""


class TransportError(PlumblineError):
    """The login node could not be used."""


class Unreachable(TransportError):
    """The login node did not answer."""
