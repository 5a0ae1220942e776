"""scripts/setup with a Python that only pretends: no network, and every failure on demand."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import run

# Stands for the interpreter, in .venv too: tells a version, "makes" .venv as a copy of itself, and
# lets pip fail with $PIP_SAYS. It notes what pip was asked for and which certificates it was given.
PRETENDER = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
    *version_info*) echo "${SAYS_VERSION:-3.12.1}" ;;
    *ensurepip*) exit "${NO_ENSUREPIP:-0}" ;;
    *_base_executable*) echo "$0" ;;
    "-m venv .venv")
        mkdir -p .venv/bin .venv/lib/python3.12/site-packages
        cp "$0" .venv/bin/python
        ;;
    *"pip config get"*) exit 1 ;;
    *"-m pip"*)
        echo "$*, certificates ${PIP_CERT:-pip's}" >>calls
        [ -z "$KILLED_IN_PIP" ] || kill -KILL $PPID
        [ -z "$PIP_SAYS" ] || { echo "$PIP_SAYS"; exit 1; }
        ;;
    scripts/unpack-collections*) echo unpack >>calls; mkdir -p .ansible/tmp/collections ;;
    *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""
FILES = (
    "scripts/setup",
    "scripts/unpack-collections",
    "requirements.txt",
    "requirements-collections.txt",
    "requirements-torch.txt",
    "requirements.yml",
)


class Checkout:
    """A copy of the files that scripts/setup reads, and what happened in it."""

    def __init__(self, repository: Path, folder: Path) -> None:
        self.folder = folder
        for name in FILES:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(repository / name, folder / name)
        self.python = folder / "python"
        self.python.write_text(PRETENDER)
        self.python.chmod(0o755)

    def setup(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {"PATH": os.environ["PATH"], "PYTHON": str(self.python)}
        program = self.folder / "scripts/setup"
        return run(program, *arguments, env=kept | variables, timeout=60)

    def calls(self) -> list[str]:
        """What was done since the last time."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def checkout(repository, tmp_path):
    return Checkout(repository, tmp_path)


@pytest.fixture
def ready(checkout):
    """One in which scripts/setup has run."""
    assert checkout.setup().returncode == 0
    checkout.calls()
    return checkout


def test_the_first_run_does_it_all_and_the_second_nothing(checkout):
    first = checkout.setup()
    assert (first.returncode, first.stderr) == (0, "")
    assert "ready. Next: " in first.stdout.splitlines()[-1]
    install, download, unpack = checkout.calls()
    assert "install --require-hashes --only-binary :all: -r requirements.txt" in install
    assert "download --no-deps --require-hashes" in download
    assert unpack == "unpack"

    second = checkout.setup()
    assert (second.returncode, checkout.calls()) == (0, [])
    assert second.stdout.splitlines() == first.stdout.splitlines()[-1:]


def test_check_tells_and_changes_nothing(checkout):
    before = checkout.setup("--check")
    assert (before.returncode, checkout.calls()) == (1, [])
    assert "not up to date: run scripts/setup" in before.stdout
    assert not (checkout.folder / ".venv").exists()
    checkout.setup()
    assert checkout.setup("--check").returncode == 0
    assert checkout.setup("--check", "--with-torch").returncode == 1


def test_the_environment_finds_this_checkout(ready):
    """Also one that was made before scripts/setup named it: that takes no pip."""
    named = ready.folder / ".venv/lib/python3.12/site-packages/plumbline.pth"
    assert named.read_text() == f"{ready.folder}\n"
    for void in (named.unlink, lambda: named.write_text("/another/checkout\n")):
        void()
        assert ready.setup("--check").returncode == 1
        assert (ready.setup().returncode, ready.calls()) == (0, [])
        assert named.read_text() == f"{ready.folder}\n"


def test_torch_is_added_to_what_is_there(ready):
    assert ready.setup("--with-torch").returncode == 0
    (install,) = ready.calls()
    assert "pip --disable-pip-version-check --no-input install -r requirements-torch.txt" in install
    assert ready.setup("--with-torch", "--check").returncode == 0


