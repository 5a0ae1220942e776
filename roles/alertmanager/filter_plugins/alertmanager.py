"""The role's filters; what they do is in plugin_utils."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from playbooks.plugin_utils.documents import to_yaml
from roles.alertmanager.plugin_utils import config, problems, silences


def files_and_checks(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What checked_files wants of the role: `files` and `checks`."""
    values = dict(settings)
    tests, checker = values.pop("tests"), str(values.pop("checker"))
    gossip = values.pop("gossip")
    document = config.document(**values)
    questions = [*tests, *config.own_questions(document, values["severities"], values["routes"])]
    return {
        "files": {
            "alertmanager.yml": to_yaml(document),
            **({"cluster.yml": to_yaml(config.gossip(**gossip))} if gossip else {}),
        },
        "checks": [
            [checker, "check-config", "alertmanager.yml"],
            *config.route_checks(questions, checker),
        ],
    }


def exported_files(times: Mapping[str, Any]) -> dict[str, str]:
    """What an Alertmanager of the site merges into its own file."""
    return {"plumbline.yml": to_yaml(config.exported(**times))}


def secrets_below(entries: Sequence[Mapping[str, str]], folder: str) -> list[dict[str, str]]:
    """A site's secret files, `{name, file}`, where they lie on the host."""
    return [{"name": f"{folder}/{entry['name']}", "file": entry["file"]} for entry in entries]


def all_files(
    secrets: Sequence[Mapping[str, str]], texts: Sequence[str], files: Mapping[str, str]
) -> dict[str, str]:
    """The text of each file by its name: the secrets' in their order, and the others."""
    return {
        **{secret["name"]: text for secret, text in zip(secrets, texts, strict=True)},
        **files,
    }


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "alertmanager_exported": exported_files,
            "alertmanager_files": all_files,
            "alertmanager_secrets_below": secrets_below,
            "alertmanager_problem": problems.problem,
            "alertmanager_made": files_and_checks,
            "alertmanager_unknown_receivers": config.unknown_receivers,
            "alertmanager_unsilenced": silences.unsilenced,
        }
