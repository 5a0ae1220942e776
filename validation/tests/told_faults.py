"""Faults whose detection has no figure: the check says what is wrong, and with whom.

The second half of `scripts/fault-table` (fault_table.py). Real ranks run over Gloo on this machine,
at the sizes of the suite `training`, and the checks judge what they answer. A fault is put into a
file between the two jobs of a killed training, or into a rank, by Python that runs before its
payload.
"""

from __future__ import annotations

import functools
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import declaration
from validation import plan, suites
from validation.model import Job, Outcome, Reply, Result, Verdict
from validation.tests import judging, standin
from validation.tests.conftest import declare
from validation.tests.fault_table import free_job_id
from validation.tests.torch_processes import Order, started

HEALTHY = "healthy"
# What a CPU would take hours for.
NOT_HERE = (("scaling", "nccl"),)
NODES = 4  # two write, the other two resume
OFF = "momentum 0.01 % off, one rank"
LIMIT_S = 600

# Files that a rank has written, in the folder of the run.
InFiles = Callable[[Path, int], None]


@dataclass(frozen=True)
class Fault:
    """One fault of a check, on the last rank of the job.

    says     what the verdict must say, a regular expression in which {rank}, {host} and {who},
             which is both, are its
    blames   whether its node is named as the one at fault; else none is
    files    changes what the first job wrote, given the folder and the last rank that wrote
    first    Python for the last rank of the first job, and `program` for that of the job judged
    """

    name: str
    says: str = ""
    blames: bool = False
    files: InFiles | None = None
    first: str = ""
    program: str = ""
    several: bool = False  # one rank alone cannot have it
    everywhere: bool = False  # the program is that of all ranks


# --- files ---------------------------------------------------------------------------------------


def shard(folder: Path, rank: int) -> Path:
    return folder / f"__{rank}_0.distcp"


def torn(folder: Path, rank: int) -> None:
    path = shard(folder, rank)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def swapped(folder: Path, rank: int) -> None:
    first, last = shard(folder, 0), shard(folder, rank)
    content = first.read_bytes()
    first.write_bytes(last.read_bytes())
    last.write_bytes(content)


def spoiled(folder: Path, rank: int) -> None:
    path = shard(folder, rank)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def removed(folder: Path, rank: int) -> None:
    shard(folder, rank).unlink()


def no_manifest(folder: Path, _: int) -> None:
    (folder / "manifest.json").unlink()


STALE = """
from validation.payloads import checkpoint
save, kept = checkpoint.save, []
def instead(running, folder, group, before=()):
    result = save(running, folder, group, before)
    path = folder / f"__{group.rank}_0.distcp"
    if kept:
        path.write_bytes(kept[0])  # the second save is acknowledged and lost
    kept.append(path.read_bytes())
    return result
checkpoint.save = instead
"""
BLIND = """
from validation.payloads import checkpoint_files
checkpoint_files.problem = lambda folder, file, others: "cannot be read: Stale file handle"
"""
FORGETS = """
from validation.payloads import checkpoint
load = checkpoint.load
def instead(running, folder, group):
    seconds = load(running, folder, group)
    for momentum in running.momentum:
        momentum.zero_()
    return seconds
checkpoint.load = instead
"""
WRONG_STEP = """
from validation.payloads import checkpoint
train, momentum = checkpoint.Training.train, checkpoint._momentum
def instead(self, until, record):
    if self.group:
        checkpoint._momentum = lambda: 0.9001
    train(self, until, record)
    checkpoint._momentum = momentum
checkpoint.Training.train = instead
"""
DEAF = """
import torch.distributed as dist
broadcast = dist.broadcast
def instead(tensor, src):
    broadcast(tensor, src=src)
    if src == 0:
        tensor.mul_(0)
dist.broadcast = instead
"""
TOKEN = """
from validation.payloads import inference
choose, calls = inference.choose, []
def instead(logits):
    calls.append(0)
    tokens = choose(logits)
    return (tokens + (len(calls) == 5)) % logits.shape[-1]
inference.choose = instead
"""
KEY = """
from validation.payloads import decoder
logits = decoder.Part.logits
def instead(self, tokens, seen=None):
    if self.length == 18 and tokens.shape[1] == 1:
        self.cache[-1][0][0, 0, 4] = 0
    return logits(self, tokens, seen)
decoder.Part.logits = instead
"""
LATE = """
from validation.payloads import decoder
logits = decoder.Part.logits
def instead(self, tokens, seen=None):
    result = logits(self, tokens, seen)
    if self.length == 21:
        for held in self.cache[-1]:
            held[:, :, -1] = held[:, :, -2]
    return result
decoder.Part.logits = instead
"""
LINEAR = """
import torch.nn.functional as F
linear = F.linear
F.linear = lambda x, w, b=None: linear(x, w, b) * 1.01
"""
UNSYNCHRONISED = """
import torch.nn.parallel
torch.nn.parallel.DistributedDataParallel = lambda model, **_: model
"""
SPOILED = """
import torch
from validation.payloads import scaling
digest = scaling._digest
def instead(model):
    with torch.no_grad():
        next(model.parameters())[0, 0] += 1e-6
    return digest(model)
scaling._digest = instead
"""
MISSED = """
import torch.distributed as dist
all_reduce, calls = dist.all_reduce, []
def instead(tensor, **options):
    all_reduce(tensor, **options)
    if tensor.dtype.is_floating_point is False:
        tensor.sub_(1)
dist.all_reduce = instead
"""
LOST = """
from validation.payloads import decoder
make = decoder.Part.__init__
def instead(self, shape, weights, part, parts, device, add):
    make(self, shape, weights, part, parts, device, lambda mine: add(mine * 0))
decoder.Part.__init__ = instead
"""

