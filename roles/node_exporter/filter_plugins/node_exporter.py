"""The role's filters; what they do is in plugin_utils."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def certificates(paths: Iterable[str], slurped: Iterable[Mapping[str, Any]]) -> str:
    """The textfile of certificates; `slurped` has the result of slurp for each of their paths."""
    from roles.node_exporter.plugin_utils import expiry  # noqa: PLC0415 - not in every process

    return expiry.textfile(
        {
            path: base64.b64decode(result.get("content") or "").decode(errors="replace")
            for path, result in zip(paths, slurped, strict=True)
        }
    )


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"node_exporter_certificates": certificates}
