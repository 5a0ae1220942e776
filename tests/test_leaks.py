"""The search for secrets finds each that was put somewhere, and nothing else."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from playbooks.plugin_utils import known_secrets
from roles.tls_certificate.plugin_utils.certificates import new_authority
from tests import leaks
from tests.conftest import REPOSITORY

PASSWORD = known_secrets.MAKERS["web"]()
KEY = known_secrets.MAKERS["munge"]()
WANTED = leaks.needles({"password": PASSWORD, "key": KEY})


@pytest.mark.parametrize(
    "data",
    [
        b"storage=" + PASSWORD,
        b'{"password": "' + PASSWORD.strip() + b'"}',
        *(base64.b64encode(user + b":" + PASSWORD.strip()) for user in (b"a", b"me", b"job")),
        PASSWORD.strip().hex().encode(),
    ],
    # Without the password, which is another one in each process that collects the tests.
    ids=["option", "json", "basic of 1", "basic of 2", "basic of 3", "hexadecimal"],
)
def test_a_password_is_found_in_each_form(data: bytes) -> None:
    assert leaks.found(b"before " + data + b" after", WANTED) == ["password"]


@pytest.mark.parametrize("data", [KEY, base64.b64encode(KEY), KEY.hex().upper().encode()])
def test_a_key_is_found_in_each_form(data: bytes) -> None:
    assert leaks.found(data, WANTED) == ["key"]


def test_what_is_no_secret_is_not_found() -> None:
    other = leaks.needles({"other": known_secrets.MAKERS["web"]()})
    assert leaks.found(PASSWORD + KEY, other) == []


def test_of_an_authority_the_key_is_secret_and_the_certificate_is_not() -> None:
    from datetime import UTC, datetime  # noqa: PLC0415

    authority = new_authority("a", datetime.now(UTC), 10)
    wanted = leaks.needles({"authority": authority.secret.encode()})
    assert leaks.found(authority.pem.encode(), wanted) == []
    assert leaks.found(authority.secret.encode(), wanted) == ["authority"]


def test_a_secret_across_two_blocks_is_found() -> None:
    whole = b"x" * 100 + PASSWORD
    for cut in range(90, len(whole)):
        assert leaks.in_stream([whole[:cut], whole[cut:]], WANTED) == ["password"]


def test_files_that_others_can_read_are_found(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name, mode in (("open", 0o644), ("group", 0o640), ("closed", 0o600)):
        (tmp_path / name).write_bytes(PASSWORD)
        (tmp_path / name).chmod(mode)
    hidden = tmp_path / "folder"
    hidden.mkdir(mode=0o700)
    (hidden / "file").write_bytes(PASSWORD)
    open_file = [("password", str(tmp_path / "open"))]
    assert list(leaks.in_files([tmp_path], WANTED)) == open_file
    assert len(list(leaks.in_files([tmp_path], WANTED, everybody=False))) == 4


def test_a_core_dump_that_others_can_read_is_found(tmp_path: Path) -> None:
    for name, mode, data in (
        ("core.1", 0o644, b"\x7fELF"),
        ("core.2", 0o600, b"\x7fELF"),
        ("core.py", 0o644, b"text"),
    ):
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(mode)
    assert list(leaks.core_dumps([tmp_path])) == [str(tmp_path / "core.1")]


def test_a_secret_in_the_process_list_is_found_by_the_program(tmp_path: Path) -> None:
    """As a node runs it: the program's own arguments have no secret."""
    end = tmp_path / "end"
    program = [sys.executable, str(REPOSITORY / "tests/leaks.py"), "processes", str(end)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdin
        assert watching.stdout
        watching.stdin.write(leaks.coded(WANTED) + "\n")
        watching.stdin.flush()
        assert watching.stdout.readline() == "watching\n"
        careless = ["sleep", "0.5", PASSWORD.strip().decode()]
        subprocess.run(careless, check=False, capture_output=True)  # sleep refuses it at once
        shell = ["sh", "-c", "sleep 0.5; true", PASSWORD.strip().decode()]
        subprocess.run(shell, check=True)
        end.touch()
        said = watching.stdout.read()
    assert "password" in said
    assert PASSWORD.strip().decode() not in said
    assert leaks.decoded(leaks.coded(WANTED)) == WANTED
