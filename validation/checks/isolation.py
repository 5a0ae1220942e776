"""A job reaches the GPUs that Slurm gave it, and no other's.

What it checks   Three jobs run side by side on the node: two ask for one GPU each, one for none.
                 While all three are there, each tries to open every GPU's device file and asks the
                 driver's library for its GPUs. Each reaches as many as it asked for, and no two
                 reach the same. Whatever CUDA_VISIBLE_DEVICES says, a job can leave it unset.
Why it matters   Without confinement a job that counts its GPUs itself uses those of its neighbour:
                 both slow down or run out of memory, and one user's data is open to another.
What to do       Reaches too much: set ConstrainDevices=yes in cgroup.conf and task/cgroup in
                 TaskPlugin (slurm_constrain: true), name the device files in gres.conf, and restart
                 slurmd. Reaches none: gres.conf names another device file than the driver made;
                 correct it. One GPU for two jobs: gres.conf has one device file twice, or Slurm
                 shares GPUs between jobs. Other device files: the node has more or fewer GPUs than
                 declared; see gpus. Not side by side: nothing is proven; other jobs were in the
                 way, so repeat the run when the node is free.
                 $ ssh {node} 'scontrol show config | grep -i -e constrain -e taskplugin'
                 $ ssh {node} 'cat /etc/slurm/cgroup.conf /etc/slurm/gres.conf; ls -l /dev/nvidia*'
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.text import printable
from validation.checks.comparison import ComparedNode
from validation.checks.document import Document, Unusable, read, unusable_result
from validation.model import Metric, Result, Threshold, Tier, Verdict, When
from validation.payloads.isolation import PARTS

NAME = "isolation"
TIER = Tier.NODE
PAYLOAD = "isolation"

CAUSES = {
    "Reaches too much": When(r"reaches /dev/nvidia|NVML lists [1-9]"),
    "Reaches none": When(
        r"reaches none|NVML lists 0", ("ssh {node} 'cat /etc/slurm/gres.conf; ls -l /dev/nvidia*'",)
    ),
    "One GPU for two jobs": When(r"two jobs were given", ("ssh {node} cat /etc/slurm/gres.conf",)),
    "Other device files": When(r"device files of GPUs", ("ssh {node} 'ls -l /dev/nvidia*'",)),
    "Not side by side": When(
        r"no answer of the job|did not run beside", ("squeue --nodelist={node}",)
    ),
}

_THRESHOLD = Threshold("=", 0, "GPUs", "defined", "a job reaches what Slurm gave it, and no more")
_WANTED = {"first": 1, "second": 1, "none": 0}


@dataclass(frozen=True, slots=True)
class _Reach:
    """What one of the jobs reached: numbers of device files, and UUIDs; None without NVML."""

    part: str
    met: frozenset[str]
    devices: frozenset[int]
    known: frozenset[int]
    gpus: frozenset[str] | None
    constrained: str | None


def compare(members: Sequence[ComparedNode]) -> list[Result]:
    """The jobs of each node are judged together."""
    nodes: dict[str, list[ComparedNode]] = {}
    for member in members:
        if member.reply is not None:
            nodes.setdefault(member.job.hosts[0], []).append(member)
    return [_of_node(jobs) for jobs in nodes.values()]


def _of_node(jobs: Sequence[ComparedNode]) -> Result:
    reaches: list[_Reach] = []
    proof = None
    for member in jobs:
        assert member.reply is not None
        try:
            document = read(member.job, member.reply)
            reaches.append(_reach(document, str(member.job.config["part"])))
            proof = document.proof
        except Unusable as unusable:
            return unusable_result(NAME, member.job, member.reply, unusable)
    node, subject = jobs[0].job.nodes[0], jobs[0].job.subject
    by_part = {reach.part: reach for reach in reaches}
    if apart := _apart(by_part):
        verdict, found = Verdict.INCONCLUSIVE, [apart]
    else:
        found = list(_findings(by_part, node.gpus.count, node.gpus.real))
        verdict = Verdict.FAIL if found else Verdict.PASS
        if found and not node.gpus.real and _without_confinement(by_part):
            verdict = Verdict.WARN
    metrics = [
        Metric(f"devices reached, {part}", ", ".join(map(str, sorted(reach.devices))) or "none")
        for part, reach in by_part.items()
    ]
    return Result(
        NAME,
        TIER,
        subject,
        verdict,
        printable("; ".join(found), 300),
        Metric("wrong", 0 if apart else len(found), "GPUs"),
        _THRESHOLD,
        tuple(metrics),
        proof,
    )


def _reach(document: Document, part: str) -> _Reach:
    measured = document.measured
    if measured.text("part") != part:
        raise Unusable(f"answered as {measured.text('part')!r}, was asked as {part!r}")
    devices: dict[int, bool] = {}
    for item in measured.items("devices"):
        devices[item.whole("number")] = item.maybe_text("denied") is None
    if len(devices) != len(measured.items("devices")):
        raise Unusable("the answer has a device twice")
    uuids = measured.words("gpus")
    if len(set(uuids)) != len(uuids):
        raise Unusable("NVML lists one GPU twice")
    return _Reach(
        part,
        frozenset(measured.words("met")),
        frozenset(number for number, reached in devices.items() if reached),
        frozenset(devices),
        None if measured.maybe_text("nvml") is not None else frozenset(uuids),
        measured.maybe_text("constrained"),
    )


def _apart(by_part: dict[str, _Reach]) -> str:
    """Why the jobs say nothing of each other, or nothing."""
    if missing := [part for part in PARTS if part not in by_part]:
        return f"no answer of the job that asked for {_asked(missing[0])}"
    for part, reach in by_part.items():
        if alone := [other for other in PARTS if other != part and other not in reach.met]:
            return (
                f"the job that asked for {_asked(alone[0])} did not run beside that for "
                f"{_asked(part)}"
            )
    return ""


def _asked(part: str) -> str:
    return "no GPU" if part == "none" else f"a GPU ({part})"


def _findings(by_part: dict[str, _Reach], count: int, with_nvml: bool) -> Iterator[str]:
    """What is wrong with the device files, then with what NVML lists."""
    for part, reach in by_part.items():
        if len(reach.known) != count:
            yield f"{len(reach.known)} device files of GPUs, {count} are declared"
            return
        if len(reach.devices) != _WANTED[part]:
            numbers = ", ".join(f"/dev/nvidia{number}" for number in sorted(reach.devices))
            yield f"the job that asked for {_asked(part)} reaches {numbers or 'none'}"
        elif with_nvml and reach.gpus is not None and len(reach.gpus) != _WANTED[part]:
            yield f"to the job that asked for {_asked(part)} NVML lists {len(reach.gpus)} GPUs"
    first, second = by_part["first"], by_part["second"]
    if len(first.devices) == len(second.devices) == 1 and first.devices & second.devices:
        yield f"two jobs were given /dev/nvidia{min(first.devices)}"


def _without_confinement(by_part: dict[str, _Reach]) -> bool:
    """Nothing is behind the devices of a virtual node: a site may leave them open to all jobs, and
    the machine that carries the node may open them to none."""
    reaches = by_part.values()
    return all(reach.constrained != "yes" for reach in reaches) or not any(
        reach.devices for reach in reaches
    )
