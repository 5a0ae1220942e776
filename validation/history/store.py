"""The file of the history: tables, their version, and who may write at once.

It may lie on NFS, where SQLite's write-ahead log does not work: its index is shared memory of one
host. So it is kept with a rollback journal, and a writer locks the file for one short transaction;
another waits for it. A version says what the tables are: an older file is brought up to date in the
transaction of the first writer, and a newer one is left alone.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import PlumblineError
from validation.history.runs import Figure, Judged, Run

NAME = "history.sqlite"
WAIT_S = 30.0  # for another run that is writing

# What makes each version of the one before. Names are kept once: a run of 1,024 nodes has 200,000
# figures.
_STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE runs (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
        " suite TEXT NOT NULL, cluster TEXT NOT NULL, started REAL NOT NULL,"
        " seconds REAL NOT NULL, verdict TEXT NOT NULL, version TEXT NOT NULL,"
        " partial INTEGER NOT NULL, interrupted INTEGER NOT NULL)",
        "CREATE TABLE subjects (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
        "CREATE TABLE names (number INTEGER PRIMARY KEY, check_name TEXT NOT NULL,"
        " name TEXT NOT NULL, unit TEXT NOT NULL, UNIQUE (check_name, name, unit))",
        "CREATE TABLE results (run INTEGER NOT NULL, check_name TEXT NOT NULL,"
        " subject INTEGER NOT NULL, tier TEXT NOT NULL, verdict TEXT NOT NULL,"
        " message TEXT NOT NULL, PRIMARY KEY (run, check_name, subject)) WITHOUT ROWID",
        "CREATE TABLE metrics (run INTEGER NOT NULL, name INTEGER NOT NULL,"
        " subject INTEGER NOT NULL, value REAL NOT NULL, threshold REAL,"
        " PRIMARY KEY (run, name, subject)) WITHOUT ROWID",
    ),
    # A figure of one node over all runs is found without reading all of them.
    ("CREATE INDEX metrics_over_time ON metrics (subject, name)",),
)
VERSION = len(_STEPS)


class NoHistory(PlumblineError):
    """Why the history cannot be read or written, in a sentence."""


@dataclass(frozen=True, slots=True)
class Known:
    """A run as it is listed: without what it found."""

    number: int
    run_id: str
    suite: str
    cluster: str
    started: float
    seconds: float
    verdict: str
    version: str
    partial: bool
    interrupted: bool
    counts: tuple[tuple[str, int], ...] = ()  # results by verdict


def _known(row: Sequence[Any], counts: tuple[tuple[str, int], ...]) -> Known:
    number, run_id, suite, cluster, started, seconds, verdict, version, partial, interrupted = row
    return Known(
        *(number, run_id, suite, cluster, started, seconds, verdict, version),
        partial=bool(partial),
        interrupted=bool(interrupted),
        counts=counts,
    )


@dataclass(frozen=True, slots=True)
class Point:
    run: Known
    figure: Figure


class History:
    """An open file; `opened` and `read` make one."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._db = connection

    def add(self, run: Run) -> bool:
        """Keep the run, all of it or nothing; False where it is there already.

        Raises NoHistory.
        """
        with _sentences(self.path), self._writing():
            if self._db.execute("SELECT 1 FROM runs WHERE id = ?", (run.run_id,)).fetchone():
                return False
            number = self._db.execute(
                "INSERT INTO runs (id, suite, cluster, started, seconds, verdict, version,"
                " partial, interrupted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(run.run_id, run.suite, run.cluster, run.started, run.seconds),
                    *(run.verdict, run.version, run.partial, run.interrupted),
                ),
            ).lastrowid
            about = [*(r.subject for r in run.results), *(f.subject for f in run.figures)]
            subjects = self._numbers("subjects", "name", ((name,) for name in about))
            names = self._numbers(
                "names", "check_name, name, unit", ((f.check, f.name, f.unit) for f in run.figures)
            )
            self._db.executemany(
                "INSERT INTO results VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (number, r.check, subjects[r.subject,], r.tier, r.verdict, r.message)
                    for r in run.results
                ),
            )
            self._db.executemany(
                "INSERT INTO metrics VALUES (?, ?, ?, ?, ?)",
                (
                    (number, names[f.check, f.name, f.unit], subjects[f.subject,], f.value,
                     f.threshold)
                    for f in run.figures
                ),
            )  # fmt: skip
        return True

    def runs(self, since: float = 0.0) -> list[Known]:
        """Oldest first. Raises NoHistory."""
        with _sentences(self.path):
            counts: dict[int, list[tuple[str, int]]] = {}
            for number, verdict, count in self._db.execute(
                "SELECT run, verdict, count(*) FROM results GROUP BY run, verdict"
            ):
                counts.setdefault(number, []).append((verdict, count))
            rows = self._db.execute(
                "SELECT number, id, suite, cluster, started, seconds, verdict, version, partial,"
                " interrupted FROM runs WHERE started >= ? ORDER BY started, number",
                (since,),
            ).fetchall()
        return [_known(row, tuple(counts.get(row[0], ()))) for row in rows]

    def subjects(self) -> list[str]:
        return self._texts("SELECT name FROM subjects ORDER BY name")

    def checks(self) -> list[str]:
        return self._texts("SELECT DISTINCT check_name FROM results ORDER BY check_name")

    def results(self, run: Known) -> list[Judged]:
        with _sentences(self.path):
            rows = self._db.execute(
                "SELECT check_name, tier, s.name, verdict, message FROM results"
                " JOIN subjects s ON s.number = subject WHERE run = ?",
                (run.number,),
            ).fetchall()
        return [Judged(*row) for row in rows]

    def results_of(self, subject: str | None, check: str | None) -> list[tuple[int, Judged]]:
        """With the number of the run; of one subject, one check, or both."""
        with _sentences(self.path):
            rows = self._db.execute(
                "SELECT run, check_name, tier, s.name, verdict, message FROM results"
                " JOIN subjects s ON s.number = subject"
                " WHERE (?1 IS NULL OR s.name = ?1) AND (?2 IS NULL OR check_name = ?2)",
                (subject, check),
            ).fetchall()
        return [(row[0], Judged(*row[1:])) for row in rows]

    def figures(self, run: Known) -> list[Figure]:
        return [point.figure for point in self._points([run], "m.run = ?", (run.number,))]

    def over_time(
        self, runs: Sequence[Known], subject: str | None, check: str | None
    ) -> list[Point]:
        """Each figure of a subject, of a check or of both, in the order of the runs."""
        where = "(?1 IS NULL OR s.name = ?1) AND (?2 IS NULL OR n.check_name = ?2)"
        return self._points(runs, where, (subject, check))

    def _points(self, runs: Sequence[Known], where: str, values: Sequence[object]) -> list[Point]:
        known = {run.number: run for run in runs}
        with _sentences(self.path):
            rows = self._db.execute(
                "SELECT m.run, n.check_name, s.name, n.name, n.unit, value, threshold"
                " FROM metrics m JOIN names n ON n.number = m.name"
                f" JOIN subjects s ON s.number = m.subject WHERE {where}",
                values,
            )
            points = [Point(known[row[0]], Figure(*row[1:])) for row in rows if row[0] in known]
        return sorted(points, key=lambda point: (point.run.started, point.run.number))

    def _texts(self, query: str) -> list[str]:
        with _sentences(self.path):
            return [row[0] for row in self._db.execute(query)]

    def _numbers(
        self, table: str, columns: str, keys: Iterable[tuple[str, ...]]
    ) -> dict[tuple[str, ...], int]:
        """The number of each key in a table of names; new ones are added."""
        count = len(columns.split(","))
        known: dict[tuple[str, ...], int] = {}
        for key in dict.fromkeys(keys):
            marks = ", ".join("?" * count)
            self._db.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", key)
            where = " AND ".join(f"{column.strip()} = ?" for column in columns.split(","))
            (known[key],) = self._db.execute(
                f"SELECT number FROM {table} WHERE {where}", key
            ).fetchone()
        return known

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        # At once, not at the first write: two readers that both want to write would be a deadlock.
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def bring_up_to_date(self) -> None:
        """Raises NoHistory where the file is another program's, or of a newer Plumbline."""
        with _sentences(self.path):
            if self.version() == VERSION:
                return
            with self._writing():
                # Another writer may have done it while this one waited.
                for step in _STEPS[self._version() :]:
                    for statement in step:
                        self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {VERSION}")

    def version(self) -> int:
        """Of the file's tables. Raises NoHistory where this Plumbline cannot read them."""
        # In one transaction: another process may make the tables between two looks.
        self._db.execute("BEGIN")
        try:
            return self._version()
        finally:
            self._db.execute("ROLLBACK")

    def _version(self) -> int:
        (found,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if found > VERSION:
            raise NoHistory(
                f"{self.path} is of a newer Plumbline (version {found} of its tables, this one "
                f"knows {VERSION}): update Plumbline, or name another file with --history"
            )
        if found == 0 and tables:
            raise NoHistory(f"{self.path} is the SQLite file of another program")
        return int(found)


@contextlib.contextmanager
def opened(path: Path, wait_s: float = WAIT_S) -> Iterator[History]:
    """The history, to write into; made where it is not there. Raises NoHistory."""
    with _connected(path, path.as_posix(), False, wait_s) as history:
        history.bring_up_to_date()
        yield history


@contextlib.contextmanager
def read(path: Path, wait_s: float = WAIT_S) -> Iterator[History]:
    """The history, to read. Raises NoHistory.

    An older file is brought up to date where it may be written.
    """
    if not path.is_file():
        raise NoHistory(
            f"there is no {path}: a run of validation.run writes it beside its results; older "
            f"ones are read by `python -m validation.history --import {path.parent}/*`"
        )
    with _connected(path, f"{path.absolute().as_uri()}?mode=rw", True, wait_s) as history:
        with _sentences(path):
            older = history.version() < VERSION
        if older:
            history.bring_up_to_date()
        yield history


@contextlib.contextmanager
def _connected(path: Path, name: str, uri: bool, wait_s: float) -> Iterator[History]:
    with _sentences(path):
        connection = sqlite3.connect(name, timeout=wait_s, isolation_level=None, uri=uri)
    try:
        yield History(path, connection)
    finally:
        connection.close()


@contextlib.contextmanager
def _sentences(path: Path) -> Iterator[None]:
    """SQLite's complaints as ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise NoHistory(f"{path}: {error}") from error
