"""A plan, for people (`--dry-run`) and as data (`plan.json`).

`plan.json` is made for large clusters: what is the same of many nodes stands there once, with a
node list. `{node}` in the name and configuration of a job stands for the name of its node.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from cluster.declaration import Node
from cluster.hostlist import compress
from cluster.text import duration
from cluster.watching import fitted, table
from validation.model import Job, PlannedCheck, Subject, Tier
from validation.plan import ALWAYS, AT_ONCE, MOST_ROUNDS, Plan
from validation.report import words
from validation.report.json import compact, document, plain
from validation.thresholds.applied import JUDGED_BY_SPEED, applied

SCHEMA = 2

_T = TypeVar("_T")

_HEADER = ("tier", "job", "nodes", "ranks", "GPUs", "backend", "partition", "limit", "checks")
_FOLD = 8  # jobs of the node tier on more nodes than this are one row


def render(plan: Plan, width: int | None = None) -> str:
    """`width` is that of the terminal."""
    nodes = words.count(len(plan.nodes), "node")
    gpus = words.count(sum(node.gpus.count for node in plan.nodes), "GPU")
    lines = [f"plumbline · suite {plan.suite} · cluster {plan.cluster} · {nodes}, {gpus}", ""]
    cells: list[tuple[str, ...]] = [_HEADER]
    for payload in dict.fromkeys(job.payload for job in plan.node_jobs):
        jobs = [job for job in plan.node_jobs if job.payload == payload]
        cells += [_folded(payload, jobs)] if len(jobs) > _FOLD else map(_row, jobs)
    cells += [_row(job) for group in plan.groups for job in group.jobs]
    lines += [line for row in table(cells, width) for line in row]
    lines.append("")
    lines += _unlike_others(plan, "is skipped", lambda check: check.skip)
    lines += _unlike_others(
        plan, "cannot pass", lambda check: None if check.skip else check.unproven
    )
    if (container := plan.submission.container) is not None:
        inside = dict.fromkeys(job.payload for job in plan.jobs if job.container)
        lines.append(
            f"  in the container {container.image}: {', '.join(inside)}; the others run on the "
            "nodes themselves"
        )
    if len(plan.groups) > 1:
        names = "; ".join(
            f"{group.name}: {compress(node.name for node in group.nodes)}" for group in plan.groups
        )
        lines.append(f"  the cluster tier runs once for each kind of node: {names}")
    if unknown := [name for name, rules in plan.rules.items() if rules.model is None]:
        lines.append(
            f"  no thresholds file for {', '.join(unknown)}: bandwidth will be inconclusive"
        )
    lines += _without_threshold(plan)
    for group in plan.paired:
        assert group.pair is not None  # they are paired
        limit = duration(group.pair.run_limit_s)
        lines.append(
            f"  pairs of {group.name}: all {len(group.nodes)} nodes two by two, at most "
            f"{MOST_ROUNDS} rounds of up to {limit}; where NCCL uses several network cards, as "
            "many for each of them"
        )
    if any(check.check == ALWAYS for check in plan.checks):
        lines.append(
            f"  slurm_state needs no job; node jobs run side by side, {AT_ONCE} at once; those of "
            "the cluster tier one after another; on free nodes they are steps of one allocation"
        )
    lines.append(
        f"  at most {duration(plan.longest_s)} and {words.gpu_hours(plan.gpu_hours)}, "
        "if every job waits and runs up to its limit"
    )
    return "\n".join(part for line in lines for part in fitted(line, width)) + "\n"


def _unlike_others(
    plan: Plan, words: str, reason: Callable[[PlannedCheck], str | None]
) -> list[str]:
    """Checks that have a reason not to pass; nodes that share check and reason together."""
    subjects: dict[tuple[Tier, str, str], list[str]] = {}
    for check in plan.checks:
        if why := reason(check):
            subjects.setdefault((check.tier, check.check, why), []).append(check.subject.name)
    lines = []
    for (tier, name, why), names in subjects.items():
        where = compress(names) if tier is Tier.NODE else ", ".join(names)
        lines.append(f"  {name} on {where} {words}: {why}")
    return lines


def _without_threshold(plan: Plan) -> list[str]:
    """What this run will measure and cannot judge, and what would make it judged."""
    entries: dict[tuple[str, str], list[str]] = {}
    for group in plan.groups:
        node = group.nodes[0]
        if plan.rules[node.hardware].model is None:
            continue
        for item in applied(plan, node.name):
            if item.check in JUDGED_BY_SPEED and not (item.threshold or item.words):
                entries.setdefault((item.check, item.what), []).append(group.name)
    lines = [
        f"  {check} on {', '.join(groups)} will be inconclusive: no threshold for {what}"
        for (check, what), groups in entries.items()
    ]
    if lines:
        lines.append(
            "  repeat such a run with --record-baseline DIR to record thresholds of this cluster"
        )
    return lines


def _folded(payload: str, jobs: Sequence[Job]) -> tuple[str, ...]:
    return (
        "node",
        f"{payload}-… ({len(jobs)} jobs)",
        compress(job.hosts[0] for job in jobs),
        "1",
        "all",
        "–",
        ", ".join(dict.fromkeys(job.partition for job in jobs)),
        f"{jobs[0].run_limit_s} s",
        ", ".join(jobs[0].checks),
    )


def _row(job: Job) -> tuple[str, ...]:
    ranks = "1" if job.tier is Tier.NODE else f"{len(job.nodes)} × {job.ranks_per_node}"
    return (
        job.tier.value,
        job.name,
        compress(job.hosts),
        ranks,
        str(sum(node.gpus.count for node in job.nodes)),
        job.backend or "–",
        job.partition,
        f"{job.run_limit_s} s",
        ", ".join(job.checks),
    )


def as_json(plan: Plan) -> str:
    head = {
        "schema": SCHEMA,
        "run": plan.run_id,
        "suite": plan.suite,
        "cluster": plan.cluster,
        "python": plan.python,
        "at_most": {"seconds": plan.longest_s, "gpu_hours": round(plan.gpu_hours, 4)},
        "thresholds": plain(plan.rules),
    }
    lists = {
        "nodes": [_declared(nodes) for nodes in _alike(plan.nodes, _but_for_its_name)],
        "checks": [_checks(checks) for checks in _alike(plan.checks, _but_for_its_node)],
        "jobs": [_jobs(jobs) for jobs in _alike(plan.jobs, _kind_of_job)],
    }
    return "".join(document(head, lists))


def _alike(items: Iterable[_T], kind: Callable[[_T], Hashable]) -> Iterable[list[_T]]:
    groups: dict[Hashable, list[_T]] = {}
    for item in items:
        groups.setdefault(kind(item), []).append(item)
    return groups.values()


def _but_for_its_name(node: Node) -> Hashable:
    return replace(node, name="")


def _but_for_its_node(check: PlannedCheck) -> Hashable:
    return replace(check, subject=Subject("", ())) if _of_one_node(check.subject) else check


def _kind_of_job(job: Job) -> Hashable:
    return compact(_pattern(job)), tuple(job.config)


def _of_one_node(subject: Subject) -> bool:
    return subject == Subject.node(subject.name)


def _declared(nodes: Sequence[Node]) -> dict[str, Any]:
    declared = plain(nodes[0])
    del declared["name"]
    return {"nodes": compress(node.name for node in nodes), **declared}


def _checks(checks: Sequence[PlannedCheck]) -> dict[str, Any]:
    first = checks[0]
    return {
        "check": first.check,
        "tier": first.tier.value,
        "together": None if _of_one_node(first.subject) else first.subject.name,
        "nodes": compress(name for check in checks for name in check.subject.nodes),
        "skip": first.skip,
        "unproven": first.unproven,
    }


def _jobs(jobs: Sequence[Job]) -> dict[str, Any]:
    """Jobs of one pattern. What `config` has of each node by itself is in `config_of`."""
    first = jobs[0]
    pattern = _pattern(first)
    configs = [_config(job) for job in jobs]
    same = [name for name in first.config if all(c[name] == configs[0][name] for c in configs)]
    apart = [name for name in first.config if name not in same]
    return {
        **pattern,
        "nodes": compress(name for job in jobs for name in job.hosts),
        "config": {name: configs[0][name] for name in same},
        "config_of": {
            name: {job.hosts[0]: plain(job.config[name]) for job in jobs} for name in apart
        },
    }


def _pattern(job: Job) -> dict[str, Any]:
    """A job without its node, or of several nodes the whole job without its configuration."""
    alone = _of_one_node(job.subject)
    shown = {
        "name": _of_its_node(job, job.name),
        "together": None if alone else job.subject.name,
        "nodes": "" if alone else compress(job.hosts),
    }
    left_out = (*shown, "subject", "pool", "config")
    rest = {
        field.name: plain(getattr(job, field.name))
        for field in fields(job)
        if field.name not in left_out
    }
    return {**shown, **rest, "ranks": job.ranks, "gres": job.gres}


def _config(job: Job) -> dict[str, Any]:
    return {name: _of_its_node(job, plain(value)) for name, value in job.config.items()}


def _of_its_node(job: Job, value: Any) -> Any:
    """A text with the name of the job's node in it, as that of each other node is."""
    if isinstance(value, str) and _of_one_node(job.subject):
        return value.replace(f"-{job.subject.name}", "-{node}")
    return value
