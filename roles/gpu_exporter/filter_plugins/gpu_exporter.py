"""The role's filters; what they do is in plugin_utils, by subject."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from playbooks.filter_plugins.verify import verify_row, verify_skipped
from playbooks.plugin_utils.packages import version_row
from roles.gpu_exporter.plugin_utils import pairs

_COMPONENT = "gpu_exporter"
_ADVICE = "apply the role gpu_exporter"
_PACKAGE = "datacenter-gpu-manager-exporter"


def rows(
    source: str,
    lines: Sequence[str],
    gpus: int,
    version: str,
    answers: Sequence[Mapping[str, Any]] = (),
) -> list[dict[str, str]]:
    """The verify table's rows; `lines` are `KEY VALUE` lines of the node, `answers` those of
    dcgm-exporter: to somebody without a password, and to Prometheus.
    """
    if source == "none":
        return [verify_skipped(_COMPONENT, "GPU metrics", "nobody reads this node's GPUs")]
    values = dict(line.split(" ", 1) for line in lines if " " in line)
    advice = "see plumbline-gpu-exporter there"
    own = [
        _service(values.get("own"), "plumbline-gpu-exporter"),
        verify_row(values.get("log"), _COMPONENT, "kernel's log can be read", "1", advice),
    ]
    if source == "nvml":
        return [
            *own,
            verify_row(values.get("gpus"), _COMPONENT, "GPUs that answer", str(gpus), advice),
        ]
    unit = "nvidia-dcgm-exporter"
    stranger, prometheus = [*answers, {}, {}][:2]
    indices = set(
        re.findall(r'^DCGM_FI_DEV_GPU_TEMP\{gpu="(\d+)"', _content(prometheus), re.MULTILINE)
    )
    return [
        *own,
        version_row(_COMPONENT, values, [_PACKAGE], version, _ADVICE),
        verify_row(values.get("held"), _COMPONENT, "packages that are held", "1", _ADVICE),
        _service(values.get("service"), unit),
        verify_row(stranger.get("status"), _COMPONENT, "answer without a password", "401", _ADVICE),
        verify_row(
            len(indices),
            _COMPONENT,
            "GPUs that dcgm-exporter tells",
            str(gpus),
            f"see journalctl --unit={unit} there",
        ),
    ]


def _service(state: str | None, unit: str) -> dict[str, str]:
    advice = f"see journalctl --unit={unit} there"
    return verify_row(state, _COMPONENT, f"service {unit}", "active", advice)


def _content(answer: Mapping[str, Any]) -> str:
    return str(answer.get("content", ""))


def known_pairs(text: str) -> str:
    """The text with the versions of DCGM that an exporter is known of in the place of `{}`."""
    return text.format(pairs.known())


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "gpu_exporter_paired": pairs.exporter_of,
            "gpu_exporter_known": known_pairs,
            "gpu_exporter_rows": rows,
        }
