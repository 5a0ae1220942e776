"""The history: every run once, whoever writes at once, whatever the file is; and what it shows."""

import glob
import json
import multiprocessing
import os
import re
import shlex
import shutil
import sqlite3
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.errors import DataError
from validation.compare import __main__ as compare_program
from validation.execution.folder import RunFolder
from validation.history import __main__ as program
from validation.history import figures, plots, recording, runs, store
from validation.history.figures import Worse
from validation.model import Metric, Verdict
from validation.tests.large_reports import large
from validation.tests.noisy_runs import DAY_S, noisy, unchanged
from validation.tests.sample_reports import healthy, mixed_bag


def at(report, day, **changes):
    """The report of a run of this day."""
    started = f"2026-01-{day:02}T03:04:05+00:00"
    return replace(report, run_id=f"202601{day:02}T030405Z-ab12", started=started, **changes)


@pytest.fixture
def path(tmp_path):
    return tmp_path / store.NAME


@pytest.fixture
def say(path, capsys):
    """Exit code, and both outputs, of the program."""

    def run(*arguments, width=100):
        os.environ["COLUMNS"] = str(width)
        status = program.main([*arguments, "--history", str(path)])
        return status, *capsys.readouterr()

    before = os.environ.get("COLUMNS", "")
    yield run
    os.environ["COLUMNS"] = before


def filled(path, days=6, nodes=4, **changes):
    _, report = large(nodes)
    for day in range(1, days + 1):
        assert recording.record(at(report, day, **changes), path).notes == ()


# --- the file ----------------------------------------------------------------------------------


def test_a_run_is_kept_with_verdicts_and_figures(path):
    report = mixed_bag()
    assert recording.record(report, path) == report
    with store.read(path) as history:
        (known,) = history.runs()
        results = history.results(known)
        kept = {(f.check, f.subject, f.name): f for f in history.figures(known)}
    assert (known.run_id, known.verdict, known.suite) == (report.run_id, "fail", "quick")
    assert sum(dict(known.counts).values()) == len(report.results) == len(results)
    assert {(r.check, r.subject, r.verdict) for r in results} == {
        (r.check, r.subject.name, r.verdict.value) for r in report.results
    }
    step = kept["ddp", "h100_sxm", "step time, median"]
    assert (step.value, step.unit, step.threshold) == (0.004, "s", None)
    assert not [key for key in kept if key[0] == "slurm_state"]  # nothing measured


def test_a_run_is_kept_once(path):
    report = healthy()
    for _ in range(2):
        assert recording.record(report, path).notes == ()
    with store.read(path) as history:
        assert len(history.runs()) == 1


def write(path, day):
    report = recording.record(at(healthy(), day), path)
    os._exit(0 if report.notes == () else 1)


def test_runs_that_end_at_once_are_all_kept(path):
    """None of them finds the file made, and each makes it."""
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=write, args=(path, day)) for day in range(1, 9)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 8
    with store.read(path) as history:
        assert len(history.runs()) == 8


def test_a_history_that_is_locked_costs_a_note(path, monkeypatch):
    filled(path, 1)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    opened = store.opened
    monkeypatch.setattr(store, "opened", lambda where: opened(where, wait_s=0.05))
    report = recording.record(healthy(), path)
    holder.execute("ROLLBACK")
    holder.close()
    assert report.notes == (f"this run is not in the history: {path}: database is locked",)
    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (lambda path: path.write_text("results\n" * 100), "file is not a database"),
        (lambda path: path.mkdir(), "unable to open database file"),
        (lambda path: shutil.rmtree(path.parent), "unable to open"),
    ],
)
def test_a_file_that_is_none_costs_a_note(path, broken, says):
    broken(path)
    (note,) = recording.record(healthy(), path).notes
    assert note.startswith(f"this run is not in the history: {path}: {says}")


def test_a_fault_of_the_history_costs_a_note(path, monkeypatch):
    def fault(report):
        raise ZeroDivisionError("x")

    monkeypatch.setattr(runs, "of_report", fault)
    (note,) = recording.record(healthy(), path).notes
    assert note == f"this run is not in the history: {path}: ZeroDivisionError('x')"


