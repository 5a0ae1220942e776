"""From what was written in a job's folder to series, of which there is a bounded number."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.exporter import Family, Labels
from roles.nccl_inspector.files.nccl_inspector import dumps, folders
from roles.nccl_inspector.files.nccl_inspector.folders import JobFolder, OwnFile

MOST_BYTES = 4 * 2**20  # of one file in one round: 8,000 collectives and more
MOST_KEYS = 1024  # of one job on one node, whatever is then told of them
FEWEST = 4  # series of a job, of however many jobs

Key = tuple[str, int, str]  # communicator, rank, collective


@dataclass
class Sum:
    count: int = 0
    seconds: float = 0.0
    bytes: int = 0
    bus_bytes: float = 0.0

    def add(self, one: dumps.Collective) -> None:
        self.count += 1
        self.seconds += one.seconds
        self.bytes += one.bytes
        self.bus_bytes += one.bus_bytes_per_s * one.seconds


@dataclass
class Place:
    """How far a file is read, and the beginning of a line whose end is not written yet."""

    offset: int = 0
    begun: bytes = b""
    whole: bool = True  # False until a line's end is seen, where it may begin within one


@dataclass
class JobSums:
    sums: dict[Key, Sum] = field(default_factory=dict)
    lost: dict[tuple[str, int], int] = field(default_factory=dict)
    places: dict[tuple[int, int], Place] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)  # names of files that are not the owner's own
    unreadable: int = 0
    without_room: int = 0
    keeps: bool = False

    def read(self, folder: JobFolder) -> None:
        """What is new in all files of the job. Never raises: they are its user's."""
        for name in folders.names(folder, ".log"):
            try:
                with folders.opened(folder, name, writing=True) as file:
                    self._read(file)
            except FileNotFoundError:
                continue
            except OSError:
                if name not in self.refused and len(self.refused) < folders.MOST_ENTRIES:
                    self.refused.add(name)
                    self.unreadable += 1

    def _read(self, file: OwnFile) -> None:
        place = self.places.get(file.identity)
        if place is None:
            if len(self.places) >= folders.MOST_ENTRIES:
                raise OSError("too many files")
            place = self.places[file.identity] = Place()
        if place.offset > file.size:  # begun anew
            place.offset, place.begun, place.whole = 0, b"", True
        begin = folders.data_from(file, place.offset)
        if begin > place.offset:
            place.begun, place.whole = b"", False
        if begin >= file.size:
            return
        new = os.pread(file.number, MOST_BYTES, begin)
        place.offset = begin + len(new)
        if not self.keeps:
            folders.freed(file, place.offset)
        *lines, place.begun = (place.begun + new).split(b"\n")
        if lines and not place.whole:
            del lines[0]
            place.whole = True
        if len(place.begun) > dumps.LONGEST:
            self.unreadable += place.whole
            place.begun, place.whole = b"", False
        self._add(lines)

    def _add(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if not line.strip(b"\0 \r"):
                continue
            try:
                found = dumps.parse(line.strip(b"\0"))
            except dumps.Unreadable:
                self.unreadable += 1
                continue
            if isinstance(found, dumps.Collective):
                self._count(found)
            elif isinstance(found, dumps.Lost):
                key = (found.communicator, found.rank)
                if key in self.lost or len(self.lost) < MOST_KEYS:
                    self.lost[key] = max(found.total, self.lost.get(key, 0))

    def _count(self, one: dumps.Collective) -> None:
        key = (one.communicator, one.rank, one.name)
        if key not in self.sums:
            if len(self.sums) >= MOST_KEYS:
                self.without_room += 1
                return
            self.sums[key] = Sum()
        self.sums[key].add(one)

    def told(self, most: int) -> Mapping[Key, Sum]:
        """Those that took the most time."""
        longest = sorted(self.sums.items(), key=lambda item: (-item[1].seconds, item[0]))
        return dict(longest[:most])


class Totals:
    """Of all jobs that run here; a job's go with its folder. `keeps`: what is read stays there."""

    def __init__(self, series: int, keeps: bool = False) -> None:
        self._series = series
        self._keeps = keeps
        self._jobs: dict[tuple[str, int], JobSums] = {}

    def families(self, jobs: Sequence[JobFolder]) -> Iterator[Family]:
        known = {(job.job, job.owner): job for job in jobs}
        self._jobs = {key: self._jobs.get(key, JobSums(keeps=self._keeps)) for key in known}
        for key, sums in self._jobs.items():
            sums.read(known[key])
        written = {key[0]: sums for key, sums in self._jobs.items() if sums.places}
        yield from families_of(written, max(FEWEST, self._series // max(1, len(written))))


def families_of(jobs: Mapping[str, JobSums], most: int) -> Iterator[Family]:
    """At most so many ranks and collectives of each job."""
    yield from _families({job: sums.told(most) for job, sums in jobs.items()})
    yield from _of_jobs(jobs, most)


LABELS = ("hpc_job", "comm", "rank", "collective")


TOLD: Mapping[str, tuple[str, Callable[[Sum], float]]] = {
    "collectives": ("Collectives that NCCL's inspector recorded", lambda sum_: sum_.count),
    "collective_seconds": ("Seconds that these collectives took", lambda sum_: sum_.seconds),
    "collective_bytes": ("Sizes of the messages of these collectives", lambda sum_: sum_.bytes),
    "bus_bytes": ("Their bandwidths on the bus times their seconds", lambda sum_: sum_.bus_bytes),
}


def _families(told: Mapping[str, Mapping[Key, Sum]]) -> Iterator[Family]:
    rows: dict[Labels, Sum] = {
        (job, comm, str(rank), name): value
        for job, sums in told.items()
        for (comm, rank, name), value in sums.items()
    }
    for metric, (text, value_of) in TOLD.items():
        samples = {labels: float(value_of(value)) for labels, value in rows.items()}
        yield Family(f"nccl_inspector_{metric}_total", text, LABELS, samples, "counter")


def _of_jobs(jobs: Mapping[str, JobSums], most: int) -> Iterator[Family]:
    def family(name: str, text: str, values: Mapping[str, float], kind: str = "counter") -> Family:
        samples: dict[Labels, float] = {(job,): float(value) for job, value in values.items()}
        return Family(f"nccl_inspector_{name}", text, ("hpc_job",), samples, kind)

    yield family(
        "lost_total",
        "Collectives that the inspector had no room for",
        {job: sum(sums.lost.values()) + sums.without_room for job, sums in jobs.items()},
    )
    yield family(
        "unreadable_total",
        "Lines and files in the job's folder that are not the inspector's",
        {job: sums.unreadable for job, sums in jobs.items()},
    )
    yield family(
        "series_left_out",
        "Ranks and collectives of the job that have no series of their own",
        {job: max(0, len(sums.sums) - most) for job, sums in jobs.items()},
        "gauge",
    )
