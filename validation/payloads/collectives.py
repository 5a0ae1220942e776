"""Every collective over all ranks, and over sizes: does every element arrive, and how fast?

The operations that trainings are made of: all_reduce (data parallel), all_gather and reduce_scatter
(FSDP), all_to_all (experts), broadcast (a model's start), sendrecv (pipelines; a ring, in which
each rank sends to the next one). all_gather and reduce_scatter run out of place and in place, the
way FSDP calls them; torch has only the one way of the others.

Sizes are nccl-tests' (doc/PERFORMANCE.md): the bytes of all ranks' blocks together for all_gather,
reduce_scatter and all_to_all, one rank's message for the others. A block has one element at least,
so with many ranks the smallest sizes grow to it.

What is moved is filled with pattern.Messages, which are others in every call, so what an earlier
call left is wrong. What is added up are all_reduce's whole numbers, and the result's place is made
wrong beforehand. Every element of every call is compared.

Gloo has all of these as operations on one tensor, in torch 2.6 and 2.13 alike; it lacks all_to_all
and reduce_scatter on lists of tensors in 2.6, which are not used here.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from validation.payloads import all_reduce, nccl_tests
from validation.payloads.config import require
from validation.payloads.group import Group
from validation.payloads.pattern import EVERYBODY, PERIOD, Messages
from validation.payloads.timed_calls import Call, timed

if TYPE_CHECKING:
    import torch

ITEM_BYTES = all_reduce.ITEM_BYTES
ROOT = 0  # of a broadcast

# Operation: whether each of its ways is in place.
WAYS: dict[str, tuple[bool, ...]] = {
    "all_reduce": (True,),
    "all_gather": (False, True),
    "reduce_scatter": (False, True),
    "all_to_all": (False,),
    "broadcast": (True,),
    "sendrecv": (False,),
}
OPERATIONS = tuple(WAYS)
_OF_BLOCKS = ("all_gather", "reduce_scatter", "all_to_all")  # one for each rank
_ADDING = ("all_reduce", "reduce_scatter")

# What a size takes of a GPU's memory: what is sent, what is received, and room for both to be
# compared in parts.
BUFFERS = 2.5


# nccl-tests sends, receives and expects a buffer each, and may take so much of the time limit.
NCCL_TESTS_BUFFERS = 4
NCCL_TESTS_SHARE = 0.8


@dataclass(frozen=True, kw_only=True)
class Config(all_reduce.Config):
    """operations: see WAYS; iterations and warmup: calls per size and way."""

    operations: tuple[str, ...]
    iterations: int = 10
    warmup: int = 2
    diagnosed: ClassVar[bool] = False  # all_reduce has done it

    def __post_init__(self) -> None:
        super().__post_init__()
        for operation in self.operations:
            known = ", ".join(OPERATIONS)
            require(operation in WAYS, f'operations has "{operation}", not one of {known}')


@dataclass(frozen=True)
class Measured:
    """One size of one way.

    bytes          that were moved, see `moved`
    calls_s        seconds of each call on the slowest rank
    calls_checked  of which every rank compared every element
    wrong          [receiving rank, sending rank or null, elements] wherever there were any, over
                   all calls; the sender is null where ranks add up. Of more than two senders to one
                   rank the first and the last stand here, the last with the elements of the others
    """

    bytes: int
    calls_s: list[float]
    calls_checked: int
    wrong: list[list[int | None]]


@dataclass(frozen=True)
class Way:
    """work_s_by_rank: each rank's own work around a call of the largest size."""

    operation: str
    in_place: bool
    sizes: list[Measured]
    work_s_by_rank: list[float]


