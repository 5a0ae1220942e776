"""Versions of libraries: as a site declares them, and as their manifests have them.

Modules find it as ansible.module_utils.user_libraries_entry; what is declared was judged before
(filter_plugins/user_libraries.py).
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.module_utils.published import WORK

# In the folder of a version, so that they come and go with it; hidden from *. The second has all
# files, in the form of sha256sum.
MANIFEST, LISTING = ".library.json", ".library.sha256"
REQUIREMENTS = "requirements.txt"
MODULEFILES = ".modulefiles"
OPEN, CLOSED = 0o755, 0o700


@dataclass(frozen=True)
class Library:
    """One version, as it is declared."""

    name: str
    version: str
    description: str
    requirements: str  # the text of the lock file
    lock: str  # what it pins, as one hash
    python: str = "/usr/bin/python3"
    options: tuple[str, ...] = ()  # pip's, for where wheels come from
    imports: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def place(self) -> PurePosixPath:
        return PurePosixPath(self.name, self.version)


@dataclass(frozen=True)
class Built:
    """One version that is there: what was declared, and what came of it on this host."""

    name: str
    version: str
    description: str
    lock: str
    python: str  # 3.13
    machine: str  # as uname -m says
    content: str  # the hash that all hosts of this machine have in common
    packages: int
    files: int
    bytes: int
    date: str
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def place(self) -> PurePosixPath:
        return PurePosixPath(self.name, self.version)

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Places:
    """Where everything lies below the folder of all libraries."""

    root: Path

    @property
    def work(self) -> Path:
        return Path(self.root, WORK)

    @property
    def building(self) -> Path:
        return self.work / "building"

    @property
    def removed(self) -> Path:
        return self.work / "removed"

    @property
    def tools(self) -> Path:
        """Environments with pip, one for each Python; they go when a run ends."""
        return self.work / "tools"

    def work_of(self, place: PurePosixPath) -> Path:
        """There from before a version's folder is made until it is whole."""
        return self.building / place

    def folder(self, place: PurePosixPath) -> Path:
        return self.root / place

    def modulefile(self, place: PurePosixPath) -> Path:
        return self.root / MODULEFILES / f"{place}.lua"

    def is_open(self, place: PurePosixPath) -> bool:
        """Whether users may enter it: it is published then."""
        return stat.S_IMODE(self.folder(place).lstat().st_mode) == OPEN


def library_of(entry: Mapping[str, Any]) -> Library:
    """An entry as the role's filter gives it."""
    return Library(
        name=str(entry["name"]),
        version=str(entry["version"]),
        description=" ".join(str(entry.get("description") or "").split()),
        requirements=str(entry.get("requirements") or ""),
        lock=str(entry.get("lock") or ""),
        python=str(entry.get("python") or "/usr/bin/python3"),
        options=tuple(map(str, entry.get("options") or ())),
        imports=tuple(map(str, entry.get("imports") or ())),
    )


def built_of(text: str) -> Built:
    """A manifest. Raises ValueError for what is none."""
    try:
        found = json.loads(text)
        names = {each.name for each in fields(Built)}
        # Without what a later release of Plumbline may have written.
        return Built(**{name: value for name, value in found.items() if name in names})
    except (TypeError, AttributeError) as error:
        raise ValueError(f"no manifest: {error}") from None


def survey(root: Path) -> dict[PurePosixPath, Built]:
    """The versions that are whole, by their place below the root; open ones and others."""
    found = {}
    for path in sorted(root.glob(f"[!.]*/[!.]*/{MANIFEST}")):
        with suppress(ValueError):
            built = built_of(path.read_text("utf-8"))
            if built.place == PurePosixPath(path.parent.relative_to(root)):
                found[built.place] = built
    return found
