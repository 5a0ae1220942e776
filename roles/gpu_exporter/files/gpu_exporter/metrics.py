"""What NVML says, under DCGM's names and in DCGM's units.

Names, types and units are those of dcgm-exporter's etc/default-counters.csv and of
https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html; labels those of its
internal/pkg/rendermetrics. A dashboard or an alert knows no difference, but that what NVML cannot
tell is absent: profiling (DCGM_FI_PROF_*), traffic of NVLink, and XIDs, which the kernel's log has.

Where MIG is on, memory is told for each instance and all else for the GPU once. dcgm-exporter
repeats the GPU's values for each instance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.readers.nvml import NvmlGpu, System
from roles.gpu_exporter.files.gpu_exporter import xid
from roles.gpu_exporter.files.gpu_exporter.textfile import COUNTER, GAUGE, Family, Sample

Jobs = Mapping[str, Sequence[str]]

EXPORTER = "gpu"
WINDOW_S = 300.0  # dcgm-exporter's --clock-events-count-window-size

# By bit of nvmlClocksEventReasons: internal/pkg/collector/clock_events_collector.go
CLOCK_EVENTS = (
    "gpu_idle",
    "clocks_setting",
    "power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clocks",
)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _watts(milliwatts: Any) -> float | None:
    return None if milliwatts is None else float(milliwatts) / 1000


def _of(key: str) -> Callable[[Any], float | None]:
    return lambda values: _number(values[key])


def _flag(key: str) -> Callable[[Any], float | None]:
    return lambda values: float(values[key] == "yes")


def _links(counter: str) -> Callable[[Any], float | None]:
    """The sum over the links that count it; nothing where none does, or the board has none."""

    def total(links: Any) -> float | None:
        counted = [link["errors"][counter] for link in links]
        known = [count for count in counted if count is not None]
        return float(sum(known)) if known else None

    return total


@dataclass(frozen=True)
class Metric:
    """question is the name of what NVML is asked; read makes DCGM's value of its answer."""

    name: str
    kind: str
    help: str
    question: str
    read: Callable[[Any], float | None] = _number


def _gauge(name: str, *rest: Any) -> Metric:
    return Metric(f"DCGM_FI_DEV_{name}", GAUGE, *rest)


def _counter(name: str, *rest: Any) -> Metric:
    return Metric(f"DCGM_FI_DEV_{name}", COUNTER, *rest)


METRICS = (
    _gauge("SM_CLOCK", "SM clock frequency (in MHz).", "clock_sm_mhz"),
    _gauge("MEMORY_TEMP", "Memory temperature (in C).", "temperature_memory_c"),
    _gauge("GPU_TEMP", "GPU temperature (in C).", "temperature_c"),
    _gauge("SLOWDOWN_TEMP", "Slowdown temperature (in C).", "temperature_slowdown_c"),
    _gauge(
        "MEM_MAX_OP_TEMP",
        "Maximum operating temperature of the memory (in C).",
        "temperature_memory_max_c",
    ),
    _gauge("POWER_USAGE", "Power draw (in W).", "power_mw", _watts),
    _counter(
        "TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", "energy_mj"
    ),
    _counter("PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", "pcie_replays"),
    _gauge("PCIE_LINK_GEN", "PCIe current link generation.", "pcie_generation"),
    _gauge("PCIE_LINK_WIDTH", "PCIe current link width.", "pcie_width"),
    _gauge("PCIE_MAX_LINK_GEN", "PCIe max link generation.", "pcie_generation_max"),
    _gauge("PCIE_MAX_LINK_WIDTH", "PCIe max link width.", "pcie_width_max"),
    _gauge("GPU_UTIL", "GPU utilization (in %).", "utilization", _of("gpu")),
    _counter(
        "ECC_DBE_VOL_TOTAL",
        "Total number of double-bit volatile ECC errors.",
        "ecc_volatile_uncorrected",
    ),
    _counter(
        "RETIRED_SBE",
        "Total number of retired pages due to single-bit errors.",
        "retired_pages",
        _of("single_bit"),
    ),
    _counter(
        "RETIRED_DBE",
        "Total number of retired pages due to double-bit errors.",
        "retired_pages",
        _of("double_bit"),
    ),
    _counter(
        "RETIRED_PENDING",
        "Total number of pages pending retirement.",
        "retired_pages",
        _flag("pending"),
    ),
    _counter(
        "UNCORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for uncorrectable errors",
        "remapped_rows",
        _of("uncorrectable"),
    ),
    _counter(
        "CORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for correctable errors",
        "remapped_rows",
        _of("correctable"),
    ),
    _gauge(
        "ROW_REMAP_FAILURE",
        "Whether remapping of rows has failed",
        "remapped_rows",
        _flag("failure"),
    ),
    _gauge(
        "ROW_REMAP_PENDING",
        "Whether remapping of rows is pending",
        "remapped_rows",
        _flag("pending"),
    ),
    _counter(
        "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "Total number of NVLink flow-control CRC errors.",
        "nvlinks",
        _links("crc_flit"),
    ),
    _counter(
        "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        "Total number of NVLink data CRC errors.",
        "nvlinks",
        _links("crc_data"),
    ),
    _counter(
        "NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        "Total number of NVLink retries.",
        "nvlinks",
        _links("replay"),
    ),
    _counter(
        "NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "Total number of NVLink recovery errors.",
        "nvlinks",
        _links("recovery"),
    ),
    # NVLink 5 has these in place of the four.
    _counter(
        "NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
        "Number of times a link was lost because its recovery failed.",
        "nvlinks",
        _links("recovery_failed"),
    ),
    _counter(
        "NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS",
        "Number of times a link recovered.",
        "nvlinks",
        _links("recovery_successful"),
    ),
)

