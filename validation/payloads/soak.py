"""A node under load: every GPU multiplies random numbers, and whatever tells is written down.

Random numbers, because regular ones switch fewer transistors and draw less power (gpu_gemm). Each
GPU is worked by a process of its own (gpu_worker), all at once, for so many seconds in a row. These
are cut into windows: of each comes how many products were done in which time, a hash of the last
product, and a hash of an attention of seeded numbers. Within one burn-in both are of the same seed
every time, so all hashes of a GPU are equal, and those of GPUs that are alike.

Meanwhile this process samples what the node says of itself: of each GPU clocks, temperature, power
and what holds the clocks back (NVML); of the host the CPUs' clocks, the load and the thermal zones,
as far as the kernel shows them. Counters of errors are read before and after: ECC, PCIe and NVLink
of GPUs, and those of the network devices.

On a CPU (`device` "cpu") one process with all CPUs that the job has works in the place of GPUs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.readers import nvml
from validation.payloads import compute, gpu_device, gpu_gemm, gpu_process, gpu_timing, node
from validation.payloads.config import require, require_positive
from validation.payloads.gpu_gemm import KINDS

if TYPE_CHECKING:
    import torch

Row = dict[str, Any]

proof = node.proof

NVML_S = 10.0  # that NVML may take for the node, and then for all GPUs at once
# Of each GPU again and again, and the counters once before and once after.
SAMPLED = (
    *("uuid", "clock_sm_mhz", "clock_memory_mhz", "temperature_c", "power_mw", "clock_reasons"),
    *("temperature_slowdown_c", "power_limit_mw", "power_limit_default_mw"),
)
COUNTED = (
    *("ecc_volatile_uncorrected", "ecc_volatile_corrected", "pcie_replays", "nvlinks"),
    "remapped_rows",
)
# Of /sys/class/net: what a healthy link never counts. Dropped packets are no error of a link.
NET_COUNTERS = (
    *("rx_errors", "tx_errors", "rx_crc_errors", "rx_frame_errors", "rx_length_errors"),
    *("tx_carrier_errors", "collisions"),
)
_LIMIT_SLACK_S = 60.0  # that a window may be late
_ALONE_SHARE = 0.05  # of a window, that one thread of a CPU is timed


@dataclass(frozen=True, kw_only=True)
class Config:
    """What the node does, and for how long.

    device         "cuda", or "cpu" in its place
    gpus           how many the node has, or instances of MIG
    mig            they are instances of MIG
    dtype          way to multiply, see gpu_gemm.KINDS
    size           of the square matrices; a multiple of 16
    attention      heads, length and width of each head: of one sequence
    seconds        of load
    window_s       after so many of them the work is looked at
    sample_s       between two samples
    seed           of all numbers
    start_limit_s  what it may take to import torch and start CUDA
    nonce          whose answer this is: it comes back in the document
    """

    device: str
    gpus: int
    mig: bool
    dtype: str
    size: int
    attention: tuple[int, ...]
    seconds: float
    window_s: float
    sample_s: float
    seed: int
    start_limit_s: float
    nonce: str = ""

    def __post_init__(self) -> None:
        known = gpu_device.DEVICES
        require(self.device in known, f'device is "{self.device}", not {" or ".join(known)}')
        require(self.dtype in KINDS, f'dtype is "{self.dtype}", not one of {", ".join(KINDS)}')
        require(self.size > 0 and self.size % 16 == 0, f"size is {self.size}, no multiple of 16")
        shape = self.attention
        require(len(shape) == 3 and min(shape) > 0, f"attention is {shape}, not three sizes")
        require_positive(self, "gpus", "seconds", "window_s", "sample_s", "start_limit_s")
        require(self.window_s <= self.seconds / 2, "window_s leaves fewer than two windows")


def measure(
    config: Config,
    environ: Mapping[str, str] = os.environ,
    command: Sequence[str] | None = None,
) -> Row:
    """The load and what was seen of it.

    device    what worked: "cuda" or "cpu"
    began_ns  the node's clock when the load began
    gpus      index, start (see gpu_device.start) and soak (see work) of each, or its `error`
    samples   what was seen meanwhile, each with `at_s`, seconds since the load began: `gpus`, one
              for each time and GPU (see nvml.NvmlGpu), and `host` (see host)
    counters  `before` and `after`: `gpus` (see nvml.NvmlGpu) and `net`, by device and counter
    """
    total = config.gpus if config.device == "cuda" else 1
    # One piece of work, with the limits that its length asks for.
    limits = compute.Config(
        device=config.device,
        gpus=total,
        mig=config.mig,
        start_limit_s=config.start_limit_s,
        limit_s=config.seconds + _LIMIT_SLACK_S,
        total_s=2 * (config.start_limit_s + config.seconds + _LIMIT_SLACK_S),
    )
    budget = compute.Budget(limits.total_s, time.monotonic)
    if config.mig:
        environ = compute.of_instances(environ, config.start_limit_s)
    gpus = [
        compute.GpuProcess(
            limits,
            budget,
            list(command or gpu_process.command()),
            partial(compute.alone, environ, [number]),
        )
        for number in range(total)
    ]
    message = {
        "do": "soak",
        **{name: getattr(config, name) for name in ("dtype", "size", "seconds", "window_s")},
        "attention": list(config.attention),
        "seed": config.seed,
    }
    before = counters(config.device)
    with ThreadPoolExecutor(total) as pool:
        try:
            started = list(pool.map(compute.GpuProcess.start, gpus))
            ready = list(pool.map(partial(_prepared, message), gpus, started))
            began_ns = time.time_ns()
            with Sampler(config.device, config.sample_s) as sampler:
                done = list(pool.map(_finished, gpus, ready))
        except BaseException:
            for gpu in gpus:
                gpu.kill()
            raise
        finally:
            for gpu in gpus:
                gpu.end()
    return {
        "device": config.device,
        "began_ns": began_ns,
        "gpus": [
            {"index": number, "start": started[number], "soak": done[number]}
            for number in range(total)
        ],
        "samples": sampler.samples,
        "counters": {"before": before, "after": counters(config.device)},
    }


def _prepared(message: Row, gpu: compute.GpuProcess, started: Row) -> Row:
    return gpu.prepare(message) if started["error"] is None else {"error": "it did not start"}


def _finished(gpu: compute.GpuProcess, ready: Row) -> Row:
    return gpu.finish() if ready["error"] is None else ready


# --- what is sampled -------------------------------------------------------------------------


class Sampler:
    """Looks at the node again and again, in a thread, within a `with` block."""

    def __init__(
        self, device: str, every_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.samples: dict[str, list[Row]] = {"gpus": [], "host": []}
        self._device, self._every_s, self._clock = device, every_s, clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(3 * NVML_S)

    def _run(self) -> None:
        began = self._clock()
        # A first look when the load has begun to warm the node.
        while not self._ended.wait(self._every_s):
            at_s = round(self._clock() - began, 1)
            if self._device == "cuda":
                _, gpus = nvml.ask(NVML_S, SAMPLED)
                self.samples["gpus"] += [{"at_s": at_s, **asdict(gpu)} for gpu in gpus]
            self.samples["host"].append({"at_s": at_s, **host()})


def host(sys: Path = Path("/sys"), proc: Path = Path("/proc")) -> dict[str, float | None]:
    """What the node's kernel shows of it; None for what it does not.

    load           processes that run or wait, over the last minute
    mhz            the CPUs' clock, at the median over them
    mhz_least      of the slowest CPU
    temperature_c  of the hottest thermal zone
    """
    clocks = sorted(_clocks(sys, proc))
    zones = [_number(path) for path in (sys / "class/thermal").glob("thermal_zone*/temp")]
    temperatures = [zone / 1000 for zone in zones if zone is not None]
    load = None
    with suppress(OSError, ValueError):
        load = float((proc / "loadavg").read_text(encoding="ascii").split()[0])
    return {
        "load": load,
        "mhz": clocks[len(clocks) // 2] if clocks else None,
        "mhz_least": clocks[0] if clocks else None,
        "temperature_c": max(temperatures, default=None),
    }


def _clocks(sys: Path, proc: Path) -> list[float]:
    """MHz of each CPU: what the kernel set it to, or else what it saw (x86)."""
    set_to = [
        number / 1000
        for path in (sys / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq")
        if (number := _number(path)) is not None
    ]
    if set_to:
        return set_to
    with suppress(OSError, ValueError):
        lines = (proc / "cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    return []


def counters(device: str, sys: Path = Path("/sys")) -> Row:
    """Counters of errors; see measure."""
    gpus = nvml.ask(NVML_S, COUNTED)[1] if device == "cuda" else []
    return {"gpus": [asdict(gpu) for gpu in gpus], "net": net(sys)}


def net(sys: Path = Path("/sys")) -> dict[str, dict[str, int]]:
    """By network device, its counters of errors. Loopback has no link."""
    found = {}
    with suppress(OSError):
        for path in sorted((sys / "class/net").iterdir()):
            numbers = {name: _number(path / "statistics" / name) for name in NET_COUNTERS}
            known = {name: int(value) for name, value in numbers.items() if value is not None}
            if known and path.name != "lo":
                found[path.name] = known
    return found


def _number(path: Path) -> float | None:
    with suppress(OSError, ValueError):
        return float(path.read_text(encoding="ascii"))
    return None


# --- the work, in the process of a GPU -------------------------------------------------------


def work(
    device: gpu_device.Device,
    *,
    dtype: str,
    size: int,
    attention: Sequence[int],
    seconds: float,
    window_s: float,
    seed: int,
    begin: Callable[[], None],
) -> Row:
    """Load for so many seconds; `begin` returns when all GPUs of the node are ready.

    dtype    what was multiplied; its size is the one that was asked for
    cpu      name of the processor and CPUs that worked, where these did; else None
    data     a hash of the numbers themselves, see gpu_gemm.Operands
    windows  of each: `at_s` when it ended, seconds after the load began; `products` and the
             `busy_s` in which the device did them; `gemm` and `attention`, hashes of the results

    Of CPUs, `products` are those of one thread at the end of the window, in seconds of its own CPU
    time: the wall time of all threads says how busy the host is with others.
    """
    import torch

    threads = torch.get_num_threads()
    operands = gpu_gemm.draw(device, size, seed)
    multiply, product = gpu_gemm.prepare(dtype, device, operands)
    attend = _attention(device, attention, seed)
    multiply()
    attend()
    device.watch.synchronize()
    begin()
    single_s = gpu_timing.warmed_up(multiply, 3, device.watch)
    began = device.watch.clock()
    windows: list[Row] = []
    # Two windows at least: on a host that others keep busy the first may last as long as the load,
    # and one alone has nothing to be compared with.
    while (at_s := device.watch.clock() - began) < seconds or len(windows) < 2:
        products, busy_s = 0, 0.0
        until = at_s + window_s if len(windows) < 2 else min(at_s + window_s, seconds)
        while (left := until - (device.watch.clock() - began)) > 0:
            # No longer than a second in a row, so that the window ends when it should.
            times = gpu_timing.time_each(
                multiply, gpu_timing.enough(min(left, 1.0), single_s, 1), device.watch
            )
            products += times.iterations
            busy_s += times.time_s_total
        product.fill_(float("nan"))  # what is not written must not look like an earlier product
        if not device.is_gpu:
            torch.set_num_threads(1)  # how many there are may change the order of adding
            products, busy_s = _one_thread(multiply, window_s * _ALONE_SHARE)
        multiply()
        hashes = {"gemm": gpu_gemm.bits(product), "attention": gpu_gemm.bits(attend())}
        torch.set_num_threads(threads)
        windows.append(
            {
                "at_s": round(device.watch.clock() - began, 3),
                "products": products,
                "busy_s": busy_s,
                **hashes,
            }
        )
    torch.set_float32_matmul_precision("highest")
    return {
        "dtype": dtype,
        "size": size,
        "cpu": None if device.is_gpu else f"{_processor()}, {threads} threads",
        "data": operands.data,
        "windows": windows,
    }


def _one_thread(multiply: Callable[[], object], seconds: float) -> tuple[int, float]:
    """How many products this thread does in so many seconds of its CPU time, and the seconds."""
    products, began = 0, time.thread_time()
    while (busy_s := time.thread_time() - began) < seconds or products == 0:
        multiply()
        products += 1
    return products, busy_s


def _attention(
    device: gpu_device.Device, shape: Sequence[int], seed: int
) -> Callable[[], torch.Tensor]:
    """An attention over seeded numbers. Its forward pass adds in one order every time."""
    import torch

    heads, length, width = shape
    generator = torch.Generator().manual_seed(seed + 1)
    kind = torch.float16 if device.is_gpu else torch.float32
    query, key, value = (
        torch.randn(1, heads, length, width, generator=generator).to(device.torch, kind)
        for _ in range(3)
    )
    attend = torch.nn.functional.scaled_dot_product_attention
    return lambda: attend(query, key, value, is_causal=True)


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    with suppress(OSError):
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(("model name", "CPU part")):
                return line.partition(":")[2].strip()
    return "unknown processor"
