"""Injects faults into real trainings and prints whether the training checks detect them.

    scripts/fault-table                   docs/understand/faults.md: 2, 4, 8, 16 ranks, an hour
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
from validation.payloads import (
    ddp,
    expert_parallel,
    experts,
    fsdp,
    mesh,
    pipeline,
    schedules,
    sharded,
    tensor_parallel,
    training,
)
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

PAYLOADS: Mapping[str, Any] = {
    "ddp": ddp,
    "pipeline": pipeline,
    "fsdp": fsdp,
    "tensor_parallel": tensor_parallel,
    "schedules": schedules,
    "expert_parallel": expert_parallel,
    "mesh": mesh,
}
REFERENCES = (ddp, pipeline, sharded, schedules, expert_parallel)  # who train one
BACKENDS = ("gloo", "nccl")

# As payloads write what JSON has no word for.
NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}

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


def link(
    number: int, spoil: Callable[[list[Any]], Any], module: Any = pipeline
) -> Callable[[Group], Patch]:
    """The activations that arrive at a rank; negative counts from the end."""

    def patch(group: Group) -> Patch:
        if group.rank != number % group.size:
            return nullcontext()
        make = module.make_stage

        def spoiled(config: Any, of: Group, chain: Any, part: Any, *which: Any) -> Any:
            arrived: list[Any] = []

            def before(_: object, inputs: tuple[Any, ...]) -> None:
                arrived.append(inputs[0].detach().clone())
                with torch.no_grad():
                    inputs[0].copy_(spoil(arrived))

            part.register_forward_pre_hook(before)
            return make(config, of, chain, part, *which)

        return mock.patch.object(module, "make_stage", spoiled)

    return patch


def link_back(
    number: int, factor: float, module: Any = pipeline, only: int | None = None
) -> Callable[[Group], Patch]:
    """The gradients that come back to a rank, those of one microbatch or all."""

    def patch(group: Group) -> Patch:
        if group.rank != number % group.size:
            return nullcontext()
        make = module.make_stage

        def spoiled(config: Any, of: Group, chain: Any, part: Any, *which: Any) -> Any:
            seen: list[Any] = []

            def after(_: object, __: object, output: Any) -> None:
                seen.append(None)
                if only is None or len(seen) == only:
                    output.register_hook(lambda gradient: gradient * factor)

            part.register_forward_hook(after)
            return make(config, of, chain, part, *which)

        return mock.patch.object(module, "make_stage", spoiled)

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


# What `fully_shard` gathers and scatters goes through these two; they have other names since 2.13.
RENAMED = hasattr(dist, "reduce_scatter_single")
GATHER = "all_gather_single" if RENAMED else "all_gather_into_tensor"
SCATTER = "reduce_scatter_single" if RENAMED else "reduce_scatter_tensor"


def sharing(spoil: Callable[[Any], Any]) -> Callable[[], Patch]:
    """What a rank gives to reduce-scatter."""
    scatter = getattr(dist, SCATTER)

    def spoiled(output: Any, input: Any, *rest: Any, **options: Any) -> Any:
        return scatter(output, spoil(input), *rest, **options)

    return lambda: mock.patch.object(dist, SCATTER, spoiled)


def unscattered() -> Patch:
    """Each rank keeps its own gradients."""

    def local(output: Any, input: Any, *rest: Any, **options: Any) -> Any:
        output.copy_(input.chunk(input.numel() // output.numel())[0])

    return mock.patch.object(dist, SCATTER, local)


def stale() -> Patch:
    """A rank gives to all_gather what it gave in the first step: the nearest to what it has now."""
    gather: Any = getattr(dist, GATHER)
    given: list[Any] = []

    def spoiled(output: Any, input: Any, *rest: Any, **options: Any) -> Any:
        near = [old for old in given if old.shape == input.shape and near_to(old, input)]
        if not near:
            given.append(input.clone())
        return gather(output, near[0] if near else input, *rest, **options)

    return mock.patch.object(dist, GATHER, spoiled)


def near_to(old: Any, new: Any) -> bool:
    """Two blocks drawn at random lie further apart than training moves one of them."""
    return bool(torch.nn.functional.cosine_similarity(old, new, dim=0) > 0.3)


def not_gathered() -> Patch:
    """A rank sees nothing but its own shards."""
    gather = getattr(dist, GATHER)

    def spoiled(output: Any, input: Any, *rest: Any, **options: Any) -> Any:
        own = input.clone()  # it may lie within the output
        work = gather(output, input, *rest, **options)
        if work is not None:
            work.wait()
        output.mul_(0)
        output.view(-1, own.numel())[dist.get_rank(options["group"])].copy_(own)
        return work

    return mock.patch.object(dist, GATHER, spoiled)


def splitting(
    before: Callable[[Any], None] = lambda model: None,
    after: Callable[[Any, Any], None] = lambda model, cell: None,
) -> Callable[[], Patch]:
    """A model is spoiled before or after it is split over the ranks."""
    split = sharded.split

    def spoiled(model: Any, cell: Any) -> None:
        before(model)
        split(model, cell)
        after(model, cell)

    return lambda: mock.patch.object(sharded, "split", spoiled)


def another_slice() -> Patch:
    """The hidden units of the next rank of the row, or in another order where it has one rank."""
    wholes: list[Any] = []

    def keep(model: Any) -> None:
        wholes.extend(block.up.weight.detach().clone() for block in model)

    def take(model: Any, cell: Any) -> None:
        count = cell.model.tensor
        for block, whole in zip(model, wholes, strict=True):
            other = (
                whole.roll(1, 0) if count == 1 else whole.chunk(count)[(cell.column + 1) % count]
            )
            with torch.no_grad():
                training.local(block.up.weight).copy_(other)

    return splitting(keep, take)()


def losing_shares() -> Patch:
    """What a rank adds to the sums of attention is lost on the way."""

    def lose(model: Any) -> None:
        for block in model:
            block.output.register_forward_hook(lambda _, __, output: output * 0)

    return splitting(lose)()


def losing_gradients() -> Patch:
    """What a rank adds to the sums of the way back is lost."""

    def lose(model: Any, _: Any) -> None:
        def before(__: object, inputs: tuple[Any, ...]) -> None:
            if inputs[0].requires_grad:
                inputs[0].register_hook(lambda gradient: gradient * 0)

        for block in model:
            block.up.register_forward_pre_hook(before)

    return splitting(after=lose)()


TO_EXPERTS, FROM_EXPERTS = 0, 1


def exchanging(
    way: int, spoil: Callable[[Any], Any] = lambda tokens: tokens, back: float = 1
) -> Callable[[], Patch]:
    """The tokens that a rank sends to experts, or what it sends back, or the gradients of these."""
    exchange = experts.exchange

    def patch() -> Patch:
        calls: list[Any] = []

        def spoiled(tokens: Any, *rest: Any) -> Any:
            calls.append(None)
            if (len(calls) - 1) % 2 != way:
                return exchange(tokens, *rest)
            came = exchange(spoil(tokens), *rest)
            if back != 1 and came.requires_grad:
                came.register_hook(lambda gradient: gradient * back)
            return came

        return mock.patch.object(experts, "exchange", spoiled)

    return patch


def swapped_experts() -> Patch:
    """The first two experts of a rank, in each block."""
    make = expert_parallel.make_model

    def spoiled(*arguments: Any) -> Any:
        model = make(*arguments)
        with torch.no_grad():
            for block in experts.expert_blocks(model):
                for one, other in ((0, 2), (1, 3)):
                    first, second = (next(block.experts[at].parameters()) for at in (one, other))
                    kept = first.clone()
                    first.copy_(second)
                    second.copy_(kept)
        return model

    return mock.patch.object(expert_parallel, "make_model", spoiled)


def adding_up(spoil: Callable[[Any], Any], exchange: bool = True) -> Callable[[], Patch]:
    """The attention's gradients, before they are added up over the ranks."""
    add_up = expert_parallel.add_up

    def spoiled(parameter: Any, row: Any) -> None:
        parameter.grad = spoil(parameter.grad)
        if exchange:
            add_up(parameter, row)

    return lambda: mock.patch.object(expert_parallel, "add_up", spoiled)


