"""Simulated runs by the thousand: faults drawn at random, and healthy runs with a site's habits.

A run of a seed is always the same. What is drawn: how many nodes of which hardware, what is wrong
(in Slurm's answers, in a node's own answer, in a job of all nodes, on the login node), and how it
shows (exit codes, documents cut, doubled, altered or replayed, times, silence). A faulty run must
not end green, and may call only nodes `failing` that the fault was put into. A healthy run, with
banners, slow answers, busy neighbours and requeues, must end green with every node passing.

The whole of validation.tiers, the checks and the model runs; only the login node is made up.
"""

from __future__ import annotations

import dataclasses
import json
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.errors import PlumblineError
from cluster.slurm.node_states import NodeState
from validation import suites, tiers
from validation.errors import TransportError, Unreachable
from validation.model import (
    Accounting,
    Contact,
    Job,
    MungeReply,
    Outcome,
    Reply,
    Standing,
    Start,
    Tier,
    Verdict,
    node_reports,
    overall,
    settle,
)
from validation.payloads.collectives import OPERATIONS
from validation.plan import Plan, Selection
from validation.slurm import launcher
from validation.slurm.client import JobProgress, Progress, SlurmDown
from validation.tests import standin, standin_nodes
from validation.tests.conftest import make_plan
from validation.tests.judging import assert_advised, put

Change = Callable[[Reply, Job], Reply]
Place = tuple[str | int, ...]


@dataclass
class World:
    """A cluster of a seed: what Slurm says, and what becomes of each job's healthy answer."""

    plan: Plan
    random: random.Random
    states: dict[str, NodeState]
    changes: dict[str, list[Change]] = field(default_factory=dict)  # by job name
    between: Change | None = None  # of what nodes do together, in whatever job
    silent: set[str] = field(default_factory=set)
    contact: Contact = field(default_factory=Contact)  # what is heard of the nodes' slurmd
    poll_errors: int = 0
    quiet_polls: int = 0
    lost: str = ""
    start_error: str = ""
    down: Exception | None = None

    def change(self, job: str, what: Change) -> None:
        self.changes.setdefault(job, []).append(what)


@dataclass(frozen=True)
class SimulatedRun:
    """What a simulated run came to."""

    seed: int
    fault: str
    bad: frozenset[str]
    verdict: Verdict | None  # None: exit 2, nothing was judged
    standings: Mapping[str, Standing]
    why: tuple[str, ...]

    def names(self, standing: Standing) -> set[str]:
        return {name for name, own in self.standings.items() if own is standing}

    @property
    def false_green(self) -> bool:
        return self.verdict is not None and self.verdict.green

    @property
    def unfair(self) -> set[str]:
        return self.names(Standing.FAILING) - self.bad

    @property
    def false_red(self) -> bool:
        return not self.false_green or self.names(Standing.PASSING) != set(self.standings)


# --- the cluster -----------------------------------------------------------------------------


HARDWARE = (("virtual", 2), ("virtual", 4), ("none", 0), ("h100_sxm", 8))
FABRIC = "ib_ndr400"


def world(seed: int) -> World:
    draw = random.Random(seed)
    model, count = draw.choice(HARDWARE)
    real = model == "h100_sxm"
    size = draw.randint(1, 3) if real else draw.randint(2, 6)
    fabric = (FABRIC,) if real and size > 1 else ()
    nodes = [(f"gpu{number}", model, count, *fabric) for number in range(1, size + 1)]
    suite = suites.load("network") if size > 2 and draw.random() < 0.15 else whole_suite(draw)
    plan = make_plan(*nodes, selection=Selection(), suite=suite, shared=("/scratch",))
    if real:
        plan = with_a_bandwidth(plan, model)
    states = {
        node.name: NodeState(node.name, "idle", node.cpus, node.memory_mb, node.gpus.request)
        for node in plan.nodes
    }
    return World(plan, draw, states)


def whole_suite(draw: random.Random) -> suites.Suite:
    """`quick`, the collectives of `network`, and one more training of the suite `training`."""
    quick, network, training = (suites.load(name) for name in ("quick", "network", "training"))
    check = draw.choice([name for name in training.checks if name not in quick.checks])
    # What is resumed was written before.
    trained = ("checkpoint", "resume") if check in ("checkpoint", "resume") else (check,)
    more = {name: training.cluster[name] for name in trained}
    more["collectives"] = network.cluster["collectives"]
    return dataclasses.replace(
        quick, checks=(*quick.checks, *more), cluster={**quick.cluster, **more}
    )


def with_a_bandwidth(plan: Plan, model: str) -> Plan:
    """The plan, with what a site of such nodes has recorded."""
    rules = plan.rules[model]
    assert rules.model is not None
    inside = rules.model.collectives[0]
    recorded = [
        dataclasses.replace(inside, operation=operation, nodes=nodes, links=None, fabric=fabric)
        for operation in OPERATIONS
        for nodes, fabric in ((1, None), (None, FABRIC))
    ]
    known = dataclasses.replace(rules.model, collectives=tuple(recorded))
    return dataclasses.replace(
        plan, rules={**plan.rules, model: dataclasses.replace(rules, model=known)}
    )


class Batch:
    def __init__(self, slurm: Slurm, jobs: list[Job]) -> None:
        self.slurm, self.jobs, self.polls = slurm, jobs, 0

    def start(self) -> None:
        if self.slurm.world.start_error:
            raise TransportError(self.slurm.world.start_error)

    def poll(self) -> Progress:
        world, self.polls = self.slurm.world, self.polls + 1
        if world.poll_errors:
            world.poll_errors -= 1
            raise Unreachable("login1 is unreachable")
        rows = tuple(JobProgress(job.name, "running", "7", 1.0, "") for job in self.jobs)
        if self.polls <= world.quiet_polls:
            return Progress(False, rows, ())
        replies = [reply for job in self.jobs if (reply := self.slurm.reply(job))]
        world.random.shuffle(replies)
        return Progress(not world.lost, rows, tuple(replies), world.lost)

    def cancel(self) -> Progress:
        return Progress(True, (), ())

    def close(self) -> None:
        pass


