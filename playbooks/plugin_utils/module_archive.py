"""Ansible's modules with all that they import: one archive that a node's Python runs from memory.

What Ansible itself sends is one module with its arguments, which starts, compiles and imports for
each question anew. This archive holds many modules; the program below runs each in a child of one
process.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import ansible
from ansible.module_utils._internal import _json
from ansible.release import __author__, __version__

from playbooks.plugin_utils import packed

ANSIBLES = Path(ansible.__file__).parent / "module_utils"
OURS = (
    packed.ROOT / "playbooks" / "module_utils",
    *sorted(packed.ROOT.glob("roles/*/module_utils")),
)
PACKAGE = "ansible.module_utils"
# Results are read as those of any module of before 2.19's own form are.
PROFILE = "legacy"
QUESTIONS = "questions.json"

PROGRAM = (Path(__file__).parent / "look_program.py").read_text(encoding="utf-8")


def archive(modules: Mapping[str, Path]) -> bytes:
    """The archive of these modules, by name, without questions."""
    sources = {name: path.read_text(encoding="utf-8") for name, path in modules.items()}
    needed = imported(sources.values())
    return packed.pack(
        PROGRAM,
        {
            "ansible/__init__.py": (
                f"__version__ = {__version__!r}\n__author__ = {__author__!r}\n"
            ).encode(),
            "ansible/modules/__init__.py": b"",
        },
        {f"ansible/modules/{name}.py": text.encode() for name, text in sources.items()},
        {name: path.read_bytes() for name, path in needed.items()},
    )


def name_of(modules: Mapping[str, Path]) -> str:
    """A name for the archive of these modules, within a run."""
    text = "\n".join(f"{name} {path}" for name, path in sorted(modules.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def imported(sources: Iterable[str]) -> dict[str, Path]:
    """Files of module_utils that these sources import, anywhere in them, by path in the archive."""
    files: dict[str, Path] = {}
    waiting = [
        PACKAGE,
        f"{PACKAGE}.basic",
        # These are imported by the name of the profile.
        *(_json.get_module_serialization_profile_module_name(PROFILE, to) for to in (True, False)),
    ]
    for source in sources:
        waiting += imports(source, "")
    while waiting:
        name = waiting.pop()
        place = located(name)
        if place is None or place[0] in files:
            continue
        files[place[0]] = place[1]
        waiting += imports(place[1].read_text(encoding="utf-8"), package_of(name, place[1]))
        waiting.append(name.rpartition(".")[0])
    return files


def package_of(name: str, path: Path) -> str:
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


def imports(source: str, package: str) -> Iterator[str]:
    """Names in module_utils that a source may import; some may be no modules but what is in one."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        yield from (name for name in names if f"{name}.".startswith(f"{PACKAGE}."))


def located(name: str) -> tuple[str, Path] | None:
    """Where a module of module_utils goes in the archive, and lies here; None for no module."""
    if not f"{name}.".startswith(f"{PACKAGE}."):
        return None
    below = name.removeprefix(PACKAGE).lstrip(".").replace(".", "/")
    for folder in (*OURS, ANSIBLES):
        for file in (f"{below}.py", f"{below}/__init__.py".lstrip("/")):
            if (folder / file).is_file() and (below or folder == ANSIBLES):
                return f"ansible/module_utils/{file}", folder / file
    return None


def document(questions: Mapping[str, tuple[str, Mapping[str, object]]]) -> str:
    """What the program reads: for each key a module's name and its arguments."""
    return json.dumps({key: [name, arguments] for key, (name, arguments) in questions.items()})


__all__ = ["PROFILE", "QUESTIONS", "archive", "document", "imported", "name_of"]
