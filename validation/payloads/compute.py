"""What every GPU of a node computes and moves: does CUDA start, how fast is it, is it right?

A payload of one task that sees all GPUs of its node. Each GPU is measured by a process of its own
(gpu_worker), which this one only talks to: a GPU that hangs, or that takes its process with it,
costs its own figures and none of the others', and the answer comes in any case.

First CUDA is started and a kernel run, on all GPUs at once. Then come matrix products and the GPU's
own memory, on all GPUs at once too, each measurement begun on all of them together, because power
and cooling that do not suffice show only then. Copies from and to the host follow, one GPU after
another: together they would measure the host. Last come copies between each two GPUs. Meanwhile
NVML is asked about clocks, power, heat and links (gpu_links).

The same runs on a CPU with small sizes (`device` "cpu"), which shows that the software works and
says nothing about a GPU; the document says which it was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from cluster.errors import CannotRun
from cluster.readers import nvml
from validation.payloads import gpu_device, gpu_links, gpu_process, node
from validation.payloads.config import require, require_positive
from validation.payloads.gpu_gemm import KINDS
from validation.payloads.gpu_memory import DIRECTIONS, MOVED

Row = dict[str, Any]

proof = node.proof

_ROW_BYTES = 1 << 18  # of the memory pattern (gpu_memory)


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is measured, and for how long.

    device            "cuda", or "cpu" in its place
    gpus              how many the node has, or instances; None measures all that torch sees
    mig               they are instances of MIG: each is a device alone, without pairs
    dtypes            ways to multiply, see gpu_gemm.KINDS; one that a GPU lacks is reported so
    gemm_size         of the square matrices; a multiple of 16 (fp8)
    gemm_s            seconds that the products of one kind are timed for, at least `least` of them
    sustain_s         seconds that the first kind is multiplied for between its first figure and the
                      one that is judged; 0 for one figure alone
    repeats           products after those, whose bits are compared
    memory_bytes      of each of three buffers; a multiple of 256 KiB, several times an L2 cache
    copy_bytes        of a transfer to or from the host, and between two GPUs
    iterations        of each copy
    warmup            repetitions before those that are timed
    start_limit_s     what it may take to import torch and start CUDA
    limit_s           what one measurement may take on one GPU, after its preparation as much again
    total_s           what all may take; what is not begun by then is reported as not measured
    nonce             whose answer this is: it comes back in the document
    """

    device: str = "cuda"
    gpus: int | None = None
    mig: bool = False
    dtypes: tuple[str, ...] = tuple(KINDS)
    gemm_size: int = 8192
    gemm_s: float = 1.0
    sustain_s: float = 8.0
    least: int = 10
    repeats: int = 4
    memory_bytes: int = 1 << 30
    copy_bytes: int = 1 << 28
    iterations: int = 20
    warmup: int = 5
    seed: int = 1234
    start_limit_s: float = 120
    limit_s: float = 60
    total_s: float = 600
    nonce: str = ""

    def __post_init__(self) -> None:
        known = gpu_device.DEVICES
        require(self.device in known, f'device is "{self.device}", not {" or ".join(known)}')
        if self.gpus is not None:
            require_positive(self, "gpus")
        for kind in self.dtypes:
            require(kind in KINDS, f'dtypes has "{kind}", not one of {", ".join(KINDS)}')
        require(len(set(self.dtypes)) == len(self.dtypes), "dtypes has one twice")
        require_positive(self, "gemm_size", "gemm_s", "least", "memory_bytes", "copy_bytes")
        require_positive(self, "iterations", "warmup", "start_limit_s", "limit_s", "total_s")
        require(self.sustain_s >= 0, f"sustain_s is {self.sustain_s}, below zero")
        require(self.repeats > 1, f"repeats is {self.repeats}: nothing to compare with")
        require(self.gemm_size % 16 == 0, f"gemm_size is {self.gemm_size}, no multiple of 16")
        whole = self.memory_bytes % _ROW_BYTES == 0
        require(whole, f"memory_bytes is {self.memory_bytes}, no multiple of {_ROW_BYTES}")


@dataclass
class Budget:
    """The time that is left for the whole node."""

    total_s: float
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._end = self.clock() + self.total_s

    def limit(self, seconds: float) -> float:
        """So many seconds, or what is left of all. Raises CannotRun when nothing is."""
        left = self._end - self.clock()
        if left <= 0:
            raise CannotRun(f"not measured: the {self.total_s:g} s for the node were over")
        return min(seconds, left)


