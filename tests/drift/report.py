"""What became of each change by hand, in a table, and of the rest of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.drift.catalogue import ABSENT, REMADE, Drift, Looked
from tests.drift.changed_tasks import reported_by
from tests.drift.cluster import Run


@dataclass(frozen=True, slots=True)
class Row:
    """A change, the thing's state now where it is not as before, and the tasks that reported it."""

    drift: Drift
    differs: str
    tasks: tuple[str, ...]

    @property
    def good(self) -> bool:
        return not self.differs and bool(self.tasks)


@dataclass(frozen=True, slots=True)
class Judged:
    """All of it. `others` are things that nobody changed by hand and that differ now."""

    rows: tuple[Row, ...]
    others: tuple[str, ...]
    code: int
    second: Run

    @property
    def good(self) -> bool:
        rows = bool(self.rows) and all(row.good for row in self.rows)
        quiet = self.second.code == 0 and not self.second.changes
        return rows and not self.others and self.code == 0 and quiet


def comparable(subject: str, state: str) -> str:
    """A state; of what is made anew without its content, the last of a file's words."""
    remade = subject in REMADE and state != ABSENT
    return state.rpartition(" ")[0] if remade else state


def state(drift: Drift, looked: Looked) -> str:
    return looked[drift.host][drift.kind].get(drift.subject, "not known there")


def same(drift: Drift, earlier: Looked, other: Looked) -> bool:
    """Whether the thing is as it should be, in the second look as in the first."""
    first, second = (comparable(drift.subject, state(drift, looked)) for looked in (earlier, other))
    return first == second


def differences(before: Looked, after: Looked) -> dict[tuple[str, str, str], tuple[str, str]]:
    """By host, kind and subject, the states of what is not as it was."""
    changes = {}
    for host, kinds in sorted(after.items()):
        for kind, things in kinds.items():
            for subject, now in sorted(things.items()):
                was = before[host][kind].get(subject, "not there")
                if comparable(subject, now) != comparable(subject, was):
                    changes[host, kind, subject] = (was, now)
    return changes


def judge(drifts: Sequence[Drift], before: Looked, after: Looked, run: Run, second: Run) -> Judged:
    rows = tuple(
        Row(
            drift,
            "" if same(drift, before, after) else state(drift, after),
            tuple(reported_by(drift, run.changes)),
        )
        for drift in drifts
    )
    by_hand = {(drift.host, drift.kind, drift.subject) for drift in drifts}
    others = tuple(
        f"{host}: {kind} {subject} was {states[0]}, is {states[1]}"
        for (host, kind, subject), states in differences(before, after).items()
        if (host, kind, subject) not in by_hand
    )
    return Judged(rows, others, run.code, second)


def table(judged: Judged) -> str:
    """One line for each change, then what else there is to say."""
    cells = [("host", "what", "put right", "reported by")]
    for row in judged.rows:
        what = f"{row.drift.kind} {row.drift.subject} {row.drift.how}"
        right = "yes" if not row.differs else f"NO: {row.differs}"
        cells.append((row.drift.host, what, right, "; ".join(row.tasks) or "NOBODY"))
    widths = [max(len(line[column]) for line in cells) for column in range(3)]
    lines = [
        "  ".join([*(line[column].ljust(width) for column, width in enumerate(widths)), line[3]])
        for line in cells
    ]
    lines.append("")
    whole = sum(not row.differs for row in judged.rows)
    reported = sum(bool(row.tasks) for row in judged.rows)
    lines.append(f"{len(judged.rows)} changes: {whole} put right, {reported} reported")
    if judged.code:
        lines.append(f"The run that puts it right ended with {judged.code}.")
    lines += [f"Nobody changed this, and it differs: {other}" for other in judged.others]
    if judged.second.code:
        lines.append(f"The run after it ended with {judged.second.code}.")
    lines += [
        f"The run after it changed {entry.host}: {entry.task}" for entry in judged.second.changes
    ]
    if judged.good:
        lines.append("The run after it changed nothing.")
    return "\n".join(lines)
