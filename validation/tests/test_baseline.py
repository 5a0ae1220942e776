"""A site's own thresholds out of a run: what is recorded, and what is refused."""

import json
from dataclasses import replace

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.declaration import Gpus, Node
from cluster.errors import UsageError
from validation import baseline, thresholds
from validation.model import (
    Metric,
    NodeReport,
    Proof,
    Result,
    RunReport,
    Sample,
    Standing,
    Subject,
    Threshold,
    Tier,
    Verdict,
)
from validation.tests import standin
from validation.thresholds import Collective

MODEL = "tpu_v9"
NODES = (("x1", MODEL, 4), ("x2", MODEL, 4))
ANSWERS = {
    f"node-{name}": {"arguments": {"gpus": 4, "names": [standin.GPU] * 4}} for name in ("x1", "x2")
}


def install(cluster, *nodes, **faults):
    return cluster.install(*(nodes or NODES), **{**ANSWERS, **faults})


def recorded(cluster, name=MODEL):
    return yaml.safe_load((cluster.path / "own" / f"{name}.yml").read_text())


def note(cluster):
    return next(line for line in cluster.summary()["notes"] if "recorded" in line)


# --- a whole run ------------------------------------------------------------------------------


@pytest.mark.long
def test_what_is_recorded_makes_the_same_run_pass(cluster):
    install(cluster, all_reduce={"arguments": {"busbw_gbs": 372.0}})
    own = str(cluster.path / "own")
    status, out, _ = cluster.run("--record-baseline", own)
    assert status == 3  # this run had nothing to judge by
    assert f"recorded {own}/{MODEL}.yml" in out
    document = recorded(cluster)
    assert document["nvml_names"]["names"] == [standin.GPU]
    (rule,) = document["collectives"]
    run = cluster.summary()["run"]
    assert rule == {
        "operation": "all_reduce",
        "dtype": "float32",
        "nodes": 2,
        "ranks_per_node": 4,
        "links": "nvswitch",
        "fabric": "ethernet",
        "backend": "nccl",
        "min_bytes": 67108864,
        "between": "network",
        "fail_below_gbs": 316.2,
        "warn_below_gbs": 342.2,
        "derivation": {"healthy": 372.0, "basis": "measured", "factor": 0.85},
        "provenance": "recorded",
        "date": cluster.summary()["started"][:10],
        "source": (
            "0.85 and 0.92 of 372 GB/s, measured on x[1-2]; "
            f"run {run}, torch 2.6.0, NCCL 2.21.5, driver unknown"
        ),
    }
    status, out, _ = cluster.run("--thresholds", own)
    assert (status, "PASS" in out) == (0, True), out


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("busbw_gbs", "verdict"), [(341.0, "warn"), (316.0, "fail"), (372.0, "pass")]
)
def test_what_is_recorded_judges_the_next_run(cluster, busbw_gbs, verdict):
    install(cluster, all_reduce={"arguments": {"busbw_gbs": 372.0}})
    own = str(cluster.path / "own")
    cluster.run("--only", "gpus,all_reduce", "--record-baseline", own)
    faults = {**ANSWERS, "all_reduce": {"arguments": {"busbw_gbs": busbw_gbs}}}
    (cluster.path / "state" / "faults.json").write_text(json.dumps(faults))
    cluster.run("--only", "gpus,all_reduce", "--thresholds", own)
    assert cluster.verdict_of("all_reduce", MODEL)[0] == verdict


