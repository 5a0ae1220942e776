"""What the tests of the programs in scripts/ share."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

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