class Slurm:
    via = "simulated"
    notes = ()

    def __init__(self, world: World) -> None:
        self.world = world

    def node_states(self) -> tuple[str, Mapping[str, NodeState]]:
        if self.world.down:
            raise self.world.down
        return "24.11.5", self.world.states

    def contact(self, names: Any) -> Contact:
        return self.world.contact

    def accounting(self) -> Accounting:
        return Accounting("accounting_storage/slurmdbd")

    def knows_containers(self) -> bool:
        return False

    def prepare(
        self, lanes: Any, at_once: int, shared: Any = (), slowest_start_s: Any = None
    ) -> Batch:
        return Batch(self, [job for lane in lanes for job in lane])

    def reply(self, job: Job) -> Reply | None:
        """None: the job never answers."""
        if job.name in self.world.silent:
            return None
        reply = healthy(job)
        for change in self.world.changes.get(job.name, []):
            reply = change(reply, job)
        if self.world.between and len(job.hosts) > 1:
            reply = self.world.between(reply, job)
        return reply


class Silent:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def healthy(job: Job) -> Reply:
    """What a job of this plan answers where nothing is wrong."""
    first = job.nodes[0]
    if job.payload == "node":
        names = (standin.GPU,) * first.gpus.count if first.gpus.real else ()
        document = standin.node(
            first.name,
            dict(job.config) | {"munge_credential": "x"},
            gpus=first.gpus.count,
            names=names,
        )
    elif job.payload == "cuda":
        document = standin.cuda(first.name, job.config)
    elif job.payload in ("all_reduce", "pairs", "collectives"):
        speed = 470.0 if job.backend == "nccl" else 1.2
        answer = getattr(standin, job.payload)
        document = answer(
            job.hosts, job.config, job.ranks_per_node, busbw_gbs=speed, fabric=first.fabric
        )
    elif job.tier is Tier.NODE:
        document = standin_nodes.document(job)
    else:
        training = getattr(standin, job.payload)
        document = training(job.hosts, job.config, job.ranks_per_node, fabric=first.fabric)
    text = standin.line(document)
    if job.tier is Tier.NODE:  # stand-ins name the GPUs as if the node were gpu1
        text = text.replace("GPU-gpu1-", f"GPU-{first.name}-")
    now = document["measured"].get("time_ns", 1_000)
    starts = tuple(Start(host, now, now) for host in job.hosts)
    return Reply(
        job.name,
        Outcome.EXITED,
        0,
        "7",
        text,
        document_ns=now,
        submitted_ns=now,
        started_ns=now,
        ended_ns=now,
        starts=starts,
        munge=MungeReply(None, 0, "Success (0)"),
    )


# --- faults ------------------------------------------------------------------------------------


def altered(change: Callable[[dict[str, Any]], None]) -> Change:
    """The answer with its document changed."""

    def apply(reply: Reply, job: Job) -> Reply:
        lines = reply.stdout.splitlines(keepends=True)
        for number, line in enumerate(lines):
            if line.startswith('{"plumbline"'):
                document = json.loads(line)
                change(document)
                lines[number] = standin.line(document)
        return dataclasses.replace(reply, stdout="".join(lines))

    return apply


def replaced(**fields: Any) -> Change:
    return lambda reply, job: dataclasses.replace(reply, **fields)


def never_ran(outcome: Outcome, **fields: Any) -> Change:
    nothing: dict[str, Any] = {"exit_code": None, "stdout": "", "starts": (), "started_ns": None}
    return replaced(outcome=outcome, **(nothing | fields))


def measured(**values: Any) -> Change:
    return altered(lambda document: document["measured"].update(values))


def changed_to(**values: Any) -> Change:
    return altered(lambda document: document.update(values))


def at(*path: str | int, value: object) -> Change:
    """The answer with this value at a place below `measured`."""
    return altered(lambda document: put(document["measured"], path, value))


ERRORS = (
    "plumbline: torch cannot be imported: libcudart.so.12: cannot open shared object file",
    "slurmstepd: error: execve(): /opt/plumbline/bin/python: No such file or directory",
    "Segmentation fault (core dumped)",
    "",
)


def job_faults(draw: random.Random) -> list[tuple[str, Change]]:
    """How any job of its own accord goes wrong, and leaves no usable answer."""
    text = draw.choice(ERRORS)

    def cut(reply: Reply, job: Job) -> Reply:
        end = draw.randint(20, len(reply.stdout) - 3)
        return dataclasses.replace(reply, stdout=reply.stdout[:end])

    return [
        ("exit status", replaced(exit_code=draw.choice((1, 2, 134, 137, 139, 143)), stderr=text)),
        ("answer and bad status", replaced(exit_code=1)),
        ("no answer", replaced(stdout=draw.choice(("", "Welcome to the cluster\n")))),
        ("two answers", lambda reply, job: dataclasses.replace(reply, stdout=reply.stdout * 2)),
        ("answer cut off", cut),
        ("too much output", replaced(truncated=True)),
        ("did not end", replaced(outcome=Outcome.RUN_LIMIT, exit_code=None, stdout="")),
        ("another payload", changed_to(payload="other")),
        ("another schema", altered(lambda d: d.update(plumbline=draw.choice((0, 2, -1))))),
        ("another run's answer", changed_to(nonce="of-yesterday")),
        ("no nonce", altered(lambda document: document.pop("nonce"))),
    ]


