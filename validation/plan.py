"""Declaration, suite and thresholds become an explicit plan: what runs where, for how long.

The plan is complete before anything is submitted: every judgement that the run owes stands in it,
so that one that never comes is noticed. `--dry-run` prints it.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from cluster import hostlist
from cluster.declaration import (
    NO_WISHES,
    WITHOUT,
    Container,
    Declaration,
    Gpus,
    Node,
    Partition,
    Submission,
)
from cluster.errors import UsageError
from validation import localise, thresholds
from validation.checks import checkpoint, isolation, network, pairs, resume
from validation.checks.comparison import alike_host
from validation.checks.infiniband import declared as rdma_ports
from validation.checks.pipeline import LONGEST_CHAIN
from validation.checks.registry import CHECKS
from validation.localise import Topology
from validation.model import IMPORT_LIMIT_S, Job, Part, PlannedCheck, Subject, Tier
from validation.payloads.isolation import PARTS
from validation.suites import JobTemplate, Suite
from validation.thresholds import Rules

AT_ONCE = 64  # jobs of the node tier at once

# Jobs that measure: each has the network to itself.
_MEASURED = ("all_reduce", "collectives", "scaling")

# Of pairs: one, and what finds the name of what is bad.
MOST_ROUNDS = localise.MOST_ROUNDS

CARDS = "NCCL_IB_HCA"  # the variable that says which network cards NCCL may use

# Of the node tier: what looks at GPUs, what compares their figures, and what has its node to
# itself, because it measures, or has a process for each GPU that needs CPUs.
_OF_GPUS = ("health", "cuda", "compute", "dcgm", "isolation")
_OF_REAL_GPUS = ("links", "load_clocks", "same_product", "stragglers", "soak_stragglers")
_OF_PORTS = ("infiniband", "port_errors", "same_hcas")
_ALONE = ("cuda", "compute", "host_speed", "dcgm", "soak")

_PART_MB = 512  # of memory for a job that leaves room for others: Python, and what NVML takes

# Of the node tier: what runs in a container, where one is asked for. So does the cluster tier.
_IN_CONTAINERS = ("cuda", "compute", "soak")

# NVLink SHARP may add in another order from call to call; along a ring it is always the same.
_REPEATABLE = (("NCCL_ALGO", "Ring"),)

# What some of a group's nodes do for all of it: the payload, and which of the nodes that are left.
_PARTS: Mapping[str, Callable[[Sequence[Node]], Sequence[Node]]] = {
    checkpoint.PAYLOAD: checkpoint.part,
    resume.PAYLOAD: resume.part,
}

# Decides which nodes may be given a job, so no selection leaves it out.
ALWAYS = "slurm_state"


@dataclass(frozen=True, slots=True)
class Selection:
    """What the command line asks for; None is everything."""

    only: tuple[str, ...] | None = None
    skip: tuple[str, ...] = ()
    nodes: str | None = None
    exclude: str | None = None
    partition: str | None = None
    submission: Submission = NO_WISHES


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that are alike and in one partition: the cluster tier runs once for each group.

    jobs      of all nodes, in the order in which they run
    pair      the pattern of a job of two nodes; None where the suite does not say how they run
    referees  nodes of the same kind that were not selected: where two nodes cannot be told apart,
              an idle one of these can tell
    """

    name: str
    nodes: tuple[Node, ...]
    partition: str
    jobs: tuple[Job, ...]
    pair: Job | None = None
    referees: tuple[Node, ...] = ()

    def job_of(self, number: int, nodes: Sequence[Node], rail: str | None = None) -> Job:
        """The job of two or more of its nodes, over one network card of each if that is given.

        number  of the round

        NCCL takes a name after "=" for the whole of it: mlx5_1 would be mlx5_10 too.
        """
        assert self.pair is not None
        names = tuple(node.name for node in nodes)
        who = names if len(names) < 3 else (f"{names[0]}-and-{len(names) - 1}-more",)
        name = "-".join([self.pair.name, *([rail] if rail else []), str(number), *who])
        config = {**self.pair.config, "nonce": f"{self.pair.config['nonce']}-{name}"}
        environment = self.pair.environment
        if rail is not None:
            environment = tuple(sorted({**dict(environment), CARDS: f"={rail}"}.items()))
        return replace(
            self.pair,
            name=name,
            nodes=tuple(nodes),
            subject=Subject("-".join(who), names),
            config=config,
            environment=environment,
        )

    @property
    def backend(self) -> str:
        return _backend(self.nodes[0])

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Plan:
    run_id: str
    suite: str
    cluster: str
    python: str
    nodes: tuple[Node, ...]
    checks: tuple[PlannedCheck, ...]
    node_jobs: tuple[Job, ...]
    groups: tuple[Group, ...]
    rules: Mapping[str, Rules]  # by a node's hardware
    suite_checks: tuple[str, ...]  # all that the suite has, selected or not
    declared: tuple[str, ...]  # all nodes of the inventory, selected or not
    left_out: tuple[str, ...] = ()  # what of both was not selected, for people
    submission: Submission = NO_WISHES
    topology: Topology = field(default_factory=Topology)

    @property
    def jobs(self) -> tuple[Job, ...]:
        return (*self.node_jobs, *(job for group in self.groups for job in group.jobs))

    @property
    def node_lanes(self) -> tuple[tuple[Job, ...], ...]:
        """The jobs of each node, which run one after another."""
        lanes: dict[str, list[Job]] = {}
        for job in self.node_jobs:
            if job.part is None:
                lanes.setdefault(job.hosts[0], []).append(job)
        return tuple(map(tuple, lanes.values()))

    @property
    def side_by_side(self) -> tuple[tuple[Job, ...], ...]:
        """Jobs that share their node, after all others of it: those of a node follow each other."""
        return tuple((job,) for job in self.node_jobs if job.part is not None)

    @property
    def gpu_hours(self) -> float:
        """Upper bound, from the time limits."""
        rounds = sum(
            MOST_ROUNDS * group.pair.gpu_hours * len(group.nodes) / 2
            for group in self.paired
            if group.pair
        )
        return rounds + sum(job.gpu_hours for job in self.jobs)

    @property
    def longest_s(self) -> int:
        """Upper bound of the run's length: every job waits and runs up to all its limits."""
        limits = [_lane_s(lane) for lane in self.node_lanes]
        first = ceil(len(limits) / AT_ONCE) * max(limits, default=0)
        beside = [_lane_s(lane) for lane in self.side_by_side]
        first += ceil(len(beside) / AT_ONCE) * max(beside, default=0)
        batches = cluster_batches([list(group.jobs) for group in self.groups])
        return first + self.pairs_s + sum(max(map(_lane_s, lanes)) for lanes in batches)

    @property
    def paired(self) -> tuple[Group, ...]:
        """The groups whose nodes are paired in any case, not only where all together failed."""
        owed = {
            check.subject.name
            for check in self.checks
            if check.check == pairs.NAME and not (check.skip or check.unproven)
        }
        return tuple(group for group in self.groups if owed.intersection(group.names))

    @property
    def pairs_s(self) -> int:
        return sum(MOST_ROUNDS * group.pair.longest_s for group in self.paired if group.pair)


def cluster_batches(groups: Sequence[list[Job]]) -> list[list[list[Job]]]:
    """The cluster tier: batches one after another, in each of them lanes side by side.

    Groups share switches: a measurement of one beside a job of another would show half of what
    there is. So all that measure run one after another, then the groups go on side by side.
    """
    lanes = [lane for lane in groups if lane]
    if len(lanes) < 2:
        return [lanes] if lanes else []
    measured = [job for lane in lanes for job in lane if job.payload in _MEASURED]
    rest = [[job for job in lane if job.payload not in _MEASURED] for lane in lanes]
    batches = [[measured], [lane for lane in rest if lane]]
    return [[lane for lane in batch if lane] for batch in batches if any(batch)]


def _lane_s(lane: Sequence[Job]) -> int:
    return sum(job.longest_s for job in lane)


def make(
    declaration: Declaration,
    suite: Suite,
    selection: Selection,
    run_id: str,
    site_thresholds: Path | None = None,
    secret: str | None = None,
) -> Plan:
    """The plan of one run. Raises UsageError for what the cluster or the suite does not have.

    `secret` makes the nonces of this run's jobs: no answer of another run can carry one.
    """
    secret = secrets.token_hex(8) if secret is None else secret
    submission = selection.submission.over(declaration.submission)
    container = submission.container
    names = _chosen_checks(suite, selection)
    nodes = _chosen_nodes(declaration, selection)
    homes = {node.name: _home(declaration, node, selection.partition) for node in nodes}
    rules = {
        hardware: thresholds.of_node(node, site_thresholds)
        for hardware, node in {node.hardware: node for node in nodes}.items()
    }
    everybody = tuple(node.name for node in nodes)
    node_checks = [name for name in names if CHECKS[name].info.tier is Tier.NODE]
    cluster_checks = [
        name
        for name in names
        if CHECKS[name].info.tier is Tier.CLUSTER and CHECKS[name].payload and name != pairs.NAME
    ]
    chosen, declared = _Others.of(nodes), _Others.of([*declaration.nodes.values()])
    node_jobs = tuple(
        job
        for node in nodes
        for payload, checks in _payloads(node_checks, node, chosen, container).items()
        for job in _parts(_node_job(suite, node, everybody, homes[node.name], payload, checks))
    )
    meeting = secrets.token_hex(4)
    node_jobs = tuple(_at_meeting(job, f"{run_id}-{meeting}") for job in node_jobs)
    groups = _groups(suite, nodes, homes, cluster_checks, pairs.NAME in names, declaration)

    def finished(jobs: Sequence[Job]) -> tuple[Job, ...]:
        named = (_with_nonce(job, run_id, secret) for job in jobs)
        return tuple(_contained(job, container) for job in named)

    node_jobs = finished(node_jobs)
    groups = tuple(
        replace(
            group,
            jobs=finished(group.jobs),
            pair=finished([group.pair])[0] if group.pair else None,
        )
        for group in groups
    )
    planned = [
        PlannedCheck(
            name,
            Tier.NODE,
            Subject.node(node.name),
            _skipped(name, node, container) or declared.too_few(name, node),
            chosen.too_few(name, node),
        )
        for name in node_checks
        for node in nodes
    ]
    planned += [
        PlannedCheck(name, Tier.CLUSTER, Subject("slurm", everybody))
        for name in names
        if CHECKS[name].info.tier is Tier.CLUSTER and not CHECKS[name].payload
    ]
    if pairs.NAME in names:
        planned += _pairs(groups, len(declaration.nodes))
    for name in cluster_checks:
        for group in groups:
            subject = Subject(group.name, tuple(node.name for node in group.nodes))
            # One rank proves what it computes; where there are other nodes, more is to be proven.
            ranks = _ranks_per_node(group.nodes[0]) * len(group.nodes)
            alone = ranks == 1 and len(declaration.nodes) > 1
            unproven = _alone(group.nodes[0], nodes) if alone else None
            skip = _no_use_together(name, group.nodes)
            planned.append(PlannedCheck(name, Tier.CLUSTER, subject, skip, unproven))
    return Plan(
        run_id,
        suite.name,
        declaration.cluster,
        declaration.python,
        nodes,
        tuple(planned),
        node_jobs,
        groups,
        rules,
        suite.checks,
        tuple(declaration.nodes),
        _left_out(declaration, suite, selection, names, nodes),
        submission,
        Topology.declared(declaration),
    )


