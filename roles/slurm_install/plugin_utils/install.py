"""Where Slurm's packages come from, and what is to become of those that a host has."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from playbooks.module_utils.package_version import fits
from playbooks.plugin_utils import slurm_packages
from roles.slurm_install.plugin_utils import versions

METHODS = ("distro", "packages", "build")
SHA256 = re.compile(r"[0-9a-f]{64}")
# What a shell and sed leave as it is.
OPTION = re.compile(r"--[a-z][A-Za-z0-9-]*(=[A-Za-z0-9_./:,+-]*)?")
INTERRUPTED = "interrupted"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
OTHER = {
    slurm_packages.DISTRIBUTION: slurm_packages.SCHEDMD,
    slurm_packages.SCHEDMD: slurm_packages.DISTRIBUTION,
}

Settings = Mapping[str, Any]  # the role's variables, without their prefix


# --- what is set ----------------------------------------------------------------------------------


def problems(settings: Settings) -> list[str]:
    """What is wrong with what is set, as sentences."""
    method, version = settings["method"], settings["version"]
    if method not in METHODS:
        return [f"slurm_install_method is {method}; set it to one of {', '.join(METHODS)}."]
    if version and not versions.parsed(version):
        return [
            f"slurm_install_version is {version}, which is no version; set one such as 25.11.2."
        ]
    if method == "packages":
        return list(_packages_problems(settings))
    return list(_build_problems(settings)) if method == "build" else []


def _packages_problems(settings: Settings) -> Iterator[str]:
    repository, folder = settings["repository"], settings["folder"]
    known = ", ".join(settings["repositories"]) or "none"
    if bool(repository) == bool(folder):
        yield (
            f"slurm_install_method is packages, and {'both' if folder else 'neither'} "
            f"slurm_install_repository {'and' if folder else 'nor'} slurm_install_folder "
            f"{'are' if folder else 'is'} set; set the one that has the packages."
        )
    elif repository and repository not in settings["repositories"]:
        yield (
            f"slurm_install_repository is {repository}, and the hosts have no such repository "
            f"({known}); add it to cluster_package_repositories, or correct the name."
        )
    elif repository and not settings["version"]:
        yield (
            "slurm_install_version is empty; say which version of the repository all hosts get, "
            "such as 25.11.2."
        )


def _build_problems(settings: Settings) -> Iterator[str]:
    url, sha256 = settings["url"], settings["sha256"]
    if not url:
        yield (
            "slurm_install_method is build, and slurm_install_url is empty; set it to the address "
            "of a release's tarball."
        )
        return
    if not SHA256.fullmatch(sha256):
        yield (
            f"slurm_install_sha256 is {sha256 or 'empty'}, which is no SHA-256; set it to what "
            f"`curl --location {url} | sha256sum` prints for a tarball that you have looked at."
        )
    version = wanted_version(settings)
    if not versions.parsed(version):
        yield (
            f"slurm_install_url is {url}, which does not say a version; set slurm_install_version "
            "to it, such as 25.11.2."
        )
    elif versions.release(version) < versions.FIRST_PACKED:
        yield (
            f"Slurm {version} cannot be built: tarballs have packaging of their own from "
            f"{versions.FIRST_PACKED} on; name a newer one."
        )
    for option in settings["options"]:
        if not OPTION.fullmatch(str(option)):
            yield (
                f"slurm_install_build_options has {option!r}, which is no option of configure; "
                "write it as --with-nvml=/usr/local/cuda."
            )


def wanted_version(settings: Settings) -> str:
    """The version that is asked for; "" where the distribution or a folder says it."""
    if settings["version"]:
        return str(settings["version"])
    return versions.in_url(settings["url"]) if settings["method"] == "build" else ""


# --- a folder of packages on the control node -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deb:
    name: str
    version: str
    architecture: str
    line: str  # what changes with the file


def debs(listing: str) -> list[Deb]:
    """The packages of lines `NAME_VERSION_ARCHITECTURE.deb SIZE TIME`."""
    packages = []
    for line in listing.splitlines():
        parts = line.split(" ", 1)[0].removesuffix(".deb").split("_")
        if len(parts) == 3:
            packages.append(Deb(parts[0], parts[1], parts[2], line))
    return packages


def folder(listing: str, machine: str) -> dict[str, Any]:
    """What a folder has for a machine: version, kind, files; and what is wrong with it."""
    architecture = ARCHITECTURES.get(machine, machine)
    ours = [deb for deb in debs(listing) if deb.architecture in (architecture, "all")]
    deb_versions = sorted({deb.version for deb in ours})
    wrong = ""
    if not any(deb.name == "slurm-smd" for deb in ours):
        wrong = f"has no slurm-smd_VERSION_{architecture}.deb; put SchedMD's packages there"
    elif len(deb_versions) > 1:
        wrong = f"has packages of {' and '.join(deb_versions)}; leave those of one version"
    return {
        "version": deb_versions[0] if deb_versions else "",
        "kind": kind({"folder": sorted(deb.line for deb in ours)}),
        "files": [deb.line.split(" ", 1)[0] for deb in ours],
        "wrong": wrong,
    }


def kind(inputs: Any) -> str:
    """Twelve hexadecimal digits that change with whatever packages are made from."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def builders(hosts: Iterable[Sequence[Any]], preferred: str = "") -> dict[str, str]:
    """Kind -> the host that builds it, of (host, kind, lacking): the preferred, else the first."""
    by_kind: dict[str, str] = {}
    for host, which, lacking in hosts:
        if lacking and (which not in by_kind or host == preferred):
            by_kind[which] = host
    return by_kind


