"""Where a run keeps what it asked and was answered, and what it knows from the runs before.

Within a run all processes share Ansible's own temporary folder, which goes with the run. From run
to run the questions are kept in .cache of the checkout, by command and host; the folder may be
removed at any time, and the next run asks one by one again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cluster.files import write_whole
from playbooks.plugin_utils.look import Question, Remembered

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "looks"


@dataclass(frozen=True, slots=True)
class Taken:
    """A look: how much had changed in the run before it, in which play it was, and its worth.

    `held`: whether the run held the inventory by then.
    """

    changes: int
    play: str
    useful: bool
    held: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """Files of this run below Ansible's temporary folder."""

    folder: Path

    @classmethod
    def of(cls, temporary: str) -> Run:
        return cls(Path(temporary) / "looks")

    # --- how often something changed, on whatever host -------------------------------------------

    def note_change(self) -> None:
        _append(self._changes, b".")

    def changes(self) -> int:
        try:
            return self._changes.stat().st_size
        except FileNotFoundError:
            return 0

    def note_hold(self) -> None:
        """From now on the run has the inventory for itself; until now, it had not."""
        _append(self._held, b"")
        self.note_change()

    def held(self) -> bool:
        return self._held.exists()

    @property
    def _held(self) -> Path:
        return self.folder / "held"

    @property
    def _changes(self) -> Path:
        return self.folder / "changes"

    # --- answers of a host's last look -----------------------------------------------------------

    def taken(self, host: str) -> Taken | None:
        try:
            return Taken(**json.loads((self._of(host) / "taken").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def answer(self, host: str, key: str) -> dict[str, Any] | None:
        try:
            text = (self._of(host) / "answers" / key).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        answer: dict[str, Any] = json.loads(text)
        return answer

    def keep(self, host: str, taken: Taken, answers: dict[str, dict[str, Any]]) -> None:
        folder = self._of(host)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "taken").unlink(missing_ok=True)
        # What a look before this one answered counts no more.
        shutil.rmtree(folder / "answers", ignore_errors=True)
        (folder / "answers").mkdir(mode=0o700)
        for key, answer in answers.items():
            (folder / "answers" / key).write_text(json.dumps(answer), encoding="utf-8")
        (folder / "taken").write_text(json.dumps(asdict(taken)), encoding="utf-8")
        _append(folder / "looked", f"{int(taken.held)}\n".encode())

    # --- what was asked, and which answers were used ---------------------------------------------

    def note_asked(self, host: str, question: Question) -> None:
        entry = Remembered(question, held=self.held())
        _append(self._of(host) / "asked", json.dumps(asdict(entry)).encode() + b"\n")

    def note_used(self, host: str, key: str) -> None:
        _append(self._of(host) / "used", f"{int(self.held())} {key}\n".encode())

    def questions(self, host: str) -> Iterator[Remembered]:
        for line in _lines(self._of(host) / "asked"):
            yield _remembered(line)

    def used(self, host: str) -> set[tuple[str, bool]]:
        """Key, and whether the run held the inventory, of each answer that was used."""
        lines = (line.partition(" ") for line in _lines(self._of(host) / "used"))
        return {(key, held == "1") for held, _, key in lines}

    def looked(self, host: str) -> set[bool]:
        """In which parts of the run the host was looked at: before it held the inventory, after."""
        return {line == "1" for line in _lines(self._of(host) / "looked")}

    def hosts(self) -> list[str]:
        """Hosts that something was asked or answered for, as `quote` writes them."""
        if not self.folder.is_dir():
            return []
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir())

    def _of(self, host: str) -> Path:
        return self.folder / quote(host, safe="%")

    @contextmanager
    def once(self) -> Iterator[None]:
        """One process of the run at a time."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def known_questions(command: Iterable[str], host: str) -> list[Remembered]:
    """What the runs before asked this host; nothing where they left no file that can be read."""
    try:
        lines = _file(command, host).read_text(encoding="utf-8").splitlines()
        return [_remembered(line) for line in lines]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return []


def _remembered(line: str) -> Remembered:
    fields = json.loads(line)
    return Remembered(**{**fields, "question": Question(**fields["question"])})


def keep_questions(command: Iterable[str], host: str, questions: Iterable[Remembered]) -> None:
    path = _file(command, host)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = "".join(json.dumps(asdict(entry)) + "\n" for entry in questions)
    write_whole(path, text, 0o600)


def _file(command: Iterable[str], host: str) -> Path:
    name = hashlib.sha256("\n".join(command).encode()).hexdigest()[:16]
    return CACHE / name / quote(host, safe="%")


def _append(path: Path, some: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, some)
    finally:
        os.close(descriptor)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