@pytest.mark.parametrize(
    ("file", "redone"),
    [
        ("requirements.txt", ["install", "download", "unpack"]),
        ("requirements-collections.txt", ["download", "unpack"]),
        ("requirements.yml", ["download", "unpack"]),
    ],
)
def test_a_changed_lock_is_followed(ready, file, redone):
    with (ready.folder / file).open("a") as lock:
        lock.write("# changed\n")
    assert ready.setup("--check").returncode == 1
    assert ready.setup().returncode == 0
    calls = ready.calls()
    assert len(calls) == len(redone)
    assert all(word in call for word, call in zip(redone, calls, strict=True))


def test_another_python_is_followed_only_if_it_is_asked_for(ready):
    assert ready.setup("--check", PYTHON="").returncode == 0
    other = ready.folder / "other"
    other.write_text(PRETENDER.replace("3.12.1", "3.13.0"))
    other.chmod(0o755)
    assert ready.setup("--check", PYTHON=str(other)).returncode == 1
    assert ready.setup(PYTHON=str(other)).returncode == 0
    assert ready.setup("--check", PYTHON="").returncode == 0


def test_an_interrupted_run_starts_over(checkout):
    assert checkout.setup(KILLED_IN_PIP="1").returncode == -9
    assert checkout.setup("--check").returncode == 1
    checkout.calls()
    assert checkout.setup().returncode == 0
    assert len(checkout.calls()) == 3


def test_a_copied_checkout_is_not_up_to_date(ready, tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(ready.folder, copy, dirs_exist_ok=True)
    assert run(copy / "scripts/setup", "--check").returncode == 1


OTHER_HASH = """ERROR: THESE PACKAGES DO NOT MATCH THE HASHES
    rich==15.0.0 from https://mirror/rich.whl (from -r requirements.txt):
"""


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PYTHON": "no-such-python"}, "no working Python at 'no-such-python'"),
        ({"SAYS_VERSION": "3.10.12"}, "is Python 3.10.12, Plumbline needs 3.11 or newer"),
        ({"NO_ENSUREPIP": "1"}, "apt-get install python3.12-venv"),
        ({"PIP_SAYS": OTHER_HASH}, "other bytes than were locked for rich==15.0.0"),
        ({"PIP_SAYS": "[SSL: CERTIFICATE_VERIFY_FAILED]"}, "set REQUESTS_CA_BUNDLE"),
        (
            {"PIP_SAYS": "ProxyError('No proxy.')", "HTTPS_PROXY": "http://u:pw@p:1"},
            "the proxy p:1 does not answer",
        ),
        ({"PIP_SAYS": "NewConnectionError"}, "the package index cannot be reached"),
        ({"PIP_SAYS": "OSError: [Errno 28] No space left on device"}, "the disk is full"),
        ({"PIP_SAYS": "first\nERROR: some new trouble\nlast"}, "ERROR: some new trouble"),
    ],
)
def test_what_goes_wrong_is_said_in_one_sentence(checkout, variables, words):
    done = checkout.setup(**variables)
    assert done.returncode == 2
    (sentence,) = done.stderr.splitlines()
    assert words in sentence
    assert checkout.setup("--check", PYTHON="").returncode == 1


@pytest.mark.parametrize(
    ("variables", "certificates"),
    [
        ({"PIP_CERT": "/chosen"}, "/chosen"),
        ({"REQUESTS_CA_BUNDLE": "/chosen"}, "pip's"),  # which pip itself obeys
        ({"SSL_CERT_FILE": __file__}, __file__),  # which older pips do not
    ],
)
def test_the_certificates_that_were_chosen_are_used(checkout, variables, certificates):
    checkout.setup(**variables)
    assert checkout.calls()[0].endswith(f"certificates {certificates}")


def test_an_unknown_option_is_refused(checkout):
    done = checkout.setup("--with-touch")
    assert (done.returncode, checkout.calls()) == (2, [])
    assert "unknown option: --with-touch" in done.stderr
