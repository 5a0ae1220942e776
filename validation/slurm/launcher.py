#!/usr/bin/env python3
"""Runs on the login node: starts Slurm jobs, watches over them, keeps what they answer.

    launcher.py start FOLDER           detach a launcher that works through FOLDER/jobs.json
    launcher.py poll FOLDER OFFSET SECONDS
                                       print how far it is, and what ended after OFFSET; wait that
                                       long for something to end or to begin
    launcher.py cancel FOLDER          end it and all its jobs, then print as poll does
    launcher.py clean FOLDER           remove the folder

Standard library only, Python 3.10 or newer, one file: it is copied beside jobs.json and
payload.zip, nothing of the package is installed on a login node.

Every job has two hard limits of its own, one for waiting in the queue and one for running. Past
either, the job is cancelled in Slurm and its srun is killed, so that whatever hangs costs only
itself. A job that ended is one line in finished.jsonl; a poll reads on from where the last ended.

A job is not waited for up to its limits where something tells earlier that it waits in vain: Slurm
has given up one of its nodes; it has its nodes, and its tasks take many times as long to start as
those of all others did. Where a job waited in vain, or its ranks did not find each other, the jobs
after it on the same nodes would wait for the same: they are skipped.

Jobs may be steps of a shared allocation. Where Slurm does not grant it, where it is taken back, or
where a step's tasks do not start, the step is run as a job of its own: only that one is judged.

A launcher that nobody polls any more ends its jobs and itself, and removes its folder. Where one
was killed, the next `start` of the same user does that.
"""

import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

log = logging.getLogger("launcher")

OUTPUT_LIMIT = 1 << 23  # bytes kept of each stream of a job; every rank's proof is about 1 KiB
TICK = 0.1  # seconds between two looks at a job
LOOK = 0.25  # seconds between two looks for news, while a poll waits for them
SETTLE = 5.0  # seconds for which Slurm may count a job that has ended against a limit
REFUSED_WAIT = 0.5  # seconds before another try, where nobody else of this run is left to wait for
SQUEUE_EVERY = 2.0  # seconds between two questions to slurmctld, for all jobs together
SUSPECT_AFTER = 8.0  # seconds of waiting after which Slurm is asked what became of a job's nodes
GONE_FOR = 10.0  # seconds for which Slurm must say so: a busy node now and then answers late
SLOWER = 10  # times the slowest start so far is what a job that has its nodes may take
COMMAND_TIMEOUT = 10  # seconds for scancel, squeue, munge, unmunge
KILL_AFTER = 5  # seconds srun has to end after scancel
CANCEL_WAIT = 30  # seconds a cancelled launcher has to end

FEED_AFTER = 5  # seconds after which a running job gets its input although no task said it started
FORGOTTEN = 60  # seconds without a poll after which a folder without a launcher is nobody's

OURS = "plumbline: "
# Lines of ours that are no complaint.
NOTED = ("started ", "received ", "stage ", "blamed ", "nccl ")
DOCUMENT = b'{"plumbline"'
SAID = re.compile(rb"plumbline: (started|received) job (\S+) node (\S+) time (\d{1,19})\s*$")  # ns
GRANTED = re.compile(r"^plumbline: granted (\d+)$", re.MULTILINE)
FOLDER = re.compile(r"plumbline-\d{8}T\d{6}Z-\S+")

# How Slurm is reached. All other variables of Slurm's commands would change what is asked, or
# describe a job that this program may run inside of and turn our jobs into steps of it.
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
# PYXIS_ is of the plugin for containers: its variables stand for options of srun.
SLURMS = ("SLURM_", "SRUN_", "SBATCH_", "SALLOC_", "SQUEUE_", "SINFO_", "SCANCEL_", "PYXIS_")


# What changes how a payload computes or communicates: the declaration says it, not the shell of
# whoever starts the run.
DECLARED = (
    *("NCCL_", "UCX_", "FI_", "OFI_", "GLOO_", "TORCH_", "PYTORCH_", "CUDA_", "CUBLAS_", "NVIDIA_"),
    *("OMP_", "MKL_", "MASTER_", "LD_PRELOAD"),
)


def environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or not name.startswith((*SLURMS, *DECLARED))
    }


def write_atomically(path: Path, value: Any) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    os.replace(temporary, path)