# --- a host ---------------------------------------------------------------------------------------


# All of SchedMD's packages need it, so having it is having no part.
SHARED = "slurm-smd"


@dataclass(frozen=True, slots=True)
class HostPackages:
    """What tasks/look.yml prints of a host."""

    installed: Mapping[str, Mapping[str, str]]  # packaging -> package -> version
    offered: str = ""  # what the distribution has, whatever we pinned

    def has(self, packed_by: str) -> dict[str, str]:
        """Part -> version, of the parts that are installed."""
        there = self.installed[packed_by]
        return {
            part: there[names[0]]
            for part, names in slurm_packages.table()[packed_by].items()
            if names[0] in there and names[0] != SHARED
        }


def read(answer: str) -> HostPackages:
    installed: dict[str, dict[str, str]] = {packed_by: {} for packed_by in OTHER}
    # Whoever packs as SchedMD does names packages so; Debian's many have one source.
    for status, source, name, version in re.findall(
        r"^package (\S+) (\S+) (\S+) (\S+)$", answer, re.MULTILINE
    ):
        # What an interrupted run left unpacked is of no version that is asked for.
        if not re.match(r"installed|triggers-", status):
            version = f"{INTERRUPTED} {version}"
        if name.startswith("slurm-smd"):
            installed[slurm_packages.SCHEDMD][name] = version
        elif source == "slurm-wlm":
            installed[slurm_packages.DISTRIBUTION][name] = version
    return HostPackages(installed, offered(answer))


def offered(policy: str) -> str:
    """The version that APT would install of a package if we had not pinned the one that is there.

    That one counts as its sources do. Older ones do not count: nobody goes back to them. Without a
    table of versions it is the candidate.
    """
    best, best_priority = "", -1
    versions_of = re.findall(
        r"^ (\*\*\*|   ) (\d\S*) (-?\d+)\n((?: {8,}.*\n?)*)", policy, re.MULTILINE
    )
    for mark, version, effective, sources in versions_of:
        there = mark == "***"
        priorities = [int(number) for number in re.findall(r"^ +(-?\d+) ", sources, re.MULTILINE)]
        priority = max(priorities, default=0) if there else int(effective)
        if priority > best_priority:
            best, best_priority = version, priority
        if there:
            break
    candidate = re.search(r"^\s*Candidate: (\d\S*)", policy, re.MULTILINE)
    return best or (candidate[1] if candidate else "")


def kept(answer: str) -> str:
    """The version of the distribution's packages that APT keeps to: what is there, else offered."""
    look = read(answer)
    there = look.has(slurm_packages.DISTRIBUTION).values()
    return next((each for each in there if not each.startswith(INTERRUPTED)), look.offered)


@dataclass(frozen=True, slots=True)
class Change:
    """Packages that take the place of others, in one transaction; nothing where `names` is empty.

    What is not there yet is no change: the roles that need it install it. The plugin for tokens is
    left to its role, for SchedMD has it in what every part needs.
    """

    names: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    version: str = ""


def change(host: HostPackages, packed_by: str, version: str = "", upgrades: bool = False) -> Change:
    """What becomes of the packages that a host has. Those of two packagings exclude each other.

    The distribution's stay as they are until they are upgraded.
    """
    mine, others = host.installed[packed_by], host.installed[OTHER[packed_by]]
    if packed_by == slurm_packages.DISTRIBUTION:
        wanted = host.offered
        # A library of the old release may stay behind: nothing loads it.
        mine = {name: mine[name] for name in mine if not _is_library(name)}
        stale = upgrades and any(there != wanted for there in mine.values() if wanted)
    else:
        wanted = version
        stale = any(wanted and not fits(there, wanted) for there in mine.values())
    if not others and not stale:
        return Change()
    parts = [part for part in host.has(OTHER[packed_by]) if part != "tokens"]
    if not parts and not mine:
        parts = ["client"]
    names = dict.fromkeys([*mine, *slurm_packages.names(parts, packed_by)])
    return Change(tuple(names), tuple(others), wanted)


