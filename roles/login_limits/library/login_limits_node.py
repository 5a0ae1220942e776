#!/usr/bin/python
"""Reads what a login node has for limits of its users, and which limits the kernel holds them to.

Nothing is taken from systemd's files: they say what somebody wanted. A new session is tried with a
process in the slice of a user whom nobody is.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: login_limits_node
short_description: Read the limits that the kernel holds the users of a host to
description:
  - Changes nothing, in check mode neither.
options:
  users:
    description: Names of users whose number is wanted, and whether the limits leave them free.
    type: list
    elements: str
    default: []
  probe:
    description: Try what a new session gets, with a process that lasts for a moment.
    type: bool
    default: false
author: The Plumbline authors
"""

RETURN = r"""
node:
  description: >-
    cgroup (v1, hybrid, v2), controllers, cpus, memory, swap and page in bytes, tasks; operator, the
    user who logged in; users, number by name, none for who is unknown; free, those of them whom the
    limits leave free; slices, files of the cgroups of users who are logged in, by their number;
    probe and probe_error, the same of a new session; reload, slices that systemd has not read anew;
    logind; linger.
  type: dict
  returned: always
"""

DROP_IN = "user-.slice.d/50-plumbline.conf"
FILES = (
    "cpu.max",
    "cpu.weight",
    "memory.high",
    "memory.max",
    "memory.swap.max",
    "pids.max",
    "io.weight",
)
NOBODY = 65534
PATIENCE_S = 30
LOGIND = ("RemoveIPC", "KillUserProcesses")


@dataclass(frozen=True)
class Host:
    """Where things are on this host."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    linger: Path = Path("/var/lib/systemd/linger")

    def slice(self, uid: int) -> Path:
        return self.cgroup / "user.slice" / f"user-{uid}.slice"


def cgroup_version(mounts: str) -> str:
    """v2 where the one tree of cgroups is at the top, hybrid where v1 has controllers beside it."""
    kinds = {line.split()[1]: line.split()[2] for line in mounts.splitlines()}
    top = kinds.get("/sys/fs/cgroup")
    if top == "cgroup2":
        return "v2"
    if top is None:
        return "no version"
    return "hybrid" if "cgroup2" in kinds.values() else "v1"


def meminfo(text: str) -> dict[str, int]:
    """Bytes by name."""
    fields = (line.split() for line in text.splitlines() if line.endswith(" kB"))
    return {name.rstrip(":"): int(number) << 10 for name, number, _ in fields}


def limits(folder: Path) -> dict[str, str]:
    """What the files of a cgroup say, by the file's name."""
    values = {}
    for name in FILES:
        try:
            text = (folder / name).read_text(encoding="ascii")
        except OSError:
            continue  # a controller that is off, or a session that has just ended
        values[name] = value(text)
    return values


def value(text: str) -> str:
    """The first line, which is that of all disks where a file has more."""
    return text.partition("\n")[0].strip().removeprefix("default ")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def probe(host: Host) -> tuple[dict[str, str], str]:
    """What a new session gets, or why that cannot be tried."""
    folder = host.slice(NOBODY)
    each = '[ ! -e $f ] || echo "$f $(head -n 1 $f)"'
    script = f"cd {folder} && for f in {' '.join(FILES)}; do {each}; done"
    done = run(
        "systemd-run", "--quiet", "--pipe", "--wait", "--collect",
        f"--slice=user-{NOBODY}.slice", "/bin/sh", "-c", script,
    )  # fmt: skip
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    values = {name: value(text) for name, _, text in lines}
    return values, "" if done.returncode == 0 else " ".join(done.stderr.split())


def uid_of(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def show(units: Iterable[str], *properties: str) -> list[dict[str, str]]:
    """Properties of units, as systemd has them in memory."""
    output = run("systemctl", "show", *units, f"--property={','.join(('Id', *properties))}").stdout
    return [
        dict(line.partition("=")[::2] for line in block.splitlines())
        for block in output.split("\n\n")
        if block.strip()
    ]


def free_users(users: dict[str, int | None]) -> list[str]:
    """Those in whose slice systemd does not read the limits of all."""
    known = {f"user-{uid}.slice": name for name, uid in users.items() if uid is not None}
    units = show(known, "DropInPaths", "NeedDaemonReload") if known else []
    return sorted(
        known[unit["Id"]]
        for unit in units
        if unit.get("Id") in known
        and unit.get("NeedDaemonReload") == "no"
        and DROP_IN not in unit.get("DropInPaths", DROP_IN)
    )


def waiting_for_reload() -> list[str]:
    """Slices of users who are logged in that systemd has not read since their files changed."""
    return sorted(
        unit["Id"]
        for unit in show(["user-*.slice"], "NeedDaemonReload")
        if unit.get("NeedDaemonReload") == "yes"
    )


def logind() -> dict[str, str]:
    """Settings that logind runs with."""
    settings = {}
    for name in LOGIND:
        reply = run(
            "busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1",
            "org.freedesktop.login1.Manager", name,
        ).stdout.split()  # fmt: skip
        if reply in (["b", "true"], ["b", "false"]):
            settings[name] = "yes" if reply[1] == "true" else "no"
    return settings


def operator() -> str:
    """Who logged in, whatever user this runs as now."""
    uid = int(os.environ.get("SUDO_UID") or os.getuid())
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def slices(host: Host) -> dict[str, dict[str, str]]:
    """Limits of the users who are logged in, by their number."""
    by_number = {}
    for folder in host.cgroup.glob("user.slice/user-*.slice"):
        number = folder.name.removeprefix("user-").removesuffix(".slice")
        if number.isdecimal() and int(number) != NOBODY and (read := limits(folder)):
            by_number[number] = read
    return by_number


def node(host: Host, names: Iterable[str], with_probe: bool) -> dict[str, Any]:
    memory = meminfo((host.proc / "meminfo").read_text(encoding="ascii"))
    version = cgroup_version((host.proc / "mounts").read_text(encoding="utf-8"))
    # Those of the kernel and of a container that this may be.
    numbers = [
        int((host.proc / f"sys/kernel/{name}").read_text(encoding="ascii"))
        for name in ("pid_max", "threads-max")
    ]
    users = {name: uid_of(name) for name in names}
    on_v2 = version == "v2"
    values, error = probe(host) if with_probe and on_v2 else ({}, "")
    controllers = host.cgroup / "cgroup.controllers"
    return {
        "cgroup": version,
        "controllers": controllers.read_text(encoding="ascii").split() if on_v2 else [],
        "cpus": os.sysconf("SC_NPROCESSORS_ONLN"),
        "memory": memory["MemTotal"],
        "swap": memory["SwapTotal"],
        "page": os.sysconf("SC_PAGESIZE"),
        "tasks": min(numbers),
        "operator": operator(),
        "users": users,
        "free": free_users(users),
        "slices": slices(host) if on_v2 else {},
        "probe": values,
        "probe_error": error,
        "reload": waiting_for_reload(),
        "logind": logind(),
        "linger": sorted(path.name for path in host.linger.glob("*")),
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "users": {"type": "list", "elements": "str", "default": []},
            "probe": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    module.exit_json(changed=False, node=node(Host(), params["users"], params["probe"]))


if __name__ == "__main__":
    main()
