"""GPUs are whole, or divided into the declared MIG instances.

What it checks   If whole GPUs are declared, MIG is off. If instances are declared, MIG is on and
                 every GPU has exactly those of each profile. No change is pending until a reset.
Why it matters   With MIG on, CUDA sees an instance instead of the GPU, or nothing if there is no
                 instance. NCCL refuses two instances of one GPU.
What to do       Whole GPUs declared: turn MIG off. The GPU must be idle, and some boards need a
                 reset. Instances declared: turn MIG on and create them. They do not survive a
                 reset: something must create them at every boot.
                 $ ssh {node} 'nvidia-smi -L; nvidia-smi -q | grep -A 2 "MIG Mode"'
                 $ ssh {node} sudo nvidia-smi -i INDEX -mig 0
                 $ ssh {node} sudo nvidia-smi mig -i INDEX -cgi PROFILE,PROFILE -C
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from cluster.text import printable
from validation.checks.health import Finding, GpuValues, each_gpu, none_faulty
from validation.model import Job, Metric, Reply, Result, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "mig"
TIER = Tier.NODE
PAYLOAD = "health"

CAUSES = {
    "Whole GPUs declared": When(
        r"a whole GPU|will be on",
        (
            "ssh {node} 'nvidia-smi -L; nvidia-smi -q | grep -A 2 \"MIG Mode\"'",
            "ssh {node} sudo nvidia-smi -i INDEX -mig 0",
        ),
    ),
    "Instances declared": When(
        r"is declared|will be off",
        (
            "ssh {node} 'nvidia-smi -L; nvidia-smi -q | grep -A 2 \"MIG Mode\"'",
            "ssh {node} sudo nvidia-smi mig -i INDEX -cgi PROFILE,PROFILE -C",
        ),
    ),
}

_WHOLE = none_faulty("the inventory declares whole GPUs", "declared")
_CUT = none_faulty("the inventory declares instances of MIG", "declared")


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    declared = dict(job.nodes[0].gpus.mig)
    threshold = _CUT if declared else _WHOLE
    return each_gpu(NAME, job, reply, threshold, lambda gpu: examine(gpu, declared), _measures)


def examine(gpu: GpuValues, declared: Mapping[str, int]) -> Iterator[Finding]:
    """`declared` is what every GPU is cut into; nothing means whole."""
    return _cut(gpu, declared) if declared else _whole(gpu)


def _cut(gpu: GpuValues, declared: Mapping[str, int]) -> Iterator[Finding]:
    on, pending, expected = gpu.on("mig"), gpu.on("mig_pending"), _listed(declared)
    if on is None:
        yield Finding(Verdict.FAIL, f"has no MIG, {expected} is declared")
    elif not on:
        yield Finding(Verdict.FAIL, f"MIG is off, {expected} is declared")
    elif _profiles(gpu) != declared:
        yield Finding(Verdict.FAIL, f"has {_layout(gpu)}, {expected} is declared")
    elif pending is False:
        yield Finding(Verdict.WARN, "MIG will be off after the next reset")


def _whole(gpu: GpuValues) -> Iterator[Finding]:
    on, pending = gpu.on("mig"), gpu.on("mig_pending")
    if on:
        yield Finding(Verdict.FAIL, f"MIG is on ({_layout(gpu)}), a whole GPU is declared")
    elif pending:
        yield Finding(Verdict.WARN, "MIG will be on after the next reset")


def _layout(gpu: GpuValues) -> str:
    return _listed(_profiles(gpu)) or "no instance"


def _listed(profiles: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {name}" for name, count in sorted(profiles.items()))


def _profiles(gpu: GpuValues) -> Counter[str]:
    return Counter(_profile(item.text("name")) for item in gpu.items("mig_instances") or ())


def _profile(name: str) -> str:
    """ "1g.10gb" out of "NVIDIA H100 80GB HBM3 MIG 1g.10gb"."""
    return printable(name.rpartition(" MIG ")[2], 40)


def _measures(gpu: GpuValues) -> Iterator[Metric]:
    on = gpu.on("mig")
    if on is not None:
        yield Metric("MIG", "on" if on else "off")
        yield Metric("MIG instances", len(gpu.items("mig_instances") or ()))
