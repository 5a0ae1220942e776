#!/usr/bin/python
"""Loads the rules of a host's firewall, in two steps, so that nobody is cut off by a mistake.

State `tried` loads new rules, and has systemd put the old ones back a minute later. Whoever can
still come in over a new connection says so with state `kept`, which writes the rules where each
boot loads them and calls the undoing off. A run that died between the two, or was cut off, leaves
the host as it was.

Only the table `inet plumbline` is touched. Whether it is as it should be is seen by what nft shows
of it: the same as of the same text in a network namespace of its own, where nobody is affected.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import OWN_FILE, Access, differs, write

DOCUMENTATION = r"""
module: firewall_table
short_description: Load the rules of a firewall, and undo it unless they are kept
description:
  - >-
    C(state=tried) loads rules that differ from those of the kernel and undoes that after
    O(undo_after) seconds. C(state=kept) keeps them, and has them loaded at each boot.
    C(state=absent) removes the table and all files.
options:
  rules:
    description: The rules, as nft reads them.
    type: str
    default: ""
  unit:
    description: Text of the unit that loads them at boot.
    type: str
    default: ""
  undo_after:
    description: Seconds after which rules that were not kept are undone.
    type: int
    default: 60
  state:
    description: What to do.
    type: str
    choices: [tried, kept, absent]
    default: tried
author: The Plumbline authors
"""

RETURN = r"""
trial:
  description: Whether rules were loaded that are undone unless they are kept.
  type: bool
  returned: success
kept:
  description: Whether the rules that were tried are kept; false where they were undone before.
  type: bool
  returned: with C(state=kept)
