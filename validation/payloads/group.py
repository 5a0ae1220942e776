"""The process group: all ranks of the job, the device of this one, and the proof of who took part.

torch is imported where it is used, so that reading a configuration or reporting on a node needs
none. What the ranks tell each other travels as JSON in tensors rather than with
`all_gather_object`, which needs numpy to unpickle (`_tensor_to_object`, torch 2.6 to 2.13).
"""

from __future__ import annotations

import ipaddress
import json
import os
import platform
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cluster.errors import CannotRun
from cluster.text import first_line
from validation.payloads import container, flight_recorder, nccl_debug, nccl_error
from validation.payloads.config import GroupConfig
from validation.payloads.meeting import TICK_S, connect, meet
from validation.payloads.rendezvous import Rendezvous, from_slurm, node_name, steering
from validation.payloads.watch import Watch, mark

if TYPE_CHECKING:
    import torch

Json = TypeVar("Json")

# Torch's own time limit comes so much later than ours, which knows who is silent.
GRACE_S = 60.0
PAUSE_S = 0.2  # between two looks whether a rank of the same node is ready


@dataclass(frozen=True)
class Rank:
    """One rank as it described itself; gpu, gpu_uuid and nccl are None on a CPU."""

    rank: int
    local_rank: int
    host: str
    device: str
    gpu: str | None
    gpu_uuid: str | None
    torch: str
    nccl: str | None
    container: str | None


@dataclass(frozen=True)
class Group:
    """The ranks that met, seen from one of them."""

    rank: int
    size: int
    backend: str
    device: torch.device
    itself: Rank
    watch: Watch
    environment: Mapping[str, str]  # what steers the communication, as it came
    nccl_log: Path | None  # this rank's; None without NCCL
    store: Any  # torch's, which rank 0 serves
    worked: list[tuple[float, float]] = field(default_factory=list)  # see at_work

    def gather(self, value: Json) -> list[Json]:
        """Every rank's value, in rank order, on every rank. The value must survive JSON."""
        import torch

        text = json.dumps(value).encode()
        lengths = self._all_gather(torch.tensor([len(text)], device=self.device))
        padded = text.ljust(max(int(length) for length in lengths))  # JSON ignores the spaces
        texts = self._all_gather(torch.tensor(list(padded), dtype=torch.uint8, device=self.device))
        return [json.loads(bytes(item.tolist())) for item in texts]

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        """The largest value over all ranks, place by place."""
        return [max(place) for place in zip(*self.gather(list(seconds)), strict=True)]

    def on_each_node(self, what: str, work: Callable[[], Json]) -> list[Json | None]:
        """What the first rank of each node came to, in rank order, None for the other ranks. These
        wait without the GPU: a collective that waits for its peers would keep it busy.

        Collective. `what` is a word of its own; `work` must not raise.
        """
        self.clock()
        mine = None
        key = f"{what}/{self.itself.host}"
        if self.itself.local_rank == 0:
            mine = work()
            self.store.set(key, "")
        while not self.store.check([key]):
            time.sleep(PAUSE_S)
        return self.gather(mine)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """What the ranks do together within is what their boards are looked at for (boards):
        `worked` gets when it began and ended, by time.monotonic().
        """
        began = time.monotonic()
        try:
            yield
        finally:
            self.worked.append((began, time.monotonic()))

    def clock(self) -> float:
        """Seconds on this rank's clock, once its device has done all its work."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def proof(self) -> dict[str, Any]:
        """What really ran: every rank's own description, gathered through the group itself."""
        return {
            "world_size": self.size,
            "backend": self.backend,
            "torch": self.itself.torch,
            "nccl": self.itself.nccl,
            "python": platform.python_version(),
            "ranks": self.gather(asdict(self.itself)),
            "environment": dict(self.environment),
        }

    def part(self) -> None:
        """Returns once no rank needs another any more: each may now end at any moment. Collective.

        The last step goes through the store alone, and rank 0, which serves it, returns last.
        """
        self.watch.doing("parting")
        self._count("done")
        self.store.add("parted", 1)
        if self.rank == 0:
            self._count("parted", 0)

    def _count(self, name: str, mine: int = 1) -> None:
        """Waits until every rank has counted itself."""
        self.store.add(name, mine)
        while self.store.add(name, 0) < self.size:
            time.sleep(TICK_S)

    def transport(self) -> list[dict[str, Any]] | None:
        """What every rank's NCCL says of the way it took (nccl_log.Summary); None without NCCL.

        Collective, and the last thing of a payload: channels connect when they are first used.
        """
        return None if self.nccl_log is None else self.gather(nccl_debug.summary(self.nccl_log))

    def _all_gather(self, mine: torch.Tensor) -> list[torch.Tensor]:
        import torch
        import torch.distributed as dist

        everyones = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(everyones, mine)
        return [tensor.cpu() for tensor in everyones]


