"""What a component of a node should be and what it is, as rows that a table and an assert share.

A role's `tasks/verify.yml` makes them, the role asserts them when it ends, and
`playbooks/gpu-software.yml --tags verify` prints those of all roles and nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

PASS, FAIL, SKIP = "PASS", "FAIL", "SKIP"

Row = Mapping[str, str]


def verify_row(
    actual: Any, component: str, what: str, expected: Any, advice: str = ""
) -> dict[str, str]:
    """PASS where found and expected are the same text; what was not found is never a PASS."""
    seen = "" if actual is None else str(actual).strip()
    same = seen != "" and seen == str(expected).strip()
    return _row(component, what, str(expected), seen or "nothing", PASS if same else FAIL, advice)


def verify_skipped(component: str, what: str, why: str) -> dict[str, str]:
    """A row that does not apply by declaration, never one whose answer is missing."""
    return _row(component, what, "", why, SKIP, "")


def verify_failures(rows: Iterable[Row]) -> list[str]:
    """A sentence for each row that does not pass. Raises ValueError when there is no row at all."""
    rows = list(rows)
    if not rows:
        raise ValueError("nothing was verified, which is no success")
    return [sentence(row) for row in rows if row["verdict"] not in (PASS, SKIP)]


def sentence(row: Row) -> str:
    text = f"{row['component']}: {row['what']} is {row['found']}, expected {row['expected']}"
    return f"{text}; {row['advice']}" if row["advice"] else text


def _row(
    component: str, what: str, expected: str, actual: str, verdict: str, advice: str
) -> dict[str, str]:
    return {
        "component": component,
        "what": what,
        "expected": expected,
        "found": actual,
        "verdict": verdict,
        "advice": advice.rstrip("."),
    }


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "verify_row": verify_row,
            "verify_skipped": verify_skipped,
            "verify_failures": verify_failures,
        }
