"""Expressions as promtool judges them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml

from tests.checkers import checker
from tests.processes import run


def wrong(expressions: Iterable[str], folder: Path) -> str:
    """promtool's complaints about them; empty where there are none."""
    rules = [
        {"record": f"number:{number}", "expr": text} for number, text in enumerate(expressions)
    ]
    assert rules
    file = folder / "expressions.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    done = run(*checker("promtool"), "check", "rules", file)
    return "" if done.returncode == 0 else done.stdout + done.stderr
