"""What got worse is named, noise is not, and what cannot be told is said to be so."""

import json
import os
import statistics
from dataclasses import replace

import pytest

from validation.compare import __main__ as program
from validation.compare import chance
from validation.compare.judging import EVERYWHERE, Outcome, Side, compare
from validation.history import runs, store
from validation.history.runs import Figure, Judged
from validation.tests.noisy_runs import DAY_S, named, noisy, slow, unchanged

BF16 = ("gemm", "GPU, bf16", "gpu3")


# --- chance ------------------------------------------------------------------------------------


def test_cliffs_delta_is_the_share_of_pairs():
    assert chance.cliffs_delta([1, 2], [3, 4]) == 1
    assert chance.cliffs_delta([3, 4], [1, 2]) == -1
    assert chance.cliffs_delta([1, 1], [1, 1]) == 0
    assert chance.cliffs_delta([1, 2], [2, 3]) == 0.75


def test_one_question_has_the_p_of_an_exact_permutation_test():
    """The largest of 20 ways to choose three of six is one; the smallest move is all of them."""
    assert chance.familywise([chance.Test((1.0, 2, 3, 4, 5, 6), 0.0)], 3) == [1 / 20]
    assert chance.familywise([chance.Test((6.0, 5, 4, 3, 2, 1), 0.0)], 3) == [1.0]
    assert chance.familywise([chance.Test((1.0,) * 6, 0.1)], 3) == [1.0]


def test_several_questions_are_corrected_together():
    """One that stands out keeps its p however many others there are; one of chance does not."""
    clear = chance.Test((1.0, 1.01, 0.99, 2.0, 2.01, 1.99), 0.01)
    others = [
        chance.Test(tuple(1 + 0.01 * ((a * k) % 7) for k in range(6)), 0.01) for a in range(1, 7)
    ]
    p, *ps = chance.familywise([clear, *others], 3)
    assert p == 1 / 20
    assert min(ps) > 0.05


def test_signs_are_turned_for_all_figures_of_a_node_together():
    assert chance.sign_flips([[0.1, 0.2, 0.3, 0.1, 0.2]], 0.001) == [1 / 32]
    assert chance.sign_flips([[0.1, -0.2, 0.3, -0.1, 0.0]], 0.001)[0] > 0.3


def test_beyond_a_thousand_ways_a_sample_is_drawn_and_is_the_same_each_time():
    values = tuple(float(n % 5 + (n > 9) * 9) for n in range(20))
    (p,) = chance.familywise([chance.Test(values, 0.1)], 10)
    assert p == 1 / chance.MOST == chance.familywise([chance.Test(values, 0.1)], 10)[0]


def test_the_spread_is_that_of_normal_noise():
    values = statistics.NormalDist(0, 2).samples(2001, seed=1)
    assert chance.spread(values) == pytest.approx(2, rel=0.1)


# --- a real change, and noise (validation/tests/noisy_runs.py measures more) ---------------------


@pytest.mark.parametrize(("before", "after", "nodes"), [(5, 5, 4), (3, 3, 8), (1, 1, 16)])
def test_a_slow_node_is_named_and_nothing_else(before, after, nodes):
    for seed in range(3):
        assert named(before, after, seed, slow(0.9, *BF16[::2], "bf16"), nodes) == {BF16}


def test_one_slow_gpu_of_a_node_is_found_in_several_runs():
    for seed in range(3):
        assert named(5, 5, seed, slow(0.85, "gemm", "gpu3", "GPU 5, bf16")) == {BF16}


def test_what_is_slow_on_all_nodes_is_not_told_node_by_node():
    for before, after, nodes in ((5, 5, 4), (1, 1, 8)):
        found = named(before, after, 1, slow(0.9, "hbm", text="copy"), nodes)
        assert found == {("hbm", "GPU, copy", EVERYWHERE)}


def test_what_nodes_do_together_is_compared_over_runs():
    assert named(5, 5, 1, slow(0.85, "all_reduce")) == {("all_reduce", "busbw 8 GiB", "h100_sxm")}
    assert named(5, 5, 1, slow(1.3, "ddp", text="step time")) == {
        ("ddp", "step time, median", "h100_sxm")
    }


def test_equal_runs_are_not_named():
    """At most one of a hundred comparisons may be wrong; these ten pairs are none."""
    assert [seed for seed in range(10) if named(5, 5, seed)] == []
    assert [seed for seed in range(10) if named(1, 1, seed, nodes=16)] == []


