"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from playbooks.filter_plugins.verify import verify_row, verify_skipped
from playbooks.plugin_utils.packages import version_row
from roles.nvidia_container_toolkit.plugin_utils import cdi

_COMPONENT = "nvidia_container_toolkit"
_ADVICE = "apply the role nvidia_container_toolkit"


def rows(
    output: str, specs: Sequence[str], gpus: int, names: Sequence[str], version: str
) -> list[dict[str, str]]:
    """The verify table's rows.

    `output` is `KEY VALUE` lines of the node, `specs` the CDI specification that is there and
    the one for its GPUs as they are.
    """
    if not gpus:
        return [verify_skipped(_COMPONENT, "toolkit", "the node declares no GPU")]
    values = dict(line.split(" ", 1) for line in output.splitlines() if " " in line)
    there, current = [*specs, "", ""][:2]
    state = "missing" if cdi.read(there) is None else "that of other GPUs or another driver"
    if cdi.same(there, current):
        state = "current"
    elif cdi.read(current) is None:
        state = "not to be compared, because nvidia-ctk writes none"
    return [
        version_row(_COMPONENT, values, names, version, _ADVICE),
        verify_row(
            values.get("held"), _COMPONENT, "packages that are held", str(len(names)), _ADVICE
        ),
        verify_row(
            values.get("path"),
            _COMPONENT,
            "nvidia-cdi-refresh.path",
            "active",
            "see systemctl status nvidia-cdi-refresh.path there",
        ),
        verify_row(
            len(cdi.gpus(there)),
            _COMPONENT,
            "GPUs in the CDI specification",
            gpus,
            "see journalctl --unit=nvidia-cdi-refresh there",
        ),
        verify_row(
            state,
            _COMPONENT,
            "CDI specification",
            "current",
            "run systemctl restart nvidia-cdi-refresh there",
        ),
    ]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvidia_container_toolkit_rows": rows,
            "nvidia_container_toolkit_same_spec": cdi.same,
        }
