"""Archives: what is in them, what is no archive, and which of them go."""

from __future__ import annotations

import gzip
import os
import sqlite3
import stat
import tarfile
import threading
from contextlib import closing
from pathlib import Path

import pytest

from roles.backup.files.backup import collect, kept, make, manifest, sealed
from roles.backup.files.backup.errors import Refused
from roles.backup.tests.conftest import DUMP, Host, Key


def opened(host: Host, key: Key, made: make.Made) -> tuple[manifest.Manifest, Path]:
    tar = host.root / "opened.tar"
    return sealed.unseal(made.path, key.private, tar), tar


def text(tar: Path, name: str) -> bytes:
    with tarfile.open(tar) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


def test_an_archive_has_what_the_host_has(host: Host, keys: tuple[Key, Key]) -> None:
    made = host.make()
    about, tar = opened(host, keys[0], made)
    assert (about.cluster, about.host, about.slurm, about.next_job) == ("c", "ctl1", "24.11", 42)
    assert about.parts == ("database", "files", "state")
    assert gzip.decompress(text(tar, "database/slurm_acct_db.sql.gz")).decode() == DUMP
    assert text(tar, "state/hash.1/job.41/script") == b"#!/bin/sh"
    assert text(tar, f"files{host.root}/etc/munge.key") == b"key of munge"
    names = {member.path for member in about.members}
    assert "state/job_state" in names
    assert "state/job_state.new" not in names
    assert set(about.secrets) == {"munge.key", "slurm_database_password"}


def test_nobody_but_root_reads_an_archive_and_nothing_plain_is_left(host: Host) -> None:
    made = host.make()
    left = sorted(path.name for path in host.settings.folder.iterdir())
    assert left == [".lock", made.path.name, f"{made.path.name}.sha256"]
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert b"key of munge" not in made.path.read_bytes()
    told = made.path.with_name(left[2]).read_text()
    assert told == f"{collect.sha256(made.path)}  {made.path.name}\n"


def test_the_metric_is_of_the_last_good_backup(host: Host) -> None:
    host.make()
    metrics = Path(host.settings.textfile)
    before = metrics.read_text()
    assert "\nplumbline_backup_last_success_timestamp_seconds 1" in before
    assert stat.S_IMODE(metrics.stat().st_mode) == 0o644
    with pytest.raises(Refused, match="was made and not copied"):
        host.make(copy=("false", "{archive}"))
    assert metrics.read_text() == before


def test_a_copy_has_the_archive_and_its_checksum(host: Host) -> None:
    (host.root / "vault").mkdir()
    made = host.make(copy=("cp", "{archive}", "{checksum}", str(host.root / "vault")))
    there = sorted(path.name for path in (host.root / "vault").iterdir())
    assert there == [made.path.name, f"{made.path.name}.sha256"]


