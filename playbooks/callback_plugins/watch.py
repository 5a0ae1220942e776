"""A run that a person can watch: a line for each layer; all that Ansible says goes to a file.

The layers are the plays. On a terminal the last line changes in place; elsewhere a line is written
when a layer ends, and one each minute in between. A failure is told in full as it happens, and what
a playbook prints with `debug` is printed. With -v, --diff or --step, Ansible speaks for itself.
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any

import ansible.utils.color
from ansible import constants, context
from ansible.playbook.block import Block
from ansible.plugins.callback import default
from ansible.utils import display as displays
from ansible.utils.display import Display

from cluster import watching
from cluster.text import duration
from playbooks.callback_plugins.summary import failure_words, same_command
from playbooks.plugin_utils import layers, looking, run_log
from playbooks.plugin_utils.layers import Layer
from playbooks.plugin_utils.progress import Stage

DOCUMENTATION = """
name: watch
type: stdout
short_description: A line for each layer of a run; Ansible's own output goes to a file
description: Belongs to C(plugin_utils/layers.py) and C(plugin_utils/run_log.py).
extends_documentation_fragment:
  - default_callback
  - result_format_callback
options:
  log_folder:
    description: Folder of the logs, and of the times of earlier runs. Without one, .cache/runs.
    type: path
    ini: [{section: callback_watch, key: log_folder}]
    env: [{name: PLUMBLINE_LOG_FOLDER}]
