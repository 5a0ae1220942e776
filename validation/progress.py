"""What a run shows while it goes on: a live view in a terminal, plain lines elsewhere.

Nothing here may end a run: a terminal that goes away takes only the view with it.
"""

import importlib
import logging
import time
from collections.abc import Callable
from typing import Any, TextIO

from cluster.text import printable
from validation import terminal
from validation.model import JobReport, Result, Verdict
from validation.output import RunFolder
from validation.report import words
from validation.slurm.client import JobProgress, Progress

log = logging.getLogger(__name__)

_SHOWN = 12  # jobs in the live view
_PLAIN_EVERY_S = 2.0


class Watcher:
    """Shows each step and hands results to the run's folder as they come."""

    def __init__(self, stream: TextIO, folder: RunFolder) -> None:
        self._stream = stream
        self._folder = folder
        self._stage = ""
        self._jobs: tuple[JobProgress, ...] = ()
        self._shown: tuple[Any, ...] = ()
        self._shown_at = 0.0
        self._live: Any = None
        self._reported: set[tuple[str, str]] = set()

    def __enter__(self) -> "Watcher":
        if self._stream.isatty():
            self._live = _live_view(self._stream, self._lines)
        self._with_live(lambda live: live.start())
        return self

    def __exit__(self, *_: object) -> None:
        self._with_live(lambda live: live.stop())

    def stage(self, text: str) -> None:
        self._stage, self._jobs = text, ()
        if not self._live:
            self._say(text)

    def progress(self, progress: Progress) -> None:
        self._jobs = progress.jobs
        if self._live:
            return
        summary = self._summary()
        now = time.monotonic()
        late = now - self._shown_at > _PLAIN_EVERY_S
        if summary != self._shown and (late or progress.done):
            self._shown, self._shown_at = summary, now
            self._say("  " + ", ".join(f"{number} {state}" for state, number in summary))

    def job(self, report: JobReport) -> None:
        self._folder.job(report)

    def result(self, result: Result) -> None:
        self._folder.result(result)
        message = printable(result.message.removeprefix("not run: "))
        # What one fault does to several checks is told once, and what several nodes lack too.
        skipped = result.verdict is Verdict.SKIP
        notice = (result.check if skipped else result.subject.name, message)
        if not result.verdict.green and message and notice not in self._reported:
            self._reported.add(notice)
            what = result.check if skipped else f"{result.check} {result.subject.name}"
            self._say(f"  {result.verdict.name} {what}: {message}")

    def _say(self, text: str) -> None:
        self._with_live(lambda live: live.console.print(text, markup=False, highlight=False))
        if not self._live:
            terminal.say(f"{time.strftime('%H:%M:%S')} {text}\n", self._stream)

    def _with_live(self, action: Callable[[Any], None]) -> None:
        """Do it to the live view, if there is one; without it where the terminal went away."""
        if not self._live:
            return
        try:
            action(self._live)
        except (OSError, ValueError):  # ValueError: closed, or not to be encoded
            self._live = None
            terminal.silence(self._stream)

    def _summary(self) -> tuple[tuple[str, int], ...]:
        states = [job.state for job in self._jobs]
        return tuple(
            (state, states.count(state))
            for state in ("done", "running", "queued", "pending")
            if state in states
        )

    def _lines(self) -> list[str]:
        counts = ", ".join(f"{number} {state}" for state, number in self._summary())
        lines = [f"{self._stage}{': ' if counts else ''}{counts}"]
        busy = [job for job in self._jobs if job.state in ("running", "queued")]
        for job in busy[:_SHOWN]:
            where = f"job {job.job_id}" if job.job_id else "not yet known to Slurm"
            reason = (
                f", {printable(job.reason, 60)}" if job.reason and job.state == "queued" else ""
            )
            seconds = words.duration(job.seconds)
            lines.append(f"  {job.name}: {job.state} for {seconds} ({where}{reason})")
        if len(busy) > _SHOWN:
            lines.append(f"  and {len(busy) - _SHOWN} more")
        return lines


def _live_view(stream: TextIO, lines: Any) -> Any:
    """rich's live display, or None where rich is not installed: a login node may lack it."""
    try:
        live = importlib.import_module("rich.live")
        console = importlib.import_module("rich.console")
        text = importlib.import_module("rich.text")
        spinner = importlib.import_module("rich.spinner")
    except ImportError:
        return None
    turning = spinner.Spinner("dots")

    def view() -> Any:
        first, *rest = lines()
        turning.update(text=text.Text(first))
        return console.Group(turning, *(text.Text(line) for line in rest))

    return live.Live(
        get_renderable=view,
        console=console.Console(file=stream),
        refresh_per_second=8,
        transient=True,
    )