def test_what_got_better_is_not_worse():
    assert named(5, 5, 1, slow(1.2, "gemm")) == set()


def test_a_small_change_is_not_named_however_sure():
    def exactly(run, factor):
        values = [
            Figure("hbm", f"gpu{n}", f"GPU {g}, copy", "GB/s", 2900 * factor + n + g)
            for n in range(4)
            for g in range(8)
        ]
        return Side(f"run{run}", "gpu", run * DAY_S, (), tuple(values))

    before = [exactly(run, 1.0) for run in range(5)]
    for factor, code in ((0.98, 0), (0.95, 1)):
        after = [exactly(run, factor) for run in range(5, 10)]
        assert compare(before, after).exit_code == code


# --- what cannot be told -----------------------------------------------------------------------


def test_one_run_each_of_few_nodes_says_so():
    before, after = noisy(1, [unchanged, slow(0.8, "all_reduce")], nodes=2)
    found = compare([before], [after])
    assert found.of(Outcome.WORSE) == []
    (item,) = [i for i in found.of(Outcome.CANNOT_TELL) if i.check == "all_reduce"]
    assert item.why == "it moved; to tell whether by chance takes more runs (3 on each side)"
    assert found.exit_code == 3


def test_one_run_that_is_as_one_before_is_not_worse():
    sides = noisy(1, [slow(0.9, "all_reduce"), *[unchanged] * 2, slow(0.93, "all_reduce")], nodes=2)
    found = compare(sides[:3], sides[3:])
    (item,) = [i for i in found.findings if i.check == "all_reduce"]
    assert (item.outcome, item.why) == (Outcome.NOT_WORSE, "as in some run before")
    (item,) = [i for i in compare(sides[1:3], sides[3:]).findings if i.check == "all_reduce"]
    assert item.outcome is Outcome.CANNOT_TELL


def test_one_slow_day_of_a_shared_network_says_nothing_of_the_nodes():
    """Seen on virtual nodes: of ten pairs of equal runs two came out at -11 % and -16 %."""

    def measured(run, factor):
        values = [Figure("pairs", f"gpu{n}", "busbw to gpu9", "GB/s", factor + n) for n in range(5)]
        return Side(f"run{run}", "network", run * DAY_S, (), tuple(values))

    found = compare([measured(0, 10.0)], [measured(1, 8.0)])
    assert found.of(Outcome.WORSE) == []
    (item,) = [item for item in found.findings if item.where == EVERYWHERE]
    assert item.outcome is Outcome.CANNOT_TELL
    assert item.why == "it moved; to tell whether by chance takes more runs (3 on each side)"
    assert compare([measured(0, 10.0)], [measured(1, 9.9)]).of(Outcome.CANNOT_TELL) == []
    both = [measured(run, 10.0) for run in range(5)] + [measured(run, 8.0) for run in range(5, 10)]
    assert ("busbw to gpu9", EVERYWHERE) in {
        (item.figure, item.where) for item in compare(both[:5], both[5:]).of(Outcome.WORSE)
    }


def test_what_is_not_measured_any_more_is_not_green():
    before, after = noisy(1, [unchanged] * 2, nodes=8)
    figures = tuple(figure for figure in after.figures if figure.subject != "gpu3")
    found = compare([before], [replace(after, figures=figures)])
    gone = {(i.figure, i.where, i.why) for i in found.of(Outcome.CANNOT_TELL)}
    assert ("GPU, bf16", "gpu3", "not measured after") in gone
    assert found.exit_code == 3


def test_nothing_in_common_is_not_green():
    before, after = noisy(1, [unchanged] * 2)
    found = compare([replace(before, figures=())], [replace(after, figures=())])
    assert (found.findings, found.exit_code) == ((), 3)


def test_a_figure_that_falls_to_nothing_is_worse():
    sides = noisy(1, [unchanged] * 5 + [slow(0.0, "disk", "gpu2", "write")] * 5)
    found = compare(sides[:5], sides[5:])
    assert [(i.figure, i.where, i.change) for i in found.of(Outcome.WORSE)] == [
        ("disk write", "gpu2", -1.0)
    ]


# --- verdicts ----------------------------------------------------------------------------------


def judged(run, *verdicts):
    results = tuple(
        Judged("ecc", "node", f"gpu{n}", verdict, "") for n, verdict in enumerate(verdicts)
    )
    return replace(run, results=results)