CACHE = "KV cache of {who} is wrong at"
WROTE = r"__{rank}_0\.distcp of rank {rank} on {host} "
FAULTS: Mapping[str, tuple[Fault, ...]] = {
    "checkpoint": (
        Fault(HEALTHY),
        Fault(
            "momentum 0.01 % off, one rank", "loss differs .* from step 3 on", program=WRONG_STEP
        ),
        Fault(
            "slices that arrive as zeros, one rank",
            "loss differs .* from step 2 on",
            program=DEAF,
            several=True,
        ),
    ),
    "inference": (
        Fault(HEALTHY),
        Fault("another token, one rank", f"{CACHE} place 21", blames=True, program=TOKEN),
        Fault("a cached key is 0, one rank", f"{CACHE} place 5", blames=True, program=KEY),
        Fault("a cache that is late, one rank", f"{CACHE} place 21", blames=True, program=LATE),
        Fault("matrix products × 1.01, one rank", "what {who} computed", True, program=LINEAR),
        Fault("one rank's share is lost", "added up is wrong", program=LOST, several=True),
    ),
    "scaling": (
        Fault(HEALTHY),
        Fault(
            "no synchronisation",
            r"parameters of \d+ ranks that trained together differ",
            program=UNSYNCHRONISED,
            several=True,
            everywhere=True,
        ),
        Fault(
            "one element of one rank's parameters",
            r"parameters of \d+ ranks that trained together differ",
            program=SPOILED,
            several=True,
        ),
        Fault("a sum without one rank", r"a sum over \d+ ranks is wrong", program=MISSED),
    ),
    "resume": (
        Fault(HEALTHY),
        Fault("a stale shard", WROTE + "is stale: it holds the save before", first=STALE),
        Fault("a torn file", WROTE + r"is torn: \d+ of \d+ bytes", files=torn),
        Fault(
            "two files swapped", WROTE + "is swapped: .* rank 0 wrote", files=swapped, several=True
        ),
        Fault("one bit of a file", WROTE + "is spoiled", files=spoiled),
        Fault("a file removed", WROTE + "is missing", files=removed),
        Fault("no complete checkpoint", "nothing to resume: .* no complete", files=no_manifest),
        Fault(
            "one node reads all files wrong",
            "only {host} sees it so",
            True,
            program=BLIND,
            several=True,
        ),
        Fault("the momentum is not restored", r"not what was written: momentum\.", program=FORGETS),
        Fault(
            "momentum 0.01 % off, one rank", "loss differs .* from step 6 on", program=WRONG_STEP
        ),
    ),
}


# --- runs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Told:
    """One run of a fault, judged."""

    check: str
    backend: str
    ranks: int
    fault: Fault
    result: Result
    host: str  # of the last rank
    rank: int  # the last that wrote

    @property
    def right(self) -> bool:
        if self.fault.name == HEALTHY:
            return self.result.verdict is Verdict.PASS
        host = re.escape(self.host)
        who = f"rank {self.rank} on {host}"
        says = self.fault.says.format(rank=self.rank, host=host, who=who)
        named = (self.host,) in ((self.result.blamed or ())[-1:],)
        fair = named if self.fault.blames else not self.result.blamed
        return (
            self.result.verdict is Verdict.FAIL
            and bool(re.search(says, self.result.message))
            and fair
        )


