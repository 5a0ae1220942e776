"""`site | user_pages`: pages for the users of a cluster, by file name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"user_pages": user_pages}


def user_pages(site: dict[str, Any]) -> dict[str, str]:
    # Here, so that runs that make no pages do not load what reads Markdown.
    from playbooks.plugin_utils.user_pages import files  # noqa: PLC0415

    return files(site)
