"""Which files of the checkout a program needs: the modules that it imports, and those they import.

What travels to other machines, packed, is found so and never listed by hand. Imports are read from
the sources, wherever in them they stand: one that waits in a function is needed as well. What a
program reads beside its imports, such as a file of data, has to be packed by name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Packages of the checkout; all others are somebody else's, and installed.
OWN = ("cluster", "playbooks", "roles", "validation")


def files_of(*programs: str, root: Path = ROOT) -> dict[str, bytes]:
    """The sources that these programs (their texts) need, by path from `root`.

    Packages that have no `__init__.py` get an empty one: nothing is imported from a folder of an
    archive without. Raises ModuleNotFoundError for a module that is not there.
    """
    sources: dict[str, bytes] = {}
    waiting = [name for program in programs for name in imported(program)]
    while waiting:
        name, needed = waiting.pop(0)
        place = _place(name, root)
        if place in sources:
            continue
        if place is None:
            if needed or not _names(sources, name, root):
                raise ModuleNotFoundError(f"there is no module {name} in {root}", name=name)
            continue
        path = root / place
        sources[place] = path.read_bytes() if path.exists() else b""
        waiting += imported(sources[place].decode())
        if parent := name.rpartition(".")[0]:
            waiting.append((parent, True))
    return dict(sorted(sources.items()))


def _place(name: str, root: Path) -> str | None:
    """Where a module's source lies below the root; None where there is none."""
    below = name.replace(".", "/")
    if (root / below).is_dir():
        return f"{below}/__init__.py"
    return f"{below}.py" if (root / f"{below}.py").is_file() else None


def _names(sources: Mapping[str, bytes], name: str, root: Path) -> bool:
    """Whether a name that is no module is a word of the module that it is imported from."""
    module, _, word = name.rpartition(".")
    source = sources.get(str(_place(module, root)), b"").decode()
    return re.search(rf"\b{word}\b", source) is not None


@cache
def imported(source: str) -> tuple[tuple[str, bool], ...]:
    """What of the checkout a source imports: absolute names, and whether each must be a module.

    Of `from a import b`, a must be one; a.b may be a module, or a name in a.
    """
    names = _imported(ast.parse(source))
    return tuple(dict.fromkeys(name for name in names if name[0].split(".")[0] in OWN))


def _imported(node: ast.AST) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, True) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            raise SyntaxError(f"line {node.lineno}: imports of the checkout are absolute")
        yield str(node.module), True
        yield from ((f"{node.module}.{alias.name}", False) for alias in node.names)
    else:
        parts: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.If) and _is_for_types(node.test):
            parts = node.orelse
        for part in parts:
            yield from _imported(part)


def _is_for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
