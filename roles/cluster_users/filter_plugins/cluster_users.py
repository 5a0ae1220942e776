"""The role's filters; what they do is in plugin_utils.

What hosts are told is text: of a thousand users Ansible would look at each value again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roles.cluster_users.plugin_utils import accounts, sssd

Entries = Sequence[accounts.Entry]


def site(settings: Mapping[str, Any]) -> accounts.Site:
    return accounts.Site(
        system_groups=[str(name) for name in settings["system_groups"]],
        home_root=str(settings["home_root"]),
        shell=str(settings["shell"]),
        quota=settings["quota"],
        logins=settings["logins"],
        home_keys=settings["home_keys"],
    )


def problems(users: Entries, groups: Entries, settings: Mapping[str, Any]) -> list[str]:
    return accounts.problems(users, groups, site(settings))


def users_for_hosts(users: Entries, groups: Entries, settings: Mapping[str, Any]) -> str:
    return json.dumps(accounts.users_for_hosts(users, groups, site(settings)))


def groups_for_hosts(groups: Entries) -> str:
    return json.dumps(accounts.groups_for_hosts(groups))


def homes_for_host(users: Entries, settings: Mapping[str, Any]) -> str:
    return json.dumps(accounts.homes_for_host(users, site(settings)))


def without_home_keys(users: Entries, settings: Mapping[str, Any]) -> list[str]:
    return accounts.without_home_keys(users, site(settings))


def shut_out(users: Entries, settings: Mapping[str, Any]) -> list[str]:
    return accounts.shut_out(users, site(settings))


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "cluster_users_problems": problems,
            "cluster_users_for_hosts": users_for_hosts,
            "cluster_users_groups_for_hosts": groups_for_hosts,
            "cluster_users_homes_for_host": homes_for_host,
            "cluster_users_shut_out": shut_out,
            "cluster_users_without_home_keys": without_home_keys,
            "cluster_users_sssd_problems": sssd.problems,
            "cluster_users_sssd_conf": sssd.sssd_conf,
        }
