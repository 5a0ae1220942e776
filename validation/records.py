"""What former runs have left: the summaries in a folder of results, the newest first."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import strict
from cluster.errors import DataError
from cluster.hostlist import compress

log = logging.getLogger(__name__)

_BAD = ("fail", "inconclusive", "warn")


@dataclass(frozen=True, slots=True)
class Found:
    """One result of a run. `blamed` is None where it is not known whose fault it is."""

    check: str
    nodes: tuple[str, ...]
    verdict: str
    message: str
    cause: str
    blamed: tuple[str, ...] | None

    @property
    def bad(self) -> bool:
        return self.verdict in _BAD

    @property
    def where(self) -> str:
        return compress(self.nodes) or self.check

    def names(self, node: str) -> bool:
        """Whether it is this node's own fault."""
        return self.nodes == (node,) if self.blamed is None else node in self.blamed


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended. `nodes` has standing and reason of each."""

    run: str
    started: str
    verdict: str
    nodes: Mapping[str, tuple[str, str]]
    found: tuple[Found, ...]


def last(folder: Path, most: int) -> tuple[Run, ...]:
    """The last runs in the folder, or the one that it is of; what cannot be read is left out."""
    try:
        files = [folder / "summary.json"] if (folder / "summary.json").is_file() else []
        files = files or sorted(folder.glob("*/summary.json"), key=_changed, reverse=True)
    except OSError:
        return ()
    runs: list[Run] = []
    for file in files:
        if len(runs) == most:
            break
        try:
            runs.append(read(strict.load_json(file)))
        except (DataError, KeyError, TypeError, AttributeError, ValueError) as error:
            log.warning("%s is left out: %r", file, error)
    return tuple(runs)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read(document: Mapping[str, Any]) -> Run:
    """A run out of its summary.json. Raises KeyError, TypeError or ValueError for another one."""
    return Run(
        str(document["run"]),
        str(document["started"]),
        str(document["verdict"]),
        {str(n["name"]): (str(n["standing"]), str(n["reason"])) for n in document["nodes"]},
        tuple(
            Found(
                str(item["check"]),
                tuple(map(str, item["subject"]["nodes"])),
                str(item["verdict"]),
                str(item["message"]),
                str(item.get("cause", "")),  # runs before there was one
                None if item.get("blamed") is None else tuple(map(str, item["blamed"])),
            )
            for item in document["results"]
        ),
    )
