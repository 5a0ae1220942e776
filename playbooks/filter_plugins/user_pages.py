"""`site | user_pages`: pages for the users of a cluster, by file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"user_pages": user_pages, "datasets_for_users": datasets_for_users}


def user_pages(site: dict[str, Any]) -> dict[str, str]:
    # Here, so that runs that make no pages do not load what reads Markdown.
    from playbooks.plugin_utils.user_pages import files  # noqa: PLC0415

    return files(site)


def datasets_for_users(published: Sequence[Mapping[str, Any]], root: str) -> list[dict[str, str]]:
    """Published data sets by name, each once, with the folder that has all of its versions.

    >>> datasets_for_users([{"name": "iris", "version": "1", "description": "flowers"}], "/data")
    [{'name': 'iris', 'path': '/data/iris', 'description': 'flowers'}]
    """
    found: dict[str, dict[str, str]] = {}
    for each in published:
        if root and each.get("state", "present") == "present":
            name = str(each["name"])
            described = {"description": str(each.get("description", ""))}
            found[name] = {"name": name, "path": f"{root}/{name}"} | described
    return list(found.values())
