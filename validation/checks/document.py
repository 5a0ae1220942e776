"""A payload's answer: one line of JSON among whatever else a job prints.

Everything that makes an answer unusable is found here, once, for all checks: the job did not end
well, there is no document or more than one, or it comes from other ranks or nodes than were asked.
A check's own judgement sees only documents that are what they claim to be.
"""

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cluster import hostlist, strict
from cluster.slurm import job_reasons, node_states
from cluster.slurm.job_reasons import Cause
from cluster.slurm.node_states import NodeState
from cluster.text import printable
from validation.checks import nccl_notes
from validation.checks.nccl_notes import Note
from validation.model import Job, Outcome, Proof, Rank, Reply, Result, Tier, Verdict, exit_status
from validation.payloads.rendezvous import STEERING

_MARK = '{"plumbline"'
_SCHEMA = 1
_MOST = 2**64 - 1  # the widest counter of a kernel, a driver or a board


class Unusable(Exception):
    """Why an answer cannot be judged, what follows from that, and for whom (see Result.blamed).

    notes   what the ranks said of NCCL
    """

    def __init__(
        self,
        reason: str,
        verdict: Verdict = Verdict.FAIL,
        blamed: tuple[str, ...] | None = None,
        notes: Sequence[Note] = (),
    ) -> None:
        super().__init__(reason)
        self.verdict = verdict
        self.blamed = blamed
        self.notes = notes


class Fields:
    """Fields of a document; a getter raises Unusable instead of returning a wrong type."""

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self._values = values
        self._where = where

    @property
    def values(self) -> Mapping[str, Any]:
        return self._values

    def _get(self, name: str) -> tuple[Any, str]:
        where = f"{self._where}{name}"
        if name not in self._values:
            raise Unusable(f"the answer has no {where}")
        return self._values[name], where

    def has(self, name: str) -> bool:
        """Whether a field is there that may be null."""
        return self._get(name)[0] is not None

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
        if value > _MOST:
            raise Unusable(f"{where} is more than a counter holds")
        return value

    def flag(self, name: str) -> bool:
        value, where = self._get(name)
        if not isinstance(value, bool):
            raise Unusable(f"{where} is neither true nor false: {value!r}")
        return value

    def number(self, name: str) -> float:
        return _finite(*self._get(name))

    def numbers(self, name: str) -> tuple[float, ...]:
        values, where = self._get(name)
        if not isinstance(values, list):
            raise Unusable(f"{where} is no list")
        return tuple(_finite(value, f"{where}[{i}]") for i, value in enumerate(values))

    def texts(self, name: str) -> dict[str, str]:
        values, where = self._get(name)
        if not isinstance(values, Mapping) or not all(isinstance(v, str) for v in values.values()):
            raise Unusable(f"{where} is no mapping of texts")
        return dict(values)

    def words(self, name: str) -> tuple[str, ...]:
        values, where = self._get(name)
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise Unusable(f"{where} is no list of texts")
        return tuple(values)

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
    if abs(number) > _MOST:
        raise Unusable(f"{where} is {number:.3g}, which nothing measures")
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
        return unusable_result(check, job, reply, unusable, proof)


def unusable_result(
    check: str, job: Job, reply: Reply, unusable: Unusable, proof: Proof | None = None
) -> Result:
    """What follows from an answer that cannot be judged."""
    reason = printable(str(unusable), 300)
    more = nccl_notes.sentence(unusable.notes, told=reason)
    return Result(
        check,
        job.tier,
        job.subject,
        unusable.verdict,
        f"{reason}; {more}" if more else reason,
        metrics=nccl_notes.details(unusable.notes),
        proof=proof or _bare_proof(reply),
        blamed=unusable.blamed,
    )