def call(command: list[str], stdin: str = "") -> tuple[int | None, str, str]:
    """Exit status (None if there is none), stdout and stderr of a short command."""
    try:
        done = subprocess.run(
            command,
            input=stdin.encode(),
            capture_output=True,
            timeout=COMMAND_TIMEOUT,
            env=environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, "", f"{command[0]} gave no answer in {COMMAND_TIMEOUT} s"
    except OSError as error:
        return None, "", f"{command[0]}: {error.strerror}"
    return (
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )


class Clock:
    """The wall time, in ns, as this clock began with it: later steps of the wall clock count not.

    A time service that puts the login node's clock right in the middle of a run would otherwise
    make the nodes that answered before, or after, seem wrong.
    """

    def __init__(
        self,
        wall: Callable[[], int] = time.time_ns,
        steady: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._steady = steady
        self._offset = wall() - steady()

    def __call__(self) -> int:
        return self._offset + self._steady()


now_ns = Clock()


class Stream(threading.Thread):
    """Keeps what a job prints, up to a limit, and notes when certain lines arrive."""

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._kept = bytearray()
        self.truncated = False
        self.document_ns: int | None = None
        self.starts: list[dict[str, Any]] = []
        self.job_id: str | None = None
        self.start()

    def run(self) -> None:
        # A line longer than the limit comes in pieces; only the first can be one of ours.
        for line in iter(lambda: self._pipe.readline(OUTPUT_LIMIT), b""):
            now = now_ns()
            if self.document_ns is None and line.lstrip().startswith(DOCUMENT):
                self.document_ns = now
            if match := SAID.match(line):
                self._take([group.decode("utf-8", "replace") for group in match.groups()], now)
            room = OUTPUT_LIMIT - len(self._kept)
            self.truncated = self.truncated or len(line) > room
            self._kept += line[:room]

    def _take(self, words: list[str], now: int) -> None:
        what, job_id, node, node_ns = words
        if what == "started":
            self.job_id = job_id
            self.starts.append(
                {"host": node, "node_ns": int(node_ns), "arrival_ns": now, "received_ns": None}
            )
            return
        for start in self.starts:
            if start["host"] == node:
                start["received_ns"] = int(node_ns)

    def text(self) -> str:
        return bytes(self._kept).decode("utf-8", "replace")


class Feeder(threading.Thread):
    """Gives a job its input. Only once a task runs: from then on it takes the input's way alone."""

    def __init__(self, pipe: IO[bytes], content: bytes) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._content = content
        self.fed_ns: int | None = None

    def run(self) -> None:
        with contextlib.suppress(OSError):  # srun ended meanwhile
            self._pipe.write(self._content)
            self._pipe.flush()
        self.fed_ns = now_ns()
        with contextlib.suppress(OSError):
            self._pipe.close()


class Gate:
    """How many jobs may be with Slurm at once: the user's limits may allow fewer than asked."""

    def __init__(self, capacity: int) -> None:
        self._changed = threading.Condition()
        self.capacity = capacity
        self._inside: dict[object, bool] = {}  # whether others of this run counted beside it
        self._counted_until = -SETTLE

    def enter(self) -> object:
        """Wait for room; what to leave with."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._inside) < self.capacity)
            settling = time.monotonic() - self._counted_until < SETTLE
            beside = settling or bool(self._inside)
            self._inside = dict.fromkeys(self._inside, True)
            ticket = object()
            self._inside[ticket] = beside
            return ticket

    def leave(self, ticket: object) -> None:
        """Slurm has ended what it had taken."""
        with self._changed:
            del self._inside[ticket]
            self._counted_until = time.monotonic()
            self._changed.notify_all()

    def refused(self, ticket: object) -> bool:
        """Leave without having been taken; whether others of this run may be why.

        They may have ended since Slurm said so, or Slurm may count them a moment longer: then it
        is worth another try, beside no more than there are now.
        """
        with self._changed:
            beside = self._inside.pop(ticket)
            if beside:
                self.capacity = min(self.capacity, max(1, len(self._inside)))
            self._changed.notify_all()
        if beside and not self._inside:
            time.sleep(REFUSED_WAIT)
        return beside


class Limits:
    """What Slurm says when the user may have no more jobs, and whether it is our own that count."""

    def __init__(self, reasons: list[str], refusals: list[str]) -> None:
        self._reasons = set(reasons)
        self._refusals = refusals
        self.others_run: Callable[[Any], bool] = lambda job: False

    def holds(self, reason: str, job: Any) -> bool:
        """Whether a job waits for others of this run, and for nobody else."""
        word = re.match(r"\w*", reason)
        return bool(word and word.group() in self._reasons) and self.others_run(job)

    def refused(self, stderr: str) -> bool:
        text = stderr.lower()
        is_error = "srun: error" in text or "salloc: error" in text
        return is_error and any(refusal in text for refusal in self._refusals)


class Pace:
    """How long the tasks of a run's jobs took to start: what is left follows from that."""

    def __init__(self, slowest_s: float | None = None) -> None:
        self._slowest_s = slowest_s  # of the run's jobs before these, where there were any

    def started(self, seconds: float) -> None:
        self._slowest_s = max(self._slowest_s or 0.0, seconds)

    def limit_s(self, most_s: float, floor_s: float) -> float:
        """How long a job that has its nodes is waited for. Before one has started: all it may."""
        if self._slowest_s is None:
            return most_s
        return min(most_s, max(floor_s, SLOWER * self._slowest_s))


class NodeWatch:
    """Which nodes Slurm has given up, by what it says of them again and again."""

    def __init__(self, gone_states: list[str], asleep_flags: str) -> None:
        self._gone_states = set(gone_states)
        self._asleep_flags = asleep_flags
        self._since: dict[str, float] = {}

    def see(self, states: dict[str, str], now: float) -> None:
        for name, state in states.items():
            if self._gone(state):
                self._since.setdefault(name, now)
            else:
                self._since.pop(name, None)

    def gone(self, names: list[str], now: float) -> bool:
        """Whether one of the nodes was given up, and stayed so."""
        return any(now - self._since.get(name, now) >= GONE_FOR for name in names)

    def suspects(self, names: list[str]) -> bool:
        """Whether one of the nodes did not look well when it was last seen."""
        return any(name in self._since for name in names)

    def _gone(self, state: str) -> bool:
        word = re.match(r"[a-z_]*", state.lower())
        if any(flag in state for flag in self._asleep_flags):
            return False  # a job wakes it
        return "*" in state or bool(word and word.group() in self._gone_states)


class Submission:
    """One srun or salloc, from its start to its end. Runs in a thread of its own."""

    def __init__(self, order: dict[str, Any], limits: Limits) -> None:
        self.order = order
        self.limits = limits
        self.name: str = order["name"]
        self.slurm_name: str = order["slurm_name"]
        self.state = "pending"
        self.job_id: str | None = None
        self.reason = ""
        self.seen_running_ns: int | None = None
        self.has_nodes = False  # they are its own, and are being made ready
        self.given_up = False  # Slurm does not use one of its nodes any more
        self.submitted_ns: int | None = None
        self.ended_ns: int | None = None
        self.err: Stream | None = None
        self.limited = False  # refused or held by a limit of the user: to be tried again

    @property
    def started_ns(self) -> int | None:
        return self.seen_running_ns

    def waits_s(self) -> float:
        """How long ago it was submitted."""
        return (now_ns() - self.submitted_ns) / 1e9 if self.submitted_ns else 0.0

    def heard(self, job_id: str, state: str, reason: str) -> None:
        """What squeue says.

        A node that still boots (CONFIGURING) has not started the job, nor has one whose prolog has
        not ended, or was never begun because slurmd does not answer: Slurm calls it RUNNING.
        """
        self.job_id = self.job_id or job_id
        self.has_nodes = state == "RUNNING"
        if (state, reason) == ("RUNNING", "Prolog"):
            self.reason = reason
        elif state in ("RUNNING", "COMPLETING"):
            self.seen_running_ns = self.seen_running_ns or now_ns()
        elif reason not in ("", "None"):
            self.reason = reason

    def _open(self, command: list[str]) -> "subprocess.Popen[bytes] | None":
        """Start the command; None, with the reason, if it cannot be."""
        self.submitted_ns = now_ns()
        self.job_id, self.reason, self.seen_running_ns, self.err = None, "", None, None
        self.has_nodes = self.given_up = False
        self.state, self.limited = "queued", False
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment(), **self.order.get("environment", {})},
                start_new_session=True,
            )
        except OSError as error:
            self.reason = f"{command[0]}: {error.strerror}"
            return None
        assert process.stderr is not None
        self.err = Stream(process.stderr)
        return process

    def _watch(self, process: "subprocess.Popen[bytes]", cancelled: threading.Event) -> str:
        begin = time.monotonic()
        nodes_begin: float | None = None
        run_begin: float | None = None
        while True:
            try:
                process.wait(TICK)
                return "exited"
            except subprocess.TimeoutExpired:
                pass
            now = time.monotonic()
            if nodes_begin is None and self.has_nodes:
                nodes_begin = now
            if run_begin is None and self.started_ns is not None:
                run_begin, self.state = now, "running"
                self._started(now - (nodes_begin or begin))
            if self._look(0.0 if run_begin is None else now - run_begin):
                return "granted"
            if cancelled.is_set():
                outcome = "cancelled"
            elif run_begin is None and self.limits.holds(self.reason, self):
                outcome = "held"
            elif run_begin is None and (self.given_up or now > self._deadline(begin, nodes_begin)):
                outcome = "queue_limit"
            elif run_begin is None:
                continue
            elif now - self._running_since(nodes_begin, run_begin) > self.order["run_limit_s"]:
                outcome = "run_limit"
            else:
                continue
            log.info("%s: %s, cancelling", self.name, outcome)
            self._end(process)
            return outcome

    def _deadline(self, begin: float, nodes_begin: float | None) -> float:
        """Until when it must have started: it waits for its nodes, then for them to be ready."""
        return begin + float(self.order["queue_limit_s"])

    def _running_since(self, nodes_begin: float | None, run_begin: float) -> float:
        """From when on its limit for running counts: for Slurm a job runs while it is prepared."""
        return nodes_begin or run_begin

    def _started(self, seconds: float) -> None:
        """Called once, when it has started: so long after it got its nodes."""

    def _look(self, running_s: float) -> bool:
        """Called at every tick; whether no more is to be waited for."""
        return False

    def _close(self, stream: Stream, outcome: str) -> None:
        """Read to the end, and note whether a limit was in the way."""
        assert self.err is not None
        for reader in (stream, self.err):
            reader.join(KILL_AFTER)  # a stray child may hold the pipe open
        refused = outcome == "exited" and self.limits.refused(self.err.text())
        self.limited = outcome == "held" or (refused and self.started_ns is None)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        self._scancel()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_AFTER)
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _scancel(self) -> None:
        call(["scancel", f"--name={self.slurm_name}"])