@pytest.mark.long
def test_the_speed_of_each_gpu_is_recorded(cluster):
    names = {"arguments": {"gpus": 4, "names": ["NVIDIA Unknown"] * 4}}
    compute = {"arguments": {"model": MODEL}}
    install(
        cluster,
        **{"node-x1": names, "node-x2": names, "compute-x1": compute, "compute-x2": compute},
    )
    own = str(cluster.path / "own")
    only = ("--suite", "gpu", "--only", "gpus,gemm,hbm,copies,peers")
    status, out, _ = cluster.run(*only, "--record-baseline", own)
    assert status == 3, out
    document = recorded(cluster)
    assert [rule["dtype"] for rule in document["gemm"]] == ["bf16", "fp16", "tf32", "fp32", "fp8"]
    bf16 = document["gemm"][0]
    assert (bf16["shape"], bf16["names"]) == ([8192] * 3, ["NVIDIA Unknown"])
    assert (bf16["fail_below_tflops"], bf16["warn_below_tflops"]) == (620.5, 671.6)
    assert "of 730 TFLOPS, the median of 8 measured on x[1-2]" in bf16["source"]
    assert [rule["operation"] for rule in document["memory"]] == ["copy", "triad"]
    assert [rule["direction"] for rule in document["copies"]] == ["h2d", "d2h"]
    assert [rule["gpus"] for rule in document["peers"]] == [4]
    status, out, _ = cluster.run(*only, "--thresholds", own)
    assert status == 0, out


def test_nothing_that_exists_is_overwritten(cluster):
    install(cluster)
    own = cluster.path / "own"
    own.mkdir()
    (own / f"{MODEL}.yml").write_text("mine")
    status, _, err = cluster.run("--record-baseline", str(own))
    assert status == 2
    assert "exists and is never overwritten" in err
    assert (own / f"{MODEL}.yml").read_text() == "mine"
    assert not list((cluster.path / "state").glob("argv.*"))


def test_virtual_gpus_are_no_hardware(cluster):
    status, _, err = cluster.install().run("--record-baseline", str(cluster.path / "own"))
    assert status == 2
    assert "no node of this run has a real GPU" in err
    assert not list((cluster.path / "state").glob("argv.*"))


IB = tuple((*node, "ib_ndr400") for node in NODES)
FASTER_THAN_ANY = {"all_reduce": {"arguments": {"busbw_gbs": 2001.0}}}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("nodes", "faults", "words"),
    [
        (IB, {}, "all_reduce on tpu_v9 failed"),  # InfiniBand is declared, sockets were used
        (NODES, FASTER_THAN_ANY, "more than any link carries"),
        (NODES, {"all_reduce": {"arguments": {"wrong": 1}}}, "elements of the sum"),
        (NODES, {"ddp": "silent"}, "ddp on tpu_v9 failed"),
        (NODES, {"node-x2": {"arguments": {"gpus": 3, "names": []}}}, "gpus on x2 failed"),
        (NODES, {"all_reduce": {"answer": {"measured": {"transport": []}}}}, "all_reduce on"),
    ],
)
def test_what_a_fault_measured_is_not_recorded(cluster, nodes, faults, words):
    install(cluster, *nodes, **faults)
    cluster.run("--record-baseline", str(cluster.path / "own"))
    assert note(cluster).startswith("no baseline is recorded: ")
    assert words in note(cluster)
    assert not list(cluster.path.glob("own/*"))


def test_infiniband_that_was_used_is_recorded(cluster):
    over = {"arguments": {"fabric": "ib_ndr400"}}
    install(cluster, *IB, all_reduce=over, ddp=over, pipeline=over)
    cluster.run("--record-baseline", str(cluster.path / "own"))
    assert recorded(cluster)["collectives"][0]["fabric"] == "ib_ndr400"


def test_a_folder_that_cannot_be_written_costs_no_verdict(cluster):
    install(cluster)
    (cluster.path / "own").write_text("")
    status, _, _ = cluster.run("--record-baseline", str(cluster.path / "own" / "x"))
    assert status == 3
    assert "no baseline is recorded: " in note(cluster)


# --- a report made up ------------------------------------------------------------------------


def node(name, model=MODEL):
    return Node(name, 64, 512000, Gpus(model, 8), "ib_ndr400")


def sample(value, **changes):
    keys = (("operation", "copy"), ("names", ("TPU v9",)))
    return replace(Sample("memory", keys, value, "GB/s", 20), **changes)


def result(name, *samples, check="hbm", verdict=Verdict.INCONCLUSIVE, message=""):
    value, limit = Metric("copy", 1.0, "GB/s"), Threshold("≥", 1.0, "GB/s", "gate", "test")
    return Result(
        check,
        Tier.NODE,
        Subject.node(name),
        verdict,
        message,
        value,
        limit if verdict.green else None,
        proof=Proof((name,), torch="2.9.0"),
        unjudged=samples,
    )