def test_another_programs_file_is_left_alone(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE songs (name TEXT)")
    other.close()
    before = path.read_bytes()
    (note,) = recording.record(healthy(), path).notes
    assert note.endswith(f"{path} is the SQLite file of another program")
    assert path.read_bytes() == before


def test_a_newer_file_is_left_alone(path, say):
    filled(path, 1)
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    before = path.read_bytes()
    (note,) = recording.record(healthy(), path).notes
    sentence = (
        f"{path} is of a newer Plumbline (version 99 of its tables, this one knows "
        f"{store.VERSION}): update Plumbline, or name another file with --history"
    )
    assert note == f"this run is not in the history: {sentence}"
    assert say() == (2, "", f"history: {sentence}\n")
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", range(1, store.VERSION))
@pytest.mark.parametrize("reads", [True, False])
def test_an_older_file_is_brought_up_to_date(path, version, reads, monkeypatch):
    steps = store._STEPS
    monkeypatch.setattr(store, "_STEPS", steps[:version])
    monkeypatch.setattr(store, "VERSION", version)
    recording.record(at(healthy(), 1), path)
    monkeypatch.undo()
    if not reads:
        assert recording.record(at(healthy(), 2), path).notes == ()
    with store.read(path) as history:
        assert history.version() == store.VERSION
        assert len(history.runs()) == 2 - reads
        assert history.figures(history.runs()[0])


def test_a_run_is_kept_whole_or_not_at_all(path, monkeypatch):
    filled(path, 1)
    monkeypatch.setattr(runs, "of_report", lambda report: replace(
        real(report), figures=(runs.Figure("x", "gpu1", "y", "s", None),)  # type: ignore[arg-type]
    ))  # fmt: skip
    (note,) = recording.record(healthy(), path).notes
    assert "NOT NULL constraint failed" in note
    with store.read(path) as history:
        assert len(history.runs()) == 1


real = runs.of_report


def test_it_lies_beside_the_results_and_never_where_everybody_writes(tmp_path):
    results = tmp_path / "results" / "x"
    assert recording.place(results) == tmp_path / "results" / store.NAME
    tmp_path.chmod(tmp_path.stat().st_mode | stat.S_IWOTH)
    assert recording.place(tmp_path / "x") == tmp_path / "x" / store.NAME


def test_a_whole_run_is_kept_and_shown(cluster, capsys):
    cluster.install()
    status, _, err = cluster.run("--only", "cpus")
    assert (status, "not in the history" in err) == (0, False)
    assert program.main(["gpu1", "--history", str(cluster.path / store.NAME)]) == 0
    assert "PASS" in capsys.readouterr()[0]


# --- older runs --------------------------------------------------------------------------------


def folder_of(tmp_path, plan, report):
    folder = RunFolder(tmp_path / report.run_id)
    folder.prepare(plan)
    for result in report.results:
        folder.result(result)
    folder.finish(report)
    return folder.path


def test_the_folder_of_a_run_says_what_its_report_said(tmp_path):
    plan, report = large(4, failing=True)
    folder = folder_of(tmp_path, plan, at(report, 1))
    read, known = runs.of_folder(folder), runs.of_report(at(report, 1))
    assert replace(read, version=known.version, seconds=known.seconds) == known


def test_older_folders_are_imported_once(tmp_path, say):
    plan, report = large(4)
    folders = [folder_of(tmp_path / "results", plan, at(report, day)) for day in (2, 1)]
    (tmp_path / "results" / "notes.txt").write_text("x")
    half = tmp_path / "results" / "half"
    half.mkdir()
    torn = tmp_path / "results" / "torn"
    shutil.copytree(folders[0], torn)
    (torn / "summary.json").write_text((torn / "summary.json").read_text()[:999])
    # As it was written before results.jsonl alone had what nodes measured.
    document = json.loads((folders[0] / "summary.json").read_text())
    lines = (folders[0] / "results.jsonl").read_text().splitlines()
    old = {**document, "schema": 1, "results": [json.loads(line) for line in lines]}
    (folders[0] / "summary.json").write_text(json.dumps(old))
    paths = sorted(map(str, (tmp_path / "results").iterdir()))
    status, out, _ = say("--import", *paths)
    assert (status, out.splitlines()[-1]) == (0, f"  2 runs added to {tmp_path / store.NAME}")
    assert f"left out: {half}: no summary.json: it did not end" in out
    assert f"left out: {torn}: summary.json is not a run's: JSONDecodeError" in out
    assert say("--import", *paths)[1].endswith(", 2 already there\n")
    with store.read(tmp_path / store.NAME) as history:
        first, second = history.runs()
        assert (first.run_id < second.run_id, first.verdict) == (True, "pass")
        assert history.figures(first) == [replace(figure) for figure in history.figures(second)]


def test_what_is_no_folder_of_a_run_is_refused(tmp_path, say):
    (tmp_path / "x").mkdir()
    sentence = "history: --import: none of these is the folder of a finished run\n"
    assert say("--import", str(tmp_path / "x")) == (2, "", sentence)
    sentence = f"history: --import: there is no {tmp_path / 'y'}\n"
    assert say("--import", str(tmp_path / "y")) == (2, "", sentence)
    assert not (tmp_path / store.NAME).exists()


# --- what is shown -----------------------------------------------------------------------------


def test_the_runs_are_a_table(path, say):
    filled(path, 3)
    recording.record(at(mixed_bag(), 4), path)
    status, out, _ = say(width=140)
    lines = out.splitlines()
    assert (status, len(lines)) == (0, 5)
    assert lines[-1].split()[:5] == ["2026-01-04", "03:04", "20260104T030405Z-ab12", "quick",
                                     "plumbline"]  # fmt: skip
    assert "FAIL" in lines[-1]
    assert len(say("--suite", "gpu", "--last", "2", width=140)[1].splitlines()) == 3
    assert len(say("--since", "2026-01-03", width=140)[1].splitlines()) == 3


def test_the_figures_of_a_node_and_of_a_check_fit_a_narrow_terminal(path, say):
    filled(path)
    for what in ("gpu3", "gemm"):
        status, out, _ = say(what, width=80)
        assert status == 0
        assert "gemm: GPU, bf16" in out
        assert max(map(len, out.splitlines())) <= 80
    status, out, _ = say("gemm", "--metric", "bf16", width=80)
    assert out.count("*") == 6
    assert "TFLOPS, 2026-01-01 to 2026-01-06" in out
    assert say("gpu3", "--metric", "GPU 2, bf16")[0] == 0


def test_a_page_has_a_picture_of_each_figure(path, say, tmp_path):
    filled(path, 3)
    page = tmp_path / "page.html"
    status, out, _ = say("gemm", "--html", str(page))
    assert (status, out.splitlines()[-1]) == (0, f"  written to {page}")
    text = page.read_text()
    assert text.count("<svg") == 6
    assert text.count("<circle") == 18
    assert "<script" not in text


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["gpu99"], "knows no node and no check 'gpu99'; checks are accounting, alike,"),
        (["gemm", "--metric", "int3"], "--metric: no figure has 'int3' in its name; there is GPU,"),
        (["--metric", "bf16"], "--metric: name a node or a check too, such as gemm"),
        (["--since", "lately"], "--since: expected a date such as 2026-11-01, or 12h, 30d or 8w"),
        (["--since", "2099-01-01"], "has no run since 2099-01-01"),
        (["--last", "0"], "--last: expected a number of runs from 1 on, found 0"),
        (["--suite", "full"], "has no run of a suite full"),
        (["--html", "/nowhere/x.html"], "--html: /nowhere/x.html: No such file or directory"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(path, say, arguments, says):
    filled(path, 1)
    status, out, err = say(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("history: ")
    assert says in err


def test_without_a_history_it_says_how_to_get_one(path, say):
    status, _, err = say()
    assert status == 2
    assert err.startswith(f"history: there is no {path}: a run of validation.run writes it")


# --- plots -------------------------------------------------------------------------------------


def test_a_line_of_blocks():
    assert plots.sparkline([1, 2, 3, 8], 10) == "▁▂▃█"
    assert plots.sparkline([5, 5], 10) == "▅▅"
    assert len(plots.sparkline(list(range(1000)), 20)) == 20
    assert plots.sparkline([1, 8], 10, plots.PLAIN) == "_@"


def test_a_chart_has_values_failures_and_the_limit():
    samples = [plots.Sample(day, 100.0 - day, f"run {day}", day == 5) for day in range(6)]
    lines = plots.chart(samples, 40, limit=90)
    assert [line for line in lines if len(line) > 40] == []
    text = "\n".join(lines)
    assert (text.count("*"), text.count("x")) == (5, 1)
    assert "-----" in text
    assert plots.chart(samples[:1], 40)  # one value is a plot too
    assert "run 5: 95 GB/s" in plots.svg(samples, "GB/s", 90)


# --- which figures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "name", "unit", "direction"),
    [
        ("gemm", "GPU 3, bf16", "TFLOPS", Worse.LESS),
        ("all_reduce", "busbw 8 GiB", "GB/s", Worse.LESS),
        ("all_reduce", "busbw 64 KiB", "GB/s", Worse.OMIT),
        ("ddp", "step time, median", "s", Worse.MORE),
        ("ddp", "samples per second", "1/s", Worse.LESS),
        ("ddp", "first-step difference", "", Worse.OMIT),
        ("clock", "offset", "s", Worse.OMIT),
        ("stragglers", "GPU 3, bf16", "TFLOPS", Worse.OMIT),
        ("clocks", "GPU 3 temperature", "°C", Worse.NEITHER),
        ("burn_in", "GPU 3 temperature", "°C", Worse.MORE),
        ("cpus", "cpus", "CPUs", Worse.OMIT),
    ],
)
def test_the_table_knows_which_direction_is_worse(check, name, unit, direction):
    assert figures.worse(check, name, unit) is direction


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"unit": "s"}, "rule 1: worse must be one of less, more, neither, omit"),
        ({"worse": "less"}, "rule 1: say of which check, name or unit it is"),
        ({"unit": "s", "worse": "less", "y": "z"}, "rule 1: unknown key y; known are check, name"),
        ({"name": "(", "worse": "less"}, "rule 1: not a regular expression"),
        ("less", "rule 1: expected check, name, unit and worse, each a text"),
    ],
)
def test_a_wrong_rule_is_named(entry, says):
    with pytest.raises(DataError, match=r"x\.yml") as caught:
        figures.read({"rules": [entry]}, "x.yml")
    assert says in str(caught.value)


