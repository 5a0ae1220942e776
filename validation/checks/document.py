"""A payload's answer: one line of JSON among whatever else a job prints.

Everything that makes an answer unusable is found here, once, for all checks: the job did not end
well, there is no document or more than one, or it comes from other ranks or nodes than were asked.
A check's own judgement sees only documents that are what they claim to be.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from validation import strict
from validation.model import Job, Outcome, Proof, Rank, Reply, Result, Tier, Verdict, printable

_MARK = '{"plumbline"'
_SCHEMA = 1


class Unusable(Exception):
    """Why an answer cannot be judged, and what follows from that."""

    def __init__(self, reason: str, verdict: Verdict = Verdict.FAIL) -> None:
        super().__init__(reason)
        self.verdict = verdict


class Fields:
    """Fields of a document; a getter raises Unusable instead of returning a wrong type."""

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self._values = values
        self._where = where

    def _get(self, name: str) -> tuple[Any, str]:
        where = f"{self._where}{name}"
        if name not in self._values:
            raise Unusable(f"the answer has no {where}")
        return self._values[name], where

    def text(self, name: str) -> str:
        value, where = self._get(name)
        if not isinstance(value, str):
            raise Unusable(f"{where} is no text: {value!r}")
        return value

    def maybe_text(self, name: str) -> str | None:
        value, where = self._get(name)
        if value is not None and not isinstance(value, str):
            raise Unusable(f"{where} is no text: {value!r}")
        return value

    def whole(self, name: str) -> int:
        value, where = self._get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise Unusable(f"{where} is no whole number: {value!r}")
        return value

    def number(self, name: str) -> float:
        return _finite(*self._get(name))

    def numbers(self, name: str) -> tuple[float, ...]:
        values, where = self._get(name)
        if not isinstance(values, list):
            raise Unusable(f"{where} is no list")
        return tuple(_finite(value, f"{where}[{i}]") for i, value in enumerate(values))

    def items(self, name: str) -> tuple["Fields", ...]:
        values, where = self._get(name)
        if not isinstance(values, list) or not all(isinstance(v, Mapping) for v in values):
            raise Unusable(f"{where} is no list of objects")
        return tuple(Fields(value, f"{where}[{i}].") for i, value in enumerate(values))

    def inner(self, name: str) -> "Fields":
        value, where = self._get(name)
        if not isinstance(value, Mapping):
            raise Unusable(f"{where} is no object")
        return Fields(value, f"{where}.")


def _finite(value: Any, where: str) -> float:
    # Payloads write NaN and infinities as texts: JSON has no numbers for them.
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        raise Unusable(f"{where} is {value}")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise Unusable(f"{where} is no number: {value!r}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Unusable(f"{where} is {number}")
    return number


@dataclass(frozen=True, slots=True)
class Document:
    """One usable answer."""

    proof: Proof
    measured: Fields


def answer(check: str, job: Job, reply: Reply, judge: Callable[[Document], Result]) -> Result:
    """The check's judgement of a job's answer, or why there is none to judge."""
    proof = None
    try:
        document = read(job, reply)
        proof = document.proof
        return judge(document)
    except Unusable as unusable:
        return Result(
            check,
            job.tier,
            job.subject,
            unusable.verdict,
            printable(str(unusable), 300),
            proof=proof or _bare_proof(reply),
        )


def read(job: Job, reply: Reply) -> Document:
    """The job's one document. Raises Unusable for anything else."""
    _ended_well(job, reply)
    document = Fields(_only_document(reply))
    if document.whole("plumbline") != _SCHEMA:
        raise Unusable(f"the answer has schema {document.whole('plumbline')}, not {_SCHEMA}")
    if document.text("payload") != job.payload:
        raise Unusable(f"the answer is of {document.text('payload')!r}, not {job.payload!r}")
    proof = document.inner("proof")
    found = _node_proof(proof, reply) if job.tier is Tier.NODE else _cluster_proof(proof, reply)
    _ran_where_asked(job, found)
    return Document(found, document.inner("measured"))


def _ended_well(job: Job, reply: Reply) -> None:
    match reply.outcome:
        case Outcome.EXITED if reply.exit_code == 0:
            if reply.truncated:
                raise Unusable("the job printed so much that its output was cut off")
        case Outcome.EXITED:
            detail = _complaint(reply.stderr)
            raise Unusable(f"exit status {reply.exit_code}" + (f": {detail}" if detail else ""))
        case Outcome.QUEUE_LIMIT if reply.busy:
            raise Unusable(
                f"did not start in {job.queue_limit_s} s: "
                f"{'node is' if len(job.nodes) == 1 else 'nodes are'} busy with other jobs"
                + (f" ({reply.reason})" if reply.reason else ""),
                Verdict.INCONCLUSIVE,
            )
        case Outcome.QUEUE_LIMIT:
            said = f"Slurm says {reply.reason}" if reply.reason else "Slurm gives no reason"
            raise Unusable(f"did not start in {job.queue_limit_s} s: {said}")
        case Outcome.RUN_LIMIT:
            started = {start.host for start in reply.starts}
            silent = [host for host in job.hosts if _short(host) not in map(_short, started)]
            detail = f"; no task started on {', '.join(silent[:8])}" if silent else ""
            raise Unusable(f"did not end in {job.run_limit_s} s and was cancelled{detail}")
        case Outcome.CANCELLED:
            raise Unusable("the run was interrupted before this job ended")
        case Outcome.NOT_SUBMITTED:
            raise Unusable(f"srun could not be started: {reply.reason}")
        case Outcome.LOST:
            raise Unusable(f"nothing is known of this job: {reply.reason}")