"""

C: Any = constants  # which makes its names as it is loaded
Default: Any = default.CallbackModule  # which has no types

# Of a result with nothing but a message: what says only that it failed.
BESIDE_MESSAGE = {"assertion", "changed", "evaluated_to", "exception", "failed", "unreachable"}

# Of a result: what differs from host to host and says nothing.
NOISE = re.compile(r" +(changed|delta|end|start): ")
ADDRESS = re.compile(r"0x[0-9a-f]{4,}")  # of an object, in the words of an exception

# A warning about each bare node, where Ansible makes a folder for root as it should: for the log.
NO_NEWS = "Module remote_tmp "


# --- Ansible's objects ----------------------------------------------------------------------------


def is_rescued(task: Any) -> bool:
    """Whether a block around the task has a `rescue` for what fails in it."""
    child, parent = task, task._parent
    while parent is not None:
        inside = {part._uuid for part in parent.block} if isinstance(parent, Block) else set()
        if inside and parent.rescue and child._uuid in inside:
            return True
        child, parent = parent, parent._parent
    return False


def message(result: Mapping[str, Any]) -> list[str]:
    """The lines of a result that has a message and nothing else; none of another one."""
    said = {name for name in result if not name.startswith("_ansible")} - BESIDE_MESSAGE
    if said != {"msg"}:
        return []
    parts = result["msg"] if isinstance(result["msg"], list) else [result["msg"]]
    if not all(isinstance(part, str) for part in parts):
        return []
    return [line for part in parts for line in part.rstrip().splitlines()]


def result_lines(said: Sequence[str]) -> list[str]:
    """What Ansible says of a failed task: its result, which repeats the error before it."""
    results = [text for text in said if not text.startswith("[ERROR]")] or said
    lines = [line.rstrip() for text in results for line in text.splitlines()]
    if len(results) == 1 and re.match(r"fatal: \[.*=> *$", lines[0]):
        return dedent("\n".join(line for line in lines[1:] if not NOISE.match(line))).splitlines()
    return lines


def hide_exception(result: Any) -> None:
    """Ansible censors what `no_log` hides, and prints the words of the exception nevertheless."""
    if "censored" in result.result:
        result.result.pop("exception", None)


class LogDisplay(Display):
    """A Display whose screen is the log; `held` has what is to be shown on the real one as well."""

    def __init__(self, screen: Any, log: run_log.Log) -> None:
        self.__dict__.update(vars(screen))
        self.columns: Any = 79
        self.b_cowsay = None
        self._warns, self._deprecations, self._errors = set(), set(), set()
        self._log_file = log
        self.held: list[str] = []

    def display(self, msg: str, color: Any = None, *rest: Any, **more: Any) -> None:
        if more.get("screen_only"):  # what it has twice, for a log and with colours
            return
        self.held.append(msg)
        self._log_file.write(msg if msg.endswith("\n") else f"{msg}\n")
        if displays.logger:  # a site's own log_path
            self._log(msg, color, more.get("caplevel"))

    def banner(self, msg: str, *rest: Any, **more: Any) -> None:
        """For the log alone: the screen has words of its own for what begins."""
        super().banner(msg, *rest, **more)
        self.held.pop()

    def _warning(self, warning: Any) -> None:
        if warning.event.msg.startswith(NO_NEWS):
            super()._warning(warning)
        else:
            Display()._warning(warning)

    def take(self) -> list[str]:
        held, self.held = self.held, []
        return held


# --- the screen ----------------------------------------------------------------------------------


class Screen:
    """The real display, whose last line may be drawn in place by a thread.

    Ansible holds its display's lock while it forks, and so do we while we draw: no child inherits a
    line that is half written.
    """

    def __init__(self, display: Any, log: run_log.Log) -> None:
        self.live = watching.is_live(sys.stdout, os.environ)
        self.layer: Layer | None = None
        self._display, self._log = display, log
        self._line = watching.Line(sys.stdout)
        self._said_at = time.monotonic()
        self._over = threading.Event()
        self._print = display.display  # Ansible's, for this process and for children
        self._process = os.getpid()
        if not self.live and not C.ANSIBLE_FORCE_COLOR:
            ansible.utils.color.ANSIBLE_COLOR = False
        display.columns = min(display.columns, self.width)
        display.display = self._displayed
        threading.Thread(target=self._draw_on, daemon=True).start()

    @property
    def width(self) -> int:
        """One column is left free: some terminals go on to the next line in the last one."""
        return watching.columns() - 1

    def say(self, text: str, color: str | None = None, *, logged: bool = False) -> None:
        with self._display._lock:
            self._clear()
            self._print(text, color=color)
            self._flush()
        if logged:
            self._log.write(f"{text}\n")
        self._said_at = time.monotonic()

    def end(self) -> None:
        self._over.set()
        with self._display._lock:
            self._clear()

    def _displayed(self, msg: str, *arguments: Any, **options: Any) -> None:
        """In place of Display.display: whatever is printed stands above our line, and is logged."""
        if os.getpid() != self._process:
            self._print(msg, *arguments, **options)  # which sends it to this process
            return
        if isinstance(msg, Stage) and self.live and self.layer:
            self.layer.detail = str(msg)
            return
        with self._display._lock:
            self._clear()
            self._print(str(msg), *arguments, **options)
            self._flush()
        self._log.write(f"{msg}\n")

    def _draw_on(self) -> None:
        while not self._over.wait(watching.EVERY_S):
            layer, now = self.layer, time.monotonic()
            if layer is None:
                continue
            if not self.live:
                if now - self._said_at >= watching.STILL_S:
                    self.say(stamped(layer.step(now).line(self.width - len("00:00:00 "))))
                continue
            with self._display._lock, suppress(OSError, ValueError):
                if layer is self.layer and not self._over.is_set():
                    self._line.show(layer.step(now).line(self.width))

    def _clear(self) -> None:
        if self.live:
            with suppress(OSError, ValueError):
                self._line.clear()

    @staticmethod
    def _flush() -> None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()


def stamped(text: str) -> str:
    return f"{time.strftime('%H:%M:%S')} {text}"


# --- Ansible's side ------------------------------------------------------------------------------


class CallbackModule(Default):  # type: ignore[misc]
    """Ansible's default output goes to the log; layers and failures to the screen."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "watch"

    def __init__(self) -> None:
        super().__init__()
        self._display: Any
        self.screen: Screen | None = None
        self._process = os.getpid()
        # Before that of other callbacks, and so called after it: the log is named last.
        atexit.register(self._at_exit)
        self._layer: Layer | None = None
        self._play = None
        self._batches: list[Any] = []
        self._over: set[str] = set()  # names of layers that have ended
        self._took: dict[str, float] = {}
        self._last = run_log.Times()
        # Of the task that runs: the text of each failure with its hosts, and of what is printed.
        self._failed: dict[tuple[bool, str], list[str]] = {}
        self._printed: dict[str, list[str]] = {}

    # --- begin and end ---------------------------------------------------------------------------

    def v2_playbook_on_start(self, playbook: Any) -> None:
        options = context.CLIARGS
        own = self._display.verbosity or options.get("diff") or options.get("step")
        if not own:
            self._watch(Path(playbook._file_name).stem)
        super().v2_playbook_on_start(playbook)

    def _watch(self, playbook: str) -> None:
        folder = Path(self.get_option("log_folder") or run_log.FOLDER)
        try:
            log = run_log.Log(folder, playbook)
        except OSError as error:
            self._display.warning(f"No log can be kept in {folder}: {error.strerror}.")
            return
        display = self._display
        self._display = self.log = LogDisplay(display, log)
        self._file = log
        self.screen = Screen(display, log)
        command = [Path(sys.argv[0]).name, *sys.argv[1:]]
        log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')} $ {same_command(command)}\n")
        options = context.CLIARGS
        limit = [str(options.get("subset") or ""), str(bool(options.get("check")))]
        self._key = run_log.key([*looking.same_command(), *limit])
        self._times = folder / run_log.TIMES
        self._last = run_log.last_times(self._key, self._times)
        self._began = time.monotonic()

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._end_layer()
        super().v2_playbook_on_stats(stats)
        if self.screen:
            self.log.take()
            whole = time.monotonic() - self._began
            if not any(stats.failures.values()) and not any(stats.dark.values()):
                times = run_log.Times(whole, {**self._last.layers, **self._took})
                run_log.keep_times(self._key, times, self._times)

    def _at_exit(self) -> None:
        if os.getpid() != self._process or not self.screen:
            return
        self._end_layer()
        self.screen.end()
        took = duration(time.monotonic() - self._began)
        if self._last.whole:
            took += f" (the last run took {duration(self._last.whole)})"
        path = self._file.path
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        problem = f" ({self._file.problem})" if self._file.problem else ""
        with suppress(OSError, ValueError):
            self.screen.say(f"\nTime: {took}\nAnsible's log: {shown}{problem}")

    # --- layers ----------------------------------------------------------------------------------

    def v2_playbook_on_play_start(self, play: Any) -> None:
        if self.screen and (self._layer is None or play._uuid != self._batches[-1]._uuid):
            self._end_layer()
            self._begin_layer(play)
        self._batches.append(play)
        super().v2_playbook_on_play_start(play)

    def _begin_layer(self, play: Any) -> None:
        assert self.screen
        inventory = play.get_variable_manager()._inventory
        hosts = inventory.get_hosts(play.hosts, ignore_restrictions=True)
        name = play.get_name().strip()
        self._batches = []
        self._layer = self.screen.layer = Layer(
            name=name,
            hosts=frozenset(host.get_name() for host in hosts),
            begun_at=time.monotonic(),
            expected_s=self._last.layers.get(name),
            check=bool(play.check_mode),
        )

    def _end_layer(self) -> None:
        layer, self._layer = self._layer, None
        if not self.screen or layer is None:
            return
        self._end_task()
        self.screen.layer = None
        now = time.monotonic()
        # What is done once in a run is asked for by several playbooks.
        again = layer.name in self._over and not layer.changed and not layer.lost
        removed = {host for play in self._batches for host in play._removed_hosts}
        layer.lost |= removed & layer.hosts
        if not layer.results or again:
            return
        self._over.add(layer.name)
        self._took[layer.name] = now - layer.begun_at
        lines = layer.end(now, self.screen.width - (0 if self.screen.live else 9))
        if not self.screen.live:
            lines[0] = stamped(lines[0])
        self.screen.say("\n".join(lines))

    # --- tasks -----------------------------------------------------------------------------------

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        super().v2_playbook_on_task_start(task, is_conditional)
        self._begin_task(task)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        super().v2_playbook_on_handler_task_start(task)
        self._begin_task(task)

    def v2_playbook_on_vars_prompt(self, *arguments: Any, **options: Any) -> None:
        """A person is asked something: no line is drawn over the question."""
        self._end_layer()
        super().v2_playbook_on_vars_prompt(*arguments, **options)

    def _begin_task(self, task: Any) -> None:
        self._end_task()
        if self._layer:
            self._layer.begin(task.get_name().strip())

    def _end_task(self) -> None:
        """Hosts that said what another had said were only counted."""
        for (reached, _), hosts in self._failed.items():
            if hosts[1:] and self.screen:
                self.screen.say(layers.alike(hosts[1:], reached), C.COLOR_ERROR)
        for text, hosts in self._printed.items():
            if self.screen:
                width = self.screen.width if sys.stdout.isatty() else None
                self.screen.say(layers.printed(hosts, text, width))
        self._failed, self._printed = {}, {}

    def v2_runner_on_ok(self, result: Any) -> None:
        self._note(result, bool(result.result.get("changed")))  # Ansible is about to tidy it
        self._spoken(lambda: super(CallbackModule, self).v2_runner_on_ok(result))
        if self.screen and result.task.action in C._ACTION_DEBUG and "msg" in result.result:
            lines = message(result.result) or [self._dump_results({"msg": result.result["msg"]})]
            self._printed.setdefault("\n".join(lines), []).append(result.host.get_name())

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._spoken(lambda: super(CallbackModule, self).v2_runner_on_skipped(result))
        self._note(result)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        hide_exception(result)
        super().v2_runner_item_on_failed(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        hide_exception(result)
        super().v2_runner_on_failed(result, ignore_errors)
        self._note(result)
        self._fail(result, reached=True, over=not ignore_errors and not is_rescued(result.task))

    def v2_runner_on_unreachable(self, result: Any) -> None:
        super().v2_runner_on_unreachable(result)
        self._note(result)
        self._fail(result, reached=False, over=not result.task.ignore_unreachable)

    def _spoken(self, say: Callable[[], None]) -> None:
        """What Ansible says of a host that is well is for the log alone."""
        say()
        if self.screen:
            self.log.held.clear()

    def _note(self, result: Any, changed: bool = False) -> None:
        if self._layer:
            self._layer.note(result.host.get_name(), changed)

    def _fail(self, result: Any, reached: bool, over: bool) -> None:
        if not self.screen:
            return
        said = self.log.take()
        if not over:
            return
        host, task = result.host.get_name(), result.task.get_name().strip()
        if self._layer:
            self._layer.lost |= {host} & self._layer.hosts
        lines = message(result.result) or result_lines(said)
        if "censored" in result.result:
            lines = [failure_words(result.result)]
        words = (reached, ADDRESS.sub("0x", "\n".join(lines).replace(host, "HOST")))
        before = self._failed.setdefault(words, [])
        before.append(host)
        if len(before) == 1:
            text = layers.failure(host, task, lines, self.screen.width, reached)
            self.screen.say(text, C.COLOR_ERROR)
