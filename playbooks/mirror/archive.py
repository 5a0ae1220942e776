"""Packages with all that they need, as APT itself resolves them, in a root of its own.

The root has no packages installed, so that even libc is among what is needed, and knows nothing of
this machine but how it reaches the network. APT verifies the signatures of indexes here, and nodes
verify the same signatures again: the mirror has the indexes as upstream signed them.
"""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from playbooks.mirror.store import MirrorError, Store
from playbooks.module_utils.package_version import fits

# Of this machine's settings those that say how the network is reached.
_KEPT: Final = re.compile(r"Acquire::https?::(Proxy|Verify|CaInfo)|Acquire::Retries", re.IGNORECASE)
# In the order of liking; an index has at least one of them.
_COMPRESSED: Final = (".xz", ".gz", ".bz2", "")
# A server as it is installed, before any role: what is there is also upgraded from the mirror.
_PRIORITIES: Final = frozenset({"required", "important", "standard"})
_SERVER: Final = (
    *("ca-certificates", "curl", "dbus", "iproute2", "libpam-systemd", "openssh-server"),
    *("procps", "python3", "python3-apt", "sudo", "systemd", "systemd-sysv"),
)


@dataclass(frozen=True, slots=True)
class Package:
    """A package file, as APT would fetch it."""

    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Root:
    """APT with sources and preferences of its own."""

    folder: Path
    store: Store

    def write(
        self,
        architecture: str,
        sources: Sequence[Mapping[str, Any]],
        pins: Sequence[Mapping[str, Any]],
    ) -> None:
        """`sources`: name, uris, suites, components, architectures and the key's file."""
        for part in (
            *("etc/apt/apt.conf.d", "etc/apt/preferences.d", "etc/apt/sources.list.d"),
            *("etc/apt/trusted.gpg.d", "var/lib/apt/lists/partial", "var/lib/dpkg"),
            "var/cache/apt/archives/partial",
        ):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        (self.folder / "var/lib/dpkg/status").touch()
        for source in sources:
            path = self.folder / "etc/apt/sources.list.d" / f"{source['name']}.sources"
            path.write_text(self._source(source), encoding="utf-8")
        paragraphs = [*_preferences(pins)]
        for source in sources:
            host = urlsplit(self.store.asked_at(f"{source['uris'][0]}/")).hostname or ""
            paragraphs += _preferences(source.get("pins") or (), f'origin "{host}"')
        preferences = self.folder / "etc/apt/preferences.d/pins.pref"
        preferences.write_text("\n".join(paragraphs), encoding="utf-8")
        (self.folder / "apt.conf").write_text(self._settings(architecture), encoding="utf-8")

    def _source(self, source: Mapping[str, Any]) -> str:
        lines = {
            "Types": "deb",
            "URIs": " ".join(
                self.store.asked_at(f"{uri.rstrip('/')}/").rstrip("/") for uri in source["uris"]
            ),
            "Suites": " ".join(source["suites"]),
            "Components": " ".join(source.get("components") or ()),
            "Architectures": " ".join(source.get("architectures") or ()),
            "Signed-By": str(source["key"]),
        }
        return "".join(f"{name}: {value}\n" for name, value in lines.items() if value)

    def _settings(self, architecture: str) -> str:
        dumped = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True)
        kept = [line for line in dumped.stdout.splitlines() if _KEPT.match(line)]
        own = {
            "Dir": str(self.folder),
            "Dir::State::status": str(self.folder / "var/lib/dpkg/status"),
            "Dir::Etc::main": "/dev/null",
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "",
            "APT::Install-Recommends": "false",
            "Acquire::ForceHash": "SHA256",
            "Acquire::Languages": "none",
            "Acquire::PDiffs": "false",
            "Acquire::Retries": "3",
            "Debug::NoLocking": "true",
        }
        return "\n".join([*kept, *(f'{name} "{value}";' for name, value in own.items()), ""])

    def _run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        # APT_CONFIG is read last but for the command line: Dir holds for all of APT's programs.
        environment = {**os.environ, "LC_ALL": "C", "APT_CONFIG": str(self.folder / "apt.conf")}
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)

    def update(self) -> None:
        """Reads the indexes; APT verifies who signed them. Raises MirrorError."""
        done = self._run("apt-get", "--option=APT::Update::Error-Mode=any", "update")
        if done.returncode:
            raise MirrorError(f"APT cannot read the package archives: {_said(done)}")

    def indexes(self) -> None:
        """Puts the indexes into the store, as upstream signed them."""
        shown = self._run(
            *("apt-get", "indextargets", "--format", "$(URI)\t$(METAKEY)\t$(FILENAME)"),
            "Created-By: Packages",
        )
        by_release: dict[tuple[str, str], list[str]] = {}
        for line in shown.stdout.splitlines():
            uri, key, filename = line.split("\t")
            base = uri.removesuffix(key)
            prefix = filename.removesuffix(key.replace("/", "_"))
            by_release.setdefault((base, prefix), []).append(key)
        if not by_release:
            raise MirrorError(f"APT knows no indexes: {_said(shown)}")
        for (base, prefix), keys in by_release.items():
            url = self.store.known_as(base)
            signed = Path(f"{prefix}InRelease")
            files = [signed] if signed.exists() else [Path(f"{prefix}{name}") for name in _TWO]
            listed = _hashes(files[0].read_text(encoding="utf-8"))
            for key in dict.fromkeys(keys):
                name = next((key + end for end in _COMPRESSED if key + end in listed), None)
                if name:
                    self.store.fetch(url + name, listed[name])
            # Last: what they name is there then.
            for file in files:
                self.store.put(url + file.name.removeprefix(Path(prefix).name), file.read_bytes())

    def resolve(self, names: Sequence[str]) -> list[Package]:
        """Files of packages and of all that they need. Raises MirrorError."""
        done = self._run(
            *("apt-get", "--yes", "--quiet=2", "--print-uris", "--no-install-recommends"),
            *("--allow-downgrades", "install", *names),
        )
        if done.returncode:
            raise MirrorError(f"APT cannot install {', '.join(names)}: {_said(done)}")
        packages = []
        for line in done.stdout.splitlines():
            if match := re.match(r"'(https?:[^']+)' \S+ \d+ SHA256:([0-9a-f]{64})", line):
                packages.append(Package(self.store.known_as(match[1]), match[2]))
            elif line.startswith("'http"):
                raise MirrorError(f"the archive has no SHA-256 of {line.split()[1]}.")
        return packages

    def versions(self, name: str, version: str) -> str:
        """`NAME=VERSION` in the newest version that fits. Raises MirrorError."""
        shown = self._run("apt-cache", "madison", name).stdout
        offered = [line.split("|")[1].strip() for line in shown.splitlines() if "|" in line]
        for each in offered:
            if fits(each, version):
                return f"{name}={each}"
        raise MirrorError(
            f"no archive has {name} {version}; they have {', '.join(offered) or 'none'}."
        )

    def candidates(self, patterns: Iterable[str]) -> list[str]:
        """Those packages of the archives that fit one of the patterns and can be installed."""
        wanted = list(patterns)
        known = self._run("apt-cache", "pkgnames").stdout.split()
        names = [each for each in known if any(fnmatch.fnmatchcase(each, of) for of in wanted)]
        if not names:
            return []
        shown = self._run("apt-cache", "policy", *names).stdout
        found = re.findall(r"^(\S+):\n  Installed: .*\n  Candidate: (?!\(none\))", shown, re.M)
        return sorted(found)

    def base(self) -> list[str]:
        """The packages of a server as it is installed."""
        shown = self._run("apt-cache", "dumpavail").stdout
        found = set(_SERVER)
        for paragraph in shown.split("\n\n"):
            fields = dict(re.findall(r"^(Package|Priority): (\S+)$", paragraph, re.M))
            if fields.get("Priority") in _PRIORITIES:
                found.add(fields["Package"])
        return sorted(found)


