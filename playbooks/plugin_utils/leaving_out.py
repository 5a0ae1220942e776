"""Hosts that a run finds it has to leave alone: the fact by which a task says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FACT = "__run_leaves_out"
SETS_FACTS = ("ansible.builtin.set_fact", "set_fact")


def left_out(result: Any) -> Sequence[str]:
    """The hosts that a task's result takes out of the plays that follow."""
    if result.task.action not in SETS_FACTS:
        return ()
    return list((result.result.get("ansible_facts") or {}).get(FACT) or ())