class Allocation(Submission):
    """Nodes that several jobs use as steps: asked for by the first, given back by the last.

    salloc holds it as long as its command reads from us, so it ends with this program too. It
    counts as one job against what may be with Slurm at once.
    """

    def __init__(self, order: dict[str, Any], limits: Limits, gate: Gate) -> None:
        super().__init__(order, limits)
        self._gate = gate
        self._users = 0
        self._lock = threading.Lock()
        self._tried = False
        self._ticket: object = None
        self._out: Stream | None = None
        self._held: subprocess.Popen[bytes] | None = None

    def expect(self) -> None:
        """One lane more uses it."""
        self._users += 1

    def enter(self, cancelled: threading.Event) -> str | None:
        """The allocation's job id; None where Slurm does not grant it."""
        with self._lock:
            while not self._tried and not cancelled.is_set():
                self._ticket = self._gate.enter()
                outcome = self._ask(cancelled)
                again = outcome == "held"
                if self.limited:
                    again = self._gate.refused(self._ticket) or again
                elif outcome != "granted":
                    self._gate.leave(self._ticket)
                self._tried = not again
            return self.job_id if self._held else None

    def _deadline(self, begin: float, nodes_begin: float | None) -> float:
        whole = super()._deadline(begin, nodes_begin)
        if nodes_begin is None:
            return whole
        return min(whole, nodes_begin + float(self.order["ready_limit_s"]))

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users or self._held is None:
                return
            assert self._held.stdin is not None
            with contextlib.suppress(OSError):
                self._held.stdin.close()
            try:
                self._held.wait(KILL_AFTER)
            except subprocess.TimeoutExpired:
                self._end(self._held)
            self.state = "done"
            self._gate.leave(self._ticket)

    def gone(self) -> bool:
        """Whether Slurm does not run the allocation any more."""
        command = ["squeue", "--noheader", f"--jobs={self.job_id}", "--format=%T"]
        status, out, err = call(command)
        if status != 0:
            return "invalid job id" in err.lower()
        return out.strip() != "RUNNING"

    def _ask(self, cancelled: threading.Event) -> str:
        process = self._open(self.order["command"])
        if process is None:
            log.info("%s: %s", self.name, self.reason)
            return "not_submitted"
        assert process.stdout is not None
        assert self.err is not None
        self._out = Stream(process.stdout)
        outcome = self._watch(process, cancelled)
        if outcome == "granted":
            self._held, self.state = process, "running"
            self.job_id = self._granted()
            log.info("%s: allocation %s", self.name, self.job_id)
            return outcome
        self._close(self._out, outcome)
        self.state = "done"
        stderr = self.err.text().strip()
        log.info("%s: no allocation: %s %s %s", self.name, outcome, self.reason, stderr)
        return outcome

    def _look(self, running_s: float) -> bool:
        return self._granted() is not None

    def _granted(self) -> str | None:
        assert self._out is not None
        match = GRANTED.search(self._out.text())
        return match[1] if match else None


