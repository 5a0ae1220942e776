"""Why a result is not green: what a run writes beside each verdict, and what advice follows from.

A job that gave no answer says nothing of CPUs or links: its cause is how it ended, one of `Cause`.
What a check has measured and found wrong is a finding, and its cause is a case of that check.
"""

import enum
import re

from cluster.slurm import job_reasons, node_states
from validation.model import (
    INTERRUPTED,
    Case,
    CheckInfo,
    JobReport,
    Outcome,
    Reply,
    Result,
    Tier,
    Verdict,
)


class Cause(enum.Enum):
    """Why a result is not green, as far as it decides what to do."""

    FINDING = "finding"  # measured, and wrong: the check knows what to do
    NO_THRESHOLD = "no threshold"
    CONTROLLER = "controller"
    REFUSED = "refused"
    ACCOUNT = "account"
    LOST = "lost"
    OUT_OF_SERVICE = "out of service"
    BUSY = "busy"
    NOT_STARTED = "not started"
    NO_TASK = "no task"
    HUNG = "hung"
    NOT_CONNECTED = "not connected"
    ENDED_BADLY = "ended badly"
    NO_ANSWER = "no answer"
    NOT_RUN = "not run"  # follows from something else
    UNPROVEN = "unproven"  # this run could not make the judgement
    INTERRUPTED = "interrupted"


# How torch, Gloo, NCCL and our payloads say that ranks do not reach each other.
_CONNECTION = re.compile(
    r"timed?[ -]?out|connect|unreachable|no route|rendezvous|watchdog|no sign of life|"
    r"did not (come|join)",
    re.I,
)


def of(result: Result, job: JobReport | None) -> Cause:
    """Why a result is not green, by how its job ended and what the check read."""
    if result.message == INTERRUPTED:
        return Cause.INTERRUPTED
    if _right_alone(result, job):
        return Cause.UNPROVEN
    if result.value is not None:
        return Cause.NO_THRESHOLD if result.threshold is None else Cause.FINDING
    if job is None or job.reply is None:
        if result.check == "slurm_state":
            return Cause.CONTROLLER
        return Cause.UNPROVEN if result.verdict is Verdict.INCONCLUSIVE else Cause.NOT_RUN
    return _cause_of_reply(result, job, job.reply)


def _right_alone(result: Result, job: JobReport | None) -> bool:
    """Whether one rank was judged right, and communication was to be proven."""
    judged = result.threshold is not None and result.verdict is Verdict.INCONCLUSIVE
    return judged and result.blamed == () and job is not None and job.job.ranks == 1


def _cause_of_reply(result: Result, job: JobReport, reply: Reply) -> Cause:
    if _gone(job, reply):
        return Cause.OUT_OF_SERVICE
    cluster = result.tier is Tier.CLUSTER
    if reply.outcome is Outcome.EXITED:
        return _cause_of_exit(result, reply)
    if reply.outcome is Outcome.QUEUE_LIMIT:
        return Cause.BUSY if reply.busy else _by_reason(reply)
    if reply.outcome is Outcome.RUN_LIMIT:
        if silent(job, reply):
            return Cause.NO_TASK
        return Cause.NOT_CONNECTED if cluster else Cause.HUNG
    return _BY_OUTCOME[reply.outcome]


def _gone(job: JobReport, reply: Reply) -> bool:
    """Whether Slurm gave up a node of the job, which explains more than how the job ended."""
    return reply.exit_code != 0 and any(
        state.name in job.job.hosts and node_states.out_of_service(state) for state in reply.states
    )


def _by_reason(reply: Reply) -> Cause:
    if job_reasons.of_account(reply.reason):
        return Cause.ACCOUNT
    return _BY_REASON.get(job_reasons.cause(reply.reason), Cause.NOT_STARTED)


_BY_REASON = {
    job_reasons.Cause.BUSY: Cause.BUSY,
    job_reasons.Cause.LIMIT: Cause.REFUSED,
    job_reasons.Cause.REQUEST: Cause.REFUSED,
    job_reasons.Cause.CLUSTER: Cause.CONTROLLER,
}
_BY_OUTCOME = {
    Outcome.CANCELLED: Cause.INTERRUPTED,
    Outcome.NOT_SUBMITTED: Cause.REFUSED,
    Outcome.LOST: Cause.LOST,
    Outcome.SKIPPED: Cause.NOT_RUN,
}