def node_faults(draw: random.Random, name: str, world: World) -> list[tuple[str, str, Change]]:
    """What is wrong with one node, as its own job tells it: (fault, job, change)."""
    node = next(node for node in world.plan.nodes if node.name == name)
    job = f"node-{name}"
    count = node.gpus.count
    changes = [
        ("fewer CPUs", measured(cpus=node.cpus - 1)),
        ("negative CPUs", measured(cpus=-node.cpus)),
        ("CPUs as text", measured(cpus=str(node.cpus))),
        ("less memory", measured(memory_mb=node.memory_mb - draw.randint(1, 1000))),
        ("another number of devices", measured(gpu_device_nodes=count + draw.choice((1, 3)))),
        ("munge refused", measured(munge_decoded="Invalid credential (5)")),
        ("munge dead", measured(munge_encoded=None, munge_encode_error="no socket")),
        ("login refuses its credential", replaced(munge=MungeReply(None, 5, "Invalid credential"))),
        ("unmunge fails", replaced(munge=MungeReply(None, 1, "Success (0)"))),
        ("another host answers", altered(lambda document: document["proof"].update(host="gpu99"))),
        ("another host name", measured(hostname="mail7")),
        ("not a number", measured(memory_mb="nan")),
        *absurd(draw, "cpus", "cpus_allowed", "memory_mb", "time_ns"),
    ]
    if node.gpus.real:
        changes += [
            ("a GPU fell off", altered(lambda document: document["measured"]["gpus"].pop())),
            ("another model", at("gpus", 0, "name", value="NVIDIA T4")),
            ("one GPU twice", altered(_one_gpu_twice)),
            ("a GPU of its own, and then another", at("gpus", -1, "uuid", value="GPU-former")),
        ]
    if len(world.plan.nodes) > 1:
        changes += [
            (
                "a wrong address of another",
                at("network", "ways", 0, "addresses", value="192.0.2.250"),
            ),
            (
                "no address of another",
                at("network", "ways", 0, value=standin.way("gpu1", addresses="")),
            ),
            ("an absurd MTU", at("network", "ways", 0, "mtu", value=10**400)),
        ]
    if len(world.plan.nodes) > 2:  # of two nobody can say whose clock is right, or whose packets
        changes.append(("no large packet leaves it", altered(_small_packets_only)))
        changes.append(("a clock apart", _clock(draw.choice((-1, 1)) * draw.uniform(1.5, 900))))
    faults = [(what, job, change) for what, change in changes + job_faults(draw)]
    if node.gpus.real:
        silent = at("gpus", 0, "start", value=None)
        dead = at("gpus", 0, "start", value={"error": "Error 802"})
        of_cuda = [("a GPU says nothing", silent), ("CUDA does not start", dead), *job_faults(draw)]
        faults += [(f"{what}, cuda", f"cuda-{name}", change) for what, change in of_cuda]
    return faults


def absurd(draw: random.Random, *names: str) -> list[tuple[str, Change]]:
    """Numbers that nothing counts: JSON has them, and arithmetic breaks on them."""
    number = draw.choice((10**400, -(10**400), 2**80, 1e308, -1e308))
    return [(f"an absurd {name}", at(name, value=number)) for name in names]


def _one_gpu_twice(document: dict[str, Any]) -> None:
    first, second, *_ = document["measured"]["gpus"]
    first["uuid"] = second["uuid"]


def _small_packets_only(document: dict[str, Any]) -> None:
    for way in document["measured"]["network"]["ways"]:
        way["large"] = False


def _clock(seconds: float) -> Change:
    shift = int(seconds * 1e9)

    @altered
    def moved(document: dict[str, Any]) -> None:
        document["measured"]["time_ns"] += shift

    def apply(reply: Reply, job: Job) -> Reply:
        starts = tuple(
            dataclasses.replace(start, node_ns=start.node_ns + shift) for start in reply.starts
        )
        return dataclasses.replace(moved(reply, job), starts=starts)

    return apply


def slurm_faults(
    draw: random.Random, name: str, world: World
) -> list[tuple[str, NodeState | None]]:
    state = world.states[name]
    changed = dataclasses.replace
    return [
        ("down", changed(state, state=draw.choice(("down", "down*", "idle*")), reason="no answer")),
        ("drained", changed(state, state=draw.choice(("drained", "drain", "draining")))),
        ("inval", changed(state, state="inval", reason="Low RealMemory")),
        ("failing", changed(state, state=draw.choice(("fail", "failing", "error", "future")))),
        ("fewer CPUs in Slurm", changed(state, cpus=(state.cpus or 2) - 1)),
        ("more CPUs in Slurm", changed(state, cpus=(state.cpus or 2) + 1)),
        ("less memory in Slurm", changed(state, memory_mb=(state.memory_mb or 2) - 1)),
        ("other GPUs in Slurm", changed(state, gres="gpu:7")),
        ("another type in Slurm", changed(state, gres="gpu:other_" + (state.gres[4:] or "x:1"))),
        ("a state of tomorrow", changed(state, state="quantum")),
        ("unknown to Slurm", None),
    ]


