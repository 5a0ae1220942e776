"""What is refused before anything is touched, and what is put back."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from roles.backup.files.backup import main, make, manifest, put, sealed, unpack
from roles.backup.files.backup.errors import Refused
from roles.backup.library import backup_look
from roles.backup.tests.conftest import Host, Key

WEEK = timedelta(days=7)
WANTED = unpack.Wanted("c", ("database", "state"), "24.11", WEEK)


@pytest.fixture
def made(host: Host) -> make.Made:
    return host.make()


def unpacked(
    host: Host, key: Key, paths: list[Path], wanted: unpack.Wanted = WANTED, days: float = 0
) -> list[unpack.Opened]:
    into = host.root / "into"
    into.mkdir(exist_ok=True)
    now = unpack.now() + timedelta(days=days)
    return unpack.unpack(paths, key.private, into, wanted, "age", now)


def test_a_good_archive_is_opened_by_one_of_its_keys_alone(
    host: Host, keys: tuple[Key, Key]
) -> None:
    made = host.make(recipients=(keys[0].public, keys[1].public))
    for key in keys:
        (one,) = unpacked(host, key, [made.path])
        assert one.about.next_job == 42
        assert stat.S_IMODE(one.tar.stat().st_mode) == 0o600
        assert json.loads(unpack.told([one]))[0]["parts"] == ["database", "files", "state"]


@pytest.mark.parametrize("part", [0.0, 0.05, 0.5, 0.99])
def test_a_truncated_archive_is_refused(
    host: Host, keys: tuple[Key, Key], made: make.Made, part: float
) -> None:
    whole = made.path.read_bytes()
    made.path.write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(Refused, match=r"is truncated or damaged|is no archive of age"):
        unpacked(host, keys[0], [made.path])


def test_an_archive_with_one_other_bit_is_refused(
    host: Host, keys: tuple[Key, Key], made: make.Made
) -> None:
    whole = bytearray(made.path.read_bytes())
    whole[-100] ^= 1
    made.path.write_bytes(whole)
    with pytest.raises(Refused, match="is truncated or damaged"):
        unpacked(host, keys[0], [made.path])


def test_another_key_is_refused(host: Host, keys: tuple[Key, Key], made: make.Made) -> None:
    with pytest.raises(Refused, match="is encrypted to other keys than the one in"):
        unpacked(host, keys[1], [made.path])


@pytest.mark.parametrize("text", ["", "no key", "AGE-SECRET-KEY-1QQQ"])
def test_a_file_that_is_no_key_is_refused(
    host: Host, keys: tuple[Key, Key], made: make.Made, text: str
) -> None:
    key = replace(keys[0], private=host.root / "key")
    key.private.write_text(text)
    with pytest.raises(Refused, match=r"cannot be decrypted with .*key"):
        unpacked(host, key, [made.path])
    key.private.unlink()
    with pytest.raises(Refused, match="backup_restore_identity"):
        unpacked(host, key, [made.path])


@pytest.mark.parametrize(
    ("wanted", "days", "words"),
    [
        (WANTED, 7.5, "7 days old, and 7 are allowed; give a newer one, or set "
                      "backup_restore_max_age_days=8"),
        (replace(WANTED, cluster="d"), 0, "is of the cluster c, and this is d"),
        (replace(WANTED, release="24.05"), 0, "which cannot read newer files"),
        (replace(WANTED, parts=("database", "sqlite")), 0, "the part sqlite must be in one"),
    ],
)  # fmt: skip
def test_an_archive_that_does_not_fit_is_refused(
    host: Host,
    keys: tuple[Key, Key],
    made: make.Made,
    wanted: unpack.Wanted,
    days: float,
    words: str,
) -> None:
    with pytest.raises(Refused, match=words):
        unpacked(host, keys[0], [made.path], wanted, days)


@pytest.mark.parametrize(
    ("archived", "installed", "readable"),
    [
        ("24.11", "24.11", True),
        ("22.05", "23.11", True),
        ("22.05", "24.05", False),
        ("23.02", "24.11", True),
        ("23.02", "25.05", False),
        ("25.05", "24.11", False),
        ("", "24.11", True),
        ("24.11", "", True),
    ],
)
def test_which_slurm_reads_which(archived: str, installed: str, readable: bool) -> None:
    assert (unpack.unread(archived, installed) == "") is readable


def sealed_anew(host: Host, key: Key, edit: Callable[[dict[str, Any]], None]) -> Path:
    """An archive whose manifest somebody edited who has the public key, as everybody may."""
    made = host.make()
    tar = host.root / "plain.tar"
    sealed.unseal(made.path, key.private, tar)
    other, path = host.root / "other.tar", host.root / "other.age"
    with tarfile.open(tar) as source, tarfile.open(other, "w") as copy:
        for entry in source:
            file = source.extractfile(entry) if entry.isreg() else None
            content = file.read() if file else b""
            if entry.name == manifest.NAME:
                document = json.loads(content)
                edit(document)
                content = json.dumps(document).encode()
            entry.size = len(content)
            copy.addfile(entry, io.BytesIO(content))
    os.system(f"age -r {key.public} -o {path} {other}")
    return path


def other_hash(document: dict[str, Any]) -> None:
    file = next(m for m in document["members"] if m["path"] == "state/job_state")
    file["sha256"] = "0" * 64


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda document: document.update(format=2), "has the format 2, and this Plumbline reads"),
        (lambda document: document.pop("cluster"), "has a manifest that cannot be read"),
        (lambda document: document["members"].pop(0), "which its manifest does not"),
        (other_hash, "has another state/job_state than its manifest says"),
        (
            lambda document: document["members"].append(
                document["members"][0] | {"path": "state/more"}
            ),
            "lacks state/more",
        ),
    ],
)
def test_an_archive_that_is_not_what_its_manifest_says_is_refused(
    host: Host, keys: tuple[Key, Key], edit: Callable[[dict[str, Any]], None], words: str
) -> None:
    path = sealed_anew(host, keys[0], edit)
    with pytest.raises(Refused, match=words):
        unpacked(host, keys[0], [path])


def test_archives_of_different_backups_are_refused(host: Host, keys: tuple[Key, Key]) -> None:
    database = host.make(host="db1", state="")
    state = host.make(host="ctl1", database="")
    opened = unpacked(host, keys[0], [database.path, state.path])
    assert [one.about.host for one in opened] == ["db1", "ctl1"]
    about = replace(opened[1].about, time=opened[1].about.time - timedelta(hours=2))
    with pytest.raises(Refused, match="are of different backups"):
        unpack._together([opened[0], replace(opened[1], about=about)], WANTED)
    with pytest.raises(Refused, match="the part database must be in one of the archives"):
        unpack._together([opened[0], opened[0]], WANTED)


def test_of_a_folder_the_newest_archive_of_each_host_is_taken(tmp_path: Path) -> None:
    for name in ("c-a-20260101T000000Z", "c-a-20260102T000000Z", "c-b-1-20260101T000000Z"):
        (tmp_path / f"{name}.tar.age").touch()
    names = [path.name for path in unpack.archives(tmp_path)]
    assert names == ["c-a-20260102T000000Z.tar.age", "c-b-1-20260101T000000Z.tar.age"]
    (tmp_path / "empty").mkdir()
    for given in (tmp_path / "empty", tmp_path / "nothing"):
        with pytest.raises(Refused, match="set backup_restore_from to one"):
            unpack.archives(given)


def test_the_program_refuses_in_one_sentence(
    host: Host, keys: tuple[Key, Key], made: make.Made, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["unpack", str(made.path), f"--identity={keys[1].private}", f"--into={host.root}"]
    assert main.main([*words, "--cluster=c", "--need", "state"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"{made.path} is encrypted to other keys")


# --- secrets --------------------------------------------------------------------------------------


def test_secrets_that_are_missing_come_back_and_others_stay(
    host: Host, keys: tuple[Key, Key], made: make.Made
) -> None:
    (one,) = unpacked(host, keys[0], [made.path])
    folder = host.root / "secrets"
    assert unpack.secrets([one.tar], folder) == ["munge.key", "slurm_database_password"]
    assert (folder / "munge.key").read_text() == "key of munge"
    assert (folder / "slurm_database_password").read_text() == "a secret=1"
    assert stat.S_IMODE((folder / "munge.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "munge.key").write_text("a newer key")
    assert unpack.secrets([one.tar], folder) == []
    assert (folder / "munge.key").read_text() == "a newer key"


# --- on the host ----------------------------------------------------------------------------------


def test_the_queue_takes_the_place_of_another_which_is_kept(
    host: Host, keys: tuple[Key, Key], made: make.Made
) -> None:
    (one,) = unpacked(host, keys[0], [made.path])
    folder = host.root / "slurm/slurmctld"
    folder.mkdir(parents=True)  # as the package makes it
    assert "what was there" not in put.state(one.tar, folder)
    assert (folder / "job_state").read_text() == "jobs"
    assert (folder / "hash.1/job.41/script").read_text() == "#!/bin/sh"
    (folder / "job_state").write_text("other jobs")
    said = put.state(one.tar, folder)
    assert (folder / "job_state").read_text() == "jobs"
    (before,) = folder.parent.glob("slurmctld.before-*")
    assert (before / "job_state").read_text() == "other jobs"
    assert str(before) in said
    assert not folder.with_name("slurmctld.restoring").exists()


def test_a_daemon_that_runs_is_not_robbed_of_its_state(
    host: Host, keys: tuple[Key, Key], made: make.Made
) -> None:
    (one,) = unpacked(host, keys[0], [made.path])
    host.says("systemctl", "echo active")
    with pytest.raises(Refused, match="slurmctld runs on this host; stop it first"):
        put.state(one.tar, host.root / "state")
    with pytest.raises(Refused, match="slurmdbd runs on this host"):
        put.database(one.tar, "slurm_acct_db")


def test_a_slurm_that_cannot_read_it_gets_nothing(
    host: Host, keys: tuple[Key, Key], made: make.Made
) -> None:
    """On a bare host it is known once Slurm is installed."""
    (one,) = unpacked(host, keys[0], [made.path])
    host.says("slurmctld", "echo slurm-wlm 24.05.1")
    with pytest.raises(Refused, match=r"the archive is of Slurm 24\.11, and the host has 24\.05"):
        put.database(one.tar, "slurm_acct_db")
    with pytest.raises(Refused, match="which cannot read newer files"):
        put.state(one.tar, host.root / "state")


def test_a_name_that_would_be_more_than_a_name_is_refused(
    host: Host, keys: tuple[Key, Key], made: make.Made
) -> None:
    (one,) = unpacked(host, keys[0], [made.path])
    with pytest.raises(Refused, match="is not made of letters"):
        put.database(one.tar, "x`; drop database y")


# --- what is in use -------------------------------------------------------------------------------


def answers(**by_program: tuple[int, str]) -> backup_look.Run:
    return lambda command: by_program.get(
        command[2] if command[0] == "timeout" else command[0], (127, "")
    )


def test_a_bare_host_has_nothing_in_use(tmp_path: Path) -> None:
    run = answers()
    assert backup_look.release(run) == ""
    assert backup_look.queue(tmp_path / "slurmctld", run) == ""
    assert backup_look.records("slurm_acct_db", "c", tmp_path / "mysql", run) == ""


@pytest.mark.parametrize(
    ("answer", "words"),
    [((0, ""), ""), ((0, "41\n42\n"), "a queue with 2 jobs"), ((124, ""), "does not answer")],
)
def test_a_queue_in_use_is_told(tmp_path: Path, answer: tuple[int, str], words: str) -> None:
    (tmp_path / "job_state").touch()
    told = backup_look.queue(tmp_path, answers(squeue=answer))
    assert told.endswith(words)
    assert bool(told) is bool(words)


@pytest.mark.parametrize(
    ("tables", "rows", "words"),
    [
        ((0, ""), (0, ""), ""),
        ((0, "c_job_table\n"), (0, "0\n"), ""),
        ((0, "c_job_table\n"), (0, "7\n"), "has 7 jobs"),
        ((0, "c_job_table\n"), (1, ""), "cannot be counted"),
        ((1, ""), (0, ""), "MariaDB does not answer"),
    ],
)
def test_records_are_told(
    tmp_path: Path, tables: tuple[int, str], rows: tuple[int, str], words: str
) -> None:
    (tmp_path / "slurm_acct_db").mkdir()
    told = backup_look.records(
        "slurm_acct_db", "c", tmp_path, lambda command: tables if "SHOW" in command[-1] else rows
    )
    assert told.endswith(words)
    assert bool(told) is bool(words)


def test_a_manifest_is_read_as_it_was_written(host: Host) -> None:
    now = datetime(2026, 11, 27, 8, 0, tzinfo=UTC)
    member = manifest.Member("state/x", manifest.FILE, 1, "0" * 64, 0o600, "slurm", "slurm")
    about = manifest.Manifest(
        1, "c", "h", now, "0.1.0", "24.11", "slurm_acct_db", 42, {"a": "/b"}, (member,)
    )
    assert manifest.of(about.text()) == about
