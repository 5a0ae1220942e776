"""What this node has told Slurm, and what follows from that: only what we drained do we return.

Two files in /var/lib/plumbline/node-health:

    job.json    a prolog or an epilog that failed. They call nothing of Slurm's, they only end with
                an error: then slurmctld drains the node, with a reason that says nothing
    drain.json  what the HealthCheckProgram has told Slurm, or was about to

The HealthCheckProgram alone calls scontrol. It writes down what it is about to say before it says
it, and that it was said afterwards: interrupted anywhere, the next run goes on from there. A drain
is ours if its reason is one that stands in drain.json, or the one that slurmctld gives when our
prolog or epilog fails. Everything else is somebody's decision, and left alone.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster.files import write_whole

FOLDER = Path("/var/lib/plumbline/node-health")
SPARE = Path("/run/plumbline/node-health")

# src/slurmctld/node_mgr.c (validate_node_specs) and job_mgr.c (job_epilog_complete) of Slurm 21.08
# to 25.05: slurmctld drains with these, and leaves a node alone that is drained already.
GENERIC = {"prolog": "Prolog error", "epilog": "Epilog error"}

# How long slurmctld may take to drain a node of which a prolog has failed.
PENDING_S = 300.0
# How often Slurm is asked about a node that goes on failing, and that we believe to be drained.
LOOK_AGAIN_S = 600.0


@dataclass(frozen=True)
class JobFailure:
    """A prolog or epilog that failed. gpus are those of its job, None where it had none said."""

    context: str
    at: float
    failures: Mapping[str, str]
    gpus: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Drain:
    """What Slurm was told.

    checks    those that fail, and the GPUs of the job that a failure is about
    reasons   what Slurm may show if the drain is ours; none where somebody else drained the node
    told      whether the last of them was taken by Slurm; False: we were about to
    at        when Slurm was asked or told last, in seconds since the epoch
    """

    checks: Mapping[str, tuple[int, ...] | None]
    reasons: tuple[str, ...]
    told: bool
    at: float


@dataclass(frozen=True)
class View:
    """What Slurm says of this node."""

    drained: bool
    reason: str


@dataclass(frozen=True)
class Step:
    """What to do next: `say` a reason to Slurm (drains), or `undrain`; neither only saves.

    before   what is written down first
    after    what is written down when Slurm took it; None forgets
    job_done the failure of the prolog or epilog is dealt with: slurmctld has heard of it
    note     for the log
    """

    after: Drain | None
    before: Drain | None = None
    say: str | None = None
    undrain: bool = False
    job_done: bool = False
    note: str = ""


def must_look(
    drain: Drain | None, job: JobFailure | None, failing: Mapping[str, str], now: float
) -> bool:
    """Whether Slurm has to be asked at all: not on a healthy node, nor of failures it knows."""
    if job is not None:
        return True
    if drain is None:
        return bool(failing)
    if not failing:
        return bool(drain.reasons)
    same = set(drain.checks) == set(failing)
    # A clock that was set back must not silence us for long.
    return not (same and drain.told and 0 <= now - drain.at < LOOK_AGAIN_S)


def decide(
    drain: Drain | None,
    job: JobFailure | None,
    failing: Mapping[str, str],
    view: View,
    now: float,
) -> Step:
    """What to do, given what is written down, what fails now (check to reason) and Slurm's word."""
    generic = GENERIC[job.context] if job is not None else None
    ours = (drain.reasons if drain else ()) + ((generic,) if generic else ())
    is_ours = view.drained and view.reason in ours
    # Until then its drain may still come, after one of ours was told and undone.
    heard = job is None or view.reason == generic or not 0 <= now - job.at < PENDING_S
    if failing:
        step = _failing(drain, job, failing, view, is_ours, now)
        return replace(step, job_done=heard)
    if is_ours:
        # What makes it ours is written down already, and stays so until Slurm took it.
        return Step(after=None, undrain=True, job_done=heard)
    note = f"drained by somebody else ({view.reason}), left so" if view.drained else ""
    return Step(after=None, job_done=heard, note=note)


