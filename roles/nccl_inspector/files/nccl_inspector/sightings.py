"""What a job's ranks have launched, as one of them tells for all: two sources of one shape."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cluster.readers import nccl_ras
from roles.nccl_inspector.files.nccl_inspector import folders
from roles.nccl_inspector.files.nccl_inspector.folders import JobFolder

MOST_COMMUNICATORS = 4096
MOST_RANKS = 65536
MOST_NAMES = 32  # of kinds of collectives
MOST_BYTES = nccl_ras.MOST_BYTES
WATCH_FILE = "watch.json"
_PLACE = re.compile(r"[^A-Za-z0-9._:-]")


@dataclass(frozen=True)
class Rank:
    """`counts` has how many collectives of each kind it launched; none of a rank that is silent."""

    number: int
    place: str
    counts: Mapping[str, int]
    answers: bool = True


@dataclass(frozen=True)
class Communicator:
    name: str
    ranks: tuple[Rank, ...]


Sighting = tuple[Communicator, ...]


class Source(Protocol):
    """Who knows all ranks of a job."""

    @property
    def name(self) -> str:
        """What the metrics call it."""

    def look(self, job: JobFolder) -> Sighting | None:
        """None where this source knows nothing of the job. Never raises."""


# --- NCCL's RAS ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ras:
    """NCCL's RAS on this node. A listener that is not the job's owner's is not asked: any user
    may listen at a port.
    """

    name: str = "nccl"
    ask: Callable[[str], str | None] = nccl_ras.ask
    sockets: tuple[Path, ...] = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

    def look(self, job: JobFolder) -> Sighting | None:
        address = nccl_ras.address_of(job.job)
        if listeners(int(address.rpartition(":")[2]), self.sockets) != {job.owner}:
            return None
        answer = self.ask(address)
        document = None if answer is None else nccl_ras.document_of(answer)
        return None if document is None else seen(document)


def listeners(port: int, files: tuple[Path, ...]) -> set[int]:
    """Whose the sockets are that listen at a port (proc_net_tcp(5): state 0A, and the user)."""
    owners = set()
    for file in files:
        with suppress(OSError, ValueError, IndexError):
            for line in file.read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                    owners.add(int(words[7]))
    return owners


# --- a file that the job keeps -------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """A file in the job's folder, in RAS's shape, that its first rank writes again and again
    (plumbline_watch.py). Where it grows old, that rank is silent as well.
    """

    oldest_s: float
    name: str = "file"
    now: Callable[[], float] = time.time

    def look(self, job: JobFolder) -> Sighting | None:
        with (
            suppress(OSError, ValueError, RecursionError),
            folders.opened(job, WATCH_FILE) as file,
        ):
            document = json.loads(os.pread(file.number, MOST_BYTES, 0))
            if isinstance(document, dict):
                old = self.now() - file.modified > self.oldest_s
                return seen(document, document.get("keeper") if old else None)
        return None


# --- their common shape --------------------------------------------------------------------------


def seen(document: Mapping[str, Any], silent: object = None) -> Sighting:
    """Numbers and names within limits, whoever wrote them; `silent` is a rank that is."""
    found = []
    left = MOST_RANKS
    for number, item in enumerate(_rows(document.get("communicators"))[:MOST_COMMUNICATORS]):
        ranks = [_rank(row, silent) for row in _rows(item.get("ranks"))[:left]]
        ranks += [_missing(row) for row in _rows(item.get("missing_ranks"))[: left - len(ranks)]]
        left -= len(ranks)
        if ranks:
            found.append(Communicator(_place(item.get("hash")) or str(number), tuple(ranks)))
    return tuple(found)


def _rank(row: Mapping[str, Any], silent: object) -> Rank:
    counts = row.get("collective_counts")
    number = _number(row.get("rank"))
    pairs = list(counts.items())[:MOST_NAMES] if isinstance(counts, dict) else []
    return Rank(
        number,
        _place(row.get("host")),
        {_place(name): _number(count) for name, count in pairs},
        silent is None or number != silent,
    )


def _missing(row: Mapping[str, Any]) -> Rank:
    return Rank(_number(row.get("rank")), _place(row.get("host")), {}, answers=False)


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 2**63 else 0


def _place(value: object) -> str:
    return _PLACE.sub("_", value)[:64] if isinstance(value, str) else ""
