"""A training that is written to a shared filesystem, killed, and resumed by other processes.

`checkpoint` trains some steps and writes what it has twice, with torch.distributed.checkpoint, in
the same place: after its last step but one, and after its last. Then every process of it ends by
SIGKILL (killed.py). `resume` is another job, of other ranks: it looks at every file (see
checkpoint_files.py), loads them, and trains the rest.

Parameters and momentum are sharded by rows (torch's DTensor, as FSDP2 has them). So that the same
bits come out for any number of ranks, nothing that depends on it is ever rounded: the batch has 8
slices, each of which one rank computes alone with all parameters; their gradients are added in the
order of the slices; and the optimizer's step is made of single additions and multiplications, whose
result does not depend on where in a shard a number stands. torch's own optimizers may fuse two of
them, but not at the end of a shard.

Every rank trains the reference by itself: the same steps, without a group, on its own device, from
the first step to the last. Where all ranks' references are the same bit by bit, so must be the
training.
"""

from __future__ import annotations

import importlib
import math
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import CannotRun
from validation.payloads import checkpoint_files as files
from validation.payloads import training
from validation.payloads.config import require
from validation.payloads.ddp import SLICES
from validation.payloads.group import Group

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

SHOWN = 16  # files with a problem that are told
_ROOM = 4  # times what is written must be free


@dataclass(frozen=True, kw_only=True)
class Config(training.TrainingConfig):
    """A training of `steps`, killed after `kept` of them.

    depth            layers of `width` units
    batch_per_slice  samples of each of the 8 slices of a batch
    filesystem       the declared path; files lie in a folder of this user there
    stamp            of the run, the same for both jobs: names the folder
    """

    depth: int
    batch_per_slice: int
    kept: int
    filesystem: str
    stamp: str

    def __post_init__(self) -> None:
        super().__post_init__()
        require(2 <= self.kept < self.steps, f"kept is {self.kept}, not from 2 to steps - 1")


@dataclass
class Record:
    """Losses before each step and its seconds; the whole parameters after the last step."""

    losses: list[float] = field(default_factory=list)
    step_times: list[float] = field(default_factory=list)
    parameters: list[torch.Tensor] = field(default_factory=list)


