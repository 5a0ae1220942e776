"""Packages of the distribution are installed; what is there already costs one question to dpkg.

`ansible.builtin.apt` reads all package lists on each host in each run, a second or more of a core,
only to find that nothing is missing. dpkg answers that in milliseconds. APT is asked when something
is missing, and also when dpkg does not know what a name means (`name=version`, a virtual package).

How packages are installed is said here once for all roles: lists no older than an hour, no
recommended packages, ten minutes of patience with whoever else installs something, and no daemon
that starts before its role has configured it (`start_daemons: true` lets them). Those of `hold` APT
leaves as they are from then on, and removes none of them for the sake of others.

In check mode a package that no list has is one whose repository an earlier task would have brought.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from playbooks.plugin_utils.looking import Looking

# Unattended upgrades hold the lock for minutes.
LOCK_TIMEOUT_S = 600
# A second run soon after the first asks no mirror again.
LISTS_VALID_S = 3600
# What policy-rc.d answers: forbidden by policy.
FORBIDDEN = 101

INSTALLED = "installed"
HELD = "hold"
# What `ansible.builtin.apt` says of a name that no package list has.
UNKNOWN = re.compile(r"No package matching '([^']+)' is available")


def question(names: Iterable[str]) -> str:
    """The command that prints `installed NAME hold` for each package that is there and configured.

    Without APT's own configuration and with a fixed format: what a site sets does not change it.
    """
    form = "${db:Status-Status} ${Package} ${db:Status-Want}\\n"
    show = f"dpkg-query --show --showformat='{form}'"
    return f"{show} {shlex.join(names)} 2>/dev/null"


def missing(names: Iterable[str], output: str) -> list[str]:
    """The names that dpkg did not call installed, in their order."""
    lines = (line.split() for line in output.splitlines())
    there = {line[1] for line in lines if line[0] == INSTALLED and len(line) > 1}
    return [name for name in names if name not in there]


def loose(names: Iterable[str], output: str) -> list[str]:
    """The names that dpkg does not call held, in their order."""
    lines = (line.split() for line in output.splitlines())
    held = {line[1] for line in lines if len(line) > 2 and line[2] == HELD}
    return [name for name in names if name not in held]


def request(names: list[str], *, start_daemons: bool) -> dict[str, Any]:
    """What `ansible.builtin.apt` is asked."""
    policy = {} if start_daemons else {"policy_rc_d": FORBIDDEN}
    return {
        "name": names,
        "install_recommends": False,
        "update_cache": True,
        "cache_valid_time": LISTS_VALID_S,
        "lock_timeout": LOCK_TIMEOUT_S,
        **policy,
    }


def unknown(answer: Mapping[str, Any]) -> str:
    """The package that `ansible.builtin.apt` failed for because no list has it; empty otherwise."""
    match = UNKNOWN.match(str(answer.get("msg", ""))) if answer.get("failed") else None
    return match[1] if match else ""


class ActionModule(Looking):
    """`distribution_packages: {name: [...], hold: [...], start_daemons: false}`.

    Returns what `apt` returns.
    """

    _requires_connection = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        ansible: Any = self  # whose methods have no types
        _, arguments = ansible.validate_argument_spec(
            argument_spec={
                "name": {"type": "list", "elements": "str", "required": True},
                "hold": {"type": "list", "elements": "str", "default": []},
                "start_daemons": {"type": "bool", "default": False},
            }
        )
        names: list[str] = arguments["name"]
        if not names:
            return {**result, "changed": False}
        # dpkg's own exit status only says that some name is not there.
        answer = self._read(question(names), task_vars or {})
        unheld = loose(arguments["hold"], answer)
        if not missing(names, answer):
            return {**result, **self._held(unheld)}
        install = request(names, start_daemons=arguments["start_daemons"])
        installed = ansible._execute_module("ansible.builtin.apt", install, task_vars=task_vars)
        if ansible._task.check_mode and (name := unknown(installed)):
            message = (
                f"{name} would be installed from a repository that this host does not read yet"
            )
            return {**result, "changed": True, "msg": message}
        if installed.get("failed"):
            return {**result, **installed}
        held = self._held(unheld)
        changed = bool(installed.get("changed") or held["changed"])
        return {**result, **installed, **held, "changed": changed}

    def _held(self, names: list[str]) -> dict[str, Any]:
        """Has APT leave packages as they are; what of the result that is."""
        if not names:
            return {"changed": False}
        ansible: Any = self
        if not ansible._task.check_mode:
            marked = ansible._low_level_execute_command(f"apt-mark hold {shlex.join(names)}")
            if marked["rc"]:
                said = f"{marked['stdout']}{marked['stderr']}".strip()
                wrong = f"{', '.join(names)} cannot be held: {said}"
                return {"changed": False, "failed": True, "msg": wrong}
        return {"changed": True}
