#!/usr/bin/python3
"""Runs on a node, as root: says what is there, and changes it as a person would by hand.

Its one argument is a JSON document, its answer another. {"look": {KIND: [PATTERN, ...]}} asks for
the state of everything of these names, {"change": [[KIND, SUBJECT, HOW], ...]} changes things in
turn. A state is a line of words that is the same as long as nobody changed anything.
"""

from __future__ import annotations

import fnmatch
import glob
import grp
import hashlib
import json
import os
import pwd
import stat
import subprocess
import sys

ABSENT = "absent"
UNITS = "/etc/systemd/system"
OWN = "# Managed by Ansible"


def run(argv: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def output(*argv: str) -> str:
    """What a program prints, whatever its exit status."""
    return run(argv).stdout.strip()


def done(*argv: str) -> None:
    ended = run(argv)
    if ended.returncode:
        raise SystemExit(f"{' '.join(argv)}: {ended.stdout[-500:]}{ended.stderr[-500:]}")


# --- what is there -------------------------------------------------------------------------------


def file_state(path: str) -> str:
    try:
        status = os.lstat(path)
    except OSError:
        return ABSENT
    if not stat.S_ISREG(status.st_mode):
        return "no plain file"
    owner, group = pwd.getpwuid(status.st_uid).pw_name, grp.getgrgid(status.st_gid).gr_name
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return f"{stat.S_IMODE(status.st_mode):04o} {owner}:{group} {digest[:16]}"


def files(patterns: list[str]) -> dict[str, str]:
    paths = {path for pattern in patterns for path in glob.glob(pattern, recursive=True)}
    # A name without a pattern is asked for by somebody who has seen it.
    paths |= {pattern for pattern in patterns if not glob.has_magic(pattern)}
    states = {path: file_state(path) for path in sorted(paths)}
    return {path: state for path, state in states.items() if state != "no plain file"}


def blocks(patterns: list[str]) -> dict[str, str]:
    """Only of files in which a role keeps lines between its markers."""
    return {path: state for path, state in files(patterns).items() if end_of_block(path)}


def end_of_block(path: str) -> int:
    """The number of the line that ends it; 0 where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.readlines()
    except OSError:
        return 0
    return next((number for number, line in enumerate(lines) if line.startswith("# END ")), 0)


def packages(names: list[str]) -> dict[str, str]:
    shown = output("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *names)
    installed = {line.split()[0] for line in shown.splitlines() if line.endswith(" installed")}
    return {name: "installed" if name in installed else ABSENT for name in names}


def mounts() -> set[str]:
    """Mount units that a role wrote: their names are those of a site's folders."""
    names = set()
    for path in glob.glob(f"{UNITS}/*.mount"):
        with open(path, encoding="utf-8") as file:
            if file.readline().startswith(OWN):
                names.add(os.path.basename(path))
    return names


def units(patterns: list[str]) -> dict[str, str]:
    listed = output("systemctl", "list-unit-files", "--no-legend", "--no-pager")
    known = {line.split()[0] for line in listed.splitlines()}
    names = {name for name in known for pattern in patterns if fnmatch.fnmatch(name, pattern)}
    names |= {name for name in mounts() if name in known}
    states = {}
    for name in sorted(names):
        shown = output("systemctl", "show", "--property=UnitFileState,ActiveState", name)
        states[name] = " ".join(sorted(line.partition("=")[2] for line in shown.splitlines()))
    return states


def users(names: list[str]) -> dict[str, str]:
    states = {}
    for name in names:
        line = output("getent", "passwd", name)
        groups = output("id", "--name", "--groups", name) if line else ""
        states[name] = f"{line} in {groups}" if line else ABSENT
    return states


LOOKS = {
    "file": files,
    "block": blocks,
    "leftover": files,
    "package": packages,
    "unit": units,
    "user": users,
}


def alone(name: str) -> bool:
    """Whether a package can be removed, and no other would have to go with it."""
    argv = ("dpkg", "--no-act", "--remove", name)
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def look(questions: dict[str, list[str]]) -> dict[str, dict[str, str]]:
    return {kind: LOOKS[kind](patterns) for kind, patterns in questions.items()}


# --- what a person does to it --------------------------------------------------------------------


def append(path: str) -> None:
    # A space where a word would be an error, so that what reads the file meanwhile goes on.
    strict = path.endswith((".json", ".lua", ".pyz", ".key", ".crt", ".pem")) or not text(path)
    with open(path, "ab") as file:
        file.write(b"\n" if strict else b"\n# changed by hand\n")


def text(path: str) -> bool:
    """Whether a comment can be added: what has one already, or is a script."""
    with open(path, "rb") as file:
        return b"#" in file.read()


def chmod(path: str) -> None:
    os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) ^ stat.S_IXOTH)


def shorten(path: str) -> None:
    """Takes the last line out of the block that a role keeps in a file of others."""
    end = end_of_block(path)
    with open(path, encoding="utf-8") as file:
        lines = file.readlines()
    del lines[end - 1]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(lines)


def add(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write("{}\n" if path.endswith(".json") else "# added by hand\n")


def change(kind: str, subject: str, how: str) -> None:
    if (kind, how) == ("file", "content"):
        append(subject)
    elif (kind, how) == ("file", "mode"):
        chmod(subject)
    elif (kind, how) == ("file", "owner"):
        os.chown(subject, pwd.getpwnam("games").pw_uid, -1)
    elif (kind, how) == ("file", "removed"):
        os.unlink(subject)
    elif (kind, how) == ("block", "shortened"):
        shorten(subject)
    elif (kind, how) == ("leftover", "added"):
        add(subject)
    elif (kind, how) == ("package", "removed"):
        # Held ones of Slurm go with what they need.
        options = ["--assume-yes", "--no-auto-remove", "--allow-change-held-packages"]
        done("apt-get", "--quiet", *options, "remove", subject)
    elif kind == "unit":
        done("systemctl", {"stopped": "stop", "disabled": "disable"}[how], subject)
    elif (kind, how) == ("user", "shell"):
        done("usermod", "--shell", "/bin/sh", subject)
    elif (kind, how) == ("user", "comment"):
        done("usermod", "--comment", "changed by hand", subject)
    else:
        raise SystemExit(f"nobody knows how to do this to a {kind}: {how}")


def main() -> None:
    request = json.loads(sys.argv[1])
    for kind, subject, how in request.get("change", []):
        change(kind, subject, how)
    states = look(request.get("look", {}))
    if request.get("alone"):
        there = [name for name, state in states["package"].items() if state != ABSENT]
        states["alone"] = {name: "yes" for name in there if alone(name)}
    json.dump(states, sys.stdout)


if __name__ == "__main__":
    main()
