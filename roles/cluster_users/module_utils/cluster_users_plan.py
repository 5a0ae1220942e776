"""What accounts and groups a host should have, what it has, what cannot be, and what is due.

Pure functions, for the module cluster_users: nothing here reads or changes a host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

# The day on which an account ends that we lock; any other end is somebody else's and stays.
LOCKED_DAY, LOCKED_DATE = "1", "1970-01-02"
# No password that fits, and yet not locked: sshd without PAM refuses keys of who has "!".
NO_PASSWORD = "*"
FIRST_OF_USERS = 1000


# --- what is declared, and what there is ---------------------------------------------------------


@dataclass(frozen=True)
class User:
    """One that is declared."""

    name: str
    uid: int
    gid: int
    group: str
    home: str
    shell: str
    groups: tuple[str, ...] = ()
    comment: str | None = None
    keys: tuple[str, ...] = ()
    state: str = "present"
    enters: bool = True  # whether he may log in to this host at all
    home_keys: bool = True  # whether keys in his home count on this host


@dataclass(frozen=True)
class Group:
    """One that is declared, or that a user has for himself."""

    name: str
    gid: int
    state: str = "present"


@dataclass(frozen=True)
class Account:
    """One that the host has."""

    uid: int
    gid: int
    comment: str
    home: str
    shell: str
    password: str = NO_PASSWORD
    ends: str = ""
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True)
class HostAccounts:
    """What the host has: local accounts and groups, and those of ours from earlier runs."""

    accounts: Mapping[str, Account]
    groups: Mapping[str, int]
    recorded: Mapping[str, int] = field(default_factory=dict)


def user_of(entry: Mapping[str, Any]) -> User:
    return User(
        name=entry["name"],
        uid=entry["uid"],
        gid=entry["gid"],
        group=entry["group"],
        home=entry["home"],
        shell=entry["shell"],
        groups=tuple(entry["groups"]),
        comment=entry["comment"],
        keys=tuple(entry["ssh_keys"]),
        state=entry["state"],
        enters=entry["enters"],
        home_keys=entry["home_keys"],
    )


def fields_of(text: str, number: int) -> Iterator[list[str]]:
    """The fields of each line of such a file; lines of NIS and broken ones are passed over."""
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) >= number and fields[0] and fields[0][0] not in "+-#":
            yield fields


def host_accounts(
    passwd: str, shadow: str, group: str, recorded: Mapping[str, int]
) -> HostAccounts:
    """What the texts of the files say."""
    members: dict[str, set[str]] = {}
    groups: dict[str, int] = {}
    for name, _, gid, names, *_ in fields_of(group, 4):
        groups[name] = int(gid)
        for member in filter(None, names.split(",")):
            members.setdefault(member, set()).add(name)
    secrets = {fields[0]: fields for fields in fields_of(shadow, 8)}
    accounts = {}
    for name, _, uid, gid, comment, home, shell, *_ in fields_of(passwd, 7):
        secret = secrets.get(name)
        accounts[name] = Account(
            uid=int(uid),
            gid=int(gid),
            comment=comment,
            home=home,
            shell=shell,
            password=secret[1] if secret else NO_PASSWORD,
            ends=secret[7] if secret else "",
            groups=frozenset(members.get(name, ())),
        )
    return HostAccounts(accounts, groups, recorded)


# --- what cannot be ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beyond:
    """What the files do not tell: who has a name or a number by another source, such as LDAP.

    Each function answers with the other's number or name, or None.
    """

    uid_of: Callable[[str], int | None] = lambda name: None
    user_with: Callable[[int], str | None] = lambda uid: None
    gid_of: Callable[[str], int | None] = lambda name: None
    group_with: Callable[[int], str | None] = lambda gid: None
    # Processes of a user, by uid.
    processes: Callable[[Collection[int]], Mapping[int, list[int]]] = lambda uids: {}
    caller: str = ""  # by whom Ansible came to be root here
    closed_to_directory: bool = False  # whether nobody of a directory may log in here
    home_keys: bool = True  # whether keys in homes count of accounts that are not on the list
    # The keys in a user's home, and those that root keeps for him; None of what cannot be read.
    keys_in_home: Callable[[str], frozenset[str] | None] = lambda name: frozenset()
    keys_of_root: Callable[[str], frozenset[str]] = lambda name: frozenset()


def wanted_groups(users: Iterable[User], groups: Iterable[Group]) -> dict[str, Group]:
    """The groups that are declared, and one of his own for each other user who is not absent."""
    wanted = {group.name: group for group in groups}
    for user in users:
        if user.state != "absent":
            wanted.setdefault(user.group, Group(user.group, user.gid))
    return wanted


def refusals(
    users: Sequence[User], groups: Sequence[Group], current: HostAccounts, beyond: Beyond
) -> list[str]:
    """Sentences without their end."""
    return [
        *_group_refusals(users, groups, current, beyond),
        *_user_refusals(users, current, beyond),
        *_forgotten(users, current),
        *_locked_out(users, current, beyond),
        *_keyless(users, current, beyond),
        *_busy(users, current, beyond),
    ]


def _group_refusals(
    users: Sequence[User], groups: Sequence[Group], current: HostAccounts, beyond: Beyond
) -> Iterator[str]:
    named = {gid: name for name, gid in current.groups.items()}
    for group in wanted_groups(users, groups).values():
        if group.name in current.groups:
            if current.groups[group.name] != group.gid:
                yield (
                    f"the group {group.name} has gid {current.groups[group.name]} here and "
                    f"{group.gid} in the list; make them one number: groupmod here, and the "
                    "group of its files, or the list"
                )
            elif group.state == "absent":
                names = [
                    name for name, account in current.accounts.items() if account.gid == group.gid
                ]
                gone = {user.name for user in users if user.state == "absent"}
                if left := sorted(set(names) - gone):
                    yield (
                        f"the group {group.name} cannot go: it is the primary group of "
                        f"{', '.join(left)}"
                    )
        elif group.state != "absent":
            other = named.get(group.gid) or beyond.group_with(group.gid)
            if other is not None:
                yield f"gid {group.gid} of {group.name} is that of the group {other} here already"
            elif (gid := beyond.gid_of(group.name)) is not None:
                yield f"the group {group.name} is there already with gid {gid}, not from /etc/group"


def _user_refusals(users: Sequence[User], current: HostAccounts, beyond: Beyond) -> Iterator[str]:
    named = {account.uid: name for name, account in current.accounts.items()}
    for user in users:
        account = current.accounts.get(user.name)
        if account is None:
            if user.state == "absent":
                continue
            other = named.get(user.uid) or beyond.user_with(user.uid)
            if other is not None:
                yield f"uid {user.uid} of {user.name} is that of {other} here already"
            elif (uid := beyond.uid_of(user.name)) is not None:
                yield f"{user.name} is there already with uid {uid}, not from /etc/passwd"
        elif account.uid != user.uid:
            yield (
                f"{user.name} has uid {account.uid} here and {user.uid} in the list; make them one "
                "number: usermod here, and the owner of the files, or the list"
            )
        elif account.gid != user.gid and user.state != "absent":
            yield (
                f"{user.name} has gid {account.gid} here and {user.gid} in the list; make them one "
                "number: usermod here, and the group of the files, or the list"
            )


def _forgotten(users: Sequence[User], current: HostAccounts) -> Iterator[str]:
    listed = {user.name for user in users}
    left = sorted(
        name
        for name, uid in current.recorded.items()
        if name not in listed and name in current.accounts and current.accounts[name].uid == uid
    )
    if left:
        yield (
            f"an earlier run made {', '.join(left)}, and the list has no such name; set state: "
            "absent or locked there, or the account keeps what it has"
        )


def _locked_out(users: Sequence[User], current: HostAccounts, beyond: Beyond) -> Iterator[str]:
    caller = beyond.caller
    for user in users:
        if user.name == caller and user.state != "present":
            yield f"{caller} is {user.state} in the list, and Ansible comes here as {caller}"
        elif user.name == caller and not user.enters:
            yield (
                f"Ansible comes here as {caller}, and users of the list may not log in here; set "
                "everywhere: true there, or cluster_users_logins: true for this host"
            )
    if beyond.closed_to_directory and caller and caller not in current.accounts:
        yield (
            f"Ansible comes here as {caller} of the directory, whose users may not log in here; "
            "set cluster_users_logins: true for this host, or come as a local user"
        )


# A key as authorized_keys has it, after its options: the length of the type comes first, so AAAA.
_KEY = re.compile(r"(?:^|\s)((?:ssh|ecdsa|sk)-[\w@.-]+)\s+(AAAA[A-Za-z0-9+/]+=*)")


def keys_in(text: str) -> frozenset[str]:
    """The keys of such a file, as `TYPE BLOB`."""
    found = (_KEY.search(line) for line in text.splitlines() if not line.lstrip().startswith("#"))
    return frozenset(f"{match[1]} {match[2]}" for match in found if match)


def _keyless(users: Sequence[User], current: HostAccounts, beyond: Beyond) -> Iterator[str]:
    """Who comes to this host with a key in his home, which no longer counts."""
    for user in users:
        if user.home_keys or not user.enters or user.state != "present":
            continue
        if user.name not in current.accounts:
            continue
        own, listed = beyond.keys_in_home(user.name), keys_in("\n".join(user.keys))
        # One of the list is enough for who is not Ansible: by which key that comes nobody knows.
        left = own is None or own - listed
        if left and (user.name == beyond.caller or not listed):
            yield (
                f"{user.name} may come here with a key of ~/.ssh/authorized_keys that is not in "
                "ssh_keys, and homes do not count here; add it to ssh_keys, or set "
                "cluster_users_home_keys: all"
            )
    if beyond.home_keys:
        return
    listed_names = {user.name for user in users}
    names = [*current.accounts, *filter(None, [beyond.caller])]
    left_out = []
    for name in dict.fromkeys(names):
        shell = current.accounts[name].shell if name in current.accounts else ""
        if name in listed_names or shell.rpartition("/")[2] in ("nologin", "false"):
            continue
        own, kept = beyond.keys_in_home(name), beyond.keys_of_root(name)
        # Those of Ansible's account are kept before sshd is told.
        if own is None or (own - kept and (kept or name != beyond.caller)):
            left_out.append(name)
    if left_out:
        yield (
            f"cluster_users_home_keys is none, and {', '.join(left_out)} would lose keys of "
            "~/.ssh/authorized_keys; copy them here to /etc/ssh/authorized_keys.d/NAME (root's, "
            "mode 0644), or remove them from the home"
        )


def _busy(users: Sequence[User], current: HostAccounts, beyond: Beyond) -> Iterator[str]:
    leaving = {
        user.uid: user.name
        for user in users
        if user.state == "absent" and user.name in current.accounts
    }
    for uid, pids in sorted(beyond.processes(leaving).items() if leaving else ()):
        first = ", ".join(map(str, pids[:3])) + (", …" if len(pids) > 3 else "")
        yield (
            f"{leaving[uid]} is absent in the list and has processes here ({first}); set state: "
            "locked until they have ended, or end them"
        )


# --- what to do ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A command, and what it changes in words: "" is nothing."""

    command: tuple[str, ...]
    before: str = ""
    after: str = ""


