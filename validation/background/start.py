"""Starts tests in the background: gives the loop its plans, folders and Slurm."""

import argparse
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cluster.errors import EnvironmentProblem, UsageError
from cluster.slurm.node_states import NodeState
from validation import terminal, textfile, tiers
from validation.background import loop
from validation.background.state import LastTest, State, Store, unused
from validation.execution import journal
from validation.execution.folder import RunFolder
from validation.execution.going import Going, begun_now, report_of
from validation.execution.request import Asked, asked_by, seconds_of, transport_of
from validation.model import RunReport
from validation.progress import Watcher
from validation.slurm import pending
from validation.slurm.client import CommandLineClient, SlurmDown

# Options of a run that make no sense for tests that nobody waits for.
_UNSUITED = ("local", "duration", "keep_going", "record_baseline", "dry_run")


def run(options: argparse.Namespace) -> int:
    """Tests what is due; the exit code. Raises PlumblineError where nothing could be tested."""
    for name in _UNSUITED:
        if getattr(options, name):
            raise UsageError(f"--background: leave out --{name.replace('_', '-')}")
    lasts_s = seconds_of(options.at_most, "--at-most")
    every = timedelta(seconds=seconds_of(options.every, "--every"))
    asked = asked_by(options)
    store = Store(Path(options.output or journal.RESULTS / "background"))
    try:
        session = _Tests(options, asked, store).session(lasts_s, every)
    except SlurmDown as down:
        raise EnvironmentProblem(f"Slurm does not answer: {down}") from down
    finally:
        store.close()
    tested = sum(item.verdict is not None for item in session.tests)
    terminal.say(
        f"{tested} of {session.due} nodes that were due were tested; {session.ended} · "
        f"exit {session.exit_code}\n"
    )
    return session.exit_code


class _Tests:
    """Tests nodes, and remembers what came out."""

    def __init__(self, options: argparse.Namespace, asked: Asked, store: Store) -> None:
        self._options, self._asked, self._store = options, asked, store
        self._plan = asked.plan("", "")
        self._transport = transport_of(options, asked)
        if options.metrics is not None:
            textfile.check(options.metrics, self._transport)
        self._state = store.read()
        self._done: list[loop.Trial] = []
        self._not_preempted = pending.not_preempted(self._transport, self._plan.submission.qos)
        if self._not_preempted:
            text = f"{self._not_preempted}: nothing is tested while any job waits\n"
            terminal.say(text, sys.stderr)

    def session(self, lasts_s: float, every: timedelta) -> loop.Session:
        end = time.monotonic() + lasts_s
        over = threading.Event()

        def end_it() -> None:
            over.set()
            os.kill(os.getpid(), signal.SIGTERM)  # ends a test tidily, whatever it waits for

        names = [node.name for node in self._plan.nodes]
        due = loop.due(names, self._state, datetime.now(timezone.utc), every)
        timer = threading.Timer(lasts_s, end_it)
        timer.daemon = True
        timer.start()
        try:
            return loop.loop(
                names,
                self._state,
                every=every,
                at_once=self._options.at_once,
                left_s=lambda: end - time.monotonic(),
                blocked=self._blocked,
                states=self._states,
                test=self._test,
                keep=self._keep,
            )
        except KeyboardInterrupt:
            if not over.is_set():
                raise
            return loop.Session(tuple(self._done), "the time is over", len(due))
        finally:
            timer.cancel()

    def _blocked(self) -> str:
        if not self._not_preempted or not (count := pending.pending(self._transport)):
            return ""
        return f"{count} jobs wait in the queue, and none of them pre-empts a test"

    def _states(self) -> Mapping[str, NodeState]:
        client = CommandLineClient(self._transport, "background", self._plan.python)
        return client.node_states()[1]

    def _test(self, names: Sequence[str]) -> list[tuple[loop.Trial, LastTest]]:
        begin, moment = time.monotonic(), datetime.now(timezone.utc)
        begun, asked = begun_now((), moment), self._asked.of_nodes(names)
        planned = asked.plan(begun.run_id, begun.secret)
        folder = RunFolder(self._store.folder / begun.run_id)
        folder.prepare(planned)
        going = Going(self._options, asked, begun, self._transport, folder)
        client = going.client(planned)
        with Watcher(sys.stderr, folder, planned.longest_s) as watcher:
            walk = tiers.walk(planned, client, watcher, asked.interval_s)
        seconds = round(time.monotonic() - begin, 1)
        report = report_of(planned, walk, client, going, seconds)
        trials = [loop.judged(name, report.results, walk.jobs) for name in names]
        folder.finish(replace(report, notes=(*report.notes, *self._publish(report, trials))))
        found = []
        for name, test in zip(names, trials, strict=True):
            word = "untested" if test.verdict is None else test.verdict.name
            terminal.say(f"{name}  {word}  {test.message}".rstrip() + "\n")
            at = moment.isoformat(timespec="seconds")
            found.append((test, LastTest(at, word.lower(), begun.run_id, seconds)))
        self._done += [test for test, _ in found]
        if walk.interrupted:
            raise KeyboardInterrupt
        return found

    def _publish(self, report: RunReport, trials: Sequence[loop.Trial]) -> tuple[str, ...]:
        """Put the metrics where Prometheus finds them; notes where that could not be done."""
        folder, told = self._options.metrics, loop.told(report, trials)
        if folder is None or told is None:
            return ()
        notes = textfile.publish(replace(told, notes=()), folder, self._transport).notes
        for note in notes:
            terminal.say(f"note: {note}\n", sys.stderr)
        return notes

    def _keep(self, state: State) -> None:
        self._store.write(state)
        for run_id in unused(self._state, state):
            shutil.rmtree(self._store.folder / run_id, ignore_errors=True)
        self._state = state
