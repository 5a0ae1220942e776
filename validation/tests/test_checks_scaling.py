"""What the checks `scaling` and `inference` make of an answer, and how reports show it."""

from dataclasses import replace
from typing import Any

import pytest

from validation import thresholds
from validation.checks import scaling
from validation.model import Verdict
from validation.report import console, html
from validation.report import scaling as tables
from validation.tests import sample_reports, standin
from validation.tests.conftest import make_plan
from validation.tests.healthy_answers import healthy, result
from validation.tests.judging import changed

VIRTUAL = tuple((f"gpu{number}", "virtual", 2) for number in range(1, 6))


def of(check, *changes):
    answer = healthy(check)
    document = changed(answer.document, *((("measured", *path), value) for path, value in changes))
    return result(check, answer.job, standin.line(document))


def config_of(check) -> dict[str, Any]:
    return dict(healthy(check).job.config)


def metrics_of(found):
    return {metric.name: metric.value for metric in found.metrics}


# --- scaling -------------------------------------------------------------------------------------


def test_efficiency_and_bubble_follow_from_the_step_times():
    found = of(
        "scaling",
        (("sizes", 0, "weak_s"), 0.5),
        (("sizes", -1, "weak_s"), 0.625),
        (("sizes", 0, "strong_s"), 0.8),
        (("sizes", -1, "strong_s"), 0.2),
        (("sizes", 0, "pipeline_s"), 0.32),
        (("sizes", -1, "pipeline_s"), 0.5),
    )
    assert found.verdict is Verdict.PASS
    shown = metrics_of(found)
    config = config_of("scaling")  # 4 nodes of 2 ranks
    tokens = 8 * config["batch"] * config["sequence"] / 0.625
    assert shown["tokens per second, 8 ranks on 4 nodes"] == round(tokens, 1)
    assert shown["weak efficiency, 8 ranks on 4 nodes"] == 0.8
    assert shown["strong efficiency, 8 ranks on 4 nodes"] == 0.5
    assert shown["pipeline efficiency, 8 ranks on 4 nodes"] == 0.64
    microbatches = config["microbatches"]
    assert shown["pipeline efficiency, ideal, 8 ranks on 4 nodes"] == round(
        microbatches / (microbatches + 7), 4
    )


def test_mfu_is_operations_by_the_peak_of_the_model():
    config = config_of("scaling")
    found = of("scaling", (("sizes", 0, "weak_s"), 0.5))
    per_token = 6 * 117440512 + 12 * config["depth"] * config["width"] * config["sequence"]
    model = thresholds.load("h100_sxm").model
    assert model is not None
    limit = model.gpu.gemm_peak("bf16")
    assert limit is not None
    peak = float(limit.value) * 1e12
    tokens = config["batch"] * config["sequence"] / 0.5
    shown = metrics_of(found)["MFU, 1 rank on 1 node"]
    assert shown == pytest.approx(per_token * tokens / peak, rel=1e-2)


def test_more_than_the_hardware_can_is_no_measurement():
    found = of("scaling", (("sizes", 0, "weak_s"), 1e-6))
    assert found.verdict is Verdict.FAIL
    assert "more than the hardware can" in found.message


def test_below_the_floor_fails_and_accuses_nobody_in_particular():
    found = of("scaling", (("sizes", -1, "weak_s"), 1000.0))
    assert (found.verdict, found.blamed) == (Verdict.FAIL, None)
    assert found.message.startswith("weak efficiency, 8 ranks on 4 nodes is 0.0005, at least 0.005")


def test_nodes_without_gpus_are_held_against_a_low_floor_and_have_no_mfu():
    (job,) = (job for job in make_plan(*VIRTUAL, suite="training").jobs if job.payload == "scaling")
    document = standin.scaling(job.hosts, job.config)
    rows = document["measured"]["sizes"]
    assert [row["ranks"] for row in rows] == [1, 2, 4, 5]
    rows[-1]["weak_s"] = rows[0]["weak_s"] * 50  # five nodes on two cores of one machine
    found = result("scaling", job, standin.line(document))
    assert found.verdict is Verdict.PASS
    assert not any(name.startswith("MFU") for name in metrics_of(found))


def test_one_rank_alone_is_measured_and_proves_no_scaling():
    (job,) = (
        job
        for job in make_plan(("gpu1", "virtual", 2), suite="training").jobs
        if job.payload == "scaling"
    )
    found = result("scaling", job, standin.line(standin.scaling(job.hosts, job.config)))
    assert found.verdict is Verdict.PASS
    assert found.message.startswith("one rank")


