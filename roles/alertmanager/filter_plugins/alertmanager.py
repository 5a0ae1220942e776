"""The role's filters; what they do is in plugin_utils."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from playbooks.plugin_utils.documents import to_yaml
from roles.alertmanager.plugin_utils import config


def made(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What checked_files wants of the role: `files` and `checks`."""
    given = dict(settings)
    tests, checker = given.pop("tests"), str(given.pop("checker"))
    document = config.document(**given)
    questions = [*tests, *config.own_questions(document, given["severities"], given["routes"])]
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
            "alertmanager_made": made,
            "alertmanager_unknown_receivers": config.unknown_receivers,
        }
