#!/usr/bin/python
"""Mounts what is declared with units of systemd, and has daemons wait for it.

All units with our first line, and all drop-ins of our name, are this role's: those that are
declared no more go. A unit that is mounted as it was before is mounted anew: by a remount, which
disturbs nobody, or, where the filesystem is another one, only if nobody uses it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.whole_file import OWN_FILE, differs, write

DOCUMENTATION = r"""
module: shared_storage_units
short_description: Mount filesystems by systemd, and have daemons wait for them
options:
  mounts:
    description: What to mount, each with path, unit and text, in the order of their paths.
    type: list
    elements: dict
    required: true
  daemons:
    description: Services that start only when the program says that all is there.
    type: list
    elements: str
    required: true
  program:
    description: The program that they wait for.
    type: path
    required: true
author: The Plumbline authors
"""

RETURN = r"""
changed_files:
  description: Units and drop-ins that were written or removed.
  type: list
  elements: str
  returned: success
removed:
  description: Paths that were mounted by units of ours, and are no more.
  type: list
  elements: str
  returned: success
"""

OWN = "# Managed by Ansible (shared_storage); changes made here are lost.\n"
DROP_IN = "40-plumbline-storage.conf"
LIMIT = 180  # seconds for systemctl; a mount has its own limit, which is shorter

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


class Failed(Exception):
    """One sentence without its end: what could not be done."""


@dataclass(frozen=True)
class Host:
    """Where things are on this host."""

    units: Path = Path("/etc/systemd/system")
    record: Path = Path("/var/lib/plumbline/shared_storage.json")
    mountinfo: Path = Path("/proc/self/mountinfo")

    def mounted(self, path: str) -> bool:
        """As the kernel says; no server is asked."""
        octal = re.compile(r"\\([0-7]{3})")
        points = (line.split()[4] for line in self.mountinfo.read_text().splitlines())
        return path in {octal.sub(lambda code: chr(int(code[1], 8)), point) for point in points}

    def own_mounts(self) -> dict[str, str]:
        """Unit -> text, of the units that are ours."""
        texts = {path.name: path.read_text() for path in sorted(self.units.glob("*.mount"))}
        return {name: text for name, text in texts.items() if text.startswith(OWN)}

    def own_gates(self) -> set[Path]:
        return set(self.units.glob(f"*.service.d/{DROP_IN}"))

    def gate(self, daemon: str) -> Path:
        return self.units / f"{daemon}.service.d" / DROP_IN

    def taken_over(self) -> dict[str, str]:
        """Unit -> the text that it was mounted by last."""
        try:
            read: dict[str, str] = json.loads(self.record.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return read


def gate_text(program: str, units: Sequence[str], daemon: str) -> str:
    """With all rights, also where the daemon has none. It waits inside, so that a start that failed
    is one of the daemon's, which systemd repeats; that of a dependency it does not."""
    after = f"After={' '.join(units)}\nWants={' '.join(units)}\n" if units else ""
    return (
        f"{OWN}[Unit]\nAfter=remote-fs.target\n{after}StartLimitIntervalSec=0\n\n"
        f"[Service]\nExecStartPre=+{program} wait\nRestart=on-failure\nRestartSec=10\n"
        "TimeoutStartSec=infinity\n"
    )


def source_of(text: str) -> str:
    return text.partition("\nWhat=")[2].partition("\n")[0]


def where_of(text: str) -> str:
    return text.partition("\nWhere=")[2].partition("\n")[0]