def test_a_table_without_rules_is_refused():
    with pytest.raises(DataError, match="expected one key, rules"):
        figures.read({"rules": []}, "x.yml")


def test_numbers_that_are_none_are_not_kept():
    (result, *_) = [r for r in large(4)[1].results if r.check == "hbm"]
    for value in (float("nan"), float("inf"), 10**400, "fast"):
        told = replace(result, value=None, threshold=None, verdict=Verdict.FAIL,
                       metrics=(Metric("copy", value, "GB/s"),))  # fmt: skip
        assert runs.of_report(replace(healthy(), results=(told,))).figures == ()


# --- the page ----------------------------------------------------------------------------------


PAGE = Path(program.__file__).parents[2] / "docs/operate/history.md"
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if "validation.tests" not in line
]


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with runs of the last week in its history, and one that is not there yet."""
    plan, report = large(4)
    folder_of(tmp_path / "results", plan, at(report, 9))
    week = time.time() - 7 * DAY_S
    with store.opened(tmp_path / "results" / store.NAME) as history:
        for day, side in enumerate(noisy(1, [unchanged] * 6), 1):
            run = runs.of_report(at(report, day))
            started = week + side.started
            history.add(replace(run, started=started, figures=side.figures))
    monkeypatch.chdir(tmp_path)


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_works(site, command, capsys):
    _, module, *arguments = shlex.split(command)[1:]
    words = [name for text in arguments for name in (sorted(glob.glob(text)) or [text])]
    main = {"validation.history": program.main, "validation.compare": compare_program.main}
    status = main[module](words)
    out, err = capsys.readouterr()
    # These runs are equal; of one run on four nodes it cannot be told whether that is chance.
    assert (status, err) in ((0, ""), (3 if module == "validation.compare" else 0, "")), out
