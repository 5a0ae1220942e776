"""A plan, for people (`--dry-run`) and as data (`plan.json`)."""

import json
from collections.abc import Callable, Sequence

from cluster.hostlist import compress
from cluster.text import duration
from cluster.watching import fitted, table
from validation.model import Job, PlannedCheck, Tier
from validation.plan import ALWAYS, AT_ONCE, MOST_ROUNDS, Plan
from validation.report import words
from validation.report.json import plain
from validation.thresholds.applied import JUDGED_BY_SPEED, applied

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
    document = {
        "schema": 1,
        "run": plan.run_id,
        "suite": plan.suite,
        "cluster": plan.cluster,
        "python": plan.python,
        "at_most": {"seconds": plan.longest_s, "gpu_hours": round(plan.gpu_hours, 4)},
        "nodes": plain(plan.nodes),
        "checks": plain(plan.checks),
        "jobs": [_job(job) for job in plan.jobs],
        "thresholds": plain(plan.rules),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _job(job: Job) -> dict[str, object]:
    return {
        **{name: value for name, value in plain(job).items() if name != "pool"},
        "nodes": list(job.hosts),
        "ranks": job.ranks,
        "gres": job.gres,
    }
