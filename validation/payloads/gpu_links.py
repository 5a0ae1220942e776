"""What NVML says of the GPUs' links while they work: PCIe as it copies, NVLink before and after.

An idle board lets its PCIe link fall back to the slowest generation, so only a reading under load
says what it can. Counters of NVLink errors say nothing of when; what they grew by does.

NVML is asked by processes of their own (nvml.py): one that hangs costs its answer, and nothing of
what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import reduce
from operator import and_
from typing import Any

from cluster.readers import nvml

# That NVML may take for the node, and then for all GPUs at once: each of eight processes asks for up
# to 18 links with eight questions about each, as long as `health` may take (suites/gpu.yml).
LIMIT_S = 30.0
ASKED = (
    "uuid",
    "pci",
    "pcie_generation_max",
    "pcie_width_max",
    "pcie_replays",
    "nvlinks",
    "clock_sm_max_mhz",
)


class Links:
    """The links of all GPUs of the node, from now on."""

    def __init__(self, limit_s: float, ask_s: float = LIMIT_S) -> None:
        """`limit_s` is how long the measurement may take at most."""
        self._limit_s, self._ask_s = limit_s, ask_s
        self._began = time.monotonic()
        self._system, self._before = nvml.ask(ask_s, ASKED)
        self._watch: nvml.PcieLinks | None = None
        self._copied: dict[int, list[tuple[float, float]]] = {}
        self._samples: list[dict[str, Any]] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What happens within is looked at."""
        if self._system.error is None:
            self._watch = nvml.PcieLinks(self._limit_s)
            self._watch.begun(self._ask_s)
        try:
            yield
        finally:
            if self._watch is not None:
                self._samples = self._watch.end()
                self._watch = None

    @contextmanager
    def copies(self, gpu: int) -> Iterator[None]:
        """This GPU, by its number among those that are measured, copies within."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self._copied.setdefault(gpu, []).append((begin, time.monotonic()))

    def result(self, identities: list[tuple[str | None, str | None]]) -> dict[str, Any]:
        """What came out, for GPUs with these UUIDs and places on the bus.

        nvml      see nvml.System
        seconds   between the two questions
        gpus      of each GPU, in the order of `identities`: `index` as NVML counts, None where it
                  lists no such GPU; `before` and `after`, see nvml.NvmlGpu; `samples` of the PCIe
                  link while the GPU copied, and the highest `generation`, `width` and `sm_mhz` (of
                  the SM clock, None where NVML does not know it) among them; `held_by`: what held
                  the clock back in every sample, in words
        """
        after: list[nvml.NvmlGpu] = []
        seconds = time.monotonic() - self._began
        if self._system.error is None:
            _, after = nvml.ask(self._ask_s, ASKED)
        rows = []
        for number, identity in enumerate(identities):
            index = next((gpu.index for gpu in self._before if _is(gpu, *identity)), None)
            copied = self._copied.get(number, [])
            samples = [
                item
                for item in self._samples
                if item.get("gpu") == index
                and "error" not in item
                and any(begin <= item["at"] <= end for begin, end in copied)
            ]
            rows.append(
                {
                    "index": index,
                    "before": _of(self._before, index),
                    "after": _of(after, index),
                    "samples": len(samples),
                    "generation": max((item["generation"] for item in samples), default=None),
                    "width": max((item["width"] for item in samples), default=None),
                    "sm_mhz": max(_known(samples, "sm_mhz"), default=None),
                    "held_by": ", ".join(nvml.clock_reasons(_always(_known(samples, "reasons")))),
                }
            )
        return {"nvml": asdict(self._system), "seconds": round(seconds, 3), "gpus": rows}


def _known(samples: list[dict[str, Any]], name: str) -> list[int]:
    return [item[name] for item in samples if item.get(name) is not None]


def _always(masks: list[int]) -> int:
    """The bits that are set in all of them; none where there is none."""
    return reduce(and_, masks) if masks else 0


def _is(gpu: nvml.NvmlGpu, uuid: str | None, bus: str | None) -> bool:
    """Whether NVML's GPU is the one with this UUID, or else with this place on the bus."""
    if uuid is not None:
        return bool(gpu.values["uuid"] == uuid)
    place = gpu.values["pci"]
    # NVML writes a domain of eight digits, torch one of four.
    return bus is not None and place is not None and str(place).lower()[-12:] == bus.lower()[-12:]


def _of(gpus: list[nvml.NvmlGpu], index: int | None) -> dict[str, Any] | None:
    return next((asdict(gpu) for gpu in gpus if gpu.index == index), None)
