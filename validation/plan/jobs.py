"""The jobs of a plan: of each node by itself, and of nodes that are alike together."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.declaration import Container, Declaration, Node
from validation.checks import checkpoint, isolation, network, pairs, resume
from validation.checks.pipeline import LONGEST_CHAIN
from validation.checks.registry import CHECKS
from validation.model import IMPORT_LIMIT_S, Job, Part, Subject, Tier
from validation.payloads.isolation import PARTS
from validation.plan.model import Group, backend_of
from validation.plan.skips import Others, no_use_together, shared_by_all, skipped
from validation.suites import JobTemplate, Suite

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


def ranks_per_node(node: Node) -> int:
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
    share = min(node.cpus // ranks_per_node(node) for node in nodes)
    return max(1, share - share % 2 if share > 1 else share)


def payloads_of(
    checks: Sequence[str],
    node: Node,
    others: "Others",
    container: Container | None,
) -> dict[str, tuple[str, ...]]:
    """A node's payloads, in the order in which their checks stand, and the checks of each."""
    payloads: dict[str, tuple[str, ...]] = {}
    for name in checks:
        payload = CHECKS[name].payload
        why_not = skipped(name, node, container) or others.too_few(name, node)
        if payload is not None and why_not is None:
            payloads[payload] = (*payloads.get(payload, ()), name)
    return payloads


def parts_of(job: Job) -> tuple[Job, ...]:
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


def at_meeting(job: Job, meeting: str) -> Job:
    if job.part is None:
        return job
    return replace(job, config={**job.config, "meeting": f"{meeting}-{job.hosts[0]}"})


def node_job(
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


def groups_of(
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
            if no_use_together(check, members) is None
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
    backend = backend_of(nodes[0])
    pool: tuple[Node, ...] = ()
    if payload in _PARTS:
        pool, nodes = nodes, tuple(_PARTS[payload](nodes))
    template: JobTemplate = suite.cluster[payload][backend]
    config: dict[str, Any] = {"backend": backend, **template.config}
    ranks = ranks_per_node(nodes[0]) * len(nodes)
    if "microbatches" in config:  # 1F1B needs one for every stage at least
        config["microbatches"] = max(config["microbatches"], min(ranks, LONGEST_CHAIN))
    if payload in (checkpoint.PAYLOAD, resume.PAYLOAD):
        config |= {"filesystem": shared_by_all(pool)[0], "stamp": ""}
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
        ranks_per_node=ranks_per_node(nodes[0]),
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


def with_nonce(job: Job, run_id: str, secret: str) -> Job:
    config = {**job.config, "nonce": f"{run_id}-{secret}-{job.name}"}
    if "stamp" in config:  # what jobs of one run and group have in common
        config["stamp"] = f"{run_id}-{secret}-{job.subject.name}"
    return replace(job, config=config)


def contained(job: Job, container: Container | None) -> Job:
    """The job in the container, where its payload is what users run.

    What a payload asks the node itself for stays outside, because a container hides it: its disks,
    MUNGE's socket and programs, the kernel's log, the driver's own list of GPUs. Inside runs what
    brings software with it: CUDA's start, what GPUs compute, and all ranks.
    """
    if container is None or (job.tier is Tier.NODE and job.payload not in _IN_CONTAINERS):
        return job
    return replace(job, container=container, run_limit_s=job.run_limit_s + IMPORT_LIMIT_S)


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
