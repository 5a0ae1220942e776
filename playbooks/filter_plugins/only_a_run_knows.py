"""`'NAME' | only_a_run_knows`: stands for a variable that a task makes, where no task has run.

Whoever reads it fails, also one who would take a default for what is undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ansible.errors import AnsibleFilterError


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"only_a_run_knows": only_a_run_knows}


def only_a_run_knows(name: str) -> NoReturn:
    raise AnsibleFilterError(f"only a run knows {name}")
