"""One version is built where it stays, closed to all but root until it is published.

An environment has its own path in its programs, so it is not built elsewhere and moved. A folder
for unfinished work, which is there before the version's folder, tells a run that broke off from a
folder of somebody else's. Modules find it as ansible.module_utils.user_libraries_build.
"""

from __future__ import annotations

import grp
import os
import platform
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.refused import Refused
from ansible.module_utils.user_libraries_entry import (
    CLOSED,
    LISTING,
    MANIFEST,
    REQUIREMENTS,
    Built,
    Library,
    Places,
)
from ansible.module_utils.user_libraries_tree import listed
from ansible.module_utils.whole_file import OWN_FILE, Access, make_folder, write

_NICE = ("nice", "-n", "19")  # jobs may run on this host
_WHY = 500  # characters of what a program said

# As an ordinary user, who has nothing else of this host.
_USER, _GROUP = "nobody", "nogroup"


class Failed(Exception):
    """What a program said that did not do its work."""


def python_of(interpreter: str) -> str:
    """The version of an interpreter, such as 3.13; "" if there is none of the name."""
    code = "import sys; print(*sys.version_info[:2], sep='.')"
    with suppress(OSError):
        done = subprocess.run(
            [interpreter, "-I", "-c", code], capture_output=True, text=True, check=False
        )
        if re.fullmatch(r"3[.][0-9]+", done.stdout.strip()):
            return done.stdout.strip()
    return ""


def build(library: Library, places: Places, environment: Mapping[str, str]) -> Built:
    """Makes the version's folder, closed. Raises Refused, and OSError of the disk."""
    work, folder = places.work_of(library.place), places.folder(library.place)
    with suppress(FileNotFoundError):
        shutil.rmtree(work)
    make_folder(work, Access(CLOSED, os.geteuid(), os.getegid()))
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)  # of a run that broke off, or built with another lock and never open
    make_folder(folder.parent, Access(0o755, os.geteuid(), os.getegid()))
    folder.mkdir(mode=CLOSED)
    environment = {**os.environ, **environment, "TMPDIR": str(work / "tmp")}
    (work / "tmp").mkdir()
    try:
        _install(library, places.tools, folder, environment)
        _try(library, folder)
    except Failed as problem:
        raise Refused(f"{library.title} cannot be had: {problem}") from None
    # Nobody writes bytecode here later, and files never change, so Python need not look at them.
    # What does not compile is a template, or for another Python: it is left as it is.
    compiled = ("compileall", "-q", "-q", "--invalidation-mode", "unchecked-hash")
    _run([folder / "bin/python", "-m", *compiled, folder / "lib"], environment, fails=False)
    found = listed(folder)
    made = Built(
        name=library.name,
        version=library.version,
        description=library.description,
        lock=library.lock,
        python=python_of(str(folder / "bin/python")),
        machine=platform.machine(),
        content=found.content(),
        packages=len(list(folder.glob("lib/python*/site-packages/*.dist-info"))),
        files=len(found.files),
        bytes=found.bytes,
        date=time.strftime("%Y-%m-%d"),
        links=found.links,
    )
    if not made.packages:
        raise Refused(f"{library.title} has no packages; correct its lock file")
    write(folder / LISTING, found.text(), OWN_FILE)
    os.sync()  # the manifest is for what is on the disk
    write(folder / MANIFEST, made.text(), OWN_FILE)
    shutil.rmtree(work)
    with suppress(OSError):  # another version is on its way
        work.parent.rmdir()
    return made


def _pip(python: str, tools: Path, environment: Mapping[str, str]) -> Path:
    """pip of an environment beside, so that a version has the lock's packages and no others."""
    folder = tools / python_of(python)
    if not folder.exists():
        make_folder(tools)
        _run([python, "-m", "venv", folder], environment)
    found = next(folder.glob("lib/python*/site-packages/pip"), None)
    if found is None:
        raise Failed(f"{python} -m venv brings no pip; install its ensurepip")
    return found


def _install(library: Library, tools: Path, folder: Path, environment: Mapping[str, str]) -> None:
    pip = _pip(library.python, tools, environment)
    _run([library.python, "-m", "venv", "--without-pip", folder], environment)
    write(folder / REQUIREMENTS, library.requirements, OWN_FILE)
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-cache-dir")
    strict = ("--ignore-installed", "--no-compile", "--require-hashes", "--only-binary=:all:")
    lock = ("--requirement", folder / REQUIREMENTS)
    command = [folder / "bin/python", "-I", pip, "install", *quiet, *strict, *lock]
    _run([*command, *library.options], environment)


def is_root() -> bool:
    return os.geteuid() == 0


def _try(library: Library, folder: Path) -> None:
    """A wheel for another CPU, or one without its libraries, fails here and not in a job."""
    if not library.imports:
        return
    command: list[Any] = [folder / "bin/python", "-I", "-B", "-c"]
    command.append(f"import {', '.join(library.imports)}")
    account: dict[str, Any] = {}
    if is_root():  # who does not run a package's code
        group = grp.getgrnam(_GROUP).gr_gid
        account = {"user": pwd.getpwnam(_USER).pw_uid, "group": group, "extra_groups": []}
        os.chown(folder, 0, group)
        folder.chmod(0o750)
    try:
        environment = {"PATH": os.defpath, "HOME": "/nonexistent"}
        _run(command, environment, cwd="/", **account)
    finally:
        folder.chmod(CLOSED)
        os.chown(folder, os.geteuid(), os.getegid())


def _run(
    command: Sequence[Any], environment: Mapping[str, str], *, fails: bool = True, **more: Any
) -> None:
    """Raises Failed with the last of what the program said."""
    words = [*_NICE, *map(str, command)]
    try:
        done = subprocess.run(
            words,
            env=dict(environment),
            capture_output=True,
            text=True,
            check=False,
            umask=0o022,
            **more,
        )
    except OSError as error:
        raise Failed(f"{words[3]}: {error.strerror}") from None
    if done.returncode and fails:
        raise Failed(
            _said(done.stderr or done.stdout) or f"{words[3]} ended with {done.returncode}"
        )


def _said(text: str) -> str:
    """The errors of pip, or else the end of a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if line.startswith("ERROR:")]
    wanted = lines[errors[0] :] if errors else lines[-1:]
    said = " ".join(" ".join(line.removeprefix("ERROR:") for line in wanted).split())
    return said if len(said) <= _WHY else said[: _WHY - 2] + " …"
