"""What a run asks of Slurm, and the client that asks it on a login node's command line."""

import base64
import io
import logging
import shlex
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from cluster import strict
from cluster.errors import EnvironmentProblem
from cluster.processes import Completed
from cluster.slurm.node_states import NodeState
from cluster.text import printable
from validation.errors import TransportError
from validation.model import Accounting, Allocation, Contact, Job, MungeReply, Outcome, Reply, Start
from validation.slurm import job as jobs
from validation.transport import Transport

log = logging.getLogger(__name__)

# How long a poll waits for news. Through Ansible each one costs this machine half a CPU-second or
# more, and a run of ten minutes had hundreds.
_PATIENCE_S = 5

# Slurm from source or from a site's packages is often outside a non-interactive shell's PATH.
PREPARE = """\
PATH=$PATH:/usr/local/bin:/usr/local/slurm/bin:/opt/slurm/bin; export PATH
p=/usr/bin/python3; [ -x $p ] || p=python3
for v in $(env | sed -nE 's/^((SLURM|SINFO|SQUEUE|SCANCEL|SRUN|SACCTMGR)_[A-Z0-9_]+)=.*/\\1/p'); do
  case $v in SLURM_CONF|SLURM_CONF_SERVER|SLURM_JWT) ;; *) unset "$v" ;; esac
done
"""

_RIGHT_PYTHON = """\
$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
  echo "its $($p --version 2>&1) is too old, 3.10 or newer is needed" >&2; exit 1; }
"""


@dataclass(frozen=True, slots=True)
class JobProgress:
    name: str
    state: str  # pending, queued, running, done
    job_id: str | None
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch is, and the replies that came in since the last look."""

    done: bool
    jobs: tuple[JobProgress, ...]
    replies: tuple[Reply, ...]
    lost: str = ""  # why nothing more will come


class Batch(Protocol):
    """Jobs for a login node to start and watch over.

    It exists before its jobs do, so that whoever is interrupted while starting can still cancel.
    """

    def start(self) -> None: ...

    def poll(self) -> Progress: ...

    def cancel(self) -> Progress:
        """End all jobs; what they answered until then."""
        ...

    def close(self) -> None:
        """Remove what the batch left on the login node."""
        ...


class SlurmClient(Protocol):
    @property
    def via(self) -> str: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def node_states(self) -> tuple[str, Mapping[str, NodeState]]:
        """Slurm's version, and each node it knows. Raises SlurmDown when it does not answer."""
        ...

    def contact(self, names: Sequence[str]) -> Contact:
        """Which of these nodes' slurmd do not answer the machine that jobs are submitted from."""
        ...

    def accounting(self) -> Accounting:
        """Whether the accounting that Slurm is configured with answers."""
        ...

    def knows_containers(self) -> bool:
        """Whether srun has pyxis' options, where jobs are submitted from."""
        ...

    def prepare(
        self,
        lanes: Sequence[Sequence[Job]],
        at_once: int,
        shared: Sequence[Allocation] = (),
        slowest_start_s: float | None = None,
    ) -> Batch:
        """Lanes run side by side, the jobs of a lane one after another. Starts nothing yet.

        `shared`: which of the jobs are steps of an allocation where Slurm grants it.
        `slowest_start_s`: how long the tasks of this run's former jobs took to start, where known.
        """
        ...


class SlurmDown(Exception):
    """The login node works, Slurm's controller does not answer: the cluster's fault, a FAIL."""


# --all: nodes of a hidden partition too.
SINFO = "sinfo --version; exec sinfo --all -h -N -o '%N|%n|%T|%c|%m|%G|%P|%E'"

# Options of plugins stand in it (github.com/NVIDIA/pyxis/wiki/Installation).
HELP = "exec srun --help"

# How long a port of slurmd is asked again that is closed: a restart takes seconds, more under load.
PATIENCE_S = 15

# A launcher whose run was killed watches over its jobs for some minutes more.
END_EARLIER = """\
for f in /tmp/plumbline-{run_id}*; do
  [ -O $f ] && [ -f $f/launcher.py ] || continue
  $p $f/launcher.py cancel $f 0 >/dev/null && $p $f/launcher.py clean $f || exit
done
"""

ACCOUNTING = """\
echo "kind $(scontrol show config | sed -n 's/^AccountingStorageType *= *//p')"
exec timeout 30 sacctmgr --noheader --parsable2 --readonly list cluster format=cluster
"""