@pytest.mark.parametrize(
    ("dump", "status", "words"),
    [
        (DUMP[: DUMP.index("-- Dump completed")], 0, "does not end with `-- Dump completed`"),
        ("", 0, "does not end with"),
        (DUMP, 2, "mariadb-dump of slurm_acct_db failed"),
    ],
)
def test_a_dump_that_is_not_whole_makes_no_archive(
    host: Host, dump: str, status: int, words: str
) -> None:
    first = host.make()
    host.dumps(dump, status)
    with pytest.raises(Refused, match=words):
        host.make()
    assert [path.name for path in host.settings.folder.glob("*.age")] == [first.path.name]
    assert not list(host.settings.folder.glob("*.part"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recipients": ("age1nokey",)}, "age did not encrypt the archive"),
        ({"files": ("/nothing/here",)}, "/nothing/here is to be kept and is not there"),
        ({"state": "/nothing/here"}, "has no state of slurmctld"),
        ({"sqlite": ("/nothing/here",)}, "/nothing/here is to be kept"),
    ],
)
def test_what_cannot_be_kept_makes_no_archive(
    host: Host, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        host.make(**changes)
    assert not list(host.settings.folder.glob("*.age*"))


def test_a_missing_mariadb_dump_is_told(host: Host) -> None:
    with (
        pytest.raises(Refused, match="no-such-program"),
        collect.dumping(host.root, "x", ("no-such-program",)),
    ):
        pass


def test_the_queue_is_copied_once_the_dump_has_begun_and_before_it_ends(host: Host) -> None:
    """A dump shows the moment at which it began, however long it takes."""
    table = DUMP.index("CREATE")
    (host.root / "begin").write_text(DUMP[:table])
    (host.root / "rest").write_text(DUMP[table:])
    gate = host.root / "gate"
    os.mkfifo(gate)
    host.says("mariadb-dump", f"cat {host.root}/begin; cat {gate} >/dev/null; cat {host.root}/rest")
    spool = host.root / "spool"
    with collect.dumping(spool, "slurm_acct_db") as dumped:
        queue = collect.state(spool, Path(host.settings.state))
        assert queue
        assert not dumped
        threading.Thread(target=gate.write_text, args=("go",), daemon=True).start()
    assert [member.path for member in dumped] == ["database/slurm_acct_db.sql.gz"]


def test_a_job_that_comes_while_the_queue_is_copied_has_its_script(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its line is in job_state: without a script it would fail when it starts."""
    state = Path(host.settings.state)
    copied = collect.copied

    def submits(path: Path, spool: Path, place: Path) -> manifest.Member:
        if path.name == "job_state":
            (state / "hash.1/job.42").mkdir()
            (state / "hash.1/job.42/script").write_text("#!/bin/sh")
        return copied(path, spool, place)

    monkeypatch.setattr(collect, "copied", submits)
    names = {member.path for member in collect.state(host.root / "spool", state)}
    assert "state/hash.1/job.42/script" in names


def test_a_job_that_ends_while_the_queue_is_copied_is_left_out(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path, spool: Path, place: Path) -> manifest.Member:
        if path.name == "script":
            path.unlink()
        return copied(path, spool, place)

    copied = collect.copied
    monkeypatch.setattr(collect, "copied", gone)
    members = collect.state(host.root / "spool", Path(host.settings.state))
    assert "state/hash.1/job.41/script" not in {member.path for member in members}


def test_sqlite_is_copied_while_it_is_written(host: Host, keys: tuple[Key, Key]) -> None:
    path = host.root / "grafana.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("create table x (y)")
        database.execute("insert into x values (1)")
        database.commit()
        database.execute("insert into x values (2)")  # and not committed
        made = host.make(sqlite=(str(path),))
    _, tar = opened(host, keys[0], made)
    copy = host.root / "copy.db"
    copy.write_bytes(text(tar, f"sqlite{path}"))
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("select y from x").fetchall() == [(1,)]


def test_old_archives_go_and_the_newest_stay(host: Host) -> None:
    host.settings.folder.mkdir()
    others = ["c-ctl1-20260101T000000Z", "c-ctl1-20260102T000000Z", "c-ctl2-20250101T000000Z"]
    for name in others:
        (host.settings.folder / f"{name}.tar.age").write_text("an archive")
        (host.settings.folder / f"{name}.tar.age.sha256").write_text("its hash")
    made = host.make()
    assert made.removed == (f"{others[0]}.tar.age",)
    there = sorted(path.name for path in host.settings.folder.glob("*.age"))
    assert there == sorted([f"{others[1]}.tar.age", f"{others[2]}.tar.age", made.path.name])
    assert len(list(host.settings.folder.glob("*.sha256"))) == 3


def test_a_backup_that_fails_removes_no_archive(host: Host) -> None:
    host.settings.folder.mkdir()
    names = {f"c-ctl1-2026010{day}T000000Z.tar.age" for day in range(1, 6)}
    for name in names:
        (host.settings.folder / name).write_text("an archive")
    host.dumps("")
    with pytest.raises(Refused):
        host.make()
    assert {path.name for path in host.settings.folder.glob("*.age")} == names


@pytest.mark.parametrize("keep", [-1, 0, 1])
def test_one_archive_always_stays(keep: int) -> None:
    names = [f"c-h-2026010{day}T000000Z.tar.age" for day in (2, 1)]
    assert kept.surplus([*names, "c-h-x.tar.age"], "c-h", keep) == names[1:]


def test_a_second_backup_at_a_time_is_refused(host: Host) -> None:
    with (
        make._alone(host.root),
        pytest.raises(Refused, match="another backup of this host runs"),
        make._alone(host.root),
    ):
        pass


def test_leftovers_of_a_killed_backup_go(host: Host) -> None:
    (host.settings.folder / "tmpx.part/files").mkdir(parents=True)
    (host.settings.folder / "c-ctl1-x.part").write_text("plain")
    host.make()
    assert not list(host.settings.folder.glob("*.part"))


@pytest.mark.parametrize("lost", [1, 17, 70000])
def test_an_archive_whose_end_the_disk_did_not_take_is_noticed(host: Host, lost: int) -> None:
    """From outside: nothing on the cluster can decrypt it."""
    (host.root / "etc/slurm/large").write_bytes(os.urandom(100_000))
    made = host.make()
    whole = made.path.stat().st_size
    plain = host.root / "plain"
    sealed_plain = _plain_size(made.path)
    sealed.check_sealed(made.path, sealed_plain, 1)
    plain.write_bytes(made.path.read_bytes()[: whole - lost])
    with pytest.raises(Refused, match="look whether its disk is full"):
        sealed.check_sealed(plain, sealed_plain, 1)
    with pytest.raises(Refused, match="for 1 keys"):
        sealed.check_sealed(made.path, sealed_plain, 2)


def _plain_size(path: Path) -> int:
    with open(path, "rb") as file:
        body = path.stat().st_size - len(sealed._header(file)) - sealed.NONCE
    return body - sealed.TAG * -(-body // (sealed.CHUNK + sealed.TAG))
