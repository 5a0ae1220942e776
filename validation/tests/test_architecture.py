"""Who may import whom within the validation: dependencies point inward.

What it stands on is in tests/test_architecture.py.
"""

import ast
import sys
from pathlib import Path

import pytest

from validation.checks.registry import CHECKS
from validation.payloads import __main__ as payloads

PACKAGE = Path(__file__).parent.parent
FILES = sorted(
    path for path in PACKAGE.rglob("*.py") if "tests" not in path.relative_to(PACKAGE).parts
)


def imports(path):
    """Modules of the package that a file imports."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            modules.add(node.module or "")
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in modules if name.split(".")[0] == "validation"}


INNER = ("run", "progress", "execution", "tiers")

# What files below a place must not import; the first place that fits counts.
FORBIDDEN = {
    "model.py": ("",),
    "errors.py": ("",),
    "slurm/launcher.py": ("",),
    "payloads": (*INNER, "model", "checks", "slurm", "transport", "report", "plan"),
    "checks": (*INNER, "plan", "slurm", "transport", "report"),
    "report": (*INNER, "checks", "slurm", "transport", "payloads"),
    "slurm": (*INNER, "checks", "plan", "report"),
    "transport": (*INNER, "checks", "plan", "report", "slurm"),
    "run.py": (),
    ".": ("run",),
}


def forbidden(path):
    place = path.relative_to(PACKAGE)
    names = next(
        names
        for start, names in FORBIDDEN.items()
        if start == "." or place == Path(start) or Path(start) in place.parents
    )
    return tuple(f"validation.{name}" for name in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_dependencies_point_inward(path):
    for name in imports(path):
        assert not name.startswith(forbidden(path)), f"{path.name} imports {name}"


def test_the_launcher_needs_the_standard_library_only():
    tree = ast.parse((PACKAGE / "slurm" / "launcher.py").read_text(encoding="utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    assert names <= {
        "collections", "concurrent", "contextlib", "fcntl", "json", "logging", "os", "pathlib",
        "re", "shutil", "signal", "stat", "subprocess", "sys", "threading", "time", "typing",
    }  # fmt: skip
    # Python 3.10 parses it.
    ast.parse((PACKAGE / "slurm" / "launcher.py").read_text("utf-8"), feature_version=(3, 10))


def test_nothing_beside_the_launcher_hides_a_module_of_pythons_own():
    """Started by its path, it finds the files of its folder before the standard library's."""
    beside = {path.stem for path in (PACKAGE / "slurm").glob("*.py")}
    assert beside & sys.stdlib_module_names == set()


def test_every_check_has_a_payload_that_can_be_started():
    known = set(payloads.NAMES)
    assert {check.payload for check in CHECKS.values() if check.payload} <= known
