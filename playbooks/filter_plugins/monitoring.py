"""Filters of the monitoring: group_vars and the roles of its listeners use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from playbooks.plugin_utils import documents, monitoring, systemd


def web_config(users: Mapping[str, str], certificate: str, key: str) -> str:
    """The text of a listener's web configuration; `users` has a bcrypt hash for each name."""
    from playbooks.plugin_utils import web  # noqa: PLC0415 - bcrypt, not in every process that has filters

    try:
        return documents.to_yaml(web.web_config(users, certificate, key))
    except ValueError as problem:
        raise AnsibleFilterError(str(problem)) from None


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "nodes_to_silence": monitoring.nodes_to_silence,
            "monitoring_address": monitoring.address,
            "monitoring_hosts": monitoring.hosts,
            "monitoring_gpu_hosts": monitoring.gpu_hosts,
            "monitoring_slurm_scrapes": monitoring.slurm_scrapes,
            "monitoring_expected_gpus": monitoring.expected_gpus,
            "grafana_repositories": monitoring.grafana_repositories,
            "systemd_command": systemd.command,
            "web_config": web_config,
        }