def _cause_of_exit(result: Result, reply: Reply) -> Cause:
    if reply.exit_code == 0:
        # Where the answer was read, what it says is the check's to explain.
        read = result.proof is not None and result.proof.python is not None
        return Cause.FINDING if read else Cause.NO_ANSWER
    if not reply.starts and reply.job_id is None:
        if result.blamed != ():
            return Cause.NOT_STARTED
        return Cause.ACCOUNT if job_reasons.of_account(reply.stderr) else Cause.REFUSED
    lost = result.tier is Tier.CLUSTER and _CONNECTION.search(result.message)
    return Cause.NOT_CONNECTED if lost else Cause.ENDED_BADLY


def silent(job: JobReport, reply: Reply) -> list[str]:
    """Hosts of the job on which no task said that it began."""
    began = {start.host for start in reply.starts}
    shorts = [host.partition(".")[0] for host in job.job.hosts]
    # A domain makes no other node, but where two nodes differ by it alone.
    short_began = {host.partition(".")[0] for host in began}
    return [
        host
        for host, short in zip(job.job.hosts, shorts, strict=True)
        if host not in began and not (short in short_began and shorts.count(short) == 1)
    ]


# --- cases of every check ------------------------------------------------------------------------


NOT_MEASURED = "not measured"  # the value of what failed before it could be measured

_LOOK = ("ssh {node} nvidia-smi -L", "ssh {node} 'dmesg | grep -i -e xid -e nvrm'")
# Of whatever asks a GPU, beside the cases of its own.
COMMON = (
    Case(
        "no answer from the gpu",
        r"does not tell its|gives no answers",
        "The driver does not answer for the GPU: see the check `driver` first.",
        _LOOK,
    ),
    Case(
        "another gpu",
        r"is known as|none of its GPUs before",
        "The GPU is not the declared model: correct node_gpus in the inventory, or the node. A "
        "board that the thresholds do not know yet is added to `nvml_names` of your own file.",
        _LOOK,
    ),
    Case(
        NOT_MEASURED,
        r"see cuda\b",
        "The GPU did not do the work that was to be measured. See the check `cuda` first; then "
        "read its XID, and reset the GPU.",
        _LOOK,
    ),
    Case(
        "seen by another check",
        r", see (?!cuda\b)(\w+)",
        "Another check of the same node says why nothing could be judged: repair what it found.",
        ("python -m validation.explain {found}",),
    ),
)
# Of what was not judged at all, where nothing else fits.
UNUSABLE = Case(
    "unusable answer",
    r"$",
    "The answer is not one to what was asked for; the message says in what it differs. Read what "
    "the job printed, and look for a container that was not started, a variable that Slurm's "
    "prolog changed, or another version of torch or of the driver on this node.",
    ("less {out}",),
)


def case(info: CheckInfo, result: Result) -> Case | None:
    """Which case of a check a finding is; None where its check knows no cases, or not this one.

    The judge may have named it; else it is the one whose words stand first in the message: the
    worst of several findings begins it.
    """
    last = (UNUSABLE,) if result.value is None else ()
    known: tuple[Case, ...] = (*info.cases, *COMMON, *last)
    named = [item for item in known if item.name == result.cause]
    if named:
        return named[0]
    found = [(match.start(), item) for item in known if (match := item.found(result.message))]
    if not found and result.value is not None and result.value.value == NOT_MEASURED:
        return next(item for item in COMMON if item.name == NOT_MEASURED)
    return min(found, key=lambda pair: pair[0])[1] if found else None


def name(info: CheckInfo, result: Result, job: JobReport | None) -> str:
    """The cause in one word for machines: a case of the check, or a `Cause`; "" for what passes."""
    if result.verdict in (Verdict.PASS, Verdict.SKIP):
        return ""
    why = of(result, job)
    found = case(info, result) if why is Cause.FINDING else None
    return found.name if found else str(why.value)
