"""What NCCL's RAS says of a job that hangs.

Since NCCL 2.24 each process of a job has a thread that answers on localhost, port 28028, or where
NCCL_RAS_ADDR says (docs.nvidia.com/deeplearning/nccl/user-guide, RAS). The threads know of each
other over sockets of their own, so one of them tells of all ranks, also while a collective hangs.
Commands and answers are lines (src/ras/client.cc and client_support.cc of NVIDIA/nccl). JSON is
answered since 2.28.7; before that the same is told in words.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Any

ADDRESS = "localhost:28028"
# Ports for jobs: NCCL's own and the next, all below those that Linux gives to connections (32768).
_FIRST, _PORTS = 28028, 4096
COLLECT_S = 3  # how long RAS waits for answers of other processes; its own default is 5
LIMIT_S = 8.0  # for the whole conversation
MOST_BYTES = 16 * 2**20  # 300 bytes of JSON for each rank of each communicator
NAMED = 8  # ranks in a sentence
LONGEST = 400

SILENT = "NCCL's RAS did not answer on {}: NCCL has it since 2.24, and NCCL_RAS_ENABLE=0 ends it"


def address_of(job: str) -> str:
    """Where RAS answers for a job of Slurm.

    One process can listen at an address: others on the node, such as those of another job, then
    have no RAS that can be asked.

    >>> address_of("4711")
    'localhost:28643'
    """
    return f"localhost:{_FIRST + int(job) % _PORTS}" if job.isdecimal() else ADDRESS


def ask(address: str = ADDRESS, limit_s: float = LIMIT_S) -> str | None:
    """RAS's answer, None where nothing answers in time or what answers is no RAS."""
    end = time.monotonic() + limit_s
    host, _, port = address.rpartition(":")
    with suppress(OSError, ValueError), closing(_connected(host, port, limit_s)) as connection:
        return _conversation(connection, end)
    return None


def _connected(host: str, port: str, limit_s: float) -> socket.socket:
    return socket.create_connection((host.strip("[]"), int(port)), timeout=limit_s)


def _conversation(connection: socket.socket, end: float) -> str | None:
    if not _said(connection, "CLIENT PROTOCOL 2", end).startswith("SERVER PROTOCOL "):
        return None
    _said(connection, f"TIMEOUT {COLLECT_S}", end)
    _said(connection, "SET FORMAT json", end)  # an older one says that it has no such word
    connection.sendall(b"STATUS\n")
    return _rest(connection, end).decode("utf-8", "replace")


def _said(connection: socket.socket, command: str, end: float) -> str:
    """The line that answers a command. Raises OSError when none comes in time."""
    connection.sendall(f"{command}\n".encode())
    line = b""
    while not line.endswith(b"\n"):
        line += _received(connection, 1, end)
    return line.decode("utf-8", "replace").strip()


def _rest(connection: socket.socket, end: float) -> bytes:
    """All that comes until the other side has done, or for as long as there is time."""
    parts: list[bytes] = []
    with suppress(OSError):
        while sum(map(len, parts)) < MOST_BYTES:
            parts.append(_received(connection, 65536, end))
    return b"".join(parts)


def _received(connection: socket.socket, most: int, end: float) -> bytes:
    connection.settimeout(max(0.01, end - time.monotonic()))
    part = connection.recv(most)
    if not part:
        raise OSError("closed")
    return part


# --- what the answer says ------------------------------------------------------------------------


def shortened(text: str) -> str:
    """RAS's answer in a sentence: who is missing, who reports an error, who is behind the others.

    Never raises. An answer that is not understood is told in its own words.
    """
    document = document_of(text)
    found = list(_of_text(text)) if document is None else list(_of_json(document))
    return "; ".join(found)[:LONGEST]


def document_of(text: str) -> Mapping[str, Any] | None:
    """RAS's answer where it is JSON; None for one in words, and for none of RAS's."""
    for version in (text, _COMMA.sub(r"\1,\2", text)):
        with suppress(ValueError, RecursionError):
            document = json.loads(version)
            if isinstance(document, dict) and isinstance(document.get("communicators"), list):
                return document
    return None


