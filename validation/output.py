"""The folder that a run leaves behind.

`results.jsonl` grows while the run goes on, so that an interrupted one leaves what it knew. All
other files appear at the end, each at once and complete.
"""

import os
from pathlib import Path

from validation.errors import EnvironmentProblem, UsageError
from validation.model import JobReport, Result, RunReport
from validation.plan import Plan
from validation.report import html, json, junit, nodes
from validation.report import plan as plan_report

_RENDERED = {
    "summary.json": json.render,
    "junit.xml": junit.render,
    "report.html": html.render,
    "passing_nodes.txt": nodes.passing,
    "failing_nodes.txt": nodes.failing,
}
_PLAN, _RESULTS, _JOBS = "plan.json", "results.jsonl", "jobs"


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, plan: Plan) -> None:
        """Make the folder. A former run's files are removed: none may pass for this run's."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()) and not (self.path / _PLAN).is_file():
                raise UsageError(f"--output: {self.path} holds something else than a former run")
            for name in (*_RENDERED, _PLAN, _RESULTS):
                (self.path / name).unlink(missing_ok=True)
            jobs = self.path / _JOBS
            jobs.mkdir(exist_ok=True)
            for stream in ("stdout", "stderr"):
                for file in jobs.glob(f"*.{stream}"):
                    file.unlink()
            self._write(_PLAN, plan_report.as_json(plan))
            self._write(_RESULTS, "")
        except OSError as error:
            raise EnvironmentProblem(f"{self.path}: {error.strerror}") from error

    def result(self, result: Result) -> None:
        with open(self.path / _RESULTS, "a", encoding="utf-8") as file:
            file.write(json.line(result))

    def job(self, report: JobReport) -> None:
        if report.reply is None:
            return
        self._write(f"{_JOBS}/{report.job.name}.stdout", report.reply.stdout)
        self._write(f"{_JOBS}/{report.job.name}.stderr", report.reply.stderr)

    def finish(self, report: RunReport) -> None:
        try:
            for name, render in _RENDERED.items():
                self._write(name, render(report))
        except OSError as error:
            raise EnvironmentProblem(f"{self.path}: {error.strerror}") from error

    def _write(self, name: str, text: str) -> None:
        path = self.path / name
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(text, encoding="utf-8", errors="replace")
        os.replace(temporary, path)
