"""The memory of a node's GPUs has no errors.

What it checks   ECC is on if that is the board's default. Since the driver was loaded there was no
                 uncorrectable error. No memory row waits to be remapped, and none could not be
                 remapped; on boards before Ampere, the same for retired pages. Uncorrectable errors
                 over the board's life and more than 10 retired pages are a warning. Corrected
                 errors are recorded.
Why it matters   An uncorrectable error ends the job that it hits. A board without spare rows is not
                 protected from the next one.
What to do       Uncorrectable or pending: drain the node and reset the GPU, or reboot. A failed
                 remapping: have the board replaced; so too if errors return after a reset. ECC is
                 off: switch it on (`nvidia-smi --ecc-config=1`), then reset the GPU or reboot.
                 $ ssh {node} 'nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT'
                 $ ssh {node} sudo nvidia-smi --gpu-reset -i INDEX
"""

from collections.abc import Iterator

from validation.checks.health import Finding, GpuValues, each_gpu, none_faulty, word
from validation.model import Job, Metric, Reply, Result, Tier, Verdict, When
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
        r"row failed|pages are retired",
        ("ssh {node} 'nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT'",),
    ),
    "ECC is off": When(r"ECC is off|ECC will be", ("ssh {node} 'nvidia-smi -q -d ECC'",)),
}

# facebookresearch/gcm check-nvidia-smi, read 2025-12: no uncorrected error, no pending or failed
# remapping, at most 10 retired pages. Pending needs a reset and a failure a repair, says
# https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/.
_THRESHOLD = none_faulty(
    "no uncorrectable error, no pending or failed remapping: NVIDIA GPU memory error management, "
    "and the gate of facebookresearch/gcm"
)
MOST_RETIRED_PAGES = 10


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    return each_gpu(NAME, job, reply, _THRESHOLD, examine, _measures)


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
    retired = pages.whole("single_bit") + pages.whole("double_bit")
    if retired > MOST_RETIRED_PAGES:
        text = f"{retired} memory pages are retired, more than {MOST_RETIRED_PAGES}"
        yield Finding(Verdict.WARN, text)


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
