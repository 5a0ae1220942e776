"""What NVML says of the GPUs while they work, and before and after it.

An idle board lets its PCIe link fall back to the slowest generation, so only a reading under load
says what it can. Heat and a power supply that does not suffice show under load alone, too. Counters
of NVLink and ECC errors say nothing of when; what they grew by does.

NVML is asked by processes of their own (nvml.py): one that hangs costs its answer, and nothing of
what is measured.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import reduce
from operator import and_
from typing import Any

from cluster.readers import nvml

# That NVML may take for the node, and then for all GPUs at once: each of eight processes asks for
# up to 18 links, eight questions about each. `health` may take as long (suites/gpu.yml).
LIMIT_S = 30.0
ASKED = (
    "uuid",
    "pci",
    "pcie_generation_max",
    "pcie_width_max",
    "pcie_replays",
    "nvlinks",
    "clock_sm_max_mhz",
    "temperature_slowdown_c",
    "ecc_volatile_uncorrected",
    "ecc_volatile_corrected",
    "remapped_rows",
    "retired_pages",
)
LOADS = ("products", "memory")  # what a GPU works at while it is looked at, beside copies
PAUSE_S = 0.02

Sample = dict[str, Any]


class Links:
    """The links of all GPUs of the node, from now on."""

    def __init__(
        self,
        limit_s: float,
        ask_s: float = LIMIT_S,
        *,
        asked: Sequence[str] = ASKED,
        loads: Sequence[str] = LOADS,
        pause_s: float = PAUSE_S,
    ) -> None:
        """limit_s   how long the measurement may take at most
        ask_s     see LIMIT_S
        asked     what is asked before and after, of nvml.QUESTIONS; `uuid` and `pci` among it
        loads     what the GPUs work at, beside copies
        pause_s   between two looks at the GPUs that work
        """
        self._limit_s, self._ask_s = limit_s, ask_s
        self._asked, self._loads, self._pause_s = asked, loads, pause_s
        self._began = time.monotonic()
        self._system, self._before = nvml.ask(ask_s, asked)
        self._watch: nvml.Watch | None = None
        self._spans: dict[tuple[int, str], list[tuple[float, float]]] = {}
        self._samples: list[Sample] = []

    def places(self) -> dict[str, str]:
        """Where the GPUs lie on the PCI bus, by their UUIDs."""
        values = [gpu.values for gpu in self._before]
        return {each["uuid"]: each["pci"] for each in values if each["uuid"] and each["pci"]}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """What happens within is looked at."""
        if self._system.error is None:
            self._watch = nvml.Watch(self._limit_s, self._pause_s)
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
            self.loaded(gpu, "copies", begin, time.monotonic())

    def loaded(self, gpu: int, load: str, began: float, ended: float) -> None:
        """This GPU was under this load from then to then, by time.monotonic()."""
        self._spans.setdefault((gpu, load), []).append((began, ended))

    def result(self, identities: list[tuple[str | None, str | None]]) -> dict[str, Any]:
        """What came out, for GPUs with these UUIDs and places on the bus.

        nvml      see nvml.System
        seconds   between the two questions
        gpus      of each GPU, in the order of `identities`: `index` as NVML counts, None where it
                  lists no such GPU; `before` and `after`, see nvml.NvmlGpu; `samples` of the PCIe
                  link while the GPU copied, and the highest `generation`, `width` and `sm_mhz` (of
                  the SM clock, None where NVML does not know it) among them; `held_by`: what held
                  the clock back in every sample, in words; `loads`: see _under_load
        """
        after: list[nvml.NvmlGpu] = []
        seconds = time.monotonic() - self._began
        if self._system.error is None:
            _, after = nvml.ask(self._ask_s, self._asked)
        rows = []
        for number, identity in enumerate(identities):
            index = next((gpu.index for gpu in self._before if _is(gpu, *identity)), None)
            samples = self._of(index, number, "copies")
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
                    "loads": [
                        _under_load(load, self._of(index, number, load)) for load in self._loads
                    ],
                }
            )
        return {"nvml": asdict(self._system), "seconds": round(seconds, 3), "gpus": rows}

    def _of(self, index: int | None, number: int, load: str) -> list[Sample]:
        """What NVML's GPU `index` answered while the one that is measured was under this load."""
        spans = self._spans.get((number, load), [])
        return [
            item
            for item in self._samples
            if item.get("gpu") == index
            and "error" not in item
            and any(begin <= item["at"] <= end for begin, end in spans)
        ]


def _under_load(load: str, samples: Sequence[Sample]) -> dict[str, Any]:
    """What NVML answered under one load; None for what it does not know of this board.

    load           what the GPU worked at
    samples        how many answers there were
    sm_mhz         SM clock, the median
    power_w        power, the median
    temperature_c  the highest
    held_by        reason and share: which part of the answers named what holds the clocks back
    """
    clocks, power, heat, masks = (
        _known(samples, name) for name in ("sm_mhz", "power_mw", "temperature_c", "reasons")
    )
    named = Counter(reason for mask in masks for reason in nvml.clock_reasons(mask))
    return {
        "load": load,
        "samples": len(samples),
        "sm_mhz": round(statistics.median(clocks)) if clocks else None,
        "power_w": round(statistics.median(power) / 1000) if power else None,
        "temperature_c": max(heat, default=None),
        "held_by": [
            {"reason": reason, "share": round(times / len(masks), 3)}
            for reason, times in sorted(named.items())
        ],
    }


def _known(samples: Sequence[Sample], name: str) -> list[int]:
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
