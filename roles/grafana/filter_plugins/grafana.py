"""The role's filters; what they do is in plugin_utils."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from playbooks.plugin_utils.documents import plain, to_yaml
from roles.grafana.dashboards import files
from roles.grafana.plugin_utils import config, dashboards


def ini(variables: Mapping[str, Any], sites: Mapping[str, Any]) -> str:
    """The text of grafana.ini; `variables` are the role's variables."""
    return config.ini(config.merged(config.sections(variables), plain(sites)))


def datasources(variables: Mapping[str, Any]) -> str:
    return to_yaml(config.datasource(variables))


def provider(_: object) -> str:
    return to_yaml(config.provider())


def settings_problems(sites: Mapping[str, Any]) -> list[str]:
    return list(config.settings_problems(plain(sites)))


def _dashboards(folders: Mapping[str, str]) -> list[dashboards.Dashboard]:
    sites = {str(name): Path(path) for name, path in folders.items()}
    return [*dashboards.own(files()), *dashboards.read(sites)]


def dashboard_problems(folders: Mapping[str, str]) -> list[str]:
    """What is wrong with a site's dashboards, or of the role's own beside them."""
    wrong = list(dashboards.folder_problems({str(name): str(p) for name, p in folders.items()}))
    return wrong or list(dashboards.problems(_dashboards(folders)))


def dashboard_files(folders: Mapping[str, str]) -> dict[str, str]:
    """Text of each dashboard, by its path below the folder that Grafana reads."""
    return dashboards.files(_dashboards(folders))


def dashboard_uids(folders: Mapping[str, str]) -> list[str]:
    return [dashboard.uid for dashboard in _dashboards(folders)]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "grafana_ini": ini,
            "grafana_datasources": datasources,
            "grafana_provider": provider,
            "grafana_settings_problems": settings_problems,
            "grafana_dashboard_problems": dashboard_problems,
            "grafana_dashboard_files": dashboard_files,
            "grafana_dashboard_uids": dashboard_uids,
        }
