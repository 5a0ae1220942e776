#!/usr/bin/python
"""Tells what enroot needs to know of a node. Changes nothing.

What is not there is told as empty; nothing here fails because enroot was never installed.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: enroot_host
short_description: Tell what enroot needs to know of a node
options:
  scratch:
    description: Folder for containers; it need not be there yet.
    type: path
    required: true
  settings:
    description: Names of the settings that the role writes into its drop-in.
    type: list
    elements: str
    default: []
author: The Plumbline authors
"""

PACKAGES = ("enroot", "enroot+caps")
SYSCTLS = (
    "user.max_user_namespaces",
    "user.max_mnt_namespaces",
    "kernel.unprivileged_userns_clone",
)
PROFILES = Path("/etc/apparmor.d")
OURS = "50-plumbline.conf"
_GIB = 2**30
_SECONDS = 30


def text_of(path: Path) -> str:
    """What a file of the kernel or of enroot says, or "" where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def run(argv: list[str], **environment: str) -> tuple[int, str]:
    """Exit status of a command, and its output with what it complained of; 127 if there is none."""
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=_SECONDS,
            cwd="/",
            env={**os.environ, **environment},
        )
    except FileNotFoundError:
        return 127, f"{argv[0]} is not there"
    except subprocess.TimeoutExpired:
        return 124, f"no end after {_SECONDS} s"
    return done.returncode, done.stdout.decode(errors="replace").strip()


def versions() -> dict[str, str]:
    """Versions as dpkg has them; a package that is not installed, or not whole, has nothing."""
    show = ["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Package} ${Version}\\n"]
    _, answer = run([*show, *PACKAGES])
    by_package = dict.fromkeys(PACKAGES, "")
    for words in map(str.split, answer.splitlines()):
        if len(words) == 3 and words[0] == "installed" and words[1] in by_package:
            by_package[words[1]] = words[2]
    return by_package


def program() -> str:
    """What `enroot version` prints. It makes the folders it is told of: one that is there."""
    there = {f"ENROOT_{name}_PATH": "/tmp" for name in ("RUNTIME", "CACHE", "DATA")}
    code, answer = run(["enroot", "version"], **there)
    return answer if code == 0 else ""


def sysctls() -> dict[str, str]:
    """The settings that the kernel has and that can be written here, with their values."""
    paths = {name: Path("/proc/sys", *name.split(".")) for name in SYSCTLS}
    return {name: text_of(path) for name, path in paths.items() if os.access(path, os.W_OK)}


def apparmor() -> dict[str, bool]:
    restrict = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    return {
        # A kernel that could, without the programs that load profiles, restricts nobody.
        "enabled": text_of(Path("/sys/module/apparmor/parameters/enabled")) == "Y"
        and (PROFILES / "disable").is_dir(),
        "abi": (PROFILES / "abi/4.0").exists(),
        "restricted": text_of(restrict) == "1",
        "loaded": any(
            line.split(" ")[0] in ("enroot", "/usr/bin/enroot-nsenter")
            for line in text_of(Path("/sys/kernel/security/apparmor/profiles")).splitlines()
        ),
    }


def user_namespaces(restricted: bool) -> str:
    """`yes`, or why an ordinary user cannot make one.

    Where AppArmor lets only programs with a profile make them, enroot's own is tried.
    """
    argv = ["unshare", "--user", "--map-root-user", "true"]
    if restricted:
        argv = ["enroot-nsenter", "--user", "--mount", "--remap-root", "true"]
    code, answer = run(["runuser", "-u", "nobody", "--", *argv])
    return "yes" if code == 0 else answer.splitlines()[-1] if answer else f"exit status {code}"


def mount_of(path: Path, mounts: str) -> str:
    """The filesystem that a path is on, from the text of /proc/self/mounts; the last one counts."""
    best, kind = "", ""
    for words in map(str.split, mounts.splitlines()):
        point = words[1].replace("\\040", " ")
        inside = point == "/" or path == Path(point) or Path(point) in path.parents
        if inside and len(point) >= len(best):
            best, kind = point, words[2]
    return kind


def disk(scratch: Path) -> dict[str, Any]:
    """The disk that a folder is on, or will be; sizes in GiB."""
    there = scratch
    while not there.exists():
        there = there.parent
    there = there.resolve()
    size = os.statvfs(there)
    return {
        "path": str(scratch),
        "filesystem": mount_of(there, text_of(Path("/proc/self/mounts"))),
        "free_gib": round(size.f_bavail * size.f_frsize / _GIB, 1),
        "size_gib": round(size.f_blocks * size.f_frsize / _GIB, 1),
    }


def overridden(names: list[str], folder: Path = Path("/etc/enroot")) -> list[str]:
    """`NAME in FILE` for each setting that another file sets first; for enroot the first counts."""
    files = [folder / "enroot.conf"]
    with suppress(OSError):
        files += sorted(
            path for path in (folder / "enroot.conf.d").glob("*.conf") if path.name < OURS
        )
    return [
        f"{words[0]} in {path}"
        for path in files
        for words in (line.replace("=", " ").split() for line in text_of(path).splitlines())
        if words and words[0] in names
    ]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "scratch": {"type": "path", "required": True},
            "settings": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    protection = apparmor()
    module.exit_json(
        changed=False,
        packages=versions(),
        version=program(),
        sysctls=sysctls(),
        apparmor=protection,
        user_namespaces=user_namespaces(protection["restricted"]),
        disk=disk(Path(module.params["scratch"])),
        overridden=overridden(module.params["settings"]),
    )


if __name__ == "__main__":
    main()