def plan(
    users: Sequence[User],
    groups: Sequence[Group],
    system_groups: Collection[str],
    current: HostAccounts,
    nologin: str,
) -> list[Step]:
    """The commands that are due, in their order; after each of them the rest is still right."""
    steps: list[Step] = []
    for group in wanted_groups(users, groups).values():
        if group.state != "absent" and group.name not in current.groups:
            added = ("groupadd", "--gid", str(group.gid), group.name)
            steps.append(Step(added, after=f"group {group.name}: gid {group.gid}"))
    here = {
        name for name in system_groups if current.groups.get(name, FIRST_OF_USERS) < FIRST_OF_USERS
    }
    here |= {group.name for group in groups if group.state != "absent"}
    for user in users:
        account = current.accounts.get(user.name)
        wanted = frozenset(user.groups) & here - {user.group}
        if user.state == "absent":
            if account:
                steps += _removal(user, account, current)
        elif account:
            steps += _changes(user, account, wanted, nologin)
        else:
            steps.append(_addition(user, wanted, nologin))
    for group in groups:
        if group.state == "absent" and group.name in current.groups:
            command = ("groupdel", group.name)
            steps.append(Step(command, before=f"group {group.name}: gid {group.gid}"))
    return steps


def _addition(user: User, groups: Collection[str], nologin: str) -> Step:
    locked = user.state == "locked"
    account = Account(
        uid=user.uid,
        gid=user.gid,
        comment=user.comment or "",
        home=user.home,
        shell=nologin if locked else user.shell,
        password=f"!{NO_PASSWORD}" if locked else NO_PASSWORD,
        ends=LOCKED_DAY if locked else "",
        groups=frozenset(groups),
    )
    command = [
        *("useradd", "--uid", str(user.uid), "--gid", str(user.gid), "--no-user-group"),
        *("--groups", ",".join(sorted(groups)), "--comment", account.comment),
        *("--home-dir", user.home, "--no-create-home", "--shell", account.shell),
        *("--password", account.password, "--no-log-init"),
        # Ranges of further numbers are given in the order in which accounts are made, so they would
        # be another user's on the next host.
        *("--key", "SUB_UID_COUNT=0", "--key", "SUB_GID_COUNT=0"),
        *(("--expiredate", LOCKED_DATE) if locked else ()),
        user.name,
    ]
    return Step(tuple(command), after=described(user.name, account))


