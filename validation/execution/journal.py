"""What a run keeps beside its results so that it can go on after an interruption (`--resume`).

`run.json` says what was started: the command line, the secret of the nonces, and what the verdicts
follow from (declaration, suite, thresholds, this program, when each node was booted). `jobs.jsonl`
has a line for each job that is over, with all that it answered, and grows while the run goes on: a
run that is killed leaves it too.

Results are not read back. The answers are judged again by the same rules, which gives the same
results, and an answer that does not carry the nonce of its job fails as it would have before.
"""

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster import strict, version
from cluster.declaration import Declaration
from cluster.errors import UsageError
from cluster.files import write_whole
from cluster.slurm.node_states import NodeState
from cluster.text import printable
from validation.model import Job, JobReport, Outcome, Reply
from validation.plan import Plan
from validation.report.json import plain
from validation.slurm.client import parse_reply
from validation.suites import Suite

log = logging.getLogger(__name__)

RUN, JOBS = "run.json", "jobs.jsonl"
SCHEMA = 1
RESULTS = Path("results")

# How a job ends that was judged. Anything else says nothing of its nodes, and is tried again.
_ENDED = (Outcome.EXITED, Outcome.RUN_LIMIT)

_READ = strict.table(
    {
        "schema": strict.whole(1),
        "run": strict.text,
        "secret": strict.text,
        "started": strict.text,
        "directory": strict.text,
        "arguments": strict.list_of(strict.text),
        "follows_from": strict.map_of(strict.text),
        "boots": strict.map_of(strict.text),
        "parts": strict.whole(1),
    }
)


class NotTheSame(UsageError):
    """What was judged before no longer holds of the cluster that is there now."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A run as it was started.

    secret        of its nonces (see plan.make)
    directory     where it was started: paths of its command line are relative to it
    arguments     its command line
    follows_from  a digest of each thing that its verdicts follow from, by its name for people
    boots         by node, when it and its slurmd were started, in Slurm's words
    parts         how often it was started; each of them has names of its own in Slurm
    """

    run_id: str
    secret: str
    started: str
    directory: str
    arguments: tuple[str, ...]
    follows_from: Mapping[str, str]
    boots: Mapping[str, str] = field(default_factory=dict)
    parts: int = 1

    def slurm_id(self, number: int = 0) -> str:
        """The run's id in the names of its jobs, and of its folders on the login node.

        number   of a round, where it has several
        """
        part = "" if self.parts == 1 else f"r{self.parts}"
        return f"{self.run_id}{part}{f'n{number}' if number else ''}"

    def text(self) -> str:
        document = {
            "schema": SCHEMA,
            "run": self.run_id,
            "secret": self.secret,
            "started": self.started,
            "directory": self.directory,
            "arguments": list(self.arguments),
            "follows_from": dict(self.follows_from),
            "boots": dict(self.boots),
            "parts": self.parts,
        }
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the parts of a run before this one knew. A run that was just started has none.

    replies   by job, the answer that was judged last
    looks     by node, what its first look at it (payload node) answered
    jobs      by job, on which nodes it ran and how it was set up
    boots     see Begun
    seconds   how long they took together
    lines     of the file, each whole
    """

    replies: Mapping[str, Reply] = field(default_factory=dict)
    looks: Mapping[str, Reply] = field(default_factory=dict)
    jobs: Mapping[str, Any] = field(default_factory=dict)
    boots: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    lines: tuple[str, ...] = ()

    def reply(self, job: Job, boots: Mapping[str, str]) -> Reply | None:
        """The answer to exactly this job, of nodes that were not started again since.

        The look at a node itself is always made anew: it shows that the node is the same. Raises
        nothing: whatever is not known for certain is asked again.
        """
        reply = self.replies.get(job.name)
        if reply is None or job.payload == "node" or self.jobs[job.name] != _identity(job):
            return None
        same = all(host in boots and boots[host] == self.boots.get(host) for host in job.hosts)
        return reply if same else None

    def held_against(self, boots: Mapping[str, str]) -> None:
        """Raises NotTheSame where Slurm says that a node, or its slurmd, was started again."""
        for name, before in self.boots.items():
            if name in boots and boots[name] != before:
                raise NotTheSame(
                    f"{name} was started again since the run began (Slurm said {before}, and now "
                    f"says {boots[name]}): start a new run"
                )

    def held_against_look(self, job: Job, reply: Reply) -> None:
        """Raises NotTheSame where a node's kernel, boot or driver is another one than before."""
        before, now = (_system(item) for item in (self.looks.get(job.hosts[0]), reply))
        if before is None or now is None:
            return
        for what, was in before.items():
            if now.get(what) != was:
                raise NotTheSame(
                    f"{job.hosts[0]} has another {_NAMES.get(what, what)} than when the run began "
                    f"({printable(str(was), 80)}, now {printable(str(now.get(what)), 80)}): start "
                    "a new run"
                )


_NAMES = {"boot_id": "boot id", "kernel": "kernel", "driver": "NVIDIA driver"}


def _system(reply: Reply | None) -> Mapping[str, Any] | None:
    """What a node's answer says of its kernel; None where it has no readable one."""
    for line in reply.stdout.splitlines() if reply else ():
        if line.lstrip().startswith('{"plumbline"'):
            try:
                system = strict.parse_json(line)["measured"]["system"]
            except (ValueError, KeyError, TypeError):
                return None
            return system if isinstance(system, Mapping) else None
    return None


