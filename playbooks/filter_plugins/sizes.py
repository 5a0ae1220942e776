"""`size_*`: what a cluster of so many hosts needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from cluster import sizes


def retention(hosts: int, interval: str, kept: str) -> str:
    """prometheus_retention_size of so many hosts."""
    try:
        return f"{sizes.retention_gb(hosts, sizes.seconds(str(interval)), str(kept))}GB"
    except (ValueError, ZeroDivisionError) as problem:
        raise AnsibleFilterError(
            f"prometheus_retention_time, _scrape_interval: {problem}"
        ) from None


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "size_sysctls": sizes.sysctls,
            "size_munge_threads": sizes.munge_threads,
            "size_scrape_interval": lambda hosts: f"{sizes.scrape_interval_s(hosts)}s",
            "size_collectors_off": sizes.collectors_off,
            "size_node_relabelling": sizes.node_relabelling,
            "size_retention": retention,
        }
