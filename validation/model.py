"""The words of a run: what is asked, what came back, what is judged.

Nothing here does anything: no files, no processes, no clock. Everything else imports this
module; it imports nothing of the package.
"""

import enum
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.declaration import Container, Node
from cluster.slurm.node_states import NodeState

Value = int | float | str


class Verdict(enum.Enum):
    """Outcome of one judgement. Only PASS and WARN, and a declared SKIP, let a run end green."""

    PASS = "pass"
    WARN = "warn"  # inside the fail band's edge
    FAIL = "fail"
    SKIP = "skip"  # does not apply, by the inventory's declaration
    INCONCLUSIVE = "inconclusive"  # ran, but nothing to judge it by; or waited in vain

    @property
    def green(self) -> bool:
        return self in (Verdict.PASS, Verdict.WARN)


# Of every judgement that was still owed when somebody ended the run.
INTERRUPTED = "not run: the run was interrupted"

# What outweighs what when several verdicts are put into one.
_WEIGHT = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.WARN, Verdict.PASS, Verdict.SKIP)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that outweighs the others; none at all proves nothing."""
    return min(verdicts, key=_WEIGHT.index, default=Verdict.INCONCLUSIVE)


class Tier(enum.Enum):
    """Later tiers use only what passed the earlier ones."""

    NODE = "node"
    CLUSTER = "cluster"


# --- what is asked ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subject:
    """What a verdict is about: a node, or a set of nodes that worked together."""

    name: str
    nodes: tuple[str, ...]

    @classmethod
    def node(cls, name: str) -> "Subject":
        return cls(name, (name,))


@dataclass(frozen=True, slots=True)
class Key:
    """Which judgement: one check about one subject."""

    check: str
    subject: str


@dataclass(frozen=True, slots=True)
class PlannedCheck:
    """A judgement that this run owes.

    `skip` says why it does not apply, by declaration. `unproven` says why this run cannot make it
    although it applies: it was asked about too few nodes, or they are too unlike each other. What
    a node does alone may still be looked at, and can fail.
    """

    check: str
    tier: Tier
    subject: Subject
    skip: str | None = None
    unproven: str | None = None

    @property
    def key(self) -> Key:
        return Key(self.check, self.subject.name)

    def allowed(self, result: "Result") -> "Result":
        """What the plan lets a result of this check be worth.

        A SKIP that no declaration allows is a FAIL, and nothing green proves what this run cannot.
        """
        if result.verdict is Verdict.SKIP and self.skip is None:
            message = f"skipped although the declaration does not allow it: {result.message}"
            return Result(result.check, result.tier, result.subject, Verdict.FAIL, message)
        if result.verdict.green and self.unproven is not None:
            verdict, message = Verdict.INCONCLUSIVE, self.unproven
            return replace(result, verdict=verdict, message=message, blamed=())
        return result


# How long Slurm may take to grant an allocation, and a step of it to start: the nodes are free, so
# either takes seconds. After that every step is a job of its own, with the limits of the suite.
GRANT_LIMIT_S = 60

# How long an allocation that has its nodes may wait for their prologs: one node that does not
# answer must not hold up all others.
READY_LIMIT_S = 30

# What a job that has its nodes may take until its tasks run, at least, once others of its tier have
# started: the limit is many times what the slowest of them took, and no more than the suite's.
START_FLOOR_S = 30

# How long a node may take to fetch and unpack a container's image before its task starts: 20 GB are
# 160 s at 1 Gbit/s, unpacked while others do the same. A file on a shared filesystem takes seconds.
IMPORT_LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class Part:
    """What a job asks for that leaves room for others on its node, such as one GPU of eight."""

    gpus: int
    memory_mb: int


@dataclass(frozen=True, slots=True)
class Job:
    """One srun: which payload, where, how many ranks, how long."""

    name: str
    payload: str
    tier: Tier
    subject: Subject
    nodes: tuple[Node, ...]
    ranks_per_node: int
    backend: str | None
    partition: str
    config: Mapping[str, object]
    queue_limit_s: int
    run_limit_s: int
    checks: tuple[str, ...]
    cpus_per_task: int | None = None  # given, the job has its nodes to itself, with all they have
    environment: tuple[tuple[str, str], ...] = ()
    container: Container | None = None  # without one it runs on the node itself
    part: Part | None = None  # without one it asks for all GPUs of its nodes
    pool: tuple[Node, ...] = ()  # of which `nodes` are a part; () where it takes all there are

    @property
    def candidates(self) -> tuple[str, ...]:
        """The names of the nodes that it may run on."""
        return tuple(node.name for node in self.pool or self.nodes)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    @property
    def ranks(self) -> int:
        return self.ranks_per_node * len(self.nodes)

    @property
    def gres(self) -> str:
        """What it asks for on each node; empty without GPUs."""
        request = self.nodes[0].gpus.request
        if self.part is None:
            return request
        if self.part.gpus == 0:
            return "none"
        return f"{request.partition(',')[0].rpartition(':')[0]}:{self.part.gpus}"

    @property
    def whole(self) -> "Job":
        """The job that has all of its nodes, so that several that ask for a part run there."""
        if self.part is None:
            return self
        return replace(self, part=None, cpus_per_task=self.nodes[0].cpus)

    @property
    def start_limit_s(self) -> int:
        """How long it may take as a step of an allocation until its tasks run."""
        return GRANT_LIMIT_S + (IMPORT_LIMIT_S if self.container else 0)

    @property
    def start_floor_s(self) -> int:
        """No less is waited for its tasks, however fast others start. Images take their time."""
        return IMPORT_LIMIT_S if self.container else START_FLOOR_S

    @property
    def gpu_hours(self) -> float:
        """What the job can cost at most, or its part of an allocation. A virtual GPU is free."""
        real = [node.gpus.count for node in self.nodes if node.gpus.real]
        gpus = sum(real) if self.part is None else self.part.gpus * len(real)
        return gpus * (self.start_limit_s + self.run_limit_s) / 3600

    @property
    def longest_s(self) -> int:
        """Until there is a reply at the latest: no allocation, no step, the queue, the run."""
        return GRANT_LIMIT_S + self.start_limit_s + self.queue_limit_s + self.run_limit_s


@dataclass(frozen=True, slots=True)
class Allocation:
    """Nodes that Slurm is asked for once, for jobs that then are steps on them.

    `lanes` run side by side, the jobs of a lane one after another.
    """

    name: str
    lanes: tuple[tuple[Job, ...], ...]

    @property
    def jobs(self) -> tuple[Job, ...]:
        return tuple(job for lane in self.lanes for job in lane)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple({node.name: node for job in self.jobs for node in job.nodes}.values())


# --- what came back --------------------------------------------------------------------------


class Outcome(enum.Enum):
    """How a job ended, before anybody looks at its answer."""

    EXITED = "exited"
    QUEUE_LIMIT = "queue_limit"  # never started
    RUN_LIMIT = "run_limit"  # started, did not end
    CANCELLED = "cancelled"
    NOT_SUBMITTED = "not_submitted"  # srun could not be started
    LOST = "lost"  # nothing is known: the login node or the launcher went away
    SKIPPED = "skipped"  # a job before it waited in vain on the same nodes


@dataclass(frozen=True, slots=True)
class MungeReply:
    """The login node's half of the MUNGE check."""

    encode_error: str | None = None  # why the login node could not make a credential
    decode_exit: int | None = None  # unmunge's exit status for the node's credential
    decode_status: str | None = None  # its STATUS line


