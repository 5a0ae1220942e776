"""What the tests of the programs in scripts/ share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import ansible_processes
from tests.processes import PYTHON

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


def load_script(name: str) -> ModuleType:
    """A program of scripts/ as a module; it has no .py, so `import` does not find it."""
    module_name = name.replace("-", "_")
    loader = SourceFileLoader(module_name, str(REPOSITORY / "scripts" / name))
    spec = spec_from_loader(module_name, loader)
    assert spec is not None
    module = sys.modules[module_name] = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def check_role_specs() -> ModuleType:
    return load_script("check-role-specs")


@pytest.fixture(scope="session")
def unpack_collections() -> ModuleType:
    return load_script("unpack-collections")


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., Any]:
    """A function that runs a task through ansible-playbook, as a role does; the task's result."""

    def run(task: dict[str, Any], *options: str) -> Any:
        answer = tmp_path / "answer"
        show = {"ansible.builtin.copy": {"content": "{{ answer }}", "dest": str(answer)}}
        tasks = [
            {"register": "answer", "ignore_errors": True, **task},
            {"check_mode": False, **show},
        ]
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
        (tmp_path / "play.yml").write_text(json.dumps([play]))
        source = ("-i", "localhost,", "-e", PYTHON)
        done = ansible_processes.run(*source, tmp_path / "play.yml", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(answer.read_text(encoding="utf-8"))

    return run
