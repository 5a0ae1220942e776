"""scripts/demo refuses a machine where it cannot work before it fetches anything."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests import processes
from tests.conftest import REPOSITORY

NOBODY = ("setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=-all")


def demo(folder: Path, *before: str, **programs: str) -> tuple[int, str]:
    """Its exit status and complaint, with these programs instead of the machine's."""
    fatal = "#!/bin/sh\ncase $* in *version_info*) exit 0 ;; esac\necho fetched >&2; exit 99\n"
    for name in ("podman", "mmdebstrap", "python3", "apt-get"):
        programs.setdefault(name, fatal)
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    folder.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    done = processes.run(*before, REPOSITORY / "scripts/demo", env=os.environ | {"PATH": path})
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("programs", "words"),
    [
        ({"df": "#!/bin/sh\necho Avail; echo ' 100'\n"}, "100 MB free, and 6000 are needed"),
        ({"unshare": "#!/bin/sh\nexit 1\n"}, "namespaces: this is a container"),
        ({"python3": "#!/bin/sh\nexit 1\n"}, "Python 3.11 or newer: python3 is older"),
    ],
)
def test_what_the_machine_lacks_is_named(
    tmp_path: Path, programs: dict[str, str], words: str
) -> None:
    status, complaint = demo(tmp_path, **programs)
    assert status == 2
    assert complaint.startswith("demo: this machine lacks\n")
    assert words in complaint
    assert "fetched" not in complaint


def test_another_system_is_refused(tmp_path: Path) -> None:
    """One without apt-get, which has what every system has."""
    for name in ("bash", "dirname", "df", "tail", "sed", "unshare", "true", "echo"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    done = processes.run(REPOSITORY / "scripts/demo", env={"PATH": str(tmp_path)})
    assert done.returncode == 2
    assert "  apt-get: the packages are those of Debian and Ubuntu\n" in done.stderr
    assert done.stdout == ""


def test_it_is_for_root(tmp_path: Path) -> None:
    tmp_path.parent.chmod(0o755)
    status, complaint = demo(tmp_path, *NOBODY)
    assert (status, "root, to make containers" in complaint) == (2, True)
