"""Collects what the document of needs says (plugin_utils/needs.py) into the folder of a mirror."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from playbooks.mirror import images
from playbooks.mirror.archive import Package, Root, closure
from playbooks.mirror.store import MirrorError, Store
from playbooks.mirror.wheels import collect, write_indexes
from playbooks.plugin_utils.systems import ARCHITECTURES

_AT_ONCE = 4  # downloads

Told = Callable[[str], None]
Kind = Mapping[str, Any]


def make(store: Store, needs: Mapping[str, Any], also: Sequence[str], told: Told) -> None:
    """Fetches everything. Raises MirrorError, and the store keeps what it has fetched."""
    kinds: list[Kind] = list(needs["kinds"])
    files = {(file["url"], file["sha256"]) for kind in kinds for file in kind["files"]}
    told(f"{len(files)} files of releases")
    _fetch(store, sorted(files))
    for alike in _archives(kinds):
        _packages(store, alike, also, told)
    _wheels(store, kinds, told)
    _images(store, kinds, told)


def _archives(kinds: Iterable[Kind]) -> list[list[Kind]]:
    """Kinds whose hosts see the same archives, with the same preferences."""
    by_archive: dict[str, list[Kind]] = defaultdict(list)
    for kind in kinds:
        seen = [kind["system"], kind["repositories"], kind["pins"]]
        by_archive[json.dumps(seen, sort_keys=True)].append(kind)
    return list(by_archive.values())


def _packages(store: Store, kinds: Sequence[Kind], also: Sequence[str], told: Told) -> None:
    system, repositories = kinds[0]["system"], kinds[0]["repositories"]
    names = [host for kind in kinds for host in kind["hosts"]]
    told(
        f"packages of {system['distribution']} {system['distribution_version']} for {len(names)} "
        f"hosts, such as {names[0]}"
    )
    with tempfile.TemporaryDirectory(prefix="plumbline-mirror-") as folder:
        root = Root(Path(folder), store)
        sources = [
            {**source, "name": f"distribution{number}", "uris": [source["uri"]]}
            | {"key": source["keyring"]}
            for number, source in enumerate(system["sources"])
        ]
        for source in sources:
            if not Path(source["key"]).is_file():
                raise MirrorError(
                    f"{source['key']} is not on this machine, and without it nobody can tell "
                    f"{system['distribution']}'s packages from others; install the package that "
                    "has it (debian-archive-keyring, ubuntu-keyring)."
                )
        for entry in repositories:
            key = store.fetch(entry["key_url"], str(entry.get("key_sha256") or ""))
            armoured = key.read_bytes().lstrip().startswith(b"-----")
            # APT tells the format of a key by the ending of its name.
            copy = Path(folder) / f"{entry['name']}.{'asc' if armoured else 'gpg'}"
            copy.write_bytes(key.read_bytes())
            sources.append({**entry, "key": str(copy)})
        root.write(ARCHITECTURES[system["architecture"]], sources, kinds[0]["pins"])
        root.update()
        found = _resolved(root, store, kinds, also, told)
        told(f"{len(found)} packages of {system['distribution']} {system['distribution_version']}")
        _fetch(store, [(package.url, package.sha256) for package in found])
        root.indexes()


def _resolved(
    root: Root, store: Store, kinds: Sequence[Kind], also: Sequence[str], told: Told
) -> list[Package]:
    requests: dict[tuple[str, ...], None] = {}
    for kind in kinds:
        for wanted in kind["packages"]:
            of = [name for name in wanted["names"] if not _is_own(name, kind["own"])]
            if wanted["version"]:
                of = [root.versions(name, wanted["version"]) for name in of]
            if of:
                requests[tuple(of)] = None
        for shas in kind["debs"]:
            by_hash = {entry.sha256: name for name, entry in store.wanted.items()}
            requests[tuple(str((store.folder / by_hash[sha]).resolve()) for sha in shas)] = None
        for name in root.candidates(kind["wishes"]):
            requests[(name,)] = None
    for name in also:
        requests[(name,)] = None
    told(f"{len(requests)} requests to APT")
    present = {name for kind in kinds for name in kind.get("present", ())}
    return closure(root, requests, root.candidates({*present, *root.base()}), lambda _: None)


def _is_own(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _wheels(store: Store, kinds: Sequence[Kind], told: Told) -> None:
    indexes: dict[str, dict[str, str]] = defaultdict(dict)
    done: set[str] = set()
    for kind in kinds:
        machine = kind["system"]["architecture"]
        for wanted in kind["wheels"]:
            python = wanted.get("python") or kind["system"]["python"]
            key = json.dumps([machine, python, wanted], sort_keys=True)
            if key in done:
                continue
            done.add(key)
            lines = str(wanted["requirements"]).splitlines()
            first = next((line.split()[0] for line in lines if line[:1].isalnum()), "")
            told(f"wheels for Python {python} on {machine}: {first} and others")
            for index, links in collect(store, machine, python, wanted).items():
                indexes[index].update(links)
    write_indexes(store, indexes)


def _images(store: Store, kinds: Sequence[Kind], told: Told) -> None:
    """One host imports, and all may start the image: it comes for the architectures of all."""
    machines = {kind["system"]["architecture"] for kind in kinds}
    wanted = {each["image"]: each["digest"] for kind in kinds for each in kind["images"]}
    images.collect(store, machines, wanted, told)


def _fetch(store: Store, files: Sequence[tuple[str, str]]) -> None:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(lambda file: store.fetch(*file), files):
            pass


def fingerprint(needs: Mapping[str, Any]) -> str:
    """A hash of what a mirror was made for."""
    return hashlib.sha256(json.dumps(needs, sort_keys=True).encode()).hexdigest()
