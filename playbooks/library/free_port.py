#!/usr/bin/python
"""Says who has a TCP port that a daemon is about to listen on, before the daemon is restarted.

Who listens is read from /proc, which needs no further program: proc(5), /proc/net/tcp.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: free_port
short_description: Refuse a TCP port that somebody else listens on
description:
  - Fails with one sentence when a process outside of O(unit) listens on the port. Changes nothing.
options:
  port:
    description: The port.
    type: int
    required: true
  unit:
    description: Name of the service that may have it, without C(.service).
    type: str
    required: true
  variable:
    description: The variable that sets the port; the sentence says it.
    type: str
    required: true
author: The Plumbline authors
"""

LISTENS = "0A"
PROC = Path("/proc")


def inodes(table: str, port: int) -> Iterator[str]:
    """Inodes of the sockets that listen on a port, from the text of a /proc/net/tcp."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def holders(port: int, proc: Path = PROC) -> Iterator[int]:
    """The processes that listen on a port."""
    wanted = set()
    for name in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # a kernel without IPv6
            numbers = inodes((proc / "net" / name).read_text(), port)
            wanted |= {f"socket:[{inode}]" for inode in numbers}
    for folder in proc.glob("[0-9]*") if wanted else ():
        with suppress(OSError):  # it has ended
            if any(os.readlink(file) in wanted for file in (folder / "fd").iterdir()):
                yield int(folder.name)


def is_of(pid: int, unit: str, proc: Path = PROC) -> bool:
    """Whether a process belongs to a service: its control group ends with the service's name."""
    groups = (proc / str(pid) / "cgroup").read_text().splitlines()
    return any(f"{unit}.service" in line.split(":", 2)[2].split("/") for line in groups)


def taken_by(port: int, unit: str, proc: Path = PROC) -> str:
    """`NAME (process PID)` of who else has the port; empty if nobody has."""
    for pid in holders(port, proc):
        with suppress(OSError):
            if not is_of(pid, unit, proc):
                return f"{(proc / str(pid) / 'comm').read_text().strip()} (process {pid})"
    return ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "port": {"type": "int", "required": True},
            "unit": {"type": "str", "required": True},
            "variable": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    options: dict[str, Any] = module.params
    if taken := taken_by(options["port"], options["unit"]):
        module.fail_json(
            msg=f"port {options['port']} is taken by {taken}; stop that, or set "
            f"{options['variable']} to another port. What runs was left as it is."
        )
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
