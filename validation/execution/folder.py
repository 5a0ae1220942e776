"""The folder that a run leaves behind.

`results.jsonl` grows while the run goes on, so that an interrupted one leaves what it knew, and
`jobs.jsonl` with it, out of which it can go on (see journal). All other files appear at the end,
each at once and complete.

Once jobs run, nothing that happens to the folder may end the run or change its verdict: what is
known is kept in memory too, a folder that is gone is made anew, and if that fails the reports go
elsewhere.
"""

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from cluster.errors import EnvironmentProblem, UsageError
from cluster.files import write_whole
from validation.execution import journal
from validation.execution.journal import Begun, Earlier
from validation.model import JobReport, Reply, Result, RunReport, Standing
from validation.plan import Plan
from validation.report import html, json, junit, metrics, nodes
from validation.report import plan as plan_report

log = logging.getLogger(__name__)

# The text of a file, or its pieces where nobody is to hold all of it.
Text = str | Iterator[str]
Render = Callable[[RunReport], Text]

_RENDERED: Mapping[str, Render] = {
    "summary.json": json.render,
    "junit.xml": junit.render,
    "report.html": html.render,
    "metrics.prom": metrics.render,
    **{f"{which.value}_nodes.txt": partial(nodes.render, which=which) for which in Standing},
}
_PLAN, _RESULTS, _JOBS = "plan.json", "results.jsonl", "jobs"


# Of a burn-in: a folder for each round that is kept, a line for each, and all on one page.
ROUNDS, LINES, PAGE = "rounds", "rounds.jsonl", "rounds.html"