# Of the board, or of each of its instances of MIG.
MEMORY = (
    ("FB_FREE", "Framebuffer memory free (in MiB).", "free"),
    ("FB_USED", "Framebuffer memory used (in MiB).", "used"),
)

_IDENTITY = ("uuid", "pci", "name")

# Each once, and who a GPU is before anything that may hang.
QUESTIONS = tuple(
    dict.fromkeys(
        (
            *_IDENTITY,
            "mig",
            "framebuffer",
            "mig_memory",
            "clock_reasons",
            *(metric.question for metric in METRICS),
        )
    )
)


class ClockEvents:
    """How often each reason held a GPU's clocks back in the last five minutes."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._masks: dict[int, deque[tuple[float, int]]] = {}

    def see(self, gpu: int, mask: int, now: float) -> None:
        self._masks.setdefault(gpu, deque()).append((now, mask))

    def counts(self, gpu: int, now: float) -> Mapping[str, int]:
        """Those that were seen, by DCGM's name."""
        seen = self._masks.get(gpu, deque())
        while seen and seen[0][0] <= now - self._window_s:
            seen.popleft()
        counted = {
            name: sum(mask >> bit & 1 for _, mask in seen) for bit, name in enumerate(CLOCK_EVENTS)
        }
        return {name: count for name, count in counted.items() if count}


@dataclass(frozen=True)
class Collected:
    """How one part of a run ended. seconds is how long it took, error is empty where it is well."""

    collector: str
    seconds: float
    error: str = ""


def of_gpus(gpus: Iterable[NvmlGpu], jobs: Jobs, events: ClockEvents, now: float) -> list[Family]:
    """All series of the GPUs that said who they are."""
    known = [gpu for gpu in gpus if _known(gpu)]
    families = [
        Family(metric.name, metric.kind, metric.help, tuple(_of_metric(metric, known, jobs)))
        for metric in METRICS
    ]
    families += [
        Family(f"DCGM_FI_DEV_{name}", GAUGE, text, tuple(_of_memory(member, known, jobs)))
        for name, text, member in MEMORY
    ]
    return [*families, _clock_events(known, jobs, events, now)]


def _known(gpu: NvmlGpu) -> bool:
    return not _missing(gpu)


def amiss(gpu: NvmlGpu) -> str:
    """Why it did not tell all that it can, or nothing. What a board does not have is no failure."""
    failed = [f"{item.name}: {item.why}" for item in gpu.unknown if item.kind == "error"]
    if gpu.error is not None or failed:
        return gpu.error or failed[0]
    return "" if _known(gpu) else f"it does not say its {' or its '.join(_missing(gpu))}"


def _missing(gpu: NvmlGpu) -> list[str]:
    return [name for name in _IDENTITY if not gpu.values[name]]