@dataclass(frozen=True, slots=True)
class Start:
    """A task that said it started: where, at what time by its clock, and when we heard of it."""

    host: str
    node_ns: int
    arrival_ns: int  # by the login node's clock
    received_ns: int | None = None  # when it had read what we sent it, by its clock


@dataclass(frozen=True, slots=True)
class Reply:
    """What is known about one job once it is over."""

    job: str
    outcome: Outcome
    exit_code: int | None = None
    job_id: str | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    submitted_ns: int | None = None
    started_ns: int | None = None
    fed_ns: int | None = None  # when we sent the payload to the tasks, by the login node's clock
    document_ns: int | None = None  # when the answer reached the login node, by its clock
    ended_ns: int | None = None
    starts: tuple[Start, ...] = ()  # the first task of each node
    reason: str = ""  # Slurm's reason for waiting, or why nothing is known
    busy: bool = False  # another user's job held a node that this one needed
    states: tuple[
        "NodeState", ...
    ] = ()  # what Slurm said of the job's nodes, after it if it failed
    munge: MungeReply | None = None

    @property
    def start_s(self) -> float | None:
        """How long after it was submitted the last node's first task began."""
        if self.submitted_ns is None or not self.starts:
            return None
        return (max(start.arrival_ns for start in self.starts) - self.submitted_ns) / 1e9

    @property
    def seconds(self) -> float | None:
        if self.submitted_ns is None or self.ended_ns is None:
            return None
        return (self.ended_ns - self.submitted_ns) / 1e9


