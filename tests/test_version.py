"""`--version`: every program has it, and it says the commit where there is no release."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import version
from tests.conftest import REPOSITORY
from tests.processes import git, run

# Packages that roles bring to nodes as programs.
PACKED = [
    f"roles/{role}/files/{role}"
    for role in ("gpu_exporter", "job_report", "nccl_inspector", "slurm_exporter")
]
# Programs that have no options of their own, and why.
WITHOUT = {
    "scripts/lint-ansible": "all its arguments are ansible-lint's",
    "validation.payloads.dcgm_diag": "the role dcgm brings it to nodes, alone",
    "validation.payloads": "tasks of a job start it, with the name of a payload",
    "validation.slurm.launcher": "a run copies it to the login node and starts it there",
    "validation.slurm.look": "a run sends it to the login node and starts it there",
    "cluster.version": "that is all it says",
}

# Of a checkout, what its programs are before anything is installed.
BARE = ("scripts", "cluster", "playbooks", "tests/*.py", "tests/standins", "validation/*.py")


def scripts() -> list[str]:
    files = (path for path in (REPOSITORY / "scripts").iterdir() if path.is_file())
    return sorted(str(path.relative_to(REPOSITORY)) for path in files)


def modules() -> list[str]:
    """What `python -m` starts."""
    names = []
    folders = ("cluster", "validation", *PACKED)
    for path in (path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")):
        place = path.relative_to(REPOSITORY).with_suffix("")
        if "tests" not in place.parts and 'if __name__ == "__main__":' in path.read_text():
            names.append(".".join(place.parts).removesuffix(".__main__"))
    return sorted(names)


PROGRAMS = [*scripts(), *modules()]


def test_what_has_no_version_is_a_program():
    assert WITHOUT.keys() <= set(PROGRAMS)
    assert {"scripts/setup", "scripts/virtual-cluster", "validation.run"} <= set(PROGRAMS)


@pytest.mark.sample(8)
@pytest.mark.parametrize("program", [name for name in PROGRAMS if name not in WITHOUT])
def test_every_program_tells_its_version(program):
    command = [program] if program.startswith("scripts/") else [sys.executable, "-m", program]
    done = run(
        *(*command, "--version"),
        cwd=REPOSITORY,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{version.line()}\n"


@pytest.mark.sample(8)
@pytest.mark.parametrize("program", [name for name in PROGRAMS if name not in WITHOUT])
def test_every_program_says_what_it_does_and_does_nothing(program, tmp_path):
    command = [REPOSITORY / program] if program.startswith("scripts/") else None
    done = run(
        *(*(command or [sys.executable, "-m", program]), "--help"),
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 2
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def without_venv(tmp_path_factory):
    """A checkout as it was cloned, and a Python that has the standard library alone."""
    folder = tmp_path_factory.mktemp("bare")
    listed = run("git", "-C", REPOSITORY, "ls-files", *BARE).stdout.split()
    for name in listed:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, folder / name, follow_symlinks=False)
    python = folder / "bin/python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.base_prefix}/bin/python3 -S "$@"\n')
    python.chmod(0o755)
    return folder


@pytest.mark.sample(12)
@pytest.mark.parametrize("option", ["--help", "--version"])
@pytest.mark.parametrize("program", [name for name in scripts() if name not in WITHOUT])
def test_before_setup_a_program_answers_or_names_setup(program, option, without_venv):
    """One died with a traceback, for a package that was not there yet."""
    path = {"PATH": f"{without_venv}/bin:/usr/bin:/bin", "HOME": str(without_venv)}
    done = run(without_venv / program, option, env=path, stdin=subprocess.DEVNULL, timeout=60)
    if done.returncode == 0:
        assert done.stdout
        assert done.stderr == ""
    else:
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert "scripts/setup" in done.stderr


@pytest.fixture
def checkout(tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "One")
    return tmp_path


def test_what_has_no_history_has_no_commit(tmp_path):
    assert version.line(tmp_path) == f"plumbline {version.VERSION}"


def test_a_checkout_tells_its_commit_and_whether_it_was_changed(checkout):
    commit = git(checkout, "rev-parse", "--short=12", "HEAD")
    git(checkout, "tag", "v99.0.0")
    assert version.line(checkout) == f"plumbline {version.VERSION} (commit {commit})"
    (checkout / "file").write_text("two")
    assert version.line(checkout) == f"plumbline {version.VERSION} (commit {commit}-dirty)"


def test_a_release_tells_its_commit_only_where_it_was_changed(checkout):
    commit = git(checkout, "rev-parse", "--short=12", "HEAD")
    git(checkout, "tag", f"v{version.VERSION}")
    assert version.line(checkout) == f"plumbline {version.VERSION}"
    (checkout / "file").write_text("two")
    assert version.line(checkout) == f"plumbline {version.VERSION} (commit {commit}-dirty)"


def test_a_history_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")
    assert version.line(tmp_path) == f"plumbline {version.VERSION} (commit unknown)"
