"""Expressions as promtool judges them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import yaml

from tests.checkers import checker


def wrong(expressions: Iterable[str], folder: Path) -> str:
    """promtool's complaints about them; empty where there are none."""
    rules = [
        {"record": f"number:{number}", "expr": text} for number, text in enumerate(expressions)
    ]
    assert rules
    file = folder / "expressions.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    done = subprocess.run(
        [*checker("promtool"), "check", "rules", file], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr
