"""Injects faults into real trainings and prints whether the training checks detect them.

    scripts/fault-table                   docs/understand/faults.md: 2, 4, 8, 16 ranks, some minutes
    scripts/fault-table --short           2 ranks, as the tests run it
    scripts/fault-table --ranks 4 --only ddp

The trainings have the sizes of the shipped suites, for both backends, and the checks judge them
with the shipped tolerances. All of them run as real ranks over Gloo on this machine, including the
sizes for GPUs. A cell is the largest figure as a multiple of its tolerance. Faults must reach 10 or
more and healthy runs 0.1 or less, with the right verdict; otherwise the exit status is 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import random
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F

from cluster import declaration, version
from validation import plan, suites
from validation.model import Job, Outcome, Reply, Result, Verdict
from validation.payloads import ddp, pipeline, training
from validation.payloads.__main__ import end
from validation.payloads.config import load
from validation.payloads.group import Group, joined
from validation.payloads.rendezvous import PORTS, port_of
from validation.tests import judging, standin
from validation.tests.conftest import declare
from validation.tests.torch_processes import Order, Process, started

ROOT = Path(__file__).parents[2]
RANKS = (2, 4, 8, 16)
LEAST_FAULTY, MOST_HEALTHY = 10, 0.1
HEALTHY = "healthy"
TIMEOUT_S = 3600

PAYLOADS: Mapping[str, Any] = {"ddp": ddp, "pipeline": pipeline}
BACKENDS = ("gloo", "nccl")

Patch = AbstractContextManager[Any]


@dataclass(frozen=True)
class Fault:
    """`patch` is applied on every rank; `of_one_node` says that one node did it.

    `together` is one that a rank alone cannot have.
    """

    name: str
    patch: Callable[[Group], Patch]
    of_one_node: bool = False
    together: bool = False


# --- the faults: whatever one rank does, the last one does ------------------------------------


def faulty(group: Group) -> bool:
    return group.rank == group.size - 1


def on_one(patch: Callable[[], Patch]) -> Callable[[Group], Patch]:
    return lambda group: patch() if faulty(group) else nullcontext()


def on_all(patch: Callable[[], Patch]) -> Callable[[Group], Patch]:
    return lambda group: patch()


def exchange(share: Callable[[Group], float], ranks: Callable[[Group], float]) -> Any:
    """Gradients are exchanged by hand: each rank's share of its own, divided by `ranks`."""

    def patch(group: Group) -> Patch:
        make = ddp.make_replica

        def hook(_, bucket):  # torch refuses annotations but its own
            tensor = bucket.buffer().mul_(share(group))
            work = dist.all_reduce(tensor, async_op=True)
            return work.get_future().then(lambda done: done.value()[0] / ranks(group))

        def hooked(model: Any, of: Group) -> Any:
            replica: Any = make(model, of)
            replica.register_comm_hook(None, hook)
            return replica

        return mock.patch.object(ddp, "make_replica", hooked)

    return patch


def everyone(group: Group) -> float:
    return group.size


def of_one(factor: float) -> Callable[[Group], float]:
    return lambda group: factor if faulty(group) else 1.0


def unsynchronised() -> Patch:
    return mock.patch.object(ddp, "make_replica", lambda model, _: model)


def learning_rate(factor: float) -> Callable[[], Patch]:
    sgd = training.sgd
    return lambda: mock.patch.object(training, "sgd", lambda model, lr: sgd(model, lr * factor))


def never_stepping() -> Patch:
    return mock.patch.object(torch.optim.SGD, "step", return_value=None)


def linear(factor: float) -> Callable[[], Patch]:
    """Every matrix product of torch's layers comes out that much too large."""

    def patch() -> Patch:
        right = F.linear
        return mock.patch.object(F, "linear", lambda x, w, b: right(x, w, b) * factor)

    return patch


def link(number: int, spoil: Callable[[list[Any]], Any]) -> Callable[[Group], Patch]:
    """The activations that arrive at a rank; negative counts from the end."""

    def patch(group: Group) -> Patch:
        if group.rank != number % group.size:
            return nullcontext()
        make = pipeline.make_stage

        def spoiled(config: Any, of: Group, chain: Any, module: Any) -> Any:
            arrived: list[Any] = []

            def before(_: object, inputs: tuple[Any, ...]) -> None:
                arrived.append(inputs[0].detach().clone())
                with torch.no_grad():
                    inputs[0].copy_(spoil(arrived))

            module.register_forward_pre_hook(before)
            return make(config, of, chain, module)

        return mock.patch.object(pipeline, "make_stage", spoiled)

    return patch


def link_back(number: int, factor: float) -> Callable[[Group], Patch]:
    """The gradients that come back to a rank."""

    def patch(group: Group) -> Patch:
        if group.rank != number % group.size:
            return nullcontext()
        make = pipeline.make_stage

        def spoiled(config: Any, of: Group, chain: Any, module: Any) -> Any:
            def after(_: object, __: object, output: Any) -> None:
                output.register_hook(lambda gradient: gradient * factor)

            module.register_forward_hook(after)
            return make(config, of, chain, module)

        return mock.patch.object(pipeline, "make_stage", spoiled)

    return patch


