"""Versions of data sets: as a site declares them, and as their manifests have them.

Modules find it as ansible.module_utils.datasets_entry; what is declared was judged before
(filter_plugins/datasets.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

# In the folder of a version, so that it comes and goes with it; hidden from *.
MANIFEST = ".dataset.json"

# The kind of an archive by the end of its name. What has none of them is published as it is.
KINDS = {
    ".tar": "tar",
    ".tar.gz": "tar",
    ".tgz": "tar",
    ".tar.bz2": "tar",
    ".tar.xz": "tar",
    ".txz": "tar",
    ".zip": "zip",
}


@dataclass(frozen=True)
class File:
    """One file that is fetched."""

    url: str
    sha256: str
    archive: str = "none"
    folder: str = ""  # below that of the version
    mirrors: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return file_name(self.url)

    @property
    def content(self) -> tuple[str, str, str, str]:
        """What of the version it decides."""
        return (self.sha256, self.archive, self.folder, self.name * (self.archive == "none"))


@dataclass(frozen=True)
class Dataset:
    """One version, as it is declared."""

    name: str
    version: str
    description: str
    source: str
    licence: str
    readers: str  # a group; "" is everybody
    files: tuple[File, ...]
    size: int = 0  # bytes of what is unpacked; 0 is not known

    @property
    def title(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def place(self) -> PurePosixPath:
        return PurePosixPath(self.name, self.version)

    @property
    def content(self) -> frozenset[tuple[str, str, str, str]]:
        return frozenset(file.content for file in self.files)


@dataclass(frozen=True)
class Published:
    """One version that is there: what was declared, and what came of it."""

    dataset: Dataset
    date: str
    files: int
    bytes: int

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def file_name(url: str) -> str:
    """The last part of an address."""
    return PurePosixPath(unquote(urlsplit(url).path)).name


def variable(name: str) -> str:
    """The environment variable with the folder of a data set."""
    return "DATASET_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def kind_of(name: str) -> str:
    """What an archive's name says that it is."""
    ends = (name[place:].lower() for place, letter in enumerate(name) if letter == ".")
    return next((KINDS[end] for end in ends if end in KINDS), "none")


def dataset_of(entry: Mapping[str, Any]) -> Dataset:
    """An entry of `datasets_published`."""
    return Dataset(
        name=str(entry["name"]),
        version=str(entry["version"]),
        description=" ".join(str(entry.get("description") or "").split()),
        source=str(entry.get("source") or ""),
        licence=" ".join(str(entry.get("licence") or "").split()),
        readers=str(entry.get("readers") or ""),
        files=tuple(_file_of(file) for file in entry.get("files") or []),
        size=int(entry.get("size") or 0),
    )


def _file_of(entry: Mapping[str, Any]) -> File:
    archive = str(entry.get("archive") or "auto")
    return File(
        url=str(entry["url"]),
        sha256=str(entry["sha256"]).lower(),
        archive=kind_of(file_name(str(entry["url"]))) if archive == "auto" else archive,
        folder=str(entry.get("folder") or "").strip("/"),
        mirrors=tuple(map(str, entry.get("mirrors") or ())),
    )


def published_of(text: str) -> Published:
    """A manifest. Raises ValueError for what is none."""
    try:
        found = json.loads(text)
        entry = found["dataset"]
        files = tuple(
            File(**{**_known(File, file), "mirrors": tuple(file["mirrors"])})
            for file in entry["files"]
        )
        dataset = Dataset(**{**_known(Dataset, entry), "files": files})
        return Published(dataset, found["date"], int(found["files"]), int(found["bytes"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no manifest: {error}") from None


def _known(kind: type, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Without what a later release of Plumbline may have written."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in entry.items() if name in names}
