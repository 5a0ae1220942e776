"""What is wrong with the container images that a site declares, as sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

Entry = Mapping[str, Any]

LIST = "container_images_published"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
IMAGE = re.compile(r"([^#@/\s]+#)?[a-z0-9][a-z0-9/._-]*:[A-Za-z0-9_][A-Za-z0-9._-]*")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
PATH = re.compile(r"(/[A-Za-z0-9._+@=,-]+)+")


def container_images_problems(
    entries: Sequence[Entry], root: str, folder: str, shared_filesystems: Iterable[str]
) -> list[str]:
    """A sentence for each thing that cannot be imported."""
    problems = [*_folders(root, folder, [str(path) for path in shared_filesystems])]
    for number, entry in enumerate(entries):
        problems += _entry(f"{LIST}[{number}]", entry)
    return problems or [*_together(entries)]


def _folders(root: str, folder: str, shared: Sequence[str]) -> Iterator[str]:
    for name, path in (
        ("container_images_root", root),
        ("container_images_prefetch_folder", folder),
    ):
        if path and (not PATH.fullmatch(path) or ".." in path.split("/")):
            yield (
                f"{name} is {path!r}; give the full path of a folder, of letters, digits and "
                "._+@=,- without a slash at its end"
            )
    if shared and not any(root.startswith(f"{path}/") for path in shared):
        yield (
            f"container_images_root is {root}, which is below none of the shared filesystems "
            f"({', '.join(shared)}); choose a folder below one of them"
        )


def _entry(place: str, entry: Entry) -> Iterator[str]:
    name, image = str(entry.get("name") or ""), str(entry.get("image") or "")
    if not NAME.fullmatch(name):
        yield (
            f'{place}.name is "{name}"; a name is made of small letters, digits and ._-, and '
            "begins with a letter or digit"
        )
    if "#" not in image and "/" in image and "." in image.partition("/")[0]:
        yield (
            f"{place}.image is {image}; separate the registry with #, as enroot does: "
            f"{image.replace('/', '#', 1)}"
        )
    elif not IMAGE.fullmatch(image):
        yield (
            f'{place}.image is "{image}"; give REGISTRY#REPOSITORY:TAG, such as '
            "nvcr.io#nvidia/pytorch:25.06-py3, and the digest in `digest`"
        )
    if entry.get("state") == "absent":
        return
    if not str(entry.get("licence") or "").strip():
        yield f"{place} ({name}) has no licence; give the terms under which users may use it"
    if not str(entry.get("description") or "").strip():
        yield f"{place} ({name}) has no description; give one sentence about what it is"
    digest = str(entry.get("digest") or "")
    if digest and not DIGEST.fullmatch(digest):
        yield f"{place}.digest is {digest!r}; give sha256: and 64 digits, as enroot digest prints"


def _together(entries: Iterable[Entry]) -> Iterator[str]:
    files = Counter(
        f"{entry['name']}/{str(entry['image']).rpartition(':')[2]}.sqsh" for entry in entries
    )
    for file, times in files.items():
        if times > 1:
            yield f"{file} is {times} times in {LIST}; leave one, or give them different names"


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"container_images_problems": container_images_problems}
