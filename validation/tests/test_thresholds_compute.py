"""What a GPU must reach: the files that say so, and how they are read."""

import pytest
import yaml

from cluster.errors import DataError
from validation import thresholds
from validation.tests.whole_thresholds import ORIGIN
from validation.thresholds import gpu, sourced

MODELS = thresholds.shipped_models()
SHAPE = (8192, 8192, 8192)

GEMM = {"dtype": "bf16", "shape": [1024] * 3, "fail_below_tflops": 100, **ORIGIN}
SPEED = {"fail_below_gbs": 10, **ORIGIN}
PEAK = {**ORIGIN, "provenance": "datasheet"}


def rules(hardware, site=None):
    model = thresholds.load(hardware, site).model
    assert model is not None
    return model.gpu


def limits(model):
    """Every threshold of a model."""
    tables = (model.gemm, model.memory, model.copies, model.peers)
    for table in tables:
        yield from (rule.threshold for rule in table)
    for peak in model.peaks:
        yield from peak.gemm.values()
        yield from (limit for limit in (peak.memory, peak.copies, peak.peers) if limit)


def write(folder, document):
    (folder / "x.yml").write_text(yaml.safe_dump({"model": "x", **document}))


def problems(folder, document):
    write(folder, document)
    with pytest.raises(DataError) as caught:
        thresholds.load("x", folder)
    return list(caught.value.problems)


# --- what is shipped -------------------------------------------------------------------------


@pytest.mark.parametrize("hardware", MODELS)
def test_every_number_has_an_origin(hardware):
    for limit in limits(rules(hardware)):
        assert limit.provenance in sourced.PROVENANCES
        assert "https://" in limit.source or limit.source.startswith("NVIDIA's datasheet")
        assert limit.warn is None or limit.warn > limit.value


@pytest.mark.parametrize("hardware", MODELS)
def test_what_is_expected_is_possible(hardware):
    gpu_rules, common = rules(hardware), thresholds.load_common().gpu_peak
    for rule in gpu_rules.gemm:
        for peak in (gpu_rules.gemm_peak(rule.dtype), common.gemm[rule.dtype]):
            assert peak is None or rule.threshold.value < peak.value
    tables = (
        (gpu_rules.memory, gpu_rules.memory_peak(), common.memory),
        (gpu_rules.copies, gpu_rules.copies_peak(), common.copies),
        (gpu_rules.peers, gpu_rules.peers_peak(), common.peers),
    )
    for table, own, most in tables:
        for rule in table:
            assert rule.threshold.value < min(peak.value for peak in (own, most) if peak)


@pytest.mark.parametrize("hardware", MODELS)
def test_no_peak_of_a_model_lies_above_that_of_all(hardware):
    gpu_rules, common = rules(hardware), thresholds.load_common().gpu_peak
    for peak in gpu_rules.peaks:
        assert all(limit.value <= common.gemm[dtype].value for dtype, limit in peak.gemm.items())
        pairs = zip(
            (peak.memory, peak.copies, peak.peers),
            (common.memory, common.copies, common.peers),
            strict=True,
        )
        assert all(own is None or (most and own.value <= most.value) for own, most in pairs)


@pytest.mark.parametrize("hardware", ["cpu", "virtual"])
def test_nothing_is_asked_of_a_cpu(hardware):
    assert list(limits(rules(hardware))) == []


@pytest.mark.parametrize(
    ("hardware", "dtype", "fail", "warn", "peak"),
    [
        ("a100_sxm", "bf16", 217, 235, 312),
        ("a100_pcie", "bf16", 191, 207, 312),
        ("h100_sxm", "bf16", 620, 672, 989),
        ("h100_sxm", "fp8", 1096, 1187, 1979),
        ("h100_pcie", "bf16", 389, 421, 756),
        ("h200_sxm", "bf16", 656, 705, 989),
        ("b200", "bf16", 1360, 1472, 2250),
        ("l40s", "bf16", 221, 239, 362),
        ("l4", "bf16", 50.1, 54.3, 121),
        ("rtx_4090", "bf16", 136, 147, 190),
        ("h20_sxm", "bf16", 121, 131, 148),
        ("gb300", "bf16", 1415, None, 2500),
        ("b300", "bf16", 1379, 1492, 2250),
        ("rtx_3090", "bf16", 60.4, 65.3, 82),
        ("v100_sxm", "fp16", 79.9, 86.5, 125),
        ("t4", "fp16", 33.6, None, 65.2),
    ],
)
def test_the_products_of_a_model(hardware, dtype, fail, warn, peak):
    gpu_rules = rules(hardware)
    limit = gpu_rules.gemm_speed(dtype, SHAPE, "any board")
    most = gpu_rules.gemm_peak(dtype)
    assert (limit.op, limit.value, limit.unit, limit.warn) == ("≥", fail, "TFLOPS", warn)
    assert (most.op, most.value) == ("≤", peak)
    assert gpu_rules.gemm_speed(dtype, (8192, 8192, 4096), "any board") is None
    assert dtype in gpu_rules.gemm_dtypes("any board")