def read(job: Job, reply: Reply) -> Document:
    """The job's one document. Raises Unusable for anything else."""
    _ended_well(job, reply)
    document = Fields(_only_document(reply))
    if document.whole("plumbline") != _SCHEMA:
        raise Unusable(f"the answer has schema {document.whole('plumbline')}, not {_SCHEMA}")
    if document.text("payload") != job.payload:
        raise Unusable(f"the answer is of {document.text('payload')!r}, not {job.payload!r}")
    # An answer of an earlier run, or of another job, proves nothing about this one.
    nonce = job.config.get("nonce")
    if nonce is not None and document.text("nonce") != nonce:
        raise Unusable(f"the answer is of another job or run: {document.text('nonce')!r}")
    proof = document.inner("proof")
    own_proof = _node_proof(proof, reply) if job.tier is Tier.NODE else _cluster_proof(proof, reply)
    _ran_where_asked(job, own_proof)
    _ran_as_declared(job, own_proof)
    _ran_in_its_container(job, own_proof)
    return Document(own_proof, document.inner("measured"))


def _ended_well(job: Job, reply: Reply) -> None:
    match reply.outcome:
        case Outcome.EXITED if reply.exit_code == 0:
            if reply.truncated:
                raise Unusable("the job printed so much that its output was cut off")
        case Outcome.EXITED:
            _refused(job, reply)
            _not_contained(job, reply)
            detail = _complaint(reply.stderr)
            failed = exit_status(reply.exit_code or 0) + (f": {detail}" if detail else "")
            raise _unusable(job, reply, failed, _failed_nodes(job, reply.stderr))
        case Outcome.QUEUE_LIMIT:
            raise _waited(job, reply)
        case Outcome.RUN_LIMIT:
            started = {_named(job, start.host) for start in reply.starts}
            silent = tuple(host for host in job.hosts if host not in started)
            message = f"did not end in {job.run_limit_s} s and was cancelled"
            if silent:
                message += f"; no task started on {', '.join(silent[:8])}"
            if detail := _complaint(reply.stderr):
                message += f"; {detail}"
            # Where some tasks started, those that did not are at fault. Otherwise who knows.
            known = silent if len(silent) < len(job.hosts) else ()
            raise _unusable(job, reply, message, known or _failed_nodes(job, reply.stderr))
        case Outcome.CANCELLED:
            raise Unusable("the run was interrupted before this job ended", blamed=())
        case Outcome.NOT_SUBMITTED:
            raise Unusable(f"srun could not be started: {reply.reason}", blamed=())
        case Outcome.SKIPPED:
            message = f"not run: {reply.reason} waited in vain on the same nodes"
            raise Unusable(message, Verdict.INCONCLUSIVE, ())
        case Outcome.LOST:
            raise Unusable(f"nothing is known of this job: {reply.reason}", blamed=())


def _unusable(job: Job, reply: Reply, message: str, known: tuple[str, ...] = ()) -> Unusable:
    """A failure of the job, counted against the nodes that are known to have caused it."""
    notes = nccl_notes.read(reply.stderr)
    if down := _out_of_service(job, reply):
        states = (f"{host} is {state} meanwhile" for host, state in down.items())
        return Unusable(f"{', '.join(states)}; {message}", blamed=tuple(down), notes=notes)
    return Unusable(message, blamed=known or None, notes=notes)


def _out_of_service(job: Job, reply: Reply) -> dict[str, str]:
    """The job's nodes that Slurm does not use any more, and what it says of them."""
    return {
        state.name: f"{state.state} ({state.reason})" if state.reason else state.state
        for state in reply.states
        if state.name in job.hosts and node_states.out_of_service(state)
    }


def _refused(job: Job, reply: Reply) -> None:
    """Raises Unusable when Slurm took no job: a matter of the account or the request."""
    if reply.starts or reply.started_ns is not None:
        return
    match job_reasons.refusal(reply.stderr):
        case None:
            return
        case sentence, Cause.NODE if _out_of_service(job, reply):
            raise _unusable(job, reply, f"Slurm accepted no job: {sentence}")
        case sentence, Cause.CLUSTER:
            request = f", asked for {job.gres}" if "resource (" in sentence.lower() else ""
            raise Unusable(f"Slurm accepted no job: {sentence}{request}", blamed=())
        case sentence, _:
            raise Unusable(f"Slurm accepted no job: {sentence}", Verdict.INCONCLUSIVE, ())