def cluster_faults(draw: random.Random, job: Job) -> list[tuple[str, Change, frozenset[str]]]:
    """What goes wrong in a job of all nodes: (fault, change, nodes that may be named)."""
    # Of several nodes nobody can say which; a job of one node alone is that node's.
    nobody = frozenset(job.hosts) if len(job.hosts) == 1 else frozenset()
    its = frozenset(job.hosts[-1:])
    faults = [(what, change, nobody) for what, change in job_faults(draw)]

    def proof(change: Callable[[dict[str, Any]], None]) -> Change:
        return altered(lambda document: change(document["proof"]))

    faults += [
        ("a rank is missing", proof(lambda p: p["ranks"].pop()), nobody),
        ("a rank twice", proof(lambda p: p["ranks"].append(p["ranks"][-1])), nobody),
        ("each alone", proof(lambda p: p.update(world_size=1, ranks=p["ranks"][:1])), nobody),
        ("another backend", proof(lambda p: p.update(backend="mpi")), nobody),
        ("another torch", proof(lambda p: p["ranks"][-1].update(torch="1.0")), nobody),
        ("contained", proof(lambda p: p["ranks"][-1].update(container="x")), its),
        ("strangers", proof(lambda p: p["ranks"][-1].update(host="gpu99")), nobody),
    ]
    if job.payload == "all_reduce":

        def row(index: int, **values: Any) -> Change:
            return altered(lambda d: d["measured"]["sizes"][index].update(values))

        faults += [
            ("too slow", _speed(draw.uniform(1e-6, 0.04)), nobody),
            ("faster than light", _speed(10 ** draw.uniform(4, 12)), nobody),
            ("a claim", row(-1, busbw_gbs=999.0), nobody),
            ("a size is missing", altered(lambda d: d["measured"]["sizes"].pop()), nobody),
            ("sizes in another order", altered(lambda d: d["measured"]["sizes"].reverse()), nobody),
            ("impossible times", row(0, time_s_min=9.0), nobody),
            ("no time at all", row(-1, time_s_min=0.0, time_s_median=0.0), nobody),
            ("fewer elements", row(-1, elements=3), nobody),
        ]
        if job.ranks > 1:  # of one rank alone nothing is communicated
            faults += [
                ("every size but the largest slow", _sizes_slow(("sizes",), 1000), nobody),
                ("one call slow", _call_slow(("sizes",), 1000), nobody),
            ]
        faults += [
            ("not every call checked", row(0, calls_checked=1), nobody),
            ("another dtype", row(0, dtype="float16"), nobody),
            ("wrong everywhere", _wrong(draw, range(job.ranks)), nobody),
        ]
        rank = draw.randrange(job.ranks)
        faults.append(("wrong on one rank", _wrong(draw, [rank]), frozenset({_host(job, rank)})))
        return faults
    own_kinds: dict[str, Callable[[], list[tuple[str, Change, frozenset[str]]]]] = {
        "collectives": lambda: collective_faults(draw, job),
        "schedules": lambda: schedule_faults(draw, job, nobody),
        "scaling": lambda: scaling_faults(job, nobody),
        "inference": lambda: inference_faults(draw, job, nobody),
        "checkpoint": lambda: restart_faults(draw, job, nobody, its),
        "resume": lambda: restart_faults(draw, job, nobody, its),
    }
    if job.payload in own_kinds:
        return faults + own_kinds[job.payload]()
    faults += [
        ("ten thousand times slower", _slower(1e4), nobody),
        ("one step a thousand times slower", at("step_times_s", 2, value=4.0), nobody),
    ]
    values: dict[str, Any] = draw.choice(
        (
            {"steps": 1},
            {"curves": []},
            {"ranks": []},
            {"parameters": 0},
            {"samples_per_s": 0.0},
            {"step_time_s_median": -1.0},
        )
    )
    faults.append((f"training: {values}", measured(**values), nobody))
    faults += [
        ("an absurd reference", _references(1e308), nobody),
        ("references of 0", _references(0.0), nobody),
        *((what, change, nobody) for what, change in absurd(draw, "samples_per_s", "parameters")),
    ]
    if job.backend == "nccl":
        other = proof(lambda p: p["ranks"][-1].update(gpu_uuid="GPU-other"))
        on_cpu = proof(lambda p: p["ranks"][-1].update(gpu=None, device="cpu"))
        faults += [("a rank on another GPU", other, its), ("a rank on its CPU", on_cpu, nobody)]
    apart = at("curves", 0, "steps", 0, "loss", value=10.0)
    faults.append(("a loss apart", apart, nobody))
    faults.append(("a reference that stood still", _still, nobody))
    rank = draw.randrange(job.ranks)
    off = draw.choice((1.0, 2e-2, "nan", "inf"))
    own = frozenset({_host(job, rank)})
    first_step = ("ranks", rank, "first_step")
    optimizer = at("ranks", rank, "steps", 0, "parameters", value=off)
    faults += [
        ("computed wrongly on one rank", at(*first_step, "computed", value=off), own),
        ("another optimizer on one rank", optimizer, own),
    ]
    if job.payload == "ddp":
        faults.append(("averaged wrongly everywhere", _everywhere("exchanged", off), nobody))
    if job.payload == "pipeline":
        two = own | {_host(job, max(rank - 1, 0))}
        received = at(*first_step, "received", value=off)
        faults.append(("received wrongly on one rank", received, two))
    if job.payload in ("fsdp", "tensor_parallel", "mesh"):
        step = ("ranks", rank, "steps", draw.randrange(5))
        faults += [
            ("stale weights on one rank", at(*step, "own", value=off), own),
            ("weights gathered wrongly", at(*step, "weights", value=off), own),
            ("in other rows", measured(rows=[99]), nobody),
            ("sums wrong everywhere", _everywhere("received", off), nobody),
        ]
    if job.payload == "expert_parallel":
        faults += [
            (f"{name} wrongly from itself", at(*first_step, name, value=off), own)
            for name in ("received", "returned")
        ]
        faults.append(("experts learn nothing", _everywhere("experts", off), nobody))
    return faults