def _pairs(groups: Sequence[Group], declared: int) -> list[PlannedCheck]:
    """Each node is judged by itself: its pairs tell it from its partners."""
    skip = None
    if declared < pairs.FEWEST_NODES:
        skip = "there is no other node to reach"
    return [
        PlannedCheck(
            pairs.NAME,
            Tier.CLUSTER,
            Subject.node(node.name),
            skip,
            None if len(group.nodes) > 1 else f"no other selected node is of {node.name}'s kind",
        )
        for group in groups
        for node in group.nodes
    ]


def _with_nonce(job: Job, run_id: str, secret: str) -> Job:
    config = {**job.config, "nonce": f"{run_id}-{secret}-{job.name}"}
    if "stamp" in config:  # what jobs of one run and group have in common
        config["stamp"] = f"{run_id}-{secret}-{job.subject.name}"
    return replace(job, config=config)


def _contained(job: Job, container: Container | None) -> Job:
    """The job in the container, where its payload is what users run.

    What a payload asks the node itself for stays outside, because a container hides it: its disks,
    MUNGE's socket and programs, the kernel's log, the driver's own list of GPUs. Inside runs what
    brings software with it: CUDA's start, what GPUs compute, and all ranks.
    """
    if container is None or (job.tier is Tier.NODE and job.payload not in _IN_CONTAINERS):
        return job
    return replace(job, container=container, run_limit_s=job.run_limit_s + IMPORT_LIMIT_S)


