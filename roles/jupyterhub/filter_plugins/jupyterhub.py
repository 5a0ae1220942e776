"""The role's filters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_OIDC = ("client_id", "authorize_url", "token_url", "userdata_url")


def problems(settings: Mapping[str, Any]) -> list[str]:
    """A sentence for each setting that cannot work."""
    return list(_problems(settings))


def _problems(settings: Mapping[str, Any]) -> Iterator[str]:
    if not _NAME.fullmatch(str(settings["name"])):
        yield f"jupyterhub_name is {settings['name']!r}; set it to the portal's DNS name."
    ports = [int(port) for port in settings["ports"]]
    if not all(1 <= port <= 65535 for port in ports) or len(set(ports)) != len(ports):
        yield (
            "jupyterhub_port, jupyterhub_hub_port and jupyterhub_proxy_api_port are "
            f"{', '.join(map(str, ports))}; set them to three different ports."
        )
    if not re.fullmatch(r"/[A-Za-z0-9._/-]+", str(settings["prefix"])):
        prefix = settings["prefix"]
        yield f"jupyterhub_prefix is {prefix!r}; set it to an absolute path without blanks."
    if int(settings["servers"]) < 1:
        yield (
            "jupyterhub_servers_per_user is less than 1; set it to how many notebooks a user has."
        )
    if int(settings["idle_minutes"]) < 0 or 0 < int(settings["idle_minutes"]) <= 10:
        yield (
            f"jupyterhub_idle_minutes is {settings['idle_minutes']}; set it to more than 10, "
            "because users are warned ten minutes before, or to 0, for notebooks that stay."
        )
    names = Counter(str(each["name"]) for each in settings["containers"])
    for name in (name for name, count in names.items() if count > 1):
        yield f"jupyterhub_containers has {name!r} twice; give each image its own name."
    if settings["authentication"] == "oidc":
        yield from _oidc_problems(settings)


def _oidc_problems(settings: Mapping[str, Any]) -> Iterator[str]:
    provider = settings["oidc"]
    if missing := [name for name in _OIDC if not provider.get(name)]:
        names = ", ".join(missing)
        yield f"jupyterhub_oidc lacks {names}; the provider's documentation names them."
    for name in _OIDC[1:]:
        address = str(provider.get(name) or "")
        if address and not address.startswith("https://"):
            yield f"jupyterhub_oidc.{name} is {address!r}; set it to an address with https://."
    if not settings["secret_file"]:
        yield (
            "jupyterhub_oidc_client_secret_file is empty; set it to a file on the control node "
            "with the client's secret."
        )


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"jupyterhub_problems": problems}