class JobSubmission(Submission):
    """One srun from submission to its record: a job of Slurm, or a step of an allocation."""

    def __init__(self, order: dict[str, Any], folder: Path, limits: Limits, pace: Pace) -> None:
        super().__init__(order, limits)
        self.pace = pace
        self.folder = folder
        self.feeder: Feeder | None = None
        self.allocation: str | None = None  # the job it is a step of

    @property
    def started_ns(self) -> int | None:
        times = [self.seen_running_ns] if self.seen_running_ns else []
        if self.err:
            times += [start["arrival_ns"] for start in self.err.starts[:1]]
        return min(times, default=None)

    def progress(self) -> dict[str, Any]:
        end = self.ended_ns or now_ns()
        seconds = (end - self.submitted_ns) / 1e9 if self.submitted_ns else 0.0
        return {
            "name": self.name,
            "state": self.state,
            "job_id": self.job_id or (self.err and self.err.job_id),
            "seconds": round(seconds, 1),
            "reason": self.reason,
        }

    def run(self, cancelled: threading.Event, allocation: str | None = None) -> dict[str, Any]:
        if cancelled.is_set():
            return self._record("cancelled")
        self.allocation = allocation
        command = self.order["command"]
        if allocation is not None:
            step = self.order["step"]
            srun, *options = step["command"]
            command = [srun, f"--jobid={allocation}", *options]
        config = dict(self.order["config"])
        munge: dict[str, Any] | None = None
        if self.order["munge"]:
            config["munge_credential"], munge = new_credential()
        self.feeder = None
        process = self._open([*command, json.dumps(config)])
        if process is None:
            return self._record("not_submitted")
        assert process.stdin is not None
        assert process.stdout is not None
        assert self.err is not None
        self.feeder = Feeder(process.stdin, (self.folder / "payload.zip").read_bytes())
        out = Stream(process.stdout)
        self.has_nodes = allocation is not None
        outcome = self._watch(process, cancelled)
        if self.feeder.ident is None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        self._close(out, outcome)
        self.job_id = self.err.job_id or self.job_id
        if munge is not None:
            munge.update(try_credential(out.text()))
        return self._record(outcome, process.returncode, out, munge)

    def skipped(self, first: str) -> dict[str, Any]:
        """The record of a job that is not run, because of the one that waited before it."""
        self.reason = first
        return self._record("skipped")

    def _deadline(self, begin: float, nodes_begin: float | None) -> float:
        if nodes_begin is None:
            return super()._deadline(begin, nodes_begin)
        order = self.order
        most = order["step"]["start_limit_s"] if self.allocation else order["run_limit_s"]
        return nodes_begin + self.pace.limit_s(most, order["start_floor_s"])

    def _running_since(self, nodes_begin: float | None, run_begin: float) -> float:
        # The step of an allocation starts with its tasks.
        return run_begin if self.allocation else super()._running_since(nodes_begin, run_begin)

    def _started(self, seconds: float) -> None:
        self.pace.started(seconds)

    def _look(self, running_s: float) -> bool:
        assert self.feeder is not None
        assert self.err is not None
        if self.feeder.ident is None and (self.err.starts or running_s > FEED_AFTER):
            self.feeder.start()
        return False

    def _scancel(self) -> None:
        if self.allocation is None:
            super()._scancel()
            return
        # A step has no job's name to cancel it by.
        command = ["squeue", "--noheader", "--steps", f"--jobs={self.allocation}"]
        _, out, _ = call([*command, "--format=%i|%j"])
        for step_id, _, name in (line.partition("|") for line in out.splitlines()):
            if name == self.slurm_name:
                call(["scancel", step_id])

    def _record(
        self,
        outcome: str,
        exit_code: int | None = None,
        out: Stream | None = None,
        munge: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        if self.submitted_ns:
            self.ended_ns = now_ns()
        self.state = "done"
        err = self.err
        return {
            "name": self.name,
            "outcome": outcome,
            "exit_code": exit_code,
            "job_id": self.job_id,
            "reason": self.reason,
            "stdout": out.text() if out else "",
            "stderr": err.text() if err else "",
            "truncated": bool(out and out.truncated),
            "submitted_ns": self.submitted_ns,
            "started_ns": self.started_ns,
            "fed_ns": self.feeder and self.feeder.fed_ns,
            "document_ns": out.document_ns if out else None,
            "ended_ns": self.ended_ns,
            "starts": err.starts if err else [],
            "munge": munge,
        }


def new_credential() -> tuple[str | None, dict[str, Any]]:
    """A credential of this node for a job to decode, and why there is none."""
    status, out, err = call(["munge", "-n"])
    if status == 0 and out.strip():
        return out.strip(), {"encode_error": None}
    return None, {"encode_error": err.strip() or f"munge ended with {status}"}


def try_credential(stdout: str) -> dict[str, Any]:
    """Whether this node accepts the credential in a job's answer."""
    credential = None
    for line in stdout.splitlines():
        if line.lstrip().startswith(DOCUMENT.decode()):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                credential = json.loads(line)["measured"]["munge_encoded"]
    if not isinstance(credential, str):
        return {"decode_exit": None, "decode_status": None}
    status, out, err = call(["unmunge"], credential)
    match = re.search(r"^STATUS:\s*(.*)$", out, re.MULTILINE)
    decode_status = match.group(1) if match else err.strip() or None
    return {"decode_exit": status, "decode_status": decode_status}


class Launcher:
    """Works through all lanes, keeps progress.json and finished.jsonl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        orders = json.loads((folder / "jobs.json").read_text(encoding="utf-8"))
        self.lease_s: float = orders["lease_s"]
        limits = Limits(orders["limit_reasons"], orders["limit_refusals"])
        limits.others_run = self._others_run
        pace = Pace(orders["slowest_start_s"])
        self.lanes = [
            [JobSubmission(order, folder, limits, pace) for order in lane]
            for lane in orders["lanes"]
        ]
        self.jobs = [job for lane in self.lanes for job in lane]
        self.gate = Gate(max(1, min(orders["at_once"], len(self.lanes))))
        self.allocations = {
            order["name"]: Allocation(order, limits, self.gate) for order in orders["allocations"]
        }
        for lane in self.lanes:
            if (allocation := self._allocation(lane)) is not None:
                allocation.expect()
        self.nodes = NodeWatch(orders["gone_states"], orders["asleep_flags"])
        self.waited: list[str] = orders["waited"]
        self.in_vain: dict[tuple[str, ...], str] = {}  # by nodes, the job that waited for nothing
        self.cancelled = threading.Event()
        self.abandoned = False
        self.done = threading.Event()
        self._write = threading.Lock()

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.cancelled.set())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._note_progress()
        watcher = threading.Thread(target=self._watch_queue, daemon=True)
        watcher.start()
        with ThreadPoolExecutor(self.gate.capacity) as pool:
            waiting = [pool.submit(self._run_lane, lane) for lane in self.lanes]
            while not all(future.done() for future in waiting):
                time.sleep(TICK)
                self._note_progress()
                if not self.cancelled.is_set() and unseen_s(self.folder) > self.lease_s:
                    log.info("nobody has asked for %s s, cancelling", self.lease_s)
                    self.abandoned = True
                    self.cancelled.set()
        for future in waiting:
            future.result()  # a fault of the launcher itself belongs into its log
        self.done.set()
        self._note_progress()
        if self.abandoned:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _allocation(self, lane: list[JobSubmission]) -> "Allocation | None":
        step = lane[0].order["step"]
        return self.allocations[step["allocation"]] if step else None

    def _others_run(self, submission: Submission) -> bool:
        everything = [*self.jobs, *self.allocations.values()]
        return any(other.state == "running" for other in everything if other is not submission)

    def _run_lane(self, lane: list[JobSubmission]) -> None:
        allocation = self._allocation(lane)
        left = lane
        if allocation is not None:
            try:
                if (job_id := allocation.enter(self.cancelled)) is not None:
                    left = self._run_steps(lane, allocation, job_id)
            finally:
                allocation.leave()
        for job in left:
            self._keep(job, self._skipped(job) or self._run_alone(job))

    def _run_steps(
        self, lane: list[JobSubmission], allocation: Allocation, job_id: str
    ) -> list[JobSubmission]:
        """Run the lane's jobs as steps; those that are left when one says nothing of its node."""
        for number, job in enumerate(lane):
            record = self._skipped(job) or job.run(self.cancelled, job_id)
            ended_badly = record["outcome"] != "cancelled" and record["exit_code"] != 0
            settled = record["outcome"] == "skipped" or job.given_up
            if ended_badly and not settled and (not record["starts"] or allocation.gone()):
                log.info("%s: as a job of its own, not as a step of %s", job.name, job_id)
                job.state = "pending"
                return lane[number:]
            self._keep(job, record)
        return []

    def _skipped(self, job: JobSubmission) -> dict[str, Any] | None:
        """The record of a job that would wait for what another one waited for in vain."""
        first = self.in_vain.get(tuple(job.order["nodes"]))
        if first is None or self.cancelled.is_set():
            return None
        log.info("%s: skipped, as %s waited in vain", job.name, first)
        return job.skipped(first)

    def _run_alone(self, job: JobSubmission) -> dict[str, Any]:
        while True:
            ticket = self.gate.enter()
            try:
                record = job.run(self.cancelled)
            except BaseException:
                self.gate.leave(ticket)
                raise
            # Submitted anew, with a fresh credential, when there is room again.
            again = record["outcome"] == "held"
            if job.limited:
                again = self.gate.refused(ticket) or again
            else:
                self.gate.leave(ticket)
            if not again:
                return record
            job.state = "pending"
            log.info("%s: a limit lets no more jobs through, waits for another", job.name)

    def _keep(self, job: JobSubmission, record: dict[str, Any]) -> None:
        if waited_in_vain(record["outcome"], record["exit_code"], record["stderr"], self.waited):
            self.in_vain.setdefault(tuple(job.order["nodes"]), job.name)
        line = json.dumps(record) + "\n"
        with self._write, open(self.folder / "finished.jsonl", "a", encoding="utf-8") as file:
            file.write(line)

    def _note_progress(self) -> None:
        state = "done" if self.done.is_set() else "running"
        jobs = [job.progress() for job in self.jobs]
        with contextlib.suppress(OSError):  # a full disk must not end the watch over the jobs
            write_atomically(self.folder / "progress.json", {"state": state, "jobs": jobs})

    def _watch_queue(self) -> None:
        while not self.done.wait(SQUEUE_EVERY):
            everything = [*self.jobs, *self.allocations.values()]
            waiting = {item.slurm_name: item for item in everything if item.state == "queued"}
            if not waiting:
                continue
            command = ["squeue", "--noheader", f"--user={os.getuid()}", "--format=%i|%T|%r|%j"]
            status, out, err = call(command)
            if status != 0:
                log.warning("squeue: %s", err.strip())
            for line in out.splitlines():
                job_id, state, reason, name = [*line.split("|", 3), "", "", ""][:4]
                if name in waiting:
                    waiting[name].heard(job_id, state, reason)
            self._watch_nodes([*waiting.values()])

    def _watch_nodes(self, waiting: "list[Submission]") -> None:
        """Give up what waits for a node that Slurm has given up."""
        late = [
            item
            for item in waiting
            if item.waits_s() > SUSPECT_AFTER or self.nodes.suspects(item.order["nodes"])
        ]
        names = dict.fromkeys(name for item in late for name in item.order["nodes"])
        if not names:
            return
        command = ["sinfo", "--all", "-h", "-N", "-n", ",".join(names), "-o", "%N|%T"]
        _, out, _ = call(command)
        now = time.monotonic()
        self.nodes.see(dict(line.split("|", 1) for line in out.splitlines() if "|" in line), now)
        for item in late:
            if self.nodes.gone(item.order["nodes"], now):
                item.given_up = True


def waited_in_vain(outcome: str, exit_code: int | None, stderr: str, waited: Sequence[str]) -> bool:
    """Whether others on the same nodes would wait for the same as a job that ended so."""
    if outcome in ("queue_limit", "skipped"):
        return True
    lines = complaints(stderr)
    return (
        exit_code not in (None, 0)
        and bool(lines)
        and all(any(words in line for words in waited) for line in lines)
    )


def complaints(stderr: str) -> list[str]:
    """The lines in which payloads say what is wrong."""
    lines = [line for line in stderr.splitlines() if line.startswith(OURS)]
    return [line for line in lines if not line.removeprefix(OURS).startswith(NOTED)]


def unseen_s(folder: Path) -> float:
    """How long nobody has polled."""
    try:
        return time.time() - (folder / "seen").stat().st_mtime
    except OSError:
        return 0.0


def clear_forgotten(place: Path) -> None:
    """Remove what runs of this user left that were killed, and end what of theirs still runs."""
    for folder in place.glob("plumbline-*"):
        with contextlib.suppress(OSError, ValueError):
            status = folder.lstat()
            mine = status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode)
            if not mine or not FOLDER.fullmatch(folder.name) or unseen_s(folder) < FORGOTTEN:
                continue
            lock = locked(folder)
            if lock is None:
                continue
            scancel_all(folder)
            shutil.rmtree(folder, ignore_errors=True)
            lock.close()