@contextmanager
def joined(config: GroupConfig, environ: Mapping[str, str]) -> Iterator[Group]:
    """The process group for the time of a `with` block.

    Raises CannotRun when Slurm's variables, torch, the device or a usable address is missing, when
    not all ranks arrive in time, when a rank got too few CPUs, and when an exchange inside the
    block fails. After an error the group is left as it is: destroying a broken one can block, and
    the process ends anyway.
    """
    rendezvous = from_slurm(environ)
    host = node_name(environ)
    environment = steering(environ)
    log = None
    if config.backend == "nccl":
        log = nccl_debug.request(os.environ, diagnosed=config.diagnosed)
    with _blamed_on(host):
        dist = _distributed(config.backend)
        if config.backend == "nccl":
            flight_recorder.request(os.environ, _torch_release())
        device = _device(config.backend, rendezvous.local_rank)
        if config.backend == "gloo" and len(rendezvous.nodes) > 1:
            _require_reachable_address(environ)
        _make_repeatable(device)
    mark("joining", rendezvous.rank, host)
    store, hosts = meet(config, rendezvous, host)
    watch = Watch(
        lambda: connect(rendezvous, config.join_timeout_s),
        (rendezvous.master_addr, rendezvous.master_port),
        rendezvous.rank,
        hosts,
        config.timeout_s,
        log,
    )
    try:
        mark("connecting", rendezvous.rank, host)
        watch.doing("connecting")
        _connect_all(dist, config, rendezvous, device, store)
        group = Group(
            rank=rendezvous.rank,
            size=rendezvous.world_size,
            backend=config.backend,
            device=device,
            itself=_describe(rendezvous, device, environ),
            watch=watch,
            environment=environment,
            nccl_log=log,
            store=store,
        )
        if config.cpus_per_rank is not None:
            _require_cpus(group, config.cpus_per_rank)
        mark("measuring", group.rank, host)
        yield group
        watch.doing("leaving")
        dist.barrier()  # rank 0 serves the rendezvous; it must not leave first
    except RuntimeError as error:
        raise watch.explain(first_line(error), nccl_error.cause(str(error))) from error
    watch.stop()
    # Gloo's part of the group is left to the end of the process: with torch 2.6 destroying it hangs
    # now and then on one rank, after all work is done (seen on two nodes of the virtual cluster).
    if config.backend == "nccl":
        dist.destroy_process_group()
    mark("done", group.rank, host)


@contextmanager
def _blamed_on(host: str) -> Iterator[None]:
    """What goes wrong before anybody else is asked is this node's fault."""
    try:
        yield
    except CannotRun as error:
        raise CannotRun(str(error), (host,)) from error