def reverse(tokens: Any) -> Any:
    return tokens.flip(0)


def scaled(factor: float) -> Callable[[Any], Any]:
    return lambda tensor: tensor * factor


def none(_: Group) -> Patch:
    return nullcontext()


BOTH = (
    Fault("optimizer never steps, all ranks", on_all(never_stepping)),
    Fault("optimizer never steps, one rank", on_one(never_stepping), of_one_node=True),
    Fault("learning rate 10 % off, one rank", on_one(learning_rate(1.1)), of_one_node=True),
    Fault("matrix products × 1.5, all ranks", on_all(linear(1.5))),
    Fault("matrix products × 1.01, one rank", on_one(linear(1.01)), of_one_node=True),
)
SHARDED = (
    Fault("no reduce-scatter", on_all(unscattered), together=True),
    Fault("one rank's gradients zeroed", on_one(sharing(scaled(0)))),
    Fault("one rank's gradients negated", on_one(sharing(scaled(-1)))),
    Fault("one rank's gradients doubled", on_one(sharing(scaled(2)))),
    Fault("one rank's shards are stale", on_one(stale), of_one_node=True),
    Fault("one rank does not gather", on_one(not_gathered), together=True),
)
SLICED = (
    Fault("one rank has another slice", on_one(another_slice), of_one_node=True),
    Fault("one rank's share of a sum is lost", on_one(losing_shares)),
    Fault("one rank's share of the way back is lost", on_one(losing_gradients)),
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
    "fsdp": (Fault(HEALTHY, none), *SHARDED, *BOTH),
    "tensor_parallel": (Fault(HEALTHY, none), *SLICED, *BOTH),
    "schedules": (
        Fault(HEALTHY, none),
        *(
            Fault(f"{name}, {where} link", link(number, spoil, schedules))
            for name, spoil in (
                ("zeros arrive", zeroed),
                ("samples in another order", permuted),
                ("one microbatch late", late),
            )
            for where, number in (("first", 1), ("last", -1))
        ),
        Fault("zeros come back, first link", link_back(0, 0, schedules)),
        Fault("zeros come back, last link", link_back(-2, 0, schedules)),
        Fault("one microbatch's zeros come back", link_back(0, 0, schedules, only=1)),
        *BOTH,
    ),
    "expert_parallel": (
        Fault(HEALTHY, none),
        Fault("one rank's experts swapped", on_one(swapped_experts), of_one_node=True),
        Fault("one rank's tokens zeroed", on_one(exchanging(TO_EXPERTS, scaled(0)))),
        Fault("one rank's tokens in another order", on_one(exchanging(TO_EXPERTS, reverse))),
        Fault("its experts' results zeroed", on_one(exchanging(FROM_EXPERTS, scaled(0)))),
        Fault("its experts' results in another order", on_one(exchanging(FROM_EXPERTS, reverse))),
        Fault("zeros come back to its tokens", on_one(exchanging(TO_EXPERTS, back=0))),
        Fault("zeros come back to its experts", on_one(exchanging(FROM_EXPERTS, back=0))),
        Fault("no averaging", on_all(adding_up(scaled(1), exchange=False)), together=True),
        Fault("one rank's gradients zeroed", on_one(adding_up(scaled(0)))),
        Fault("one rank's gradients doubled", on_one(adding_up(scaled(2)))),
        *BOTH,
    ),
    "mesh": (Fault(HEALTHY, none), *SHARDED, *SLICED[1:], *BOTH),
}


