"""What a run shows while it goes on: a live view in a terminal, plain lines elsewhere."""

import importlib
import logging
import time
from typing import Any, TextIO

from validation.model import JobReport, Result, printable
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

    def __enter__(self) -> "Watcher":
        if self._stream.isatty():
            self._live = _live_view(self._stream, self._lines)
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

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
        if not result.verdict.green and result.message:
            name = result.verdict.name
            self._say(f"  {name} {result.check} {result.subject.name}: {printable(result.message)}")

    def _say(self, text: str) -> None:
        if self._live:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(f"{time.strftime('%H:%M:%S')} {text}", file=self._stream, flush=True)

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
