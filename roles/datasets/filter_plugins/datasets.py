"""What is wrong with the data sets that a site declares, as sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from roles.datasets.module_utils.datasets_entry import file_name, kind_of, variable

Entry = Mapping[str, Any]

LIST = "datasets_published"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
GROUP = re.compile(r"[a-z_][a-z0-9_-]*")
SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
SCHEMES = ("https", "http", "file")
# Ends of archives that Python on the nodes does not unpack.
OTHERS = re.compile(r"[.](tar[.](zst|lz|lz4|z)|tzst|7z|rar|zst)$", re.IGNORECASE)
WORDS = {
    "description": "one sentence about what it is",
    "source": "the address of a page about it",
    "licence": "its licence, such as CC-BY-4.0, or the words under which you may use it",
}


def datasets_problems(
    entries: Sequence[Entry], root: str, shared_filesystems: Iterable[str]
) -> list[str]:
    """A sentence for each thing that cannot be published."""
    problems = [*_root(root, [str(path).rstrip("/") for path in shared_filesystems])]
    for number, entry in enumerate(entries):
        unnamed = [*_naming(number, entry)]
        problems += unnamed or [
            f"{entry['name']} {entry['version']} {sentence}" for sentence in _entry(entry)
        ]
    return problems or [*_together(entries)]


def _root(root: str, shared: Sequence[str]) -> Iterator[str]:
    if not re.fullmatch(r"(/[A-Za-z0-9._+@=,-]+)+", root) or ".." in root.split("/"):
        yield (
            f"datasets_root is {root!r}; give the full path of a folder, of letters, digits and "
            "._+@=,- without a slash at its end"
        )
    elif shared and not any(f"{root}/".startswith(f"{path}/") for path in shared):
        yield (
            f"datasets_root is {root}, which is on none of the shared filesystems "
            f"({', '.join(shared)}); choose a folder below one of them"
        )
    elif root in shared:
        yield f"datasets_root is {root}, a whole shared filesystem; choose a folder below it"


def _naming(number: int, entry: Entry) -> Iterator[str]:
    for key, pattern, made_of in (
        ("name", NAME, "small letters, digits and ._-, and begins with a letter or digit"),
        ("version", VERSION, "letters, digits and ._+-, and begins with a letter or digit"),
    ):
        value = entry.get(key, "")
        if not isinstance(value, str):
            yield (
                f"{LIST}[{number}].{key} is the number {value}, which may not be what was written "
                f'(3.10 is 3.1); put it in quotes: "{value}"'
            )
        elif not pattern.fullmatch(value) or value.lower() in {"default", "readme.md"}:
            yield (
                f'{LIST}[{number}].{key} is "{value}"; a {key} is made of {made_of}, and is not '
                "default or README.md"
            )


def _entry(entry: Entry) -> Iterator[str]:
    """What is wrong with a version by itself, after its name."""
    if entry.get("state") == "absent":
        return
    for key, words in WORDS.items():
        if not str(entry.get(key) or "").strip():
            yield f"has no {key}; give {words}"
    readers = entry.get("readers") or ""
    if readers and not GROUP.fullmatch(str(readers)):
        yield f"has the readers {readers!r}; give the name of one group, or leave it out"
    files = entry.get("files") or []
    if not files:
        yield "has no files; give each one's url and sha256"
    for file in files:
        yield from _file(file)
    places = Counter(
        str(PurePosixPath(str(file.get("folder") or ""), file_name(str(file.get("url")))))
        for file in files
    )
    for place, times in places.items():
        if times > 1:
            yield f"has {times} files {place}; give them different folders"


def _file(file: Entry) -> Iterator[str]:
    url, archive = str(file.get("url") or ""), file.get("archive") or "auto"
    for address in (url, *(file.get("mirrors") or [])):
        parts = urlsplit(str(address))
        if parts.scheme not in SCHEMES or not (parts.netloc or parts.scheme == "file"):
            yield f"has the address {address!r}; give one of https:, http: or file:///"
        elif "@" in parts.netloc:
            yield (
                "has an address with a password in it, and users read the addresses; fetch the "
                "file by hand and give file:///PATH"
            )
    if not file_name(url):
        yield f"has the address {url!r}, which ends with no name of a file; give one that does"
    if not SHA256.fullmatch(str(file.get("sha256") or "")):
        yield f"has no SHA-256 of {file_name(url)}; give the 64 digits of its publisher"
    if archive == "auto" and kind_of(file_name(url)) == "none" and OTHERS.search(file_name(url)):
        yield (
            f"has {file_name(url)}, which cannot be unpacked here; set `archive: none` to publish "
            "it packed, or give a .tar, .tar.gz, .tar.bz2, .tar.xz or .zip"
        )
    folder = PurePosixPath(str(file.get("folder") or ""))
    if folder.is_absolute() or ".." in folder.parts:
        yield f"has the folder {folder}, which leaves the version's; give one below it"


def _together(entries: Iterable[Entry]) -> Iterator[str]:
    named = Counter((entry["name"], entry["version"]) for entry in entries)
    for (name, version), times in named.items():
        if times > 1:
            yield f"{name} {version} is {times} times in {LIST}; leave one"
    variables: dict[str, str] = {}
    for name in dict.fromkeys(name for name, _ in named):
        other = variables.setdefault(variable(name), name)
        if other != name:
            yield f"{name} and {other} would both set {variable(name)}; rename one of them"


def datasets_folders(entries: Iterable[Entry], root: str) -> dict[str, list[str]]:
    """Folders of what is declared: `open` to everybody, or `closed` to those outside a group."""
    folders: dict[str, list[str]] = {"open": [], "closed": []}
    for entry in entries:
        if entry.get("state") != "absent":
            kind = "closed" if entry.get("readers") else "open"
            folders[kind].append(f"{root}/{entry['name']}/{entry['version']}")
    return folders


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "datasets_problems": datasets_problems,
            "datasets_folders": datasets_folders,
        }
