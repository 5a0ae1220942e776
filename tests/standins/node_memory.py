"""What nodes that do not exist remember: a file for each, and what their files have in them.

FOLDER/nodes/NAME         files and what was copied, path -> SHA-1, and what was asked
FOLDER/contents/SHA-1     a content
FOLDER/unfit.json         nodes that are unfit, name -> "off" or "small"; nobody is, without it
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Memory:
    files: dict[str, str] = field(default_factory=dict)
    copied: dict[str, str] = field(default_factory=dict)
    done: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Memories:
    folder: Path

    def make_unfit(self, how: Mapping[str, str]) -> None:
        """From now on these nodes do not answer (off), or have too little memory (small)."""
        (self.folder / "unfit.json").write_text(json.dumps(dict(how)))

    def unfit(self, name: str) -> str:
        """How a node is unfit; empty for one that is not."""
        try:
            how: str = json.loads((self.folder / "unfit.json").read_text()).get(name, "")
        except FileNotFoundError:
            return ""
        return how

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "nodes").iterdir())

    def of(self, name: str, at_first: Mapping[str, bytes]) -> Memory:
        """A node that was never asked has the files of `at_first`."""
        try:
            return Memory(**json.loads((self.folder / "nodes" / name).read_text()))
        except FileNotFoundError:
            return Memory({path: self.keep(content) for path, content in at_first.items()})

    def remember(self, name: str, memory: Memory) -> None:
        file = self.folder / "nodes" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(asdict(memory)))

    def keep(self, content: bytes) -> str:
        key = hashlib.sha1(content).hexdigest()
        file = self.folder / "contents" / key
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        return key

    def content(self, key: str) -> bytes:
        return (self.folder / "contents" / key).read_bytes()

    def size(self, key: str) -> int:
        return (self.folder / "contents" / key).stat().st_size

    def make_like(self, other: str, name: str) -> None:
        """The node `other` remembers what `name` does; a file with that name in it has its own."""
        memory = self.of(name, {})
        for path, key in memory.files.items():
            own = self.content(key).replace(name.encode(), other.encode())
            memory.files[path] = self.keep(own)
        self.remember(other, memory)
