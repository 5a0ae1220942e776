"""What APT would install of the archives that GPU nodes use, without a node and without a network.

The archives are tests/gpu_archives/*.yml. A `System` has them as flat repositories, a status file
of its own, and APT's own commands read both, with `APT_CONFIG` and `DPKG_ADMINDIR` in the
environment: so the roles' modules ask it as they ask a node.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ARCHIVES = Path(__file__).with_name("gpu_archives")
RELATIONS = ("depends", "provides", "conflicts", "replaces")
# What every system has and no archive here needs to bring.
BASE = ("adduser",)

APT_CONF = """\
Dir "{root}";
Dir::State::status "{root}/dpkg/status";
Dir::Bin::methods "/usr/lib/apt/methods";
Dir::Bin::dpkg "/usr/bin/dpkg";
APT::Architecture "amd64";
APT::Architectures {{"amd64";}};
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
Debug::NoLocking "true";
"""


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    version: str
    relations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def stanza(self, *extra: str) -> str:
        """Its entry in a Packages file, or with a Status in dpkg's."""
        lines = [f"Package: {self.name}", *extra, f"Version: {self.version}", "Architecture: amd64"]
        lines += ["Maintainer: nobody", "Description: metadata only"]
        lines += [f"{key.title()}: {', '.join(of)}" for key, of in self.relations.items() if of]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Archive:
    """One archive as one system has it."""

    name: str
    flavour: str
    kernels: Mapping[str, str]
    versions: Sequence[str]
    packages: Sequence[Package]


def number(version: str) -> str:
    """580.95.05 of 580.95.05-0ubuntu1."""
    return version.partition("-")[0]


@cache
def documents() -> dict[str, dict[str, Any]]:
    read = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in ARCHIVES.glob("*.yml"))
    return {
        f"{document['archive']} {system}": document for document in read
        for system in document["systems"]
    }  # fmt: skip


def archive(
    name: str,
    system: str,
    *,
    kernels: Mapping[str, str] | None = None,
    versions: Sequence[str] | None = None,
) -> Archive:
    """An archive as `system` has it, or at another date: with other kernels or versions."""
    document = documents()[f"{name} {system}"]
    of = document["systems"][system]
    kernels = of.get("kernels", {}) if kernels is None else kernels
    versions = of.get("versions", ()) if versions is None else versions
    flavour = of.get("flavour", "")
    found = {
        package.name + package.version: package
        for entry in document["packages"]
        for words in _words(entry, versions, kernels, flavour)
        for package in [_package(entry, words)]
    }
    return Archive(name, flavour, kernels, versions, list(found.values()))


def _words(
    entry: Mapping[str, Any], versions: Sequence[str], kernels: Mapping[str, str], flavour: str
) -> Iterator[dict[str, str]]:
    """What an entry's words stand for, once for each package that it makes."""
    text = str(entry)
    drivers = [
        {"branch": number(version).partition(".")[0], "number": number(version), "version": version}
        for version in versions
    ]
    kept = [
        words
        for words in drivers
        if entry.get("from", 0) <= int(words["branch"]) < entry.get("before", 9999)
    ]
    of_drivers = kept if "{branch}" in text or "version" not in entry else [{}]
    of_kernels = [
        {"abi": abi, "kernel_version": version, "flavour": flavour}
        for abi, version in kernels.items()
    ]
    # A metapackage is there once, for the newest kernel and the newest driver of a branch.
    if "{flavour}" in entry["name"] and "{abi}" not in entry["name"]:
        of_kernels = of_kernels[-1:]
        of_drivers = list({words.get("branch"): words for words in of_drivers}.values())
    elif "{abi}" in entry["name"]:
        of_drivers = list({words.get("branch"): words for words in of_drivers}.values())
    for words in of_drivers:
        for of_kernel in of_kernels if "{flavour}" in text else [{}]:
            yield words | of_kernel


