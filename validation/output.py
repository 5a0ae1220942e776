"""The folder that a run leaves behind.

`results.jsonl` grows while the run goes on, so that an interrupted one leaves what it knew. All
other files appear at the end, each at once and complete.

Once jobs run, nothing that happens to the folder may end the run or change its verdict: what is
known is kept in memory too, a folder that is gone is made anew, and if that fails the reports go
elsewhere.
"""

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from cluster.errors import EnvironmentProblem, UsageError
from cluster.files import write_whole
from validation.model import JobReport, Result, RunReport, Standing
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


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._plan: Plan | None = None
        self._kept: dict[str, str] = {}  # what jobs printed, by name
        self._results: list[Result] = []
        self._whole = True  # whether results.jsonl has all of them
        self._complained = False

    def prepare(self, plan: Plan) -> None:
        """Make the folder. A former run's files are removed: none may pass for this run's."""
        html.check()  # before anything is submitted
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()) and not (self.path / _PLAN).is_file():
                raise UsageError(
                    f"--output: {self.path} contains something other than an earlier run"
                )
            for name in (*_RENDERED, _PLAN, _RESULTS):
                (self.path / name).unlink(missing_ok=True)
            jobs = self.path / _JOBS
            jobs.mkdir(exist_ok=True)
            for stream in ("stdout", "stderr"):
                for file in jobs.glob(f"*.{stream}"):
                    file.unlink()
            self._plan = plan
            _write(self.path / _PLAN, plan_report.as_json(plan))
            _write(self.path / _RESULTS, "")
        except OSError as error:
            raise EnvironmentProblem(f"{self.path}: {error.strerror}") from error

    def result(self, result: Result) -> None:
        self._results.append(result)
        try:
            with open(self.path / _RESULTS, "a", encoding="utf-8", errors="replace") as file:
                file.write(json.line(result))
        except OSError as error:
            self._whole = False
            self._complain(error)

    def job(self, report: JobReport) -> None:
        if report.reply is None:
            return
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


def _write(path: Path, text: Text) -> None:
    # A node may answer with half a character, which no file can hold.
    pieces = (text,) if isinstance(text, str) else text
    write_whole(path, (piece.encode("utf-8", "replace") for piece in pieces))