def scancel_all(folder: Path) -> None:
    """End what may still run of a launcher that is gone."""
    orders = json.loads((folder / "jobs.json").read_text(encoding="utf-8"))
    progress: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        progress = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
    if progress.get("state") != "done":
        everything = [
            *orders.get("allocations", []),
            *(order for lane in orders["lanes"] for order in lane),
        ]
        for order in everything:
            call(["scancel", f"--name={order['slurm_name']}"])


def locked(folder: Path) -> "IO[bytes] | None":
    """The folder's lock, or None while a launcher holds it."""
    file = open(folder / "lock", "ab")  # noqa: SIM115 - held until this process ends
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def start(folder: Path) -> int:
    lock = locked(folder)
    if lock is None:
        print(f"a launcher works in {folder}", file=sys.stderr)
        return 1
    clear_forgotten(folder.parent)
    (folder / "seen").touch()
    with open(folder / "launcher.log", "ab") as out:
        # The child inherits the lock, so that there is no moment in which nobody holds it.
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "run", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            pass_fds=(lock.fileno(),),
            cwd="/",
        )
    (folder / "pid").write_text(str(child.pid), encoding="utf-8")
    print(json.dumps({"folder": str(folder), "pid": child.pid}))
    return 0


def run(folder: Path) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    Launcher(folder).run()
    return 0


