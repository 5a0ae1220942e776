"""Each shipped speed passes a healthy board, and fails one that has three quarters of it.

A healthy board reaches what its rule's `derivation` says: a public figure, or what is reckoned from
the datasheet where there is none. GPUs are judged by their checks, with answers that the stand-in
makes up; collectives by the rule that is looked up for them.
"""

from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from cluster import strict
from cluster.errors import DataError
from validation import thresholds
from validation.model import Verdict
from validation.payloads.gpu_memory import DIRECTIONS, MOVED
from validation.tests import standin_compute as standin
from validation.tests.judging import judged
from validation.tests.whole_thresholds import COLLECTIVE
from validation.thresholds import sourced

FILES = {
    path.stem: strict.load_yaml(path)
    for path in sorted(thresholds.SHIPPED.glob("*.yml"))
    if path.stem != "common"
}
TABLES = ("collectives", "gemm", "memory", "copies", "peers")
REAL = [model for model in FILES if model not in ("cpu", "virtual")]
SLOW = 0.75


@dataclass(frozen=True)
class Case:
    """One rule of a model, and the name of a board that it holds for."""

    model: str
    table: str
    rule: dict[str, Any]
    board: str

    @property
    def healthy(self):
        return self.rule["derivation"]["healthy"]


def rules_of(model):
    for table in TABLES:
        for rule in FILES[model].get(table) or ():
            yield table, rule


CASES = [
    Case(model, table, rule, board)
    for model in REAL
    for table, rule in rules_of(model)
    for board in rule.get("names", FILES[model]["nvml_names"]["names"][:1])
]
OF_GPUS = [case for case in CASES if case.table != "collectives"]


def names(case):
    rule = case.rule
    number = FILES[case.model][case.table].index(rule)
    kind = rule.get("operation") or rule.get("dtype") or rule.get("direction") or rule["gpus"]
    return f"{case.model} {case.table}[{number}] {kind} {case.board}"


def answer(case, part):
    """The job that measures what a rule is about, and the answer of a board at this part of it."""
    rule, speed = case.rule, case.healthy * part
    count = rule.get("gpus", 1)
    kind = rule["dtype"] if case.table == "gemm" else "bf16"
    job = standin.job(case.model, count if isinstance(count, int) else 2, dtypes=[kind])
    document = standin.document(job)
    config = dict(job.config)
    for gpu in document["measured"]["gpus"]:
        gpu["start"] |= {"name": case.board, "l2_bytes": None}
        if case.table == "gemm":
            gpu["gemm"] = [standin.gemm(kind, config, speed, standin.WARM * speed)]
        if case.table == "memory":
            speeds = {name: speed for name in MOVED if name == rule["operation"]}
            other = min(speed, 100.0)  # what the rule is not about must not hide what it is about
            gpu["memory"] = [
                standin.memory(name, config, speeds.get(name, other)) for name in MOVED
            ]
        if case.table == "copies":
            gpu["copies"] = [standin.copy(direction, config, speed) for direction in DIRECTIONS]
    if case.table == "peers":
        for number, row in enumerate(document["measured"]["pairs"]):
            pair = standin.pair(row["source"], row["target"], config, speed)
            document["measured"]["pairs"][number] = pair
    return job, document


CHECKS = {"gemm": "gemm", "memory": "hbm", "copies": "copies", "peers": "peers"}


def only(case):
    """The model's rules without others of the same table: they are cases of their own."""
    rules = thresholds.load(case.model)
    assert rules.model is not None
    kept = [
        own
        for own, rule in zip(
            getattr(rules.model.gpu, case.table), FILES[case.model][case.table], strict=True
        )
        if rule is case.rule
    ]
    gpu = rules.model.gpu.__class__(**{case.table: tuple(kept)}, peaks=rules.model.gpu.peaks)
    model = thresholds.ModelThresholds(case.model, rules.model.nvml_names, (), gpu)
    return thresholds.Rules(rules.hardware, model, rules.common)


@pytest.mark.parametrize("case", OF_GPUS, ids=names)
def test_a_healthy_board_passes_and_three_quarters_of_one_fail(case):
    rules = only(case)
    job, document = answer(case, 1.0)
    result = judged(CHECKS[case.table], job, standin.reply(job, document), rules)
    assert result.verdict is Verdict.PASS, result.message
    job, document = answer(case, SLOW)
    result = judged(CHECKS[case.table], job, standin.reply(job, document), rules)
    assert result.verdict is Verdict.FAIL
    assert " expected" in result.message