_TWO: Final = ("Release", "Release.gpg")


def _preferences(pins: Iterable[Mapping[str, Any]], otherwise: str = "") -> list[str]:
    paragraphs = []
    for pin in pins:
        which = f"version {pin['version']}" if pin.get("version") else otherwise
        packages = " ".join(pin["packages"])
        paragraphs.append(f"Package: {packages}\nPin: {which}\nPin-Priority: {pin['priority']}\n")
    return paragraphs


def _hashes(release: str) -> dict[str, str]:
    """SHA-256 by file, of a release file."""
    section = re.search(r"^SHA256:\n((?: .*\n)+)", release, re.M)
    if not section:
        raise MirrorError("a release file of the archives has no SHA-256.")
    lines = (line.split() for line in section[1].splitlines())
    return {name: sha256 for sha256, _, name in lines}


def _said(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:"))]
    said = " ".join(line[2:].strip() for line in lines[:3]) or done.stderr.strip()[-300:]
    more = [line.strip() for line in done.stdout.splitlines() if "Depends:" in line][:3]
    return f"{'; '.join([said, *more])}".rstrip(".") + "."


def closure(
    root: Root,
    requests: Iterable[Sequence[str]],
    together: Sequence[str],
    told: Callable[[str], None],
) -> list[Package]:
    """What each request needs by itself, as on a node where it is the first, and all of `together`.

    One by one where `together` cannot be: they are of hosts that are not alike.
    """
    found: dict[Package, None] = {}
    for names in requests:
        told(", ".join(names))
        found.update(dict.fromkeys(root.resolve(names)))
    try:
        found.update(dict.fromkeys(root.resolve(together) if together else []))
    except MirrorError:
        for name in together:
            found.update(dict.fromkeys(root.resolve([name])))
    return list(found)