# Others who read the answers of 2.28.9 found no comma before the status of a missing rank.
_COMMA = re.compile(r'(\d)(\s*\n\s*"status":)')


def _of_json(document: Mapping[str, Any]) -> Iterator[str]:
    """Of each communicator, the largest first: what is told once is not told again."""
    told: set[str] = set()
    communicators = [item for item in document["communicators"] if isinstance(item, dict)]
    communicators.sort(key=lambda item: -_number(item.get("size")))
    for communicator in communicators:
        for sentence in _of_communicator(communicator):
            if sentence not in told:
                told.add(sentence)
                yield sentence
    if not told:
        yield f"all ranks of {len(communicators)} communicators answer, as far as each other"


def _of_communicator(communicator: Mapping[str, Any]) -> Iterator[str]:
    ranks, missing = _rows(communicator, "ranks"), _rows(communicator, "missing_ranks")
    dead = [row for row in missing if _status(row).get("considered_dead") is True]
    if dead:
        yield f"{_named(dead)} {_is(dead)} dead"
    if silent := [row for row in missing if row not in dead]:
        yield f"{_named(silent)} {'does' if len(silent) == 1 else 'do'} not answer"
    failed = [row for row in ranks if _number(_status(row).get("async_error")) not in (0, 7)]
    if failed:
        codes = sorted({_number(_status(row).get("async_error")) for row in failed})
        yield f"{_named(failed)} {_reports(failed)} error {', '.join(map(str, codes))}"
    starting = [row for row in ranks if _number(_status(row).get("init_state")) != 0]
    if starting:
        yield f"{_named(starting)} {_is(starting)} not initialized"
    yield from _behind(ranks)


def _behind(ranks: list[Mapping[str, Any]]) -> Iterator[str]:
    """The ranks that launched another number of a collective than most did."""
    counts: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for row in ranks:
        launched = row.get("collective_counts")
        for name, count in launched.items() if isinstance(launched, dict) else ():
            counts.setdefault(str(name), []).append((_number(count), row))
    for name, rows in counts.items():
        usual = Counter(count for count, _ in rows).most_common(1)[0][0]
        others: dict[int, list[Mapping[str, Any]]] = {}
        for count, row in rows:
            if count != usual:
                others.setdefault(count, []).append(row)
        for count, odd in sorted(others.items()):
            yield f"{_named(odd)} launched {count} {name}, the others {usual}"


def _rows(communicator: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = communicator.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _status(row: Mapping[str, Any]) -> Mapping[str, Any]:
    status = row.get("status")
    return status if isinstance(status, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _named(rows: list[Mapping[str, Any]]) -> str:
    """Ranks with the address that NCCL knows their process by."""
    names = [f"rank {_number(row.get('rank'))} ({row.get('host', '?')})" for row in rows[:NAMED]]
    more = f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
    return ", ".join(names) + more


def _is(rows: list[Mapping[str, Any]]) -> str:
    return "is" if len(rows) == 1 else "are"


def _reports(rows: list[Mapping[str, Any]]) -> str:
    return "reports" if len(rows) == 1 else "report"


# The parts that a healthy job's answer lacks. Each begins with its name, underlined.
_PART = re.compile(r"^(?P<name>Errors|Warnings)\n=+\n(?P<lines>(?:.*\n?)*?)(?=^\w+\n=+\n|\Z)", re.M)
_HEADING = re.compile(r"(?:#\d+-\d+ \([0-9a-f]+\) )?[A-Z]+")


def _of_text(text: str) -> Iterator[str]:
    found = False
    for part in _PART.finditer(text):
        for line in part["lines"].splitlines():
            if line.strip() and not _HEADING.fullmatch(line.strip()):
                found = True
                yield " ".join(line.split())
    if not found:
        sane = "Communicators" in text
        yield "no rank is missing or reports an error" if sane else "an answer of no known form"
