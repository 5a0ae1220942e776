"""The NVLinks between a node's GPUs are up, and its boards have joined the fabric.

What it checks   Every link of a board with NVSwitch or on an SXM baseboard is up, and there are as
                 many links as the board has. The fabric is completed and healthy. For boards with
                 bridges, a GPU with fewer active links than another is a warning; so are error
                 counts. A node with one GPU has no peer: its links are recorded.
Why it matters   NCCL avoids a link that is down, at a fraction of the speed. Without the fabric
                 CUDA does not start (error 802).
What to do       Fabric not completed: the Fabric Manager does not run, or does not match the
                 driver's version. A link is down: reset all GPUs of the node. If it stays down, the
                 fault is the board, its seat or the baseboard. Errors: look at them again after an
                 hour of work; a link that counts on is about to fail.
                 $ ssh {node} 'nvidia-smi nvlink --status; nvidia-smi nvlink --errorcounters'
                 $ ssh {node} 'systemctl status nvidia-fabricmanager'
                 $ ssh {node} 'nvidia-smi -q | grep -A 4 Fabric'
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.declaration import Gpus
from cluster.text import printable
from validation.checks.document import Fields
from validation.checks.health import Finding, GpuValues, Unanswered, each_gpu, none_faulty
from validation.model import Job, Metric, Reply, Result, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "nvlink"
TIER = Tier.NODE
PAYLOAD = "health"

CAUSES = {
    "Fabric not completed": When(
        r"the fabric|joining",
        (
            "ssh {node} 'systemctl status nvidia-fabricmanager'",
            "ssh {node} 'nvidia-smi -q | grep -A 4 Fabric'",
        ),
    ),
    "A link is down": When(
        r"is down|are down|NVLinks? (expected|are up)|has [0-9]+ NVLinks|does not tell",
        ("ssh {node} 'nvidia-smi nvlink --status; nvidia-smi nvlink --errorcounters'",),
    ),
    "Errors": When(r"counted errors", ("ssh {node} 'nvidia-smi nvlink --errorcounters'",)),
}

# https://docs.nvidia.com/health-validation/reference/checks/nvlink.md, read 2026-11-21:
# max_inactive_nvlinks 0. facebookresearch/gcm check-dcgmi fails from the first error counted; a
# counter since the last reset says nothing of when, so it is a warning here.
_THRESHOLD = none_faulty("no inactive NVLink: NVIDIA Health Validation, nvlink_active")

# Links of a board; https://www.nvidia.com/en-us/data-center/nvlink/ (second generation 6, third 12,
# fourth and fifth 18).
LINKS = {
    "v100_sxm": 6,
    "a100_sxm": 12,
    "h100_sxm": 18,
    "h200_sxm": 18,
    "h20_sxm": 18,
    "b200": 18,
    "b300": 18,
    "gb200": 18,
    "gb300": 18,
}

# NVML_GPU_FABRIC_HEALTH_MASK_*: first bit, bits, and the values that are wrong.
_HEALTH = (
    (0, 0x3, (1,), Verdict.FAIL, "its bandwidth in the fabric is degraded"),
    (2, 0x3, (1,), Verdict.WARN, "a route in the fabric is being recovered"),
    (4, 0x3, (1,), Verdict.FAIL, "a route in the fabric is unhealthy"),
    (6, 0x3, (1,), Verdict.WARN, "an access time-out in the fabric is being recovered"),
    (8, 0xF, tuple(range(2, 16)), Verdict.FAIL, "it is configured wrongly in the fabric"),
)


_ERRORS = ("replay", "recovery", "crc_flit", "crc_data", "recovery_failed")


@dataclass(frozen=True, slots=True)
class _Links:
    up: int
    down: tuple[int, ...]
    errors: Counter[str]
    strange: tuple[str, ...]

    @property
    def count(self) -> int:
        return self.up + len(self.down) + len(self.strange)


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    declared = job.nodes[0].gpus
    expected = LINKS.get(declared.model)
    peers = declared.count > 1

    def together(gpus: Sequence[GpuValues]) -> Iterator[Finding]:
        if expected is not None or not peers:
            return
        up = {}
        for gpu in gpus:
            try:
                if not _in_fabric(gpu.inner("fabric")):
                    up[gpu.index] = _links(gpu).up
            except Unanswered:
                continue  # told already
        for index, count in up.items():
            if count < max(up.values()):
                text = f"{count} NVLinks are up, {max(up.values())} on others of the node"
                yield Finding(Verdict.WARN, text, index)

    return each_gpu(
        NAME, job, reply, _THRESHOLD, lambda gpu: examine(gpu, declared), _measures, together
    )


def examine(gpu: GpuValues, declared: Gpus) -> Iterator[Finding]:
    expected = LINKS.get(declared.model)
    peers = declared.count > 1
    fabric = gpu.inner("fabric")
    links = _links(gpu)
    for text in links.strange:
        yield Finding(Verdict.FAIL, text)
    if peers and (expected is not None or _in_fabric(fabric)):
        if links.down:
            yield Finding(Verdict.FAIL, f"{_named(links.down)} down, of {links.count}")
        if links.count < (expected or 1):
            text = f"has {links.count} NVLinks, {expected or 'some'} expected"
            yield Finding(Verdict.FAIL, text)
    if links.errors:
        counted = ", ".join(f"{count} {name}" for name, count in sorted(links.errors.items()))
        yield Finding(Verdict.WARN, f"its NVLinks counted errors ({counted})")
    if fabric is not None:
        yield from _fabric(fabric, Verdict.FAIL if peers else Verdict.WARN)


def _in_fabric(fabric: Fields | None) -> bool:
    return fabric is not None and fabric.text("state") != "not supported"


def _links(gpu: GpuValues) -> _Links:
    up, down, strange = 0, [], []
    errors: Counter[str] = Counter()
    for link in gpu.items("nvlinks") or ():
        number, state = link.whole("link"), link.text("state")
        counted = link.inner("errors")
        if state == "up":
            up += 1
            for name in _ERRORS:
                if counted.has(name):
                    errors[name] += counted.whole(name)
        elif state == "down":
            down.append(number)
        else:
            strange.append(f"NVLink {number} does not tell its state: {printable(state, 80)}")
    return _Links(up, tuple(down), +errors, tuple(strange))


def _named(links: Sequence[int]) -> str:
    numbers = ", ".join(map(str, links))
    return f"NVLink {numbers} is" if len(links) == 1 else f"NVLinks {numbers} are"


def _fabric(fabric: Fields, not_joined: Verdict) -> Iterator[Finding]:
    state, status = fabric.text("state"), fabric.whole("status")
    health = fabric.whole("health") if fabric.has("health") else 0
    if state == "not supported":
        return
    if state != "completed":
        yield Finding(not_joined, f"the fabric is {printable(state, 40)}, not completed")
    elif status != 0:
        yield Finding(not_joined, f"joining the fabric failed (NVML code {status})")
    else:
        for first, bits, wrong, verdict, text in _HEALTH:
            if health >> first & bits in wrong:
                yield Finding(verdict, text)


def _measures(gpu: GpuValues) -> Iterator[Metric]:
    links = _links(gpu)
    if links.count:
        yield Metric("NVLinks up", links.up, "links")
        yield Metric("NVLink errors", links.errors.total(), "errors")
