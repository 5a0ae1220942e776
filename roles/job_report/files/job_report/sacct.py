"""A job in Slurm's accounting.

`sacct --json` differs from release to release and tells less in 22.05; the columns have been the
same since 20.02 (sacct(1)). A user chooses the name of a job, also with the separator or a newline
in it, so names are asked for on their own, and no line of theirs is read as a row.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cluster import hostlist, processes
from cluster.text import printable
from roles.job_report.files.job_report.errors import NoJob, NotKnown

LIMIT_S = 20.0
JOB = re.compile(r"\d+(_\d+|\+\d+)?")
SEPARATOR = "\x1f"
COLUMNS = (
    "JobID",
    "JobIDRaw",
    "UID",
    "User",
    "Account",
    "Partition",
    "State",
    "ExitCode",
    "Start",
    "End",
    "ElapsedRaw",
    "TimelimitRaw",
    "AllocCPUS",
    "NodeList",
    "AllocTRES",
    "TotalCPU",
    "TRESUsageInTot",
    "ConsumedEnergyRaw",
)
_NO_ENERGY = 2**32 - 2  # NO_VAL, or more
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50}

Row = Mapping[str, str]


@dataclass(frozen=True)
class AccountedJob:
    """What Slurm knows of a job.

    id                 the one that Slurm counts by, also of a task of an array
    uid                the number of its user, None where Slurm does not say it
    start, end         seconds since the epoch; end is None while it runs, start before it does
    limit_s            None without one
    nodes              empty before it starts
    memory_bytes       what was allocated on all nodes, None where memory is not counted
    cpu_s              CPU seconds that its steps used, None where that is not known (yet)
    memory_peak_bytes  the most that a step used on all nodes: the sum of its tasks' own peaks
    memory_steps_bytes the sum of that over all steps, which no moment of the job was above; None
                       where a step has no sample
    energy_j           what its whole nodes used, None where nothing measures it (slurm_energy)
    """

    id: str
    shown: str
    name: str
    uid: int | None
    user: str
    account: str
    partition: str
    state: str
    exit_code: str
    start: float | None
    end: float | None
    elapsed_s: float
    limit_s: float | None
    cpus: int
    nodes: tuple[str, ...]
    memory_bytes: int | None
    gpus: int
    cpu_s: float | None
    memory_peak_bytes: int | None
    memory_steps_bytes: int | None
    energy_j: int | None

    @property
    def running(self) -> bool:
        return self.start is not None and self.end is None


def read(job: str) -> AccountedJob:
    """Of whoever's, as far as Slurm tells us. Raises NotKnown."""
    rows = _ask("--allusers", f"--format={','.join(COLUMNS)}", f"--jobs={job}")
    name = _ask("--allusers", "--format=JobName", "--allocations", f"--jobs={job}")
    return parse(rows, job, name)


def read_of(job: str, uid: int | None) -> AccountedJob:
    """A job of this user, without its name; of anybody where there is no uid. Raises NotKnown.

    Slurm leaves out what is others', so that nothing depends on what is theirs, and its own word on
    whose it is counts beside that.
    """
    whose = "--allusers" if uid is None else f"--uid={uid}"
    found = parse(_ask(whose, f"--format={','.join(COLUMNS)}", f"--jobs={job}"), job, "")
    if uid is not None and found.uid != uid:
        raise no_job(job)
    return found


def answers() -> None:
    """Raises NotKnown where accounting cannot be asked."""
    _ask("--allusers", "--format=JobID", "--jobs=1")


def no_job(job: str) -> NoJob:
    return NoJob(f"Slurm's accounting has no job {job}, or none that you may see.")


def _ask(*options: str) -> str:
    command = ["sacct", "--noheader", "--parsable2", f"--delimiter={SEPARATOR}"]
    try:
        done = processes.run(
            [*command, *options],
            LIMIT_S,
            environment={**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"},
        )
    except processes.CommandFailed as error:
        raise NotKnown(f"{str(error).rstrip('.')}.") from None
    return done.stdout


def parse(text: str, job_id: str, name: str) -> AccountedJob:
    """The job that was asked for. Raises NotKnown where there is none, or more than one."""
    rows = [_row(line) for line in text.split("\n") if line.strip()]
    jobs = [row for row in rows if "." not in row["JobID"]]
    if not jobs:
        raise no_job(job_id)
    if len(jobs) > 1:
        example = next((row["JobID"] for row in jobs if JOB.fullmatch(row["JobID"])), job_id)
        raise NotKnown(f"{job_id} is {len(jobs)} jobs; name one of them, such as {example}.")
    job = jobs[0]
    return _job(job, name, [row for row in rows if row is not job])


def _row(line: str) -> Row:
    cells = line.split(SEPARATOR)
    if len(cells) != len(COLUMNS):
        raise NotKnown(f"sacct says {len(cells)} columns where {len(COLUMNS)} were asked for.")
    return {column: printable(cell) for column, cell in zip(COLUMNS, cells, strict=True)}


def _job(row: Row, name: str, steps: Sequence[Row]) -> AccountedJob:
    allocated = tres(row["AllocTRES"])
    start, end = _time(row["Start"]), _time(row["End"])
    used = duration(row["TotalCPU"])
    sampled = [
        size(tres(step["TRESUsageInTot"]).get("mem", ""))
        for step in steps
        if not step["JobID"].endswith(".extern")  # where nothing of the job's runs
    ]
    peaks = [peak for peak in sampled if peak]
    return AccountedJob(
        id=row["JobIDRaw"],
        shown=row["JobID"],
        name=printable(name),
        uid=int(row["UID"]) if row["UID"].isdecimal() else None,
        user=row["User"],
        account=row["Account"],
        partition=row["Partition"],
        state=row["State"],
        exit_code=row["ExitCode"],
        start=start,
        end=end,
        elapsed_s=float(row["ElapsedRaw"] or 0),
        limit_s=float(row["TimelimitRaw"]) * 60 if row["TimelimitRaw"].isdigit() else None,
        cpus=int(row["AllocCPUS"] or 0),
        nodes=_nodes(row["NodeList"]),
        memory_bytes=size(allocated.get("mem", "")),
        gpus=int(allocated.get("gres/gpu", "0")),
        # Steps are counted when they end: of one that runs Slurm says 0.
        cpu_s=used if end is not None and used else None,
        memory_peak_bytes=max(peaks, default=None),
        memory_steps_bytes=sum(peaks) if peaks and all(sampled) else None,
        energy_j=energy(row["ConsumedEnergyRaw"]) if end is not None else None,
    )


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return tuple(hostlist.expand(text))
    except hostlist.HostlistError:  # "None assigned"
        return ()


def _time(text: str) -> float | None:
    """With SLURM_TIME_FORMAT=%s; Unknown and None are words of Slurm's."""
    return float(text) if text.isdigit() else None


def tres(text: str) -> dict[str, str]:
    """Of "billing=8,cpu=8,gres/gpu=2,mem=64G"."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def energy(joules: str) -> int | None:
    """None where nothing measures it: Slurm says nothing then, 0 or NO_VAL (slurm.h)."""
    return int(joules) if joules.isdecimal() and 0 < int(joules) < _NO_ENERGY else None


def size(text: str) -> int | None:
    """Of "64G" or "1234.50M"; None where nothing is said."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    return int(float(match[1]) * 2 ** _UNITS[match[2]]) if match else None


def duration(text: str) -> float | None:
    """Seconds of "[[DD-]HH:]MM:SS[.mmm]"."""
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)", text)
    if match is None:
        return None
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4])
