"""NVIDIA's package repositories: where they are for a system, and the keys that sign them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cuda:
    """The CUDA network repository for one system."""

    folder: str
    key: str
    fingerprint: str


# https://github.com/NVIDIA/cuda-repo-management#gpg-keys has the keys' names, its section on
# methods the first fingerprint. The second is that of the key whose name are its last eight digits,
# "Kitmaker (Debian 13 Trixie) <kitmaker@nvidia.com>"; NVIDIA's pages give no more than that name,
# four independent public repositories the whole of it.
_OLDER = ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
_NEWER = ("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")
CUDA: Mapping[str, Cuda] = {
    "Debian 12": Cuda("debian12", *_OLDER),
    "Debian 13": Cuda("debian13", *_NEWER),
    "Ubuntu 22": Cuda("ubuntu2204", *_OLDER),
    "Ubuntu 24": Cuda("ubuntu2404", *_OLDER),
}

# The key that https://nvidia.github.io/libnvidia-container/gpgkey is.
TOOLKIT_FINGERPRINT = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"

# The release of the HPC SDK is one for all distributions with dpkg; the file with its key:
# https://developer.nvidia.com/hpc-sdk-downloads
_HPC_SDK_KEY = "DEB-GPG-KEY-NVIDIA-HPC-SDK"

# What the kernel calls a machine, the CUDA repository's folder for it, and dpkg's name.
_MACHINES = {"x86_64": ("x86_64", "amd64"), "aarch64": ("sbsa", "arm64")}


def repositories(
    names: Sequence[str],
    facts: Mapping[str, Any],
    mirrors: Mapping[str, str],
    only: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Entries for the role package_repositories, of `cuda` and `nvidia_container_toolkit`.

    `mirrors` has the address of each, laid out below as upstream's. With `only`, patterns of
    packages, the CUDA repository gives these, and of others what no other repository has: so that a
    driver of the distribution stays the distribution's. Raises ValueError for a system without one.
    """
    makers = {"cuda": _cuda, "nvidia_container_toolkit": _toolkit}
    if unknown := [name for name in names if name not in makers]:
        raise ValueError(f"there is no repository {unknown[0]}, only {', '.join(makers)}")
    return [makers[name](facts, mirrors[name].rstrip("/"), only) for name in names]


def _machine(facts: Mapping[str, Any]) -> tuple[str, str]:
    machine = str(facts["architecture"])
    if machine not in _MACHINES:
        raise ValueError(f"NVIDIA has no packages for {machine}, only for {', '.join(_MACHINES)}")
    return _MACHINES[machine]


def _cuda(facts: Mapping[str, Any], mirror: str, only: Sequence[str]) -> dict[str, Any]:
    system = f"{facts['distribution']} {facts['distribution_major_version']}"
    if system not in CUDA:
        raise ValueError(f"NVIDIA's CUDA repository is not for {system}, only {', '.join(CUDA)}")
    cuda, (folder, architecture) = CUDA[system], _machine(facts)
    address = f"{mirror}/{cuda.folder}/{folder}/"
    rest = [{"packages": ["*"], "priority": 100}, {"packages": list(only), "priority": 500}]
    return {
        "name": "cuda",
        "uris": [address],
        "suites": ["/"],
        "architectures": [architecture],
        "key_url": f"{address}{cuda.key}",
        "key_fingerprint": cuda.fingerprint,
        "pins": rest if only else [],
    }


def hpc_sdk_packages(version: str, fingerprint: str) -> list[str]:
    """The packages of a release. Raises ValueError for no release, and without a pinned key."""
    if not version:
        return []
    if not re.fullmatch(r"\d\d\.\d{1,2}", version):
        raise ValueError(f'hpc_sdk_version is {version}; set it to a release in quotes, as "26.5"')
    if not fingerprint:
        raise ValueError(
            "hpc_sdk_version is set and hpc_sdk_key_fingerprint is not; set that to the "
            f"fingerprint of the repository's {_HPC_SDK_KEY}, as `gpg --show-keys` prints it on a "
            "machine that you trust"
        )
    return [f"nvhpc-{version.replace('.', '-')}"]


def hpc_sdk(facts: Mapping[str, Any], mirror: str, fingerprint: str) -> dict[str, Any]:
    """The entry of the HPC SDK's repository."""
    address = mirror.rstrip("/")
    _, architecture = _machine(facts)
    return {
        "name": "hpc_sdk",
        "uris": [f"{address}/{architecture}/"],
        "suites": ["/"],
        "architectures": [architecture],
        "key_url": f"{address}/{_HPC_SDK_KEY}",
        "key_fingerprint": fingerprint,
        "pins": [],
    }


def _toolkit(facts: Mapping[str, Any], mirror: str, _: Sequence[str]) -> dict[str, Any]:
    _, architecture = _machine(facts)
    return {
        "name": "nvidia_container_toolkit",
        "uris": [f"{mirror}/stable/deb/{architecture}/"],
        "suites": ["/"],
        "architectures": [architecture],
        "key_url": f"{mirror}/gpgkey",
        "key_fingerprint": TOOLKIT_FINGERPRINT,
        "pins": [],
    }
