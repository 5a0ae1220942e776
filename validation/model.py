"""The words of a run: what is declared, what is asked, what came back, what is judged.

Nothing here does anything: no files, no processes, no clock. Everything else imports this
module; it imports nothing of the package.
"""

import enum
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

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


# What outweighs what when several verdicts are put into one.
_WEIGHT = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.WARN, Verdict.PASS, Verdict.SKIP)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that outweighs the others; none at all proves nothing."""
    return min(verdicts, key=_WEIGHT.index, default=Verdict.INCONCLUSIVE)


class Tier(enum.Enum):
    """Later tiers use only what passed the earlier ones."""

    NODE = "node"
    CLUSTER = "cluster"


# --- what is declared ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs a node must have. `virtual` ones are device nodes without a GPU behind them."""

    model: str
    count: int

    @property
    def real(self) -> bool:
        return self.count > 0 and self.model != "virtual"


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    cpus: int
    memory_mb: int
    gpus: Gpus
    fabric: str

    @property
    def hardware(self) -> str:
        """Which thresholds apply: the GPU's model, or `cpu` for a node without."""
        return self.gpus.model if self.gpus.count else "cpu"


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
    """A judgement that this run owes. `skip` says why it does not apply, by declaration."""

    check: str
    tier: Tier
    subject: Subject
    skip: str | None = None

    @property
    def key(self) -> Key:
        return Key(self.check, self.subject.name)


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

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    @property
    def ranks(self) -> int:
        return self.ranks_per_node * len(self.nodes)

    @property
    def gpus_per_node(self) -> int:
        return self.nodes[0].gpus.count

    @property
    def gpu_hours(self) -> float:
        """What the job can cost at most. A virtual GPU costs nothing."""
        gpus = sum(node.gpus.count for node in self.nodes if node.gpus.real)
        return gpus * self.run_limit_s / 3600


# --- what came back --------------------------------------------------------------------------


class Outcome(enum.Enum):
    """How a job ended, before anybody looks at its answer."""

    EXITED = "exited"
    QUEUE_LIMIT = "queue_limit"  # never started
    RUN_LIMIT = "run_limit"  # started, did not end
    CANCELLED = "cancelled"
    NOT_SUBMITTED = "not_submitted"  # srun could not be started
    LOST = "lost"  # nothing is known: the login node or the launcher went away


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
    document_ns: int | None = None  # when the answer reached the login node, by its clock
    ended_ns: int | None = None
    starts: tuple[Start, ...] = ()  # the first task of each node
    reason: str = ""  # Slurm's reason for waiting, or why nothing is known
    busy: bool = False  # another user's job held a node that this one needed
    munge: MungeReply | None = None

    @property
    def seconds(self) -> float | None:
        if self.submitted_ns is None or self.ended_ns is None:
            return None
        return (self.ended_ns - self.submitted_ns) / 1e9


@dataclass(frozen=True, slots=True)
class NodeState:
    """What Slurm says of a node."""

    name: str
    state: str  # as sinfo prints it, flags included: "down*", "mixed"
    cpus: int | None = None
    memory_mb: int | None = None
    gres: str = ""
    reason: str = ""


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
    provenance: str  # declared, defined, recorded, derived or datasheet
    source: str
    warn: float | None = None  # between this and `value` a value passes with a warning

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
    blamed: tuple[str, ...] | None = None  # nodes it counts against, where not all of the subject

    def __post_init__(self) -> None:
        if self.verdict.green and (self.threshold is None or self.value is None):
            raise ValueError(f"{self.check}: a {self.verdict.value} needs a value and a threshold")

    @property
    def key(self) -> Key:
        return Key(self.check, self.subject.name)


def settle(planned: Collection[PlannedCheck], results: Iterable[Result]) -> list[Result]:
    """One result for each planned check, in the plan's order, then any that nobody planned.

    A planned check without a result becomes a FAIL. So does a SKIP that no declaration allows.
    Of two results for one check the worse one counts.
    """
    undeclared = {plan.key for plan in planned if plan.skip is None}
    found: dict[Key, Result] = {}
    for result in results:
        if result.verdict is Verdict.SKIP and result.key in undeclared:
            message = f"skipped although the declaration does not allow it: {result.message}"
            result = Result(result.check, result.tier, result.subject, Verdict.FAIL, message)
        other = found.get(result.key)
        if other is None or worst([result.verdict, other.verdict]) is not other.verdict:
            found[result.key] = result
    settled = []
    for plan in planned:
        got = found.pop(plan.key, None)
        if got is None:
            message = "no result: a planned check that did not report is a failure"
            got = Result(plan.check, plan.tier, plan.subject, Verdict.FAIL, message)
        settled.append(got)
    return [*settled, *found.values()]


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
class CheckInfo:
    """A check's documentation, as its module's docstring gives it."""

    name: str
    tier: Tier
    summary: str
    what: str
    why: str
    advice: str
    commands: tuple[str, ...] = ()  # with {node} where a node's name belongs


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node passes when every check that it took part in is green or skipped by declaration."""

    node: Node
    state: str
    verdict: Verdict
    own_failures: tuple[Result, ...]  # checks of this node alone: what an operator repairs
    reason: str

    @property
    def passing(self) -> bool:
        return self.verdict.green


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
    interrupted: bool = False
    repeat: str = ""  # the command line that started this run
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
    nodes: Iterable[Node], states: Mapping[str, str], results: Collection[Result]
) -> tuple[NodeReport, ...]:
    """Each node's verdict out of the settled results."""
    reports = []
    for node in nodes:
        mine = [
            result
            for result in results
            if node.name in (result.subject.nodes if result.blamed is None else result.blamed)
        ]
        judged = [result for result in mine if result.verdict is not Verdict.SKIP]
        own = tuple(
            result for result in judged if result.tier is Tier.NODE and not result.verdict.green
        )
        verdict = worst(result.verdict for result in judged)
        worst_one = next((result for result in judged if result.verdict is verdict), None)
        reason = ""
        if worst_one is None:
            reason = "nothing was judged"
        elif not verdict.green:
            reason = f"{worst_one.check}: {worst_one.message}"
        reports.append(NodeReport(node, states.get(node.name, "unknown"), verdict, own, reason))
    return tuple(reports)


def printable(text: str, limit: int | None = None) -> str:
    """Text from elsewhere, safe for a terminal, a report or XML: one line, nothing invisible."""
    line = "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(line.split())
    return line if limit is None or len(line) <= limit else line[: limit - 1] + "…"