class CommandLineClient:
    def __init__(
        self, transport: Transport, run_id: str, python: str, wishes: Sequence[str] = ()
    ) -> None:
        self._transport = transport
        self._run_id = run_id
        self._python = python
        self._wishes = tuple(wishes)
        self._batches = 0

    @property
    def via(self) -> str:
        return self._transport.via

    @property
    def notes(self) -> tuple[str, ...]:
        return self._transport.notes

    def node_states(self) -> tuple[str, Mapping[str, NodeState]]:
        done = self._transport.run(PREPARE + SINFO, timeout_s=90)
        if done.status == 127:
            raise EnvironmentProblem(f"{self.via} has no Slurm commands: {last_line(done.stderr)}")
        if done.status != 0:
            raise SlurmDown(f"sinfo: {last_line(done.stderr) or f'exit status {done.status}'}")
        version, _, table = done.stdout.partition("\n")
        return " ".join(version.split()[-1:]), parse_sinfo(table)  # "slurm-wlm 22.05.8"

    def contact(self, names: Sequence[str]) -> Contact:
        words = shlex.join([str(PATIENCE_S), *names])
        source = (Path(__file__).parent / "look.py").read_bytes()
        try:
            done = self._transport.run(f"{PREPARE}exec $p - {words}", source, timeout_s=120)
            answer = strict.parse_json(done.stdout) if done.status == 0 else {}
            return Contact(*(dict(answer.get(kind, {})) for kind in ("refused", "mute", "boots")))
        except (TransportError, ValueError) as error:
            # It only saves waiting: without it jobs tell what there is to tell.
            log.info("%s could not look at slurmd's ports: %s", self.via, error)
            return Contact()

    def accounting(self) -> Accounting:
        done = self._transport.run(PREPARE + ACCOUNTING, timeout_s=60)
        first, _, clusters = done.stdout.strip().partition("\n")
        kind = first.removeprefix("kind").strip()
        if kind.endswith(("/none", "(null)")):
            return Accounting(kind, configured=False)
        if done.status == 0 and clusters.strip():
            return Accounting(kind)
        why = last_line(done.stderr) or f"sacctmgr ended with {done.status} and listed no cluster"
        return Accounting(kind, error=why)

    def knows_containers(self) -> bool:
        return "--container-image" in self._transport.run(PREPARE + HELP, timeout_s=60).stdout

    def end_earlier(self, run_id: str) -> None:
        """End what an earlier part of this run may have left on the login node, and its jobs.

        Raises TransportError where that fails: its jobs would hold the nodes.
        """
        script = PREPARE + END_EARLIER.format(run_id=shlex.quote(run_id))
        done = self._transport.run(script, timeout_s=120)
        if done.status != 0:
            raise TransportError(
                f"{self.via} could not end what {run_id} left there: {last_line(done.stderr)}"
            )

    def prepare(
        self,
        lanes: Sequence[Sequence[Job]],
        at_once: int,
        shared: Sequence[Allocation] = (),
        slowest_start_s: float | None = None,
    ) -> "CommandLineBatch":
        self._batches += 1
        folder = f"/tmp/plumbline-{self._run_id}-{self._batches}"
        order = jobs.batch(
            self._run_id,
            lanes,
            self._python,
            at_once,
            self._wishes,
            shared,
            slowest_start_s=slowest_start_s,
        )
        return CommandLineBatch(self._transport, folder, order)


