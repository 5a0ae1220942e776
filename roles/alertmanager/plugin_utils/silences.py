"""What became of a silence that a playbook asked for, for the one who runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.hostlist import listed


def unsilenced(tasks: Sequence[Mapping[str, Any]], nodes: Sequence[str], state: str) -> str:
    """One sentence where the cluster's or the site's Alertmanagers did not do it, else nothing.

    `tasks` are what loops registered, one over each of the two: those of one tell each other.
    """
    failed = [
        result
        for task in tasks
        if (results := task.get("results") or ())
        and not any(result.get("answered") for result in results)
        for result in results
    ]
    if not nodes or not failed:
        return ""
    reasons = "; ".join(f"{_name(result)} {_why(result)}" for result in failed)
    what = "go on being silenced until that ends" if state == "absent" else "are not silenced"
    return f"Alerts of {listed(nodes)} {what}, and the work goes on: {reasons}."


def _name(result: Mapping[str, Any]) -> str:
    asked = result["__alertmanager_host"]
    return str(asked if isinstance(asked, str) else asked.get("url", "an entry without url"))


def _why(result: Mapping[str, Any]) -> str:
    if result.get("away"):
        return "cannot be reached"
    if said := result.get("note"):
        return f"has an Alertmanager that {said}"
    return (
        f"cannot ask its Alertmanager ({str(result.get('msg') or 'no reason was given').strip()})"
    )