def collective_faults(draw: random.Random, job: Job) -> list[tuple[str, Change, frozenset[str]]]:
    """What is wrong with a sweep of all collectives, in one of its ways."""
    nobody = frozenset(job.hosts) if len(job.hosts) == 1 else frozenset()
    ways = standin.collectives(job.hosts, job.config, job.ranks_per_node)["measured"]["ways"]
    way = draw.randrange(len(ways))
    place: Place = ("ways", way, "sizes")
    size = draw.randrange(len(ways[way]["sizes"]))
    adding = ways[way]["operation"] in ("all_reduce", "reduce_scatter")
    receiver, sender = (draw.randrange(job.ranks) for _ in range(2))
    cell = [receiver, None if adding else sender, draw.randint(1, 9)]
    own = frozenset({_host(job, receiver)})
    # What went from one node to another, either can have spoiled: then nobody may be accused.
    alone = own if adding or _host(job, sender) in own else frozenset()
    call: Place = (*place, size, "calls_s", 0)
    rank = draw.randrange(job.ranks)
    faults = [
        ("wrong elements", at(*place, size, "wrong", value=[cell]), alone),
        ("a way is missing", altered(lambda d: d["measured"]["ways"].pop(way)), nobody),
        ("ways in another order", altered(lambda d: d["measured"]["ways"].reverse()), nobody),
        ("a size is missing", altered(lambda d: d["measured"]["ways"][way]["sizes"].pop()), nobody),
        ("fewer bytes", at(*place, size, "bytes", value=4096 + 4), nobody),
        ("not every call checked", at(*place, size, "calls_checked", value=1), nobody),
        ("a call is missing", altered(lambda d: _at(d, *place, size, "calls_s").pop()), nobody),
        ("no time at all", at(*call, value=0.0), nobody),
        ("an absurd time", at(*call, value=10**400), nobody),
        ("wrong is no list", at(*place, size, "wrong", value=None), nobody),
        ("wrong on no rank", at(*place, size, "wrong", value=[[10**6, None, 1]]), nobody),
    ]
    if job.ranks > 1:
        faults += [
            ("too slow", _times_of(place, -1, 1 / draw.uniform(1e-6, 0.008)), nobody),
            ("faster than light", _times_of(place, -1, 10 ** -draw.uniform(4, 6)), nobody),
            ("one size slow", _times_of(place, size, 1e4), nobody),
            ("every size but the largest slow", _sizes_slow(place, 1000), nobody),
            ("one call slow", _call_slow(place, 1000), nobody),
            ("a rank slow by itself", _work(rank, 200), frozenset({_host(job, rank)})),
        ]
    return faults


def _at(document: dict[str, Any], *path: str | int) -> Any:
    found: Any = document["measured"]
    for key in path:
        found = found[key]
    return found


def _scaled(row: dict[str, Any], factor: float) -> None:
    """All times of a size, and all that follows from them."""
    row["calls_s"] = [seconds * factor for seconds in row["calls_s"]]
    for name in ("time_s_median", "time_s_min", "time_s_max"):
        if name in row:
            row[name] *= factor
    for name in ("algbw_gbs", "busbw_gbs"):
        if name in row:
            row[name] /= factor


def _times_of(sizes: Place, size: int, factor: float) -> Change:
    return altered(lambda document: _scaled(_at(document, *sizes, size), factor))


def _sizes_slow(sizes: Place, factor: float) -> Change:
    def change(document: dict[str, Any]) -> None:
        for row in _at(document, *sizes)[:-1]:
            _scaled(row, factor)

    return altered(change)


def _call_slow(sizes: Place, factor: float) -> Change:
    """One call of the largest size."""

    def change(document: dict[str, Any]) -> None:
        row = _at(document, *sizes)[-1]
        row["calls_s"][-1] *= factor
        if "time_s_max" in row:
            row["time_s_max"] = row["calls_s"][-1]

    return altered(change)


def _work(rank: int, factor: float) -> Change:
    def change(document: dict[str, Any]) -> None:
        for way in document["measured"]["ways"]:
            way["work_s_by_rank"][rank] *= factor

    return altered(change)


def schedule_faults(
    draw: random.Random, job: Job, nobody: frozenset[str]
) -> list[tuple[str, Change, frozenset[str]]]:
    number = draw.randrange(3 if job.ranks > 1 else 2)
    part = ("schedules", number)
    rank = draw.randrange(min(job.ranks, 4))  # of the first chain's first stages
    off = draw.choice((1.0, 2e-2, "nan", "inf"))
    own = frozenset({_host(job, rank)})
    two = own | {_host(job, max(rank - 1, 0))}
    first_step = (*part, "ranks", rank, "first_step")
    return [
        ("no schedule", measured(schedules=[]), nobody),
        ("a schedule is missing", altered(lambda d: d["measured"]["schedules"].pop()), nobody),
        ("another schedule", at(*part, "schedule", value="zero bubble"), nobody),
        ("a loss apart", at(*part, "curves", 0, "steps", 0, "loss", value=10.0), nobody),
        ("computed wrongly by one stage", at(*first_step, "computed", value=off), own),
        ("received wrongly by one stage", at(*first_step, "received", value=off), two),
        (
            "a stage's own optimizer",
            at(*part, "ranks", rank, "steps", 0, "parameters", value=off),
            own,
        ),
        ("one step a thousand times slower", at(*part, "step_times_s", 2, value=4.0), nobody),
    ]