def _alone(node: Node, chosen: Sequence[Node]) -> str:
    """Why nothing is proven about communication of a node that has one rank."""
    if len(chosen) == 1:
        return f"{node.name} alone has one rank: nothing was communicated; select another node too"
    return (
        f"{node.name} has one rank, and no other selected node is of its kind (model, number of "
        "GPUs, fabric, partition): nothing was communicated"
    )


def _left_out(
    declaration: Declaration,
    suite: Suite,
    selection: Selection,
    names: Collection[str],
    nodes: Collection[Node],
) -> tuple[str, ...]:
    checks = [name for name in suite.checks if name not in names]
    chosen = {node.name for node in nodes}
    others = [name for name in declaration.nodes if name not in chosen]
    parts = []
    if checks:
        parts.append(f"checks: {', '.join(checks)}")
    if others:
        parts.append(f"nodes: {hostlist.compress(others)}")
    if selection.partition is not None and len(declaration.partitions) > 1:
        parts.append(f"partition: only {selection.partition}")
    return tuple(parts)


def shrink(job: Job, survivors: Collection[str]) -> Job | None:
    """The cluster job on the nodes that are left; None if they are too few to prove anything."""
    pool = job.pool or job.nodes
    left = tuple(node for node in pool if node.name in survivors)
    if len(left) == len(pool):
        return job
    if len(left) < min(2, len(pool)):
        return None
    if job.payload in _PARTS:
        left = tuple(_PARTS[job.payload](left))
    subject = Subject(job.subject.name, tuple(node.name for node in left))
    return replace(job, nodes=left, subject=subject)


# --- selection -------------------------------------------------------------------------------


def _chosen_checks(suite: Suite, selection: Selection) -> list[str]:
    for option, names in (("--only", selection.only or ()), ("--skip", selection.skip)):
        if unknown := [name for name in names if name not in suite.checks]:
            raise UsageError(
                f"{option}: suite {suite.name} has no check {', '.join(unknown)}; "
                f"it has {', '.join(suite.checks)}"
            )
    if ALWAYS in selection.skip:
        raise UsageError(f"--skip: {ALWAYS} always runs, it decides which nodes may get a job")
    wanted = set(suite.checks if selection.only is None else selection.only) - set(selection.skip)
    if resume.NAME in wanted and checkpoint.NAME not in wanted:
        raise UsageError(
            f"--only and --skip: {resume.NAME} needs {checkpoint.NAME}, which writes what it reads"
        )
    if not wanted:
        raise UsageError("--only and --skip leave no check")
    always = {ALWAYS} & set(suite.checks)  # one machine alone has no Slurm
    return [name for name in CHECKS if name in wanted | always]


def _chosen_nodes(declaration: Declaration, selection: Selection) -> tuple[Node, ...]:
    known = list(declaration.nodes)
    place = "declared nodes"
    if selection.partition is not None:
        partition = _partition(declaration, selection.partition)
        known = [name for name in known if name in partition.nodes]
        place = f"nodes of partition {partition.name}"
    wanted = set(known)
    if selection.nodes is not None:
        wanted = set(_expand("--nodes", selection.nodes, known, place))
    if selection.exclude is not None:
        wanted -= set(_expand("--exclude", selection.exclude, list(declaration.nodes), place))
    if not wanted:
        raise UsageError(f"the selection leaves no node; {place}: {hostlist.compress(known)}")
    return tuple(declaration.nodes[name] for name in known if name in wanted)


def _expand(option: str, expression: str, known: Sequence[str], place: str) -> list[str]:
    try:
        names = hostlist.expand(expression)
    except hostlist.HostlistError as error:
        raise UsageError(f"{option}: {error}") from error
    if unknown := [name for name in dict.fromkeys(names) if name not in known]:
        raise UsageError(
            f"{option}: unknown {hostlist.compress(unknown)}; {place}: {hostlist.compress(known)}"
        )
    return names


def _partition(declaration: Declaration, name: str) -> Partition:
    for partition in declaration.partitions:
        if partition.name == name:
            return partition
    names = ", ".join(partition.name for partition in declaration.partitions)
    raise UsageError(f"--partition: unknown partition {name}; there is {names}")


def _home(declaration: Declaration, node: Node, partition: str | None) -> str:
    """The partition a node's jobs go to: the asked one, the default one, or the first it is in."""
    if partition is not None:
        return partition
    holding = [p for p in declaration.partitions if node.name in p.nodes]
    return next((p.name for p in holding if p.default), holding[0].name)


