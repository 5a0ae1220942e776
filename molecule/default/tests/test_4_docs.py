"""Every command in the documentation, run against the cluster under test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PAGES = [
    REPOSITORY / "README.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted(REPOSITORY.glob("roles/*/README.md")),
]
BLOCK = re.compile(r"^ *```(?:sh|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)

# Commands that make, remove or test what these tests stand on, and where each of them is run.
ELSEWHERE = {
    "git clone": "CI starts from a fresh clone",
    "scripts/setup": "scripts/test runs it first",
    "scripts/demo": "its parts are the stages of this scenario",
    "scripts/test": "is what runs this",
    "scripts/test-role": "scripts/test, stage roles",
    ". .venv/bin/activate && cd roles/": "scripts/test, stage roles",
    "scripts/virtual-cluster up": "create.yml of this scenario",
    "scripts/virtual-cluster down": "destroy.yml of this scenario",
    "scripts/virtual-cluster packages": "scripts/test runs it first",
    "scripts/virtual-cluster ssh --name": "names the nodes of a role's scenario",
    "python -m validation.run --here": "test_3_validation.py runs it on login1",
    "cp -r inventory/example": "tests/test_inventory.py judges the example",
}


def commands():
    for page in PAGES:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.splitlines():
                command = re.sub(r"\s{2,}#.*$", "", line.strip().removeprefix("$ ").strip())
                if command:
                    yield page.relative_to(REPOSITORY), command


RUN = sorted({c for _, c in commands() if not c.startswith(tuple(ELSEWHERE))})


def test_there_are_commands_to_run():
    assert len(RUN) >= 8


@pytest.mark.parametrize("command", RUN)
def test_a_command_of_the_documentation_works(operator, command, tmp_path):
    here = re.sub(r"-i inventory/(site|demo)", " ".join(operator.inventories), command)
    here = re.sub(r"(scripts/virtual-cluster \w+)", rf"\1 --name={operator.cluster}", here)
    here = here.replace("--limit gpu7", "--limit gpu2")
    if "validation.run" in here and not re.search("--list|--dry-run|--help", here):
        here += f" --output {tmp_path / 'run'}"
    done = operator("bash", "-c", here)
    assert done.returncode == 0, f"{here}\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}"