@dataclass(frozen=True, slots=True)
class Contact:
    """Nodes whose slurmd the login node did not reach, and at which address it tried."""

    refused: Mapping[str, str] = field(default_factory=dict)  # nobody listens there
    mute: Mapping[str, str] = field(default_factory=dict)  # nothing came back
    # When each node and its slurmd were started, in Slurm's words.
    boots: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accounting:
    """What Slurm is configured to account with, and whether that answers."""

    kind: str  # AccountingStorageType
    configured: bool = True
    error: str = ""


# --- what is judged --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    value: Value
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a value was held against, and where that number comes from."""

    op: str  # "≥", "≤", "=" or "in"
    value: Value
    unit: str
    provenance: str  # declared, defined, datasheet, gate, recorded or derived
    source: str
    warn: float | None = None  # between this and `value` a value passes with a warning
    date: str = ""  # when the source said so, of a number out of a thresholds file
    place: str = ""  # the file and the rule in it

    def judge(self, value: Value) -> Verdict:
        """FAIL for anything that does not clearly satisfy the threshold, NaN included."""
        if self.op == "=":
            return Verdict.PASS if value == self.value else Verdict.FAIL
        if isinstance(value, str) or isinstance(self.value, str) or not math.isfinite(value):
            return Verdict.FAIL
        if self.op == "≥":
            fails, warns = value < self.value, self.warn is not None and value < self.warn
        elif self.op == "≤":
            fails, warns = value > self.value, self.warn is not None and value > self.warn
        else:
            return Verdict.FAIL
        return Verdict.FAIL if fails else Verdict.WARN if warns else Verdict.PASS


@dataclass(frozen=True, slots=True)
class Rank:
    rank: int
    local_rank: int
    host: str
    device: str
    gpu: str | None = None
    gpu_uuid: str | None = None
    torch: str | None = None
    nccl: str | None = None
    container: str | None = None  # the system of the one it ran in


@dataclass(frozen=True, slots=True)
class Proof:
    """What really ran, in the job's own words."""

    hosts: tuple[str, ...]
    job_id: str | None = None
    backend: str | None = None
    world_size: int | None = None
    torch: str | None = None
    nccl: str | None = None
    python: str | None = None
    ranks: tuple[Rank, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # what steers NCCL and its like, of rank 0
    container: str | None = None  # the system of the one it ran in, of rank 0


@dataclass(frozen=True, slots=True)
class Sample:
    """Something measured that no threshold was known for, and the rule that would have judged it.

    table  of a thresholds file: collectives, gemm, memory, copies or peers; nvml_names for the
           name of a board
    keys   what the rule would say of when it holds, in the words of the file
    """

    table: str
    keys: tuple[tuple[str, Any], ...]
    value: float
    unit: str
    repetitions: int  # that the value is the median of


@dataclass(frozen=True, slots=True)
class Result:
    """One judgement. A pass without something it was held against cannot be made."""

    check: str
    tier: Tier
    subject: Subject
    verdict: Verdict
    message: str = ""  # one sentence: what was seen, what was expected
    value: Metric | None = None  # the number that was judged
    threshold: Threshold | None = None
    metrics: tuple[Metric, ...] = ()
    proof: Proof | None = None
    # The nodes at fault, where that is known: () when it is none of the subject's. None for a
    # failure of several nodes says that it is one of them, and that nobody knows which.
    blamed: tuple[str, ...] | None = None
    unjudged: tuple[Sample, ...] = ()  # what a baseline can be recorded from
    cause: str = ""  # why it is not green, in the words of `causes.name`

    def __post_init__(self) -> None:
        if self.verdict.green and (self.threshold is None or self.value is None):
            raise ValueError(f"{self.check}: a {self.verdict.value} needs a value and a threshold")

    @property
    def key(self) -> Key:
        return Key(self.check, self.subject.name)


def settle(planned: Collection[PlannedCheck], results: Iterable[Result]) -> list[Result]:
    """One result for each planned check, in the plan's order, then any that nobody planned.

    A planned check without a result is a FAIL, or INCONCLUSIVE where the plan says that this run
    cannot prove it; what the others are worth says `PlannedCheck.allowed`. Of two results for one
    check the worse one counts.
    """
    plans = {plan.key: plan for plan in planned}
    by_key: dict[Key, Result] = {}
    for result in results:
        if result.key in plans:
            result = plans[result.key].allowed(result)
        other = by_key.get(result.key)
        if other is None or worst([result.verdict, other.verdict]) is not other.verdict:
            by_key[result.key] = result
    settled = []
    for plan in planned:
        got = by_key.pop(plan.key, None)
        if got is None and plan.unproven is not None:
            verdict, message = Verdict.INCONCLUSIVE, plan.unproven
            got = Result(plan.check, plan.tier, plan.subject, verdict, message, blamed=())
        if got is None:
            message = "no result: a planned check that did not report is a failure"
            got = Result(plan.check, plan.tier, plan.subject, Verdict.FAIL, message)
        settled.append(got)
    return [*settled, *by_key.values()]


def overall(planned: Collection[PlannedCheck], results: Iterable[Result]) -> Verdict:
    """Verdict of a run. A planned check without a result is a failure, whatever the others say.

    A run in which nothing was judged proved nothing: inconclusive.
    """
    verdict = worst(result.verdict for result in settle(planned, results))
    return Verdict.INCONCLUSIVE if verdict is Verdict.SKIP else verdict


EXIT_CODES = {Verdict.PASS: 0, Verdict.WARN: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 3}
EXIT_USAGE = 2


# --- what is reported ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class When:
    """How a case of a check is known in the message of a finding, and what is looked at then.

    words      a regular expression
    commands   with {node} where a node's name belongs; none are those of the check
    """

    words: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One of several causes of what a check finds, and what to do about this one.

    name     for machines: "too slow"
    advice   the part of the check's advice that begins with the name
    """

    name: str
    words: str
    advice: str
    commands: tuple[str, ...]

    def found(self, message: str) -> re.Match[str] | None:
        return re.search(self.words, message)


@dataclass(frozen=True, slots=True)
class CheckInfo:
    """A check's documentation, as its module's docstring gives it.

    fewest_nodes   below which there is nothing to look at
    cases          which causes its findings have, where there are several
    """

    name: str
    tier: Tier
    summary: str
    what: str
    why: str
    advice: str
    commands: tuple[str, ...] = ()  # with {node} where a node's name belongs
    fewest_nodes: int = 1
    cases: tuple[Case, ...] = ()


class Standing(enum.Enum):
    """What a run makes of a node. Every node has exactly one."""

    PASSING = "passing"  # every check of the suite was judged: green, or skipped by declaration
    FAILING = "failing"  # something was measured on this node, or is known to be its fault
    SUSPECT = "suspect"  # took part in a failure that is one of several nodes' fault
    UNPROVEN = "unproven"  # nothing speaks against it, and not everything was judged


@dataclass(frozen=True, slots=True)
class NodeReport:
    node: Node
    state: str
    verdict: Verdict
    standing: Standing
    own_failures: tuple[Result, ...]  # what is this node's own fault: what an operator repairs
    reason: str

    @property
    def passing(self) -> bool:
        return self.standing is Standing.PASSING


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job as it was asked for and as it ended."""

    job: Job
    reply: Reply | None


@dataclass(frozen=True, slots=True)
class RunReport:
    run_id: str
    suite: str
    cluster: str
    via: str  # which login node, reached how
    slurm: str
    started: str  # UTC, ISO 8601
    seconds: float
    verdict: Verdict
    results: tuple[Result, ...]
    nodes: tuple[NodeReport, ...]
    jobs: tuple[JobReport, ...]
    checks: Mapping[str, CheckInfo]
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # what the suite or the cluster has and this run was not asked
    interrupted: bool = False
    repeat: str = ""  # the command line that started this run
    resume: str = ""  # the command line that goes on with it, where it was interrupted
    local: bool = False  # this machine alone: nowhere to log in to, no Slurm
    output: str = ""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def gpu_hours(self) -> float:
        """GPUs times seconds, as the launcher saw them."""
        total = 0.0
        for item in self.jobs:
            reply = item.reply
            if reply and reply.started_ns is not None and reply.ended_ns is not None:
                gpus = sum(node.gpus.count for node in item.job.nodes if node.gpus.real)
                total += gpus * (reply.ended_ns - reply.started_ns) / 1e9 / 3600
        return total


def node_reports(
    nodes: Iterable[Node],
    states: Mapping[str, str],
    results: Collection[Result],
    suite: Collection[str],
    planned: Collection[PlannedCheck] = (),
) -> tuple[NodeReport, ...]:
    """Each node's verdict out of the settled results; `suite` names all checks that it has.

    A check that some nodes of a group make for all of it was planned for all of them, and counts as
    judged for each.
    """
    made = {result.key for result in results}
    for_all: dict[str, set[str]] = {}
    for plan in planned:
        if plan.tier is Tier.CLUSTER and plan.key in made:
            for name in plan.subject.nodes:
                for_all.setdefault(name, set()).add(plan.check)
    return tuple(
        _node_report(
            node,
            states.get(node.name, "unknown"),
            results,
            [name for name in suite if name not in for_all.get(node.name, ())],
        )
        for node in nodes
    )


def _node_report(
    node: Node, state: str, results: Collection[Result], suite: Collection[str]
) -> NodeReport:
    mine = [result for result in results if node.name in result.subject.nodes]
    judged = [result for result in mine if result.verdict is not Verdict.SKIP]
    own = tuple(result for result in judged if _own_fault(result, node.name))
    suspicious = [
        result for result in judged if result.verdict is Verdict.FAIL and result.blamed is None
    ]
    missing = [name for name in suite if name not in {result.check for result in mine}]
    verdict = worst(result.verdict for result in judged)
    open_ = [result for result in judged if not result.verdict.green]
    decisive: Result | None
    if own:
        standing, decisive = Standing.FAILING, own[0]
    elif suspicious:
        standing, decisive = Standing.SUSPECT, suspicious[0]
    elif open_ or missing or not judged:
        standing, decisive = Standing.UNPROVEN, next(iter(open_), None)
    else:
        standing, decisive = Standing.PASSING, None
    reason = f"{decisive.check}: {decisive.message}" if decisive else ""
    if standing is Standing.UNPROVEN and decisive is None:
        reason = f"not judged: {', '.join(missing)}" if judged else "nothing was judged"
    return NodeReport(node, state, verdict, standing, own, reason)


def _own_fault(result: Result, name: str) -> bool:
    """Whether a failure is measured on this node, or known to be its fault."""
    alone = result.subject.nodes if len(result.subject.nodes) == 1 else ()
    at_fault = alone if result.blamed is None else result.blamed
    return result.verdict is Verdict.FAIL and name in at_fault


# What srun hands on when a signal ended a task. It tells of the task with the highest number, which
# is often not the one that began it.
_SIGNALS = {
    6: "a task aborted",
    9: "a task was killed: by srun after another task failed, or because memory ran out",
    11: "a task ended with a segmentation fault",
    15: "a task was ended, usually by srun after another task failed",
}


def exit_status(code: int) -> str:
    """srun's exit status, and what a number above 128 means.

    >>> exit_status(1)
    'exit status 1'
    """
    meaning = _SIGNALS.get(code - 128)
    return f"exit status {code}" + (f" ({meaning})" if meaning else "")