def _is_library(name: str) -> bool:
    return re.fullmatch(r"lib(slurm|pmi)\S*", name) is not None


def change_problems(
    answer: str, packed_by: str, version: str, host: str, upgrades: bool
) -> list[str]:
    """Why the packages that a host has cannot be replaced, as sentences."""
    look = read(answer)
    if not change(look, packed_by, version, upgrades=True).names:
        return []
    return list(_change_problems(look, packed_by, version or look.offered, host, upgrades))


def _change_problems(
    packages: HostPackages, packed_by: str, version: str, host: str, upgrades: bool
) -> Iterator[str]:
    now = [*packages.has(packed_by).values(), *packages.has(OTHER[packed_by]).values()]
    whole = [each for each in now if not each.startswith(INTERRUPTED)]
    have = next((each for each in [*whole, *now] if versions.parsed(each)), "")
    old, new = versions.parsed(have), versions.parsed(version)
    if not have or not old:
        return  # libraries alone: nothing of Slurm runs here
    named = versions.short(have)
    others = bool(packages.has(OTHER[packed_by]))
    if new and new < old:
        yield (
            f"{host} has Slurm {named}, and {version} is asked for, which is older and reads "
            f"neither its state nor its database; ask for {named} or newer."
        )
    elif stop := versions.too_far(have, version):
        yield (
            f"{host} has Slurm {named}, and {version} does not read what it wrote; upgrade to "
            f"{stop} first (docs/operate/slurm-versions.md)."
        )
    elif not upgrades and (others or versions.release(have) != versions.release(version)):
        yield (
            f"{host} has Slurm {named} from {_whose(packages, packed_by)}, and "
            f"{version or 'another'} from {_WHOSE[packed_by]} is asked for; run "
            "playbooks/upgrade-slurm.yml, which brings it to the whole cluster without ending a "
            f"job, or ask for Slurm {named} as it is (docs/operate/slurm-versions.md)."
        )


def installed_version(answer: str) -> str:
    """`24.11.5`, of what is installed; "" where nothing is."""
    look = read(answer)
    there = [version for packed_by in OTHER for version in look.has(packed_by).values()]
    return next(filter(None, map(versions.short, there)), "")


def step(answer: str, version: str) -> str:
    """`24.11.5 → 26.05.5`, of what is installed and what comes; "" where one of them is not."""
    pair = [installed_version(answer), versions.short(version)]
    return " → ".join(pair) if all(pair) else ""


def full(space: str, least_mb: int) -> list[str]:
    """Where less is free, of lines `AVAILABLE PATH`, each once."""
    found = re.findall(r"^ *(\d+) +(\S+)$", space, re.MULTILINE)
    return list(dict.fromkeys(path for free, path in found if int(free) < least_mb))


_WHOSE = {
    slurm_packages.DISTRIBUTION: "the distribution's packages",
    slurm_packages.SCHEDMD: "SchedMD's",
}


def _whose(packages: HostPackages, packed_by: str) -> str:
    return _WHOSE[OTHER[packed_by] if packages.has(OTHER[packed_by]) else packed_by]


# --- APT ------------------------------------------------------------------------------------------


def pattern(version: str) -> str:
    """A version for apt_preferences(5), with any epoch and any revision of it."""
    exact = re.sub(r"([.+])", r"\\\1", version)
    return rf"/^([0-9]+:)?{exact}([-+~].*)?$/"


def complaint(policy: str, version: str, host: str) -> str:
    """What is wrong with what APT would install of slurm-smd; "" if it is the version wanted."""
    candidate = re.search(r"^\s*Candidate: (\d\S*)", policy, re.MULTILINE)
    if candidate and (not version or fits(candidate[1], version)):
        return ""
    there = ", ".join(re.findall(r"^ (?:\*\*\*|   ) (\d\S*) ", policy, re.MULTILINE))
    return (
        f"{host} cannot have Slurm {version}: no repository that it reads has slurm-smd in that "
        f"version ({f'there is {there}' if there else 'none has it at all'}); see "
        "slurm_install_repository and slurm_install_version."
    )
