"""The folder of a mirror: each file by its address, and a manifest that says what each must be.

`http://deb.debian.org/debian/pool/…` lies at `deb.debian.org/debian/pool/…`, so that any web server
can serve the folder. A file takes its name only whole and with the hash that it must have, and the
manifest is replaced last: an interrupted run leaves what was there, and the next goes on.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from cluster.files import write_whole
from playbooks.module_utils.download import NoFile, other_hash, resume

MANIFEST: Final = "manifest.json"
PARTS: Final = ".parts"
TIMEOUT_S: Final = 60
_CHUNK: Final = 2**20


class MirrorError(Exception):
    """One sentence."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a mirror."""

    url: str
    sha256: str
    size: int


def path_of(url: str) -> str:
    """Where a file of this address lies in the folder. Raises MirrorError.

    >>> path_of("https://apt.example.org/pool/libstdc%2b%2b6.deb")
    'apt.example.org/pool/libstdc++6.deb'
    """
    parts = urlsplit(url)
    path = PurePosixPath(unquote(parts.path).lstrip("/"))
    wrong = parts.scheme not in {"http", "https"} or parts.query or parts.username
    if wrong or not parts.netloc or ".." in path.parts or not path.parts:
        raise MirrorError(
            f"{url} cannot be in a mirror: only files with a plain address, http or https, can."
        )
    return f"{parts.netloc}/{path}"


def digest(path: Path) -> str:
    """SHA-256 of a file; "" where there is none."""
    sha256 = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                sha256.update(chunk)
    except FileNotFoundError:
        return ""
    return sha256.hexdigest()


@dataclass(slots=True)
class Store:
    """A folder, what it has, and what this run wants of it. Several threads may fetch."""

    folder: Path
    had: Mapping[str, Entry]
    # Addresses that begin so are asked elsewhere, as a near copy of the distribution's archive.
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    wanted: dict[str, Entry] = field(default_factory=dict)
    fetched: int = 0
    _lock: Any = field(default_factory=threading.Lock)

    def asked_at(self, url: str) -> str:
        for begins, instead in self.elsewhere.items():
            if url.startswith(f"{begins}/"):
                return instead + url.removeprefix(begins)
        return url

    def known_as(self, url: str) -> str:
        """The address of something that was asked elsewhere."""
        for begins, instead in self.elsewhere.items():
            if url.startswith(f"{instead}/"):
                return begins + url.removeprefix(instead)
        return url

    def fetch(self, url: str, sha256: str = "") -> Path:
        """Brings a file; without a hash it is asked for anew. Raises MirrorError."""
        name = path_of(url)
        path = self.folder / name
        sha256 = sha256.lower()
        if sha256 and (self._has(name, sha256) or digest(path) == sha256):
            return self._want(name, url, sha256, path)
        part = self.folder / PARTS / hashlib.sha256(f"{url} {sha256}".encode()).hexdigest()
        part.parent.mkdir(parents=True, exist_ok=True)
        if not sha256:
            part.unlink(missing_ok=True)  # what is there may be of another file
        try:
            found = resume(self.asked_at(url), part, TIMEOUT_S)
        except NoFile as error:
            raise MirrorError(f"{error}.") from None
        if sha256 and (problem := other_hash(found, sha256)):
            part.unlink()
            raise MirrorError(
                f"{self.asked_at(url)} {problem}: it is being renewed, or it is another file; "
                "run again."
            )
        return self._place(name, url, found, part)

    def put(self, url: str, data: bytes) -> Path:
        """A file whose bytes are known."""
        name, sha256 = path_of(url), hashlib.sha256(data).hexdigest()
        path = self.folder / name
        if digest(path) != sha256:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data, 0o644)
        return self._want(name, url, sha256, path)

    def keep(self, url: str, sha256: str) -> bool:
        """Whether the file is there from before; it is wanted again."""
        name = path_of(url)
        if self._has(name, sha256):
            self._want(name, url, sha256, self.folder / name)
            return True
        return False

    def take(self, url: str, brought: Path, sha256: str) -> Path:
        """A file that another program brought, which is moved here. Raises MirrorError."""
        if digest(brought) != sha256:
            raise MirrorError(f"what was brought for {url} does not have its SHA-256; run again.")
        return self._place(path_of(url), url, sha256, brought)

    def _place(self, name: str, url: str, sha256: str, whole: Path) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        whole.replace(path)
        path.chmod(0o644)
        with self._lock:
            self.fetched += path.stat().st_size
        return self._want(name, url, sha256, path)

    def _has(self, name: str, sha256: str) -> bool:
        """Whether an earlier run brought it; `check` reads every byte, this reads none."""
        entry, path = self.had.get(name), self.folder / name
        return (
            entry is not None
            and entry.sha256 == sha256
            and path.is_file()
            and path.stat().st_size == entry.size
        )

    def _want(self, name: str, url: str, sha256: str, path: Path) -> Path:
        with self._lock:
            self.wanted[name] = Entry(url, sha256, path.stat().st_size)
        return path

    # --- at the end ---

    def superfluous(self) -> list[str]:
        """Files that this run does not want any more, manifest or not."""
        return [name for name in files_of(self.folder) if name not in self.wanted]

    def end(self, about: Mapping[str, Any], *, prune: bool) -> None:
        """Writes the manifest: what is wanted now, and what stays of before until it is pruned."""
        entries = dict(self.wanted)
        if not prune:
            entries = {**self.had, **entries}
        document = {
            **about,
            "files": {name: asdict(entries[name]) for name in sorted(entries)},
        }
        write_whole(self.folder / MANIFEST, json.dumps(document, indent=1) + "\n", 0o644)
        if prune:
            for name in self.superfluous():
                (self.folder / name).unlink()
            for folder in sorted(self.folder.rglob("*"), reverse=True):
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()


def files_of(folder: Path) -> Iterator[str]:
    """The files of a mirror by their names in it, without the manifest and what is half there."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and name != MANIFEST and not name.startswith(f"{PARTS}/"):
            yield name


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest; an empty one where there is none. Raises MirrorError."""
    path = folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {"files": {}}
    try:
        document = json.loads(text)
        entries_of(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MirrorError(f"{path} is no manifest of a mirror: {error}.") from None
    return dict(document)


def entries_of(manifest: Mapping[str, Any]) -> dict[str, Entry]:
    return {
        str(name): Entry(str(of["url"]), str(of["sha256"]), int(of["size"]))
        for name, of in manifest["files"].items()
    }


def problems(folder: Path, told: Callable[[str], None] = lambda _: None) -> list[str]:
    """What is wrong with a mirror, a sentence each: every byte is read."""
    manifest = read_manifest(folder)
    entries = entries_of(manifest)
    if not entries:
        return [f"{folder} has no files of a mirror; run `scripts/mirror make` first."]
    wrong = []
    for name, entry in entries.items():
        told(name)
        found = digest(folder / name)
        if not found:
            wrong.append(f"{name} is missing; run `scripts/mirror make` again.")
        elif found != entry.sha256:
            wrong.append(
                f"{name} has the SHA-256 {found}, and the manifest {entry.sha256}; remove the file "
                "and run `scripts/mirror make` again."
            )
    return wrong