class GpuProcess:
    """The process that measures one GPU; a second one where the first was lost, and no third.

    Every method returns a row: {"error": None, …}, or {"error": a sentence} alone.
    """

    def __init__(
        self,
        config: Config,
        budget: Budget,
        command: Sequence[str],
        environ: Callable[[], Mapping[str, str]],
        places: Mapping[str, str] | None = None,
    ) -> None:
        self._config = config
        self._budget = budget
        self._command = command
        self._environ = environ
        self._places = dict(places or {})
        self._process: gpu_process.Process | None = None
        self._chances = 2
        self._last = ""

    def start(self) -> Row:
        """Starts CUDA. Where that fails it is not tried again."""
        row = self._guarded(self._start)
        if row["error"] is not None:
            self._chances = 0
        return row

    def ask(self, message: Row) -> Row:
        """One measurement that waits for no other GPU."""

        def measure() -> Row:
            self._tell(message)
            return self._answer(self._config.limit_s)

        return self._guarded(measure)

    def prepare(self, message: Row) -> Row:
        """The first half of a measurement that all GPUs begin together."""
        return self.ask(message)

    def finish(self) -> Row:
        """The second half."""

        def measure() -> Row:
            assert self._process is not None
            self._process.tell({"go": True})
            return self._answer(self._config.limit_s)

        return self._guarded(measure)

    @property
    def usable(self) -> bool:
        return self._process is not None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def _guarded(self, measure: Callable[[], Row]) -> Row:
        """The row, after which a process that failed is gone."""
        try:
            row = measure()
        except gpu_process.Lost as lost:
            row = {"error": f"the process {lost}"}
        except CannotRun as problem:
            row = {"error": str(problem)}
        if row["error"] is not None:
            self._last = self._last or row["error"]
            self.end()
        return row

    def _start(self) -> Row:
        limit = self._budget.limit(self._config.start_limit_s)
        self._chances -= 1
        self._process = gpu_process.Process(self._command, self._environ())
        start = {"do": "start", "device": self._config.device, "places": self._places}
        self._process.tell(start)
        return self._answer(limit)

    def _tell(self, message: Row) -> None:
        self._budget.limit(self._config.limit_s)  # before anything else: later all say the same
        if self._process is None:
            if self._chances == 0:
                raise CannotRun(f"not measured after an earlier failure ({self._last})")
            again = self._start()
            if again["error"] is not None:
                raise CannotRun(again["error"])
        assert self._process is not None
        self._process.tell(message)

    def _answer(self, limit_s: float) -> Row:
        assert self._process is not None
        row = self._process.answer(self._budget.limit(limit_s))
        if "error" not in row and row.get("ready") is not True:
            raise gpu_process.Lost("answered something else than it was asked")
        return {"error": None, **row}


def of_instances(
    environ: Mapping[str, str],
    limit_s: float,
    instances: Callable[[float], Sequence[str]] = nvml.mig_uuids,
) -> Mapping[str, str]:
    """The environment with each instance of MIG by its UUID, unless Slurm already gave some.

    By its number CUDA would take the first instance of each GPU and none of the others.
    """
    if environ.get("CUDA_VISIBLE_DEVICES"):
        return environ
    return {**environ, "CUDA_VISIBLE_DEVICES": ",".join(instances(limit_s))}