def _labels(
    gpu: NvmlGpu, more: Mapping[str, str], jobs: Sequence[str]
) -> Iterator[Mapping[str, str]]:
    """One set for each job that has the GPU, as dcgm-exporter has it; one without a job, if none.

    device is by index there, too, and so not always the name of the device file.
    """
    labels = {
        "gpu": str(gpu.index),
        "UUID": gpu.values["uuid"],
        "pci_bus_id": gpu.values["pci"],
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.values["name"],
        **more,
    }
    for job in jobs:
        yield {**labels, "hpc_job": job}
    if not jobs:
        yield labels


def _samples(
    gpu: NvmlGpu, value: float, jobs: Jobs, more: Mapping[str, str] | None = None
) -> Iterator[Sample]:
    for labels in _labels(gpu, more or {}, jobs.get(str(gpu.index), ())):
        yield Sample(labels, value)


def _of_metric(metric: Metric, gpus: Iterable[NvmlGpu], jobs: Jobs) -> Iterator[Sample]:
    for gpu in gpus:
        answer = gpu.values[metric.question]
        value = None if answer is None else metric.read(answer)
        if value is not None:
            yield from _samples(gpu, value, jobs)


def _of_memory(member: str, gpus: Iterable[NvmlGpu], jobs: Jobs) -> Iterator[Sample]:
    for gpu in gpus:
        if gpu.values["mig"] != "on":
            if gpu.values["framebuffer"] is not None:
                yield from _samples(gpu, gpu.values["framebuffer"][member], jobs)
            continue
        for instance in gpu.values["mig_memory"] or ():
            if member in instance:
                number = str(instance["instance"])
                more = {"GPU_I_PROFILE": instance["name"].split(" MIG ")[-1], "GPU_I_ID": number}
                of = jobs.get(f"{gpu.index}.{number}", ())
                yield from (Sample(labels, instance[member]) for labels in _labels(gpu, more, of))


def _clock_events(gpus: Iterable[NvmlGpu], jobs: Jobs, events: ClockEvents, now: float) -> Family:
    samples: list[Sample] = []
    window = {"window_size_in_ms": f"{WINDOW_S * 1000:.0f}"}
    for gpu in gpus:
        if (reasons := gpu.values["clock_reasons"]) is not None:
            events.see(gpu.index, reasons["always"], now)
        for name, count in events.counts(gpu.index, now).items():
            samples += _samples(gpu, count, jobs, {"clock_event": name, **window})
    text = "Count of clock events within the user-specified time window."
    return Family("DCGM_EXP_CLOCK_EVENTS_COUNT", GAUGE, text, tuple(samples))


def of_log(series: xid.Series) -> Family:
    samples = tuple(
        Sample(dict(zip(xid.LABELS, values, strict=True)), count)
        for values, count in series.items()
    )
    return Family(xid.NAME, COUNTER, xid.HELP, samples)


def of_nvml(system: System, gpus: Iterable[NvmlGpu]) -> list[Collected]:
    """Of the node, and of each GPU that NVML counts."""
    return [
        Collected("nvml", system.seconds, system.error or ""),
        *(Collected(f"gpu{gpu.index}", gpu.seconds, amiss(gpu)) for gpu in gpus),
    ]


def of_exporter(collected: Sequence[Collected], now: float) -> list[Family]:
    """What an exporter says of itself; now is in seconds since the epoch.

    All exporters have the same words of help, or node_exporter drops what differs.
    """

    def each(value: Callable[[Collected], float]) -> tuple[Sample, ...]:
        return tuple(
            Sample({"exporter": EXPORTER, "collector": end.collector}, value(end))
            for end in collected
        )

    return [
        Family(
            "plumbline_exporter_collector_success",
            GAUGE,
            "Whether the last run of a collector succeeded.",
            each(lambda gpu: float(not gpu.error)),
        ),
        Family(
            "plumbline_exporter_collector_duration_seconds",
            GAUGE,
            "How long the last run of a collector took.",
            each(lambda gpu: gpu.seconds),
        ),
        Family(
            "plumbline_exporter_last_run_timestamp_seconds",
            GAUGE,
            "When the exporter ran last.",
            (Sample({"exporter": EXPORTER}, now),),
        ),
    ]