def ours(path: Path) -> bool:
    """Whether a folder has the results of a run."""
    return (path / _PLAN).is_file()


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._plan: Plan | None = None
        self._kept: dict[str, str] = {}  # what jobs printed, by name
        self._results: list[Result] = []
        self._whole = True  # whether results.jsonl has all of them
        self._jobs: list[str] = []
        self._begun: Begun | None = None
        self._since = time.monotonic()
        self._earlier: tuple[Reply, ...] = ()
        self._lock: journal.Lock | None = None
        self._complained = False

    def prepare(self, plan: Plan, begun: Begun | None = None) -> None:
        """Make the folder. A former run's files are removed: none may pass for this run's.

        Without `begun` the run cannot be resumed.
        """
        html.check()  # before anything is submitted
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()) and not ours(self.path):
                raise UsageError(
                    f"--output: {self.path} contains something other than an earlier run"
                )
            self._lock = journal.Lock(self.path)
            for name in (*_RENDERED, _PLAN, _RESULTS, journal.RUN, journal.JOBS, LINES, PAGE):
                (self.path / name).unlink(missing_ok=True)
            shutil.rmtree(self.path / ROUNDS, ignore_errors=True)
            jobs = self.path / _JOBS
            jobs.mkdir(exist_ok=True)
            for stream in ("stdout", "stderr"):
                for file in jobs.glob(f"*.{stream}"):
                    file.unlink()
            self._plan = plan
            _write(self.path / _PLAN, plan_report.as_json(plan))
            _write(self.path / _RESULTS, "")
            _write(self.path / journal.JOBS, "")
            if begun is not None:
                self._begun = begun
                journal.write(self.path, begun)
        except OSError as error:
            raise EnvironmentProblem(f"{self.path}: {error.strerror}") from error

    def lock(self) -> None:
        """Keep others out of a run's folder before it is read. Raises UsageError."""
        try:
            self._lock = journal.Lock(self.path)
        except OSError as error:
            raise EnvironmentProblem(f"{self.path}: {error.strerror}") from error

    def reopen(self, plan: Plan, begun: Begun, earlier: Earlier) -> None:
        """Go on in the folder of a run that was interrupted."""
        html.check()
        self._begun = begun
        self._since = time.monotonic() - earlier.seconds
        self._earlier = (*earlier.replies.values(), *earlier.looks.values())
        self._jobs = list(earlier.lines)
        self._plan = plan
        try:
            for name in _RENDERED:  # those of a part that was interrupted
                (self.path / name).unlink(missing_ok=True)
            (self.path / _JOBS).mkdir(exist_ok=True)
            _write(self.path / _RESULTS, "")
            _write(self.path / journal.JOBS, "".join(self._jobs))  # without a line that is torn
            journal.write(self.path, begun)
        except OSError as error:
            raise EnvironmentProblem(f"{self.path}: {error.strerror}") from error

    def boots(self, boots: Mapping[str, str]) -> None:
        """When the nodes were started, as far as that is known; the first time counts."""
        if self._begun is None:
            return
        self._begun = replace(self._begun, boots={**boots, **self._begun.boots})
        try:
            journal.write(self.path, self._begun)
        except OSError as error:
            self._complain(error)

    def more(self, name: str, text: str, *, line: bool = False) -> None:
        """Another file, whole, or another line of it."""
        self._kept[name] = self._kept.get(name, "") + text if line else text
        try:
            if line:
                _append(self.path / name, text)
            else:
                _write(self.path / name, text)
        except OSError as error:
            self._complain(error)

    def close(self) -> None:
        """Others may have the folder; nothing more is written."""
        if self._lock is not None:
            self._lock.release()

    def result(self, result: Result) -> None:
        self._results.append(result)
        try:
            _append(self.path / _RESULTS, json.line(result))
        except OSError as error:
            self._whole = False
            self._complain(error)

    def job(self, report: JobReport) -> None:
        if report.reply is None:
            return
        if not any(report.reply is reply for reply in self._earlier):
            line = journal.line(report, time.monotonic() - self._since)
            self._jobs.append(line)
            try:
                _append(self.path / journal.JOBS, line)
            except OSError as error:
                self._complain(error)
        for stream in ("stdout", "stderr"):
            name = f"{_JOBS}/{report.job.name}.{stream}"
            self._kept[name] = getattr(report.reply, stream)
            try:
                _write(self.path / name, self._kept[name])
            except OSError as error:
                self._complain(error)

    def finish(self, report: RunReport) -> RunReport:
        """Write all reports. Never fails: returns the report with the place where they are, and a
        note for each that is missing.
        """
        problems: list[str] = []
        try:
            self._write_all(self.path, report, problems)
        except OSError as error:
            problem = f"{self.path} cannot be written: {error.strerror}"
            try:
                elsewhere = Path(tempfile.mkdtemp(prefix="plumbline-results-"))
                problems = []
                report = replace(report, output=str(elsewhere))
                report = _noted(report, [f"{problem}; the reports are in {elsewhere}"])
                self._write_all(elsewhere, report, problems)
            except OSError as other:
                report = replace(report, output="")
                problems = [f"{problem}, nor anything else: {other.strerror}"]
        for problem in problems:
            log.error("%s", problem)
        self.close()
        return _noted(report, problems)

    def _write_all(self, path: Path, report: RunReport, problems: list[str]) -> None:
        """Everything, also what was written before: it may be gone since."""
        (path / _JOBS).mkdir(parents=True, exist_ok=True)
        if self._plan is not None:
            _write(path / _PLAN, plan_report.as_json(self._plan))
        for name, text in self._kept.items():
            _write(path / name, text)
        if not (self._whole and path == self.path and self._all_there()):
            _write(path / _RESULTS, map(json.line, self._results))
        _write(path / journal.JOBS, iter(self._jobs))
        if self._begun is not None:
            journal.write(path, self._begun)
        for name, render in _RENDERED.items():
            try:
                _write(path / name, render(report))
            except OSError:
                raise
            except Exception as error:
                # A fault of one report must not cost the others, nor the verdict.
                log.exception("%s could not be made", name)
                problems.append(f"{name} is missing: {error!r}")

    def _all_there(self) -> bool:
        """Whether results.jsonl has a line for each result: it may be another file since."""
        with suppress(OSError), open(self.path / _RESULTS, "rb") as file:
            return sum(1 for _ in file) == len(self._results)
        return False

    def _complain(self, error: OSError) -> None:
        """Once: what is missing is written again at the end."""
        if not self._complained:
            self._complained = True
            log.warning("%s: %s; trying again at the end", self.path, error.strerror)


def _noted(report: RunReport, notes: list[str]) -> RunReport:
    return replace(report, notes=(*report.notes, *notes))


def _append(path: Path, line: str) -> None:
    with open(path, "a", encoding="utf-8", errors="replace") as file:
        file.write(line)


def _write(path: Path, text: Text) -> None:
    # A node may answer with half a character, which no file can hold.
    pieces = (text,) if isinstance(text, str) else text
    write_whole(path, (piece.encode("utf-8", "replace") for piece in pieces))


class RoundFolder(RunFolder):
    """The folder of one round of a burn-in, within the burn-in's own."""

    def __init__(self, whole: RunFolder, number: int) -> None:
        super().__init__(whole.path / ROUNDS / f"{number:04}")
        self._outer = whole
        self.seen: Mapping[str, str] = {}

    def boots(self, boots: Mapping[str, str]) -> None:
        self.seen = boots
        self._outer.boots(boots)

    def remove(self) -> None:
        """What a good round left: its line tells enough."""
        shutil.rmtree(self.path, ignore_errors=True)
