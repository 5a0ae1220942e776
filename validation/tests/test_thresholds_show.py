"""What an operator is told of the thresholds of a node, without a run."""

import inspect
import json
import re
import sys
from typing import Any

import pytest
import yaml

from validation.checks.registry import CHECKS
from validation.model import Verdict
from validation.tests import standin_compute
from validation.tests.conftest import declare, make_plan
from validation.tests.judging import judged
from validation.tests.whole_thresholds import WHOLE
from validation.thresholds import __main__ as program
from validation.thresholds.applied import LOOKED_UP, applied

NODES = (
    ("h1", "h100_sxm", 8, "ib_ndr400"),
    ("h2", "h100_sxm", 8, "ib_ndr400"),
    ("a1", "a100_pcie", 4),
    ("s1", "a100_sxm", 8),
    ("v1", "virtual", 2),
    ("t1", "t4", 1),
    ("x1", "tpu_v9", 4),
)


@pytest.fixture
def show(tmp_path, capsys):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(declare(*NODES)))

    def run(node, *more):
        status = program.main(["show", node, "--here", "--declaration", str(path), *more])
        out, err = capsys.readouterr()
        return status, out or err

    return run


def entries(text):
    """The lines after each heading."""
    return {
        part.partition("\n")[0]: part.partition("\n")[2] for part in text.rstrip().split("\n\n")
    }


def test_a_threshold_is_shown_with_its_place_and_source(show):
    status, text = show("h1")
    assert status == 0
    assert text.startswith("h1: h100_sxm, 8 GPUs, ib_ndr400\n")
    texts = entries(text)
    assert texts["gemm: bf16 8192 × 8192 × 8192"].startswith(
        "  ≥ 620 TFLOPS (derived, 2026-04), warns from 672 on; "
        "validation/thresholds/h100_sxm.yml gemm[0]\n  0.85 and 0.92 of 730 TFLOPS"
    )
    assert "≤ 989 TFLOPS (datasheet, 2026-08)" in texts["gemm: bf16 8192 × 8192 × 8192, at most"]
    assert "≥ 335 GB/s (gate, 2026-05)" in texts["peers: pairs of 8 GPUs"]
    assert "NVIDIA H100 80GB HBM3" in texts["gpus: names of the model"]
    assert "judged by what is declared, or by definition: slurm_state, " in text


def test_what_has_no_threshold_says_so(show):
    none = "  no threshold: it would be measured and not judged"
    texts = entries(show("h1")[1])
    what = "all_reduce: 2 nodes × 8 ranks, ib_ndr400, nccl, 8589934592 bytes, network of"
    assert texts[f"{what} fewer than 8 ports"] == none
    assert "≥ 374 GB/s (derived, 2026-05); " in texts[f"{what} 8 ports and more"]
    assert texts["gemm: fp16 8192 × 8192 × 8192"] == none
    texts = entries(show("x1")[1])
    assert texts["gpus: names of the model"] == texts["hbm: copy"] == none


def test_what_depends_on_what_only_a_run_shows_is_told_for_each_case(show):
    texts = entries(show("a1")[1])
    what = "all_reduce: 1 node × 4 ranks, ethernet, nccl, 8589934592 bytes"
    assert "≥ 25 GB/s" in texts[f"{what}, pcie"]
    assert "no threshold" in texts[f"{what}, nvlink"]
    texts = entries(show("s1")[1])
    assert "≥ 1165 GB/s" in texts["hbm: copy, NVIDIA A100-SXM4-80GB"]
    assert "≥ 982 GB/s" in texts["hbm: copy, NVIDIA A100-SXM4-40GB"]


def test_what_is_not_judged_says_why(show):
    texts = entries(show("v1")[1])
    assert texts["gemm: node"] == "  runs on CPUs, no speed is judged"
    assert "v1 has one rank" in texts["ddp: cluster"]
    assert "only one GPU" in entries(show("t1")[1])["peers: node"]


def test_a_sites_rule_is_shown_as_the_one_that_counts(show, tmp_path):
    collective: Any = WHOLE["collectives"]
    rule = {**collective[1], "fabric": "ib_ndr400", "links": "any"}
    path = tmp_path / "own" / "h100_sxm.yml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({"model": "h100_sxm", "collectives": [rule]}))
    status, text = show("h1", "--thresholds", str(path.parent), "--suite", "quick")
    assert status == 0
    assert f"thresholds: {path.parent}, then validation/thresholds" in text
    assert f"≥ 1 GB/s (gate, 2026-05), warns from 1.5 on; {path} collectives[0]" in text
    assert "gemm" not in text  # not in this suite


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["q7"], "unknown node q7; there is h1, h2, "),
        (["h1", "--suite", "long"], "unknown suite 'long'"),
        (["h1", "--thresholds", "/nowhere"], "there is no folder /nowhere"),
    ],
)
def test_what_does_not_exist_is_one_sentence(show, arguments, words):
    status, text = show(*arguments)
    assert status == 2
    assert words in text
    assert text.count("\n") == 1


def test_a_broken_file_is_refused(show, tmp_path):
    (tmp_path / "h100_sxm.yml").write_text("model: h100_sxm\ncollectives: [{}]\n")
    status, text = show("h1", "--thresholds", str(tmp_path))
    assert status == 2
    assert "collectives[0].date: is missing" in text


def test_the_models_are_listed(capsys):
    assert program.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "a40           memory 2, copies 1" in lines
    assert len(lines) == len({line.split()[0] for line in lines}) >= 21


@pytest.mark.parametrize("check", CHECKS)
def test_no_check_that_asks_a_file_is_left_out(check):
    source = inspect.getsource(sys.modules[f"validation.checks.{check}"])
    asks = re.search(
        r"rules\.(model|common)|gpu_rules\(|cuda_names\(|host\.concluded|training\.judge"
        r"|sharded\.evaluate|restart\.judge",
        source,
    )
    assert bool(asks) == (check in LOOKED_UP)


@pytest.mark.parametrize("check", ["gemm", "hbm", "copies", "peers"])
def test_what_is_shown_is_what_judges(check):
    plan = make_plan(("gpu1", "h100_sxm", 8), suite="gpu")
    job = next(job for job in plan.node_jobs if check in job.checks)
    reply = standin_compute.reply(job, standin_compute.document(job))
    result = judged(check, job, reply, plan.rules["h100_sxm"])
    assert result.verdict is Verdict.PASS
    assert result.threshold in [item.threshold for item in applied(plan, "gpu1")]