_PYXIS = re.compile(r"^slurmstepd: error: pyxis: +(.*)$", re.MULTILINE)


def _not_contained(job: Job, reply: Reply) -> None:
    """Raises Unusable when the container did not start: the image's fault, or its registry's."""
    lines = _PYXIS.findall(reply.stderr)
    if job.container is None or reply.starts or not lines or _out_of_service(job, reply):
        return
    cause = next((line for line in lines if "[ERROR]" in line), lines[0])
    image = job.container.image
    raise Unusable(f"the container {image} did not start: {printable(cause, 200)}", blamed=())


_WHOSE = {
    Cause.LIMIT: "a limit of the user, the account or the QOS holds it",
    Cause.REQUEST: "Slurm does not start such a job",
    Cause.CLUSTER: "Slurm itself is not ready",
}


def _waited(job: Job, reply: Reply) -> Unusable:
    message = f"did not start in {reply.seconds or job.queue_limit_s:.0f} s: "
    reason = f" ({reply.reason})" if reply.reason else ""
    cause = job_reasons.cause(reply.reason)
    if cause in _WHOSE:
        verdict = Verdict.FAIL if cause is Cause.CLUSTER else Verdict.INCONCLUSIVE
        return Unusable(f"{message}{_WHOSE[cause]}{reason}", verdict, ())
    if _out_of_service(job, reply):
        return _unusable(job, reply, f"{message}Slurm says {reply.reason or 'nothing'}")
    if unready := _not_ready(reply.states):
        return Unusable(f"{message}{unready}", Verdict.INCONCLUSIVE, ())
    if ending := [state.name for state in reply.states if node_states.completing(state)]:
        names = f"{', '.join(ending[:8])} {'is' if len(ending) == 1 else 'are'}"
        message = f"{message}{names} still completing a job that has ended{reason}"
        return Unusable(message, Verdict.INCONCLUSIVE, ())
    if reply.busy or cause is Cause.BUSY:
        nodes = "node is" if len(job.nodes) == 1 else "nodes are"
        return Unusable(f"{message}{nodes} busy with other jobs{reason}", Verdict.INCONCLUSIVE, ())
    # Whatever it says: the nodes are in service, and nothing was measured on them.
    explanation = f"Slurm says {reply.reason}" if reply.reason else "Slurm gives no reason"
    return Unusable(f"{message}{explanation}", Verdict.INCONCLUSIVE)


def _not_ready(states: Sequence[NodeState]) -> str:
    """Which nodes take no jobs now, and are meant not to; "" where none."""
    if asleep := [state.name for state in states if node_states.asleep(state)]:
        return f"{', '.join(asleep[:8])} is still being powered up"
    told = [f"{state.name} {why}" for state in states if (why := node_states.on_purpose(state))]
    return "; ".join(told[:8])


_NODE_FAILURES = re.compile(
    r"srun: error: (?:Node failure on (\S+)|Task launch for \S+ failed on node (\S+?):)"
)


def _failed_nodes(job: Job, stderr: str) -> tuple[str, ...]:
    """The job's nodes of which srun or the ranks say that they failed, or never came."""
    hosts: list[str] = []
    # The ranks say whom they waited for in vain; it counts where they agree.
    blame_lines = {line for line in stderr.splitlines() if line.startswith(_BLAMED)}
    if len(blame_lines) == 1:
        hosts += blame_lines.pop().removeprefix(_BLAMED).strip().split(",")
    for match in _NODE_FAILURES.finditer(stderr):
        with suppress(hostlist.HostlistError):
            hosts += hostlist.expand(match[1] or match[2])
    named = {_named(job, host) for host in hosts}
    return tuple(host for host in job.hosts if host in named)


