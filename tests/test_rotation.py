"""Secrets of the control node that are replaced, and runs that are killed in between."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret

from playbooks.filter_plugins import secrets as filters
from playbooks.plugin_utils import kept, known_secrets, rotation, sealing
from playbooks.plugin_utils.judge import _secrets_refusals
from tests.conftest import REPOSITORY
from tests.test_kept import git

PASSWORD = [("default", VaultSecret(b"vault"))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets" / "munge.key"
    kept.keep(path, "first")
    return path


def values() -> Iterator[bytes]:
    """A different value each time: one that is made twice shows."""
    yield from (f"value {number}".encode() for number in range(9))


def begin(path: Path, made: Iterator[bytes], passwords: sealing.Passwords = ()) -> bool:
    return rotation.begin(path, lambda: next(made), passwords, now=1000)


def names(path: Path) -> set[str]:
    return {each.name for each in path.parent.iterdir()}


def test_the_old_value_stays_until_all_hosts_have_the_new_one(file: Path) -> None:
    assert begin(file, values())
    assert file.read_bytes() == b"value 0"
    assert rotation.beside(file, rotation.PREVIOUS).read_bytes() == b"first"
    assert rotation.under_way(file.parent) == [file]
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_mtime == 1000
    assert rotation.complete([file]) == [file]
    assert names(file) == {"munge.key"}
    assert rotation.complete([file]) == []


def test_a_run_that_goes_on_makes_no_third_value(file: Path) -> None:
    made = values()
    assert begin(file, made)
    assert not begin(file, made)
    assert file.read_bytes() == b"value 0"


class Killed(BaseException):
    """What no `except` of the code under test takes."""


@pytest.mark.parametrize("survived", range(4))
def test_a_run_that_is_killed_at_any_step_is_completed_by_the_next(
    file: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    """There is a whole file at each moment: the old value's, then the new one's."""
    steps = iter(range(survived))

    def dying(function: object) -> object:
        def step(*arguments: object, **keywords: object) -> object:
            if next(steps, None) is None:
                raise Killed
            return function(*arguments, **keywords)  # type: ignore[operator]

        return step

    made = values()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dying(Path.replace))
        patched.setattr(os, "link", dying(os.link))
        patched.setattr(os, "utime", dying(os.utime))
        with pytest.raises(Killed):
            begin(file, made)
    assert file.read_bytes() in {b"first", b"value 0"}
    begin(file, made)
    assert file.read_bytes() in {b"value 0", b"value 1"}  # 1 where none had been whole
    assert rotation.beside(file, rotation.PREVIOUS).read_bytes() == b"first"


def test_what_lies_in_the_vault_stays_in_it(file: Path) -> None:
    file.write_bytes(sealing.sealed(b"first", PASSWORD))
    assert begin(file, values(), PASSWORD)
    assert sealing.is_sealed(file.read_bytes())
    assert VaultLib(PASSWORD).decrypt(file.read_bytes()) == b"value 0"


def test_a_vault_identity_is_kept(file: Path) -> None:
    known = [("other", VaultSecret(b"other")), ("site", VaultSecret(b"vault"))]
    file.write_bytes(sealing.sealed(b"first", known, "site"))
    assert begin(file, values(), known)
    assert file.read_bytes().splitlines()[0].endswith(b";site")
    assert VaultLib(known[1:]).decrypt(file.read_bytes()) == b"value 0"


def test_who_cannot_open_the_vault_writes_nothing_into_it(file: Path) -> None:
    file.write_bytes(sealing.sealed(b"first", PASSWORD))
    for passwords in ([], [("default", VaultSecret(b"wrong"))]):
        with pytest.raises(kept.NotKept, match=r"none of the vault passwords of this run opens"):
            begin(file, values(), passwords)
    assert names(file) == {"munge.key"}


def test_nothing_is_replaced_where_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(kept.NotKept, match=r"there is no .*; run slurm-cluster.yml first"):
        begin(tmp_path / "munge.key", values())
    assert list(tmp_path.iterdir()) == []


def test_git_is_given_no_new_value(file: Path) -> None:
    git(file.parent, "init", "--quiet")
    git(file.parent, "add", "--force", "munge.key")
    with pytest.raises(kept.NotKept, match=r"git tracks .*munge\.key, and would be given the new"):
        begin(file, values())
    assert file.read_text() == "first"


def test_preflight_refuses_a_replacement_that_is_not_complete(file: Path) -> None:
    assert list(_secrets_refusals(file.parent)) == []
    begin(file, values())
    (refusal,) = _secrets_refusals(file.parent)
    assert f"the replacement of {file} was interrupted" in str(refusal)
    assert "rotate-secrets.yml -e rotate=munge`" in str(refusal)
    rotation.complete([file])
    assert list(_secrets_refusals(file.parent)) == []


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        ("munge", ["munge"]),
        ("web,munge", ["munge", "web"]),
        ("jwt tls", ["jwt", "tls"]),
        ("all", ["munge", "database", "jwt", "tls", "web"]),
    ],
)
def test_kinds_come_in_the_order_of_the_run(asked: str, kinds: list[str]) -> None:
    assert known_secrets.kinds(asked) == kinds


@pytest.mark.parametrize("asked", ["", "mung", "munge,mung", "[]", "True"])
def test_another_word_is_refused(asked: str) -> None:
    with pytest.raises(kept.NotKept, match=r"-e rotate=munge\|database\|jwt\|tls\|web\|all"):
        known_secrets.kinds(asked)


@pytest.mark.parametrize("kind", known_secrets.MAKERS)
def test_a_new_value_is_random(kind: str) -> None:
    made = {known_secrets.MAKERS[kind]() for _ in range(5)}
    assert len(made) == 5
    assert {len(value) for value in made} <= {1024, 64, 32, 33}


# --- what the playbook asks -----------------------------------------------------------------------


def test_only_what_is_asked_for_is_imported() -> None:
    assert filters.secret_playbook("munge,web", "munge") == "rotate-munge.yml"
    assert filters.secret_playbook("munge,web", "jwt") == "rotate-none.yml"
    for asked in ("tls", "web", "tls,web", "all"):
        assert filters.secret_playbook(asked, "tls", "web") == "rotate-monitoring.yml"
    assert filters.secret_playbook("", "munge") == "rotate-none.yml"  # refused by the first play


def test_each_kind_has_a_playbook() -> None:
    for kind in known_secrets.KINDS:
        name = filters.secret_playbook(kind, kind)
        assert (REPOSITORY / "playbooks" / name).is_file()
        assert f"'{kind}'" in (REPOSITORY / "playbooks/rotate-secrets.yml").read_text()


def test_a_word_that_is_none_is_a_sentence() -> None:
    assert filters.secret_kinds("mung") == []
    assert filters.secret_kinds_problem("mung").startswith("rotate is 'mung'; say which secrets")
    assert filters.secret_kinds_problem("munge") == ""


def test_hosts_that_came_so_far_are_told_from_the_others() -> None:
    hostvars = {"a": {"__done": True}, "b": {}}
    assert filters.hosts_with(hostvars, "__done") == ["a"]


def test_each_secret_that_group_vars_name_is_known() -> None:
    """Or scripts/secrets would not know what it opens, and no run would replace it."""
    named = {
        name
        for path in (REPOSITORY / "group_vars/all").glob("*.yml")
        for name in re.findall(r"cluster_secrets \}\}/([\w.]+)\"", path.read_text())
    }
    assert len(named) >= 9
    assert named <= known_secrets.SECRETS.keys()