def scaling_faults(job: Job, nobody: frozenset[str]) -> list[tuple[str, Change, frozenset[str]]]:
    """What goes wrong with a training that is measured at several sizes."""
    return [
        ("a size is missing", altered(lambda d: d["measured"]["sizes"].pop()), nobody),
        ("a rank that did not train", at("sizes", -1, "took_part", value=0), nobody),
        ("a wrong sum", at("sizes", -1, "summed", 0, value=2), nobody),
        ("not in step", at("sizes", -1, "in_step", value=False), nobody),
        ("a loss that is none", at("sizes", -1, "losses_finite", value=False), nobody),
        ("no time", at("sizes", -1, "weak_s", value=0.0), nobody),
        ("a step that never ended", at("sizes", -1, "weak_s", value="inf"), nobody),
        ("no parameters", measured(parameters=0), nobody),
        *(
            (("ten thousand times slower together", at("sizes", -1, "weak_s", value=5e3), nobody),)
            if job.ranks > 1
            else ()
        ),
    ]


def inference_faults(
    draw: random.Random, job: Job, nobody: frozenset[str]
) -> list[tuple[str, Change, frozenset[str]]]:
    """What goes wrong when all ranks continue prompts together."""
    rank = draw.randrange(job.ranks)
    off = draw.choice((1.0, 1e-3, "nan", "inf"))
    own = frozenset({_host(job, rank)})
    place = draw.randrange(20)

    def everywhere(document: dict[str, Any]) -> None:
        for item in document["measured"]["ranks"]:
            item["cache"][place] = off

    return [
        ("computed wrongly on one rank", at("ranks", rank, "computed", value=off), own),
        ("a wrong cache on one rank", at("ranks", rank, "cache", place, value=off), own),
        ("a wrong cache everywhere", altered(everywhere), nobody),
        ("another token on one rank", at("ranks", rank, "first_cache", place, value=off), own),
        ("wrong logits on one rank", at("ranks", rank, "logits", 0, value=off), own),
        ("a wrong token that nobody counts", at("tokens", 0, 0, 0, value=9), nobody),
        ("a token less", altered(lambda d: d["measured"]["expected"][0].pop()), nobody),
        ("ties", measured(margin=1e-6), nobody),
        ("other rows", measured(rows=[job.ranks + 1]), nobody),
        ("no time", measured(decode_s=0.0), nobody),
        ("no speed", measured(prefill_tokens_per_s=0.0), nobody),
        ("a rank's figures missing", altered(lambda d: d["measured"]["ranks"].pop()), nobody),
    ]


def restart_faults(
    draw: random.Random, job: Job, nobody: frozenset[str], its: frozenset[str]
) -> list[tuple[str, Change, frozenset[str]]]:
    """What goes wrong with a training that is killed and resumed."""
    rank = draw.randrange(job.ranks)
    unequal = at("ranks", rank, "equal", value=False)
    faults = [
        ("another step's losses", measured(first=1), nobody),
        ("a loss is missing", altered(lambda d: d["measured"]["losses"].pop()), nobody),
        ("a loss apart", at("losses", 0, value=2.0), nobody),
        ("a loss that is none", at("losses", 0, value="nan"), nobody),
        ("a rank's figures missing", altered(lambda d: d["measured"]["ranks"].pop()), nobody),
        ("one rank unequal", unequal, nobody | {_host(job, rank)}),
        ("a reference that stood still", at("ranks", 0, "movement", value=1e-9), nobody),
        ("no time", measured(save_s=0.0, load_s=0.0), nobody),
    ]
    if job.payload == "checkpoint":
        faults += [
            ("not killed", measured(ended_by="SIGTERM"), nobody),
            ("no file", measured(files=[]), nobody),
        ]
        return faults
    seen_by = draw.choice((list(job.hosts), list(job.hosts[-1:])))
    problem = {
        "rank": 0,
        "host": "gpu1",
        "file": "__0_0.distcp",
        "problem": draw.choice(("is stale: it holds the save before", "is torn: 1 of 2 bytes")),
        "seen_by": seen_by,
    }
    missing = [{"host": host, "sentence": "nothing there"} for host in seen_by]
    faults += [
        ("a wrong file", measured(problems=[problem], problems_in_all=1), its),
        ("nothing to resume", measured(missing=missing), its),
        ("another step", measured(step=1), nobody),
        ("wrong state", measured(wrong_state=["momentum.0"]), nobody),
        ("the references before differ", measured(losses=[0.0] * 4), nobody),
        ("no word of problems", altered(lambda d: d["measured"].pop("problems")), nobody),
    ]
    return faults


