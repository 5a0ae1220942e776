"""scripts/secrets: how a cluster's secrets are kept, and never one of them on the screen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from playbooks.plugin_utils import kept, rotation, sealing
from playbooks.plugin_utils import secrets_command as command
from tests.conftest import REPOSITORY
from tests.standins.inventories import good, ready, write
from tests.test_kept import git

VALUES = {"munge.key": "m" * 64, "slurm_jwt_key": "j" * 64, "own_token": "o" * 20}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    inventory = write(tmp_path / "site", good())
    for name, value in VALUES.items():
        kept.keep(inventory / ".secrets" / name, value)
    (tmp_path / "vault").write_text("vault password\n")
    (tmp_path / "other").write_text("other password\n")
    return inventory


def passwords(path: Path) -> sealing.Passwords:
    return command.passwords(str(path))


def secrets(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The program, whose screen has no value whatever it does."""
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "scripts/secrets"), *map(str, arguments)],
        cwd=REPOSITORY,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    for value in (*VALUES.values(), "vault password", "other password"):
        assert value not in done.stdout + done.stderr
    return done


def test_the_program_lists_encrypts_and_decrypts(site: Path) -> None:
    """One process for each verb; the other tests call what these call."""
    vault = ("--vault-password-file", site.parent / "vault")
    listed = secrets("list", "-i", site)
    assert listed.returncode == 0, listed.stderr
    lines = [line.split() for line in listed.stdout.splitlines()]
    assert ["munge.key", "all", "of", "Slurm,"] in [words[:4] for words in lines]
    assert "rotate-secrets.yml -e rotate=munge" in listed.stdout
    assert secrets("encrypt", "-i", site, *vault).returncode == 0
    assert all(secret.sealed for secret in files(site).values())
    done = secrets("decrypt", "-i", site, *vault, "munge.key")
    assert done.stdout.splitlines()[-1] == f"1 of 1 files changed in {site}/.secrets."
    assert (site / ".secrets/munge.key").read_text() == VALUES["munge.key"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "required: VERB"),
        (("list",), 2, "required: -i"),
        (("list", "-i", "/none"), 1, "secrets: there is no inventory /none."),
    ],
)
def test_the_program_says_what_is_missing(arguments: tuple[str, ...], code: int, says: str) -> None:
    done = secrets(*arguments)
    assert done.returncode == code
    assert says in done.stderr


def files(site: Path) -> dict[str, command.Kept]:
    return {secret.path.name: secret for secret in command.kept_in(site / ".secrets")}


def test_another_folder_is_that_of_the_inventory(tmp_path: Path) -> None:
    ready()
    chosen = {"group_vars/all.yml": {"cluster_secrets": str(tmp_path / "elsewhere")}}
    assert command.folder_of([str(write(tmp_path / "a", good(), chosen))]) == tmp_path / "elsewhere"


def test_a_file_in_the_vault_keeps_its_value_its_age_and_its_mode(site: Path) -> None:
    vault = passwords(site.parent / "vault")
    path = site / ".secrets/munge.key"
    os.utime(path, (1000, 1000))
    assert command.encrypt(files(site)["munge.key"], vault)
    assert sealing.is_sealed(path.read_bytes())
    assert not command.encrypt(files(site)["munge.key"], vault)
    assert (path.stat().st_mtime, path.stat().st_mode & 0o777) == (1000, 0o600)
    assert command.decrypt(files(site)["munge.key"], vault)
    assert path.read_text() == VALUES["munge.key"]
    assert (path.stat().st_mtime, path.stat().st_mode & 0o777) == (1000, 0o600)


def test_another_password_opens_nothing_and_changes_nothing(site: Path) -> None:
    command.encrypt(files(site)["munge.key"], passwords(site.parent / "vault"))
    before = (site / ".secrets/munge.key").read_bytes()
    for verb in (command.encrypt, command.decrypt):
        with pytest.raises(kept.NotKept, match="none of the vault passwords of this run opens"):
            verb(files(site)["munge.key"], passwords(site.parent / "other"))
    assert (site / ".secrets/munge.key").read_bytes() == before


def test_a_rekey_that_was_interrupted_is_completed(site: Path) -> None:
    old, new = passwords(site.parent / "vault"), passwords(site.parent / "other")
    for secret in files(site).values():
        command.encrypt(secret, old)
    assert command.rekey(files(site)["munge.key"], old, new)  # and then it was killed
    changed = [command.rekey(secret, old, new) for secret in files(site).values()]
    assert sorted(changed) == [False, True, True]
    for name, secret in files(site).items():
        opened = sealing.opened(secret.path.read_bytes(), secret.path, new)
        assert opened.decode() == VALUES[name]
        with pytest.raises(kept.NotKept):
            sealing.opened(secret.path.read_bytes(), secret.path, old)


def test_a_file_is_whole_whenever_a_run_is_killed(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    for name in ("fsync", "utime"):
        with monkeypatch.context() as patched:
            patched.setattr(os, name, killed)
            with pytest.raises(Killed):
                command.encrypt(files(site)["munge.key"], passwords(site.parent / "vault"))
        assert (site / ".secrets/munge.key").read_text() == VALUES["munge.key"]
    left = [p for secret in files(site).values() for p in command.problems(secret)]
    assert len(left) == 2
    assert all(problem.endswith("by a run that was killed; remove it") for problem in left)


def test_what_git_tracks_is_told_and_not_decrypted(site: Path) -> None:
    git(site, "init", "--quiet")
    git(site, "add", "--force", ".secrets/munge.key", ".secrets/slurm_jwt_key")
    command.encrypt(files(site)["slurm_jwt_key"], passwords(site.parent / "vault"))
    listed = files(site)
    (problem,) = [p for secret in listed.values() for p in command.problems(secret)]
    assert problem.startswith(f"git tracks {site}/.secrets/munge.key as plain text")
    assert [name for name, secret in listed.items() if secret.tracked] == [
        "munge.key",
        "slurm_jwt_key",
    ]
    with pytest.raises(kept.NotKept, match=r"git tracks .*slurm_jwt_key, and would take its value"):
        command.decrypt(listed["slurm_jwt_key"], passwords(site.parent / "vault"))


def test_what_is_wrong_is_told_and_is_no_success(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = site / ".secrets"
    assert command.show(folder, command.kept_in(folder), time.time()) == 0
    (folder / "own_token").chmod(0o644)
    rotation.begin(folder / "munge.key", lambda: b"n" * 64, (), time.time())
    assert command.show(folder, command.kept_in(folder), time.time()) == 1
    said = capsys.readouterr().out
    assert f"{folder}/own_token has mode 0644, and others can read it; chmod 0600" in said
    assert "The replacement of munge.key is not complete: run `playbooks/rotate-secrets.yml" in said
    for value in (*VALUES.values(), "n" * 64):
        assert value not in said


def test_ages_are_those_of_values() -> None:
    day = command.DAY
    assert [command.age(seconds) for seconds in (10, 3700, 9000, day, 400 * day)] == [
        "under an hour",
        "1 hour",
        "2 hours",
        "1 day",
        "400 days",
    ]