def _failing(
    drain: Drain | None,
    job: JobFailure | None,
    failing: Mapping[str, str],
    view: View,
    is_ours: bool,
    now: float,
) -> Step:
    about = {
        name: job.gpus if job is not None and name in job.failures else _about(drain, name)
        for name in failing
    }
    reason = together(failing)
    if view.drained and not is_ours:
        foreign = Drain(about, (), True, now)
        note = f"drained by somebody else ({view.reason}), left so"
        return Step(after=foreign, note=note)
    after = Drain(about, (reason,), True, now)
    if view.drained and view.reason == reason:
        return Step(after=after)
    before = replace(
        after, reasons=tuple(dict.fromkeys((reason, *_known(view, drain)))), told=False
    )
    return Step(after=after, before=before, say=reason)


def _known(view: View, drain: Drain | None) -> tuple[str, ...]:
    """What Slurm may still show of ours if we are interrupted."""
    return ((view.reason,) if view.drained else ()) + (drain.reasons if drain else ())


def _about(drain: Drain | None, name: str) -> tuple[int, ...] | None:
    return drain.checks.get(name) if drain else None


def together(failing: Mapping[str, str]) -> str:
    """One reason for Slurm: the first one whole, the names of the others."""
    first, *others = failing
    more = f" (and {', '.join(others)})" if others else ""
    return failing[first] + more


# --- the files ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Files:
    """folder outlives a reboot, which is how many a fault is mended; spare is memory, for the time
    in which the disk cannot be written to.
    """

    folder: Path = field(default_factory=lambda: FOLDER)
    spare: Path = field(default_factory=lambda: SPARE)

    def drain(self) -> Drain | None:
        document = self._load("drain.json")
        if document is None:
            return None
        checks = {name: _numbers(gpus) for name, gpus in document["checks"].items()}
        return Drain(
            checks, tuple(document["reasons"]), bool(document["told"]), float(document["at"])
        )

    def job(self) -> JobFailure | None:
        document = self._load("job.json")
        if document is None:
            return None
        gpus = _numbers(document["gpus"])
        return JobFailure(
            document["context"], float(document["at"]), dict(document["failures"]), gpus
        )

    def keep_drain(self, drain: Drain | None) -> None:
        self._save("drain.json", None if drain is None else asdict(drain))

    def keep_job(self, job: JobFailure) -> None:
        self._save("job.json", asdict(job))

    def forget_job(self, job: JobFailure | None) -> None:
        """Unless another prolog has failed since."""
        if job is not None and self.job() == job:
            self._save("job.json", None)

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Whether nobody else is at it: one HealthCheckProgram at a time. Never waits."""
        self.spare.mkdir(mode=0o755, parents=True, exist_ok=True)
        with open(self.spare / "lock", "w", encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def _load(self, name: str) -> dict[str, Any] | None:
        """None where nothing was written: nothing is ours then."""
        for folder in (self.spare, self.folder):
            try:
                document = json.loads((folder / name).read_text(encoding="utf-8"))
            except (FileNotFoundError, ValueError):
                continue
            if isinstance(document, dict):
                return document
        return None

    def _save(self, name: str, what: Mapping[str, Any] | None) -> None:
        try:
            _write(self.folder / name, what)
        except OSError:
            _write(self.spare / name, what)
        else:
            (self.spare / name).unlink(missing_ok=True)


def _numbers(gpus: list[int] | None) -> tuple[int, ...] | None:
    return None if gpus is None else tuple(int(number) for number in gpus)


def _write(path: Path, what: Mapping[str, Any] | None) -> None:
    """Whole or not at all, and on the disk before Slurm is told; None removes it."""
    if what is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_whole(path, json.dumps(what), sync=True)