def _only_document(reply: Reply) -> Mapping[str, Any]:
    # Sites and libraries print to stdout too (TaskProlog, NCCL_DEBUG): only our lines count.
    lines = _marked(reply.stdout)
    if not lines:
        detail = _complaint(reply.stderr)
        raise Unusable("no answer on stdout" + (f"; stderr ends: {detail}" if detail else ""))
    if len(lines) > 1:
        raise Unusable(f"{len(lines)} answers instead of one: the ranks ran as separate jobs")
    try:
        document = _parsed(lines[0])
    except (ValueError, RecursionError) as error:
        raise Unusable(f"the answer cannot be read: {error}") from error
    assert isinstance(document, dict)  # it starts with a brace
    return document


# Each of a node's checks reads the same answer, one after the other.
@functools.lru_cache(maxsize=8)
def _marked(stdout: str) -> tuple[str, ...]:
    return tuple(line for line in stdout.splitlines() if line.lstrip().startswith(_MARK))


@functools.lru_cache(maxsize=8)
def _parsed(line: str) -> Any:
    return strict.parse_json(line)


def _node_proof(proof: Fields, reply: Reply) -> Proof:
    host, python = proof.text("host"), proof.text("python")
    return Proof((host,), reply.job_id, python=python, container=_container(proof))


