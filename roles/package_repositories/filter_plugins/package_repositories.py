"""The role's filters: what is wrong with a list of repositories, and what was found of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from playbooks.filter_plugins.verify import verify_row, verify_skipped

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_SCHEMES = ("https://", "http://", "file:///")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_FINGERPRINT = re.compile(r"[0-9a-fA-F]{40}")

_MENDED = (None, "absent", "different", "never read")

Entry = Mapping[str, Any]


def problems(entries: Sequence[Entry]) -> list[str]:
    """A sentence for each thing that APT cannot be told, or that would not be safe."""
    counted = Counter(str(entry["name"]) for entry in entries)
    twice = [f"{name} is listed {times} times." for name, times in counted.items() if times > 1]
    return [
        *twice,
        *_shared(entries),
        *(f"{entry['name']}: {problem}." for entry in entries for problem in _problems(entry)),
    ]


def _shared(entries: Sequence[Entry]) -> Iterator[str]:
    """One address twice: each entry has a key of its own, and APT refuses all if they differ."""
    first: dict[tuple[str, str], str] = {}
    for entry in entries:
        for uri, suite in product(entry.get("uris") or [], entry.get("suites") or []):
            other = first.setdefault((str(uri).rstrip("/"), str(suite)), str(entry["name"]))
            if other != entry["name"]:
                yield f"{entry['name']}: {uri} {suite} is in {other} already; list it once."


def _problems(entry: Entry) -> Iterator[str]:
    if not _NAME.fullmatch(str(entry["name"])):
        yield "the name becomes that of a file; use lower case letters, digits, - and _"
    for key in ("uris", "suites"):
        if not entry.get(key):
            yield f"{key} is empty; give at least one"
    for key in ("uris", "suites", "components", "architectures"):
        for value in entry.get(key) or []:
            if not str(value) or re.search(r"\s", str(value)):
                yield f"{key} has {str(value)!r}, which is not one word"
    for address in [*(entry.get("uris") or []), entry["key_url"]]:
        if not str(address).startswith(_SCHEMES):
            yield f"{address} is no address; it begins with https://, http:// or file:///"
    flat = [str(suite).endswith("/") for suite in entry.get("suites") or []]
    if any(flat) and (not all(flat) or entry.get("components")):
        yield "a flat repository (suite /) has no other suite, and no components"
    elif flat and not any(flat) and not entry.get("components"):
        yield "its suites have components; list them, such as [main]"
    yield from _key_problems(entry)


def _key_problems(entry: Entry) -> Iterator[str]:
    sha256, fingerprint = entry.get("key_sha256") or "", entry.get("key_fingerprint") or ""
    if not sha256 and not fingerprint:
        yield "its key is not pinned; set key_fingerprint or key_sha256"
    if sha256 and not _SHA256.fullmatch(sha256):
        yield f"key_sha256 is {sha256!r}, which is not 64 hexadecimal digits"
    if fingerprint and not _FINGERPRINT.fullmatch("".join(fingerprint.split())):
        yield f"key_fingerprint is {fingerprint!r}, which is not the whole of 40 hexadecimal digits"


def rows(entries: Sequence[Entry], states: Mapping[str, str]) -> list[dict[str, str]]:
    """A row of the verify table for each repository, from what the module package_sources found."""
    component = "package_repositories"
    if not entries:
        return [verify_skipped(component, "repositories", "none is declared for this node")]
    return [
        verify_row(
            states.get(entry["name"]),
            component,
            f"repository {entry['name']}",
            "in place",
            # Any other state is a sentence, which says itself what to do.
            "apply the role package_repositories" if states.get(entry["name"]) in _MENDED else "",
        )
        for entry in entries
    ]


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"package_repositories_problems": problems, "package_repositories_rows": rows}
