"""Builds the stand-in for NVML, and writes descriptions for it; see description.md."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")
NAME = "libnvidia-ml.so.1"
VARIABLE = "PLUMBLINE_FAKE_NVML"
DESCRIPTION = "/etc/plumbline-fake-nvml.conf"  # where the library looks without the variable

# What the driver says of an idle board. Made up, after datasheets and nvidia-smi's output.
_ANY = {
    "serial": "1654922000000",
    "vbios": "96.00.74.00.01",
    "inforom": "G520.0200.00.05",
    "gsp_firmware": "580.82.07",
    "field.230": "0",
    "memory_used_mb": "600",
    "ecc": "1",
    "ecc_default": "1",
    "ecc_volatile_uncorrected": "0",
    "ecc_volatile_corrected": "0",
    "ecc_aggregate_uncorrected": "0",
    "ecc_aggregate_corrected": "0",
    "ecc_volatile_corrected_sram": "0",
    "ecc_aggregate_corrected_sram": "0",
    "pcie_width": "16",
    "pcie_width_max": "16",
    "pcie_replays": "0",
    "clock_reasons": "1",
    "temperature_c": "34",
    "persistence": "1",
    "utilization_gpu": "0",
    "utilization_memory": "0",
    "memory_reserved_mb": "500",
    "energy_mj": "1234567890",
}

_ROWS = {
    f"remapped_rows_{what}": "0" for what in ("correctable", "uncorrectable", "pending", "failure")
}


def _links(count: int, version: int) -> dict[str, str]:
    counters = ("replay", "recovery", "crc_flit", "crc_data")
    return {
        "nvlinks": str(count),
        "nvlink.*.active": "1",
        "nvlink.*.version": str(version),
        **{f"nvlink.*.{counter}": "0" for counter in counters},
    }


def _pcie(generation: int, now: int = 0) -> dict[str, str]:
    """now: an idle board may be in a lower one."""
    return {
        "pcie_generation": str(now or generation),
        "pcie_generation_max": str(generation),
        "pcie_generation_gpu": str(generation),
    }


def _power(now_w: int, limit_w: int) -> dict[str, str]:
    names = ("power_limit_mw", "power_limit_default_mw", "power_limit_max_mw")
    return {"power_mw": f"{now_w}000"} | dict.fromkeys(names, f"{limit_w}000")


def _clocks(sm: int, sm_max: int, memory: int, memory_max: int) -> dict[str, str]:
    return {
        "clock_sm_mhz": str(sm),
        "clock_sm_max_mhz": str(sm_max),
        "clock_sm_app_mhz": str(sm_max),
        "clock_sm_app_default_mhz": str(sm_max),
        "clock_memory_mhz": str(memory),
        "clock_memory_max_mhz": str(memory_max),
    }


BOARDS: dict[str, dict[str, str]] = {
    "h100_sxm": {
        **_ANY,
        **_ROWS,
        "name": "NVIDIA H100 80GB HBM3",
        "memory_total_mb": "81559",
        "bar1_total_mb": "131072",
        **_pcie(5),
        **_links(18, version=6),
        "fabric_state": "3",
        **_clocks(345, 1980, 2619, 2619),
        "field.82": "41",  # the memory's temperature; boards without HBM have none
        "temperature_slowdown_c": "87",
        "temperature_shutdown_c": "92",
        "temperature_memory_max_c": "95",
        **_power(71, 700),
        "mig": "0",
    },
    "l4": {
        **_ANY,
        **_ROWS,
        "name": "NVIDIA L4",
        "memory_total_mb": "23034",
        "bar1_total_mb": "32768",
        **_pcie(4, now=1),
        **_clocks(210, 2040, 405, 6251),
        "temperature_slowdown_c": "88",
        "temperature_shutdown_c": "95",
        **_power(13, 72),
    },
    "v100_sxm": {
        **_ANY,
        "name": "Tesla V100-SXM2-16GB",
        "gsp_firmware": "NOT_SUPPORTED",
        "retired_pages_single_bit": "0",
        "retired_pages_double_bit": "0",
        "retired_pages_pending": "0",
        "memory_total_mb": "16384",
        "bar1_total_mb": "16384",
        **_pcie(3),
        **_links(6, version=3),
        **_clocks(135, 1530, 877, 877),
        "temperature_slowdown_c": "87",
        "temperature_shutdown_c": "90",
        **_power(41, 300),
    },
}


# A board that says of itself that it is none, for the nodes of scripts/virtual-cluster. What it can
# do is that of the H100, so that every check has something to look at.
BOARDS["virtual"] = {
    **BOARDS["h100_sxm"],
    "name": "Virtual GPU (stand-in for NVML)",
    "serial": "stand-in",
    "vbios": "stand-in",
    "inforom": "stand-in",
    "gsp_firmware": "stand-in",
}
STAND_IN_DRIVER = "0 (stand-in)"


class NoCompiler(Exception):
    """The stand-in is C, and there is no compiler here."""


def build(folder: Path) -> Path:
    """Compiles the library into a folder and returns its path.

    Raises NoCompiler without gcc, and CalledProcessError where it refuses the source.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise NoCompiler("gcc is needed to build the stand-in for NVML (package gcc, libc6-dev)")
    library = folder / NAME
    options = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(
        [compiler, *options, f"-Wl,-soname,{NAME}", "-o", str(library), str(SOURCE)], check=True
    )
    return library


def describe(
    count: int = 2,
    board: str = "h100_sxm",
    *more: str,
    driver: str = "580.82.07",
    node: int = 0,
) -> str:
    """A healthy node's description. `more` are lines of their own, and count above all others.

    `node` is a number that tells its GPUs' UUIDs from those of other nodes.
    """
    lines = [f"driver = {driver}", f"nvml = 13.{driver}", "cuda = 13000", f"count = {count}"]
    lines += [f"gpu.*.{key} = {value}" for key, value in BOARDS[board].items()]
    for index in range(count):
        lines += [
            f"gpu.{index}.minor = {index}",
            f"gpu.{index}.uuid = GPU-{index:08x}-0000-4000-8000-{node:012x}",
            f"gpu.{index}.pci = 00000000:{0x1B + 16 * index:02X}:00.0",
        ]
    return "\n".join([*lines, *more]) + "\n"


def environment(library: Path, description: Path) -> Mapping[str, str]:
    """What a process needs, to load this library in the driver's place."""
    before = os.environ.get("LD_LIBRARY_PATH")
    folders = [str(library.parent), *([before] if before else [])]
    return {"LD_LIBRARY_PATH": ":".join(folders), VARIABLE: str(description)}