def test_a_size_beyond_what_is_shared_out_has_no_strong_efficiency():
    many = tuple((f"gpu{number}", "virtual", 2) for number in range(1, 34))
    (job,) = (job for job in make_plan(*many, suite="training").jobs if job.payload == "scaling")
    found = result("scaling", job, standin.line(standin.scaling(job.hosts, job.config)))
    assert found.verdict is Verdict.PASS
    shown = metrics_of(found)
    assert "strong efficiency, 16 ranks on 16 nodes" in shown
    assert "strong efficiency, 33 ranks on 33 nodes" not in shown
    assert "pipeline efficiency, 33 ranks on 33 nodes" not in shown
    assert "weak efficiency, 33 ranks on 33 nodes" in shown


def scaled_report():
    report = sample_reports.healthy()
    return replace(report, results=(*report.results, of("scaling")))


def test_the_terminal_shows_a_row_for_each_size():
    text = console.render(scaled_report(), width=160)
    lines = text.splitlines()
    at = lines.index("  scaling on gpu[1-4]")
    assert lines[at + 1].split()[:2] == ["ranks", "nodes"]
    assert [line.split()[:2] for line in lines[at + 2 : at + 6]] == [
        ["1", "1"],
        ["2", "1"],
        ["4", "2"],
        ["8", "4"],
    ]


def test_the_page_shows_the_same_as_lines_and_a_table():
    page = html.render(scaled_report())
    assert "Efficiency over ranks" in page
    (table,) = tables.tables([of("scaling")])
    assert [name for name, _ in table.lines] == list(tables.LINES)
    for name in tables.LINES:
        assert f">{name}</li>" in page
    assert page.count('<polyline class="line') == 4
    for row in table.rows:
        assert f'<td data-label="MFU">{row[-1]}</td>' in page
    assert "Efficiency over ranks" not in html.render(sample_reports.healthy())


def test_reports_and_check_agree_on_the_names():
    assert tables.CHECK == scaling.NAME
    assert tables.LINES == (scaling.WEAK, scaling.STRONG, scaling.PIPELINE, scaling.IDEAL)
    assert (scaling.TOKENS, *tables.LINES, scaling.MFU) == tables.COLUMNS


def test_a_size_alone_makes_no_curve():
    found = of("scaling")
    alone = [metric for metric in found.metrics if metric.name.endswith("1 rank on 1 node")]
    assert list(tables.tables([replace(found, metrics=tuple(alone))])) == []


def test_the_sizes_are_one_rank_one_node_and_so_on():
    assert scaling.sizes(128, 16) == [1, 8, 16, 32, 64, 128]


# --- inference -----------------------------------------------------------------------------------


def test_a_wrong_token_fails_whatever_the_differences():
    wrong = [(("tokens", 0, 0, 0), 99), (("ranks", 0, "wrong_tokens"), 1)]
    found = of("inference", *wrong, (("ranks", 0, "first_wrong"), 1))
    assert (found.verdict, found.blamed) == (Verdict.FAIL, ("gpu1",))
    assert (found.value.name, found.value.value) == ("wrong tokens", 1)
    assert "new token 1 is the first wrong one" in found.message


def test_what_only_some_ranks_of_a_row_have_wrong_is_their_nodes_fault():
    found = of("inference", (("ranks", 7, "cache", 3), 0.5))
    assert (found.verdict, found.blamed) == (Verdict.FAIL, ("gpu4",))
    sentence, _, over = found.message.partition("; ")
    assert sentence == "the KV cache of rank 7 on gpu4 is wrong at place 4"
    assert over == "NCCL's network: IB mlx5_0:1; the ranks met over eth0"


def test_what_all_ranks_of_a_row_have_wrong_they_added_up():
    changes = [(("ranks", rank, "cache", 3), 0.5) for rank in range(8)]
    found = of("inference", *changes)
    assert (found.verdict, found.blamed) == (Verdict.FAIL, None)
    # One of them took another token: the first layer, which only tokens enter, is its own.
    found = of("inference", *changes, (("ranks", 2, "first_cache", 3), 0.5))
    assert (found.verdict, found.blamed) == (Verdict.FAIL, ("gpu2",))


def test_what_a_rank_computed_comes_before_all_else():
    changes = [(("ranks", rank, "cache", 0), 0.5) for rank in range(8)]
    found = of("inference", *changes, (("ranks", 5, "computed"), 0.01))
    assert (found.verdict, found.blamed) == (Verdict.FAIL, ("gpu3",))


def test_tokens_that_are_nearly_as_likely_are_no_proof():
    assert "nearly as likely" in of("inference", (("margin",), 1e-5)).message
