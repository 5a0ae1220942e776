"""Declaration, suite and thresholds become an explicit plan: what runs where, for how long.

The plan is complete before anything is submitted: every judgement that the run owes stands in it,
so that one that never comes is noticed. `--dry-run` prints it.
"""

import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from cluster import hostlist
from cluster.declaration import Declaration, Node, Partition
from cluster.errors import UsageError
from validation import thresholds
from validation.checks import checkpoint, pairs, resume
from validation.checks.registry import CHECKS
from validation.localise import Topology
from validation.model import Job, PlannedCheck, Subject, Tier
from validation.plan.jobs import (
    at_meeting,
    contained,
    groups_of,
    node_job,
    parts_of,
    payloads_of,
    ranks_per_node,
    shrink,
    with_nonce,
)
from validation.plan.model import (
    AT_ONCE,
    MOST_ROUNDS,
    Group,
    Plan,
    Selection,
    cluster_batches,
)
from validation.plan.skips import Others, no_use_together, skipped
from validation.suites import Suite

__all__ = [
    "ALWAYS",
    "AT_ONCE",
    "MOST_ROUNDS",
    "Group",
    "Plan",
    "Selection",
    "cluster_batches",
    "make",
    "shrink",
]

# Decides which nodes may be given a job, so no selection leaves it out.
ALWAYS = "slurm_state"


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
    chosen, declared = Others.of(nodes), Others.of([*declaration.nodes.values()])
    node_jobs = tuple(
        job
        for node in nodes
        for payload, checks in payloads_of(node_checks, node, chosen, container).items()
        for job in parts_of(node_job(suite, node, everybody, homes[node.name], payload, checks))
    )
    meeting = secrets.token_hex(4)
    node_jobs = tuple(at_meeting(job, f"{run_id}-{meeting}") for job in node_jobs)
    groups = groups_of(suite, nodes, homes, cluster_checks, pairs.NAME in names, declaration)

    def finished(jobs: Sequence[Job]) -> tuple[Job, ...]:
        named = (with_nonce(job, run_id, secret) for job in jobs)
        return tuple(contained(job, container) for job in named)

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
            skipped(name, node, container) or declared.too_few(name, node),
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
            ranks = ranks_per_node(group.nodes[0]) * len(group.nodes)
            alone = ranks == 1 and len(declaration.nodes) > 1
            unproven = _alone(group.nodes[0], nodes) if alone else None
            skip = no_use_together(name, group.nodes)
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
