#!/usr/bin/python
"""Brings all accounts and groups of the cluster's users to what is declared, in one go.

A task for each user would be minutes on each host: here /etc/passwd, group and shadow are read
once, what differs is planned, and the distribution's own programs (useradd and its like) do it.
Whatever cannot be done is refused first, all of it, and then nothing has changed. No file of a
user is touched: neither a home nor the owner of anything.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.cluster_users_module import Failed, answer, program, reason
from ansible.module_utils.cluster_users_plan import (
    Beyond,
    Group,
    HostAccounts,
    Step,
    User,
    host_accounts,
    keys_in,
    plan,
    refusals,
    user_of,
)
from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import write

DOCUMENTATION = r"""
module: cluster_users
short_description: Bring all accounts and groups of the cluster's users to what is declared
description:
  - Owns the accounts and groups that it is given, the files of keys in O(keys_folder) that begin
    with its header, and a record of the accounts that it made. An account of the record that is
    given no more is refused, or it would keep its access in silence.
  - Is refused, with a sentence for each reason and nothing changed, where a name or a number is
    another's on the host.
options:
  users:
    description: The accounts; the role's argument specs describe an entry.
    type: json
    required: true
  groups:
    description: The groups, each with name, gid and state.
    type: json
    required: true
  system_groups:
    description: >-
      Groups that hosts have by themselves and users may be in; one that a host lacks is passed
      over there.
    type: list
    elements: str
    default: []
  nologin:
    description: The shell of who is locked.
    type: path
    default: /usr/sbin/nologin
  keys_folder:
    description: Where sshd reads a file of keys of each user's name.
    type: path
    default: /etc/ssh/authorized_keys.d
  closed_to_directory:
    description: >-
      Whether nobody of a directory may log in here; refused where Ansible itself comes as one.
    type: bool
    default: false
  home_keys:
    description: >-
      Whether sshd reads keys in the homes of accounts that are not in O(users). Where not, those of
      the account that Ansible comes as are copied to O(keys_folder) unless it has a file there, and
      another account that would lose its keys is refused.
    type: bool
    default: true
author: The Plumbline authors
"""

RETURN = r"""
refused:
  description: Why nothing can be done, a sentence each without its end; empty on success.
  type: list
  elements: str
  returned: always
removed:
  description: Names of the accounts that were removed, or would be.
  type: list
  elements: str
  returned: success
"""

HEADER = "# Managed by Ansible; changes made here are lost. A user's own keys are in his home.\n"
# Whoever else changes accounts now, a package for instance, is done by then.
LOCK_S = 60


@dataclass(frozen=True)
class Host:
    """Where things are on this host."""

    etc: Path = Path("/etc")
    record: Path = Path("/var/lib/plumbline/cluster_users.json")
    keys: Path = Path("/etc/ssh/authorized_keys.d")


# --- what the host has ---------------------------------------------------------------------------


def read(host: Host) -> HostAccounts:
    def text(name: str) -> str:
        return (host.etc / name).read_text(encoding="utf-8", errors="surrogateescape")

    recorded = {}
    if host.record.exists():
        recorded = json.loads(host.record.read_text(encoding="utf-8"))["users"]
    return host_accounts(text("passwd"), text("shadow"), text("group"), recorded)


# --- keys ----------------------------------------------------------------------------------------


def key_files(users: Iterable[User]) -> dict[str, str]:
    """By name the text of the file of keys of everybody who may log in with one."""
    return {
        user.name: HEADER + "".join(f"{key}\n" for key in dict.fromkeys(user.keys))
        for user in users
        if user.state == "present" and user.keys
    }


def file_changes(folder: Path, wanted: Mapping[str, str]) -> Iterator[tuple[Path, str, str]]:
    """(path, text before, text after) of each file that differs; "" is no file.

    A file that does not begin with our header, and is of none of our users, is somebody else's.
    """
    there = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
    for name in sorted({*there, *wanted}):
        path = folder / name
        before = ""
        if name in there:
            before = path.read_text(encoding="utf-8", errors="surrogateescape")
        if name not in wanted and not before.startswith(HEADER):
            continue
        after = wanted.get(name, "")
        if before != after or not is_roots(path):
            yield path, before, after


def kept_keys(users: Iterable[User], host: Host, beyond: Beyond) -> Iterator[tuple[Path, str, str]]:
    """The file of keys of the account that Ansible comes as, where its home no longer counts.

    Made once, and the site's from then on.
    """
    name = beyond.caller
    if beyond.home_keys or not name or name in {user.name for user in users}:
        return
    if (host.keys / name).exists():
        return
    if own := beyond.keys_in_home(name):
        yield host.keys / name, "", "".join(f"{key}\n" for key in sorted(own))


def is_roots(path: Path) -> bool:
    status = path.lstat()
    mine = (os.geteuid(), os.getegid())
    return (status.st_uid, status.st_gid) == mine and status.st_mode == 0o100644


# --- the module ----------------------------------------------------------------------------------

Execute = Callable[[Sequence[str]], None]


def execute(command: Sequence[str]) -> None:
    """Runs one of the distribution's programs, with patience for whoever else has the lock."""
    deadline = time.monotonic() + LOCK_S
    while (done := program(command)).returncode:
        why = reason(done)
        if command[0] == "groupdel" and "does not exist" in why:
            return
        if "cannot lock" not in why or time.monotonic() > deadline:
            raise Failed(f"{command[0]} {command[-1]} failed: {why}")
        time.sleep(1)