def _only_document(reply: Reply) -> Mapping[str, Any]:
    # Sites and libraries print to stdout too (TaskProlog, NCCL_DEBUG): only our lines count.
    lines = [line for line in reply.stdout.splitlines() if line.lstrip().startswith(_MARK)]
    if not lines:
        detail = _complaint(reply.stderr)
        raise Unusable("no answer on stdout" + (f"; stderr ends: {detail}" if detail else ""))
    if len(lines) > 1:
        raise Unusable(f"{len(lines)} answers instead of one: as many separate runs, not one job")
    try:
        document = strict.parse_json(lines[0])
    except (ValueError, RecursionError) as error:
        raise Unusable(f"the answer cannot be read: {error}") from error
    assert isinstance(document, dict)  # it starts with a brace
    return document


def _node_proof(proof: Fields, reply: Reply) -> Proof:
    return Proof((proof.text("host"),), reply.job_id, python=proof.text("python"))


def _cluster_proof(proof: Fields, reply: Reply) -> Proof:
    ranks = tuple(
        Rank(
            item.whole("rank"),
            item.whole("local_rank"),
            item.text("host"),
            item.text("device"),
            item.maybe_text("gpu"),
            item.maybe_text("gpu_uuid"),
        )
        for item in proof.items("ranks")
    )
    return Proof(
        tuple(dict.fromkeys(rank.host for rank in ranks)),
        reply.job_id,
        proof.text("backend"),
        proof.whole("world_size"),
        proof.text("torch"),
        proof.maybe_text("nccl"),
        proof.text("python"),
        ranks,
    )


def _ran_where_asked(job: Job, proof: Proof) -> None:
    asked = {_short(host) for host in job.hosts}
    took_part = [_short(host) for host in proof.hosts]
    if job.tier is Tier.CLUSTER:
        _right_ranks(job, proof)
    if missing := sorted(asked - set(took_part)):
        raise Unusable(
            f"asked for {', '.join(sorted(asked)[:8])}, but {', '.join(missing[:8])} took no part "
            f"(answer from {', '.join(took_part[:8])})"
        )
    if strangers := sorted(set(took_part) - asked):
        raise Unusable(f"{', '.join(strangers[:8])} took part without having been asked")


def _right_ranks(job: Job, proof: Proof) -> None:
    if proof.world_size != job.ranks:
        raise Unusable(f"{proof.world_size} ranks took part, {job.ranks} were asked for")
    if sorted(rank.rank for rank in proof.ranks) != list(range(job.ranks)):
        raise Unusable(
            f"the ranks that answered are not 0 to {job.ranks - 1}, each once: "
            f"{sorted(rank.rank for rank in proof.ranks)[:16]}"
        )
    if proof.backend != job.backend:
        raise Unusable(f"ran with {proof.backend}, {job.backend} was asked for")
    places: dict[str, list[int]] = {}
    for rank in proof.ranks:
        places.setdefault(_short(rank.host), []).append(rank.local_rank)
    for host, local in places.items():
        if sorted(local) != list(range(job.ranks_per_node)):
            raise Unusable(
                f"{len(local)} ranks on {host} (local ranks {sorted(local)[:16]}), "
                f"{job.ranks_per_node} were asked for on each node"
            )
    if job.backend == "nccl":
        gpus = [(_short(rank.host), rank.gpu_uuid) for rank in proof.ranks]
        if any(uuid is None for _, uuid in gpus):
            raise Unusable("a rank does not say which GPU it used")
        if len(set(gpus)) != len(gpus):
            raise Unusable("two ranks used the same GPU")


def _short(host: str) -> str:
    return host.split(".", 1)[0]


def _bare_proof(reply: Reply) -> Proof | None:
    hosts = tuple(start.host for start in reply.starts)
    return Proof(hosts, reply.job_id) if hosts or reply.job_id else None


_STARTED = "plumbline: started"
_OURS = "plumbline: "
_ECHOES = ("srun:", "slurmstepd:")
_ERROR = "srun: error: "
_STILL_RUNNING = re.compile(r"srun: StepId=\S+ tasks? \S+: running")


def _complaint(stderr: str) -> str:
    """What stderr most likely says about the cause, and the task that srun saw end first.

    The first line that a payload wrote itself: other ranks complain after the one that failed.
    Without one, the last line that is not srun's.
    """
    lines = [line for line in stderr.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_STARTED)]
    payload = [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]
    own = [line for line in lines if not line.startswith((_OURS, *_ECHOES))]
    srun = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    late = [line.split(" ", 2)[2] for line in lines if _STILL_RUNNING.fullmatch(line)]
    said = payload[:1] or own[-1:]
    if late:
        said = [*payload[:1], f"{', '.join(late)} when other tasks had long ended"]
    if len(payload) > 1:
        said.append(f"and {len(payload) - 1} more such lines")
    return "; ".join(printable(part, 200) for part in said + srun[:1])