def test_a_check_that_fails_now_and_passed_before_is_worse():
    first, second = noisy(1, [unchanged] * 2, nodes=16)
    before = judged(first, "pass", "fail", "skip", "inconclusive", "warn")
    after = judged(second, "fail", "fail", "fail", "fail", "fail")
    found = compare([before], [after]).of(Outcome.WORSE)
    assert [(i.check, i.where, i.why) for i in found] == [
        ("ecc", "gpu0", "pass before, fail now"),
        ("ecc", "gpu4", "warn before, fail now"),
    ]


# --- the program -------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path):
    """Ten runs in a history: from the sixth on gpu3's bf16 is slow."""
    path = tmp_path / store.NAME
    slower = slow(0.9, "gemm", "gpu3", "bf16")
    with store.opened(path) as history:
        for number, side in enumerate(noisy(7, [unchanged] * 5 + [slower] * 5)):
            run = runs.Run(
                run_id=f"2026010{number}T000000Z-a{number}",
                suite="gpu",
                cluster="plumbline",
                started=side.started,
                seconds=60.0,
                verdict="pass",
                version="0.1.0",
                partial=False,
                interrupted=False,
                results=(),
                figures=side.figures,
            )
            history.add(run)
    return path


@pytest.fixture
def say(kept, capsys):
    def run(*arguments, width=100):
        os.environ["COLUMNS"] = str(width)
        status = program.main([*arguments, "--history", str(kept)])
        return status, *capsys.readouterr()

    before = os.environ.get("COLUMNS", "")
    yield run
    os.environ["COLUMNS"] = before


BEFORE = [f"2026010{number}" for number in range(5)]
AFTER = [f"2026010{number}" for number in range(5, 10)]


def test_ten_runs_with_one_regression(say, tmp_path):
    page = tmp_path / "page.html"
    arguments = ("--before", *BEFORE, "--after", *AFTER)
    status, out, _ = say(*arguments, "--html", str(page))
    assert status == 1
    assert "1 figure got worse. exit 1" in out
    assert "gemm" in out
    assert "gpu3" in out
    assert "WORSE" in out
    assert "<h2>Worse</h2>" in page.read_text()
    status, out, _ = say(*arguments, "--json")
    document = json.loads(out)
    (item,) = document["worse"]
    assert (status, document["exit_code"], document["sample"]) == (1, 1, "runs")
    assert (item["check"], item["figure"], item["where"]) == BF16
    assert item["change"] == pytest.approx(-0.1, abs=0.02)
    assert (item["delta"], item["p"]) == (-1.0, 1 / 252)
    status, out, _ = say("--before", *BEFORE[:3], "--after", *BEFORE[3:], "2026", width=80)
    assert status == 2


def test_the_last_run_with_those_before_it(say):
    status, out, _ = say("2026-nothing", "--last", "3")
    assert status == 2
    status, out, _ = say("20260104", "--last", "3", width=80)
    assert status in (0, 3)
    assert max(map(len, out.splitlines())) <= 80
    assert "before: 3 runs of suite gpu" in out
    assert say("--last", "5")[0] in (0, 1, 3)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "which runs? 0 named; name two, or --last N, or --before RUN … --after RUN …"),
        (["last"], "which runs? 1 named"),
        (["last", "last"], "run 20260109T000000Z-a9 is named twice"),
        (["last", "nope"], "there is no run 'nope', neither as a folder nor in "),
        (["last", "2026"], "'2026' is the beginning of 10 runs: "),
        (["last", "."], ". has no summary.json: it is no folder of a finished run"),
        (["--before", "last"], "--before and --after belong together: name runs for both"),
        (["last", "--before", "x", "--after", "y"], "name runs with --before and --after, or"),
        (["20260100", "--last", "2"], "has no complete run of suite gpu before 20260100T"),
        (["--last", "0"], "--last: expected a number from 1 on, not 0"),
        (["last", "20260101", "--least", "0"], "--least: expected a percentage between 0 and 100"),
        (["last", "20260101", "--html", "/nowhere/x"], "--html: /nowhere/x: No such file"),
    ],
)
def test_what_is_not_right_is_said_in_a_sentence(say, arguments, says):
    status, out, err = say(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("compare: ")
    assert says in err


@pytest.mark.long
def test_folders_are_compared_without_a_history(cluster, capsys):
    cluster.install()
    folders = []
    for number in (1, 2):
        cluster.output = cluster.path / "results" / str(number)
        assert cluster.run("--only", "cpus,memory")[0] == 0
        folders.append(str(cluster.output))
    status = program.main([*folders, "--history", "/nowhere"])
    out, err = capsys.readouterr()
    assert (status, err) == (3, "")
    assert "The runs have no figure in common" in out