@pytest.mark.parametrize("hardware", ["v100_sxm", "t4"])
def test_nothing_is_asked_in_bf16_of_a_gpu_without(hardware):
    gpu_rules = rules(hardware)
    assert set(gpu_rules.gemm_dtypes("any board")) <= {"fp16", "fp32"}
    assert gpu_rules.gemm_peak("bf16") is None


@pytest.mark.parametrize(
    ("hardware", "operation", "board", "fail"),
    [
        ("h100_sxm", "copy", "NVIDIA H100 80GB HBM3", 2187),
        ("h100_sxm", "triad", "NVIDIA H100 80GB HBM3", 2524),
        ("h200_sxm", "triad", "NVIDIA H200", 3528),
        ("a100_sxm", "copy", "NVIDIA A100-SXM4-40GB", 982),
        ("a100_sxm", "copy", "NVIDIA A100-SXM4-80GB", 1165),
        ("l40s", "copy", "NVIDIA L40S", 595),
        ("rtx_4090", "copy", "NVIDIA GeForce RTX 4090", None),
        ("h20_sxm", "triad", "NVIDIA H20", 2664),
        ("h20_sxm", "triad", "NVIDIA H20-3e", 3197),
        ("gh200", "copy", "NVIDIA GH200 480GB", 2572),
        ("gh200", "copy", "NVIDIA GH200 144G HBM3e", 3151),
        ("rtx_pro_6000", "copy", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 1150),
        ("rtx_pro_6000", "triad", "NVIDIA RTX PRO 6000 Blackwell Server Edition", None),
        ("l40", "copy", "NVIDIA L40", 595),
        ("a10", "copy", "NVIDIA A10", 411),
        ("a100_sxm", "triad", "NVIDIA A100-SXM4-40GB", None),
    ],
)
def test_the_memory_of_a_board(hardware, operation, board, fail):
    limit = rules(hardware).memory_speed(operation, board)
    assert (limit and limit.value) == fail


@pytest.mark.parametrize(
    ("hardware", "fail"),
    [
        ("v100_sxm", 9.67),
        ("t4", 9.67),
        ("a100_sxm", 21),
        ("l4", 21),
        ("h100_sxm", 48),
        ("b200", 48),
        ("h20_sxm", 48),
        ("rtx_pro_6000", 48),
        ("l40", 21),
        ("a10", 21),
    ],
)
def test_the_host_of_a_model(hardware, fail):
    gpu_rules = rules(hardware)
    for direction in ("h2d", "d2h"):
        assert gpu_rules.copy_speed(direction, "any board").value == fail


def test_the_peers_of_a_model():
    board = "NVIDIA H100 80GB HBM3"
    assert rules("h100_sxm").peer_speed(8, board).value == 335
    assert rules("h100_sxm").peer_speed(4, board) is None
    assert rules("h100_nvl").peer_speed(2, "NVIDIA H100 NVL").value == 215
    assert rules("gb300").peer_speed(4, "NVIDIA GB300").value == 650
    assert rules("l40s").peer_speed(8, "NVIDIA L40S") is None


# --- how it is read --------------------------------------------------------------------------


def test_a_sites_rules_come_before_the_shipped_ones(tmp_path):
    own = {**GEMM, "shape": list(SHAPE), "fail_below_tflops": 650}
    document = {"model": "h100_sxm", "gemm": [own], "peak": {**PEAK, "gemm_tflops": {"bf16": 900}}}
    (tmp_path / "h100_sxm.yml").write_text(yaml.safe_dump(document))
    gpu_rules = rules("h100_sxm", tmp_path)
    assert gpu_rules.gemm_speed("bf16", SHAPE, "any").value == 650
    assert gpu_rules.gemm_speed("fp8", SHAPE, "any").value == 1096
    assert gpu_rules.gemm_peak("bf16").value == 900
    assert gpu_rules.gemm_peak("fp8").value == 1979
    assert gpu_rules.memory_peak().value == 3350


