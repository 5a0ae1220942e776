"""scripts/update-nodes: repeats rounds of playbooks/update-nodes.yml until all nodes are done.

Between two rounds it waits without the hold on the inventory, and asks the controller from time to
time whether a round could do anything: that is decided by the round's own function. All that an
update has done is on the controller, so the program may be killed at any moment and started again.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cluster.processes import CommandFailed, run, utf8_locale
from playbooks.plugin_utils import updates

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOK = ROOT / "playbooks/update-nodes.yml"
DONE, FAILED, USAGE = 0, 1, 2

# Options of ansible-playbook that `ansible` has as well, and may need for an answer.
OF_CONNECTIONS = (
    *("vault-password-file", "vault-id", "become-password-file", "connection-password-file"),
    *("user", "private-key", "extra-vars"),
)
POLL_S = 20
ASK_LIMIT_S = 180
# Rounds in a row after which nothing is any further: what they do does not help.
MOST_IN_VAIN = 3
BEGIN, SLURM = "-- update --", "-- slurm --"


class Unanswered(Exception):
    """The controller did not say how far the update is; one sentence without its end."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a round says at its end: whom to ask, with which script, for which nodes."""

    controller: str
    ask: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class View:
    """How far the update is, and what a round would do now."""

    progress: updates.Progress
    plan: updates.Plan


@dataclass(frozen=True, slots=True)
class World:
    """What the program does to the world, for tests to replace.

    play   runs a round; its report, or None where it came to no end. The argument says whether it
           is the first: that one takes up failed nodes
    look   how far the update is now. Raises Unanswered
    held   who else works on the inventory, as a sentence; "" for nobody
    """

    play: Callable[[bool], Report | None]
    look: Callable[[Report], View]
    held: Callable[[], str]
    say: Callable[[str], None]
    sleep: Callable[[float], None]


def drive(world: World, command: str) -> int:
    """Rounds until nothing is left, or nothing can be done; the exit code."""
    first, in_vain, before = True, 0, None
    tell = _Once(world.say)
    while True:
        while holder := world.held():
            tell(f"waiting for another run: {holder}")
            world.sleep(POLL_S)
        report = world.play(first)
        if report is None:
            if world.held():  # it was quicker
                continue
            world.say(
                f"The round was not completed; see above. The update goes on with:\n    {command}"
            )
            return USAGE
        first = False
        view = _until_there_is_work(world, report, tell)
        if not view.plan.work:
            world.say(updates.summary(view.progress, view.plan, command, report.nodes))
            return DONE if updates.complete(view.progress, view.plan, report.nodes) else FAILED
        in_vain = in_vain + 1 if view == before else 0
        before = view
        if in_vain >= MOST_IN_VAIN:
            world.say(
                f"{in_vain} rounds changed nothing, although there is work; see above. The update "
                f"goes on with:\n    {command}"
            )
            return USAGE


def _until_there_is_work(world: World, report: Report, tell: _Once) -> View:
    """Waits for jobs; the view in which a round could do something, or nobody is waited for."""
    while True:
        try:
            view = world.look(report)
        except Unanswered as problem:
            tell(f"{report.controller} does not say how far the update is: {problem}")
        else:
            if view.plan.work or not view.plan.waits:
                return view
            tell(updates.outlook(view.progress, view.plan))
        world.sleep(POLL_S)


class _Once:
    """Says a line when it differs from the one before."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last = ""

    def __call__(self, line: str) -> None:
        if line != self._last:
            self._last = line
            self._say(f"{datetime.now():%H:%M} {line}")


# --- with Ansible ---------------------------------------------------------------------------------


def parsed(text: str) -> Report | None:
    try:
        document = json.loads(text)
        names = tuple(map(str, document["nodes"]))
        return Report(str(document["controller"]), str(document["ask"]), names)
    except (KeyError, TypeError, ValueError):
        return None


def viewed(output: str, nodes: Sequence[str]) -> View:
    """What the controller answered to a report's script. Raises Unanswered."""
    _, begun, answer = output.partition(f"{BEGIN}\n")
    said, separator, slurm = answer.partition(f"{SLURM}\n")
    if not begun or not separator:
        lines = [line for line in output.splitlines() if line.strip()]
        raise Unanswered(lines[-1].strip() if lines else "it said nothing")
    try:
        text, reserved = updates.told(said)
        progress = updates.parsed(text)
        if progress is None:
            raise updates.NoProgress("no update is under way any more")
        plan = updates.decide(progress, updates.answered(slurm), reserved, limit=nodes)
    except updates.NoProgress as problem:
        raise Unanswered(str(problem)) from problem
    return View(progress, plan)