def measure(
    config: Config,
    environ: Mapping[str, str] = os.environ,
    command: Sequence[str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    instances: Callable[[float], Sequence[str]] = nvml.mig_uuids,
) -> Row:
    """Everything, for each GPU; see the functions of gpu_device, gpu_gemm and gpu_memory.

    gpus    index, start (what CUDA says of the GPU), gemm, memory, copies: a row for each
            measurement; `at_once` says on how many GPUs it ran at the same time; fill: see gpu_fill
    pairs   a row for each ordered pair of GPUs
    links   see gpu_links.Links.result; None on a CPU

    A row whose `error` is not null has nothing else to say. Raises CannotRun when the GPUs cannot
    be counted, where it is not said how many there are.
    """
    budget = Budget(config.total_s, clock)
    worker = list(command or gpu_process.command())
    if config.mig:
        environ = of_instances(environ, budget.limit(config.start_limit_s), instances)
    total = config.gpus or _count(config, budget, worker, environ)
    links = gpu_links.Links(config.total_s) if config.device == "cuda" else None
    places = links.places() if links else {}
    gpus = [
        GpuProcess(config, budget, worker, partial(alone, environ, [number]), places)
        for number in range(total)
    ]
    with ThreadPoolExecutor(total) as pool:
        try:
            started = list(pool.map(GpuProcess.start, gpus))
            with links.watched() if links else nullcontext():
                gemm = [_together(pool, gpus, message) for message in _gemm(config)]
                memory = [_together(pool, gpus, message) for message in _memory(config)]
                fill = list(pool.map(lambda gpu: gpu.ask({"do": "fill"}), gpus))
                copies = [_one_by_one(gpus, message, links) for message in _copies(config)]
            usable = [number for number, gpu in enumerate(gpus) if gpu.usable]
            for gpu in gpus:
                gpu.end()
            # One process has one instance of MIG, whatever it is shown.
            pairs = [] if config.mig else _pairs(config, budget, worker, environ, total, usable)
        except BaseException:  # of Ctrl-C too: the workers are in groups of their own
            for gpu in gpus:
                gpu.kill()
            raise
        finally:
            for gpu in gpus:
                gpu.end()
    return {
        "device": config.device,
        "gpus": [
            {
                "index": number,
                "start": started[number],
                "gemm": [rows[number] for rows in gemm],
                "memory": [rows[number] for rows in memory],
                "fill": fill[number],
                "copies": [rows[number] for rows in copies],
            }
            for number in range(total)
        ],
        "pairs": pairs,
        "links": _asked(links, started, {"products": gemm, "memory": memory}) if links else None,
    }


def _asked(
    links: gpu_links.Links, started: Sequence[Row], loads: Mapping[str, Sequence[Sequence[Row]]]
) -> Row:
    """What NVML said, after it is told when each GPU was under which load."""
    for load, measurements in loads.items():
        for rows in measurements:
            for number, row in enumerate(rows):
                if "began" in row and "ended" in row:
                    links.loaded(number, load, row["began"], row["ended"])
    return links.result([(row.get("uuid"), row.get("bus")) for row in started])


def _gemm(config: Config) -> list[Row]:
    return [
        {
            "do": "gemm",
            "dtype": kind,
            "size": config.gemm_size,
            "seed": config.seed,
            "seconds": config.gemm_s,
            "sustain_s": config.sustain_s,
            "least": config.least,
            "warmup": config.warmup,
            "repeats": config.repeats,
        }
        for kind in config.dtypes
    ]


def _memory(config: Config) -> list[Row]:
    return [
        {"do": "memory", "operation": operation, "size": config.memory_bytes, **_often(config)}
        for operation in MOVED
    ]


def _copies(config: Config) -> list[Row]:
    return [
        {
            "do": "copies",
            "direction": direction,
            "size": config.copy_bytes,
            "seed": config.seed,
            **_often(config),
        }
        for direction in DIRECTIONS
    ]


def _often(config: Config) -> Row:
    return {"iterations": config.iterations, "warmup": config.warmup}


def _together(pool: ThreadPoolExecutor, gpus: Sequence[GpuProcess], message: Row) -> list[Row]:
    """One measurement, begun on all GPUs that could prepare it when the last of them has."""
    prepared = list(pool.map(lambda gpu: gpu.prepare(message), gpus))
    ready = [row["error"] is None for row in prepared]

    def finish(number: int) -> Row:
        return gpus[number].finish() if ready[number] else prepared[number]

    named: Row = {key: message[key] for key in ("dtype", "operation") if key in message}
    rows = list(pool.map(finish, range(len(gpus))))
    return [{**named, "at_once": sum(ready), **row} for row in rows]


def _one_by_one(
    gpus: Sequence[GpuProcess], message: Row, links: gpu_links.Links | None
) -> list[Row]:
    """Copies from the host or to it; NVML is asked about the link of the GPU that copies."""
    rows = []
    for number, gpu in enumerate(gpus):
        with links.copies(number) if links else nullcontext():
            rows.append({"direction": message["direction"], **gpu.ask(message)})
    return rows


def _pairs(
    config: Config,
    budget: Budget,
    command: Sequence[str],
    environ: Mapping[str, str],
    total: int,
    usable: Sequence[int],
) -> list[Row]:
    """Copies from each GPU to each other one, by a process that sees all that are usable."""
    process = GpuProcess(config, budget, command, partial(alone, environ, usable))
    rows = []
    opened: Row | None = None
    try:
        for source in range(total):
            for target in range(total):
                if source == target:
                    continue
                row: Row = {"source": source, "target": target}
                missing = [number for number in (source, target) if number not in usable]
                if missing:
                    rows.append({**row, "error": f"GPU {missing[0]} is not usable"})
                    continue
                opened = opened or process.start()
                if opened["error"] is not None:
                    rows.append({**row, "error": opened["error"]})
                    continue
                message = {
                    "do": "pair",
                    "source": usable.index(source),
                    "target": usable.index(target),
                    "size": config.copy_bytes,
                    "seed": config.seed + source * total + target,
                    **_often(config),
                }
                rows.append({**row, **process.ask(message)})
    finally:
        process.end()
    return rows


def alone(environ: Mapping[str, str], numbers: Sequence[int]) -> dict[str, str]:
    """The environment of a process that sees these GPUs and no others."""
    seen = ",".join(gpu_device.visible(environ, number) for number in numbers)
    # As NVML counts them: by their place on the bus. CUDA would put the fastest one first.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **environ, "CUDA_VISIBLE_DEVICES": seen}


def _count(
    config: Config, budget: Budget, command: Sequence[str], environ: Mapping[str, str]
) -> int:
    """GPUs that torch sees. Raises CannotRun when there is none, or CUDA does not start."""
    if config.device == "cpu":
        return 1
    try:
        process = gpu_process.Process(command, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **environ})
        try:
            process.tell({"do": "count"})
            answer = process.answer(budget.limit(config.start_limit_s))
        finally:
            process.end()
    except gpu_process.Lost as lost:
        raise CannotRun(f"the GPUs cannot be counted: the process {lost}") from lost
    if answer["error"] is not None:
        raise CannotRun(f"CUDA does not start: {answer['error']}")
    require(answer["count"] > 0, "torch sees no GPU")
    return int(answer["count"])
