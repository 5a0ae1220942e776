"""What a plan is: nodes, jobs, and every judgement that the run owes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from cluster.declaration import NO_WISHES, Node, Submission
from validation import localise
from validation.checks import pairs
from validation.localise import Topology
from validation.model import Job, PlannedCheck, Subject
from validation.thresholds import Rules

AT_ONCE = 64  # jobs of the node tier at once

# Jobs that measure: each has the network to itself.
_MEASURED = ("all_reduce", "collectives", "scaling")

# Of pairs: one, and what finds the name of what is bad.
MOST_ROUNDS = localise.MOST_ROUNDS

_CARDS = "NCCL_IB_HCA"  # the variable that says which network cards NCCL may use


@dataclass(frozen=True, slots=True)
class Selection:
    """What the command line asks for; None is everything."""

    only: tuple[str, ...] | None = None
    skip: tuple[str, ...] = ()
    nodes: str | None = None
    exclude: str | None = None
    partition: str | None = None
    submission: Submission = NO_WISHES


def backend_of(node: Node) -> str:
    return "nccl" if node.gpus.real else "gloo"


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
            environment = tuple(sorted({**dict(environment), _CARDS: f"={rail}"}.items()))
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
        return backend_of(self.nodes[0])

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