def _host(job: Job, rank: int) -> str:
    return job.hosts[rank // job.ranks_per_node]


def _wrong(draw: random.Random, ranks: Iterable[int]) -> Change:
    count = draw.randint(1, 9)
    row = draw.choice((0, -1))

    def change(document: dict[str, Any]) -> None:
        for rank in ranks:
            document["measured"]["sizes"][row]["wrong_by_rank"][rank] = count

    return altered(change)


def _everywhere(name: str, value: object) -> Change:
    def change(document: dict[str, Any]) -> None:
        for rank in document["measured"]["ranks"]:
            rank["first_step"][name] = value

    return altered(change)


def _references(value: float) -> Change:
    """All losses, and what they are held against, are this by turns with its negative."""

    def change(document: dict[str, Any]) -> None:
        for curve in document["measured"]["curves"]:
            for number, step in enumerate(curve["steps"]):
                step.update(loss=value * (-1) ** number, reference=value * (-1) ** number)

    return altered(change)


@altered
def _still(document: dict[str, Any]) -> None:
    for rank in document["measured"]["ranks"]:
        rank["movement"] = 1e-9


def _slower(factor: float) -> Change:
    """A training's steps, and all that follows from them."""

    def change(document: dict[str, Any]) -> None:
        training = document["measured"]
        training["step_times_s"] = [factor * step for step in training["step_times_s"]]
        training["step_time_s_median"] *= factor
        training["samples_per_s"] /= factor

    return altered(change)


def _speed(factor: float) -> Change:
    """All times of the largest size divided by it, and all that follows from them."""
    return _times_of(("sizes",), -1, 1 / factor)


LOGIN = (
    "poll errors",
    "launcher lost",
    "jobs not started",
    "slurmctld down",
    "srun refused",
    "no srun",
    "jobs lost",
    "limits",
)
LIMITS = ("QOSMaxJobsPerUserLimit", "AssocGrpGRES", "PartitionDown", "InvalidAccount", "Licenses")


def login_fault(world: World) -> str:
    what = world.random.choice(LOGIN)
    jobs = [job.name for job in world.plan.jobs]
    every: Change | None = None
    if what == "poll errors":
        world.poll_errors = 50
    elif what == "launcher lost":
        world.lost = "the launcher on login1 died: Traceback"
        world.silent.update(jobs)
    elif what == "jobs not started":
        world.start_error = "No space left on device"
    elif what == "slurmctld down":
        world.down = SlurmDown("sinfo: Unable to contact slurm controller")
    elif what == "srun refused":
        stderr = "srun: error: Unable to allocate resources: Invalid account or account/partition"
        every = never_ran(Outcome.EXITED, exit_code=1, stderr=stderr, job_id=None)
    elif what == "no srun":
        reason = "srun: No such file or directory"
        every = never_ran(Outcome.NOT_SUBMITTED, job_id=None, reason=reason)
    elif what == "jobs lost":
        every = never_ran(Outcome.LOST, reason="forgotten")
    else:
        what = world.random.choice(LIMITS)
        every = never_ran(Outcome.QUEUE_LIMIT, reason=what)
    if every is not None:
        for job in jobs:
            world.change(job, every)
    return f"login: {what}"


def slurmd_fault(world: World, name: str) -> tuple[str, frozenset[str]]:
    """slurmd of one node stopped or hangs, or the way from the login node to all is closed."""
    place = "10.0.0.7:6818"
    names = [node.name for node in world.plan.nodes]
    jobs = [job.name for job in world.plan.jobs if name in job.hosts]
    late = never_ran(Outcome.QUEUE_LIMIT, reason="Prolog", job_id="7")
    what = world.random.choice(("stopped", "hangs", "nothing comes back", "all refuse"))
    if what == "stopped":
        world.contact = Contact(refused={name: place})
    elif what == "all refuse":
        world.contact = Contact(refused=dict.fromkeys(names, place))
    else:
        world.contact = Contact(mute={name: place} if what == "nothing comes back" else {})
        for job in jobs:
            world.change(job, late)
    bad = frozenset() if what == "all refuse" and len(names) > 1 else frozenset({name})
    return f"{name}: slurmd {what}", bad


def shared_gpus(world: World) -> tuple[str, frozenset[str]]:
    """Two nodes list the same GPUs: one of them answers for the other, and nobody knows which."""
    first, second = world.random.sample([node.name for node in world.plan.nodes], 2)
    uuid = f"GPU-{first}-0"
    world.change(f"node-{second}", at("gpus", 0, "uuid", value=uuid))
    return f"{first} and {second} list {uuid}", frozenset({second})


def between_nodes(world: World) -> tuple[str, frozenset[str]]:
    """A node that is bad with all others, two such nodes, or the link between two nodes."""
    draw = world.random
    names = [node.name for node in world.plan.nodes]
    kind = draw.choice(("node", "link", *(("two nodes",) if len(names) > 4 else ())))
    ends = draw.sample(names, 1 if kind == "node" else 2)
    slower = _speed(draw.uniform(1e-6, 0.03))
    how = draw.choice(("slow", "cut"))
    stderr = "plumbline: rank 0 on gpu1: no progress for 30 s; all ranks still respond"

    def change(reply: Reply, job: Job) -> Reply:
        if not set(ends) & set(job.hosts) or (kind == "link" and not set(ends) <= set(job.hosts)):
            return reply
        if how == "cut":
            return dataclasses.replace(reply, exit_code=1, stdout="", stderr=stderr)
        return slower(reply, job) if job.payload in ("all_reduce", "pairs") else reply

    world.between = change
    bad = frozenset() if kind == "link" else frozenset(ends)
    return f"{how} {kind}: {', '.join(sorted(ends))}", bad


def with_fault(world: World) -> tuple[str, frozenset[str]]:
    """Puts one fault in; its name, and the nodes that it may be blamed on."""
    draw = world.random
    names = [node.name for node in world.plan.nodes]
    kind = draw.choice(("slurm", "node", "node", "cluster", "cluster", "cluster", "login"))
    cluster_jobs = [job for group in world.plan.groups for job in group.jobs]
    of_several = None
    if world.plan.suite == "training":
        kind = "cluster"
    elif len(names) > 2 and (world.plan.suite == "network" or draw.random() < 0.1):
        of_several = between_nodes
    elif len(names) > 1 and world.plan.nodes[0].gpus.real and draw.random() < 0.2:
        of_several = shared_gpus
    if of_several is not None:
        return of_several(world)
    if kind == "cluster" and cluster_jobs:
        job = draw.choice(cluster_jobs)
        what, change, bad = draw.choice(cluster_faults(draw, job))
        world.change(job.name, change)
        return f"{job.name}: {what}", bad
    if kind == "slurm":
        name = draw.choice(names)
        if draw.random() < 0.2:
            return slurmd_fault(world, name)
        what, state = draw.choice(slurm_faults(draw, name, world))
        if state is None:
            del world.states[name]
        else:
            world.states[name] = state
        return f"{name}: {what}", frozenset({name})
    if kind == "login":
        return login_fault(world), frozenset()
    name = draw.choice(names)
    what, at, change = draw.choice(node_faults(draw, name, world))
    world.change(at, change)
    return f"{name}: {what}", frozenset({name})


# --- what sites do to a run that is well ------------------------------------------------------


def with_habits(world: World) -> str:
    draw = world.random
    habits: list[str] = []
    jobs = [job.name for job in world.plan.jobs]
    for habit in draw.sample(HABITS, draw.randint(1, 4)):
        habits.append(habit.__name__.strip("_").replace("_", " "))
        habit(world, draw.sample(jobs, draw.randint(1, len(jobs))))
    return ", ".join(habits)


def _banners(world: World, jobs: list[str]) -> None:
    banner = world.random.choice(
        ("*** Welcome ***\n", "{}\n", '{"motd": 1}\n', "\x1b[31mred\x1b[0m\n")
    )

    def wrapped(reply: Reply, job: Job) -> Reply:
        return dataclasses.replace(reply, stdout=banner + reply.stdout + banner)

    for job in jobs:
        world.change(job, wrapped)


def _noise_on_stderr(world: World, jobs: list[str]) -> None:
    stderr = "srun: job 7 queued and waiting for resources\nNCCL INFO Bootstrap: Using eth0\n"
    for job in jobs:
        world.change(job, replaced(stderr=stderr))


def _slow_polls(world: World, jobs: list[str]) -> None:
    world.quiet_polls = world.random.randint(1, 20)


def _a_login_node_that_stumbles(world: World, jobs: list[str]) -> None:
    world.poll_errors = world.random.randint(1, 4)


BUSY = ("mixed", "completing", "allocated", "allocated+", "planned", "mixed-", "blocked")


def _busy_neighbours(world: World, jobs: list[str]) -> None:
    for name in world.random.sample(sorted(world.states), 1):
        state = world.random.choice(BUSY)
        world.states[name] = dataclasses.replace(world.states[name], state=state)


def _requeues(world: World, jobs: list[str]) -> None:
    for job in jobs:
        world.change(
            job, lambda reply, _: dataclasses.replace(reply, starts=reply.starts + reply.starts)
        )


def _other_nodes_in_slurm(world: World, jobs: list[str]) -> None:
    world.states["visualisation1"] = NodeState("visualisation1", "down", 8, 64_000, "")


def _more_in_slurm_than_declared(world: World, jobs: list[str]) -> None:
    for name, state in world.states.items():
        world.states[name] = dataclasses.replace(state, reason="", gres=f"{state.gres}(S:0-1)")


def _a_login_node_behind_a_firewall(world: World, jobs: list[str]) -> None:
    """Nothing comes back from the ports of some nodes; srun reaches them another way."""
    names = world.random.sample(sorted(node.name for node in world.plan.nodes), 1)
    world.contact = Contact(mute=dict.fromkeys(names, "10.0.0.7:6818"))


def _milliseconds_of_clock(world: World, jobs: list[str]) -> None:
    for job in jobs:
        if job.startswith("node-"):
            world.change(job, _clock(world.random.uniform(-0.2, 0.2)))


def _a_step_of_the_login_nodes_clock(world: World, jobs: list[str]) -> None:
    """In the middle of the node tier; half of its answers come afterwards."""
    moved_ns = 0
    clock = launcher.Clock(lambda: time.time_ns() + moved_ns)
    step = world.random.choice((-1, 1)) * world.random.randint(2, 900) * 10**9

    def arrived(reply: Reply, job: Job) -> Reply:
        arrival_ns = clock()
        starts = tuple(dataclasses.replace(start, arrival_ns=arrival_ns) for start in reply.starts)
        return dataclasses.replace(reply, starts=starts, document_ns=arrival_ns)

    def stepped(reply: Reply, job: Job) -> Reply:
        nonlocal moved_ns
        moved_ns = step
        return arrived(reply, job)

    of_nodes = [job.name for job in world.plan.node_jobs if job.payload == "node"]
    for number, job in enumerate(of_nodes):
        world.change(job, stepped if number == len(of_nodes) // 2 else arrived)


HABITS = (
    _banners,
    _noise_on_stderr,
    _slow_polls,
    _a_login_node_that_stumbles,
    _busy_neighbours,
    _requeues,
    _other_nodes_in_slurm,
    _more_in_slurm_than_declared,
    _a_login_node_behind_a_firewall,
    _milliseconds_of_clock,
    _a_step_of_the_login_nodes_clock,
)


# --- runs ----------------------------------------------------------------------------------------


def faulty(seed: int) -> SimulatedRun:
    simulated = world(seed)
    fault, bad = with_fault(simulated)
    return run(seed, simulated, fault, bad)


def well(seed: int) -> SimulatedRun:
    simulated = world(seed)
    return run(seed, simulated, with_habits(simulated), frozenset())


def run(seed: int, simulated: World, fault: str, bad: frozenset[str]) -> SimulatedRun:
    plan = simulated.plan
    try:
        walk = tiers.walk(plan, Slurm(simulated), Silent(), interval_s=0)
    except PlumblineError as error:
        return SimulatedRun(seed, fault, bad, None, {}, (f"exit 2: {error}",))
    results = settle(plan.checks, walk.results)
    for result in results:
        assert_advised(result)
    reports = node_reports(plan.nodes, walk.states, results, plan.suite_checks, plan.checks)
    return SimulatedRun(
        seed,
        fault,
        bad,
        overall(plan.checks, walk.results),
        {report.node.name: report.standing for report in reports},
        tuple(
            f"{r.check} {r.subject.name} {r.verdict.value} blamed={r.blamed}: {r.message}"
            for r in results
            if not r.verdict.green
        ),
    )