def _package(entry: Mapping[str, Any], words: Mapping[str, str]) -> Package:
    return Package(
        name=entry["name"].format_map(words),
        version=str(entry.get("version", "{version}")).format_map(words),
        relations={
            key: tuple(relation.format_map(words) for relation in entry[key])
            for key in RELATIONS
            if key in entry
        },
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What APT said that it would do."""

    status: int
    output: str
    installs: Mapping[str, str]
    removes: Sequence[str]


class System:
    """A machine as APT sees it: archives, preferences, and what is installed and held."""

    def __init__(self, root: Path, archives: Sequence[Archive]) -> None:
        self.root = root
        self.installed: dict[str, Package] = {}
        self.held: set[str] = set()
        for folder in ("etc/apt/preferences.d", "etc/apt/apt.conf.d", "dpkg/info", "dpkg/updates"):
            (root / folder).mkdir(parents=True)
        for folder in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
            (root / folder).mkdir(parents=True)
        (root / "apt.conf").write_text(APT_CONF.format(root=root))
        self.clear()
        self.offer(archives)

    def clear(self) -> None:
        """Has nothing installed, held or preferred but what every system has."""
        self.installed, self.held = {}, set()
        for path in (self.root / "etc/apt/preferences.d").iterdir():
            path.unlink()
        self.put(*(Package(name, "1") for name in BASE))

    def offer(self, archives: Sequence[Archive]) -> None:
        """Has these archives from now on, and reads their lists."""
        self.known = {
            (package.name, package.version): package for of in archives for package in of.packages
        }
        shutil.rmtree(self.root / "archives", ignore_errors=True)
        sources = []
        for of in archives:
            folder = self.root / "archives" / of.name
            folder.mkdir(parents=True)
            text = "\n".join(package.stanza(f"Filename: {package.name}.deb", "Size: 1", "SHA256: 0")
                             for package in of.packages)  # fmt: skip
            (folder / "Packages").write_text(text)
            digest = hashlib.sha256(text.encode()).hexdigest()
            (folder / "Release").write_text(
                f"Label: {of.name}\nDate: Sat, 28 Nov 2026 00:00:00 UTC\n"
                f"SHA256:\n {digest} {len(text.encode())} Packages\n"
            )
            sources.append(f"deb [trusted=yes] file:{folder} ./\n")
        (self.root / "etc/apt/sources.list").write_text("".join(sources))
        done = self.run("apt-get", "update", "-qq")
        assert done.returncode == 0, done.stderr

    @property
    def environment(self) -> dict[str, str]:
        return {
            "APT_CONFIG": str(self.root / "apt.conf"),
            "DPKG_ADMINDIR": str(self.root / "dpkg"),
            "LC_ALL": "C",
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, check=False,
            env=os.environ | self.environment,
        )  # fmt: skip

    def put(self, *packages: Package, remove: Iterable[str] = ()) -> None:
        """Has these packages installed, and others no longer."""
        for name in remove:
            self.installed.pop(name)
            self.held.discard(name)
        self.installed |= {package.name: package for package in packages}
        self._write()

    def hold(self, names: Iterable[str]) -> None:
        self.held |= set(names)
        self._write()

    def _write(self) -> None:
        stanzas = [
            package.stanza(f"Status: {'hold' if name in self.held else 'install'} ok installed")
            for name, package in self.installed.items()
        ]
        (self.root / "dpkg/status").write_text("\n".join(stanzas))

    def prefer(self, name: str, text: str) -> None:
        """Writes a file of preferences, as a role does."""
        (self.root / f"etc/apt/preferences.d/{name}.pref").write_text(text)

    def simulate(self, *command: str) -> Outcome:
        """What `apt-get COMMAND` would do."""
        done = self.run("apt-get", "--simulate", "--yes", *command)
        installs = dict(
            re.findall(r"^Inst (\S+)(?: \[[^]]*\])? \((\S+)", done.stdout, re.MULTILINE)
        )
        removes = re.findall(r"^Remv (\S+)", done.stdout, re.MULTILINE)
        return Outcome(done.returncode, done.stdout + done.stderr, installs, removes)

    def apply(self, *command: str) -> Outcome:
        """The same, and has it done."""
        outcome = self.simulate(*command)
        if outcome.status == 0:
            packages = [self.known[found] for found in outcome.installs.items()]
            self.put(*packages, remove=[name for name in outcome.removes if name in self.installed])
        return outcome
