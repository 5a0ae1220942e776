"""The file of the ledger: SQLite, which only grows. An entry is never changed and never removed.

It may lie on NFS, where two controllers share it, so it has a rollback journal and no write-ahead
log. What is written is one short transaction, and an entry that is there already is left out: two
who look at the same Slurm write each incident once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from cluster.exporter import Failed
from roles.slurm_exporter.files.slurm_exporter.history.incidents import Entry, Known

NAME = "node-history.sqlite"
WAIT_S = 10.0  # for another who writes
VERSION = 1
_TABLES = (
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, at REAL NOT NULL,"
    " node TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, gpu TEXT NOT NULL,"
    " by TEXT NOT NULL, outage INTEGER NOT NULL)",
    "CREATE INDEX entries_of_node ON entries (node, at)",
    "CREATE TABLE nodes (node TEXT PRIMARY KEY, first_seen REAL NOT NULL, boot REAL,"
    " out INTEGER NOT NULL, reason TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TRIGGER entries_stay BEFORE DELETE ON entries"
    " BEGIN SELECT RAISE(ABORT, 'entries of the ledger stay'); END",
    "CREATE TRIGGER entries_are_final BEFORE UPDATE ON entries"
    " BEGIN SELECT RAISE(ABORT, 'entries of the ledger are final'); END",
)
_ENTRY = "key, at, node, kind, text, gpu, by, outage"


class Ledger:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    def known(self) -> dict[str, Known]:
        rows = self._connection.execute("SELECT node, first_seen, boot, out, reason FROM nodes")
        return {row[0]: Known(row[0], row[1], row[2], bool(row[3]), row[4]) for row in rows}

    def entries(
        self, *, since: float = 0.0, node: str | None = None, gpu: str | None = None
    ) -> Iterator[Entry]:
        """In the order of time."""
        where, values = ["at >= ?"], [since]
        parameters: list[object] = list(values)
        for column, value in (("node", node), ("gpu", gpu)):
            if value is not None:
                where.append(f"{column} = ?")
                parameters.append(value)
        rows = self._connection.execute(
            f"SELECT {_ENTRY} FROM entries WHERE {' AND '.join(where)} ORDER BY at, number",
            parameters,
        )
        for key, at, name, kind, text, board, by, outage in rows:
            yield Entry(key, at, name, kind, text, board, by, bool(outage))

    def counts(self) -> dict[tuple[str, str], int]:
        """Entries ever, by node and kind."""
        rows = self._connection.execute(
            "SELECT node, kind, COUNT(*) FROM entries GROUP BY node, kind"
        )
        return {(node, kind): count for node, kind, count in rows}

    def write(self, entries: Iterable[Entry], known: Iterable[Known] = ()) -> int:
        """All or nothing; how many entries were new."""
        rows = [(e.key, e.at, e.node, e.kind, e.text, e.gpu, e.by, int(e.outage)) for e in entries]
        nodes = [(k.node, k.first_seen, k.boot, int(k.out), k.reason) for k in known]
        if not rows and not nodes:
            return 0
        with self._connection:
            before = self._connection.total_changes
            self._connection.executemany(
                f"INSERT OR IGNORE INTO entries ({_ENTRY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows
            )
            new = self._connection.total_changes - before
            self._connection.executemany(
                "INSERT OR REPLACE INTO nodes (node, first_seen, boot, out, reason)"
                " VALUES (?, ?, ?, ?, ?)",
                nodes,
            )
        return new


@contextmanager
def opened(path: Path, *, write: bool) -> Iterator[Ledger]:
    """Made where it is not there and may be written. Raises Failed, in one sentence."""
    try:
        if write:
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        elif not path.is_file():
            raise Failed(f"there is no {path}: the exporter makes it in its first round")
        mode = "rwc" if write else "ro"
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, timeout=WAIT_S)
        ) as connection:
            _prepare(path, connection, write)
            yield Ledger(path, connection)
    except sqlite3.Error as error:
        raise Failed(f"{path}: {error}") from None
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from None


def _prepare(path: Path, connection: sqlite3.Connection, write: bool) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise Failed(f"{path} is of a newer Plumbline, and left alone")
    if version or not write:
        return
    path.chmod(0o640)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        # Another may have made them while this one waited.
        if connection.execute("PRAGMA user_version").fetchone() == (0,):
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
