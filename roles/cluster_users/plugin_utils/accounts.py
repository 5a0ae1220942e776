"""What is wrong with lists of users and groups, and what hosts are told of them.

Pure functions: what a host has already is judged there, by the module of the role's name.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from roles.cluster_users.plugin_utils.public_keys import key_problem
from roles.cluster_users.plugin_utils.quota import quota_problems, quota_values

Entry = Mapping[str, Any]

# What useradd takes everywhere: longer names and other letters break tools that were never told.
NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
NAMES_ARE = "use at most 32 lower case letters, digits, - and _, and begin with a letter or _"

# Accounts that packages of the distribution, of NVIDIA or of ours make for their services.
SYSTEM = frozenset(
    (
        *("_apt", "_chrony", "_rpc", "backup", "bin", "daemon", "games", "grafana", "irc"),
        *("list", "lp", "mail", "man", "messagebus", "munge", "mysql", "news", "nobody"),
        *("nvidia-persistenced", "ntp", "plumbline-validation", "polkitd", "postfix"),
        *("prometheus", "proxy", "slurm"),
        *("slurmrestd", "sshd", "sssd", "statd", "sync", "sys", "syslog", "systemd-network"),
        *("systemd-resolve", "systemd-timesync", "tcpdump", "uucp", "uuidd", "www-data"),
    )
)

# Below are the distribution's accounts; between, systemd's DynamicUser, nobody and the number that
# means none in 16 bits (systemd's UIDS-GIDS); above, numbers that some programs read as negative.
FIRST, LAST = 1000, 2**31 - 1
TAKEN = range(61184, 65536)
NUMBERS_ARE = f"use one from {FIRST} to {TAKEN.start - 1}, or from {TAKEN.stop} to {LAST}"

# Below FIRST, and the same on every distribution.
USERS_GROUP = ("users", 100)

STATES = ("present", "locked", "absent")


@dataclass(frozen=True)
class Site:
    """What holds for all users."""

    system_groups: Collection[str]
    home_root: str
    shell: str
    quota: Mapping[str, Any]
    logins: bool = True  # whether users may log in to the host that is told of them
    home_keys: str = "unlisted"  # whose keys in homes count where they may not


def problems(users: Sequence[Entry], groups: Sequence[Entry], site: Site) -> list[str]:
    """A clause for each thing that is wrong, whatever hosts have."""
    return [
        *_group_problems(groups),
        *_twice(users, "uid"),
        *_primary_problems(users, groups),
        *_home_problems(users, site),
        *(
            f"{_name(user)}: {problem}"
            for user in users
            for problem in _user_problems(user, groups, site)
        ),
        *(f"cluster_users_quota: {problem}" for problem in quota_problems(site.quota)),
    ]


def _name(entry: Entry) -> str:
    return str(entry["name"])


def _together(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _twice(entries: Sequence[Entry], number: str) -> Iterator[str]:
    """Names and numbers that are listed twice."""
    for name, times in Counter(map(_name, entries)).items():
        if times > 1:
            yield f"{name} is listed {times} times"
    owners: dict[int, list[str]] = defaultdict(list)
    for entry in entries:
        if _name(entry) not in owners[int(entry[number])]:
            owners[int(entry[number])].append(_name(entry))
    for value, names in owners.items():
        if len(names) > 1:
            gone = any(entry.get("state") == "absent" for entry in entries if _name(entry) in names)
            why = ", for the files of who is absent keep it" if gone else ""
            yield f"{_together(names)} have one {number}, {value}; give each its own{why}"


def _number_problem(kind: str, value: int) -> Iterator[str]:
    if not FIRST <= value <= LAST or value in TAKEN:
        yield f"{kind} {value} is the system's; {NUMBERS_ARE}"


def _group_problems(groups: Sequence[Entry]) -> Iterator[str]:
    yield from _twice(groups, "gid")
    for group in groups:
        if not NAME.fullmatch(_name(group)):
            yield f"{_name(group)!r} cannot be a group's name; {NAMES_ARE}"
        if (_name(group), int(group["gid"])) != USERS_GROUP:
            for problem in _number_problem("gid", int(group["gid"])):
                yield f"group {_name(group)}: {problem}"


def _primary_problems(users: Sequence[Entry], groups: Sequence[Entry]) -> Iterator[str]:
    """Primary groups: a declared one by its gid, or one of the user's name that is his alone."""
    declared = {int(group["gid"]): group for group in groups}
    names = {_name(group): int(group["gid"]) for group in groups}
    alone: dict[int, list[str]] = defaultdict(list)
    for user in users:
        gid = int(user["gid"])
        if gid not in declared:
            alone[gid].append(_name(user))
            if _name(user) in names:
                yield (
                    f"{_name(user)}: the gid is {gid}, and the group {_name(user)} has "
                    f"{names[_name(user)]} in cluster_users_groups; make them one number"
                )
        elif declared[gid].get("state") == "absent" and user.get("state") != "absent":
            yield (
                f"{_name(user)}: the primary group {_name(declared[gid])} is absent; give another "
                "gid, or keep the group"
            )
    for gid, owners in alone.items():
        if len(set(owners)) > 1:
            yield (
                f"{_together(owners)} have one gid, {gid}, that is no group's in "
                "cluster_users_groups; declare the group there, or give each a gid of its own"
            )


