"""tests/runner: what a part costs, how it is measured, and whether it kept to its record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.runner import budget, counts, part, results, summary, yardstick
from tests.runner.budget import Judgement, Key, Verdict
from tests.runner.changed import Tree
from tests.runner.counts import Count
from tests.runner.results import Result
from tests.runner.yardstick import Yardstick

HALF = [Yardstick(0, 0.5)]
MUNGE = Key("role munge debian13", "control")
CALLS = Key("*", "calls_to_a_node")


@pytest.mark.parametrize(
    ("key", "value", "record", "expected"),
    [
        # A cost may be a third over its record, and fails at twice; a small part has a little more.
        (MUNGE, 40, 40, Verdict.KEPT),
        (MUNGE, 54, 40, Verdict.KEPT),
        (MUNGE, 55, 40, Verdict.TOLD),
        (MUNGE, 83, 40, Verdict.FAILED),
        (MUNGE, 2.5, 0.5, Verdict.KEPT),
        # Of a count not one more is let pass, and fewer are told.
        (CALLS, 24, 25, Verdict.TOLD),
        (CALLS, 25, 25, Verdict.KEPT),
        (CALLS, 26, 25, Verdict.FAILED),
        # Without a record, and not measured.
        (MUNGE, 40, None, Verdict.FAILED),
        (MUNGE, None, 40, Verdict.FAILED),
    ],
)
def test_a_number_is_held_against_its_record(key, value, record, expected):
    assert Judgement(key, value, record).verdict is expected


def test_a_cost_on_a_machine_that_was_too_busy_is_told():
    assert Judgement(MUNGE, 110, 40, steady=False).verdict is Verdict.TOLD
    assert (
        Judgement(MUNGE, 110, 40, steady=False)
        .sentence()
        .endswith("40 (on a machine that was too busy)")
    )
    # What is counted, and what is not there, do not depend on the machine.
    assert Judgement(CALLS, 26, 25, steady=False).verdict is Verdict.FAILED
    assert Judgement(MUNGE, None, 40, steady=False).verdict is Verdict.FAILED
    assert Judgement(MUNGE, 40, None, steady=False).verdict is Verdict.FAILED


def test_the_yardsticks_of_its_time_tell_whether_a_part_was_measured():
    noted = [Yardstick(1000, 0.5), Yardstick(2000, 0.9), Yardstick(3000, 1.1)]
    quiet = Result("unit", "ok", 900, 50.0, ended=1930)
    loaded = Result("role munge", "ok", 990, 50.0, ended=2990)
    assert budget.busy([quiet, loaded], noted) == {"role munge", "*"}
    assert budget.busy([quiet], noted[:2]) == frozenset()
    numbers = {Key(part, "control"): 9 for part in ("unit", "role munge")}
    records = dict.fromkeys(numbers, 2.0)
    parts = frozenset({"unit", "role munge"})
    judged = budget.judge(numbers, records, parts, busy=budget.busy([quiet, loaded], noted))
    assert [item.verdict for item in judged] == [Verdict.TOLD, Verdict.FAILED]


def test_a_count_of_cpu_seconds_is_a_cost():
    key = Key("*", "preflight_1000_hosts_cpu")
    assert Judgement(key, 26, 20).verdict is Verdict.KEPT
    assert budget.measured([], [Count(key.measure, 10.0)], HALF) == {key: 20}


def test_costs_are_told_in_yardsticks():
    done = [Result("cluster debian13", "ok", 900, 300.0, 200.0), Result("unit", "ok", 90, 50.0)]
    assert budget.measured(done, [], HALF) == {
        Key("cluster debian13", "control"): 600,
        Key("cluster debian13", "nodes"): 400,
        Key("unit", "control"): 100,
    }


def test_what_a_part_cost_that_failed_is_not_judged():
    costs = budget.measured([Result("unit", "FAILED", 1, 1)], [], HALF)
    assert budget.judge(costs, {Key("unit", "control"): 300}, frozenset()) == []


def test_a_record_of_a_part_that_ran_must_be_measured():
    records = {Key("cluster debian13", "forks"): 150.0, Key("unit", "control"): 9.0}
    (judged,) = budget.judge({}, records, frozenset({"cluster debian13"}))
    assert judged.verdict is Verdict.FAILED
    assert judged.sentence() == "cluster debian13: forks has a record of 150, and was not measured"


def test_what_belongs_to_no_part_is_missed_in_a_whole_run():
    assert budget.judge({}, {CALLS: 25}, frozenset()) == []
    (judged,) = budget.judge({}, {CALLS: 25}, frozenset(), whole=True)
    assert judged.verdict is Verdict.FAILED


def test_a_run_of_some_parts_renews_those():
    records = {MUNGE: 40.0, Key("unit", "control"): 300.0, Key("unit", "gone"): 1.0}
    costs = {Key("unit", "control"): 200.0}
    assert budget.renewed(costs, records, frozenset({"unit"})) == {MUNGE: 40} | costs
    assert budget.renewed(costs, records, frozenset({"unit"}), whole=True) == costs


def test_records_are_read_as_they_are_written(tmp_path):
    records = {MUNGE: 40.5, CALLS: 25.0}
    budget.write(records, tmp_path / "budget.tsv")
    assert budget.read(tmp_path / "budget.tsv") == records


def test_the_records_are_of_parts_that_there_are():
    tree = Tree(REPOSITORY)
    parts = {name.removesuffix(" debian13") for name, _ in budget.read(REPOSITORY / budget.RECORDS)}
    assert parts <= tree.everything | {"*"}


def test_a_yardstick_that_met_a_busy_moment_counts_no_more(tmp_path):
    path = tmp_path / "yardsticks"
    assert yardstick.read(path) == []
    path.write_text("1\t0.5\n2\t4.0\n3\t0.6\n")
    assert budget.middle(yardstick.read(path), 0, 9) == 0.6


def test_a_part_is_measured_with_what_its_own_time_lent():
    noted = [Yardstick(1000, 0.5), Yardstick(2000, 1.0)]
    quiet = Result("unit", "ok", 90, 50.0, ended=1030)
    busy = Result("lint mypy", "ok", 90, 100.0, ended=2030)
    between = Result("lint ruff", "ok", 1, 3.0, ended=1500)
    costs = budget.measured([quiet, busy, between], [], noted)
    assert [value for _, value in sorted(costs.items())] == [100, 4, 100]


def test_an_empty_playbook_takes_some_time(tmp_path):
    yardstick.note(tmp_path / "yardsticks")
    (noted,) = yardstick.read(tmp_path / "yardsticks")
    assert 0.05 < noted.seconds < 30


def test_a_part_that_costs_something_measures_one_when_it_ends(folder, monkeypatch):
    monkeypatch.setattr(yardstick, "note", lambda: yardstick.NOTED.write_text("1\t0.5\n"))
    part.main(["unit", "true"])
    assert yardstick.read() == []
    monkeypatch.setattr(yardstick, "WORTH_ONE", -1.0)
    part.main(["unit", "true"])
    assert len(yardstick.read()) == 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    results.LOGS.mkdir(parents=True)
    return tmp_path


def test_a_part_is_measured_with_all_that_it_started(folder, capfd):
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    command = ["sh", "-c", f"echo words; python3 -c '{burn}'"]
    assert part.main(["unit", *command]) == 0
    (result,) = results.read()
    assert result.passed
    assert result.control >= 0.3
    assert result.nodes is None
    assert part.log_of("unit").read_text() == "words\n"
    assert capfd.readouterr().out.endswith(" s  ok\n")


def test_of_a_part_that_failed_the_end_of_its_log_is_told(folder, capfd):
    assert part.main(["lint mypy 3.10", "sh", "-c", "seq 99; exit 7"]) == 1
    line, *words = capfd.readouterr().out.splitlines()
    assert line.endswith("FAILED  .cache/test/lint-mypy-3.10.log")
    assert (len(words), words[-1]) == (60, "    99")


def test_a_program_that_is_missing_is_a_failure(folder):
    assert part.main(["unit", "no-such-program"]) == 1
    assert "no-such-program" in part.log_of("unit").read_text()


def test_what_its_nodes_used_is_a_difference(folder, monkeypatch):
    # A node that rebooted began at 0 again, and may have used more since than it had before.
    used = iter([(10.0, 1), (12.5, 1), (70.0, 1), (4.0, 2), (30.0, 0), (37.5, 1)])
    monkeypatch.setattr(part, "of_nodes", lambda name: next(used))
    assert part.run("role munge", ["true"], "some").nodes == 2.5
    assert part.run("role node_reboot", ["true"], "some").nodes is None
    assert part.run("role node_reboot", ["true"], "some").nodes is None
    monkeypatch.setattr(part, "of_nodes", lambda name: None)
    assert part.run("role munge", ["true"], "some").nodes is None


def test_counts_come_from_python_and_from_a_shell(tmp_path, monkeypatch):
    path = tmp_path / "counts.tsv"
    assert list(counts.read(path)) == []
    monkeypatch.setenv("PLUMBLINE_PART", "cluster debian13")
    counts.note("forks", 150, path)
    with path.open("a") as file:
        file.write("calls 25\n")
    assert [*counts.read(path)] == [Count("forks", 150, "cluster debian13"), Count("calls", 25)]


def test_without_a_yardstick_nothing_passes(folder, capsys):
    results.add(Result("unit", "ok"))
    assert summary.main([]) == 1
    assert capsys.readouterr().out.endswith("so nothing was judged\n1 passed, 1 failed\n")


def test_nothing_that_ran_is_no_pass(folder, capsys):
    results.RESULTS.touch()
    yardstick.NOTED.write_text("1\t0.5\n")
    assert summary.main([]) == 1
    assert capsys.readouterr().out.endswith("1 passed, 0 failed\n")


def test_the_end_names_the_tests_that_failed(folder, capsys):
    yardstick.NOTED.write_text("1\t0.5\n")
    results.add(Result("unit", "FAILED"))
    results.add(Result("role munge", "FAILED"))
    part.log_of("unit").write_text("FAILED tests/test_a.py::test_b - assert 1\n== 1 failed ==\n")
    part.log_of("role munge").write_text("no node\n\n")
    assert summary.main([]) == 1
    output = capsys.readouterr().out
    assert "\nunit: FAILED tests/test_a.py::test_b - assert 1\n" in output
    assert "\nrole munge: no node\n" in output