"""

TABLE = ("inet", "plumbline")
# In place of what is there, if anything is; nft takes all of it or nothing.
REPLACE = "table inet plumbline\ndelete table inet plumbline\n"
UNIT = "plumbline-firewall.service"
UNDO = "plumbline-firewall-undo"
# The distribution's unit removes everybody's rules as it starts. Systemd tells ours of restarts.
AGAIN = f"""[Service]
ExecStartPost=-/bin/systemctl --no-block try-reload-or-restart {UNIT}
"""
SECRETIVE = Access(0o600, os.geteuid(), os.getegid())


@dataclass(frozen=True)
class Host:
    """Where things are on the host; tests have other places."""

    rules: Path = Path("/etc/plumbline/firewall.nft")
    unit: Path = Path("/etc/systemd/system") / UNIT
    again: Path = Path("/etc/systemd/system/nftables.service.d/plumbline.conf")
    run: Path = Path("/run/plumbline-firewall")

    @property
    def undo(self) -> Path:
        return self.run / "undo.nft"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    return subprocess.run(
        words,
        env={**environment, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def done(*words: str) -> str:
    """The output of a command that has to end well. Raises Refused."""
    ended = command(*words)
    if ended.returncode:
        what = " ".join((ended.stderr or ended.stdout).split())
        raise Refused(f"{' '.join(words)} failed: {what}")
    return ended.stdout


def live() -> str:
    """The table as nft shows it, without what it counted; empty where there is none."""
    try:
        return command("nft", "--stateless", "list", "table", *TABLE).stdout
    except FileNotFoundError:  # a host that never had a firewall
        return ""


def as_shown(rules: str) -> str:
    """What nft would show of these rules. Raises Refused where it does not take them."""
    with tempfile.NamedTemporaryFile("w", suffix=".nft", encoding="utf-8") as file:
        file.write(rules)
        file.flush()
        script = 'nft --file "$1" && nft --stateless list table inet plumbline'
        ended = command("unshare", "--net", "sh", "-c", script, "sh", file.name)
    if ended.returncode:
        lines = ended.stderr.replace(file.name, "the rules").splitlines()
        raise Refused(f"nft does not take the rules, and the old ones stay: {' '.join(lines[:3])}")
    return ended.stdout


def is_pending() -> bool:
    """Whether rules were loaded that nobody has kept so far."""
    return command("systemctl", "is-active", "--quiet", f"{UNDO}.timer").returncode == 0


def is_enabled() -> bool:
    shown = command("systemctl", "show", "--property=UnitFileState,ActiveState", UNIT).stdout
    return set(shown.split()) == {"UnitFileState=enabled", "ActiveState=active"}


def files_differ(rules: str, unit: str, host: Host) -> bool:
    return bool(
        differs(host.rules, rules, SECRETIVE)
        or differs(host.unit, unit, OWN_FILE)
        or differs(host.again, AGAIN, OWN_FILE)
    )


def tried(rules: str, unit: str, undo_after: int, check_mode: bool, host: Host) -> dict[str, Any]:
    wanted, now = as_shown(rules), live()
    # A run before this one may have died: its rules are undone at any moment.
    pending = is_pending()
    if wanted == now and not pending:
        changed = files_differ(rules, unit, host) or not is_enabled()
        if changed and not check_mode:
            keep(rules, unit, host)
        return {"changed": changed, "trial": False}
    if check_mode:
        return {"changed": True, "trial": True}
    if pending:
        done("systemctl", "stop", f"{UNDO}.timer")
    else:
        write(host.undo, REPLACE + now, SECRETIVE)
    done(
        "systemd-run",
        "--quiet",
        "--collect",
        f"--unit={UNDO}",
        "--description=Put the old rules of the firewall back",
        f"--on-active={undo_after}",
        "--timer-property=AccuracySec=100ms",
        "nft",
        "--file",
        str(host.undo),
    )
    new = host.run / "new.nft"
    write(new, rules, SECRETIVE)
    done("nft", "--file", str(new))
    return {"changed": True, "trial": True}


def keep(rules: str, unit: str, host: Host) -> None:
    """What each boot loads from now on is these rules."""
    write(host.rules, rules, SECRETIVE)
    write(host.unit, unit, OWN_FILE)
    write(host.again, AGAIN, OWN_FILE)
    done("systemctl", "daemon-reload")
    done("systemctl", "enable", "--quiet", UNIT)
    done("systemctl", "start", UNIT)


def kept(rules: str, unit: str, check_mode: bool, host: Host) -> dict[str, Any]:
    # A connection that was tried for long enough comes in when the old rules are back.
    in_time = not check_mode and is_pending() and live() == as_shown(rules)
    if in_time:
        keep(rules, unit, host)
        done("systemctl", "stop", f"{UNDO}.timer")
    return {"changed": in_time, "trial": False, "kept": in_time}


def absent(check_mode: bool, host: Host) -> dict[str, Any]:
    paths = [path for path in (host.rules, host.unit, host.again) if path.exists()]
    table, pending = bool(live()), is_pending()
    changed = bool(paths or table or pending)
    if changed and not check_mode:
        if pending:
            done("systemctl", "stop", f"{UNDO}.timer")
        if host.unit.exists():
            done("systemctl", "disable", "--quiet", "--now", UNIT)
        if live():
            done("nft", "delete", "table", *TABLE)
        for path in paths:
            path.unlink()
        done("systemctl", "daemon-reload")
    return {"changed": changed, "trial": False}


def run(options: dict[str, Any], check_mode: bool, host: Host) -> dict[str, Any]:
    """The module's result. Raises Refused."""
    rules, unit = options["rules"], options["unit"]
    match options["state"]:
        case "absent":
            return absent(check_mode, host)
        case "kept":
            return kept(rules, unit, check_mode, host)
    return tried(rules, unit, options["undo_after"], check_mode, host)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "rules": {"type": "str", "default": ""},
            "unit": {"type": "str", "default": ""},
            "undo_after": {"type": "int", "default": 60},
            "state": {"type": "str", "choices": ["tried", "kept", "absent"], "default": "tried"},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode, Host())
    except Refused as problem:
        module.fail_json(msg=f"firewall_table: {problem}.")
    except OSError as error:
        module.fail_json(msg=f"firewall_table: {error.filename}: {error.strerror}.")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
