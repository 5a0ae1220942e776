"""docs/start/screens.md shows what runs print: its layers, tasks and questions are ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "docs/start/screens.md"
BLOCKS = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
COPIED = ("    ansible-playbook ", "Next: ansible-playbook ", "$ ")  # one line, to copy


def names(paths: list[Path], key: str) -> set[str]:
    """Names of plays, or of tasks, without the phase before them."""
    found = set()
    for path in paths:
        for line in path.read_text().splitlines():
            if match := re.match(key, line):
                found.add(yaml.safe_load(match[1]))
    return found


def test_there_are_three_screens() -> None:
    assert len(BLOCKS) == 3


@pytest.mark.parametrize("block", BLOCKS)
def test_a_screen_is_80_columns_wide(block: str) -> None:
    wide = [line for line in block.splitlines() if len(line) > 80 and not line.startswith(COPIED)]
    assert wide == []


def test_every_layer_is_a_play() -> None:
    plays = names([*REPOSITORY.glob("playbooks/*.yml")], r"- name: (.*)")
    shown = set(re.findall(r"^(\S.*): \d+ of \d+ hosts", "".join(BLOCKS), re.MULTILINE))
    assert len(shown) > 20
    assert shown - plays == set()


def test_every_task_is_one() -> None:
    folders = ("playbooks", "roles/*/tasks", "roles/*/handlers")
    files = [path for folder in folders for path in REPOSITORY.glob(f"{folder}/**/*.yml")]
    tasks = {name.rpartition(" | ")[2] for name in names(files, r" *- name: (.*)")}
    text = re.sub(r"\n +(?=\S+[\"\n])", " ", "".join(BLOCKS))
    hosts = r"(?:all hosts|[a-z]+[\[\],\d-]+)"
    changed = re.findall(rf"^    {hosts}: (.*)", text, re.MULTILINE)
    assert len(changed) > 10
    assert [line for line in changed if not line.startswith(tuple(tasks))] == []
    failed = re.findall(r'at "(?:[^"]* \| )?([^"|]+)"$', text, re.MULTILINE)
    assert failed
    assert set(failed) - tasks <= {"Gathering Facts", "TASK"}  # Ansible's own


def test_every_question_is_asked() -> None:
    source = (REPOSITORY / "scripts/init").read_text()
    _, *lines = BLOCKS[2].partition("\nLooking at ")[0].splitlines()
    assert len(lines) == 7
    for line in lines:
        question = re.sub(r"( \[[^\]]*\])?: ?\S*$", "", line)  # without default and answer
        assert f'"{question}"' in source, question
