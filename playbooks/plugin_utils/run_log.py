"""What the control node keeps of each run: Ansible's whole output, and how long each layer took.

Both lie in .cache of the checkout, which git ignores, or in a folder that ansible.cfg names; it may
be removed at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cluster.files import write_whole

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "runs"
TIMES = "times.json"
KEPT_LOGS = 20
KEPT_TIMES = 50  # commands


# --- the log -------------------------------------------------------------------------------------


class Log:
    """A new file of mode 0600. A disk that is full costs the rest of the log, never the run."""

    def __init__(self, folder: Path, playbook: str, kept: int = KEPT_LOGS) -> None:
        """Raises OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]", "-", playbook)
        moment = time.strftime("%Y%m%dT%H%M%S")
        self.path = folder / f"{moment}-{os.getpid()}-{name}.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._file = os.open(self.path, flags, 0o600)
        self.problem = ""
        for old in sorted(folder.glob("[0-9]*.log"))[:-kept]:
            with suppress(OSError):
                old.unlink()

    def write(self, text: str) -> None:
        """At once: nothing is lost with a process that is killed, nor written by its children."""
        if self.problem:
            return
        data = text.encode("utf-8", "replace")
        try:
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as error:
            self.problem = f"the log is not whole: {error.strerror}"


# --- times ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a run, and of each of its layers by name."""

    whole: float | None = None
    layers: Mapping[str, float] = field(default_factory=dict)


def key(words: Sequence[str]) -> str:
    """Of runs that take alike long: the same inventory, playbook, tags and limit."""
    return hashlib.sha256("\0".join(words).encode("utf-8", "replace")).hexdigest()[:16]


def last_times(of: str, path: Path) -> Times:
    """Of the run before; nothing where there was none, or the file is not ours."""
    try:
        entry = _read(path)[of]
        layers = {str(name): float(seconds) for name, seconds in entry["layers"].items()}
        return Times(float(entry["whole"]), layers)
    except (KeyError, TypeError, ValueError, AttributeError):
        return Times()


def keep_times(of: str, times: Times, path: Path) -> None:
    """A file that cannot be written is no trouble of the run's."""
    others = {name: entry for name, entry in _read(path).items() if name != of}
    newest = dict([*others.items(), (of, asdict(times))][-KEPT_TIMES:])
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(newest, indent=1), mode=0o600)


def _read(path: Path) -> dict[str, Any]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}
