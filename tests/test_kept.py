"""Secrets of the control node, and users of web listeners."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import bcrypt
import pytest

from playbooks.action_plugins.web_users import passwords
from playbooks.plugin_utils import kept, web


def plain(path):
    return path.read_text()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "secrets" / "password"


def test_a_secret_is_nobody_elses(file):
    kept.keep(file, "text")
    assert kept.read(file, plain) == "text"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["password"]


def test_a_secret_is_made_once(file):
    kept.keep(file, "first")
    with pytest.raises(kept.NotKept, match="cannot be written: File exists"):
        kept.keep(file, "second")
    assert kept.read(file, plain) == "first"
    assert [path.name for path in file.parent.iterdir()] == ["password"]


def test_what_others_can_read_is_no_secret(file):
    kept.keep(file, "text")
    for mode in (0o640, 0o604, 0o644):
        file.chmod(mode)
        with pytest.raises(kept.NotKept, match=f"has mode {mode:04o}, and others can read it"):
            kept.read(file, plain)
    file.chmod(0o400)
    assert kept.read(file, plain) == "text"


def git(folder: Path, *arguments: str) -> None:
    settings = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(("git", "-C", str(folder), *settings, *arguments), check=True, timeout=60)


def test_a_site_s_own_repository_does_not_take_the_secrets(file):
    site = file.parents[1]
    git(site, "init", "--quiet")
    kept.keep_out_of_git(file.parent)
    kept.keep(file, "text")
    git(site, "add", ".")
    assert kept.tracked_by_git(file.parent) == []
    # As with an ignore file that a site changed, or with a commit from before there was one.
    (file.parent / "encrypted").write_text("$ANSIBLE_VAULT;1.1;AES256\n31\n")
    git(site, "add", "--force", ".")
    assert kept.tracked_by_git(file.parent) == [file]
    (file.parent / ".gitignore").write_text("password\n")
    kept.keep_out_of_git(file.parent)
    assert (file.parent / ".gitignore").read_text() == "password\n"


def test_without_a_repository_nothing_is_tracked(file):
    assert kept.tracked_by_git(file.parent) == []
    kept.keep(file, "text")
    assert kept.tracked_by_git(file.parent) == []


def test_a_relative_path_is_refused():
    with pytest.raises(kept.NotKept, match="give its absolute path"):
        kept.read(Path("secrets/password"), plain)


def test_passwords_are_random():
    samples = {kept.new_password() for _ in range(20)}
    assert len(samples) == 20
    assert all(len(password) == kept.LENGTH and password.isalnum() for password in samples)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("short", "has 5 characters"),
        ("fifteen letters", "has 15 characters"),
        ("two lines of it\nand one more", "one line of printable"),
        ("sixteen characters ü", "printable ASCII"),
        (" sixteen characters", "printable ASCII"),
    ],
)
def test_a_password_that_does_not_work_everywhere_is_refused(text, words):
    with pytest.raises(kept.NotKept, match=words):
        kept.password(text, Path("/file"))


def test_a_password_may_end_with_its_line():
    assert kept.password("sixteen characters\n", Path("/file")) == "sixteen characters"


def test_users_get_a_password_once(file):
    first, new = passwords({"admin": file}, {}, plain, make=True)
    assert new == [file]
    assert passwords({"admin": file}, {"admin": "x" * 20}, plain, make=True) == (first, [])


def test_a_second_checkout_takes_over_what_the_cluster_has(file):
    deployed = {"admin": "what the cluster has\n"}
    by_user, new = passwords({"admin": file}, deployed, plain, make=True)
    assert (by_user, new) == ({"admin": "what the cluster has"}, [file])
    assert file.read_text() == "what the cluster has\n"


def test_check_mode_makes_nothing(file):
    assert passwords({"admin": file}, {}, plain, make=False) == ({}, [])
    assert not file.parent.exists()


def test_a_hash_is_that_of_the_password_and_the_same_in_each_run():
    digest = web.hashed("admin", "a password of the site")
    assert digest == web.hashed("admin", "a password of the site")
    assert digest.startswith("$2b$10$")
    assert bcrypt.checkpw(b"a password of the site", digest.encode())
    assert not bcrypt.checkpw(b"another of the site", digest.encode())


def test_two_users_of_one_password_have_different_hashes():
    first, other = (web.hashed(user, "a password of the site") for user in ("admin", "grafana"))
    assert first.split("$")[3][:22] != other.split("$")[3][:22]


def test_the_salt_tells_nothing_of_the_password():
    salts = {web.hashed("admin", word * 9)[:29] for word in ("one", "two")}
    assert len(salts) == 1


def test_a_listener_lets_nobody_in_without_a_password():
    config = web.web_config({"b": "2", "a": "1"}, "/host.crt", "/host.key")
    files = {"cert_file": "/host.crt", "key_file": "/host.key"}
    assert config["tls_server_config"] == files | {"min_version": "TLS12"}
    assert [*config["basic_auth_users"]] == ["a", "b"]
    with pytest.raises(ValueError, match="open to everybody"):
        web.web_config({}, "/host.crt", "/host.key")


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "secrets").write_text("a file")
    with pytest.raises(kept.NotKept, match="cannot be written"):
        kept.keep(tmp_path / "secrets" / "password", "text")
    assert os.listdir(tmp_path) == ["secrets"]
