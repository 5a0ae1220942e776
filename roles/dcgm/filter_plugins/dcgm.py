"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playbooks.filter_plugins.verify import verify_row, verify_skipped
from playbooks.plugin_utils.packages import version_row
from roles.dcgm.plugin_utils import packages

_COMPONENT = "dcgm"
_ADVICE = "apply the role dcgm"


def rows(output: str, gpus: int, names: list[str], version: str) -> list[dict[str, str]]:
    """The verify table's rows; `output` is `KEY VALUE` lines of what was found on the node."""
    if not gpus:
        return [verify_skipped(_COMPONENT, "DCGM", "the node declares no GPU")]
    values = dict(line.split(" ", 1) for line in output.splitlines() if " " in line)
    return [
        version_row(_COMPONENT, values, names, version, _ADVICE),
        verify_row(
            values.get("held"), _COMPONENT, "packages that are held", str(len(names)), _ADVICE
        ),
        verify_row(
            values.get("service"),
            _COMPONENT,
            "service nvidia-dcgm",
            "active",
            "see journalctl --unit=nvidia-dcgm there",
        ),
        verify_row(
            values.get("engine"),
            _COMPONENT,
            "GPUs that the host engine sees",
            str(gpus),
            "see dcgmi discovery --list there",
        ),
    ]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "dcgm_packages": packages.packages,
            "dcgm_of_other_drivers": packages.of_other_drivers,
            "dcgm_rows": rows,
        }
