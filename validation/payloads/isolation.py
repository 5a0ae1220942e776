"""Which GPUs of its node a job can reach, while other jobs run beside it.

Several jobs of one node run this at once. Each says that it is there on a socket of a name that the
others know (in the abstract namespace: nothing is written anywhere), waits until all are, looks,
and stays until the others have looked. Who asks for no GPU must reach none.

A device file that Slurm's control group denies cannot be opened ("Operation not permitted"), and
the driver's library lists no such GPU. What a job was told to use (CUDA_VISIBLE_DEVICES) confines
nobody who does not want to be.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import processes
from cluster.readers import nvml
from validation.payloads.config import require, require_positive

PARTS = ("first", "second", "none")  # "none" asks for no GPU

_POLL_S = 0.1
_NVML_S = 20.0
_SCONTROL_S = 5.0
_DENIED = (errno.EPERM, errno.EACCES)


@dataclass(frozen=True, kw_only=True)
class Config:
    """What the job is told.

    part     which of the jobs it is, one of PARTS
    meeting  the name by which those of a node find each other
    meet_s   how long they wait for each other
    nonce    whose answer this is: it comes back in the document
    """

    part: str
    meeting: str
    meet_s: float
    nonce: str = ""

    def __post_init__(self) -> None:
        require(self.part in PARTS, f'part is "{self.part}", not one of {", ".join(PARTS)}')
        require_positive(self, "meet_s")


def measure(
    config: Config,
    dev: Path = Path("/dev"),
    environ: Mapping[str, str] = os.environ,
    ask: Callable[..., tuple[nvml.System, list[nvml.NvmlGpu]]] = nvml.ask,
) -> dict[str, Any]:
    """What this job reaches.

    part         which of the jobs it is
    met          the others that were there when it looked
    devices      each /dev/nvidia<number>: the number, and why it could not be opened, or None
    gpus, nvml   UUIDs of the GPUs that NVML lists, and why it lists none, or None
    visible      CUDA_VISIBLE_DEVICES, or None
    constrained  what slurmd says of ConstrainDevices, such as "yes"; None where it says nothing
    """
    others = [part for part in PARTS if part != config.part]
    with _present(config, config.part):
        met = _wait_for(config, others, config.meet_s)
        devices = list(_devices(dev))
        gpus, why = _gpus(ask)
        constrained = _constrained()
        with _present(config, f"{config.part} looked"):
            _wait_until_looked(config, met)
    return {
        "part": config.part,
        "met": met,
        "devices": devices,
        "gpus": gpus,
        "nvml": why,
        "visible": environ.get("CUDA_VISIBLE_DEVICES"),
        "constrained": constrained,
    }


# --- the others ------------------------------------------------------------------------------


def _address(config: Config, name: str) -> str:
    return f"\0plumbline-{config.meeting}-{name}"


@contextmanager
def _present(config: Config, name: str) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(_address(config, name))
        listener.listen(len(PARTS))
        yield


def _is_there(config: Config, name: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(_POLL_S)
        try:
            caller.connect(_address(config, name))
        except BlockingIOError:
            return True  # it listens, and the others' calls, which nobody takes, fill its queue
        except OSError:
            return False
    return True


def _wait_for(config: Config, others: list[str], seconds: float) -> list[str]:
    """Those that came in time."""
    end = time.monotonic() + seconds
    while True:
        met = [part for part in others if _is_there(config, part)]
        if met == others or time.monotonic() > end:
            return met
        time.sleep(_POLL_S)


def _wait_until_looked(config: Config, met: list[str]) -> None:
    """One that is gone has looked, too."""
    end = time.monotonic() + config.meet_s
    for part in met:
        while time.monotonic() < end:
            if _is_there(config, f"{part} looked") or not _is_there(config, part):
                break
            time.sleep(_POLL_S)


# --- what is reached -------------------------------------------------------------------------


def _devices(dev: Path) -> Iterator[dict[str, Any]]:
    """Only a refusal is one: a device without a driver behind it was reached."""
    found = (re.fullmatch(r"nvidia([0-9]+)", path.name) for path in dev.glob("nvidia*"))
    for number in sorted(int(match[1]) for match in found if match):
        denied = None
        try:
            os.close(os.open(dev / f"nvidia{number}", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError as error:
            denied = error.strerror if error.errno in _DENIED else None
        yield {"number": number, "denied": denied}


def _gpus(
    ask: Callable[..., tuple[nvml.System, list[nvml.NvmlGpu]]],
) -> tuple[list[str], str | None]:
    system, gpus = ask(_NVML_S, ("uuid",))
    uuids = [str(gpu.values["uuid"]) for gpu in gpus if gpu.values.get("uuid")]
    return uuids, system.error


def _constrained() -> str | None:
    with suppress(processes.CommandFailed):
        settings = processes.run(["scontrol", "show", "config"], _SCONTROL_S).stdout
        if match := re.search(r"^\s*ConstrainDevices\s*=\s*(\S+)", settings, re.MULTILINE):
            return match[1].lower()
    return None
