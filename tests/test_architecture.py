"""Who may import whom: each room of the repository, and what it may stand on."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

# What of the repository the files below a place may import; the first place that fits counts.
# "itself" is the folder of the role, and of a place without one the place.
ROOMS: dict[str, tuple[str, ...]] = {
    "cluster": ("itself",),
    "validation": ("itself", "cluster"),
    "playbooks": ("itself", "cluster"),
    # It packs the health checks, which judge with the validation's rules, and names them.
    "roles/node_health": ("itself", "cluster", "playbooks", "validation.node_health"),
    # Ports are judged by the rule of the check `infiniband`, which reads a payload's document.
    "roles/rdma": (
        *("itself", "cluster", "playbooks"),
        *("validation.checks.document", "validation.checks.infiniband"),
    ),
    "roles": ("itself", "cluster", "playbooks"),
}
# Tests may import what they hold against each other; scenarios use the stand-ins of tests/.
NOT_JUDGED = ("tests", "molecule")
# Of what is installed, and only in these places: none elsewhere in cluster.
LIBRARIES = {
    "cluster/contract.py": {"yaml"},
    "cluster/exporter.py": {"prometheus_client"},
    "cluster/fixed_versions.py": {"yaml"},
    "cluster/gpus.py": {"yaml"},
    "cluster/removed_variables.py": {"yaml"},
    "cluster/slurm/keys.py": {"yaml"},
}


def sources(root: Path) -> Iterator[Path]:
    """Files of Python in the rooms, less those that are not judged."""
    for room in ("cluster", "validation", "playbooks", "roles"):
        for path in sorted((root / room).rglob("*.py")):
            if not set(NOT_JUDGED) & set(path.relative_to(root).parts):
                yield path.relative_to(root)


def imports(path: Path) -> set[str]:
    """Every name that a file imports, anywhere in it; of `from a import b` it is a.b."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def forbidden(root: Path, place: Path) -> list[str]:
    """What a file imports of the repository and may not."""
    room, may = next((room, may) for room, may in ROOMS.items() if place.is_relative_to(room))
    itself = ".".join(place.parts[:2]) if room.startswith("roles") else room
    allowed = [itself if name == "itself" else name for name in may]
    own = {path.name for path in root.iterdir() if path.is_dir()} - {"molecule"}
    return sorted(
        name
        for name in imports(root / place)
        if name.split(".")[0] in own and not any(f"{name}.".startswith(f"{a}.") for a in allowed)
    )


def test_nobody_imports_what_stands_above_or_beside() -> None:
    places = list(sources(REPOSITORY))
    assert len(places) > 250
    wrong = {str(place): names for place in places if (names := forbidden(REPOSITORY, place))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("place", "line", "wrong"),
    [
        ("cluster/a.py", "import json", []),
        ("cluster/a.py", "from cluster.b import c", []),
        ("cluster/a.py", "from validation import model", ["validation.model"]),
        ("cluster/a.py", "def f():\n    import playbooks.x", ["playbooks.x"]),
        ("validation/a.py", "from cluster import b", []),
        ("validation/a.py", "from playbooks.x import y", ["playbooks.x.y"]),
        ("validation/a.py", "from tests import x", ["tests.x"]),
        ("playbooks/plugin_utils/a.py", "from playbooks.plugin_utils import b", []),
        ("playbooks/plugin_utils/a.py", "from roles.one import b", ["roles.one.b"]),
        ("playbooks/plugin_utils/a.py", "from validation import b", ["validation.b"]),
        ("roles/one/plugin_utils/a.py", "from roles.one.plugin_utils import b", []),
        ("roles/one/plugin_utils/a.py", "from playbooks.plugin_utils import b", []),
        ("roles/one/plugin_utils/a.py", "from roles.two import b", ["roles.two.b"]),
        ("roles/one/files/one/a.py", "from roles.one_more import b", ["roles.one_more.b"]),
        ("roles/one/plugin_utils/a.py", "from validation import b", ["validation.b"]),
        ("roles/one/tests/a.py", "from validation import b", None),
        ("roles/node_health/plugin_utils/a.py", "from validation.node_health import b", []),
        ("roles/node_health/a.py", "from validation.run import b", ["validation.run.b"]),
    ],
)  # fmt: skip
def test_an_arrow_that_points_elsewhere_is_found(
    tmp_path: Path, place: str, line: str, wrong: list[str] | None
) -> None:
    for room in ("cluster", "validation", "playbooks", "roles", "tests"):
        (tmp_path / room).mkdir()
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text(line)
    assert [forbidden(tmp_path, source) for source in sources(tmp_path)] == (
        [] if wrong is None else [wrong]
    )


def test_what_a_cluster_is_needs_the_standard_library_only() -> None:
    """And Python 3.10 parses it."""
    for place in sources(REPOSITORY):
        if place.parts[0] == "cluster":
            packages = {name.split(".")[0] for name in imports(REPOSITORY / place)}
            strange = packages - sys.stdlib_module_names - {"cluster"}
            assert strange == LIBRARIES.get(str(place), set()), place
            ast.parse((REPOSITORY / place).read_text("utf-8"), feature_version=(3, 10))
