"""The end of a run in an operator's words: which hosts are done, which are not, what to do next.

Ansible's recap counts tasks. This says which hosts were not reached, which failed and in what,
which plays were cut short or never began, and the command that does the rest. It is called at the
end of every run, also when the controller was lost; after Ctrl-C it speaks as the process ends.

`summary` is a pure function from what was seen to text; the callback below only watches. It is
silent for playbooks that have nothing to do with the hosts of `slurm_cluster`.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

from cluster import watching
from cluster.text import printable
from playbooks.plugin_utils.leaving_out import left_out

DOCUMENTATION = """
name: summary
type: aggregate
short_description: Tells at the end of a run which hosts are done, which are not, and what to do
description:
  - Runs in the control node's process, after Ansible's recap.
  - Writes the names of many hosts into C(.plumbline-limit) beside the inventory, for C(--limit).
"""

CLUSTER = "slurm_cluster"
# Playbooks that look and change nothing: they are neither done nor left to do.
CHECKS = {
    "preflight.yml",
    "hold.yml",
    "declared.yml",
    "powered-down.yml",
    "verify-nodes.yml",
    "verify-security.yml",
}
# The first play of a playbook for the whole cluster says so: `vars: {__run_is_whole: true}`.
WHOLE = "__run_is_whole"
# For --limit, beside the inventory.
LIMIT_FILE = ".plumbline-limit"
NAMED = 10  # hosts that are named one by one; troubles that are told
WIDTH = 240  # of one message
TITLE = "preflight refused "
# Slurm, systemd and logs write when; a thousand hosts fail for one cause in many seconds.
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?")
# A value that was given with -e; `ps` showed it while the run lasted, a log would keep it.
SECRET = re.compile(
    r"""((?:pass|secret|token)[\w-]*["']?\s*[:=]\s*)("[^"]*"|'[^']*'|[^\s,}]+)""", re.I
)


# --- what was seen -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Play:
    """A play: the hosts it is for, and those among them that had dropped out by its end."""

    name: str
    hosts: tuple[str, ...]
    begun: bool = True
    ended: bool = True
    lost: frozenset[str] = frozenset()
    changes: bool = True  # false for a play that only checks


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a host was lost to. `whole` is of the run as such: no host is to blame."""

    host: str
    play: str
    task: str
    words: str
    reached: bool = True
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it was seen; `stopped_at` is the task at which a person interrupted it."""

    command: tuple[str, ...]
    hosts: tuple[str, ...]
    plays: tuple[Play, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    changed: int | None = 0  # hosts on which something was changed; None: not known
    check: bool = False
    stopped_at: str | None = None
    contacted: bool = True  # whether a host of the cluster was asked anything
    off: tuple[str, ...] = ()  # hosts that power saving has switched off, and that are left out
    whole: bool = False  # whether the playbook refuses --limit

    @property
    def troubled(self) -> set[str]:
        return {trouble.host for trouble in self.troubles if not trouble.whole}

    @property
    def waiting(self) -> tuple[str, ...]:
        """Hosts without a fault of their own for which the run ended too early."""
        if not self.troubles and self.stopped_at is None:
            return ()
        early = {h for p in self.plays for h in (p.lost if p.ended else p.hosts)}
        early -= self.troubled
        return tuple(host for host in self.hosts if host in early)

    @property
    def cut_short(self) -> bool:
        return bool(self.waiting) or self.stopped_at is not None

    @property
    def limit(self) -> tuple[str, ...]:
        """Hosts to which the next run can be limited; none where the whole command is needed."""
        if self.cut_short or self.whole:
            return ()
        return tuple(host for host in self.hosts if host in self.troubled)


# --- in words ------------------------------------------------------------------------------------


def names(hosts: Sequence[str]) -> str:
    """The first hosts by name, the others as a number."""
    shown = ", ".join(hosts[:NAMED])
    return f"{shown} and {len(hosts) - NAMED} more" if len(hosts) > NAMED else shown


def number(count: int) -> str:
    return f"{count} host" if count == 1 else f"{count} hosts"


def same_command(command: Sequence[str], limit: str = "") -> str:
    """The command as it was given, without what looks like a secret, or with another --limit."""
    words = [SECRET.sub(r"\1…", word) for word in command]
    kept: list[str] = []
    while words:
        word = words.pop(0)
        if limit and word in {"-l", "--limit"}:
            words = words[1:]
        elif not limit or not re.match(r"--limit=|-l.", word):
            kept.append(word)
    return shlex.join([*kept, "--limit", limit] if limit else kept)


def outcome(run: Run) -> str:
    """One line: how many hosts are done, and whether anything was changed."""
    left = run.troubled | set(run.waiting)
    done = [host for host in run.hosts if host not in left]
    if run.check:
        change = "check mode: nothing was changed"
        change += f", {number(run.changed)} would be" if run.changed else ""
    elif run.changed is None:
        change = ""
    elif run.changed:
        change = f"something was changed on {number(run.changed)}"
    else:
        change = "nothing was changed"
    change = change and f"; {change}"
    only_checked = not any(play.changes for play in run.plays if play.hosts)
    state = "is done" if len(done) < 2 else "are done"
    state = "passed the checks" if only_checked else state
    if not done:
        return f"No host {state}{change}."
    if not left and only_checked and not run.contacted:
        return f"The inventory passed the checks for {number(len(done))}; no host was contacted."
    if not left:
        everyone = "The host" if len(done) == 1 else f"All {number(len(done))}"
        return f"{everyone} {state}{change}."
    return f"{len(done)} of {number(len(run.hosts))} {state} ({names(done)}){change}."


def troubles(run: Run, width: int | None = None) -> Iterable[str]:
    """What stopped hosts, alike ones together: first the run itself. It was told in full before."""
    order = {host: place for place, host in enumerate(run.hosts)}

    def place(host: str) -> tuple[int, str]:
        return order.get(host, len(order)), host  # a host of another group comes last

    for title, chosen in (
        ("Stopped", lambda t: t.whole),
        ("Not reached, and therefore not configured", lambda t: not t.whole and not t.reached),
        ("Failed", lambda t: not t.whole and t.reached),
    ):
        matching = [trouble for trouble in run.troubles if chosen(trouble)]
        if not matching:
            continue
        alike: dict[tuple[str, str], list[Trouble]] = {}
        for t in matching:
            words = MOMENT.sub("THEN", t.words.replace(t.host, "HOST"))
            alike.setdefault((t.task, words), []).append(t)
        for (task, _), some in list(alike.items())[:NAMED]:
            hosts = sorted({t.host for t in some}, key=place)
            who = "" if matching[0].whole else f": {names(hosts)}"
            yield f'{title}{who}, at "{task}"'
            yield watching.clipped(f"    {some[0].words}", width or WIDTH)
        if len(alike) > NAMED:
            yield f"    and {len(alike) - NAMED} other reasons; they are told above."


def layers(run: Run) -> Iterable[str]:
    """Which plays were done, which were cut short, and which never began."""
    if run.stopped_at is not None:
        yield f"The run was interrupted at {run.stopped_at}."
    plays = [play for play in run.plays if play.changes and play.hosts]
    waiting = set(run.waiting)
    begun = [play for play in plays if play.begun]
    short = [p for p in begun if not p.ended or p.lost & waiting or set(p.hosts) <= p.lost]
    never = [play for play in plays if not play.begun]
    if plays and never == plays:
        yield "Nothing was configured: the run ended before its first layer."
        return
    for title, chosen in (
        ("Done", [play for play in begun if play not in short]),
        ("Cut short", short),
        ("Not begun", never),
    ):
        if chosen:
            yield f"{title + ':':<11}{'; '.join(dict.fromkeys(play.name for play in chosen))}"


def summary(run: Run, limit_file: str = "", width: int | None = None) -> str:
    """The end of a run as text, no wider than a terminal; its command stays one line to copy.

    limit_file  has the names of run.limit where they are many
    """
    lines = [outcome(run)]
    if run.off:
        lines.append(f"Off, by power saving: {names(run.off)}. A run does them once they are on.")
    if run.troubles or run.cut_short:
        lines += troubles(run, width)
        if run.cut_short:
            lines += layers(run)
        limit = f"@{limit_file}" if limit_file else ",".join(run.limit)
        lines.append("Next, once that is repaired:" if run.troubles else "Next:")
    if width:
        lines = [row for line in lines for row in rows(line, width)]
    if run.troubles or run.cut_short:
        lines.append(f"    {same_command(run.command, limit)}")
    return "\n".join(lines)


def rows(line: str, width: int) -> list[str]:
    text = line.lstrip(" ")
    return watching.wrapped(text, width, indent=" " * (len(line) - len(text)))


# --- a task's result -----------------------------------------------------------------------------


def first_sentence(text: str) -> str:
    """The first sentence of a message, in bounds, and without what a terminal would obey."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["(no message)"]
    return printable(re.split(r"(?<=[.!?])\s+(?=[A-Z])", lines[0])[0], WIDTH)


def ssh_words(message: str) -> str:
    """Why a host was not reached, as ssh says it: without addresses, which differ for each host."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["(no message)"]
    words = re.sub(r"^(Task failed: )?(Failed to connect to the host via ssh: )?", "", lines[-1])
    words = re.sub(r"^ssh: connect to host \S+ port \d+: ", "", words)
    return first_sentence(words)


def unreachable_words(result: Mapping[str, Any], delegate: str = "") -> str:
    """Why a host was not reached; `delegate` is the host that the task was delegated to."""
    items = result.get("results")
    each = [result, *items] if isinstance(items, list) else [result]
    messages = [
        i["msg"] for i in each if isinstance(i, dict) and i.get("unreachable") and "msg" in i
    ]
    words = ssh_words(str((messages or [result.get("msg", "")])[0]))
    return f"{delegate}: {words}" if delegate else words


def failure_words(result: Mapping[str, Any]) -> str:
    """Why a task failed; what no_log hides stays hidden."""
    if "censored" in result or result.get("_ansible_no_log"):
        return "its output is hidden, for it may hold a secret (no_log)"
    items = result.get("results")
    if isinstance(items, list):
        failed = [item for item in items if isinstance(item, dict) and item.get("failed")]
        if failed:
            return failure_words(failed[0])
    message = result.get("msg") or result.get("reason") or ""
    if isinstance(message, list):
        # The title of preflight's sentences says what the first line of the summary does.
        message = [part for part in message if not str(part).startswith(TITLE)] or message
        more = f" (and {len(message) - 2} more, told above)" if len(message) > 2 else ""
        return " ".join(first_sentence(str(part)) for part in message[:2]) + more
    text = re.sub(r"^((Task|Module|Action) failed: )+", "", str(message))
    # pip's module begins with all that pip says, which ends with the error.
    if at_last := re.findall(r"^ERROR: .*", text, re.MULTILINE):
        text = at_last[-1]
    # apt's module begins with its whole command, which is longer than what apt says.
    text = re.sub(r"^'/usr/bin/apt-get .*' failed: (E: )?", "apt-get: ", text)
    errors = str(result.get("stderr") or result.get("stdout") or "").strip().splitlines()
    if text.startswith("non-zero return code") and errors:
        text = f"exit status {result.get('rc')}: {errors[-1]}"
    return first_sentence(text)


# --- Ansible's side ------------------------------------------------------------------------------


class Watch:
    """What the callback has seen of one playbook."""

    def __init__(self, playbook: Any) -> None:
        self.all = list(playbook.get_plays())
        self.begun: dict[str, list[Any]] = {}  # play's id: the play for each of its batches
        self.reached: dict[str, set[str]] = {}  # play's id: the hosts of these batches
        self.task = ""
        # Failures of a play count only for hosts that dropped out of it: others were rescued.
        self.troubles: list[tuple[str, Trouble]] = []
        self.contacted = False
        self.off: list[str] = []

    def play(self, play: Any) -> None:
        self.begun.setdefault(play._uuid, []).append(play)
        batch = play.get_variable_manager()._inventory._restriction or ()
        self.reached.setdefault(play._uuid, set()).update(batch)
        self.task = ""

    def trouble(self, result: Any, words: str, reached: bool) -> None:
        play = list(self.begun)[-1]
        name = self.begun[play][-1].get_name()
        host = result.host.get_name()
        whole = result.task.run_once is True or host == "localhost"
        seen = Trouble(host, name, result.task.get_name(), words, reached, reached and whole)
        self.troubles.append((play, seen))

    def run(self, command: Sequence[str], changed: int | None, check: bool, ended: bool) -> Run:
        inventory: Any = self.all[0].get_variable_manager()._inventory
        group = inventory.groups.get(CLUSTER)
        cluster = [host.get_name() for host in group.get_hosts()] if group else []
        lost: dict[str, set[str]] = {}
        plays = []
        for play in self.all:
            batches = self.begun.get(play._uuid, [])
            lost[play._uuid] = {host for batch in batches for host in batch._removed_hosts}
            # Only a play that has begun has a pattern that is certainly no template.
            pattern = batches[-1].hosts if batches else play.hosts
            unknown = "{{" in str(pattern)
            targets = [] if unknown else inventory.get_hosts(pattern, ignore_restrictions=True)
            wanted = {host.get_name() for host in targets}
            hosts = tuple(name for name in cluster if name in wanted)
            # Batches that never came, because one before them failed.
            early = wanted - self.reached[play._uuid] if batches else set()
            plays.append(
                Play(
                    name=play.get_name(),
                    hosts=hosts,
                    begun=bool(batches),
                    ended=bool(batches) and (ended or play._uuid != list(self.begun)[-1]),
                    lost=frozenset((lost[play._uuid] | early) & set(hosts)),
                    changes=Path(play.get_path().rpartition(":")[0]).name not in CHECKS,
                )
            )
        # A round of an update looks at all nodes, and works on a few.
        working = [play for play in plays if play.changes] or plays
        playing = {host for play in working for host in play.hosts} - set(self.off)
        last = {  # of each host and play
            (play, trouble.host): trouble
            for play, trouble in self.troubles
            if trouble.whole or trouble.host in lost[play]
        }
        at = f'"{self.task}"' if self.task else "its beginning"
        return Run(
            command=tuple(command),
            hosts=tuple(name for name in cluster if name in playing),
            plays=tuple(plays),
            troubles=tuple(last.values()),
            changed=changed,
            check=check,
            stopped_at=None if ended else at,
            contacted=self.contacted or bool(self.troubles),
            off=tuple(dict.fromkeys(self.off)),
            whole=bool(self.all[0].vars.get(WHOLE)),
        )


def write_limit(hosts: Sequence[str], sources: Sequence[str]) -> str:
    """Path of a file with these hosts, beside the inventory; none where they can be spelt out."""
    source = Path(sources[0]) if sources else Path("/nonexistent")
    folder = source if source.is_dir() else source.parent
    if len(hosts) <= NAMED or not source.exists():
        return ""
    path = folder / LIMIT_FILE
    try:
        path.write_text("".join(f"{host}\n" for host in hosts), encoding="utf-8")
    except OSError:
        return ""
    return os.path.relpath(path)


class CallbackModule(CallbackBase):
    """Watches a run, and says at its end what became of it."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "summary"
    # It lies among our playbooks and belongs to them: whatever else a user enables, it runs.
    CALLBACK_NEEDS_ENABLED = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.watch: Watch | None = None
        self.process = os.getpid()
        # Ctrl-C and errors of Ansible's own end a run without a word to callbacks.
        atexit.register(self.at_exit)

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self.watch = Watch(playbook)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self.notify(lambda watch: watch.play(play))

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        del is_conditional
        self.notify(lambda watch: setattr(watch, "task", task.get_name()))

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self.notify(lambda watch: setattr(watch, "task", task.get_name()))

    def v2_runner_on_ok(self, result: Any) -> None:
        if self.watch and not self.watch.contacted:
            self.watch.contacted = result.host.get_name() != "localhost"
        if self.watch and (hosts := left_out(result)):
            self.watch.off += hosts

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self.notify(lambda watch: watch.trouble(result, failure_words(result.result), True))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        if not result.task.ignore_unreachable:
            delegate = str(result.task_fields.get("delegate_to") or "")
            words = unreachable_words(result.result, delegate)
            self.notify(lambda watch: watch.trouble(result, words, False))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self.say(len([host for host, count in stats.changed.items() if count]), ended=True)

    def at_exit(self) -> None:
        if os.getpid() == self.process:
            self.say(None, ended=False)

    def notify(self, note: Callable[[Watch], None]) -> None:
        if self.watch:
            note(self.watch)

    def say(self, changed: int | None, ended: bool) -> None:
        watch, self.watch = self.watch, None
        # What ends a run before its first play has said why.
        if watch is None or not watch.all or not (ended or watch.begun):
            return
        command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        run = watch.run(command, changed, bool(context.CLIARGS.get("check")), ended)
        if not run.hosts and not run.off:
            return
        limit_file = write_limit(run.limit, context.CLIARGS.get("inventory") or ())
        self._display.banner("SUMMARY")
        fine = not run.troubles and not run.cut_short
        color = "green" if fine else "red"
        width = watching.columns() - 1 if sys.stdout.isatty() else None
        self._display.display(summary(run, limit_file, width), color=color)
