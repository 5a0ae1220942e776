"""Container images: as a site declares them, and as their manifests have them.

Modules find it as ansible.module_utils.container_images_entry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Image:
    """One image, as it is declared and as its manifest has it."""

    name: str
    image: str  # REGISTRY#REPOSITORY:TAG, as --container-image takes it
    licence: str
    description: str
    digest: str = ""
    date: str = ""
    size: int = 0

    @property
    def tag(self) -> str:
        return self.image.rpartition(":")[2]

    @property
    def title(self) -> str:
        return f"{self.name} {self.tag}"

    def file(self, root: Path) -> Path:
        return root / self.name / f"{self.tag}.sqsh"

    def manifest(self, root: Path) -> Path:
        return root / self.name / f".{self.tag}.json"

    def text(self) -> str:
        """Its manifest."""
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def image_of(entry: Mapping[str, Any]) -> Image:
    return Image(
        name=str(entry["name"]),
        image=str(entry["image"]),
        licence=" ".join(str(entry.get("licence") or "").split()),
        description=" ".join(str(entry.get("description") or "").split()),
        digest=str(entry.get("digest") or ""),
    )


def survey(root: Path) -> dict[Path, Image]:
    """Whole images that are there, by their files."""
    found = {}
    names = {field.name for field in fields(Image)}
    for path in sorted(root.glob("[!.]*/.*.json")):
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            said = json.loads(path.read_text("utf-8"))
            image = Image(**{name: value for name, value in said.items() if name in names})
            # A run that died between the two names: the file is another one.
            if image.file(root).stat().st_size == image.size:
                found[image.file(root)] = image
    return found