def zeroed(arrived: list[Any]) -> Any:
    return arrived[-1] * 0


def noised(arrived: list[Any]) -> Any:
    """A tenth of noise."""
    generator = torch.Generator().manual_seed(len(arrived))
    return arrived[-1] + 0.1 * torch.randn(arrived[-1].shape, generator=generator)


def permuted(arrived: list[Any]) -> Any:
    return arrived[-1].flip(0)


def late(arrived: list[Any]) -> Any:
    """One microbatch: the first comes twice, each next one when the one after it is due."""
    return arrived[-2] if len(arrived) > 1 else arrived[-1]


def none(_: Group) -> Patch:
    return nullcontext()


BOTH = (
    Fault("optimizer never steps, all ranks", on_all(never_stepping)),
    Fault("optimizer never steps, one rank", on_one(never_stepping), of_one_node=True),
    Fault("learning rate 10 % off, one rank", on_one(learning_rate(1.1)), of_one_node=True),
    Fault("matrix products × 1.5, all ranks", on_all(linear(1.5))),
    Fault("matrix products × 1.01, one rank", on_one(linear(1.01)), of_one_node=True),
)
FAULTS: Mapping[str, tuple[Fault, ...]] = {
    "ddp": (
        Fault(HEALTHY, none),
        Fault("no synchronisation", on_all(unsynchronised), together=True),
        Fault("one rank lost", exchange(of_one(0), lambda group: group.size - 1)),
        Fault("one rank's gradients zeroed", exchange(of_one(0), everyone)),
        Fault("one rank's gradients negated", exchange(of_one(-1), everyone)),
        Fault("one rank's gradients doubled", exchange(of_one(2), everyone)),
        Fault("all gradients zero", exchange(lambda _: 0, everyone)),
        Fault("sum for mean", exchange(lambda _: 1, lambda _: 1), together=True),
        *BOTH,
    ),
    "pipeline": (
        Fault(HEALTHY, none),
        *(
            Fault(f"{name}, {where} link", link(number, spoil))
            for name, spoil in (
                ("zeros arrive", zeroed),
                ("10 % noise arrives", noised),
                ("samples in another order", permuted),
                ("one microbatch late", late),
            )
            for where, number in (("first", 1), ("last", -1))
        ),
        Fault("zeros come back, first link", link_back(0, 0)),
        Fault("zeros come back, last link", link_back(-2, 0)),
        *BOTH,
    ),
}


# --- one rank -----------------------------------------------------------------------------------


def work(orders: Sequence[tuple[str, str, str]], out: Path) -> None:
    """Runs the orders (payload, backend, fault) one after another; rank 0 writes what they gave."""
    first = {**config_of("ddp", "gloo", 2), "timeout_s": TIMEOUT_S}
    with joined(load(ddp.Config, json.dumps(first)), os.environ) as group, ExitStack() as stack:
        for module in PAYLOADS.values():  # one reference serves all faults
            cached = functools.cache(module.train_reference)
            stack.enter_context(mock.patch.object(module, "train_reference", cached))
        for payload, backend, name in orders:
            module = PAYLOADS[payload]
            config = load(module.Config, json.dumps(config_of(payload, backend, group.size)))
            fault = next(fault for fault in FAULTS[payload] if fault.name == name)
            with fault.patch(group):
                measured = module.measure(dataclasses.replace(config, backend="gloo"), group)
            if group.rank == 0:
                document = json.loads(json.dumps(measured), parse_constant=str.lower)
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(document) + "\n")


def begin(arguments: Sequence[str]) -> NoReturn:
    """One rank as a process: the orders as JSON, and the file for what they gave."""
    work(json.loads(arguments[0]), Path(arguments[1]))
    end(0)


def config_of(payload: str, backend: str, ranks: int) -> dict[str, Any]:
    config = dict(job_of(payload, backend, ranks).config)
    del config["cpus_per_rank"]  # this machine has fewer
    return config


@functools.cache
def job_of(payload: str, backend: str, ranks: int) -> Job:
    """The suite's job on as many nodes of one rank."""
    model, gpus = ("h100_sxm", 1) if backend == "nccl" else ("virtual", 1)
    nodes = [(f"gpu{number + 1}", model, gpus) for number in range(ranks)]
    declared = declaration.parse(declare(*nodes), "fault table")
    run_plan = plan.make(declared, suites.load("quick"), plan.Selection(), "fault-table")
    return next(job for job in run_plan.jobs if job.payload == payload)


# --- all ranks ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """One run of a fault, judged."""

    payload: str
    backend: str
    ranks: int
    fault: Fault
    result: Result

    @property
    def multiple(self) -> float:
        """The worst figure as a multiple of its tolerance."""
        if self.result.value is None or self.result.threshold is None:
            raise RuntimeError(f"{self.payload}, {self.fault.name}: {self.result.message}")
        value = self.result.value.value
        return (
            float("inf") if isinstance(value, str) else value / float(self.result.threshold.value)
        )

    @property
    def right(self) -> bool:
        if self.fault.name == HEALTHY:
            return self.result.verdict is Verdict.PASS and self.multiple <= MOST_HEALTHY
        return self.result.verdict is Verdict.FAIL and self.multiple >= LEAST_FAULTY