def remember(host: Host, users: Mapping[str, int]) -> None:
    document = {"users": dict(sorted(users.items()))}
    write(host.record, json.dumps(document, indent=1) + "\n")


def run(
    users: Sequence[User],
    groups: Sequence[Group],
    system_groups: Collection[str],
    nologin: str,
    host: Host,
    beyond: Beyond,
    check_mode: bool,
    execute: Execute = execute,
) -> dict[str, Any]:
    """The module's result. Raises Refused, with nothing changed, and Failed."""
    current = read(host)
    if refused := refusals(users, groups, current, beyond):
        raise Refused(*refused)
    steps = plan(users, groups, system_groups, current, nologin)
    files = [*file_changes(host.keys, key_files(users)), *kept_keys(users, host, beyond)]
    ours = {user.name: user.uid for user in users if user.state != "absent"}
    if not check_mode:
        # Before an account is made, and until it is gone: an interrupted run forgets nobody.
        meanwhile = {**{n: u for n, u in current.recorded.items() if n in current.accounts}, **ours}
        if meanwhile != current.recorded:
            remember(host, meanwhile)
        # Who is locked or goes loses his keys first.
        for path, _, after in files:
            if not after:
                path.unlink()
        for step in steps:
            execute(step.command)
        for path, _, after in files:
            if after:
                write(path, after)
        if ours != meanwhile:
            remember(host, ours)
    return {
        "changed": bool(steps or files),
        "refused": [],
        "removed": [step.command[-1] for step in steps if step.command[0] == "userdel"],
        "warnings": missing_shells(users),
        "diff": [*_step_difference(steps), *map(_file_difference, files)],
    }


def missing_shells(users: Iterable[User]) -> list[str]:
    """Sentences for shells that no login would find; a later role may bring them."""
    named: dict[str, list[str]] = {}
    for user in users:
        if user.state == "present":
            named.setdefault(user.shell, []).append(user.name)
    return [
        f"The shell {shell} of {', '.join([*names[:3], *['…'][: len(names) - 3]])} is not there."
        for shell, names in named.items()
        if not os.access(shell, os.X_OK)
    ]


def _step_difference(steps: Sequence[Step]) -> Iterator[dict[str, str]]:
    if steps:
        yield {
            "before": "".join(f"{step.before}\n" for step in steps if step.before),
            "after": "".join(f"{step.after}\n" for step in steps if step.after),
            "before_header": "accounts",
            "after_header": "accounts",
        }


def _file_difference(change: tuple[Path, str, str]) -> dict[str, str]:
    path, before, after = change
    header = {"before_header": str(path), "after_header": str(path)}
    return {"before": before, "after": after, **header}


def processes(uids: Collection[int]) -> dict[int, list[int]]:
    """Processes by the uid of who runs them, of these users alone."""
    pids: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                uid = path.stat().st_uid
            except OSError:  # it has ended
                continue
            if uid in uids:
                pids.setdefault(uid, []).append(int(path.name))
    return pids


def _looked_up(question: Callable[[], Any]) -> Any:
    """An answer of NSS; None where nobody has such a name or number."""
    try:
        return question()
    except KeyError:
        return None


def keys_in_home(name: str) -> frozenset[str] | None:
    """What sshd would take from a user's home; None where root may not look."""
    account = _looked_up(lambda: pwd.getpwnam(name))
    keys: frozenset[str] = frozenset()
    for file in ("authorized_keys", "authorized_keys2") if account else ():
        try:
            text = Path(str(account.pw_dir), ".ssh", file).read_text("utf-8", "surrogateescape")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return None
        keys |= keys_in(text)
    return keys


def keys_of_root(folder: Path, name: str) -> frozenset[str]:
    keys: frozenset[str] = frozenset()
    with suppress(FileNotFoundError):
        keys = keys_in((folder / name).read_text("utf-8", "surrogateescape"))
    return keys


HERE = Beyond(
    uid_of=lambda name: _looked_up(lambda: pwd.getpwnam(name).pw_uid),
    user_with=lambda uid: _looked_up(lambda: pwd.getpwuid(uid).pw_name),
    gid_of=lambda name: _looked_up(lambda: grp.getgrnam(name).gr_gid),
    group_with=lambda gid: _looked_up(lambda: grp.getgrgid(gid).gr_name),
    processes=processes,
    caller=os.environ.get("SUDO_USER", ""),
    keys_in_home=keys_in_home,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "users": {"type": "json", "required": True},
            "groups": {"type": "json", "required": True},
            "system_groups": {"type": "list", "elements": "str", "default": []},
            "nologin": {"type": "path", "default": "/usr/sbin/nologin"},
            "keys_folder": {
                "type": "path",
                "default": "/etc/ssh/authorized_keys.d",
                "no_log": False,
            },
            "closed_to_directory": {"type": "bool", "default": False},
            "home_keys": {"type": "bool", "default": True, "no_log": False},
        },
        supports_check_mode=True,
        no_log=True,  # in the host's log, where a thousand users would be half a megabyte each time
    )
    options = module.params
    host = Host(keys=Path(options["keys_folder"]))
    beyond = replace(
        HERE,
        closed_to_directory=options["closed_to_directory"],
        home_keys=options["home_keys"],
        keys_of_root=lambda name: keys_of_root(host.keys, name),
    )
    answer(
        module,
        lambda: run(
            [user_of(entry) for entry in json.loads(options["users"])],
            [Group(**entry) for entry in json.loads(options["groups"])],
            options["system_groups"],
            options["nologin"],
            host,
            beyond,
            module.check_mode,
        ),
    )


if __name__ == "__main__":
    main()
