"""What the ranks of a job said of NCCL, folded into a sentence for its result.

Lines of standard error (payloads/nccl_witness.py) tell it of a job that failed, NCCL's own logs
within the answer of one that did not. What all ranks say alike is told once; what few of them say
is told with their names, because that is where to look.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cluster.text import printable
from validation.model import Metric

_LINE = re.compile(
    r"plumbline: nccl rank (?P<rank>\d{1,9}) on (?P<host>\S{1,255}) (?P<kind>[a-z-]+): (?P<text>.+)"
)
# NCCL_RUN_DIAGNOSTICS and NCCL_RUN_RAS_DIAGNOSTICS (since 2.31): rank 0 prints what it found beside
# what is in order (docs.nvidia.com/deeplearning/nccl/user-guide, Diagnostics).
_DIAGNOSIS = re.compile(r"(?:\S+ )?NCCL DIAG (?P<text>.*)")
_FOUND = re.compile(r"\[(?!OK\])[A-Z]+\] +(?P<text>.*)")

# In this order: why, what it waits for, over what. `no-ras` is no finding, and only for who looks.
_SAID = {
    "warned": "NCCL warned: {}",
    "diagnosed": "NCCL's diagnostics: {}",
    "ras": "NCCL's RAS: {}",
    "waits": "torch's flight recorder: {}",
    "network": "NCCL's network: {}",
    "bootstrap": "the ranks met over {}",
    "release": "NCCL {}",
}
_NAMES = {
    "warned": "NCCL warned",
    "diagnosed": "NCCL's diagnostics",
    "ras": "NCCL's RAS",
    "waits": "torch's flight recorder",
    "network": "NCCL's network",
    "bootstrap": "NCCL's bootstrap interface",
    "no-ras": "NCCL's RAS",
    "release": "NCCL's release",
}
_TEXTS, _RANKS = 3, 2  # of one kind, and of one text
LONGEST = 200  # of one kind
LONGEST_ALL = 600
_DETAIL = 1000


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a rank said; rank is None where one spoke for all."""

    kind: str
    text: str
    rank: int | None = None
    host: str = ""

    @property
    def who(self) -> str:
        return f"rank {self.rank} on {self.host}"


def read(stderr: str) -> list[Note]:
    """The notes among the lines of a job's standard error."""
    notes = []
    for line in stderr.splitlines():
        if match := _LINE.fullmatch(line):
            notes.append(Note(match["kind"], match["text"], int(match["rank"]), match["host"]))
        elif (match := _DIAGNOSIS.fullmatch(line)) and (found := _FOUND.fullmatch(match["text"])):
            notes.append(Note("diagnosed", found["text"]))
    return notes


def is_note(line: str) -> bool:
    """Whether a line of standard error is for `read`, and no complaint."""
    return _LINE.fullmatch(line) is not None or _DIAGNOSIS.fullmatch(line) is not None


def sentence(notes: Sequence[Note], told: str = "") -> str:
    """What they say, without what is told already; empty where nothing is left."""
    parts = []
    for kind, template in _SAID.items():
        left = [note for note in notes if note.kind == kind and note.text not in told]
        if left:
            parts.append(template.format(printable(folded(left), LONGEST)))
    return printable("; ".join(parts), LONGEST_ALL)


def details(notes: Sequence[Note]) -> tuple[Metric, ...]:
    """The same at length, for who opens the result."""
    metrics: dict[str, Metric] = {}
    for kind, name in _NAMES.items():
        if of_it := [note for note in notes if note.kind == kind]:
            metrics.setdefault(name, Metric(name, printable(folded(of_it), _DETAIL)))
    return tuple(metrics.values())


def folded(notes: Iterable[Note]) -> str:
    """Notes of one kind: what most say first, then what others say, with their names."""
    speakers: dict[str, list[Note]] = {}
    for note in notes:
        speakers.setdefault(note.text, []).append(note)
    texts = sorted(speakers.items(), key=lambda item: -len(item[1]))
    parts = [text if len(texts) == 1 else _by(text, who) for text, who in texts[:_TEXTS]]
    more = f"and {len(texts) - _TEXTS} others" if len(texts) > _TEXTS else ""
    return "; ".join(filter(None, (*parts, more)))


def _by(text: str, notes: Sequence[Note]) -> str:
    named = [note.who for note in notes if note.rank is not None]
    if not named:
        return text
    if len(named) > _RANKS:
        return f"{text} on {len(named)} ranks"
    return f"{text} on {' and '.join(named)}"
