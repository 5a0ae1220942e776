"""GPUs are whole where whole GPUs are declared.

What it checks   MIG is off on every GPU that can have it, and will still be after a reset
Why it matters   with MIG on, CUDA sees an instance in place of the GPU, or nothing where no
                 instance was made; NCCL refuses instances of one GPU
What to do       Turn it off; the GPU must be idle, and on some boards be reset.
                 $ ssh {node} 'nvidia-smi -L; nvidia-smi -q | grep -A 2 "MIG Mode"'
                 $ ssh {node} sudo nvidia-smi -i INDEX -mig 0
"""

from collections import Counter
from collections.abc import Iterator

from validation.checks.health import Finding, Gpu, each_gpu, none_faulty
from validation.model import Job, Metric, Reply, Result, Tier, Verdict, printable
from validation.thresholds import Rules

NAME = "mig"
TIER = Tier.NODE
PAYLOAD = "health"

_THRESHOLD = none_faulty("the inventory declares whole GPUs", "declared")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    return each_gpu(NAME, job, reply, _THRESHOLD, _examine, _measures)


def _examine(gpu: Gpu) -> Iterator[Finding]:
    on, pending = gpu.on("mig"), gpu.on("mig_pending")
    if on:
        yield Finding(Verdict.FAIL, f"MIG is on ({_layout(gpu)}), a whole GPU is declared")
    elif pending:
        yield Finding(Verdict.WARN, "MIG will be on after the next reset")


def _layout(gpu: Gpu) -> str:
    profiles = Counter(_profile(item.text("name")) for item in gpu.items("mig_instances") or ())
    if not profiles:
        return "no instance"
    return ", ".join(f"{count} of {name}" for name, count in sorted(profiles.items()))


def _profile(name: str) -> str:
    """ "1g.10gb" out of "NVIDIA H100 80GB HBM3 MIG 1g.10gb"."""
    return printable(name.rpartition(" MIG ")[2], 40)


def _measures(gpu: Gpu) -> Iterator[Metric]:
    on = gpu.on("mig")
    if on is not None:
        yield Metric("MIG", "on" if on else "off")
        yield Metric("MIG instances", len(gpu.items("mig_instances") or ()))