# --- jobs ------------------------------------------------------------------------------------


def _backend(node: Node) -> str:
    return "nccl" if node.gpus.real else "gloo"


def _ranks_per_node(node: Node) -> int:
    """One for each GPU, and one alone where these are cut into instances of MIG.

    NCCL refuses two ranks on one GPU ("Duplicate GPU detected", since 2.30.7 "Multiple Ranks are
    using the same GPU/Partition"), and instances of two GPUs reach each other neither over NVLink
    nor over PCIe (MIG user guide, deployment considerations).
    """
    return node.gpus.count if node.gpus.real and not node.gpus.mig else 1


def _cpus_per_rank(nodes: Sequence[Node]) -> int:
    """What each rank may have of its node's CPUs.

    An even number: Slurm hands out whole cores, and with two threads each an odd number of CPUs
    for every rank could ask for more cores than there are.
    """
    share = min(node.cpus // _ranks_per_node(node) for node in nodes)
    return max(1, share - share % 2 if share > 1 else share)


def _payloads(
    checks: Sequence[str],
    node: Node,
    others: "_Others",
    container: Container | None,
) -> dict[str, tuple[str, ...]]:
    """A node's payloads, in the order in which their checks stand, and the checks of each."""
    payloads: dict[str, tuple[str, ...]] = {}
    for name in checks:
        payload = CHECKS[name].payload
        why_not = _skipped(name, node, container) or others.too_few(name, node)
        if payload is not None and why_not is None:
            payloads[payload] = (*payloads.get(payload, ()), name)
    return payloads


def _skipped(check: str, node: Node, container: Container | None) -> str | None:
    """Why a check is not made on a node, by what is declared."""
    if check == "torch" and container is not None:
        return "the container brings torch"
    if check in node.without:
        return f"the declaration says that the node has no {WITHOUT[check]}"
    return _no_use(check, node)


def _no_use(check: str, node: Node) -> str | None:
    """Why a check has nothing to look at on a node, by what is declared."""
    if check == "shared_fs" and not node.shared_filesystems:
        return "no shared filesystem is declared"
    if check in _OF_PORTS and rdma_ports(node.fabric) is None:
        return f"the declared fabric {node.fabric} is neither InfiniBand nor RoCE"
    return _no_gpu(check, node)


def _no_gpu(check: str, node: Node) -> str | None:
    payload = CHECKS[check].payload
    if payload in _OF_GPUS and not node.gpus.count:
        return "no GPU is declared"
    if payload == "health" and not node.gpus.answer:
        return "virtual GPUs have no driver"
    if payload in ("cuda", "dcgm") and not node.gpus.real:
        return "virtual GPUs have no driver"
    if check in _OF_REAL_GPUS and not node.gpus.real:
        return "virtual GPUs do not compute; a CPU does"
    return _no_other(check, node)


def _no_other(check: str, node: Node) -> str | None:
    if check == isolation.NAME:
        return _no_neighbour(node)
    if check == "load_clocks" and node.gpus.mig:
        return "NVML knows the clock of a whole GPU, and instances of MIG are declared"
    if check in ("peers", "nvlink", "links") and node.gpus.mig:
        return "MIG instances cannot reach another GPU"
    if check == "dcgm" and node.gpus.mig:
        return "DCGM's diagnostic is for whole GPUs, not for instances of MIG"
    if check == "peers" and node.gpus.count == 1:
        return "there is only one GPU"
    return None


@dataclass(frozen=True, slots=True)
class _Others:
    """What a node can be compared with: GPUs of each kind, alike hosts, and all nodes."""

    gpus: Mapping[Gpus, int]
    hosts: Mapping[Hashable, int]
    nodes: int

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> "_Others":
        gpus: Counter[Gpus] = Counter()
        for node in nodes:
            gpus[node.gpus] += node.gpus.devices
        return cls(gpus, Counter(map(alike_host, nodes)), len(nodes))

    def too_few(self, check: str, node: Node) -> str | None:
        """Why they are too few for a check that compares."""
        needs = CHECKS[check]
        if self.nodes < needs.info.fewest_nodes:
            return "there is no other node to reach"
        if (gpus := self.gpus[node.gpus]) < needs.fewest:
            return f"{gpus} of these GPUs, and {needs.fewest} are needed for a comparison"
        if (alike := self.hosts[alike_host(node)]) < needs.fewest_alike:
            nodes = "node" if alike == 1 else "nodes"
            return f"{alike} {nodes} of this kind, and {needs.fewest_alike} are needed to compare"
        return None


def _no_neighbour(node: Node) -> str | None:
    """Why two jobs with a GPU each cannot be side by side on a node."""
    if node.gpus.mig:
        return "jobs share these GPUs: they are cut into instances of MIG"
    if min(node.gpus.count, node.cpus) < 2:
        return "two jobs cannot have a GPU and a CPU each"
    return None


def _parts(job: Job) -> tuple[Job, ...]:
    """The job, or those that run side by side on its node in its place."""
    if job.payload != isolation.NAME:
        return (job,)
    return tuple(
        replace(
            job,
            name=f"{job.name}-{part}",
            config={**job.config, "part": part},
            part=Part(
                0 if part == "none" else 1,
                min(_PART_MB, job.nodes[0].memory_mb // (len(PARTS) + 1)),
            ),
        )
        for part in PARTS
    )


def _at_meeting(job: Job, meeting: str) -> Job:
    if job.part is None:
        return job
    return replace(job, config={**job.config, "meeting": f"{meeting}-{job.hosts[0]}"})


def _node_job(
    suite: Suite,
    node: Node,
    nodes: Sequence[str],
    partition: str,
    payload: str,
    checks: tuple[str, ...],
) -> Job:
    template = suite.node[payload]["cuda" if node.gpus.real else "cpu"]
    config = dict(template.config)
    if payload == "node":
        # The launcher makes the credential.
        config |= {"munge_credential": None, "torch": "torch" in checks}
        if "network" in checks:
            config |= {"other_nodes": network.others(node.name, nodes)}
    if payload == "cuda":
        config |= {"gpus": node.gpus.devices, "mig": bool(node.gpus.mig)}
    if payload == "dcgm":
        config |= {"gpus": node.gpus.count}
    if payload == "host" and "shared_fs" in checks:
        config |= {"shared_filesystems": list(node.shared_filesystems)}
    if payload == "host_speed":
        compared = "host_stragglers" in checks
        config |= {
            "disk": compared or "disk" in checks,
            "memory": compared or "host_memory" in checks,
            "cores": compared or "cores" in checks,
        }
    if payload == "soak":
        device = "cuda" if node.gpus.real else "cpu"
        gpus = max(1, node.gpus.devices)
        config |= {"device": device, "gpus": gpus, "mig": bool(node.gpus.mig)}
    if payload == "compute":
        device = "cuda" if node.gpus.real else "cpu"
        config |= {"device": device, "gpus": node.gpus.devices, "mig": bool(node.gpus.mig)}
    return Job(
        name=f"{payload}-{node.name}",
        payload=payload,
        tier=Tier.NODE,
        subject=Subject.node(node.name),
        nodes=(node,),
        ranks_per_node=1,
        backend=None,
        partition=partition,
        config=config,
        queue_limit_s=suite.queue_limit_s,
        run_limit_s=template.run_limit_s,
        checks=checks,
        cpus_per_task=node.cpus if payload in _ALONE else None,
        environment=node.environment,
    )


def _groups(
    suite: Suite,
    nodes: Sequence[Node],
    homes: Mapping[str, str],
    checks: Sequence[str],
    paired: bool,
    declaration: Declaration,
) -> tuple[Group, ...]:
    if not checks and not paired:
        return ()
    alike: dict[_Kind, list[Node]] = {}
    for node in nodes:
        alike.setdefault(_kind(node, homes[node.name]), []).append(node)
    others = [node for node in declaration.nodes.values() if node not in nodes]
    of_partition = {partition.name: partition.nodes for partition in declaration.partitions}
    groups = []
    for kind, members in alike.items():
        name = _group_name(kind, list(alike))
        suffix = "" if len(alike) == 1 else f"-{name}"
        jobs = tuple(
            _cluster_job(suite, check, suffix, name, tuple(members), kind.partition)
            for check in checks
            if _no_use_together(check, members) is None
        )
        pair = None
        if suite.cluster[pairs.PAYLOAD]:
            two = (members[0], members[-1])
            pair = _cluster_job(suite, pairs.NAME, suffix, name, two, kind.partition)
        referees = tuple(
            node
            for node in others
            if node.name in of_partition[kind.partition] and _kind(node, kind.partition) == kind
        )
        groups.append(Group(name, tuple(members), kind.partition, jobs, pair, referees))
    return tuple(groups)


def _kind(node: Node, partition: str) -> "_Kind":
    gpus = (node.gpus.count, node.gpus.request)
    return _Kind(node.hardware, *gpus, node.fabric, partition, node.environment)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What nodes have in common that train together."""

    hardware: str
    gpus: int
    gres: str
    fabric: str
    partition: str
    environment: tuple[tuple[str, str], ...]


def _group_name(kind: _Kind, kinds: Sequence[_Kind]) -> str:
    """The hardware's name, and of the rest only what tells this group from the others."""
    rivals = [other for other in kinds if other.hardware == kind.hardware]
    environments = list(dict.fromkeys(other.environment for other in rivals))
    requests = list(dict.fromkeys(other.gres for other in rivals if other.gpus == kind.gpus))
    parts = [kind.hardware]
    if len({other.gpus for other in rivals}) > 1:
        parts.append(f"x{kind.gpus}")
    if len(requests) > 1:
        parts.append(f"gres{requests.index(kind.gres) + 1}")
    if len({other.fabric for other in rivals}) > 1:
        parts.append(kind.fabric)
    if len({other.partition for other in rivals}) > 1:
        parts.append(kind.partition)
    if len(environments) > 1:
        parts.append(f"env{environments.index(kind.environment) + 1}")
    return "-".join(parts)


def _cluster_job(
    suite: Suite, check: str, suffix: str, group: str, nodes: tuple[Node, ...], partition: str
) -> Job:
    payload = CHECKS[check].payload
    assert payload is not None  # only slurm_state has none, and it is of the node tier
    backend = _backend(nodes[0])
    pool: tuple[Node, ...] = ()
    if payload in _PARTS:
        pool, nodes = nodes, tuple(_PARTS[payload](nodes))
    template: JobTemplate = suite.cluster[payload][backend]
    config: dict[str, Any] = {"backend": backend, **template.config}
    ranks = _ranks_per_node(nodes[0]) * len(nodes)
    if "microbatches" in config:  # 1F1B needs one for every stage at least
        config["microbatches"] = max(config["microbatches"], min(ranks, LONGEST_CHAIN))
    if payload in (checkpoint.PAYLOAD, resume.PAYLOAD):
        config |= {"filesystem": _shared_by_all(pool)[0], "stamp": ""}
    config["cpus_per_rank"] = _cpus_per_rank(nodes)
    ceiling = suite.largest_bytes.get(nodes[0].fabric) if len(nodes) > 1 else None
    if "sizes_bytes" in config:
        sizes = config["sizes_bytes"]
        most = [limit for limit in (ceiling, nodes[0].gpus.instance_bytes) if limit]
        fitting = [size for size in sizes if all(size <= limit for limit in most)]
        config["sizes_bytes"] = fitting or [min(sizes)]
    return Job(
        name=f"{check}{suffix}",
        payload=payload,
        tier=Tier.CLUSTER,
        subject=Subject(group, tuple(node.name for node in nodes)),
        nodes=nodes,
        ranks_per_node=_ranks_per_node(nodes[0]),
        backend=backend,
        partition=partition,
        config=config,
        queue_limit_s=suite.queue_limit_s,
        run_limit_s=template.run_limit_s,
        checks=(check,),
        cpus_per_task=_cpus_per_rank(nodes),
        environment=_environment(payload, backend, nodes[0]),
        pool=pool,
    )


def _environment(payload: str, backend: str, node: Node) -> tuple[tuple[str, str], ...]:
    if payload != "same_sums" or backend != "nccl":
        return node.environment
    return tuple((dict(node.environment) | dict(_REPEATABLE)).items())


def _shared_by_all(nodes: Sequence[Node]) -> list[str]:
    """The shared filesystems that are declared for each of these nodes, in the first one's order.

    A group's jobs use the first.
    """
    return [
        path
        for path in nodes[0].shared_filesystems
        if all(path in node.shared_filesystems for node in nodes)
    ]


def _no_use_together(check: str, nodes: Sequence[Node]) -> str | None:
    """Why a check has nothing to do on nodes that work together, by what is declared."""
    if check in (checkpoint.NAME, resume.NAME) and not _shared_by_all(nodes):
        return "no shared filesystem is declared"
    return None