def release(version: str) -> tuple[int, int, int]:
    """The numbers of a torch version: "2.6.0+debian" is (2, 6, 0)."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if not match:
        raise CannotRun(f"torch calls its version {version!r}, which is no version")
    major, minor, patch = match.groups()
    return int(major), int(minor), int(patch)


def gpu_uuid(reported: str, visible: str | None, index: int) -> str:
    """A GPU's UUID as nvidia-smi writes it.

    CUDA reports it without the prefix. A MIG instance is known by its own UUID, which Slurm put
    into CUDA_VISIBLE_DEVICES.
    """
    entries = (visible or "").split(",")
    if index < len(entries) and entries[index].startswith("MIG-"):
        return entries[index]
    return reported if reported.startswith("GPU-") else f"GPU-{reported}"


def _distributed(backend: str) -> Any:
    """torch.distributed, when it is there and was built with the backend."""
    try:
        import torch.distributed as dist
    except ImportError as error:
        raise CannotRun(f"torch cannot be imported: {error}") from error
    # without torch.distributed the questions about its backends do not exist
    if not dist.is_available() or not getattr(dist, f"is_{backend}_available")():
        raise CannotRun(f"the backend is {backend}, but this torch was built without it")
    return dist


def _device(backend: str, local_rank: int) -> torch.device:
    import torch

    if backend == "gloo":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        reason = _why_not()
        raise CannotRun(f"the backend is nccl, but torch finds no CUDA device{reason}")
    count = torch.cuda.device_count()
    # with --gpus-per-task Slurm shows each task its own GPU only, and that one is number 0
    index = 0 if count == 1 else local_rank
    if index >= count:
        raise CannotRun(f"local rank {local_rank} has no GPU: torch finds {count}")
    return torch.device("cuda", index)


def _why_not() -> str:
    """What torch says when CUDA is started, after a colon: whether there is a device it is asked
    without a reason.
    """
    import torch

    start: Any = torch.cuda.init  # carries no annotations
    try:
        start()
    except (AssertionError, RuntimeError) as error:
        return f": {first_line(error)}"
    return ""


def _require_reachable_address(environ: Mapping[str, str]) -> None:
    """Refuses an address that other nodes cannot reach, instead of waiting for them in vain.

    Without GLOO_SOCKET_IFNAME, Gloo announces the first address of the host's own name that it can
    bind to, and loopback where there is none. On Debian that name often stands beside 127.0.1.1 in
    /etc/hosts.
    """
    if environ.get("GLOO_SOCKET_IFNAME"):
        return
    hostname = socket.gethostname()
    address = _first_own_address(hostname)
    if address is None or ipaddress.ip_address(address).is_loopback:
        raise CannotRun(
            f"the host name {hostname} leads to {address or 'no address of this node'}, where other"
            " nodes cannot reach Gloo: mend the name's address, or set GLOO_SOCKET_IFNAME"
        )


def _first_own_address(hostname: str) -> str | None:
    try:
        addresses = socket.getaddrinfo(hostname, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, kind, protocol, _, address in addresses:
        try:
            with socket.socket(family, kind, protocol) as attempt:
                attempt.bind(address)
        except OSError:
            continue
        return str(address[0]).partition("%")[0]  # without the zone of a link-local address
    return None


def _make_repeatable(device: torch.device) -> None:
    """Settings under which the same numbers come out on every rank.

    Plain float32, because TF32 would blur the comparison with the reference. On the CPU one thread
    per rank: sums then do not depend on a node's number of cores, and the ranks of one node do not
    fight for them; the models are too small to gain from more.
    """
    import torch

    torch.set_float32_matmul_precision("highest")
    torch.set_num_threads(1)
    if device.type == "cuda":
        torch.cuda.set_device(device)


def _connect_all(
    dist: Any, config: GroupConfig, rendezvous: Rendezvous, device: torch.device, store: Any
) -> None:
    import torch

    # This module's functions have the default group as a default argument. Imported later, by
    # torch.optim for one, it would keep the group alive beyond its end, and the group's threads
    # abort the process now and then when Python goes away under them (seen with 2.6 and 2.13).
    import torch.distributed.nn.functional

    options: dict[str, Any] = {}
    # device_id lets NCCL connect at once, but hangs in torch before 2.7.1 (pytorch#153960)
    if config.backend == "nccl" and release(torch.__version__) >= (2, 7, 1):
        options["device_id"] = device
    dist.init_process_group(
        config.backend,
        store=store,
        rank=rendezvous.rank,
        world_size=rendezvous.world_size,
        timeout=timedelta(seconds=config.timeout_s + GRACE_S),
        **options,
    )
    # all ranks connect here: NCCL would otherwise do so within whatever is timed first, and
    # point-to-point messages alone must not be the first thing a group does
    dist.barrier()


def _require_cpus(group: Group, per_rank: int) -> None:
    """Refuses fewer CPUs than each rank was to get; the ranks of a node may share them."""
    allowed: dict[str, list[list[int]]] = {}
    everyones = group.gather(sorted(os.sched_getaffinity(0)))
    for host, cpus in zip(group.gather(group.itself.host), everyones, strict=True):
        allowed.setdefault(host, []).append(cpus)
    together = {host: len(set().union(*sets)) for host, sets in allowed.items()}
    few = [host for host, sets in allowed.items() if together[host] < per_rank * len(sets)]
    if few:
        raise CannotRun(
            f"{len(allowed[few[0]])} ranks on {few[0]} may use {together[few[0]]} CPUs together, "
            f"{per_rank} for each were asked for",
            few,
        )


def _describe(rendezvous: Rendezvous, device: torch.device, environ: Mapping[str, str]) -> Rank:
    import torch

    gpu = uuid = nccl = None
    if device.type == "cuda":
        nccl = _nccl_version()
        properties = torch.cuda.get_device_properties(device)
        visible = environ.get("CUDA_VISIBLE_DEVICES")
        gpu = str(properties.name)
        uuid = gpu_uuid(str(properties.uuid), visible, device.index)
    return Rank(
        rank=rendezvous.rank,
        local_rank=rendezvous.local_rank,
        host=node_name(environ),
        device=str(device),
        gpu=gpu,
        gpu_uuid=uuid,
        torch=str(torch.__version__),
        nccl=nccl,
        container=container.system(),
    )


def _torch_release() -> tuple[int, int, int] | None:
    import torch

    with suppress(CannotRun):
        return release(torch.__version__)
    return None


def _nccl_version() -> str:
    import torch

    nccl: Any = torch.cuda.nccl  # carries no annotations
    return ".".join(str(number) for number in nccl.version())
