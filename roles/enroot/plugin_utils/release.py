"""The packages of one release of enroot: their addresses, and the hashes that a site has pinned.

Names as on https://github.com/NVIDIA/enroot/releases; upstream publishes no file of hashes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

SHA256 = re.compile(r"[0-9a-fA-F]{64}")
VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
KEY = re.compile(r"([^-]+)-(amd64|arm64)-(enroot(?:\+caps)?)")


def packages(release: Mapping[str, Any], sha256: Mapping[str, str]) -> list[dict[str, str]]:
    """{name, file, url, sha256} of each package; the hash is empty where none is pinned."""
    version, architecture = str(release["version"]), str(release["architecture"])
    names: Sequence[str] = release["packages"]
    entries = []
    for name in names:
        file = f"{name}_{version}-1_{architecture}.deb"
        entries.append(
            {
                "name": name,
                "file": file,
                "url": f"{str(release['mirror']).rstrip('/')}/v{version}/{file}",
                "sha256": str(sha256.get(f"{version}-{architecture}-{name}", "")),
            }
        )
    return entries


def hash_problems(sha256: Mapping[str, Any]) -> list[str]:
    """A sentence for each entry of enroot_sha256 that can never match a package."""
    problems = []
    for key, value in sha256.items():
        if not KEY.fullmatch(str(key)):
            problems.append(
                f"enroot_sha256 has {key}, which names no package; "
                "write VERSION-ARCHITECTURE-PACKAGE, such as 4.2.1-amd64-enroot+caps."
            )
        elif not SHA256.fullmatch(str(value)):
            problems.append(
                f"enroot_sha256 has {value} for {key}; give the 64 hexadecimal digits that "
                "sha256sum prints."
            )
    return problems


def unpinned(release: Mapping[str, Any], sha256: Mapping[str, str]) -> list[str]:
    """A sentence for each package without a hash: what to fetch, and what to set."""
    version, architecture = release["version"], release["architecture"]
    return [
        f"enroot_sha256 has no {version}-{architecture}-{package['name']}; download "
        f"{package['url']} where you trust the way, and set it to what sha256sum {package['file']} "
        "prints (GitHub tells the same as the asset's digest: "
        f"gh release view v{version} --repo NVIDIA/enroot --json assets)."
        for package in packages(release, sha256)
        if not package["sha256"]
    ]
