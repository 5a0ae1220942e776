"""Each GPU of a node has its full PCIe link and window.

What it checks   The link has all lanes that board and slot support, and runs at their generation.
                 An idle board may use a lower one to save power. A slot with fewer lanes or an
                 older generation than the board is a warning. Boards whose memory fits into their
                 window on the bus (BAR1) have one of that size.
Why it matters   Half the lanes give half the bandwidth to the host and to a network adapter. With a
                 small BAR1, network adapters reach only a part of the GPU's memory, and NCCL goes
                 through the host.
What to do       Fewer lanes, or an older generation: power the node off and reseat the board or its
                 riser; check the slot's settings in the firmware (bifurcation, maximum speed).
                 Small BAR1: switch on Above 4G Decoding and Resizable BAR there. Not known: this
                 board or driver does not tell its link; update the driver, or leave out this check.
                 $ ssh {node} 'nvidia-smi -q | grep -A 12 "GPU Link Info"'
                 $ ssh {node} 'nvidia-smi -q -d MEMORY | grep -A 3 BAR1'
                 $ ssh {node} "sudo lspci -vv -d 10de: | grep -e 10de -e LnkCap: -e LnkSta:"
"""

from collections.abc import Iterator, Mapping

from cluster.readers.nvml import CLOCK_REASONS
from validation.checks.health import Finding, GpuValues, each_gpu, none_faulty
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "pcie"
TIER = Tier.NODE
PAYLOAD = "health"

CAUSES = {
    "Fewer lanes, or an older generation": When(
        r"PCIe lanes|PCIe generation",
        ('ssh {node} "sudo lspci -vv -d 10de: | grep -e 10de -e LnkCap: -e LnkSta:"',),
    ),
    "Small BAR1": When(r"BAR1 of", ("ssh {node} 'nvidia-smi -q -d MEMORY | grep -A 3 BAR1'",)),
    "Not known": When(
        r"does not know", ("ssh {node} 'nvidia-smi -q | grep -A 12 \"GPU Link Info\"'",)
    ),
}

_THRESHOLD = none_faulty("the link that NVML says board and slot can have")
_IDLE = 1 << CLOCK_REASONS.index("idle")

# Boards with 16 lanes, says each one's datasheet; where the slot has fewer, NVML's maximum has too.
SIXTEEN_LANES = frozenset(
    {
        "v100_sxm",
        "t4",
        "a10",
        "a30",
        "a40",
        "a100_pcie",
        "a100_sxm",
        "h100_pcie",
        "h100_nvl",
        "h100_sxm",
        "h200_nvl",
        "h200_sxm",
        "h20_sxm",
        "b200",
        "b300",
        "l4",
        "l40",
        "l40s",
        "rtx_3090",
        "rtx_4090",
        "rtx_pro_6000",
    }
)


# Boards that all of their memory can be reached of over the bus. A40, L40, L40S and RTX PRO have a
# mode for displays with 256 MiB, GeForce boards and T4 need not have more. Of A10 and H20 no
# answer of a healthy board is known.
WHOLE_BAR1 = frozenset(
    {
        "v100_sxm",
        "v100_pcie",
        "a30",
        "a100_pcie",
        "a100_sxm",
        "h100_pcie",
        "h100_nvl",
        "h100_sxm",
        "h200_nvl",
        "h200_sxm",
        "b200",
        "l4",
    }
)


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    model = job.nodes[0].gpus.model

    def everything(gpu: GpuValues) -> Iterator[Finding]:
        yield from examine(gpu, model)
        if model in WHOLE_BAR1:
            yield from window(gpu, rules.common.limits)

    return each_gpu(NAME, job, reply, _THRESHOLD, everything, _measures)


def window(gpu: GpuValues, limits: Mapping[str, Threshold]) -> Iterator[Finding]:
    """Where NVML knows both sizes, BAR1 is held against the board's memory."""
    size, memory = gpu.whole("bar1_total_mb"), gpu.whole("memory_total_mb")
    if size is None or not memory:
        return
    limit = limits["gpu_bar1_share"]
    if limit.judge(size / memory) is not Verdict.PASS:
        text = f"BAR1 of {size} MiB for {memory} MiB of memory"
        yield Finding(limit.judge(size / memory), text)


def examine(gpu: GpuValues, model: str) -> Iterator[Finding]:
    yield from _lanes(gpu, model in SIXTEEN_LANES)
    yield from _generation(gpu)


def _lanes(gpu: GpuValues, sixteen: bool) -> Iterator[Finding]:
    width, most = gpu.whole("pcie_width"), gpu.whole("pcie_width_max")
    if width is None or most is None:
        yield Finding(Verdict.INCONCLUSIVE, "NVML does not know the width of this board's link")
    elif width < most:
        yield Finding(Verdict.FAIL, f"{width} PCIe lanes of {most}")
    elif most == 0:
        yield Finding(Verdict.FAIL, "no PCIe lanes")
    elif sixteen and most < 16:
        yield Finding(Verdict.WARN, f"the slot has {most} PCIe lanes, the board 16")


def _generation(gpu: GpuValues) -> Iterator[Finding]:
    now, most = gpu.whole("pcie_generation"), gpu.whole("pcie_generation_max")
    board = gpu.whole("pcie_generation_gpu")
    if now is None or most is None:
        text = "NVML does not know the generation of this board's link"
        yield Finding(Verdict.INCONCLUSIVE, text)
        return
    if now < most and not _idle(gpu):
        yield Finding(Verdict.FAIL, f"PCIe generation {now} of {most}, and not idle")
    if most == 0:
        yield Finding(Verdict.FAIL, "no PCIe generation")
    if board is not None and most < board:
        text = f"the slot has PCIe generation {most}, the board {board}"
        yield Finding(Verdict.WARN, text)


def _idle(gpu: GpuValues) -> bool:
    reasons = gpu.inner("clock_reasons")
    return reasons is not None and bool(reasons.whole("always") & _IDLE)


def _measures(gpu: GpuValues) -> Iterator[Metric]:
    for name, title, unit in (
        ("pcie_generation", "generation", ""),
        ("pcie_generation_max", "generation, most", ""),
        ("pcie_width", "lanes", ""),
        ("pcie_width_max", "lanes, most", ""),
        ("pcie_replays", "replays", ""),
    ):
        value = gpu.whole(name)
        if value is not None:
            yield Metric(title, value, unit)