def news(folder: Path, offset: int, patience_s: float) -> "IO[bytes] | None":
    """The folder's lock, or None, once something ended or began, or the time is up.

    Who asks through Ansible pays a second of CPU time for each question, so it is asked seldom and
    answered when there is something to tell.
    """
    end = time.monotonic() + patience_s
    before = standing(folder)
    while True:
        # The lock first: what a launcher that is gone wrote is then complete.
        lock = locked(folder)
        with contextlib.suppress(OSError):
            (folder / "seen").touch()
        now = standing(folder)
        told = lock is not None or now != before or now[0] == "done" or has_more(folder, offset)
        if told or time.monotonic() >= end:
            return lock
        time.sleep(LOOK)


def has_more(folder: Path, offset: int) -> bool:
    try:
        return (folder / "finished.jsonl").stat().st_size > offset
    except OSError:
        return False


def progress_of(folder: Path) -> dict[str, Any]:
    with contextlib.suppress(FileNotFoundError):
        return dict(json.loads((folder / "progress.json").read_text(encoding="utf-8")))
    return {"state": "starting", "jobs": []}


def standing(folder: Path) -> tuple[str, list[tuple[str, str]]]:
    """How far the launcher is, and each of its jobs, whatever the time."""
    progress = progress_of(folder)
    return progress["state"], [(job["name"], job["state"]) for job in progress["jobs"]]


