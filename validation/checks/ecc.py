"""The memory of a node's GPUs has no errors.

What it checks   ECC is on if that is the board's default. Since the driver was loaded there was no
                 uncorrectable error. No memory row waits to be remapped, and none could not be
                 remapped; on boards before Ampere, the same for retired pages. Uncorrectable errors
                 over the board's life are a warning. Corrected errors, remapped rows and retired
                 pages are counted, and held against the limits of common.yml.
Why it matters   An uncorrectable error ends the job that it hits. A board without spare rows is not
                 protected from the next one. Millions of corrected errors come from a cell that is
                 about to fail.
What to do       Uncorrectable or pending: drain the node and reset the GPU, or reboot. A failed
                 remapping: have the board replaced; so too if errors return after a reset, or are
                 more than allowed. ECC is off: switch it on (`nvidia-smi --ecc-config=1`), then
                 reset the GPU or reboot.
                 $ ssh {node} 'nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT'
                 $ ssh {node} sudo nvidia-smi --gpu-reset -i INDEX
"""

from collections.abc import Iterator, Mapping

from validation.checks.health import Finding, GpuValues, each_gpu, none_faulty, over, word
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "ecc"
TIER = Tier.NODE
PAYLOAD = "health"

CAUSES = {
    "Uncorrectable or pending": When(
        r"uncorrectable ECC errors|waits for a reset",
        (
            "ssh {node} 'nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT'",
            "ssh {node} sudo nvidia-smi --gpu-reset -i INDEX",
        ),
    ),
    "A failed remapping": When(
        r"row failed|, more than [0-9]",
        ("ssh {node} 'nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT'",),
    ),
    "ECC is off": When(r"ECC is off|ECC will be", ("ssh {node} 'nvidia-smi -q -d ECC'",)),
}

# facebookresearch/gcm check-nvidia-smi, read 2025-12: no uncorrected error, no pending or failed
# remapping. Pending needs a reset and a failure a repair, says
# https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/.
_THRESHOLD = none_faulty(
    "no uncorrectable error, no pending or failed remapping: NVIDIA GPU memory error management, "
    "and the gate of facebookresearch/gcm"
)

# What NVML counts, and the limit that it is held against.
_COUNTED = (
    ("ecc_volatile_corrected", "gpu_corrected_errors"),
    ("ecc_aggregate_corrected", "gpu_corrected_errors_life"),
    ("ecc_volatile_corrected_sram", "gpu_corrected_sram_errors"),
    ("ecc_aggregate_corrected_sram", "gpu_corrected_sram_errors"),
)


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def everything(gpu: GpuValues) -> Iterator[Finding]:
        yield from examine(gpu)
        yield from counted(gpu, rules.common.limits)

    return each_gpu(NAME, job, reply, _THRESHOLD, everything, _measures)


def counted(gpu: GpuValues, limits: Mapping[str, Threshold]) -> Iterator[Finding]:
    """What is no fault by itself, and one in great numbers."""
    for name, limit in _COUNTED:
        if (count := gpu.whole(name)) is not None:
            memory = " of caches and registers" if name.endswith("_sram") else ""
            when = "in the board's life" if "aggregate" in name else "since the driver was loaded"
            yield from over(limits[limit], count, f"corrected ECC errors{memory} {when}")
    if rows := gpu.inner("remapped_rows"):
        remapped = rows.whole("correctable") + rows.whole("uncorrectable")
        yield from over(limits["gpu_remapped_rows"], remapped, "memory rows are remapped")
    if pages := gpu.inner("retired_pages"):
        retired = pages.whole("single_bit") + pages.whole("double_bit")
        yield from over(limits["gpu_retired_pages"], retired, "memory pages are retired")


def examine(gpu: GpuValues) -> Iterator[Finding]:
    on, default, pending = gpu.on("ecc"), gpu.on("ecc_default"), gpu.on("ecc_pending")
    if on is None:
        yield Finding(Verdict.PASS, "no ECC on this board")
    elif not on and default:
        yield Finding(Verdict.FAIL, "ECC is off, on by the board's default")
    elif not on:
        yield Finding(Verdict.PASS, "ECC is off")
    if on is not None and pending is not None and on != pending:
        will = "on" if pending else "off"
        yield Finding(Verdict.WARN, f"ECC will be {will} after the next reset")
    if fresh := gpu.whole("ecc_volatile_uncorrected"):
        text = f"{fresh} uncorrectable ECC errors since the driver was loaded"
        yield Finding(Verdict.FAIL, text)
    if old := gpu.whole("ecc_aggregate_uncorrected"):
        yield Finding(Verdict.WARN, f"{old} uncorrectable ECC errors in the board's life")
    yield from waiting(gpu)


def waiting(gpu: GpuValues) -> Iterator[Finding]:
    """Memory rows that failed or wait, and memory pages that do."""
    yield from _rows(gpu)
    yield from _pages(gpu)


def _rows(gpu: GpuValues) -> Iterator[Finding]:
    rows = gpu.inner("remapped_rows")
    if rows is None:
        return
    if word(rows, "failure", "yes", "no"):
        yield Finding(Verdict.FAIL, "remapping a memory row failed")
    if word(rows, "pending", "yes", "no"):
        yield Finding(Verdict.FAIL, "a memory row waits for a reset to be remapped")


def _pages(gpu: GpuValues) -> Iterator[Finding]:
    pages = gpu.inner("retired_pages")
    if pages is None:
        return
    if word(pages, "pending", "yes", "no"):
        yield Finding(Verdict.FAIL, "a memory page waits for a reset to be retired")


def _measures(gpu: GpuValues) -> Iterator[Metric]:
    for since in ("volatile", "aggregate"):
        for kind in ("corrected", "uncorrected"):
            count = gpu.whole(f"ecc_{since}_{kind}")
            if count is not None:
                yield Metric(f"{since} {kind}", count, "errors")
    if rows := gpu.inner("remapped_rows"):
        yield Metric("rows remapped, correctable", rows.whole("correctable"), "rows")
        yield Metric("rows remapped, uncorrectable", rows.whole("uncorrectable"), "rows")
    if pages := gpu.inner("retired_pages"):
        yield Metric("pages retired, single bit", pages.whole("single_bit"), "pages")
        yield Metric("pages retired, double bit", pages.whole("double_bit"), "pages")
