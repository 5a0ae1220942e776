"""What is demanded of a cluster's security, and how the answers of its hosts are judged.

An item is a sentence that holds or does not. It says which hosts it concerns, which answers it
needs (cluster/readers/security.py asks), and what is wrong by them. The items themselves are in
security_items.py. Nothing here asks anybody.

Nothing holds because it was not asked: a host that did not answer makes every item that concerns it
unknown, and so does a question that failed there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Verdicts.
HOLDS = "holds"
FAILS = "FAILS"
UNKNOWN = "UNKNOWN"  # it could not be asked
OFF = "off"  # the inventory has it otherwise
ABSENT = "absent"  # no host that was asked has what it speaks of
TESTED = "tested"  # no question to a live host shows it; tests do
STATED = "stated"  # a sentence in the documentation says why it is not so


@dataclass(frozen=True, slots=True)
class Host:
    """facts     answers by question; without those in `errors`
    declared  what the inventory says of the host, by variable; None for what nobody sets
    away      why it did not answer; empty where it did
    """

    name: str
    groups: frozenset[str] = frozenset()
    declared: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    away: str = ""

    def is_in(self, *groups: str) -> bool:
        return not self.groups.isdisjoint(groups)


def everywhere(host: Host) -> bool:
    del host
    return True


def never_off(host: Host) -> str:
    del host
    return ""


Judge = Callable[[Host], Iterable[str]]  # what is wrong on one host, a sentence each
JudgeAll = Callable[[Sequence[Host]], Mapping[str, str]]  # what is wrong between hosts, by host


@dataclass(frozen=True, slots=True)
class Item:
    """number   the item of the public list that it belongs to; `+` for one of our own
    concerns whose hosts these are
    needs    the questions whose answers it reads
    off      why the inventory has it otherwise; empty where it has not
    there    whether a host that answered has what the item speaks of
    cure     what to do, a sentence
    """

    number: str
    key: str
    sentence: str
    cure: str
    judge: Judge
    needs: tuple[str, ...] = ()
    concerns: Callable[[Host], bool] = everywhere
    off: Callable[[Host], str] = never_off
    there: Callable[[Host], bool] = everywhere
    between: JudgeAll | None = None


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """An item that no question to a live host answers, and where it is answered."""

    number: str
    key: str
    sentence: str
    verdict: str  # TESTED or STATED
    where: str


@dataclass(frozen=True, slots=True)
class Row:
    """problems: sentences, each with its hosts. hosts: where it holds."""

    number: str
    key: str
    sentence: str
    verdict: str
    hosts: tuple[str, ...] = ()
    problems: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cure: str = ""


def judged(item: Item | Elsewhere, hosts: Sequence[Host]) -> Row:
    """One row of the table. Unknown comes before failed: what was not asked may be worse."""
    if isinstance(item, Elsewhere):
        return Row(item.number, item.key, item.sentence, item.verdict, cure=item.where)
    fine: list[str] = []
    found: dict[str, dict[str, list[str]]] = {UNKNOWN: {}, FAILS: {}, OFF: {}}
    answered: list[Host] = []
    for host in filter(item.concerns, hosts):
        verdict, sentences = _of_host(item, host)
        for sentence in sentences:
            found[verdict].setdefault(sentence, []).append(host.name)
        if verdict == HOLDS:
            fine.append(host.name)
        if verdict in {HOLDS, FAILS}:
            answered.append(host)
    if item.between:
        for name, sentence in item.between(answered).items():
            found[FAILS].setdefault(sentence, []).append(name)
            fine = [each for each in fine if each != name]
    verdict = next((each for each in (UNKNOWN, FAILS) if found[each]), "")
    verdict = verdict or (HOLDS if fine else OFF if found[OFF] else ABSENT)
    wrong = {**found[UNKNOWN], **found[FAILS], **found[OFF]}
    problems = {sentence: tuple(names) for sentence, names in wrong.items()}
    cure = item.cure if found[FAILS] else ""
    return Row(item.number, item.key, item.sentence, verdict, tuple(fine), problems, cure)


def _of_host(item: Item, host: Host) -> tuple[str, list[str]]:
    if host.away:
        return UNKNOWN, [f"it did not answer: {host.away}"]
    try:
        if reason := item.off(host):
            return OFF, [reason]
        if unanswered := list(_unanswered(item, host)):
            return UNKNOWN, unanswered
        if not item.there(host):
            return ABSENT, []
        problems = [*_lacking(item, host)] or list(item.judge(host))
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        return UNKNOWN, [f"what it answered cannot be judged: {error!r}"]
    return (FAILS, problems) if problems else (HOLDS, [])


def _unanswered(item: Item, host: Host) -> Iterator[str]:
    for name in item.needs:
        if name in host.errors:
            yield f"{name} could not be asked: {host.errors[name]}"
        elif name not in host.facts:
            yield f"it was not asked for {name}"


def _lacking(item: Item, host: Host) -> Iterator[str]:
    for name in item.needs:
        if host.facts[name] is None:
            yield f"the host has nothing to answer about {name}"


def code(rows: Iterable[Row]) -> int:
    """The exit status: 0 all hold, 1 something does not, 2 something could not be asked."""
    verdicts = {row.verdict for row in rows}
    if UNKNOWN in verdicts or HOLDS not in verdicts | {FAILS}:
        return 2
    return 1 if FAILS in verdicts else 0
