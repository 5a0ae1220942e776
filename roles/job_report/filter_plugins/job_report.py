"""The role's filters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playbooks.filter_plugins.verify import verify_row

_COMPONENT = "job_report"


def rows(line: str) -> list[dict[str, str]]:
    """The verify table's rows; `line` is the first line of the program's help."""
    runs = "yes" if line.startswith("usage: job-report") else (line or None)
    return [verify_row(runs, _COMPONENT, "job-report runs", "yes", "apply the role job_report")]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"job_report_rows": rows}
