"""The campaign's runs of the suite `gpu`: what is wrong with one node's host, GPUs or ports.

As in campaign.py a run of a seed is always the same. Each fault lies in what one node measures; it
must be found, and only that node may be called failing. A healthy node has the habits of its kind:
efficient cores beside fast ones, disks that scatter, a few corrected errors, links that were down
for maintenance, an update of packages, a clock that a site lowered.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from cluster.slurm.node_states import NodeState
from validation.plan import Selection
from validation.tests import campaign, standin
from validation.tests import standin_isolation as isolation
from validation.tests.campaign import Change, SimulatedRun, World, altered
from validation.tests.conftest import make_plan

# Of as many H100 every speed has a shipped threshold, so that a healthy run is green.
HARDWARE = (("virtual", 2, "ethernet"), ("h100_sxm", 8, campaign.FABRIC))

Fault = tuple[str, str, Change]  # what, the job that tells of it, and its answer's change


def world(seed: int) -> World:
    """Enough nodes that each can be compared with others."""
    draw = random.Random(seed)
    model, count, fabric = draw.choice(HARDWARE)
    nodes = [(f"gpu{number}", model, count, fabric) for number in range(1, draw.randint(6, 8))]
    plan = make_plan(*nodes, selection=Selection(), suite="gpu")
    states = {
        node.name: NodeState(node.name, "idle", node.cpus, node.memory_mb, node.gpus.request)
        for node in plan.nodes
    }
    return World(plan, draw, states)


# --- faults ------------------------------------------------------------------------------------


def _found(part: str, change: Callable[[dict[str, Any]], None]) -> Change:
    return altered(lambda document: change(document["measured"][part]["found"]))


def _cores(draw: random.Random) -> Iterator[tuple[str, Change]]:
    how = draw.choice(("alone", "together"))

    def slow(found: dict[str, Any]) -> None:
        draw.choice(found["cores"])[how]["best_s"] *= 200

    def all_slow(found: dict[str, Any]) -> None:
        for core in found["cores"]:
            core["alone"]["best_s"] *= 50
            core["together"]["best_s"] *= 50

    def wrong(found: dict[str, Any]) -> None:
        draw.choice(found["cores"])[how]["wrong"] = 1

    yield f"a core 200 times slower {how}", _found("cores", slow)
    yield "all cores 50 times slower", _found("cores", all_slow)
    yield "a core that hashes wrong", _found("cores", wrong)


def _host_speed(draw: random.Random) -> Iterator[tuple[str, Change]]:
    yield from _cores(draw)
    name = draw.choice(("write_s", "read_s"))

    def of_its_kind(found: dict[str, Any]) -> None:
        found[name] *= 100

    def at_all(found: dict[str, Any]) -> None:
        found[name] = 1000.0

    def memory(found: dict[str, Any]) -> None:
        for core in found["cores"]:
            core["copies"] = 2

    yield f"a disk at 1/100 of its kind, {name}", _found("disk", of_its_kind)
    yield f"a disk of 256 MiB in 1,000 s, {name}", _found("disk", at_all)
    yield "memory at 1/100", _found("memory", memory)


def _one_gpu(draw: random.Random, **values: Any) -> Change:
    def change(document: dict[str, Any]) -> None:
        draw.choice(document["measured"]["gpus"])["values"].update(values)

    return altered(change)


def _health(draw: random.Random) -> Iterator[tuple[str, Change]]:
    rows = {"correctable": 900, "uncorrectable": 0, "pending": "no", "failure": "no"}
    yield "10 million corrected errors", _one_gpu(draw, ecc_volatile_corrected=10**7)
    yield "errors of SRAM", _one_gpu(draw, ecc_aggregate_corrected_sram=50_000)
    yield "900 remapped rows", _one_gpu(draw, remapped_rows=rows)
    yield "a BAR1 of 256 MiB", _one_gpu(draw, bar1_total_mb=256)
    yield "an application clock of 300 MHz", _one_gpu(draw, clock_sm_app_mhz=300)


def _compute(draw: random.Random, real: bool) -> Iterator[tuple[str, Change]]:
    def wrong(document: dict[str, Any]) -> None:
        gpu = draw.choice(document["measured"]["gpus"])
        gpu["fill"].update(wrong=draw.randint(1, 9), first=[3, 17])

    def skipped(document: dict[str, Any]) -> None:
        draw.choice(document["measured"]["gpus"])["fill"]["filled"] = 1 << 20

    def slow(document: dict[str, Any]) -> None:
        draw.choice(document["measured"]["links"]["gpus"])["sm_mhz"] = 300

    yield "memory beyond the first buffers", altered(wrong)
    yield "memory that was not looked at", altered(skipped)
    if real:
        yield "a clock of 300 MHz at work", altered(slow)


def _ports(draw: random.Random) -> Iterator[tuple[str, Change]]:
    def one(when: str, name: str, value: int) -> Change:
        def change(document: dict[str, Any]) -> None:
            port = draw.choice(document["measured"]["infiniband"]["ports"])
            port[when][name] = value
            port["later"][name] = max(port["later"][name], value)

        return altered(change)

    def firmware(document: dict[str, Any]) -> None:
        draw.choice(document["measured"]["infiniband"]["ports"])["firmware"] = "28.35.1012"

    yield "a billion symbol errors", one("counters", "symbol_error", 10**9)
    yield "5,000 link-downs", one("counters", "link_downed", 5000)
    yield "symbol errors while it is looked at", one("later", "symbol_error", 500)
    yield "a link that goes down", one("later", "link_downed", 2)
    yield "other firmware", altered(firmware)


def _processes(draw: random.Random) -> Change:
    asked = draw.uniform(2.0, 16.0)
    process = standin.process(command="stress-ng", cpus=0.4, asked=asked)
    outside = {"cpus": 0.4, "asked": asked, "seconds": 3.0, "processes": [process]}
    return campaign.measured(outside=outside)


def _isolation(draw: random.Random, name: str) -> Iterator[Fault]:
    def opened(document: dict[str, Any]) -> None:
        for device in document["measured"]["devices"]:
            device["denied"] = None

    def none(document: dict[str, Any]) -> None:
        for device in document["measured"]["devices"]:
            device["denied"] = isolation.REFUSED

    job = f"isolation-{name}-{draw.choice(('first', 'second', 'none'))}"
    yield "a job reaches all GPUs", job, altered(opened)
    yield "a job does not reach its GPU", f"isolation-{name}-first", altered(none)
    yield "a job was alone", job, campaign.measured(met=[])


def faults(world: World, name: str) -> list[Fault]:
    draw, node = world.random, next(node for node in world.plan.nodes if node.name == name)
    real = node.gpus.real
    of_jobs = {"host_speed": _host_speed(draw), "compute": _compute(draw, real)}
    if real:
        of_jobs |= {"health": _health(draw), "host": _ports(draw)}
    found = [
        (what, f"{payload}-{name}", change)
        for payload, changes in of_jobs.items()
        for what, change in changes
    ]
    found.append(("processes outside of Slurm", f"node-{name}", _processes(draw)))
    return [*found, *_isolation(draw, name)]


# --- habits ------------------------------------------------------------------------------------


def habits(world: World) -> str:
    draw = world.random
    lists = {
        "host_speed": _habits_of_hosts,
        "health": _habits_of_boards,
        "host": _habits_of_ports,
        "node": _habits_of_processes,
        "compute": _habits_at_work,
    }
    for job in world.plan.node_jobs:
        if (habit := lists.get(job.payload)) is not None:
            world.change(job.name, altered(partial(habit, draw)))
    return "what nodes are like"


def _habits_of_hosts(draw: random.Random, document: dict[str, Any]) -> None:
    disk, memory, cores = (
        document["measured"][part]["found"] for part in ("disk", "memory", "cores")
    )
    for name in ("write_s", "read_s"):
        disk[name] *= draw.uniform(1, 2.5)
    for core in memory["cores"]:
        core["seconds"] *= draw.uniform(1, 2.5)
    efficient = draw.randrange(len(cores["cores"]) + 1)
    for number, core in enumerate(cores["cores"]):
        for how in ("alone", "together"):
            slower = 2.2 if number < efficient else 1.0
            core[how]["best_s"] *= slower * draw.uniform(1, 1.1)


def _habits_of_boards(draw: random.Random, document: dict[str, Any]) -> None:
    for gpu in document["measured"]["gpus"]:
        corrected = draw.choice((0, 0, 3, 900, 250_000))
        gpu["values"].update(
            ecc_volatile_corrected=corrected,
            ecc_aggregate_corrected=corrected * 4,
            clock_sm_app_mhz=draw.choice((1980, 1980, 1410)),
        )
        gpu["values"]["remapped_rows"].update(correctable=draw.choice((0, 0, 1, 12)))


def _habits_of_ports(draw: random.Random, document: dict[str, Any]) -> None:
    for port in document["measured"]["infiniband"]["ports"]:
        counted = {
            "link_downed": draw.choice((0, 1, 9, 14)),
            "symbol_error": draw.choice((0, 7, 20_000)),
        }
        port["counters"].update(counted)
        port["later"].update(counted)


def _habits_of_processes(draw: random.Random, document: dict[str, Any]) -> None:
    asked = draw.choice((0.1, 0.4, 1.0))
    process = standin.process(command="apt-get", cpus=0.1, asked=asked)
    document["measured"]["outside"] = {
        "cpus": 0.1,
        "asked": asked,
        "seconds": 3.0,
        "processes": [process],
    }


def _habits_at_work(draw: random.Random, document: dict[str, Any]) -> None:
    for row in (document["measured"]["links"] or {"gpus": []})["gpus"]:
        row["sm_mhz"] = draw.choice((1980, 1755, 1410))


# --- runs --------------------------------------------------------------------------------------


def faulty(seed: int) -> SimulatedRun:
    simulated = world(seed)
    name = simulated.random.choice([node.name for node in simulated.plan.nodes])
    what, job, change = simulated.random.choice(faults(simulated, name))
    simulated.change(job, change)
    return campaign.run(seed, simulated, f"{name}: {what}", frozenset({name}))


def well(seed: int) -> SimulatedRun:
    simulated = world(seed)
    return campaign.run(seed, simulated, habits(simulated), frozenset())
