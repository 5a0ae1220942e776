"""The role's filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playbooks.filter_plugins.verify import verify_row

_COMPONENT = "job_report"


def rows(said: str) -> list[dict[str, str]]:
    """The verify table's rows; `said` is the first line of the program's help."""
    runs = "yes" if said.startswith("usage: job-report") else (said or None)
    return [verify_row(runs, _COMPONENT, "job-report runs", "yes", "apply the role job_report")]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"job_report_rows": rows}
