"""No report is lost, and no exit code changed, over a terminal, a pipe or the results' folder."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import EnvironmentProblem
from validation import terminal
from validation.execution import folder as folders
from validation.execution.folder import RunFolder
from validation.execution.journal import Begun
from validation.model import JobReport, Outcome, Reply, Subject, Verdict
from validation.progress import Watcher
from validation.report import html
from validation.slurm.client import JobProgress, Progress
from validation.tests.conftest import make_plan
from validation.tests.sample_reports import EVIL, evil, healthy, mixed_bag
from validation.tests.simulated_cluster import FILES, ROOT


def prepared(tmp_path):
    folder = RunFolder(tmp_path / "results")
    folder.prepare(make_plan(), Begun("run", "secret", "now", "/", (), {}))
    return folder


def files(path):
    return {item.name for item in Path(path).iterdir()}


# --- the folder ------------------------------------------------------------------------------


def test_a_folder_that_is_removed_while_jobs_run_costs_nothing(tmp_path):
    report = healthy()
    folder = prepared(tmp_path)
    first, *rest = report.results
    folder.result(first)
    folder.job(report.jobs[0])
    shutil.rmtree(folder.path)
    for result in rest:
        folder.result(result)
    for job in report.jobs[1:]:
        folder.job(job)
    report = folder.finish(replace(report, output=str(folder.path)))
    assert files(folder.path) == FILES
    lines = (folder.path / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["check"] for line in lines] == [r.check for r in report.results]
    assert len(list((folder.path / "jobs").iterdir())) == 2 * len(report.jobs)
    assert json.loads((folder.path / "plan.json").read_text())["suite"] == "quick"
    assert (report.output, report.notes) == (str(folder.path), ())


def test_where_the_folder_cannot_be_written_the_reports_go_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = prepared(tmp_path)
    shutil.rmtree(folder.path)
    folder.path.touch()  # a file is there now
    report = mixed_bag()
    for result in report.results:
        folder.result(result)
    written = folder.finish(report)
    assert written.exit_code == report.exit_code == 1
    assert written.output != str(folder.path)
    assert files(written.output) == FILES
    (note,) = written.notes
    assert note.startswith(f"{folder.path} cannot be written: ")
    assert note.endswith(f"the reports are in {written.output}")
    # The reports themselves say so too.
    assert written.output in (Path(written.output) / "report.html").read_text()


def test_where_nothing_can_be_written_the_verdict_stands(tmp_path, monkeypatch):
    folder = prepared(tmp_path)
    shutil.rmtree(folder.path)
    folder.path.touch()
    monkeypatch.setattr(tempfile, "tempdir", str(folder.path))
    written = folder.finish(healthy())
    assert (written.exit_code, written.output) == (0, "")
    assert "cannot be written" in written.notes[0]


def test_a_report_that_cannot_be_made_costs_only_itself(tmp_path, monkeypatch):
    def explode(report):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(folders, "_RENDERED", {**folders._RENDERED, "summary.json": explode})
    folder = prepared(tmp_path)
    report = folder.finish(healthy())
    assert files(folder.path) == FILES - {"summary.json"}
    assert report.notes == ("summary.json is missing: ZeroDivisionError('oops')",)
    assert report.verdict is Verdict.PASS


def test_half_a_character_in_an_answer_costs_no_report(tmp_path):
    report = evil()
    folder = prepared(tmp_path)
    for result in report.results:
        folder.result(replace(result, message=EVIL))
    folder.job(JobReport(make_plan().jobs[0], Reply("x", Outcome.EXITED, 0, stdout="\ud800")))
    folder.finish(report)
    assert files(folder.path) == FILES
    for name in FILES - {"jobs"}:
        (folder.path / name).read_text(encoding="utf-8")
    lines = (folder.path / "results.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == len(report.results)


def test_without_jinja2_nothing_is_submitted(tmp_path, monkeypatch):
    html._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(EnvironmentProblem, match="Jinja2 is not installed"):
        prepared(tmp_path)
    assert not (tmp_path / "results").exists()


# --- the terminal ----------------------------------------------------------------------------


class Gone(io.StringIO):
    """What a closed window is: every word to it is an error."""

    def write(self, text):
        raise OSError(5, "Input/output error")

    def flush(self):
        raise OSError(5, "Input/output error")


class GoneTerminal(Gone):
    def isatty(self):
        return True


class Closed(io.StringIO):
    """What is left after sys.stderr.close()."""

    def write(self, text):
        raise ValueError("I/O operation on closed file.")


@pytest.mark.parametrize("stream", [Gone(), GoneTerminal(), Closed()])
def test_a_terminal_that_is_gone_ends_no_run(tmp_path, stream):
    report = mixed_bag()
    folder = prepared(tmp_path)
    with Watcher(stream, folder) as watcher:
        watcher.stage("node tier")
        for result in report.results:
            watcher.result(result)
    assert len((folder.path / "results.jsonl").read_text().splitlines()) == len(report.results)
    terminal.say("done", stream)


def test_one_fault_of_a_node_is_said_once(tmp_path):
    stream = io.StringIO()
    with Watcher(stream, prepared(tmp_path)) as watcher:
        for result in mixed_bag().results:
            watcher.result(result)
    assert stream.getvalue().count("Slurm says drained") == 1


def test_what_no_node_can_be_asked_is_said_once(tmp_path):
    stream = io.StringIO()
    (result, *_) = mixed_bag().results
    with Watcher(stream, prepared(tmp_path)) as watcher:
        for name in ("gpu1", "gpu2", "gpu3"):
            skip = {"verdict": Verdict.SKIP, "message": "no RDMA is declared"}
            watcher.result(replace(result, subject=Subject.node(name), **skip))
    assert stream.getvalue().splitlines()[-1].endswith(f"SKIP {result.check}: no RDMA is declared")
    assert stream.getvalue().count("SKIP") == 1


def test_what_many_nodes_have_in_common_is_counted(tmp_path):
    """1,024 nodes that fail each with its own number, and skip two checks, are a few lines."""
    stream = io.StringIO()
    (result, *_) = mixed_bag().results
    with Watcher(stream, prepared(tmp_path)) as watcher:
        watcher.stage("node tier")
        for number in range(1024):
            of_node = replace(result, subject=Subject.node(f"gpu{number}"))
            failed = {"verdict": Verdict.FAIL, "message": f"{number + 10} CPUs found, 2 declared"}
            watcher.result(replace(of_node, **failed))
            for check in ("ecc", "xid"):
                skip = {"verdict": Verdict.SKIP, "message": "no GPU is declared"}
                watcher.result(replace(of_node, check=check, **skip))
    _, *said = (line[len("00:00:00 ") :] for line in stream.getvalue().splitlines())
    assert said == [
        *(f"  FAIL {result.check} gpu{n}: {n + 10} CPUs found, 2 declared" for n in range(4)),
        f"  FAIL {result.check}: 1020 more nodes alike",
        "  SKIP ecc and xid: no GPU is declared",
    ]


class Screen(io.StringIO):
    def isatty(self):
        return True


JOBS = (
    JobProgress("node-gpu1", "done", "7", 3.0, ""),
    JobProgress("node-gpu2", "running", "8", 3.0, ""),
    JobProgress("node-gpu3", "queued", "9", 61.0, "Resources"),
)


def watched(stream, folder, times, *batches):
    """The stage of a run that is looked at at these times."""
    clock = iter([0.0, *times])
    with Watcher(stream, folder, 360.0, lambda: next(clock)) as watcher:
        watcher.stage("node tier, 3 nodes")
        for jobs in batches:
            watcher.progress(Progress(done=False, jobs=jobs, replies=()))


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (
            "160",
            "node tier, 3 nodes: 1 of 3 jobs, 40 s of at most 6 min 00 s, node-gpu2 running; "
            "node-gpu3 queued for 1 min 01 s (Resources)",
        ),
        ("80", "node tier, 3 nodes: 1 of 3 jobs, 40 s of at most 6 min 00 s, node-gpu2 runni..."),
        ("40", "node tier, 3 nodes: 1/3, 40 s"),
    ],
)
def test_on_a_terminal_the_jobs_are_one_line_in_place(tmp_path, monkeypatch, columns, line):
    for name, value in {"TERM": "xterm", "CI": "", "NO_COLOR": "", "COLUMNS": columns}.items():
        monkeypatch.setenv(name, value)
    stream = Screen()
    watched(stream, prepared(tmp_path), [40.0], JOBS)
    assert stream.getvalue() == f"node tier, 3 nodes\n\r{line}\x1b[K\r\x1b[K"


@pytest.mark.parametrize("name", ["CI", "NO_COLOR"])
def test_elsewhere_there_is_a_plain_line_for_what_differs(tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    stream = Screen()
    # Looked at, then said; the same for a minute is said once more.
    watched(stream, prepared(tmp_path), [3.0, 3.0, 9.0, 70.0, 70.0], JOBS, JOBS, JOBS)
    first, *lines = stream.getvalue().splitlines()
    assert first.endswith(" node tier, 3 nodes")
    assert [re.sub(r", node-gpu2.*", "", line)[9:] for line in lines] == [
        "  node tier, 3 nodes: 1 of 3 jobs, 3 s of at most 6 min 00 s",
        "  node tier, 3 nodes: 1 of 3 jobs, 1 min 10 s of at most 6 min 00 s",
    ]
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("utf-8", "≥ 1 · 2 × 2 – … é"), ("ascii", ">= 1 - 2 x 2 - ... ?"), ("latin-1", ">= 1 · 2 ×")],
)
def test_what_a_terminal_does_not_know_is_said_plainly(encoding, shown):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    terminal.say("≥ 1 · 2 × 2 – … é", stream)
    assert raw.getvalue().decode(encoding).startswith(shown)


# --- the whole program -----------------------------------------------------------------------


def start(cluster, *more, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "validation.run", *cluster.arguments(*more)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("faults", "status"), [({}, 0), ({"all_reduce": {"arguments": {"wrong": 1}}}, 1)]
)
def test_closed_pipes_cost_no_report_and_no_exit_code(cluster, faults, status):
    cluster.install(**faults)
    process = start(cluster)
    process.stdout.close()
    process.stderr.close()
    assert process.wait(timeout=120) == status
    assert files(cluster.output) == FILES
    assert cluster.summary()["exit_code"] == status


@pytest.mark.long
def test_an_ascii_terminal_costs_no_report_and_no_exit_code(cluster):
    cluster.install()
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    process = start(cluster, PYTHONIOENCODING="ascii:strict", **plain)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert b">= 0.05" in out
    assert b"Traceback" not in err
    assert files(cluster.output) == FILES
