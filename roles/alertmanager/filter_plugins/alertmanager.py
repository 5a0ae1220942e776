"""The role's filters; what they do is in plugin_utils."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from playbooks.plugin_utils.documents import to_yaml
from roles.alertmanager.plugin_utils import config


def files_and_checks(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What checked_files wants of the role: `files` and `checks`."""
    values = dict(settings)
    tests, checker = values.pop("tests"), str(values.pop("checker"))
    document = config.document(**values)
    questions = [*tests, *config.own_questions(document, values["severities"], values["routes"])]
    return {
        "files": {"alertmanager.yml": to_yaml(document)},
        "checks": [
            [checker, "check-config", "alertmanager.yml"],
            *config.route_checks(questions, checker),
        ],
    }


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "alertmanager_made": files_and_checks,
            "alertmanager_unknown_receivers": config.unknown_receivers,
        }
