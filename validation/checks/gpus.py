"""A node has the GPUs that are declared.

What it checks   There are as many GPU device nodes as declared. The driver (NVML) counts as many
                 real GPUs, and the name of each belongs to the declared model. The same applies to
                 virtual GPUs with a stand-in for NVML. No real GPU is declared as virtual. No two
                 nodes list the same GPU (by UUID), and a node computes only on GPUs that it listed.
Why it matters   If a GPU has fallen off the bus, or is another model than declared, the jobs that
                 Slurm sends there fail.
What to do       Fewer than declared: look for XID messages and for the board on the PCI bus. A
                 board that is on the bus but not in NVML needs a reset or a cold start. Another
                 name: correct the declaration, or add the name to a thresholds file of your own.
                 One GPU on two nodes: an address or a host name leads to the wrong machine.
                 $ ssh {node} 'ls -l /dev/nvidia[0-9]*; nvidia-smi -L'
                 $ ssh {node} 'dmesg | grep -i -e xid -e nvrm; lspci | grep -i nvidia'
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from cluster.declaration import Gpus
from cluster.hostlist import compress
from cluster.text import printable
from validation.checks.comparison import ComparedNode
from validation.checks.document import Document, Unusable, answer, read
from validation.model import Job, Metric, Reply, Result, Sample, Threshold, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "gpus"
TIER = Tier.NODE
PAYLOAD = "node"

CAUSES = {
    "Fewer than declared": When(r"device nodes found|NVML answers for"),
    "Another name": When(r"NVML says|declared as|has board names", ("ssh {node} nvidia-smi -L",)),
    "One GPU on two nodes": When(
        r"one answers for the other",
        (
            "ssh {node} hostname",
            "scontrol show node {node}",
        ),
    ),
}


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    declared = job.nodes[0].gpus
    threshold = Threshold("=", declared.count, "GPUs", "declared", "inventory")

    def judge(document: Document) -> Result:
        devices = document.measured.whole("gpu_device_nodes")
        names = [gpu.text("name") for gpu in document.measured.items("gpus")]
        uuids = [gpu.text("uuid") for gpu in document.measured.items("gpus")]
        value, message = devices, ""
        if devices != declared.count:
            message = f"{devices} GPU device nodes found, {declared.count} declared"
        elif declared.answer:
            value = len(names)
            message = _names_problem(names, rules, rules.model.nvml_names if rules.model else ())
            if len(names) != declared.count:
                nvml = document.measured.maybe_text("nvml")
                message = f"NVML answers for {len(names)} GPUs, {declared.count} declared" + (
                    f": {nvml}" if nvml else ""
                )
            elif len(set(uuids)) != len(uuids):
                raise Unusable("NVML lists one GPU twice")
        elif declared.count and names:
            message = (
                f"declared as {declared.model}, but the driver lists {len(names)} real GPUs "
                f"({', '.join(sorted(set(names)))})"
            )
        known = bool(rules.model and rules.model.nvml_names)
        if not message and declared.answer and not known:
            boards = ", ".join(sorted(set(names)))
            note = f"no thresholds file has board names of {declared.model}, found {boards}"
            unjudged = tuple(
                Sample("nvml_names", (("name", name),), 1, "GPUs", 1) for name in sorted(set(names))
            )
            result = _result(job, Verdict.INCONCLUSIVE, note, value, threshold, document)
            return replace(result, unjudged=unjudged)
        verdict = Verdict.FAIL if message else Verdict.PASS
        return _result(job, verdict, message, value, threshold, document)

    return answer(NAME, job, reply, judge)


def compare(members: Sequence[ComparedNode]) -> list[Result]:
    """The results of all nodes. Of those that list one GPU nobody knows which one has it."""
    results: list[Result] = []
    holders: dict[str, list[str]] = {}
    listed: dict[str, list[str]] = {}
    for member in members:
        if member.reply is None:
            continue
        results.append(evaluate(member.job, member.reply, member.rules))
        with suppress(Unusable):
            gpus = read(member.job, member.reply).measured.items("gpus")
            uuids = listed[member.job.hosts[0]] = [gpu.text("uuid") for gpu in gpus]
            for uuid in dict.fromkeys(uuids):
                holders.setdefault(uuid, []).append(member.job.hosts[0])
    return [_shared(result, listed.get(result.subject.name, ()), holders) for result in results]


def _shared(result: Result, uuids: Sequence[str], holders: Mapping[str, Sequence[str]]) -> Result:
    """The result, a failure where another node lists a GPU of this one."""
    uuid = next((uuid for uuid in uuids if len(holders[uuid]) > 1), None)
    if uuid is None or result.verdict is Verdict.FAIL:
        return result
    others = compress([name for name in holders[uuid] if name != result.subject.name])
    message = f"{others} has {printable(uuid, 60)} too: one answers for the other"
    return replace(result, verdict=Verdict.FAIL, message=message, blamed=())


def held_against_names(job: Job, result: Result, rules: Rules) -> Result:
    """A green result of ranks on GPUs fails where one of these is not of the declared model."""
    ranks = result.proof.ranks if result.proof else ()
    names = [rank.gpu for rank in ranks if rank.gpu is not None]
    known = cuda_names(job.nodes[0].gpus, rules)
    if not result.verdict.green or not (problem := _names_problem(names, rules, known)):
        return result
    hosts = (rank.host for rank in ranks if rank.gpu is not None and rank.gpu not in known)
    blamed = tuple(dict.fromkeys(hosts))
    return replace(result, verdict=Verdict.FAIL, message=problem, blamed=blamed)


def cuda_names(gpus: Gpus, rules: Rules) -> tuple[str, ...]:
    """By which CUDA may know the declared GPUs: as NVML does, or as instances of these."""
    names = rules.model.nvml_names if rules.model else ()
    if not gpus.mig:
        return names
    return tuple(f"{name} MIG {profile}" for name in names for profile, _ in gpus.mig)


def _names_problem(names: list[str], rules: Rules, known: tuple[str, ...]) -> str:
    strange = sorted({name for name in names if known and name not in known})
    if not strange:
        return ""
    return f"NVML says {', '.join(strange)}; {rules.hardware} is known as {', '.join(known)}"


def _result(
    job: Job, verdict: Verdict, message: str, value: int, threshold: Threshold, document: Document
) -> Result:
    metric = Metric("gpus", value, "GPUs")
    return Result(
        NAME, TIER, job.subject, verdict, message, metric, threshold, proof=document.proof
    )
