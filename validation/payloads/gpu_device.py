"""The device that a process measures: one GPU, or the CPU in its place.

A process sees one GPU and no other (CUDA_VISIBLE_DEVICES), so that one that is lost does not take
the rest with it, and calls it number 0; its number on the node is the parent's business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from validation.payloads import gpu_timing
from validation.payloads.config import require
from validation.payloads.group import gpu_uuid

if TYPE_CHECKING:
    import torch

DEVICES = ("cuda", "cpu")
PCI = Path("/sys/bus/pci/devices")


@dataclass(frozen=True)
class Device:
    """capability: of a GPU, such as (9, 0); None for a CPU."""

    torch: torch.device
    capability: tuple[int, int] | None
    watch: gpu_timing.Stopwatch

    @property
    def is_gpu(self) -> bool:
        return self.capability is not None

    def release(self) -> None:
        """Gives memory back that nothing uses any more: the next measurement may need all of it."""
        if self.is_gpu:
            import torch

            torch.cuda.empty_cache()


def visible(environ: Mapping[str, str], number: int) -> str:
    """CUDA_VISIBLE_DEVICES for the GPU `number` of those that this task was given."""
    devices = [item.strip() for item in environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    devices = [item for item in devices if item]
    if not devices:
        return str(number)
    require(number < len(devices), f"CUDA_VISIBLE_DEVICES names {len(devices)} GPUs")
    return devices[number]


def start(kind: str, places: Mapping[str, str] | None = None) -> tuple[Device, dict[str, Any]]:
    """The device, after its first kernel has run, and what it says of itself.

    places: where GPUs lie on the PCI bus by their UUIDs, as NVML writes both; for a torch that does
    not know it.

    Raises whatever torch raises; its own text names the cause: no driver, one too old for this
    torch, no Fabric Manager (error 802).
    """
    import torch

    torch.set_grad_enabled(False)
    if kind == "cpu":
        device = Device(torch.device("cpu"), None, gpu_timing.cpu_stopwatch())
        _first_kernel(device.torch)
        return device, {**_versions(), "name": "CPU", "uuid": None, "capability": None}
    _cuda_init()
    gpu = torch.device("cuda", 0)
    torch.cuda.set_device(gpu)
    _first_kernel(gpu)
    properties = torch.cuda.get_device_properties(gpu)
    major, minor = torch.cuda.get_device_capability(gpu)
    uuid = getattr(properties, "uuid", None)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if uuid is not None or visible.startswith("MIG-"):
        uuid = gpu_uuid(str(uuid), visible, 0)
    bus = _bus(properties) or _of_nvml(places or {}, uuid)
    return Device(gpu, (major, minor), gpu_timing.cuda_stopwatch()), {
        **_versions(),
        "name": properties.name,
        "uuid": uuid,
        "capability": [major, minor],
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "bus": bus,
        "numa_cpus": _stay_near(bus),
    }


def count() -> int:
    """GPUs that torch sees. Raises what torch raises when CUDA cannot be started."""
    import torch

    _cuda_init()
    return torch.cuda.device_count()


def _cuda_init() -> None:
    import torch

    init: Any = torch.cuda.init  # carries no annotations
    init()


def _versions() -> dict[str, str | None]:
    import torch

    return {"torch": str(torch.__version__), "cuda": torch.version.cuda}


def _first_kernel(device: torch.device) -> None:
    """A sum that only comes out right if the device computes and its memory holds."""
    import torch

    numbers = torch.arange(1 << 16, dtype=torch.int64, device=device)
    total = int((numbers * numbers + 1).sum())
    last = (1 << 16) - 1
    expected = last * (last + 1) * (2 * last + 1) // 6 + last + 1
    if total != expected:
        raise RuntimeError(f"the first kernel computed {total}, {expected} is right")


def _bus(properties: Any) -> str | None:
    """The GPU's place on the PCI bus as the kernel writes it; older torch does not know it."""
    try:
        return (
            f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:"
            f"{properties.pci_device_id:02x}.0"
        )
    except AttributeError:
        return None


def _of_nvml(places: Mapping[str, str], uuid: str | None) -> str | None:
    """NVML's place of the GPU as the kernel writes it: with a domain of four digits, in lower case.

    None where NVML does not know the GPU, such as an instance of MIG.
    """
    place = places.get(uuid or "")
    return None if place is None else place.lower()[-12:]


def _stay_near(bus: str | None, devices: Path = PCI) -> int:
    """Binds this process to the CPUs next to the GPU, so that its host memory lies there too.

    How many of them it may use; 0 when they are not known, or none of them may be used.
    """
    if bus is None:
        return 0
    with suppress(OSError, ValueError):
        near = _cpus((devices / bus / "local_cpulist").read_text(encoding="ascii"))
        allowed = near & os.sched_getaffinity(0)
        if allowed:
            os.sched_setaffinity(0, allowed)
        return len(allowed)
    return 0


def _cpus(text: str) -> set[int]:
    """The numbers in a list such as "0-15,64-79". Raises ValueError for anything else."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ValueError(f"no list of CPUs: {text!r}")
        cpus |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return cpus
