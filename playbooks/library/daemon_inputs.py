#!/usr/bin/python
"""Notices a daemon that runs with other files than it was started with.

A drop-in of the unit writes down, at every start and whoever starts it, which files the daemon is
about to read: one line for each, with its SHA-256, in /run/plumbline/UNIT.started. The module runs
the same lines of shell again and compares. So a run that was interrupted between a changed file
and its restart is mended by the next one, and so is a daemon that a package started with a file
of its own.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import Access, remove, write

DOCUMENTATION = r"""
module: daemon_inputs
short_description: Notice a daemon that runs with other files than it was started with
description:
  - Owns C(/etc/systemd/system/UNIT.service.d/50-plumbline.conf), and has systemd read it.
  - Is changed when the drop-in changed, and when the running daemon was started with other files,
    or before there was a record of them. A daemon that does not run reads its files at its start.
  - Restarts nothing itself; notify a handler.
options:
  unit:
    description: Name of the service, with or without C(.service).
    type: str
    required: true
  files:
    description: >-
      What the daemon reads at its start: absolute paths, with C(*), C(?) and C([]) as the shell
      has them. A file that is missing counts, too.
    type: list
    elements: str
    default: []
  reload_files:
    description: The same, of what a reload takes over.
    type: list
    elements: str
    default: []
  settings:
    description: >-
      Further settings of the unit, by section, as
      V({Unit: {After: [x.service]}, Service: {Restart: on-failure}}).
      A list is one line for each of its values.
    type: dict
    default: {}
  state:
    description:
      - V(present) compares.
      - V(recorded) writes down that a reload took over O(reload_files).
      - V(absent) removes the drop-in and the record.
    type: str
    choices: [present, recorded, absent]
    default: present
author: The Plumbline authors
"""

EXAMPLES = r"""
- name: Check whether munged must restart
  daemon_inputs:
    unit: munge
    files: [/etc/munge/munge.key]
  notify: Restart munge
"""

RETURN = r"""
action:
  description: What the daemon needs, one of C(none), C(reload) and C(restart).
  type: str
  returned: always
differs:
  description: The files that are not as the daemon read them; C(unit) for the settings of its unit.
  type: list
  elements: str
  returned: always
