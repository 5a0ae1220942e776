"""Entries of APT for components of the distribution's archive that a node's sources leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def lacking(
    archives: Sequence[Mapping[str, Any]], components: Sequence[str], release: str, mirror: str
) -> list[dict[str, Any]]:
    """What a sources file must add, as uri, suites, components and signed_by.

    From the archives that the node has of its release, with the same addresses and keys; from
    `mirror` alone where one is given.
    """
    if mirror:
        suites = [release, f"{release}-updates"]
        entry = {"uri": mirror, "suites": suites, "signed_by": KEYRING}
        return [{**entry, "components": list(components)}]
    suites_of: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for archive in archives:
        if archive["suite"] != release and not archive["suite"].startswith(f"{release}-"):
            continue
        there = archive["components"]
        lacks = tuple(component for component in components if component not in there)
        if lacks:
            of = (archive["uri"], archive["signed_by"], lacks)
            suites_of.setdefault(of, []).append(archive["suite"])
    return [
        {"uri": uri, "suites": suites, "components": list(lacks), "signed_by": key}
        for (uri, key, lacks), suites in suites_of.items()
    ]