def _changes(user: User, account: Account, groups: frozenset[str], nologin: str) -> Iterator[Step]:
    """One usermod for all that differs. What somebody else locked or let end stays so."""
    options: list[str] = []
    wanted: dict[str, Any] = {}
    shell = nologin if user.state == "locked" else user.shell
    if user.comment is not None and user.comment != account.comment:
        options += ["--comment", user.comment]
        wanted["comment"] = user.comment
    if user.home != account.home:
        options += ["--home", user.home]
        wanted["home"] = user.home
    if shell != account.shell:
        options += ["--shell", shell]
        wanted["shell"] = shell
    if groups != account.groups - {user.group}:
        options += ["--groups", ",".join(sorted(groups))]
        wanted["groups"] = groups
    if user.state == "locked":
        if account.ends != LOCKED_DAY:
            options += ["--expiredate", LOCKED_DATE]
            wanted["ends"] = LOCKED_DAY
        if not account.password.startswith("!"):
            options += ["--lock"]
            wanted["password"] = f"!{account.password}"
    else:
        bare = account.password.lstrip("!")
        ours = account.ends == LOCKED_DAY
        if ours:
            options += ["--expiredate", ""]
            wanted["ends"] = ""
        if not account.password or (ours and not bare):
            options += ["--password", NO_PASSWORD]
            wanted["password"] = NO_PASSWORD
        elif ours and bare != account.password:
            options += ["--unlock"]
            wanted["password"] = bare
    if options:
        after = replace(account, **wanted)
        yield Step(
            ("usermod", *options, user.name),
            described(user.name, account),
            described(user.name, after),
        )


def _removal(user: User, account: Account, current: HostAccounts) -> Iterator[Step]:
    """The account, and then the group that was his alone; his files stay."""
    yield Step(("userdel", user.name), before=described(user.name, account))
    others = [name for name, other in current.accounts.items() if other.gid == user.gid]
    if current.groups.get(user.name) == user.gid and user.group == user.name and len(others) == 1:
        # userdel has done it already where login.defs says so.
        yield Step(("groupdel", user.name), before=f"group {user.name}: gid {user.gid}")


def described(name: str, account: Account) -> str:
    """An account on one line, for people; of its password only whether it counts."""
    if account.ends == LOCKED_DAY:
        state = "locked"
    else:
        state = "password locked" if account.password.startswith("!") else "open"
    return (
        f"{name}: uid {account.uid}, gid {account.gid}, "
        f"groups {','.join(sorted(account.groups)) or '-'}, {account.comment!r}, "
        f"home {account.home}, shell {account.shell}, {state}"
    )
