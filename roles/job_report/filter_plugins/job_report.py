"""The role's filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from playbooks.filter_plugins.verify import verify_row

_COMPONENT = "job_report"
# The first line of each: with a service that is asked, and without.
_RUNS = ("service: answers", "usage: job-report")


def rows(outputs: Sequence[str]) -> list[dict[str, str]]:
    """The verify table's rows, of what the program wrote to standard output and error.

    Whether accounting and Prometheus answer is no matter of this host's.
    """
    output, error = outputs
    runs = "yes" if output.startswith(_RUNS) else (error.strip() or output.strip() or None)
    return [verify_row(runs, _COMPONENT, "job-report runs", "yes", "apply the role job_report")]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"job_report_rows": rows}