class CommandLineBatch:
    def __init__(self, transport: Transport, folder: str, order: Mapping[str, object]) -> None:
        self._transport = transport
        self._folder = folder
        self._order = order
        whole = cast(Any, order)
        items = [*whole["allocations"], *(job for lane in whole["lanes"] for job in lane)]
        self._names = [str(item["slurm_name"]) for item in items]
        self._offset = 0
        self._refused = False

    def start(self) -> None:
        files = {
            "jobs.json": jobs.encode(self._order),
            "payload.zip": jobs.bundle(),
            "launcher.py": (Path(__file__).parent / "launcher.py").read_bytes(),
        }
        folder = shlex.quote(self._folder)
        # mkdir refuses a folder that exists: nobody else can have put anything there.
        script = (
            f"{_RIGHT_PYTHON}\nmkdir -m 700 {folder} || exit\n"
            f"base64 -d | tar -xzf - -C {folder} && "
            f"$p {folder}/launcher.py start {folder} && exit\n"
            f"status=$?; rm -rf {folder}; exit $status"
        )
        done = self._transport.run(PREPARE + script, base64.b64encode(_tar(files)))
        if done.status != 0:
            self._refused = True
            raise TransportError(
                f"{self._transport.via} could not start jobs: {last_line(done.stderr)}"
            )

    def poll(self) -> Progress:
        return self._ask("poll", f"{self._offset} {_PATIENCE_S}", timeout_s=60)

    def cancel(self) -> Progress:
        try:
            return self._ask("cancel", str(self._offset), timeout_s=90)
        except TransportError:
            self._cancel_elsewhere()
            raise

    def _cancel_elsewhere(self) -> None:
        """With the login node gone nobody ends its jobs, and they hold their nodes."""
        other = self._transport.elsewhere()
        if other is None:
            return
        names = (shlex.quote(f"--name={name}") for name in self._names)
        script = "".join(f"scancel {name}\n" for name in names)
        try:
            other.run(PREPARE + script, timeout_s=90)
        except TransportError as error:
            log.warning("%s", error)

    def close(self) -> None:
        if self._refused:
            return
        done = self._launcher("clean", "", 60)
        if done.status != 0:
            why = last_line(done.stderr)
            log.warning("%s: %s was left behind: %s", self._transport.via, self._folder, why)

    def _launcher(self, verb: str, argument: str, timeout_s: float) -> Completed:
        folder = shlex.quote(self._folder)
        script = f"exec $p {folder}/launcher.py {verb} {folder} {argument}"
        return self._transport.run(PREPARE + script, timeout_s=timeout_s)

    def _ask(self, verb: str, arguments: str, timeout_s: float) -> Progress:
        done = self._launcher(verb, arguments, timeout_s)
        if done.status != 0:
            raise TransportError(f"{self._transport.via}: {last_line(done.stderr)}")
        try:
            answer = strict.parse_json(done.stdout.strip().splitlines()[-1])
            progress = tuple(
                JobProgress(
                    item["name"], item["state"], item["job_id"], item["seconds"], item["reason"]
                )
                for item in answer["jobs"]
            )
            replies = tuple(parse_reply(record) for record in answer["finished"])
            lost = ""
            if not answer["alive"] and answer["state"] != "done":
                lost = f"the launcher on {self._transport.via} died: {last_line(answer['log'])}"
            self._offset = answer["offset"]
            return Progress(answer["state"] == "done", progress, replies, lost)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise TransportError(
                f"{self._transport.via} gave no usable answer: {printable(done.stdout, 200)!r}"
            ) from error


def parse_sinfo(text: str) -> dict[str, NodeState]:
    """Nodes in sinfo's output. One that stands in several partitions has one state in all."""
    states: dict[str, NodeState] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|", 7)]
        if len(fields) != 8:
            continue
        name, hostname, state, cpus, memory, gres, _partition, reason = fields
        states[name] = NodeState(
            name,
            state,
            int(cpus) if cpus.isdigit() else None,
            int(memory) if memory.isdigit() else None,
            "" if gres == "(null)" else gres,
            "" if reason in ("none", "(null)") else printable(reason, 200),
            hostname,
        )
    return states


def parse_reply(record: Mapping[str, Any]) -> Reply:
    """A line of the launcher's finished.jsonl. Raises KeyError, TypeError or ValueError."""
    munge = record["munge"]
    return Reply(
        job=record["name"],
        outcome=Outcome(record["outcome"]),
        exit_code=record["exit_code"],
        job_id=record["job_id"],
        stdout=record["stdout"],
        stderr=record["stderr"],
        truncated=record["truncated"],
        submitted_ns=record["submitted_ns"],
        started_ns=record["started_ns"],
        fed_ns=record["fed_ns"],
        document_ns=record["document_ns"],
        ended_ns=record["ended_ns"],
        starts=tuple(
            Start(start["host"], start["node_ns"], start["arrival_ns"], start["received_ns"])
            for start in record["starts"]
        ),
        reason=printable(record["reason"], 200),
        munge=munge
        and MungeReply(
            munge.get("encode_error"), munge.get("decode_exit"), munge.get("decode_status")
        ),
    )


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return printable(lines[-1], 300) if lines else ""