@dataclass
class Mounter:
    host: Host
    run: Run
    check_mode: bool
    changed: bool = False
    changed_files: list[str] = field(default_factory=list)

    def systemctl(self, *arguments: str) -> str:
        """Why it failed; empty when it did what it was asked."""
        done = self.run(["systemctl", *arguments])
        return "" if done.returncode == 0 else (done.stderr.strip() or "it gave no reason")

    def ensure(
        self, mounts: Sequence[Mapping[str, str]], daemons: Sequence[str], program: str
    ) -> list[str]:
        """All as declared; the paths that are mounted no more. Raises Failed."""
        wanted = {mount["unit"]: OWN + mount["text"] for mount in mounts}
        gates = {self.host.gate(name): gate_text(program, list(wanted), name) for name in daemons}
        files = {self.host.units / unit: text for unit, text in wanted.items()} | gates
        own, surplus_gates = self.host.own_mounts(), self.host.own_gates() - gates.keys()
        left = {unit: text for unit, text in own.items() if unit not in wanted}
        for unit in wanted:
            path = self.host.units / unit
            if path.exists() and unit not in own:
                raise Failed(f"{path} is not this role's; remove it, or its mount from the list")
        removed = [where_of(text) for text in left.values()]
        outdated = [path for path, text in files.items() if differs(path, text, OWN_FILE)]
        gone = [*(self.host.units / unit for unit in left), *surplus_gates]
        self.changed_files = sorted(map(str, (*outdated, *gone)))
        self.changed = bool(self.changed_files)
        if self.check_mode:
            self.changed |= any(
                not self.host.mounted(mount["path"]) or self.disabled(mount["unit"])
                for mount in mounts
            )
            return removed
        for unit, text in reversed(left.items()):
            self.leave(unit, where_of(text))
        for path in outdated:
            write(path, files[path], OWN_FILE)
        for path in surplus_gates:
            path.unlink()
        if self.changed:
            self.systemctl("daemon-reload")
        taken_over = self.host.taken_over()
        for mount in mounts:
            self.mount(mount, wanted[mount["unit"]], taken_over)
        kept = {unit: text for unit, text in taken_over.items() if unit in wanted}
        if kept != self.host.taken_over():
            write(self.host.record, json.dumps(kept, indent=2) + "\n")
        return removed

    def leave(self, unit: str, path: str) -> None:
        if self.host.mounted(path) and (why := self.systemctl("stop", unit)):
            raise Failed(
                f"{path} is declared no more, and cannot be unmounted: {self.why(unit, why)}; end "
                f"what uses it (fuser -vm {path})"
            )
        self.systemctl("disable", unit)
        (self.host.units / unit).unlink()

    def mount(self, mount: Mapping[str, str], text: str, taken_over: dict[str, str]) -> None:
        unit, path = mount["unit"], mount["path"]
        before = taken_over.get(unit)
        if self.disabled(unit):
            self.changed = True
            if why := self.systemctl("enable", "--quiet", unit):
                raise Failed(f"{unit} cannot be enabled: {why}")
        if not self.host.mounted(path):
            self.changed = True
            # One that failed often waits for a while before it may be tried again.
            self.systemctl("reset-failed", unit)
            if why := self.systemctl("start", unit):
                raise Failed(
                    f"{source_of(text)} cannot be mounted at {path}: {self.why(unit, why)}"
                )
        elif before is not None and before != text:
            self.changed = True
            same = source_of(before) == source_of(text)
            if why := self.systemctl("reload" if same else "restart", unit):
                raise Failed(
                    f"{path} is mounted as it was before, and cannot be mounted as declared: "
                    f"{self.why(unit, why)}; end what uses it (fuser -vm {path})"
                )
        taken_over[unit] = text

    def disabled(self, unit: str) -> bool:
        return bool(self.systemctl("is-enabled", "--quiet", unit))

    def why(self, unit: str, otherwise: str) -> str:
        """The last words of what mounts, which say more than systemctl."""
        argv = ["journalctl", f"--unit={unit}", "--lines=20", "--output=cat", "--no-pager"]
        lines = self.run(argv).stdout.splitlines()
        messages = [line for line in lines if re.match(r"u?mount(\.\w+)?: ", line)]
        return (messages or otherwise.splitlines())[-1].rstrip(".")


def run(argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        stderr = f"{' '.join(argv)} did not end within {LIMIT} s"
        return subprocess.CompletedProcess(argv, 1, "", stderr)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "mounts": {"type": "list", "elements": "dict", "required": True},
            "daemons": {"type": "list", "elements": "str", "required": True},
            "program": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    params: dict[str, Any] = module.params
    mounter = Mounter(Host(), run, module.check_mode)
    try:
        removed = mounter.ensure(params["mounts"], params["daemons"], params["program"])
    except Failed as problem:
        module.fail_json(msg=f"shared_storage: {problem}.")
    except OSError as error:
        module.fail_json(msg=f"shared_storage: {error}")
    module.exit_json(changed=mounter.changed, changed_files=mounter.changed_files, removed=removed)


if __name__ == "__main__":
    main()
