#!/usr/bin/python
"""Looks at what a node's NVLink fabric is made of. It only reads, so it runs in check mode too."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.loaded_driver import PLACE, loaded

DOCUMENTATION = r"""
module: nvidia_fabric_look
short_description: Look at a node's NVSwitches, driver and packages
options:
  root: {description: Where /proc, /sys and /dev lie., type: path, default: /}
  imex_timeout:
    description: Seconds to wait until IMEX is ready.
    type: int
    default: 0
author: The Plumbline authors
"""

RETURN = r"""
installed: {description: Version of the driver that is installed; empty without one., type: str}
loaded: {description: Version of the driver that is loaded; empty without one., type: str}
switches: {description: NVSwitches that are devices of the node itself., type: int}
bridges: {description: Devices through which the node manages NVSwitches., type: int}
umad: {description: Whether the module ib_umad is loaded., type: bool}
channel: {description: Whether the IMEX channel 0 is there., type: bool}
versions: {description: "Programs that are there: name to version.", type: dict}
services: {description: "Name to state, as systemctl is-active has it.", type: dict}
imex: {description: "What IMEX says of itself, such as READY.", type: str}
packages: {description: Packages of any branch that are installed., type: list, elements: str}
nvlsm: {description: "Whether nvlsm, the subnet manager of NVLink 5, is installed.", type: bool}
"""

VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
# The library that every source of the driver brings, in the folders of Debian and of NVIDIA's .run.
LIBRARIES = (
    "usr/lib/*/libnvidia-ml.so.*",
    "usr/lib/libnvidia-ml.so.*",
    "usr/lib64/libnvidia-ml.so.*",
)
PROGRAMS = ("nv-fabricmanager", "nvidia-imex")
UNITS = ("nvidia-fabricmanager", "nvidia-imex")
READY = "READY"
STATUS = "--showformat=${db:Status-Status}"
NAMES = "--showformat=${db:Status-Status} ${Package}\n"
FAMILIES = (
    "nvidia-fabricmanager*",
    "cuda-drivers-fabricmanager*",
    "libnvidia-nscq*",
    "libnvsdm*",
    "nvidia-imex*",
)

NVIDIA, MELLANOX = "0x10de", "0x15b3"
BRIDGE = "0x0680"  # PCI's class "other bridge", which NVSwitches are
INFINIBAND = "0x0207"
# In the vital product data of the network functions through which NVSwitches of NVLink 5 are
# managed; the Fabric Manager's own start script looks for it:
# https://github.com/NVIDIA/gpu-driver-container (nvidia-driver, _assert_nvlink5_system).
MANAGEMENT = b"SW_MNG"


def text(path: Path) -> str:
    """A small file's text, empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def pci(root: Path, vendor: str, kind: str) -> list[Path]:
    """The PCI devices of a vendor and a class, also those that no driver has."""
    return [
        device
        for device in entries(root / "sys/bus/pci/devices")
        if text(device / "vendor") == vendor and text(device / "class").startswith(kind)
    ]


def switches(root: Path) -> int:
    """NVSwitches of the node itself: as the driver lists them, or PCI where it is not loaded."""
    listed = entries(root / "proc/driver/nvidia-nvswitch/devices")
    return max(len(listed), len(pci(root, NVIDIA, BRIDGE)))


def bridges(root: Path) -> int:
    """Devices whose vital product data says that they manage NVSwitches."""

    def manages(device: Path) -> bool:
        try:
            return MANAGEMENT in (device / "vpd").read_bytes()
        except OSError:
            return False

    return sum(map(manages, pci(root, MELLANOX, INFINIBAND)))


def installed(modinfo: str, libraries: Iterable[str]) -> str:
    """The version of the kernel's module; without one that of the library, the newest first.

    `modinfo` is what the command prints, `libraries` are files such as libnvidia-ml.so.580.95.05.
    """
    if VERSION.fullmatch(modinfo.strip()):
        return modinfo.strip()
    versions = [name.partition(".so.")[2] for name in libraries]
    known = [version for version in versions if VERSION.fullmatch(version)]
    return max(known, key=lambda version: [int(part) for part in version.split(".")], default="")


def said_by(*argv: str) -> str:
    """What a program prints; nothing where it is missing, or says that there is nothing."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""


def version_of(program: str) -> str:
    """Out of `Fabric Manager version is : 580.95.05`; empty where the program is missing."""
    match = VERSION.search(said_by(program, "--version"))
    return match[0] if match else ""


def imex(timeout_s: float) -> str:
    """What IMEX says of itself, READY as soon as it does; what else it says when time is up."""
    deadline = time.monotonic() + timeout_s
    while (state := said_by("nvidia-imex-ctl", "-q").strip()) != READY:
        if time.monotonic() >= deadline:
            break
        time.sleep(1)
    return state


def packages(listed: str) -> list[str]:
    """Those that are installed, of dpkg-query's lines."""
    lines = (line.split() for line in listed.splitlines())
    return sorted(line[1] for line in lines if line[0] == "installed")


def look(root: Path, imex_timeout_s: float = 0) -> dict[str, Any]:
    libraries = [path.name for pattern in LIBRARIES for path in Path("/").glob(pattern)]
    driver = installed(said_by("modinfo", "-F", "version", "nvidia"), libraries)
    return {
        "installed": driver,
        "loaded": loaded(text(root / PLACE.lstrip("/")))[0],
        "switches": switches(root),
        "bridges": bridges(root),
        "umad": (root / "sys/module/ib_umad").exists(),
        "channel": (root / "dev/nvidia-caps-imex-channels/channel0").exists(),
        "versions": {program: version_of(program) for program in PROGRAMS},
        "services": {unit: said_by("systemctl", "is-active", unit).strip() for unit in UNITS},
        "imex": imex(imex_timeout_s),
        "packages": packages(said_by("dpkg-query", "--show", NAMES, *FAMILIES)),
        "nvlsm": said_by("dpkg-query", "--show", STATUS, "nvlsm") == "installed",
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "imex_timeout": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    try:
        params = module.params
        facts = look(Path(params["root"]), params["imex_timeout"])
    except OSError as error:
        module.fail_json(msg=f"the node's NVLink fabric cannot be looked at: {error}")
    module.exit_json(changed=False, **facts)


if __name__ == "__main__":
    main()