@dataclass(frozen=True, slots=True)
class Ansible:
    """The programs of Ansible, with one inventory."""

    inventories: tuple[str, ...]
    limit: str = ""
    anew: bool = False
    more: tuple[str, ...] = ()

    @property
    def _sources(self) -> list[str]:
        return [f"--inventory={place}" for place in self.inventories]

    def play(self, first: bool) -> Report | None:
        with tempfile.TemporaryDirectory(prefix="plumbline-update-") as folder:
            file = Path(folder) / "report.json"
            given: dict[str, object] = {"__node_update_report": str(file)}
            if first:
                given |= {"node_update_retry": True, "node_update_anew": self.anew}
            limit = [f"--limit={self.limit}"] if self.limit else []
            extra = ["--extra-vars", json.dumps(given)]
            argv = [_program("ansible-playbook"), *self._sources, *limit, *self.more, *extra]
            _wait(subprocess.Popen([*argv, str(PLAYBOOK)], env=_environment()))
            with suppress(OSError):
                return parsed(file.read_text(encoding="utf-8"))
        return None

    def look(self, report: Report) -> View:
        # As base64, in which Ansible sees neither templates nor arguments. Blanks at its end leave
        # no `=` there.
        script = f"exec 2>/dev/null; echo '{BEGIN}'; {report.ask}\n"
        script += " " * (-len(script.encode()) % 3)
        words = f"echo {base64.b64encode(script.encode()).decode()} | base64 -d | bash"
        argv = [_program("ansible"), *self._sources, report.controller, "--become"]
        argv += [*_of_connections(self.more), "-m", "ansible.builtin.shell", "-a", words]
        try:
            done = run(
                argv, ASK_LIMIT_S, environment=_environment(), one_stream=True, any_status=True
            )
        except CommandFailed as problem:
            raise Unanswered(str(problem)) from problem
        return viewed(done.stdout, report.nodes)


def _of_connections(more: Sequence[str]) -> list[str]:
    """Those among them, with their values."""
    named = f"--({'|'.join(OF_CONNECTIONS)})"
    kept: list[str] = []
    words = list(more)
    while words:
        word = words.pop(0)
        if re.fullmatch(f"{named}=.*", word, re.DOTALL):
            kept.append(word)
        elif (re.fullmatch(named, word) or word in {"-u", "-e"}) and words:
            kept += [word, words.pop(0)]
    return kept


def _program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def _environment() -> dict[str, str]:
    return {**os.environ, **utf8_locale(), "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}


def _wait(process: subprocess.Popen[bytes]) -> None:
    """Until the round has ended. Ctrl-C reaches it as well: it ends in order, and then so do we."""
    try:
        process.wait()
    except KeyboardInterrupt:
        try:
            process.wait()
        except KeyboardInterrupt:
            process.kill()
            process.wait()
        raise


def command_of(inventories: Sequence[str], limit: str, more: Sequence[str]) -> str:
    """The command that goes on, as one line to copy."""
    words = ["scripts/update-nodes", *(w for place in inventories for w in ("-i", place))]
    words += ["--limit", limit] if limit else []
    return shlex.join([*words, "--", *more] if more else words)


def world_of(ansible: Ansible) -> World:
    # Ansible is loaded for it.
    from playbooks.action_plugins import hold  # noqa: PLC0415
    from playbooks.filter_plugins.declaration import inventory_folder  # noqa: PLC0415

    sources = [i if "," in i else str(Path(i).resolve()) for i in ansible.inventories]
    file = Path(inventory_folder(sources)) / ".plumbline-hold"

    def held() -> str:
        try:
            found = hold.parse(file.read_text(encoding="utf-8"))
        except OSError:
            return ""
        return hold.refusal(found, hold.hold_of(os.getpid(), ""))

    def say(line: str) -> None:
        print(line, flush=True)

    return World(ansible.play, ansible.look, held, say, time.sleep)


def main(ansible: Ansible) -> int:
    command = command_of(ansible.inventories, ansible.limit, ansible.more)
    try:
        return drive(world_of(ansible), command)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted. Nodes go on draining; the update goes on with:\n    {command}",
            flush=True,
        )
        return USAGE