class Training:
    """The model and its optimizer: sharded over a group's ranks, or whole where there is none."""

    def __init__(self, config: Config, device: torch.device, group: Group | None) -> None:
        import torch

        from validation.payloads import layers, reference

        self.config, self.device, self.group = config, device, group
        values = reference.initial(config.seed, config.width, config.depth)
        self.model = layers.stack(values, reference.layer_scale(config.depth)).to(device)
        self.whole = [parameter.detach() for parameter in self.model.parameters()]
        self.rank, self.ranks = (group.rank, group.size) if group else (0, 1)
        self.mine = [_rows(value, self.rank, self.ranks).clone() for value in self.whole]
        self.momentum = [torch.zeros_like(value) for value in self.mine]
        self.step = 0

    # --- training -------------------------------------------------------------------------------

    def train(self, until: int, record: Record) -> None:
        """Trains up to that step. Collective where there is a group."""
        import torch

        samples = self.config.batch_per_slice * SLICES
        for number, (inputs, targets) in enumerate(training.batches(self.config, samples)):
            if not self.step <= number < until:
                continue
            if self.group:
                self.group.watch.doing(f"training step {number + 1}")
            start = self._clock()
            losses, gradients = self._slices(inputs, targets)
            for shard, momentum, gradient in zip(self.mine, self.momentum, gradients, strict=True):
                momentum.mul_(_momentum()).add_(_rows(gradient, self.rank, self.ranks))
                shard.sub_(momentum * self.config.lr)
            self._gather_parameters()
            self.step = number + 1
            record.step_times.append(self._clock() - start)
            record.losses.append(losses)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        record.parameters = training.copies(self.whole)

    def _slices(
        self, inputs: torch.Tensor, targets: torch.Tensor
    ) -> tuple[float, list[torch.Tensor]]:
        """The mean loss of the batch and its gradient, added up in the order of the slices."""
        import torch
        import torch.distributed as dist

        mean = torch.zeros(1, dtype=torch.float64, device=self.device)
        added = [torch.zeros_like(value) for value in self.whole]
        # Rank r computes slice r; where there are fewer ranks, the slices r + n, r + 2n, … as well.
        # Each is sent as soon as it is there, so that one at a time is held.
        for number in range(SLICES):
            owner = number % self.ranks
            if owner == self.rank:
                first = number * self.config.batch_per_slice
                part = slice(first, first + self.config.batch_per_slice)
                loss, gradients = self._one(inputs[part], targets[part])
            else:
                loss = torch.empty_like(mean)
                gradients = [torch.empty_like(value) for value in self.whole]
            if self.ranks > 1:
                for tensor in (loss, *gradients):
                    dist.broadcast(tensor, src=owner)
            mean.add_(loss)
            for total, gradient in zip(added, gradients, strict=True):
                total.add_(gradient)
        return mean.item(), added

    def _one(
        self, inputs: torch.Tensor, targets: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        import torch

        from validation.payloads.layers import squared_distances

        inputs, targets = (part.clone().to(self.device) for part in (inputs, targets))
        self.model.zero_grad()
        loss = squared_distances(self.model(inputs), targets).mean() / self.config.width / SLICES
        torch.autograd.backward(loss)
        own = [gradient.detach().contiguous() for gradient in training.gradients(self.model)]
        return loss.detach().double().reshape(1), own

    def _gather_parameters(self) -> None:
        for whole, shard in zip(self.whole, self.mine, strict=True):
            whole.copy_(self._gathered(shard, whole))

    def _gathered(self, shard: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """The whole tensor of which every rank has a shard. Collective."""
        import torch
        import torch.distributed as dist

        if self.ranks == 1:
            return shard
        rows = math.ceil(len(like) / self.ranks)
        padded = torch.zeros((rows, *like.shape[1:]), dtype=like.dtype, device=self.device)
        padded[: len(shard)] = shard
        everyones = [torch.empty_like(padded) for _ in range(self.ranks)]
        dist.all_gather(everyones, padded)
        return torch.cat(everyones)[: len(like)]

    def _clock(self) -> float:
        return self.group.clock() if self.group else time.perf_counter()

    # --- what is written ------------------------------------------------------------------------

    def named(self) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """Each shard, and the whole tensor whose shape it is of."""
        for number, whole in enumerate(self.whole):
            yield f"parameters.{number}", self.mine[number], whole
            yield f"momentum.{number}", self.momentum[number], whole

    def state(self, mesh: DeviceMesh) -> dict[str, Any]:
        """What a checkpoint has of it, in the tensors that it trains with."""
        import torch
        from torch.distributed.tensor import DTensor, Shard

        state: dict[str, Any] = {
            name: DTensor.from_local(
                shard, mesh, [Shard(0)], run_check=False, shape=like.shape, stride=like.stride()
            )
            for name, shard, like in self.named()
        }
        return {**state, "step": torch.tensor([self.step])}

    def digests(self) -> dict[str, str]:
        """sha256 of every tensor, whole, and of the step. Collective."""
        wholes = ((name, self._gathered(shard, like)) for name, shard, like in self.named())
        digests = {name: training.digest([whole]) for name, whole in wholes}
        return {**digests, "step": str(self.step)}


def _momentum() -> float:
    from validation.payloads.reference import MOMENTUM

    return MOMENTUM


def _rows(whole: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """A rank's shard, as DTensor's Shard(0) cuts it: the last ones are shorter, or empty."""
    count = math.ceil(len(whole) / ranks)
    return whole[rank * count : (rank + 1) * count]


# --- the two jobs -------------------------------------------------------------------------------


def write(config: Config, group: Group) -> dict[str, Any]:
    """The first job, up to the moment at which it is killed. Collective."""
    folder = _folder(config, group)
    expected = train_reference(config, group)
    references = sorted(set(group.gather(expected.digest)))
    running = Training(config, group.device, group)
    size = sum(2 * value.nbytes for value in running.whole)
    free = _make(folder, size, group)
    try:
        record = Record()
        running.train(config.kept - 1, record)
        before, _ = save(running, folder, group)
        running.train(config.kept, record)
        own, seconds = save(running, folder, group, before)
        written = [files.File(**item) for item in _flat(group.gather([asdict(f) for f in own]))]
        manifest = files.Manifest(
            config.stamp,
            running.step,
            group.size,
            running.digests(),
            tuple(references),
            tuple(written),
        )
        if group.rank == 0:
            files.write_manifest(folder, manifest)
        return {
            **_compared(config, group, record, expected, 0),
            "references_before": [],
            "folder": str(folder),
            "free_bytes": free,
            "files": [asdict(file) for file in written],
            "save_s": max(group.gather(seconds)),
            "transport": group.transport(),
        }
    except BaseException:
        if group.rank == 0:
            files.remove(folder)
        raise


def resume(config: Config, group: Group) -> dict[str, Any]:
    """The second job. Collective. What was written is removed, whatever comes of it."""
    folder = _folder(config, group)
    try:
        group.watch.doing("looking at the checkpoint")
        manifest, missing = _manifest(config, folder, group)
        if manifest is None:
            return {"missing": missing, "transport": group.transport()}
        problems = look(folder, manifest, group)
        expected = train_reference(config, group)
        running, record = Training(config, group.device, group), Record()
        seconds, wrong = 0.0, []
        if not problems:
            seconds = load(running, folder, group)
            found = running.digests()
            wrong = sorted(
                name for name in manifest.state if found.get(name) != manifest.state[name]
            )
            running.train(config.steps, record)
        return {
            **_compared(config, group, record, expected, manifest.step),
            "references_before": list(manifest.references),
            "missing": [],
            "folder": str(folder),
            "step": manifest.step,
            "written_by": manifest.ranks,
            "problems": problems[:SHOWN],
            "problems_in_all": len(problems),
            "files_checked": len(manifest.files),
            "bytes": sum(file.bytes for file in manifest.files),
            "wrong_state": wrong[:SHOWN],
            "load_s": max(group.gather(seconds)),
            "transport": group.transport(),
        }
    finally:
        if group.rank == 0:
            files.remove(folder)


@dataclass(frozen=True)
class Expected:
    """The training of one process that was never interrupted.

    losses   before each step
    kept     the parameters at the step after which the other is killed
    end      after the last step
    digest   of the losses and of the end
    """

    losses: list[float]
    kept: list[torch.Tensor]
    end: list[torch.Tensor]
    digest: str


def train_reference(config: Config, group: Group) -> Expected:
    """On this rank's device, without the group."""
    import torch

    group.watch.doing("training the reference")
    alone, record = Training(config, group.device, None), Record()
    alone.train(config.kept, record)
    kept = record.parameters
    alone.train(config.steps, record)
    losses = torch.tensor(record.losses, dtype=torch.float64)
    return Expected(
        record.losses, kept, record.parameters, training.digest([losses, *record.parameters])
    )


def _compared(
    config: Config, group: Group, record: Record, expected: Expected, first: int
) -> dict[str, Any]:
    """How far a part of the training is from the reference of every rank. Collective.

    first   the step at which the part begins
    """
    from validation.payloads.reference import difference, initial, movement

    group.watch.doing("comparing")
    origin = initial(config.seed, config.width, config.depth)
    last = first + len(record.losses)
    wanted = expected.end if last == config.steps else expected.kept
    mine = {
        "rank": group.rank,
        "reference": expected.digest,
        "equal": bool(record.losses)
        and record.losses == expected.losses[first:last]
        and training.digest(record.parameters) == training.digest(wanted),
        "difference": difference(record.parameters, wanted, origin) if record.losses else None,
        "movement": movement(expected.end, origin),
    }
    return {
        "steps": config.steps,
        "first": first,
        "losses": record.losses,
        "reference": expected.losses[first:last],
        "range": max(expected.losses) - min(expected.losses),
        "ranks": group.gather(mine),
        "parameters": sum(value.numel() for value in origin),
    }


def _folder(config: Config, group: Group) -> Path:
    """Where all ranks have the checkpoint. Collective. Raises CannotRun where one cannot write."""
    group.watch.doing(f"looking at {config.filesystem}")
    try:
        folder, sentence = str(files.run_folder(config.filesystem, config.stamp)), ""
    except CannotRun as error:
        folder, sentence = "", str(error)
    _agree(group, sentence)
    folders = group.gather(folder)
    _agree(group, "" if folder == folders[0] else f"{folder} is not {folders[0]}")
    return Path(folder)


def _agree(group: Group, sentence: str) -> None:
    """Raises CannotRun on every rank where one has something to complain of. Collective.

    Nobody is at fault for what all complain of.
    """
    everyones = group.gather([group.itself.host, sentence])
    if said := [(host, text) for host, text in everyones if text]:
        hosts = list(dict.fromkeys(host for host, _ in said))
        raise CannotRun(said[0][1], hosts if len(said) < len(everyones) else ())


def _manifest(
    config: Config, folder: Path, group: Group
) -> tuple[files.Manifest | None, list[dict[str, str]]]:
    """The manifest that all ranks read, or what the ranks say that do not. Collective."""
    manifest, sentence = None, ""
    try:
        manifest = files.read_manifest(folder, config.stamp)
    except CannotRun as error:
        sentence = str(error)
    everyones = group.gather({"host": group.itself.host, "sentence": sentence})
    missing = [said for said in everyones if said["sentence"]]
    return (None if missing else manifest), missing


def _make(folder: Path, size: int, group: Group) -> int:
    """The folder, seen by all ranks; the bytes that are free. Collective."""
    group.watch.doing("making the folder of the checkpoint")
    free, sentence = 0, ""
    if group.rank == 0:
        try:
            free = files.make(folder, _ROOM * size)
        except CannotRun as error:
            sentence = str(error)
    if sentence := group.gather(sentence)[0]:
        raise CannotRun(sentence, ())
    first = group.gather(group.itself.host)[0]
    blind = (
        ""
        if files.seen(folder / files.MARK)
        else (
            f"{group.itself.host} does not see what {first} made in {folder}: it is not the same "
            "filesystem"
        )
    )
    try:
        _agree(group, blind)
    except CannotRun:
        if group.rank == 0:
            files.remove(folder)
        raise
    return group.gather(free)[0]


def save(
    running: Training, folder: Path, group: Group, before: Sequence[files.File] = ()
) -> tuple[list[files.File], float]:
    """Writes the checkpoint; this rank's files, and the seconds. Collective."""
    from torch.distributed.device_mesh import init_device_mesh

    group.watch.doing(f"writing the checkpoint of step {running.step}")
    mesh = init_device_mesh(group.device.type, (group.size,))
    dcp = _dcp()
    start = group.clock()
    dcp.save(running.state(mesh), storage_writer=dcp.FileSystemWriter(str(folder), overwrite=True))
    seconds = group.clock() - start
    return files.written(folder, group.rank, group.itself.host, before), seconds


def load(running: Training, folder: Path, group: Group) -> float:
    """Reads the checkpoint into the training; the seconds. Collective."""
    from torch.distributed.device_mesh import init_device_mesh

    group.watch.doing("loading the checkpoint")
    mesh = init_device_mesh(group.device.type, (group.size,))
    dcp = _dcp()
    state = running.state(mesh)
    start = group.clock()
    dcp.load(state, storage_reader=dcp.FileSystemReader(str(folder)))
    seconds = group.clock() - start
    for name, shard, _ in running.named():
        shard.copy_(state[name].to_local())
    running.step = int(state["step"].item())
    running._gather_parameters()
    return seconds


def look(folder: Path, manifest: files.Manifest, group: Group) -> list[dict[str, Any]]:
    """What is wrong with the files, and who sees it. Collective.

    A file in which somebody sees something wrong is looked at by every rank.
    """
    hosts = group.gather(group.itself.host)
    apart = hosts.count(hosts[0]) % group.size  # the same place on the next node
    mine = files.shares(len(manifest.files), group.rank, group.size, apart)
    check = partial(_problem, folder, manifest)
    suspicious = sorted(
        {index for found in group.gather([i for i in mine if check(i)]) for index in found}
    )
    problems = []
    for index in suspicious[:SHOWN]:
        said = group.gather(check(index))
        seen_by = sorted({host for host, text in zip(hosts, said, strict=True) if text})
        if not seen_by:  # it came right meanwhile, and it must not have been wrong
            seen_by, said = hosts, ["is not the same each time that it is read"]
        file = manifest.files[index]
        problems.append(
            {
                "rank": file.rank,
                "host": file.host,
                "file": file.name,
                "problem": next(filter(None, said)),
                "seen_by": seen_by,
            }
        )
    return problems + [{}] * max(0, len(suspicious) - SHOWN)


def _problem(folder: Path, manifest: files.Manifest, index: int) -> str:
    return files.problem(folder, manifest.files[index], manifest.files)


def _flat(lists: Sequence[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    return [item for items in lists for item in items]


def _dcp() -> Any:
    """torch.distributed.checkpoint, also where numpy is missing.

    torch needs it to tell other ranks of objects, and for no more than to make bytes of a tensor
    (`_tensor_to_object`, 2.6 to 2.13).
    """
    try:
        import numpy  # noqa: F401 - whether it is there
    except ImportError:
        distributed: Any = importlib.import_module("torch.distributed.distributed_c10d")

        def to_object(tensor: torch.Tensor, size: int, _group: object) -> Any:
            return pickle.loads(bytes(tensor.cpu().tolist()[: int(size)]))

        distributed._tensor_to_object = to_object
    return importlib.import_module("torch.distributed.checkpoint")  # mypy knows no names there
