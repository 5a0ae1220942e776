"""Quarantine, for its playbook; what is decided is in plugin_utils/quarantine.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleFilterError

from playbooks.plugin_utils import quarantine


def plan(slurm: str, asked: Sequence[str], said: str) -> dict[str, Any]:
    """See quarantine.Quarantine."""
    try:
        return asdict(quarantine.plan(asked, slurm, said))
    except ValueError as problem:
        raise AnsibleFilterError(f"{problem}.") from problem


def _of(planned: Mapping[str, Any]) -> quarantine.Quarantine:
    return quarantine.Quarantine(**planned)


def reserve(planned: Mapping[str, Any], said: str, user: str) -> list[str]:
    return quarantine.reserve(_of(planned), quarantine.kept(said), user)


def release(said: str, done: Sequence[str]) -> list[str]:
    return quarantine.release(quarantine.kept(said), done)


def told(planned: Mapping[str, Any], verdicts: Mapping[str, str]) -> list[str]:
    return quarantine.told(_of(planned), verdicts)


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "quarantine_plan": plan,
            "quarantine_reason": quarantine.reason,
            "quarantine_release": release,
            "quarantine_reserve": reserve,
            "quarantine_told": told,
        }
