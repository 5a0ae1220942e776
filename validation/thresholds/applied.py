"""By which threshold each check of a node, and of its group, would judge; before anything runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from cluster.declaration import Node
from validation.checks import (
    all_reduce,
    boards,
    checkpoint,
    clock,
    clocks,
    collectives,
    copies,
    cores,
    cpus,
    cuda,
    ddp,
    disk,
    ecc,
    expert_parallel,
    fsdp,
    gemm,
    gpus,
    hbm,
    host_memory,
    host_stragglers,
    inference,
    load_clocks,
    mesh,
    pairs,
    pcie,
    peers,
    pipeline,
    port_errors,
    resume,
    scaling,
    schedules,
    tensor_parallel,
)
from validation.checks.transport import Paths
from validation.model import Job, Threshold
from validation.payloads.gpu_memory import DIRECTIONS, MOVED
from validation.plan import Plan
from validation.thresholds import LINKS, Collective, Rules
from validation.thresholds.gpu import NO_RULES
from validation.thresholds.limits import KINDS

# Checks that hold something against limits of common.yml, and which.
_LIMITS: Mapping[str, tuple[str, ...]] = {
    cpus.NAME: ("outside_cpu_share",),
    port_errors.NAME: (
        "ib_symbol_errors_per_hour",
        "ib_link_downed",
        "ib_link_error_recovery",
        "ib_new_symbol_errors",
        "ib_new_link_downed",
    ),
    cores.NAME: ("core_speed_share", "core_gbs"),
    host_stragglers.NAME: ("alike_host_share",),
    ecc.NAME: (
        "gpu_corrected_errors",
        "gpu_corrected_errors_life",
        "gpu_corrected_sram_errors",
        "gpu_remapped_rows",
        "gpu_retired_pages",
    ),
    pcie.NAME: ("gpu_bar1_share",),
    clocks.NAME: ("gpu_app_clock_share",),
    load_clocks.NAME: ("gpu_load_clock_share", "gpu_heat_share"),
    pairs.NAME: ("tcp_lost_share",),
}

_TRAININGS = (ddp, pipeline, fsdp, tensor_parallel, schedules, expert_parallel, mesh)

# Checks that ask something of these files. All others judge by what is declared or by definition.
_MODULES = (
    *(gpus, clock, disk, host_memory, cuda, gemm, hbm, copies, peers),
    *(all_reduce, collectives, *_TRAININGS, checkpoint, resume, inference, scaling),
)
LOOKED_UP = (*(module.NAME for module in _MODULES), *_LIMITS)
# Without a threshold these are measured and end inconclusive; the others need none, or pass.
JUDGED_BY_SPEED = (
    *(gemm.NAME, hbm.NAME, copies.NAME, peers.NAME),
    *(all_reduce.NAME, collectives.NAME),
)


@dataclass(frozen=True, slots=True)
class Applied:
    """One measurement. Without a threshold `words` says what is known, or why nothing is judged; a
    run would not judge what has neither.
    """

    check: str
    what: str
    threshold: Threshold | None = None
    words: str = ""


def applied(plan: Plan, name: str) -> list[Applied]:
    """For a node of the plan and the group it works in, in the order of the checks."""
    node = next(node for node in plan.nodes if node.name == name)
    rules = plan.rules[node.hardware]
    jobs = [job for job in plan.jobs if name in job.candidates]
    entries: list[Applied] = []
    for check in plan.checks:
        if check.check not in LOOKED_UP or name not in check.subject.nodes:
            continue
        if words := check.skip or check.unproven:
            entries.append(Applied(check.check, check.tier.value, words=words))
            continue
        if check.check in _LIMITS:
            entries += _limits(check.check, rules)
            continue
        job = next(job for job in jobs if check.check in job.checks)
        if job.payload == gemm.PAYLOAD and not node.gpus.real:
            words = "runs on CPUs, no speed is judged"
            entries.append(Applied(check.check, check.tier.value, words=words))
        else:
            entries += _OF[check.check](check.check, job, node, rules)
    return entries


_Ask = Callable[[str], Threshold | None]


def _boards(check: str, what: str, rules: Rules, ask: _Ask) -> Iterator[Applied]:
    """One for all boards of a model, or one for each name where they differ."""
    names = rules.model.nvml_names if rules.model else ()
    yield from _alike(check, what, names or ("",), ask)


def _alike(check: str, what: str, cases: Sequence[str], ask: _Ask) -> Iterator[Applied]:
    limits = {case: ask(case) for case in cases}
    if len(set(limits.values())) == 1:
        yield Applied(check, what, limits[cases[0]])
        return
    for case, limit in limits.items():
        yield Applied(check, f"{what}, {case}", limit)


def _peak(check: str, what: str, *limits: Threshold | None) -> Iterator[Applied]:
    """What cannot be exceeded, by the first that says so."""
    known = [limit for limit in limits if limit is not None]
    yield from (Applied(check, f"{what}, at most", limit) for limit in known[:1])


def _names(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    if node.gpus.real:
        names = rules.model.nvml_names if rules.model else ()
        yield Applied(check, "names of the model", words=" or ".join(names))


def _limits(check: str, rules: Rules) -> Iterator[Applied]:
    for name in _LIMITS[check]:
        yield Applied(check, KINDS[name].what, rules.common.limits[name])


def _clock(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    yield Applied(check, "offset", rules.common.clock_offset)


def _host(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    """What a site says of its disks and its memory, or else what any machine does."""
    known = rules.model.host if rules.model else {}
    of_disk = check == disk.NAME
    floor = rules.common.limits["disk_gbs" if of_disk else "memory_copy_gbs"]
    for what in (disk.WRITE, disk.READ) if of_disk else (host_memory.COPY,):
        yield Applied(check, what, known.get(what, floor))


def _gemm(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    own = rules.model.gpu if rules.model else NO_RULES
    shape = (cast(int, job.config["gemm_size"]),) * 3
    for dtype in cast(Sequence[str], job.config["dtypes"]):
        what = f"{dtype} {' × '.join(map(str, shape))}"

        def ask(name: str, dtype: str = dtype) -> Threshold | None:
            return own.gemm_speed(dtype, shape, name)

        yield from _boards(check, what, rules, ask)
        yield from _peak(check, what, own.gemm_peak(dtype), rules.common.gpu_peak.gemm[dtype])
    if job.config["sustain_s"]:
        name = "gpu_sustained_share"
        yield Applied(check, KINDS[name].what, rules.common.limits[name])


def _hbm(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    own = rules.model.gpu if rules.model else NO_RULES
    for operation in MOVED:

        def ask(name: str, operation: str = operation) -> Threshold | None:
            return own.memory_speed(operation, name)

        yield from _boards(check, operation, rules, ask)
    yield from _peak(check, "memory", own.memory_peak(), rules.common.gpu_peak.memory)


def _copies(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    own = rules.model.gpu if rules.model else NO_RULES
    for direction in DIRECTIONS:

        def ask(name: str, direction: str = direction) -> Threshold | None:
            return own.copy_speed(direction, name)

        yield from _boards(check, direction, rules, ask)
    yield from _peak(check, "copies", own.copies_peak(), rules.common.gpu_peak.copies)


def _peers(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    own, count = rules.model.gpu if rules.model else NO_RULES, node.gpus.count
    what = f"pairs of {count} GPUs"
    yield from _boards(check, what, rules, lambda name: own.peer_speed(count, name))
    yield from _peak(check, what, own.peers_peak(), rules.common.gpu_peak.peers)


def _all_reduce(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    yield from _operation(check, job, node, rules, all_reduce.NAME)
    yield from _outliers(check, job, rules)
    yield from _held_back(check, job, rules)


def _collectives(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    for operation in cast(Sequence[str], job.config["operations"]):
        yield from _operation(check, job, node, rules, operation, f"{operation}, ")
    yield from _outliers(check, job, rules)
    yield from _held_back(check, job, rules)


def _operation(
    check: str, job: Job, node: Node, rules: Rules, operation: str, named: str = ""
) -> Iterator[Applied]:
    size = cast(Sequence[int], job.config["sizes_bytes"])[-1]
    nodes = "1 node" if len(job.nodes) == 1 else f"{len(job.nodes)} nodes"
    backend = job.backend or ""
    what = f"{named}{nodes} × {job.ranks_per_node} ranks, {node.fabric}, {backend}, {size} bytes"

    def rule(paths: Paths) -> Threshold | None:
        collective = all_reduce.collective(job, size, paths, operation)
        match = rules.model.collective(collective) if rules.model else None
        return None if match is None else match.threshold

    # What the links are, and what lies between the nodes, shows when it runs.
    cases = _paths(job, rules, all_reduce.collective(job, size, Paths(), operation))
    limits = {words: [rule(way) for way in ways] for words, ways in cases.items()}
    if len({limit for found in limits.values() for limit in found}) == 1:
        yield Applied(check, what, limits[next(iter(limits))][0])
    else:
        for words, found in limits.items():
            inside = dict(zip([way.links or "" for way in cases[words]], found, strict=True))
            yield from _alike(check, what + words, [*inside], inside.__getitem__)
    yield from _peak(check, what, rules.common.bus_bandwidth[backend])


def _paths(job: Job, rules: Rules, of: Collective) -> Mapping[str, Sequence[Paths]]:
    """What may join the nodes, as far as rules tell it apart, and what the links may be then."""
    links = LINKS if job.backend == "nccl" else (None,)
    apart = [
        rule
        for rule in (rules.model.collectives if rules.model else ())
        if rule.between
        and rule.fits(replace(of, links=rule.links, between=rule.between, ports=rule.ports))
    ]
    cases = {}
    if any(rule.between == "mnnvl" for rule in apart):
        cases[", NVLink between nodes"] = Paths(None, "mnnvl")
    ports = sorted({rule.ports for rule in apart if rule.ports})
    if apart:
        fewer = f" of fewer than {ports[0]} ports" if ports else ""
        cases[f", network{fewer}"] = Paths(None, "network")
    for count in ports:
        cases[f", network of {count} ports and more"] = Paths(None, "network", count)
    return {
        words: [replace(case, links=link) for link in links]
        for words, case in (cases or {"": Paths()}).items()
    }


def _outliers(check: str, job: Job, rules: Rules) -> Iterator[Applied]:
    limits = rules.common.outliers[job.backend or ""]
    yield Applied(check, "one size against the others", limits.size.threshold)
    yield Applied(check, "one call against its median", limits.call.threshold)
    yield Applied(check, "a rank's own work against the others'", limits.rank.threshold)


def _held_back(check: str, job: Job, rules: Rules) -> Iterator[Applied]:
    """Where NVML is asked of the boards meanwhile."""
    if job.backend == "nccl":
        yield Applied(check, KINDS[boards.HEAT].what, rules.common.limits[boards.HEAT])


def _watched_training(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    yield from _training(check, job, node, rules)
    yield from _held_back(check, job, rules)


def _training(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    tolerances = rules.common.training[job.backend or ""]
    yield Applied(check, "losses", tolerances.loss)
    yield Applied(check, "first step", tolerances.first_step)
    yield Applied(check, "parameters", tolerances.parameters)
    speeds = rules.common.training_speed[job.backend or ""]
    yield Applied(check, "step time per reference", speeds.per_reference)
    yield Applied(check, "slowest step per median", speeds.slowest)


def _first_step(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    yield Applied(check, "any figure", rules.common.training[job.backend or ""].first_step)


def _restart(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    tolerances = rules.common.training[job.backend or ""]
    yield Applied(check, "losses", tolerances.loss)
    yield Applied(check, "parameters", tolerances.parameters)


def _scaling(check: str, job: Job, node: Node, rules: Rules) -> Iterator[Applied]:
    yield Applied(check, "weak efficiency", rules.common.scaling[job.backend or ""])


_OF: dict[str, Callable[[str, Job, Node, Rules], Iterator[Applied]]] = {
    gpus.NAME: _names,
    cuda.NAME: _names,
    clock.NAME: _clock,
    disk.NAME: _host,
    host_memory.NAME: _host,
    gemm.NAME: _gemm,
    hbm.NAME: _hbm,
    copies.NAME: _copies,
    peers.NAME: _peers,
    all_reduce.NAME: _all_reduce,
    collectives.NAME: _collectives,
    **{module.NAME: _training for module in _TRAININGS},
    **{module.NAME: _watched_training for module in (ddp, pipeline)},
    checkpoint.NAME: _restart,
    resume.NAME: _restart,
    inference.NAME: _first_step,
    scaling.NAME: _scaling,
}