def test_the_first_rule_that_fits_is_used(tmp_path):
    write(
        tmp_path,
        {
            "gemm": [{**GEMM, "names": ["A"], "fail_below_tflops": 200}, GEMM],
            "memory": [{**SPEED, "operation": "copy", "names": ["A"]}],
            "copies": [
                {**SPEED, "direction": "d2h", "fail_below_gbs": 5},
                {**SPEED, "direction": "any"},
            ],
            "peers": [{**SPEED, "gpus": 4, "fail_below_gbs": 40}, {**SPEED, "gpus": "any"}],
        },
    )
    gpu_rules, shape = rules("x", tmp_path), (1024, 1024, 1024)
    assert [gpu_rules.gemm_speed("bf16", shape, name).value for name in "AB"] == [200, 100]
    assert gpu_rules.memory_speed("copy", "A").value == 10
    assert gpu_rules.memory_speed("copy", "B") is None
    assert gpu_rules.memory_speed("triad", "A") is None
    assert [gpu_rules.copy_speed(way, "A").value for way in ("h2d", "d2h")] == [10, 5]
    assert [gpu_rules.peer_speed(gpus, "A").value for gpus in (2, 4, 8)] == [10, 40, 10]


def test_every_problem_of_a_file_is_told(tmp_path):
    text = "\n".join(
        problems(
            tmp_path,
            {
                "gemm": [
                    {**GEMM, "dtype": "int4", "shape": [1, 2], "colour": 1},
                    {key: value for key, value in GEMM.items() if key != "source"},
                    {**GEMM, "fail_below_tflops": 0, "names": []},
                ],
                "memory": [{**SPEED, "operation": "add"}],
                "copies": [{**SPEED, "direction": "both", "provenance": "guess"}],
                "peers": [{**SPEED, "gpus": 1}],
                "peak": {"gemm_tflops": {"int4": 1}, "memory_gbs": -1},
            },
        )
    )
    for part in (
        "gemm[0].dtype: expected 'bf16' or",
        "gemm[0].shape: expected m, n and k",
        "gemm[0].colour: unknown key",
        "gemm[1].source: is missing",
        "gemm[2].fail_below_tflops: expected a number from",
        "gemm[2].names: must not be empty",
        "memory[0].operation: expected 'copy' or 'triad'",
        "copies[0].direction: expected 'h2d' or 'd2h' or 'any'",
        "copies[0].provenance: expected 'datasheet'",
        "peers[0].gpus: expected a whole number of at least 2",
        "peak.gemm_tflops.int4: unknown key",
        "peak.memory_gbs: expected a number from",
        "peak.source: is missing",
    ):
        assert part in text


def test_numbers_that_contradict_each_other_are_told(tmp_path):
    sentences = problems(
        tmp_path,
        {
            "gemm": [{**GEMM, "warn_below_tflops": 99}, {**GEMM, "fail_below_tflops": 300}],
            "memory": [{**SPEED, "operation": "copy", "warn_below_gbs": 20}],
            "copies": [{**SPEED, "direction": "any", "warn_below_gbs": 9}],
            "peak": {**PEAK, "gemm_tflops": {"bf16": 300}, "memory_gbs": 20, "copies_gbs": 11},
        },
    )
    assert sentences == [
        "gemm[0].warn_below_tflops: lies below fail_below_tflops",
        "gemm[1]: nothing could pass, the peak is 300",
        "memory[0]: nothing could pass, the peak is 20",
        "copies[0].warn_below_gbs: lies below fail_below_gbs",
    ]


def test_a_warning_may_begin_where_the_failure_does(tmp_path):
    write(tmp_path, {"copies": [{**SPEED, "direction": "any", "warn_below_gbs": 10}]})
    limit = rules("x", tmp_path).copy_speed("h2d", "A")
    assert limit is not None
    assert (limit.value, limit.warn) == (10, 10)


def test_what_no_gpu_exceeds_is_needed_whole(tmp_path):
    (tmp_path / "common.yml").write_text(yaml.safe_dump({"gpu_peak": {**PEAK, "memory_gbs": 1}}))
    with pytest.raises(DataError, match="gpu_peak is needed"):
        thresholds.load_common(tmp_path)


def test_rules_are_found_where_the_model_has_no_file():
    assert thresholds.load("tpu_v9").model is None
    assert gpu.NO_RULES.gemm_speed("bf16", SHAPE, "any") is None
    assert gpu.NO_RULES.gemm_peak("bf16") is None
