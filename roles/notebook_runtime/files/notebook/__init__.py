"""What a notebook's job runs: JupyterLab behind the portal, which ends it when nobody uses it."""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "roles.notebook_runtime.files.notebook"}]


def _load_jupyter_server_extension(server: Any) -> None:
    from roles.notebook_runtime.files.notebook import server as extension  # noqa: PLC0415

    extension.load(server)