@pytest.mark.parametrize("case", [case for case in CASES if case.table == "collectives"], ids=names)
def test_a_healthy_node_passes_and_three_quarters_of_one_fail(case):
    rule = case.rule
    links = None if rule["links"] == "any" else rule["links"]
    model = thresholds.load(case.model).model
    assert model is not None
    looked_up = model.collective(
        thresholds.Collective(
            rule["operation"],
            rule["dtype"],
            3 if rule["nodes"] == ">1" else rule["nodes"],
            rule["ranks_per_node"],
            links,
            "ethernet" if rule["fabric"] == "any" else rule["fabric"],
            rule["backend"],
            rule["min_bytes"],
            rule.get("between"),
            rule.get("ports"),
        )
    )
    assert looked_up is not None
    assert looked_up.threshold.source == rule["source"]
    assert looked_up.threshold.value == rule["fail_below_gbs"]
    assert looked_up.threshold.judge(case.healthy) is Verdict.PASS
    assert looked_up.threshold.judge(SLOW * case.healthy) is Verdict.FAIL


def missing(table, rule):
    """Which of the fields that a shipped rule has to have it has not."""
    needed = {"source", "date", "provenance", "derivation"}
    if table in ("collectives", "copies", "peers"):
        needed.add("transport")
    if table == "collectives":
        needed |= {"nodes", "nccl"}
    return needed - set(rule)


@pytest.mark.parametrize("model", FILES)
def test_each_shipped_rule_says_how_it_came_about(model):
    for table, rule in rules_of(model):
        assert not missing(table, rule), rule
        basis, factor = rule["derivation"]["basis"], rule["derivation"]["factor"]
        assert basis in sourced.BASES
        if model in REAL:
            assert SLOW < factor <= 1
            assert (basis == "gate") is (factor == 1)


@pytest.mark.parametrize("gone", ["source", "date", "transport", "nccl", "nodes", "derivation"])
def test_a_rule_that_lacks_one_is_refused_here(gone):
    rule, *_ = FILES["h100_sxm"]["collectives"]
    assert missing("collectives", rule) == set()
    without = {key: value for key, value in rule.items() if key != gone}
    assert missing("collectives", without) == {gone}


HEALTHY = {"healthy": 12.0, "basis": "measured", "factor": 0.85}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"factor": 0.9}, "0.9 of 12 is 10.8, not 10.2"),
        ({"healthy": 13.0}, "0.85 of 13 is 11.05, not 10.2"),
        ({"datasheet": 15.0, "share": 0.8}, "datasheet and share belong to what is reckoned"),
        ({"basis": "reckoned"}, "datasheet and share belong to what is reckoned"),
        ({"basis": "reckoned", "datasheet": 15.0, "share": 0.9}, "0.9 of 15 is 13.5, not 12"),
        ({"basis": "guess"}, "expected 'measured' or 'reckoned' or 'gate' or 'floor'"),
        ({}, None),
        ({"basis": "reckoned", "datasheet": 15.0, "share": 0.8}, None),
    ],
)
@pytest.mark.parametrize("table", ["collectives", "memory"])
def test_a_number_that_does_not_follow_from_its_derivation_is_told(
    tmp_path, table, changes, sentence
):
    of_memory = {"operation": "copy", "provenance": "derived", "source": "test", "date": "2026"}
    rule = COLLECTIVE if table == "collectives" else of_memory
    rule = {**rule, "fail_below_gbs": 10.2, "derivation": {**HEALTHY, **changes}}
    text = yaml.safe_dump({"model": "x", table: [rule]})
    (tmp_path / "x.yml").write_text(text)
    if sentence is None:
        assert thresholds.load("x", tmp_path).model is not None
        return
    with pytest.raises(DataError) as caught:
        thresholds.load("x", tmp_path)
    assert any(f"{table}[0].derivation" in own and sentence in own for own in caught.value.problems)


def test_a_healthy_board_is_not_warned_of(tmp_path):
    rule = {**COLLECTIVE, "fail_below_gbs": 10.2, "warn_below_gbs": 12.5, "derivation": HEALTHY}
    (tmp_path / "x.yml").write_text(yaml.safe_dump({"model": "x", "collectives": [rule]}))
    with pytest.raises(DataError, match=r"a healthy board \(12\) is warned of"):
        thresholds.load("x", tmp_path)