def follows_from(declared: Declaration, suite: Suite, planned: Plan) -> dict[str, str]:
    """A digest of each thing that the verdicts of a run follow from."""
    return {
        "the declaration": _digest(plain(declared)),
        "the suite": _digest(plain(suite)),
        "the thresholds": _digest(plain(planned.rules)),
        "plumbline": f"{version.line()} {_digest(_sources())}",
    }


def _sources() -> list[str]:
    """Every file that plans, measures or judges, by its content."""
    digests = []
    for package in ("cluster", "validation"):
        for path in sorted((version.ROOT / package).rglob("*")):
            inside = path.relative_to(version.ROOT)
            if path.suffix in (".py", ".yml") and "tests" not in inside.parts and path.is_file():
                digests.append(f"{inside} {hashlib.sha256(path.read_bytes()).hexdigest()}")
    return digests


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def held_against(begun: Begun, now: Mapping[str, str]) -> None:
    """Raises NotTheSame where something differs that the verdicts follow from."""
    changed = [name for name, digest in begun.follows_from.items() if now.get(name) != digest]
    if changed:
        verb = "has" if len(changed) == 1 else "have"
        raise NotTheSame(
            f"{' and '.join(changed)} {verb} changed since {begun.run_id} began: start a new run"
        )


# --- as lines --------------------------------------------------------------------------------


def line(report: JobReport, seconds: float) -> str:
    """A job that is over, with its end of line. `seconds` is how old the run was then."""
    assert report.reply is not None
    record = {
        "seconds": round(seconds, 1),
        "job": _identity(report.job),
        "payload": report.job.payload,
        "reply": {**plain(report.reply), "name": report.job.name},
    }
    # A node may answer with half a character, which no file can hold; JSON can.
    return json.dumps(record, ensure_ascii=True) + "\n"


def _identity(job: Job) -> dict[str, Any]:
    """What makes two jobs of a name the same question."""
    return {"nodes": list(job.hosts), "ranks": job.ranks, "config": plain(job.config)}


def read_lines(path: Path) -> Earlier:
    """All jobs of the file. The last line may be torn: the run was killed while it wrote it.

    Raises UsageError for any other line that is not readable.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    replies: dict[str, Reply] = {}
    looks: dict[str, Reply] = {}
    jobs: dict[str, Any] = {}
    seconds = 0.0
    whole = []
    for number, text in enumerate(lines[:-1], start=1):
        try:
            record = strict.parse_json(text.decode())
            reply = _reply(record["reply"])
            seconds = max(seconds, float(record["seconds"]))
            payload, identity = record["payload"], record["job"]
            host = str(identity["nodes"][0])
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise UsageError(f"{path}, line {number} cannot be read: {error!r}") from error
        whole.append(f"{text.decode()}\n")
        if reply.outcome not in _ENDED:
            continue
        replies[reply.job], jobs[reply.job] = reply, identity
        if payload == "node":
            looks.setdefault(host, reply)
    return Earlier(replies, looks, jobs, seconds=seconds, lines=tuple(whole))


def _reply(record: Mapping[str, Any]) -> Reply:
    states = tuple(NodeState(**state) for state in record["states"])
    return replace(parse_reply(record), busy=bool(record["busy"]), states=states)


# --- the folder of a run ---------------------------------------------------------------------


def folder_of(name: str) -> Path:
    """A run's folder, by its path or by its id under results/. Raises UsageError."""
    for path in (Path(name), RESULTS / name):
        if (path / RUN).is_file():
            return path
    raise UsageError(
        f"--resume: there is no run {name!r}; give its folder, or its id under {RESULTS}/"
    )


def begun(path: Path) -> Begun:
    """What was started in this folder. Raises UsageError where that cannot be read."""
    file = path / RUN
    problems: strict.Problems = []
    try:
        fields = _READ(strict.parse_json(file.read_text(encoding="utf-8")), "", problems)
    except (OSError, ValueError) as error:
        raise UsageError(f"--resume: {file} cannot be read: {error}") from error
    if problems or fields["schema"] != SCHEMA:
        why = problems[0] if problems else f"its schema is {fields['schema']}, not {SCHEMA}"
        raise UsageError(f"--resume: {file} is not what this version writes: {why}")
    return Begun(
        fields["run"],
        fields["secret"],
        fields["started"],
        fields["directory"],
        tuple(fields["arguments"]),
        fields["follows_from"],
        fields["boots"],
        fields["parts"],
    )


def write(path: Path, run: Begun) -> None:
    """Raises OSError."""
    write_whole(path / RUN, run.text(), mode=0o600)


class Lock:
    """Held on a run's folder for as long as the run goes on; it ends with the process at last."""

    _file: int | None = None

    def __init__(self, path: Path) -> None:
        """Raises UsageError while another run has the folder."""
        self._file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise UsageError(f"{path} belongs to a run that is not over yet") from error
        except OSError as error:  # a filesystem without locks
            log.info("%s cannot be locked: %s", path, error.strerror)

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def earlier(path: Path, begun: Begun, now: Mapping[str, str]) -> Earlier:
    """What the parts of a run before this one knew, for a part that goes on with it.

    now   what the verdicts follow from at this moment (see follows_from)
    Raises UsageError where the run is over, and NotTheSame where it can no longer go on.
    """
    if finished(path):
        raise UsageError(f"--resume: {path} came to its end; nothing of it is left to do")
    held_against(begun, now)
    return replace(read_lines(path / JOBS), boots=begun.boots)


def finished(path: Path) -> bool:
    """Whether a run has its report, and was not interrupted."""
    try:
        report = strict.parse_json((path / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(report, Mapping) and not report.get("resume")
