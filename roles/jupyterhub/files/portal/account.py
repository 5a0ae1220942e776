"""Who may use the portal: accounts of people, and none that may become root."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Sequence
from dataclasses import dataclass

# Debian's accounts of people begin here (UID_MIN of login.defs); `nobody` is none of them.
FIRST_UID = 1000
NOBODY = 65534


@dataclass(frozen=True)
class Account:
    """A person's account on this host."""

    name: str
    uid: int
    home: str
    shell: str
    groups: frozenset[str]


@dataclass(frozen=True)
class Rule:
    """`groups`: who may come, everybody if it is empty. `refused`: whose members may not, and
    `refused_users`: who may not.
    """

    groups: Sequence[str] = ()
    refused: Sequence[str] = ()
    refused_users: Sequence[str] = ()

    def problem(self, account: Account) -> str:
        """Why this account may not use the portal, as a sentence; empty if it may."""
        if account.uid < FIRST_UID or account.uid == NOBODY:
            return f"{account.name} is an account of the system."
        if account.name in self.refused_users:
            return f"{account.name} is an account of operators, who do not use the portal."
        if refused := sorted(account.groups & set(self.refused)):
            return (
                f"{account.name} is in the group {refused[0]}, whose members do not use the portal."
            )
        if self.groups and not account.groups & set(self.groups):
            return f"{account.name} is in none of the groups {', '.join(self.groups)}."
        return ""


def of_name(name: str) -> Account:
    """The account of this name. Raises KeyError where there is none."""
    entry = pwd.getpwnam(name)
    groups = frozenset(_group_name(gid) for gid in os.getgrouplist(entry.pw_name, entry.pw_gid))
    return Account(entry.pw_name, entry.pw_uid, entry.pw_dir, entry.pw_shell, groups)


def of_uid(uid: int) -> Account:
    """The account with this number. Raises KeyError where there is none."""
    return of_name(pwd.getpwuid(uid).pw_name)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
