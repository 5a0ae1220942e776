"""What a freshly installed system of a release is, for who asks before there is one.

Facts by Ansible's names, and where the distribution keeps its packages. Only what differs between
releases is here: a fact that is not is one that only a host knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

DEBIAN: Final = "http://deb.debian.org/debian"
DEBIAN_SECURITY: Final = "http://deb.debian.org/debian-security"
UBUNTU: Final = "http://archive.ubuntu.com/ubuntu"
UBUNTU_SECURITY: Final = "http://security.ubuntu.com/ubuntu"
# Ubuntu's other architectures are elsewhere.
UBUNTU_PORTS: Final = "http://ports.ubuntu.com/ubuntu-ports"

# dpkg's names of the architectures.
ARCHITECTURES: Final[Mapping[str, str]] = {"x86_64": "amd64", "aarch64": "arm64"}


class NoSystemError(ValueError):
    """One sentence."""


@dataclass(frozen=True, slots=True)
class Source:
    """Suites of the distribution's packages at one address."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    keyring: str


@dataclass(frozen=True, slots=True)
class System:
    distribution: str
    version: str
    release: str
    python: str  # major and minor


_SYSTEMS: Final[Mapping[str, System]] = {
    "debian12": System("Debian", "12", "bookworm", "3.11"),
    "debian13": System("Debian", "13", "trixie", "3.13"),
    "ubuntu2204": System("Ubuntu", "22.04", "jammy", "3.10"),
    "ubuntu2404": System("Ubuntu", "24.04", "noble", "3.12"),
}


def facts_of(name: str, kernel: str = "") -> dict[str, Any]:
    """Facts of a system, as `debian13`, or `ubuntu2404/aarch64`. Raises NoSystemError.

    `kernel` is the release of the kernel that will run, which drivers' packages are made for.
    """
    system_name, _, machine = name.partition("/")
    machine = machine or "x86_64"
    if system_name not in _SYSTEMS or machine not in ARCHITECTURES:
        raise NoSystemError(
            f"there is no system {name}; name one of {', '.join(_SYSTEMS)}, followed by /aarch64 "
            "for ARM."
        )
    system = _SYSTEMS[system_name]
    major, minor = (int(part) for part in system.python.split("."))
    return {
        "architecture": machine,
        "distribution": system.distribution,
        "distribution_major_version": system.version.partition(".")[0],
        "distribution_release": system.release,
        "distribution_version": system.version,
        "machine": machine,
        "os_family": "Debian",
        "pkg_mgr": "apt",
        "python": {"version": {"major": major, "minor": minor}},
        "service_mgr": "systemd",
        "system": "Linux",
        **({"kernel": kernel} if kernel else {}),
    }


def sources_of(facts: Mapping[str, Any]) -> tuple[Source, ...]:
    """Where the packages of a host's distribution are, by its facts. Raises NoSystemError."""
    release = str(facts["distribution_release"])
    if facts["distribution"] == "Debian":
        components = ("main", "contrib", "non-free", "non-free-firmware")
        keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
        archive, security = DEBIAN, DEBIAN_SECURITY
    elif facts["distribution"] == "Ubuntu":
        components = ("main", "restricted", "universe", "multiverse")
        keyring = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
        ports = facts["architecture"] != "x86_64"
        archive, security = (UBUNTU_PORTS,) * 2 if ports else (UBUNTU, UBUNTU_SECURITY)
    else:
        raise NoSystemError(
            f"{facts['distribution']} has no packages that a mirror is made of; Debian and Ubuntu "
            "have."
        )
    return (
        Source(archive, (release, f"{release}-updates"), components, keyring),
        Source(security, (f"{release}-security",), components, keyring),
    )