def run(ranks: int, payloads: Sequence[str], backends: Sequence[str]) -> list[Judged]:
    """All faults with so many ranks, each rank a process. Raises RuntimeError if one dies."""
    orders = [
        (payload, backend, fault.name)
        for payload in payloads
        for backend in backends
        for fault in FAULTS[payload]
        if ranks > 1 or not fault.together
    ]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "measured.jsonl"
        with launched(ranks, orders, out) as processes:
            for process in processes:
                if (status := process.wait(TIMEOUT_S)) != 0:
                    raise RuntimeError(f"a rank ended with {status}: {process.err}")
        documents = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return [
        judged(payload, backend, ranks, fault, measured)
        for (payload, backend, fault), measured in zip(orders, documents, strict=True)
    ]


def launched(
    ranks: int, orders: Sequence[tuple[str, str, str]], out: Path
) -> AbstractContextManager[list[Process]]:
    variables = {
        "SLURM_NTASKS": str(ranks),
        "SLURM_JOB_ID": str(free_job_id()),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "localhost",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    program = "import sys; from validation.tests.fault_table import begin; begin(sys.argv[1:])"
    return started(
        [
            Order(
                program,
                (json.dumps(orders), str(out)),
                {
                    **os.environ,
                    **variables,
                    "SLURM_PROCID": str(rank),
                    "SLURM_LOCALID": str(rank),
                    "SLURMD_NODENAME": f"gpu{rank + 1}",
                },
            )
            for rank in range(ranks)
        ]
    )


def free_job_id() -> int:
    """A job id whose rendezvous port no one listens on."""
    while True:
        job = random.randrange(PORTS)
        with socket.socket() as attempt:
            try:
                attempt.bind(("127.0.0.1", port_of(job, 0)))
            except OSError:
                continue
        return job


def judged(payload: str, backend: str, ranks: int, name: str, measured: Any) -> Judged:
    job = job_of(payload, backend, ranks)
    healthy = getattr(standin, payload)(job.hosts, job.config)
    # The ranks speak over Gloo in the place of NCCL too: the way they took is not what is tried.
    measured = {**measured, "transport": healthy["measured"]["transport"]}
    document = {**healthy, "nonce": job.config["nonce"], "measured": measured}
    reply = Reply(job.name, Outcome.EXITED, 0, "1", standin.line(document))
    result: Result = judging.judged(payload, job, reply)
    fault = next(fault for fault in FAULTS[payload] if fault.name == name)
    return Judged(payload, backend, ranks, fault, result)


def table(outcomes: Sequence[Judged]) -> str:
    """Markdown, one table for each payload and backend."""
    lines: list[str] = []
    for payload, backend in dict.fromkeys((item.payload, item.backend) for item in outcomes):
        here = [item for item in outcomes if (item.payload, item.backend) == (payload, backend)]
        counts = list(dict.fromkeys(item.ranks for item in here))
        lines += [
            f"### {payload}, {backend} sizes",
            "",
            f"| fault | {' | '.join(f'{count} ranks' for count in counts)} | blamed |",
            f"|---|{'---:|' * len(counts)}---|",
        ]
        for name in dict.fromkeys(item.fault.name for item in here):
            row = [item for item in here if item.fault.name == name]
            cells = [("" if item.right else "**wrong** ") + f"{item.multiple:.2g}" for item in row]
            lines.append(f"| {name} | {' | '.join(cells)} | {blamed(row[-1])} |")
        lines.append("")
    return "\n".join(lines)


def blamed(item: Judged) -> str:
    if item.result.verdict is not Verdict.FAIL:
        return ""
    if item.result.blamed is None:
        return "one of them"
    if len(item.result.blamed) == item.ranks > 1:
        return "each of them"
    return ", ".join(item.result.blamed)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fault-table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--short", action="store_true", help="2 ranks only")
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS, metavar="N")
    # Not above: it needs this module.
    from validation.tests import told_faults  # noqa: PLC0415

    choices = (*PAYLOADS, *told_faults.FAULTS)
    parser.add_argument("--only", choices=choices, help="one payload")
    version.add_option(parser)
    options = parser.parse_args(arguments)
    chosen = [options.only] if options.only else choices
    payloads = [name for name in chosen if name in PAYLOADS]
    outcomes = []
    for ranks in (2,) if options.short else options.ranks:
        outcomes += run(ranks, payloads, BACKENDS)
    print(table(outcomes))
    told = told_faults.run_all(
        [name for name in chosen if name in told_faults.FAULTS],
        ("gloo",) if options.short else BACKENDS,
    )
    print(told_faults.table(told))
    right = [*(item.right for item in outcomes), *(item.right for item in told)]
    return 0 if all(right) else 1


if __name__ == "__main__":
    end(main(sys.argv[1:]))
