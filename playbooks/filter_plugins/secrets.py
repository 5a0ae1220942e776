"""What playbooks/rotate-secrets.yml is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from playbooks.plugin_utils import kept, known_secrets

PLAYBOOKS = {"tls": "rotate-monitoring.yml", "web": "rotate-monitoring.yml"}


def secret_kinds(asked: Any) -> list[str]:
    """The kinds of secrets to replace, in the order of the run; none where the word is none."""
    with contextlib.suppress(kept.NotKept):
        return known_secrets.kinds(str(asked))
    return []


def secret_kinds_problem(asked: Any) -> str:
    """Why a word is none, as a sentence; "" for one that is."""
    try:
        known_secrets.kinds(str(asked))
    except kept.NotKept as problem:
        return f"{problem}."
    return ""


def secret_playbook(asked: Any, *kinds: str) -> str:
    """The playbook that replaces secrets of these kinds, if any of them is asked for."""
    meant = set(kinds) & set(secret_kinds(asked))
    names = {PLAYBOOKS.get(kind, f"rotate-{kind}.yml") for kind in meant}
    return names.pop() if names else "rotate-none.yml"


def hosts_with(hostvars: Mapping[str, Any], variable: str) -> list[str]:
    """The hosts for which a run has set a variable: those that came so far."""
    return [host for host in hostvars if variable in hostvars[host]]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "hosts_with": hosts_with,
            "secret_kinds": secret_kinds,
            "secret_kinds_problem": secret_kinds_problem,
            "secret_playbook": secret_playbook,
        }