# --- one rank -----------------------------------------------------------------------------------


def work(orders: Sequence[tuple[str, str, str]], out: Path) -> None:
    """Runs the orders (payload, backend, fault) one after another; rank 0 writes what they gave."""
    first = {**config_of("ddp", "gloo", 2), "timeout_s": TIMEOUT_S}
    with joined(load(ddp.Config, json.dumps(first)), os.environ) as group, ExitStack() as stack:
        for module in REFERENCES:  # one reference serves all faults
            cached = functools.cache(module.train_reference)
            stack.enter_context(mock.patch.object(module, "train_reference", cached))
        for payload, backend, name in orders:
            module = PAYLOADS[payload]
            config = load(module.Config, json.dumps(config_of(payload, backend, group.size)))
            fault = next(fault for fault in FAULTS[payload] if fault.name == name)
            with fault.patch(group):
                measured = module.measure(dataclasses.replace(config, backend="gloo"), group)
            if group.rank == 0:
                document = json.loads(json.dumps(measured), parse_constant=NOT_FINITE.get)
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
    run_plan = plan.make(declared, suites.load("training"), plan.Selection(), "fault-table")
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
    return run_orders(
        ranks,
        [
            (payload, backend, fault.name)
            for payload in payloads
            for backend in backends
            for fault in FAULTS[payload]
            if ranks > 1 or not fault.together
        ],
    )


def run_orders(ranks: int, orders: Sequence[tuple[str, str, str]]) -> list[Judged]:
    """As `run`: payload, backend and fault of each."""
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
    told = {name: healthy["measured"].get(name) for name in ("transport", "boards")}
    measured = {**measured, **told}
    fault = next(fault for fault in FAULTS[payload] if fault.name == name)

    def of(answer: Any) -> Judged:
        document = {**healthy, "nonce": job.config["nonce"], "measured": answer}
        reply = Reply(job.name, Outcome.EXITED, 0, "1", standin.line(document))
        result: Result = judging.judged(payload, job, reply)
        return Judged(payload, backend, ranks, fault, result)

    if payload != "schedules":
        return of(measured)
    # Each schedule has to show the fault by itself: the others are replaced by healthy ones.
    parts, well = measured["schedules"], healthy["measured"]["schedules"]
    each = [
        of({**measured, "schedules": [*well[:at], part, *well[at + 1 :]]})
        for at, part in enumerate(parts)
    ]
    pick = max if name == HEALTHY else min
    return pick(
        each, key=lambda one: (one.right if name != HEALTHY else not one.right, one.multiple)
    )


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