@functools.cache
def jobs(nodes: int, filesystem: str, backend: str = "gloo") -> dict[str, Job]:
    """The suite's jobs on so many nodes of one rank, by their check."""
    model = "h100_sxm" if backend == "nccl" else "virtual"
    document = declare(*((f"gpu{number + 1}", model, 1) for number in range(nodes)))
    for node in document["nodes"]:
        node["shared_filesystems"] = [filesystem]
    declared = declaration.parse(document, "fault table")
    run_plan = plan.make(declared, suites.load("training"), plan.Selection(), "fault-table")
    return {job.checks[0]: job for group in run_plan.groups for job in group.jobs}


def run(check: str, nodes: int, fault: Fault, backend: str = "gloo") -> Told:
    """The fault in a run on so many nodes. Its folder is removed afterwards."""
    with tempfile.TemporaryDirectory() as filesystem:
        planned = jobs(nodes, filesystem, backend)
        job, last = planned[check], nodes - 1
        if check == "resume":
            before = planned["checkpoint"]
            last = len(before.nodes) - 1
            judged(before, _answer(before, fault.first, False))
            (folder,) = Path(filesystem).glob("plumbline-checkpoint-*/*")
            if fault.files:
                fault.files(folder, last)
        result = judged(job, _answer(job, fault.program, fault.everywhere))
        if check == "resume" and (left := [*Path(filesystem).iterdir()]):
            raise RuntimeError(f"{fault.name}: {left} is left")
    host = before.hosts[-1] if check == "resume" and not fault.blames else job.hosts[-1]
    return Told(check, backend, nodes, fault, result, host, last)


def judged(job: Job, document: Mapping[str, object]) -> Result:
    """What the check says. The ranks speak over Gloo in the place of NCCL too."""
    healthy = getattr(standin, job.payload)(job.hosts, job.config, job.ranks_per_node)
    measured = {**document["measured"], "transport": healthy["measured"]["transport"]}  # type: ignore[dict-item]
    answer = {**healthy, "measured": measured}
    reply = Reply(job.name, Outcome.EXITED, 0, "1", standin.line(answer))
    result: Result = judging.judged(job.checks[0], job, reply)
    return result


def _answer(job: Job, program: str, everywhere: bool) -> dict[str, object]:
    """What rank 0 answers. `program` runs on the last rank, or on all of them.

    Raises RuntimeError if a rank fails.
    """
    config = {**job.config, "backend": "gloo"}
    del config["cpus_per_rank"]  # this machine has fewer
    step = str(free_job_id())
    orders = [
        Order(
            f"import sys\n{program if everywhere or rank == job.ranks - 1 else ''}\n"
            "from validation.payloads.__main__ import end, main\nend(main(sys.argv[1:]))",
            (job.payload, json.dumps(config)),
            {
                **os.environ,
                "SLURM_PROCID": str(rank),
                "SLURM_LOCALID": str(rank),
                "SLURM_NTASKS": str(job.ranks),
                "SLURM_JOB_ID": step,
                "SLURM_STEP_ID": "0",
                "SLURM_STEP_NODELIST": "localhost",
                "SLURMD_NODENAME": job.hosts[rank],
                "GLOO_SOCKET_IFNAME": "lo",
            },
        )
        for rank in range(job.ranks)
    ]
    with started(orders) as processes:
        for process in processes:
            if (status := process.wait(LIMIT_S)) != 0:
                raise RuntimeError(f"{job.name}: a rank ended with {status}: {process.err}")
        document: dict[str, object] = json.loads(processes[0].out)
    return document


def table(outcomes: Sequence[Told]) -> str:
    """Markdown, one table for each check and backend."""
    lines: list[str] = []
    for check, backend in dict.fromkeys((item.check, item.backend) for item in outcomes):
        here = [item for item in outcomes if (item.check, item.backend) == (check, backend)]
        lines += [f"### {check}, {backend} sizes, {here[0].ranks} nodes", ""]
        lines += ["| fault | what the run says | blamed |", "|---|---|---|"]
        for item in here:
            said = ("" if item.right else "**wrong** ") + (item.result.message or "passes")
            said = re.sub(r"/tmp/\S+", "…", said)
            lines.append(f"| {item.fault.name} | {said} | {', '.join(item.result.blamed or ())} |")
        lines.append("")
    return "\n".join(lines)


def run_all(checks: Sequence[str], backends: Sequence[str], nodes: int = NODES) -> list[Told]:
    """backends: at whose sizes; all of them run over Gloo."""
    return [
        run(check, nodes, fault, backend)
        for check in checks
        for backend in backends
        for fault in FAULTS[check]
        if (nodes > 1 or not fault.several) and (check, backend) not in NOT_HERE
    ]
