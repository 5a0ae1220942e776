"""What a run shows while it goes on: a line in place on a terminal, plain lines elsewhere.

Nothing here may end a run: a terminal that goes away takes only the view with it.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TextIO

from cluster import watching
from cluster.text import duration, printable
from validation import terminal
from validation.execution.folder import RunFolder
from validation.model import JobReport, Result, Verdict
from validation.report import words
from validation.slurm.client import JobProgress, Progress

_PLAIN_EVERY_S = 2.0
_SKIPS = 400  # characters of all that is skipped


class Watcher:
    """Shows each step and hands results to the run's folder as they come.

    at_most_s  what the run takes if every job waits and runs up to its limit
    """

    def __init__(
        self,
        stream: TextIO,
        folder: RunFolder,
        at_most_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._folder = folder
        self._at_most_s = at_most_s
        self._clock = clock
        self._begun = clock()
        self._stage = ""
        self._shown: tuple[int, int] = (0, 0)
        self._shown_at = self._begun
        self._line: watching.Line | None = None
        self._reported: set[tuple[str, str]] = set()
        self._alike: Counter[tuple[Verdict, str, str]] = Counter()
        self._skipped: dict[str, dict[str, None]] = {}  # checks in their order, by message

    def __enter__(self) -> "Watcher":
        if not self._stream.closed and watching.is_live(self._stream, os.environ):
            self._line = watching.Line(self._stream)
        return self

    def __exit__(self, *_: object) -> None:
        self._say_the_rest()
        self._with_line(lambda line: line.clear())

    def stage(self, text: str) -> None:
        self._say_the_rest()
        self._stage = text
        self._say(text)

    def boots(self, boots: Mapping[str, str]) -> None:
        self._folder.boots(boots)

    def progress(self, progress: Progress) -> None:
        """On a terminal each look is shown, elsewhere what differs, and that it goes on."""
        self._with_line(lambda line: line.show(self._step(progress).line(watching.columns() - 1)))
        if self._line:
            return
        now, states = self._clock(), [job.state for job in progress.jobs]
        counts = states.count("done"), states.count("running")
        waited = now - self._shown_at
        differs = counts != self._shown and (waited > _PLAIN_EVERY_S or progress.done)
        if differs or waited > watching.STILL_S:
            self._shown, self._shown_at = counts, now
            self._say(f"  {self._step(progress).line(watching.columns() - len('00:00:00   '))}")

    def job(self, report: JobReport) -> None:
        self._folder.job(report)

    def result(self, result: Result) -> None:
        """What is not green, once for each fault; of many nodes alike the first ones, then a count.

        What is skipped is one line, at the end of the stage.
        """
        self._folder.result(result)
        message = printable(result.message.removeprefix("not run: "))
        if result.verdict.green or not message:
            return
        if result.verdict is Verdict.SKIP:
            self._skipped.setdefault(message, {})[result.check] = None
            return
        # What one fault does to several checks is told once.
        notice = (result.subject.name, message)
        if notice in self._reported:
            return
        self._reported.add(notice)
        kind = (result.verdict, result.check, words.kind_of(message))
        self._alike[kind] += 1
        if self._alike[kind] <= words.FOLD:
            self._say(f"  {result.verdict.name} {result.check} {result.subject.name}: {message}")

    def _say_the_rest(self) -> None:
        """What was counted in this stage and not told."""
        for (verdict, check, _), number in self._alike.items():
            if number > words.FOLD:
                more = words.count(number - words.FOLD, "more node")
                self._say(f"  {verdict.name} {check}: {more} alike")
        if self._skipped:
            reasons = "; ".join(
                f"{words.listed(list(checks), 4)}: {message}"
                for message, checks in self._skipped.items()
            )
            self._say(f"  SKIP {printable(reasons, _SKIPS)}")
        self._alike.clear()
        self._skipped.clear()

    def _step(self, progress: Progress) -> watching.Step:
        jobs = progress.jobs
        done = sum(job.state == "done" for job in jobs)
        spent = watching.timing(self._clock() - self._begun, self._at_most_s, "of at most")
        return watching.Step(self._stage, done, len(jobs), "jobs", spent, _busy(jobs))

    def _say(self, text: str) -> None:
        self._with_line(lambda line: line.clear())
        stamp = "" if self._line else f"{time.strftime('%H:%M:%S')} "
        terminal.say(f"{stamp}{text}\n", self._stream)

    def _with_line(self, action: Callable[[watching.Line], None]) -> None:
        """Do it to the line, if there is one; without it where the terminal went away."""
        if not self._line:
            return
        try:
            action(self._line)
        except (OSError, ValueError):  # ValueError: closed
            self._line = None
            terminal.silence(self._stream)


def _busy(jobs: tuple[JobProgress, ...]) -> str:
    """What Slurm does now; the job that waits longest is named with Slurm's reason."""
    running = [job.name for job in jobs if job.state == "running"]
    queued = [job for job in jobs if job.state == "queued"]
    parts = [f"{watching.folded(running, 40)} running"] if running else []
    if queued:
        first = max(queued, key=lambda job: job.seconds)
        why = f" ({printable(first.reason, 60)})" if first.reason else ""
        more = f" and {len(queued) - 1} more" if queued[1:] else ""
        parts.append(f"{first.name}{more} queued for {duration(first.seconds)}{why}")
    return "; ".join(parts)
