"""Which tasks of a run changed a host, and which of them reported a change by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.drift.catalogue import Drift


@dataclass(frozen=True, slots=True)
class ChangedTask:
    """A task that changed a host. `words` are all of its result; a hidden task has none."""

    host: str
    task: str
    words: str
    hidden: bool = False


def read(path: Path) -> list[ChangedTask]:
    """What the callback of this name wrote down."""
    if not path.exists():
        return []
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        ChangedTask(
            entry["host"], entry["task"], json.dumps(changed_part(entry["result"])), entry["hidden"]
        )
        for entry in entries
    ]


def changed_part(result: Mapping[str, Any]) -> dict[str, Any]:
    """Of a result what is about changes: the items of a loop that changed something, and of a task
    that keeps many files of a folder those that it changed, by their whole paths.
    """
    part = dict(result)
    if isinstance(items := part.get("results"), list):
        part["results"] = [item for item in items if item.get("changed")]
    arguments = part.get("invocation", {}).get("module_args", {})
    if isinstance(names := part.get("changed_files"), list) and "folder" in arguments:
        return {"changed_files": [f"{arguments['folder']}/{name}" for name in names]}
    return part


def names(task: ChangedTask, subject: str) -> bool:
    """Whether its result names the thing: a path, a package, a unit with or without its ending."""
    name = re.escape(subject if "/" in subject else subject.removesuffix(".service"))
    return re.search(rf"(?<![\w/.-]){name}(?![\w/-]|\.\w)", task.words) is not None


def reported_by(drift: Drift, run: Sequence[ChangedTask]) -> list[str]:
    """The tasks that changed this thing on its host, in the order of the run.

    A task whose result is kept out of logs (`no_log`) is reported by its name, and counts where
    no other speaks of the thing.
    """
    there = [entry for entry in run if entry.host == drift.host]
    speaking = [entry.task for entry in there if names(entry, drift.subject)]
    return unique(
        speaking or [f"{entry.task} (its result is hidden)" for entry in there if entry.hidden]
    )


def unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))
