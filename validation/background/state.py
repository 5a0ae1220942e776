"""What was tested when, in one file beside the results."""

import fcntl
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from cluster import strict
from cluster.errors import EnvironmentProblem, UsageError
from cluster.files import write_whole
from validation import typed
from validation.model import Verdict

SCHEMA = 1
STATE, LOCK = "state.json", "lock"


@dataclass(frozen=True, slots=True)
class LastTest:
    """The last test of a node that came to its end.

    at       UTC, ISO 8601
    verdict  see Verdict
    run      the folder of its results
    seconds  how long it took
    """

    at: str
    verdict: str
    run: str
    seconds: float


@dataclass(frozen=True, slots=True)
class State:
    """What was tested when."""

    nodes: Mapping[str, LastTest] = field(default_factory=dict)

    def with_test(self, node: str, tested: LastTest) -> "State":
        return State({**self.nodes, node: tested})

    def tested(self, node: str) -> datetime | None:
        last = self.nodes.get(node)
        return datetime.fromisoformat(last.at) if last else None

    @property
    def longest_s(self) -> float:
        return max((tested.seconds for tested in self.nodes.values()), default=0.0)


class Store:
    """The state beside the results, for one process at a time."""

    def __init__(self, folder: Path) -> None:
        """Raises UsageError while another process has it, EnvironmentProblem without a folder."""
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = open(folder / LOCK, "a", encoding="utf-8")  # noqa: SIM115 - held
        except OSError as error:
            raise EnvironmentProblem(f"{folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock.close()
            raise UsageError(f"--background: another one works in {folder}") from error

    def read(self) -> State:
        """Raises UsageError for a file that is not what this program writes."""
        path = self.folder / STATE
        try:
            document = strict.parse_json(path.read_text(encoding="utf-8"))
            if document.pop("schema") != SCHEMA:
                raise ValueError("another schema")
            state: State = typed.read(State, document)
            for name in state.nodes:
                state.tested(name)
        except FileNotFoundError:
            return State()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"--background: {path} cannot be read ({error}); remove it, and all nodes count as "
                "untested"
            ) from error
        return state

    def write(self, state: State) -> None:
        """Raises EnvironmentProblem."""
        nodes = {name: asdict(tested) for name, tested in state.nodes.items()}
        text = json.dumps({"schema": SCHEMA, "nodes": nodes}, indent=1) + "\n"
        try:
            write_whole(self.folder / STATE, text, sync=True)
        except OSError as error:
            raise EnvironmentProblem(f"{self.folder / STATE}: {error.strerror}") from error

    def close(self) -> None:
        self._lock.close()


def unused(before: State, after: State) -> Collection[str]:
    """Folders of good tests that newer ones replace."""
    used = {tested.run for tested in after.nodes.values()}
    good = {item.run for item in before.nodes.values() if item.verdict == Verdict.PASS.value}
    return good - used
