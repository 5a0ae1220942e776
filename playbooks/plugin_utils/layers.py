"""A layer of a run, as it is watched: a play, with all of its batches of hosts.

From what was seen to lines; nothing here knows Ansible.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from textwrap import indent

from cluster.hostlist import compress
from cluster.watching import LEAST, Step, clipped, fitted, folded, timing, wrapped


@dataclass(slots=True)
class Layer:
    """What was seen of it; `hosts` are those that it is for."""

    name: str
    hosts: frozenset[str]
    begun_at: float
    expected_s: float | None = None
    check: bool = False
    task: str = ""
    results: int = 0
    answered: set[str] = field(default_factory=set)  # hosts that are done with the task
    changed: dict[str, set[str]] = field(default_factory=dict)  # hosts by task
    lost: set[str] = field(default_factory=set)
    detail: str = ""  # of a task that says how far it is

    def begin(self, task: str) -> None:
        self.task, self.detail, self.answered = task, "", set()

    def note(self, host: str, changed: bool = False) -> None:
        self.results += 1
        self.answered.add(host)
        if changed:
            self.changed.setdefault(self.task, set()).add(host)

    def step(self, now: float) -> Step:
        """While it goes on: how many hosts are done with the task."""
        time = timing(now - self.begun_at, self.expected_s)
        detail = self.detail or short(self.task)
        return Step(self.name, len(self.answered), len(self.hosts), "hosts", time, detail)

    def end(self, now: float, width: int) -> list[str]:
        """At its end: how many hosts are done with all of it, and what it changed."""
        seconds = now - self.begun_at
        before = self.expected_s if _differs(seconds, self.expected_s) else None
        many = len(self.changed)
        verb = "would change something" if self.check else "changed something"
        tasks = f"; {many} {'task' if many == 1 else 'tasks'} {verb}" if many else ""
        done = f"{len(self.hosts - self.lost)} of {len(self.hosts)} hosts"
        text = f"{self.name}: {done}, {timing(seconds, before, 'instead of')}{tasks}"
        return [*wrapped(text, width), *self._names(width)]

    def _names(self, width: int) -> Iterator[str]:
        if self.changed:
            where = hosts_in_words(set().union(*self.changed.values()), self.hosts, width // 3)
            head = f"    {where}: "
            yield head + folded([*map(short, self.changed)], max(width - len(head), LEAST))


def short(task: str) -> str:
    """The name of a task without the role and the phase before it."""
    return task.rpartition(" | ")[2].rpartition(" : ")[2]


def _differs(seconds: float, expected: float | None) -> bool:
    """Whether the time of the run before is worth a word: a new machine, a slow mirror."""
    return expected is not None and abs(seconds - expected) > max(10.0, 0.5 * expected)


def hosts_in_words(some: Iterable[str], every: frozenset[str], width: int) -> str:
    """Hosts of a layer: as ranges, or their number where these are long."""
    names = set(some)
    if names == every and len(names) > 1:
        return "all hosts"
    text = compress(names)
    return text if len(text) <= max(width, LEAST) else f"{len(names)} hosts"


def failure(host: str, task: str, lines: Sequence[str], width: int, reached: bool = True) -> str:
    """What a host failed in, in full."""
    what = "Failed" if reached else "Not reached"
    head = wrapped(f'{what}: {host}, at "{task}"', width)
    parts = (part for line in lines for part in fitted(f"    {line}".rstrip(), width))
    return "\n".join([*head, *parts])


def printed(hosts: Iterable[str], text: str, width: int | None) -> str:
    """What a playbook prints for these hosts: a sentence after their names, a table below them."""
    where = compress(hosts)
    if "\n" in text:
        return f"{clipped(where, (width or sys.maxsize) - 1)}:\n{indent(text, '    ')}"
    if width is None:
        return f"{where}: {text}"
    return "\n".join(wrapped(f"{clipped(where, width // 2)}: {text}", width))


def alike(hosts: Iterable[str], reached: bool) -> str:
    """Hosts that failed in the words that stand above."""
    return f"{'Failed' if reached else 'Not reached'} likewise: {compress(hosts)}"
