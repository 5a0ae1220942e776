"""A hang, told from a job that is slow.

A job hangs where two things are so at once, over several polls: no rank launches another
collective, and the ranks are not alike: one does not answer, or has launched another number than
the rest. A slow rank is behind, too, but comes along, and so all move on. Where all ranks are alike
and nothing moves they compute, write a checkpoint or load data: that is told as time without
progress and is no hang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from roles.nccl_inspector.files.nccl_inspector.sightings import Communicator, Rank, Sighting

NAMED = 8  # ranks of one hang


@dataclass(frozen=True)
class Odd:
    """A rank that is not like the others of its communicator, and in what."""

    rank: int
    place: str
    why: str


@dataclass(frozen=True)
class Course:
    """How a job went on so far. `moved` is the time of the last progress that was seen."""

    launched: dict[tuple[str, int], int]
    moved: float
    polls: int = 0  # in a row that saw no progress, and ranks that differ
    odd: tuple[Odd, ...] = ()

    def hangs(self, polls: int) -> bool:
        return self.polls >= polls


def after(course: Course | None, sighting: Sighting, now: float) -> Course:
    """The course with one more look at the job."""
    launched = _launched(sighting)
    if course is None or _moved(course.launched, launched):
        return Course(launched, now)
    odd = tuple(_named(sighting))
    # What a silent rank launched before is not forgotten: it may come back with the same.
    kept = {**course.launched, **launched}
    return Course(kept, course.moved, course.polls + 1 if odd else 0, odd)


def _launched(sighting: Sighting) -> dict[tuple[str, int], int]:
    return {
        (communicator.name, rank.number): sum(rank.counts.values())
        for communicator in sighting
        for rank in communicator.ranks
        if rank.answers
    }


def _moved(before: dict[tuple[str, int], int], now: dict[tuple[str, int], int]) -> bool:
    """Whether a rank launched more, or another program with new communicators began."""
    return any(key not in before or count != before[key] for key, count in now.items())


def _named(sighting: Sighting) -> Iterator[Odd]:
    """Each rank once: silent ones first, then those of the largest communicators."""
    told: set[tuple[int, str]] = set()
    found = [odd for communicator in sighting for odd in _silent(communicator)]
    for communicator in sorted(sighting, key=lambda item: -len(item.ranks)):
        found += _different(communicator)
    for odd in found:
        if (odd.rank, odd.place) not in told and len(told) < NAMED:
            told.add((odd.rank, odd.place))
            yield odd


def _silent(communicator: Communicator) -> Iterator[Odd]:
    for rank in communicator.ranks:
        if not rank.answers:
            yield Odd(rank.number, rank.place, "does not answer")


def _different(communicator: Communicator) -> Iterator[Odd]:
    """Those whose number is not that of most; of two halves the half that is behind."""
    ranks = [rank for rank in communicator.ranks if rank.answers]
    for name in sorted({name for rank in ranks for name in rank.counts}):
        usual, _ = max(
            Counter(_count(rank, name) for rank in ranks).items(),
            key=lambda item: (item[1], item[0]),
        )
        for rank in ranks:
            if (count := _count(rank, name)) != usual:
                yield Odd(rank.number, rank.place, f"launched {count} {name}, others {usual}")


def _count(rank: Rank, name: str) -> int:
    return rank.counts.get(name, 0)