def _home_problems(users: Sequence[Entry], site: Site) -> Iterator[str]:
    if not _is_place(site.home_root):
        yield (
            f"cluster_users_home_root is {site.home_root!r}; give the absolute path of the folder "
            "that homes are in, such as /home"
        )
    owners: dict[str, list[str]] = defaultdict(list)
    for user in users:
        if user.get("state") != "absent":
            owners[_home(user, site)].append(_name(user))
    for home, names in owners.items():
        if len(set(names)) > 1:
            yield f"{_together(names)} have one home, {home}; give each its own"


def _home(user: Entry, site: Site) -> str:
    return str(user.get("home") or f"{site.home_root}/{_name(user)}")


def _is_place(path: str) -> bool:
    """Whether it is an absolute path, written plainly, that /etc/passwd can hold."""
    return (
        path.startswith("/")
        and path != "/"
        and str(PurePosixPath(path)) == path
        and ".." not in PurePosixPath(path).parts
        and not re.search(r"[:\s]|[^\x20-\x7e]", path)
    )


def _user_problems(user: Entry, groups: Sequence[Entry], site: Site) -> Iterator[str]:
    name = _name(user)
    if name == "root":
        yield "root is no user of the cluster; take it off the list"
    if name in SYSTEM:
        yield f"{name} is the account of a service; give the user another name"
    elif not NAME.fullmatch(name):
        yield f"that cannot be an account's name; {NAMES_ARE}"
    yield from _number_problem("uid", int(user["uid"]))
    if (int(user["gid"])) != USERS_GROUP[1]:
        yield from _number_problem("gid", int(user["gid"]))
    elif not any((_name(group), int(group["gid"])) == USERS_GROUP for group in groups):
        yield "gid 100 is the group users; declare it in cluster_users_groups"
    yield from _membership_problems(user, groups, site)
    if re.search(r"[:\x00-\x1f\x7f]", str(user.get("comment") or "")):
        yield "the comment has a colon or a line's end, which /etc/passwd cannot hold"
    for what, path in (("shell", user.get("shell") or site.shell), ("home", _home(user, site))):
        if not _is_place(str(path)):
            yield f"the {what} {path!r} is no absolute path of plain letters"
    if _home(user, site) == site.home_root:
        yield f"the home is {site.home_root}, which all homes are in"
    keys = user.get("ssh_keys") or []
    for number, key in enumerate(keys, start=1):
        if problem := key_problem(str(key)):
            yield f"key {number} of {len(keys)} {problem}"
    if user.get("quota"):
        yield from quota_problems({**site.quota, **user["quota"]})


def _membership_problems(user: Entry, groups: Sequence[Entry], site: Site) -> Iterator[str]:
    declared = {_name(group): group for group in groups}
    for group in map(str, user.get("groups") or []):
        if group in site.system_groups and group not in declared:
            continue
        if group not in declared:
            near = difflib.get_close_matches(group, [*declared, *site.system_groups], n=1)
            yield f"the group {group} is not declared; " + (
                f"did you mean {near[0]}?"
                if near
                else "declare it in cluster_users_groups, or in cluster_users_system_groups if "
                "hosts have it by themselves"
            )
        elif declared[group].get("state") == "absent" and user.get("state") != "absent":
            yield f"the group {group} is absent; take it off the user's groups"


# --- what hosts are told -------------------------------------------------------------------------


def users_for_hosts(
    users: Sequence[Entry], groups: Sequence[Entry], site: Site
) -> list[dict[str, Any]]:
    """The users as the modules take them, with everything that the list leaves out."""
    primary = {int(group["gid"]): _name(group) for group in groups}
    return [
        {
            "name": _name(user),
            "uid": int(user["uid"]),
            "gid": int(user["gid"]),
            "group": primary.get(int(user["gid"]), _name(user)),
            "groups": sorted(set(map(str, user.get("groups") or []))),
            "comment": user.get("comment"),
            "shell": str(user.get("shell") or site.shell),
            "home": _home(user, site),
            "ssh_keys": [str(key).strip() for key in user.get("ssh_keys") or []]
            if _enters(user, site)
            else [],
            "state": str(user.get("state") or "present"),
            "enters": _enters(user, site),
            "home_keys": site.logins or site.home_keys == "all",
        }
        for user in users
    ]


def _enters(user: Entry, site: Site) -> bool:
    return site.logins or boolean(user.get("everywhere") or False)


def shut_out(users: Sequence[Entry], site: Site) -> list[str]:
    """Whom sshd of the host lets in by nothing, whatever keys they have in their homes."""
    return [
        _name(user) for user in users if not _enters(user, site) and user.get("state") != "absent"
    ]


def without_home_keys(users: Sequence[Entry], site: Site) -> list[str]:
    """Who comes to the host with keys of the list alone: a home may be where others are root."""
    if site.logins or site.home_keys == "all":
        return []
    return [_name(user) for user in users if _enters(user, site) and user.get("state") != "absent"]


def groups_for_hosts(groups: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {
            "name": _name(group),
            "gid": int(group["gid"]),
            "state": str(group.get("state") or "present"),
        }
        for group in groups
    ]


def homes_for_host(users: Sequence[Entry], site: Site) -> list[dict[str, Any]]:
    """What the host that has the storage is told; a user's own limits replace everybody's."""
    return [
        {
            "name": _name(user),
            "uid": int(user["uid"]),
            "gid": int(user["gid"]),
            "home": _home(user, site),
            "state": str(user.get("state") or "present"),
            "quota": quota_values({**site.quota, **(user.get("quota") or {})}),
        }
        for user in users
    ]
