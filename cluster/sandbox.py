"""What systemd keeps from a service of ours: settings of the section Service of its unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# What a daemon needs that speaks over the network, and writes a few folders.
SERVICE: Mapping[str, str] = {
    "LockPersonality": "yes",
    "NoNewPrivileges": "yes",
    "PrivateDevices": "yes",
    "PrivateTmp": "yes",
    "ProtectClock": "yes",
    "ProtectControlGroups": "yes",
    "ProtectHome": "yes",
    "ProtectHostname": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectProc": "invisible",
    "ProtectSystem": "strict",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallErrorNumber": "EPERM",
    "SystemCallFilter": (
        "~@clock @cpu-emulation @debug @module @mount @obsolete @raw-io @reboot @swap"
    ),
}


def service(
    folders: Iterable[str] = (), other: Mapping[str, Any] | None = None, capabilities: str = ""
) -> dict[str, Any]:
    """The settings, by name.

    folders: what it writes; one that is missing is not there to be written
    other: takes the place of a setting; ReadWritePaths is added, and an empty value removes
    capabilities: what it may have of root's
    """
    other = other or {}
    paths = [f"-{path}" for path in dict.fromkeys(folders)]
    more = other.get("ReadWritePaths") or []
    settings: dict[str, Any] = {
        **SERVICE,
        **other,
        "ReadWritePaths": [*paths, *([more] if isinstance(more, str) else more)],
    }
    kept = {name: word(value) for name, value in settings.items() if value not in ("", None, [])}
    return dict(sorted({"CapabilityBoundingSet": capabilities, **kept}.items()))


def word(value: Any) -> Any:
    """As systemd takes it: YAML makes true of yes."""
    return ("yes" if value else "no") if isinstance(value, bool) else value
