"""What hosts need from elsewhere, as one document: the downloads of tasks, by kind of host.

Hosts of a kind have the same system and the same tasks download the same on them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from playbooks.plugin_utils.downloads import DECLARED, Download
from playbooks.plugin_utils.site import Site
from playbooks.plugin_utils.systems import sources_of
from playbooks.plugin_utils.values import FACTS

# What a task may declare (downloads.DECLARED): names of packages, paths of packages on the node,
# and wheels, one or a list: requirements, as a file of pip has them, pip's options about where they
# are, and the release of `python` if it is not the system's.
# `wishes` are packages that archives may lack, `own` those that none has, `pins` APT's preferences.
_DECLARED = {"packages", "wishes", "own", "debs", "wheels", "pins"}
_LISTS = ("repositories", "packages", "wishes", "own", "pins", "files", "wheels", "debs", "images")
_IMAGE = ("image", "digest")
_SYSTEM = ("architecture", "distribution", "distribution_release", "distribution_version")


class UnmetError(Exception):
    """One sentence."""


def document(site: Site, found: Sequence[Download]) -> dict[str, Any]:
    """`kinds`: each with its hosts, system, repositories, packages, files, debs and wheels."""
    of_host: dict[str, list[int]] = {host: [] for host in site.names}
    for number, download in enumerate(found):
        for host in download.hosts:
            of_host[host].append(number)
    hosts_of: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for host, numbers in of_host.items():
        system = repr(_system(site.values.hosts[host][FACTS]))
        hosts_of[(system, *numbers)].append(host)
    return {
        "kinds": [
            {
                "hosts": hosts,
                "present": sorted(
                    {
                        name
                        for host in hosts
                        for name in site.values.hosts[host][FACTS].get("packages") or {}
                    }
                ),
                **_kind(site.values.hosts[hosts[0]][FACTS], [found[n] for n in of_host[hosts[0]]]),
            }
            for hosts in hosts_of.values()
        ]
    }


def _system(facts: Mapping[str, Any]) -> dict[str, Any]:
    version = facts["python"]["version"]
    return {
        **{name: str(facts[name]) for name in _SYSTEM},
        "python": f"{version['major']}.{version['minor']}",
        "sources": [asdict(source) for source in sources_of(facts)],
    }


def _kind(facts: Mapping[str, Any], downloads: Iterable[Download]) -> dict[str, Any]:
    kind = _Kind()
    for download in downloads:
        kind.take(download)
    return {**kind.document(), "system": _system(facts)}


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the tasks of one kind of host download."""

    lists: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in _LISTS})
    paths: dict[str, str] = field(default_factory=dict)  # SHA-256 of what comes to a path
    debs: list[tuple[str, list[str]]] = field(default_factory=list)  # by task, paths

    def take(self, download: Download) -> None:
        told = download.arguments
        match download.action:
            case "distribution_packages" | "exact_packages":
                self._packages(told["name"], str(told.get("version") or ""))
            case "ansible.builtin.apt" if told.get("deb"):
                self.debs.append((download.task, [str(told["deb"])]))
            case "ansible.builtin.apt":
                self._packages(told.get("name") or [])
            case "release_file":
                url, sha256 = str(told["url"]), str(told["sha256"]).lower()
                self.paths[str(told["dest"])] = sha256
                if url.startswith(("http:", "https:")):
                    self._note("files", {"url": url, "sha256": sha256})
            case "package_sources":
                for repository in told["repositories"]:
                    self._note("repositories", repository)
            case "container_images":
                for entry in told["published"]:
                    if entry.get("state") != "absent":
                        self._note("images", {key: str(entry.get(key) or "") for key in _IMAGE})
            case _:
                self._declared(download)

    def document(self) -> dict[str, Any]:
        for task, paths in self.debs:
            if strange := [path for path in paths if path not in self.paths]:
                raise UnmetError(f"{task}: it installs {strange[0]}, which no task downloads.")
            if paths:
                self._note("debs", [self.paths[path] for path in paths])
        return dict(self.lists)

    def _declared(self, download: Download) -> None:
        told = download.arguments
        if strange := set(told) - _DECLARED:
            raise UnmetError(f"{download.task}: {DECLARED} has {', '.join(sorted(strange))}.")
        self._packages(told.get("packages") or [])
        self.debs.append((download.task, [str(path) for path in told.get("debs") or []]))
        for name in ("wishes", "own", "pins"):
            for entry in told.get(name) or []:
                self._note(name, entry)
        wheels = told.get("wheels") or []
        for wanted in wheels if isinstance(wheels, list) else [wheels]:
            if str(wanted.get("requirements", "")).strip():
                options = [str(option) for option in wanted.get("options") or []]
                noted = {"requirements": str(wanted["requirements"]), "options": options}
                python = {"python": str(wanted["python"])} if wanted.get("python") else {}
                self._note("wheels", noted | python)

    def _packages(self, value: Any, version: str = "") -> None:
        names = value if isinstance(value, list) else str(value).split(",")
        if names:
            self._note("packages", {"names": sorted(map(str, names)), "version": version})

    def _note(self, name: str, entry: Any) -> None:
        if entry not in self.lists[name]:
            self.lists[name].append(entry)