def report(*results, interrupted=False, model=MODEL):
    names = dict.fromkeys(name for item in results for name in item.subject.nodes)
    nodes = tuple(
        NodeReport(node(name, model), "idle", Verdict.PASS, Standing.UNPROVEN, (), "")
        for name in names
    )
    return RunReport(
        "20260102T030405Z-ab12",
        "gpu",
        "plumbline",
        "here",
        "25.05",
        "2026-01-02T03:04:05+00:00",
        1.0,
        Verdict.INCONCLUSIVE,
        results,
        nodes,
        (),
        {},
        interrupted=interrupted,
    )


def refused(run_report):
    with pytest.raises(baseline.NoBaseline) as caught:
        baseline.documents(run_report)
    return str(caught.value)


def test_the_bands_come_from_the_median_of_equal_figures():
    run_report = report(
        *(result(f"x{i}", sample(value)) for i, value in enumerate((990.0, 1000, 1100)))
    )
    (rule,) = baseline.documents(run_report)[MODEL]["memory"]
    assert (rule["fail_below_gbs"], rule["warn_below_gbs"]) == (850, 920)
    assert rule["date"] == "2026-01-02"
    assert "torch 2.9.0" in rule["source"]


def test_a_fleet_with_one_that_lags_behind_is_refused():
    run_report = report(result("x1", sample(1000.0)), result("x2", sample(1000.0)))
    assert baseline.documents(run_report)
    run_report = report(*run_report.results, result("x3", sample(919.0)))
    assert refused(run_report) == (
        "hbm on x3 measured 919 GB/s where the median is 1000: find out why, or leave it out with "
        "--exclude"
    )


@pytest.mark.parametrize(
    ("run_report", "words"),
    [
        (report(), "had a threshold"),
        (report(result("x1", verdict=Verdict.PASS)), "had a threshold"),
        (report(result("x1", sample(1.0)), interrupted=True), "the run was interrupted"),
        (
            report(result("x1", sample(1.0)), result("x9", check="ecc", verdict=Verdict.FAIL)),
            "ecc on x9 failed",
        ),
        (report(result("x1", sample(1.0)), result("x1", check="xid")), "xid on x1 could not be"),
        (report(result("x1", sample(1.0, repetitions=9))), "9 repetitions, 10 are needed"),
        (report(result("x1", sample(1.0)), model="virtual"), "ran on CPUs"),
        (report(result("x1", sample(1.0, table="nvml_names"))), "had a threshold"),
    ],
)
def test_what_speaks_against_a_baseline(run_report, words):
    assert words in refused(run_report)


def test_what_is_open_about_others_is_no_reason():
    run_report = report(result("x1", sample(1.0)), result("x2", check="xid"))
    assert list(baseline.documents(run_report)) == [MODEL]


@settings(deadline=None)  # writes files
@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=9))
def test_whatever_is_recorded_lets_all_that_was_measured_pass(tmp_path_factory, values):
    run_report = report(*(result(f"x{i}", sample(value)) for i, value in enumerate(values)))
    folder = tmp_path_factory.mktemp("own")
    message = baseline.record(run_report, folder)
    if message.startswith("no baseline"):
        assert "where the median is" in message
        return
    model = thresholds.load(MODEL, folder).model
    assert model is not None
    limit = model.gpu.memory_speed("copy", "TPU v9")
    assert limit is not None
    assert all(limit.judge(value) is Verdict.PASS for value in values)
    assert model.collective(Collective("all_reduce", "float32", 1, 8, None, "x", "nccl", 1)) is None


def test_models_that_are_recorded_already_are_refused_before_the_run(tmp_path):
    baseline.check(tmp_path, [node("x1")])
    (tmp_path / f"{MODEL}.yml").touch()
    with pytest.raises(UsageError, match="never overwritten"):
        baseline.check(tmp_path, [node("x1")])
    baseline.check(tmp_path, [node("x1", "h100_sxm")])