def poll(folder: Path, offset: int, patience_s: float = 0.0) -> int:
    lock = news(folder, offset, patience_s)
    finished: list[Any] = []
    path = folder / "finished.jsonl"
    if path.exists():
        with open(path, "rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                finished.append(json.loads(line))
    progress = progress_of(folder)
    tail = ""
    if lock is not None:
        with contextlib.suppress(FileNotFoundError):
            tail = (folder / "launcher.log").read_text("utf-8", "replace")[-2000:]
    answer = {**progress, "alive": lock is None, "offset": offset, "finished": finished}
    print(json.dumps({**answer, "log": tail}))
    return 0


def cancel(folder: Path, offset: int) -> int:
    lock = locked(folder)
    if lock is None:
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((folder / "pid").read_text(encoding="utf-8")), signal.SIGTERM)
        end = time.monotonic() + CANCEL_WAIT
        while lock is None and time.monotonic() < end:
            time.sleep(TICK)
            lock = locked(folder)
    else:
        # Nobody is left to watch over the jobs: end what may still run.
        scancel_all(folder)
    if lock is not None:
        lock.close()
    return poll(folder, offset)


def clean(folder: Path) -> int:
    if not (folder / "jobs.json").is_file() or not (folder / "launcher.py").is_file():
        print(f"{folder} is no folder of this program", file=sys.stderr)
        return 1
    lock = locked(folder)
    if lock is None:
        print(f"a launcher works in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def main(arguments: list[str]) -> int:
    match arguments:
        case ["start", folder]:
            return start(Path(folder))
        case ["run", folder]:
            return run(Path(folder))
        case ["poll", folder, offset, seconds]:
            return poll(Path(folder), int(offset), float(seconds))
        case ["cancel", folder, offset]:
            return cancel(Path(folder), int(offset))
        case ["clean", folder]:
            return clean(Path(folder))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