def _cluster_proof(proof: Fields, reply: Reply) -> Proof:
    ranks = tuple(
        Rank(
            item.whole("rank"),
            item.whole("local_rank"),
            item.text("host"),
            item.text("device"),
            item.maybe_text("gpu"),
            item.maybe_text("gpu_uuid"),
            item.text("torch"),
            item.maybe_text("nccl"),
            _container(item),
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
        tuple(sorted(proof.texts("environment").items())),
        ranks[0].container if ranks else None,
    )


def _container(fields: Fields) -> str | None:
    return fields.maybe_text("container") if "container" in fields.values else None


def _ran_where_asked(job: Job, proof: Proof) -> None:
    hosts = set(job.hosts)
    took_part = [_named(job, host) for host in proof.hosts]
    if job.tier is Tier.CLUSTER:
        _right_ranks(job, proof)
    if missing := sorted(hosts - set(took_part)):
        raise Unusable(
            f"asked for {', '.join(sorted(hosts)[:8])}, but {', '.join(missing[:8])} took no part "
            f"(answer from {', '.join(took_part[:8])})"
        )
    if strangers := sorted(set(took_part) - hosts):
        raise Unusable(f"{', '.join(strangers[:8])} took part although they were not requested")


def _ran_as_declared(job: Job, proof: Proof) -> None:
    """Raises Unusable where a rank saw another environment than the declared one.

    A TaskProlog may have changed it, or a container: what was measured is then something else.
    """
    if job.tier is not Tier.CLUSTER:
        return
    seen = dict(proof.environment)
    for name, declared in job.environment:
        if name.startswith(STEERING) and (value := seen.get(name)) != declared:
            what = "did not reach the ranks" if value is None else f"was {value!r} in the ranks"
            raise Unusable(f"{name} is declared as {declared!r}, and {what}", blamed=())


def _ran_in_its_container(job: Job, proof: Proof) -> None:
    """Raises Unusable where a task ran elsewhere: a node without pyxis starts it on the host."""
    containers = [(rank.host, rank.container) for rank in proof.ranks]
    containers = containers or [(host, proof.container) for host in proof.hosts]
    wrong = [
        _named(job, host) for host, seen in containers if (seen is None) != (job.container is None)
    ]
    if not wrong:
        return
    nodes = tuple(dict.fromkeys(wrong))
    names = ", ".join(nodes[:8])
    if job.container is None:
        raise Unusable(f"ran in a container on {names}, although none was requested", blamed=nodes)
    message = (
        f"did not run in the container {job.container.image} on {names} but on the node itself"
    )
    raise Unusable(f"{message}: is Slurm's plugin pyxis loaded by slurmd there?", blamed=nodes)


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
        places.setdefault(_named(job, rank.host), []).append(rank.local_rank)
    for host, local in places.items():
        if sorted(local) != list(range(job.ranks_per_node)):
            raise Unusable(
                f"{len(local)} ranks on {host} (local ranks {sorted(local)[:16]}), "
                f"{job.ranks_per_node} were asked for on each node"
            )
    if job.backend == "nccl":
        gpus = [rank.gpu_uuid for rank in proof.ranks]
        if None in gpus or any(
            rank.gpu is None or not rank.device.startswith("cuda") for rank in proof.ranks
        ):
            raise Unusable("a rank does not say which GPU it used")
        if len(set(gpus)) != len(gpus):
            raise Unusable("two ranks used the same GPU")
        if any(rank.nccl is None for rank in proof.ranks):
            raise Unusable("a rank does not say which NCCL it used")
    _one_version(job, "torch", {rank: rank.torch for rank in proof.ranks})
    _one_version(job, "NCCL", {rank: rank.nccl for rank in proof.ranks})


def _one_version(job: Job, what: str, versions: Mapping[Rank, str | None]) -> None:
    """Raises Unusable where the ranks run several; which of them is the wrong one, nobody knows."""
    hosts: dict[str, dict[str, None]] = {}
    for rank, version in versions.items():
        hosts.setdefault(str(version), {})[_named(job, rank.host)] = None
    if len(hosts) > 1:
        listing = "; ".join(f"{name} on {', '.join([*hosts[name]][:8])}" for name in sorted(hosts))
        raise Unusable(f"the ranks run different versions of {what}: {listing}")


def _named(job: Job, host: str) -> str:
    """The job's name of a host. A domain makes no other node, where one name is meant by it."""
    if host in job.hosts:
        return host
    short = host.split(".", 1)[0]
    same = [name for name in job.hosts if name.split(".", 1)[0] == short]
    return same[0] if len(same) == 1 else host


def _bare_proof(reply: Reply) -> Proof | None:
    hosts = tuple(start.host for start in reply.starts)
    return Proof(hosts, reply.job_id) if hosts or reply.job_id else None


_NOTED = tuple(f"plumbline: {word} " for word in ("started", "received", "stage", "blamed"))
_BLAMED = "plumbline: blamed "
_OURS = "plumbline: "
_ECHOES = ("srun:", "slurmstepd:", "pyxis:")
_ERROR = "srun: error: "
_STEPD = "slurmstepd: error: "
_STILL_RUNNING = re.compile(r"srun: StepId=\S+ tasks? \S+: running")


def _complaint(stderr: str) -> str:
    """What stderr most likely says about the cause, and the task that srun saw end first.

    The first line that a payload wrote itself: other ranks complain after the one that failed.
    Without one, the last line that is not srun's. What is said of NCCL is told apart (nccl_notes).
    """
    lines = [line for line in stderr.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_NOTED)]
    lines = [line for line in lines if not nccl_notes.is_note(line)]
    payload = [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]
    own = [line for line in lines if not line.startswith((_OURS, *_ECHOES))]
    srun = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    late = [line.split(" ", 2)[2] for line in lines if _STILL_RUNNING.fullmatch(line)]
    stepd = [line.removeprefix(_STEPD) for line in lines if line.startswith(_STEPD)]
    parts = payload[:1] or own[-1:] or stepd[:1]
    if late:
        parts = [*payload[:1], f"{', '.join(late)} when other tasks had long ended"]
    if len(payload) > 1:
        parts.append(f"and {len(payload) - 1} more such lines")
    return "; ".join(printable(part, 300) for part in parts + srun[:1])
