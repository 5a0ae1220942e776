"""The role's filters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Ansible loads a plugin by its path; what plugins share is a package from the checkout's root.
sys.path.append(str(Path(__file__).resolve().parents[3]))

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
