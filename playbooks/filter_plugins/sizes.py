"""`size_sysctls`, `size_munge_threads`: what a cluster of so many hosts needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster import sizes


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"size_sysctls": sizes.sysctls, "size_munge_threads": sizes.munge_threads}