def block(operation: str, size: int, ranks: int) -> int:
    """Elements of a rank's block, or of its whole message, for a size in bytes."""
    parts = ranks if operation in _OF_BLOCKS else 1
    return max(1, size // ITEM_BYTES // parts)


def moved(operation: str, size: int, ranks: int) -> int:
    """Bytes that a size comes to, in whole blocks."""
    parts = ranks if operation in _OF_BLOCKS else 1
    return block(operation, size, ranks) * parts * ITEM_BYTES


def fitting(sizes: tuple[int, ...], memory_bytes: int | None) -> tuple[int, ...]:
    """The sizes for which a device of this memory has room; all of them without a GPU."""
    if memory_bytes is None:
        return sizes
    return tuple(size for size in sizes if size * BUFFERS <= memory_bytes)


def measure(config: Config, group: Group) -> dict[str, Any]:
    """Every way of every operation, see Way; the least memory of a GPU, which limits the sizes;
    what nccl-tests says; and over what it ran, see Group.transport.

    Collective: all ranks must call it. Raises CannotRun where no size fits.
    """
    memory = _memory(group)
    sizes = fitting(config.sizes_bytes, memory)
    require(sizes != (), f"no size fits into {memory} bytes of GPU memory")
    bench = _Bench(group, max(sizes))
    ways = [
        asdict(_measure_way(config, group, bench, operation, in_place, sizes))
        for operation in config.operations
        for in_place in WAYS[operation]
    ]
    del bench
    second = None if memory is None else _second_opinion(config, group, sizes, memory)
    return {
        "ways": ways,
        "memory_bytes": memory,
        "nccl_tests": second,
        "transport": group.transport(),
    }


def _second_opinion(
    config: Config, group: Group, sizes: tuple[int, ...], memory: int
) -> list[dict[str, Any]]:
    """What nccl-tests says on each node that has it, all nodes at once: see nccl_tests.Figures."""
    import torch

    torch.cuda.empty_cache()
    size = max((item for item in sizes if item * NCCL_TESTS_BUFFERS <= memory), default=min(sizes))
    hosts = group.gather(group.itself.host)
    gpus = hosts.count(group.itself.host)
    group.watch.doing("running nccl-tests on each node")
    limit_s = config.timeout_s * NCCL_TESTS_SHARE

    def run() -> list[dict[str, Any]]:
        return nccl_tests.measure(nccl_tests.installed(config.operations), gpus, size, limit_s)

    rows = zip(hosts, group.on_each_node("nccl-tests", run), strict=True)
    return [{"host": host, "bytes": size, "figures": found} for host, found in rows if found]


def _memory(group: Group) -> int | None:
    """Bytes of the smallest GPU; None without GPUs."""
    import torch

    if group.device.type != "cuda":
        return None
    return min(group.gather(int(torch.cuda.get_device_properties(group.device).total_memory)))


def _measure_way(
    config: Config,
    group: Group,
    bench: _Bench,
    operation: str,
    in_place: bool,
    sizes: tuple[int, ...],
) -> Way:
    own = []
    for size in sizes:
        group.watch.doing(f"timing {operation} of {size} bytes")
        elements = block(operation, size, group.size)
        call = bench.call(operation, in_place, elements)
        with group.at_work():
            got = timed(call, group.device, config.warmup, config.iterations)
        own.append((got.seconds, got.work_s, _spoiled(got.wrong.tolist()), got.checked))
    everyones = group.gather(own)
    measured = []
    for number, size in enumerate(sizes):
        rows = [row[number] for row in everyones]
        measured.append(
            Measured(
                bytes=moved(operation, size, group.size),
                calls_s=[max(times) for times in zip(*(row[0] for row in rows), strict=True)],
                calls_checked=min(row[3] for row in rows),
                wrong=_wrong(operation, [row[2] for row in rows]),
            )
        )
    return Way(operation, in_place, measured, [row[-1][1] for row in everyones])


def _spoiled(counts: list[int]) -> list[tuple[int, int]]:
    """(message, elements) of the first and the last message that have wrong ones."""
    spoiled = [(message, count) for message, count in enumerate(counts) if count]
    if len(spoiled) > 2:
        return [spoiled[0], (spoiled[-1][0], sum(count for _, count in spoiled[1:]))]
    return spoiled


def _wrong(operation: str, by_rank: list[list[tuple[int, int]]]) -> list[list[int | None]]:
    ranks = len(by_rank)
    cells: list[list[int | None]] = []
    for receiver, spoiled in enumerate(by_rank):
        for message, count in spoiled:
            sender: int | None = message
            if operation in _ADDING:
                sender = None
            elif operation == "broadcast":
                sender = ROOT
            elif operation == "sendrecv":
                sender = (receiver - 1) % ranks
            cells.append([receiver, sender, count])
    return cells


class _Bench:
    """What is sent and received, and what must arrive, for calls up to one size."""

    def __init__(self, group: Group, largest: int) -> None:
        import torch

        self._rank, self._ranks = group.rank, group.size
        self._everybody = range(group.size)
        self._alone = range(group.rank, group.rank + 1)
        self._all = range(EVERYBODY, EVERYBODY + 1)
        self._messages = Messages(group.device)
        mine = all_reduce.contribution(group.rank, group.rank + 1, group.size)[0]
        self._mine = all_reduce.tile(mine, group.device)
        self._total = all_reduce.tile(all_reduce.total(group.size), group.device)
        elements = max(moved(name, largest, group.size) for name in OPERATIONS) // ITEM_BYTES
        self._send, self._receive = (
            torch.empty(elements, dtype=torch.float32, device=group.device) for _ in range(2)
        )

    def call(self, operation: str, in_place: bool, elements: int) -> Call:
        """`elements` are of one rank's block, or of its message."""
        match operation:
            case "all_gather":
                return self._all_gather(in_place, elements)
            case "reduce_scatter":
                return self._reduce_scatter(in_place, elements)
            case "all_to_all":
                return self._all_to_all(elements)
            case "broadcast":
                return self._broadcast(elements)
            case "sendrecv":
                return self._sendrecv(elements)
        return self._all_reduce(elements)

    def _own_block(self, whole: torch.Tensor, elements: int) -> torch.Tensor:
        return whole[self._rank * elements : (self._rank + 1) * elements]

    def _all_reduce(self, elements: int) -> Call:
        buffer = self._receive[:elements]
        return Call(
            fill=lambda _: all_reduce.fill(buffer, self._mine),
            run=lambda _: all_reduce.reduce(buffer),
            wrong=lambda _: all_reduce.count_wrong(buffer, self._total)[None],
        )

    def _all_gather(self, in_place: bool, elements: int) -> Call:
        result = self._receive[: self._ranks * elements]
        given = self._own_block(result, elements) if in_place else self._send[:elements]
        rows = result.view(self._ranks, elements)

        return Call(
            fill=lambda call: self._messages.fill(given[None], self._alone, self._all, call),
            run=lambda _: gather(result, given),
            wrong=lambda call: self._messages.wrong(rows, self._everybody, self._all, call),
        )

    def _reduce_scatter(self, in_place: bool, elements: int) -> Call:
        given = self._send[: self._ranks * elements]
        result = self._own_block(given, elements) if in_place else self._receive[:elements]
        # The tile, from where this rank's block begins in the sum.
        first = self._rank * elements % PERIOD
        total = self._total[first : first + len(self._total) - PERIOD]

        def fill(_: int) -> None:
            result.fill_(math.nan)
            all_reduce.fill(given, self._mine)

        return Call(
            fill,
            run=lambda _: scatter(result, given),
            wrong=lambda _: all_reduce.count_wrong(result, total)[None],
        )

    def _all_to_all(self, elements: int) -> Call:
        given, result = (
            buffer[: self._ranks * elements].view(self._ranks, elements)
            for buffer in (self._send, self._receive)
        )

        return Call(
            fill=lambda call: self._messages.fill(given, self._alone, self._everybody, call),
            run=lambda _: exchange(result, given),
            wrong=lambda call: self._messages.wrong(result, self._everybody, self._alone, call),
        )

    def _broadcast(self, elements: int) -> Call:
        buffer = self._receive[:elements]
        root = range(ROOT, ROOT + 1)

        def fill(call: int) -> None:
            if self._rank == ROOT:
                self._messages.fill(buffer[None], root, self._all, call)

        return Call(
            fill,
            run=lambda _: spread(buffer),
            wrong=lambda call: self._messages.wrong(buffer[None], root, self._all, call),
        )

    def _sendrecv(self, elements: int) -> Call:
        given, result = self._send[:elements], self._receive[:elements]
        before, after = (self._rank - 1) % self._ranks, (self._rank + 1) % self._ranks

        def fill(call: int) -> None:
            self._messages.fill(given[None], self._alone, range(after, after + 1), call)

        def wrong(call: int) -> torch.Tensor:
            senders = range(before, before + 1)
            return self._messages.wrong(result[None], senders, self._alone, call)

        return Call(fill, run=lambda _: pass_on(result, given, before, after), wrong=wrong)


# The operations: each fills its result, and is over when that may be read.


def gather(result: torch.Tensor, given: torch.Tensor) -> None:
    """result: the blocks of all ranks; given: this rank's."""
    import torch.distributed as dist

    dist.all_gather_into_tensor(result, given)


def scatter(result: torch.Tensor, given: torch.Tensor) -> None:
    """result: this rank's block of the sum; given: what it adds to all blocks."""
    import torch.distributed as dist

    dist.reduce_scatter_tensor(result, given)


def exchange(result: torch.Tensor, given: torch.Tensor) -> None:
    """result: a block from each rank, [ranks, elements]; given: one for each."""
    import torch.distributed as dist

    dist.all_to_all_single(result, given)


def spread(buffer: torch.Tensor) -> None:
    """Replaces the buffer by that of ROOT."""
    import torch.distributed as dist

    dist.broadcast(buffer, ROOT)


def pass_on(result: torch.Tensor, given: torch.Tensor, before: int, after: int) -> None:
    """Sends to the rank `after` and receives from the one `before`. One rank alone keeps its own:
    Gloo sends nothing to itself.
    """
    import torch.distributed as dist

    if before == after == dist.get_rank():
        result.copy_(given)
        return
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, given, after), dist.P2POp(dist.irecv, result, before)]
    )
    for work in works:
        work.wait()
