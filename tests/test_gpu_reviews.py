"""The page about reviews of the GPU code names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/contribute/gpu-reviews.md"
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
VERDICTS = ("true", "reckoned", "refuted")
COLUMNS = 5


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0]]


def test_each_finding_stands_once_and_says_all() -> None:
    assert {len(row) for row in rows()} == {COLUMNS}
    assert all(cell for row in rows() for cell in row)
    numbers = [row[0] for row in rows()]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_finding_has_a_verdict_and_tests_that_there_are(row: list[str]) -> None:
    number, _, verdict, _, tests = row
    assert verdict.startswith(VERDICTS), f"{number}: {verdict}"
    named = TEST.findall(tests)
    assert named, f"{number} names no test"
    for file, name in named:
        text = (ROOT / file).read_text("utf-8")
        assert re.search(rf"^ *def {name}\(", text, re.MULTILINE), f"{number}: {file} has no {name}"