"""

HEADER = "# Managed by Ansible; changes made here are lost.\n"
RUNNING = {"active", "activating", "reloading"}
UNIT = re.compile(r"[\w@:.\\-]+")


@dataclass(frozen=True)
class Host:
    """Where things are on this host."""

    units: Path = Path("/etc/systemd/system")
    records: Path = Path("/run/plumbline")

    def drop_in(self, unit: str) -> Path:
        return self.units / f"{unit}.d/50-plumbline.conf"

    def record(self, unit: str) -> Path:
        return self.records / f"{unit.removesuffix('.service')}.started"


# --- what a daemon is started with: lines `restart|reload HASH PATH` ------------------------------


def shell_pattern(path: str) -> str:
    """A path for the shell: all but what is safe, or means something in a pattern, is escaped."""
    if not path.startswith("/") or "\n" in path:
        raise Refused(f"{path!r} is no absolute path; the files of a daemon are named in full.")
    return re.sub(r"[^\w@%+=:,./*?\[\]!^-]", lambda match: f"\\{match[0]}", path, flags=re.ASCII)


def lines_of(kind: str, files: Iterable[str]) -> str:
    """Shell that prints a line for each file; a pattern without a file is a missing file."""
    patterns = " ".join(map(shell_pattern, files))
    return (
        f"for f in {patterns}; do h=missing; "
        '[ ! -e "$f" ] || h=$(sha256sum <"$f" || echo unreadable); '
        f'printf "%s\\n" "{kind} ${{h%% *}} $f"; done; '
        if patterns
        else ""
    )


def inputs(files: Iterable[str], reload_files: Iterable[str]) -> str:
    """Shell that prints all lines, in an order that no locale changes."""
    each = lines_of("restart", files) + lines_of("reload", reload_files)
    return f"{{ {each}:; }} 2>/dev/null | LC_ALL=C sort -u"


def inputs_now(script: str) -> set[str]:
    return set(
        subprocess.run(
            ["/bin/sh", "-c", script], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    )


def difference(then: Iterable[str], now: Iterable[str]) -> dict[str, set[str]]:
    """The files whose lines differ, by what takes them over."""
    paths: dict[str, set[str]] = {"restart": set(), "reload": set()}
    for line in set(then) ^ set(now):
        kind, _, path = line.split(" ", 2)
        paths[kind].add(path)
    return paths


def read_record(path: Path) -> set[str] | None:
    """The lines of the last start; None without a record."""
    try:
        return set(path.read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return None


# --- the unit's drop-in ---------------------------------------------------------------------------


def systemd_quoted(text: str) -> str:
    """One word of a command line in a unit: no specifier, variable or escape is left in it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def settings_lines(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(section, `Key=value`) for each setting."""
    for section, keys in sorted(settings.items()):
        if not isinstance(keys, Mapping):
            raise Refused(f"settings.{section} is no dictionary; write {section}: {{Key: value}}.")
        for key, values in sorted(keys.items()):
            for value in values if isinstance(values, list) else [values]:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                if "\n" in text or not isinstance(value, (str, int, float)):
                    raise Refused(f"settings.{section}.{key} must be one line, not {value!r}.")
                yield section, f"{key}={text}"


def drop_in(record: Path, script: str, settings: Mapping[str, Any]) -> str:
    """The text of the drop-in. Its version, a line of the record, tells which one was in force."""
    by_section: dict[str, list[str]] = {"Service": []}
    for section, line in settings_lines(settings):
        by_section.setdefault(section, []).append(line)
    version = hashlib.sha256(repr((script, sorted(by_section.items()))).encode()).hexdigest()
    # With all rights, also where the daemon has none, and never a reason not to start it. The
    # record appears as a whole, or not at all.
    write = (
        f"umask 077; mkdir -p {record.parent} && "
        f"{{ echo restart {version} unit; {script}; }} >{record}.new && "
        f"mv {record}.new {record}"
    )
    by_section["Service"] += [f"ExecStartPre=-+/bin/sh -c {systemd_quoted(write)}"]
    body = "\n".join(
        "\n".join([f"[{section}]", *lines, ""]) for section, lines in sorted(by_section.items())
    )
    return f"{HEADER}# plumbline-version: {version}\n{body}"


def version_of(text: str) -> str:
    return text.partition("# plumbline-version: ")[2].partition("\n")[0]


# --- the module -----------------------------------------------------------------------------------


def systemctl(*arguments: str) -> str:
    run = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if run.returncode:
        raise Refused(f"systemctl {' '.join(arguments)} failed: {run.stderr.strip()}")
    return run.stdout


def unit_state(unit: str) -> dict[str, str]:
    shown = systemctl("show", unit, "--property=ActiveState,NeedDaemonReload")
    return dict(line.partition("=")[::2] for line in shown.splitlines())


def compare(
    unit: str,
    files: list[str],
    reload_files: list[str],
    settings: Mapping[str, Any],
    check_mode: bool,
    host: Host,
) -> dict[str, Any]:
    """State `present`: brings the drop-in up to date and says what the daemon needs."""
    path, record = host.drop_in(unit), host.record(unit)
    script = inputs(files, reload_files)
    wanted = drop_in(record, script, settings)
    current = path.read_text(encoding="utf-8") if path.exists() else ""
    state = unit_state(unit)

    if not check_mode:
        if current != wanted:
            write(path, wanted)
        # A run that was interrupted may have written the file and no more.
        if current != wanted or state.get("NeedDaemonReload") == "yes":
            systemctl("daemon-reload")

    now = inputs_now(script) | {f"restart {version_of(wanted)} unit"}
    then = read_record(record)
    differs = difference(then or set(), now)
    running = state.get("ActiveState") in RUNNING
    action = "none"
    if running:
        action = next((kind for kind in ("restart", "reload") if differs[kind]), "none")
    named = sorted(differs["restart"] | differs["reload"]) if running else []
    return {
        "changed": current != wanted or action != "none",
        "action": action,
        "differs": named,
        "diff": [
            {
                "before": current,
                "after": wanted,
                "before_header": str(path),
                "after_header": str(path),
            },
            {
                "before": shown(then or set(), named),
                "after": shown(now, named),
                "before_header": f"{unit} as it was started",
                "after_header": f"{unit} as it would be started now",
            },
        ],
    }


def shown(lines: Iterable[str], paths: Iterable[str]) -> str:
    """Lines of a record for people: the start of a hash tells two files apart."""
    split = (line.split(" ", 2) for line in sorted(lines))
    return "".join(f"{path} {digest[:12]}\n" for _, digest, path in split if path in set(paths))


def recorded(unit: str, reload_files: list[str], check_mode: bool, host: Host) -> dict[str, Any]:
    """State `recorded`: what a reload took over; what only a restart does stays as it was."""
    then = read_record(host.record(unit))
    # Without a record the daemon was started before there was one: its restart is due.
    now = then and {line for line in then if not line.startswith("reload ")} | inputs_now(
        inputs([], reload_files)
    )
    changed = bool(now) and now != then
    if now and changed and not check_mode:
        text = "".join(f"{line}\n" for line in sorted(now))
        write(host.record(unit), text, Access(0o600))
    return {"changed": changed, "action": "none", "differs": []}


def absent(unit: str, check_mode: bool, host: Host) -> dict[str, Any]:
    """State `absent`: the unit is again as its package has it."""
    path = host.drop_in(unit)
    exists = path.exists()
    if not check_mode:
        host.record(unit).unlink(missing_ok=True)
        if exists:
            remove(path, host.units)
            systemctl("daemon-reload")
    return {"changed": exists, "action": "none", "differs": []}


def run(
    unit: str,
    files: list[str],
    reload_files: list[str],
    settings: Mapping[str, Any],
    state: str,
    check_mode: bool,
    host: Host,
) -> dict[str, Any]:
    """The module's result; raises Refused."""
    if not UNIT.fullmatch(unit):
        raise Refused(f"{unit!r} is no name of a systemd unit; give one such as munge.")
    unit = f"{unit.removesuffix('.service')}.service"
    match state:
        case "recorded":
            return recorded(unit, reload_files, check_mode, host)
        case "absent":
            return absent(unit, check_mode, host)
    return compare(unit, files, reload_files, settings, check_mode, host)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "unit": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "str", "default": []},
            "reload_files": {"type": "list", "elements": "str", "default": []},
            "settings": {"type": "dict", "default": {}},
            "state": {
                "type": "str",
                "choices": ["present", "recorded", "absent"],
                "default": "present",
            },
        },
        supports_check_mode=True,
    )
    try:
        result = run(**module.params, check_mode=module.check_mode, host=Host())
    except Refused as problem:
        module.fail_json(msg=f"daemon_inputs: {problem}")
    except (OSError, subprocess.CalledProcessError) as error:
        module.fail_json(msg=f"daemon_inputs: {module.params['unit']}: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
