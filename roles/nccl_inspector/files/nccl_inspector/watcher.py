"""The jobs whose first node this is: each is looked at once a round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from cluster.exporter import Family
from roles.nccl_inspector.files.nccl_inspector import folders, hangs
from roles.nccl_inspector.files.nccl_inspector.actions import Action, Undone, sentence
from roles.nccl_inspector.files.nccl_inspector.folders import JobFolder
from roles.nccl_inspector.files.nccl_inspector.sightings import Source

# The task prolog of the job's first task leaves it (group_vars/all/nccl_inspector.yml).
FIRST = "first"
MISSED = 3  # rounds without an answer, after which what was seen of a job is forgotten


@dataclass
class Watched:
    source: str
    course: hangs.Course
    told: bool = False  # the action is done once for each hang
    missed: int = 0  # rounds in a row without an answer


@dataclass
class Watcher:
    sources: Sequence[Source]
    polls: int
    action: Action
    say: Callable[[str], None]
    now: Callable[[], float] = time.monotonic
    _jobs: dict[tuple[str, int], Watched] = field(default_factory=dict)

    def families(self, jobs: Sequence[JobFolder]) -> Iterator[Family]:
        here = {(job.job, job.owner): job for job in jobs if _is_first(job)}
        self._jobs = {key: seen for key, seen in self._jobs.items() if key in here}
        for key, job in here.items():
            self._look(key, job)
        yield from self.told({key[0]: watched for key, watched in self._jobs.items()})

    def _look(self, key: tuple[str, int], job: JobFolder) -> None:
        for source in self.sources:
            sighting = source.look(job)
            if sighting:
                break
        else:
            self._miss(key)
            return
        known = self._jobs.get(key)
        before = known.course if known is not None and known.source == source.name else None
        course = hangs.after(before, sighting, self.now())
        watched = Watched(source.name, course, known is not None and known.told)
        self._jobs[key] = watched
        if not course.hangs(self.polls):
            if watched.told and not course.polls:
                self.say(f"job {job.job} goes on")
                watched.told = False
        elif not watched.told:
            watched.told = True
            self._act(job, course)

    def _miss(self, key: tuple[str, int]) -> None:
        """Nobody tells. One answer that is late does not end the counting of the polls."""
        if (watched := self._jobs.get(key)) is not None:
            watched.missed += 1
            if watched.missed > MISSED:
                del self._jobs[key]

    def _act(self, job: JobFolder, course: hangs.Course) -> None:
        seconds = self.now() - course.moved
        try:
            done = self.action.do(job, course.odd, seconds)
        except Undone as error:
            done = str(error)
        self.say(f"{sentence(job, course.odd, seconds)} ({done})")

    def told(self, known: Mapping[str, Watched]) -> Iterator[Family]:
        jobs = {job: watched for job, watched in known.items() if not watched.missed}
        hanging = {job: watched.course.hangs(self.polls) for job, watched in jobs.items()}
        yield Family(
            "nccl_job_watched",
            "Whether the source that knows the ranks of a watched job answered",
            ("hpc_job", "source"),
            {(job, watched.source): float(not watched.missed) for job, watched in known.items()},
        )
        yield Family(
            "nccl_job_hanging",
            "Whether no rank goes on while ranks wait for each other",
            ("hpc_job",),
            {(job,): float(value) for job, value in hanging.items()},
        )
        yield Family(
            "nccl_job_seconds_without_progress",
            "Since a rank last launched a collective",
            ("hpc_job",),
            {(job,): self.now() - watched.course.moved for job, watched in jobs.items()},
        )
        yield Family(
            "nccl_job_odd_rank_info",
            "1 for a rank of a hanging job that is silent or not as far as the others",
            ("hpc_job", "rank", "place"),
            {
                (job, str(odd.rank), odd.place): 1.0
                for job, watched in jobs.items()
                if hanging[job]
                for odd in watched.course.odd
            },
        )


def _is_first(job: JobFolder) -> bool:
    with suppress(OSError), folders.opened(job, FIRST):
        return True
    return False
