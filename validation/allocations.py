"""Which jobs of a tier share one allocation, as steps of it.

One allocation is one job to Slurm: it waits once, counts once against the user's limits, and the
accounting shows the tier in one place. It is never more than a convenience: nodes that others use,
or that are switched off, get jobs of their own, and where Slurm grants no allocation, or takes it
back, every step becomes such a job (see slurm/launcher.py).
"""

from collections.abc import Sequence

from validation.checks import pairs
from validation.model import Allocation, Job
from validation.payloads import isolation


def share(
    lanes: Sequence[Sequence[Job]], free: frozenset[str], most: int
) -> tuple[Allocation, ...]:
    """Allocations for lanes whose nodes are free, of at most `most` lanes each.

    More would hold nodes for which there is no step yet. Lanes on nodes of their own, and pairs of
    nodes, go together where their jobs ask for the same; a lane alone has an allocation if it is of
    several jobs.
    """
    alike: dict[tuple[object, ...], list[tuple[Job, ...]]] = {}
    for lane in map(tuple, lanes):
        kinds = {_kind(job) for job in lane}
        if len(kinds) == 1 and free.issuperset(lane[0].hosts):
            together = len(lane[0].hosts) == 1 or lane[0].payload == pairs.PAYLOAD
            several = () if together else lane[0].hosts
            cpus = max(job.whole.cpus_per_task or 0 for job in lane)
            alike.setdefault((_shape(lane[0]), cpus, several), []).append(lane)
    allocations = []
    for same in alike.values():
        # Those that share a node begin together, or wait for each other in vain.
        step = most - most % len(isolation.PARTS) if same[0][0].part else most
        for chunk in (same[start : start + step] for start in range(0, len(same), step)):
            if sum(map(len, chunk)) > 1:
                allocations.append(Allocation(f"steps-{chunk[0][0].name}", tuple(chunk)))
    return tuple(allocations)


def _kind(job: Job) -> tuple[object, ...]:
    """What the jobs of a lane must have in common."""
    return (job.hosts, _shape(job))


def _shape(job: Job) -> tuple[object, ...]:
    """What all jobs of an allocation must ask for alike, on each node."""
    return (job.tier, job.partition, job.whole.gres, job.ranks_per_node, job.part is None)
