"""Data files are read strictly, and every problem is told at once."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cluster import declaration
from cluster.errors import DataError, UsageError
from validation import suites, thresholds
from validation.checks.registry import CHECKS
from validation.model import Tier
from validation.payloads.compute import Config
from validation.payloads.config import load
from validation.tests.conftest import VIRTUAL, declare
from validation.tests.whole_thresholds import COLLECTIVE as RULE
from validation.tests.whole_thresholds import ORIGIN
from validation.thresholds import Collective, sourced


def problems(call, *arguments):
    with pytest.raises(DataError) as caught:
        call(*arguments)
    return list(caught.value.problems)


def test_the_declaration_of_the_contract_is_understood():
    cluster = declaration.parse(declare(*VIRTUAL), "test")
    assert list(cluster.nodes) == ["gpu1", "gpu2"]
    assert cluster.nodes["gpu1"].gpus.count == 2
    assert not cluster.nodes["gpu1"].gpus.real
    assert cluster.submit_hosts == ("login1", "ctl1")
    assert cluster.partitions[0].default


@pytest.mark.parametrize("nvml", [True, False])
def test_only_virtual_gpus_can_have_a_stand_in_for_nvml(nvml):
    document = declare(("gpu1", "virtual", 2), ("gpu2", "virtual", 2), ("gpu3", "h100_sxm", 2))
    document["nodes"][0]["gpus"]["nvml"] = nvml
    nodes = declaration.parse(document, "test").nodes
    assert [nodes[name].gpus.answer for name in nodes] == [nvml, False, True]
    assert not nodes["gpu1"].gpus.real
    document["nodes"][2]["gpus"]["nvml"] = nvml
    assert problems(declaration.parse, document, "test") == [
        "nodes.gpu3.gpus.nvml: only virtual GPUs can have a stand-in for NVML"
    ]
    document["nodes"][2]["gpus"]["nvml"] = "true"
    assert (
        "nodes[2].gpus.nvml: expected true or false"
        in problems(declaration.parse, document, "test")[0]
    )


def test_a_cpu_node_needs_no_model():
    document = declare(("n1", "x", 0))
    del document["nodes"][0]["gpus"]["model"]
    assert declaration.parse(document, "test").nodes["n1"].hardware == "cpu"


def test_every_problem_of_a_declaration_is_told():
    document = declare(*VIRTUAL, schema=2, colour="red", python="python3")
    document["nodes"][0]["cpus"] = "2"
    document["nodes"][1]["gpus"]["count"] = -1
    document["nodes"][1]["name"] = "gpu2; reboot"
    document["partitions"][0]["default"] = "yes"
    del document["login"]
    sentences = problems(declaration.parse, document, "test")
    assert len(sentences) == 8
    text = "\n".join(sentences)
    for part in (
        "colour: unknown key",
        "schema: expected 1, found 2",
        "python: expected an absolute path",
        "login: is missing",
        "nodes[0].cpus: expected a whole number",
        "nodes[1].gpus.count: expected a whole number",
        "nodes[1].name: expected a name",
        "partitions[0].default: expected true or false",
    ):
        assert part in text


def test_what_does_not_fit_together_is_told():
    document = declare(("gpu1", "virtual", 2), ("gpu1", "virtual", 2), login=[], controller=[])
    document["partitions"] = [
        {"name": "a", "nodes": ["gpu9"], "default": True},
        {"name": "a", "nodes": [], "default": True},
    ]
    document["nodes"][1]["gpus"] = {"count": 1}
    text = "\n".join(problems(declaration.parse, document, "test"))
    for part in (
        "gpu1 is declared twice",
        "a is declared twice",
        "more than one is the default",
        "the node gpu9 is not declared",
        "gpu1 is in no partition",
        "1 GPUs without a model",
        "neither a login nor a controller",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "is not valid JSON"),
        ('{"schema": 1, "schema": 1}', "given twice"),
        ('{"schema": NaN}', "NaN is not a number"),
        ("[]", "expected a mapping"),
    ],
)
def test_a_declaration_that_is_no_json_object(tmp_path, text, part):
    path = tmp_path / "cluster.json"
    path.write_text(text)
    assert part in problems(declaration.load, path)[0]


def test_a_missing_declaration_is_one_sentence(tmp_path):
    assert problems(declaration.load, tmp_path / "none.json") == [
        "cannot be read: No such file or directory"
    ]


# --- thresholds ------------------------------------------------------------------------------


@pytest.mark.parametrize("hardware", thresholds.shipped_models())
def test_every_shipped_threshold_has_a_source(hardware):
    common = thresholds.load_common()
    limits = [rule.threshold for rule in model(hardware).collectives]
    limits += [common.clock_offset, *common.bus_bandwidth.values()]
    for tolerances in common.training.values():
        limits += [tolerances.loss, tolerances.first_step, tolerances.parameters]
    for limit in limits:
        assert limit.source
        assert limit.date
        assert limit.place
        assert limit.provenance in sourced.PROVENANCES


def test_a_shipped_rule_for_several_real_nodes_says_what_joined_how_many():
    """How fast many nodes are depends on their network: a rule for any would judge what it does
    not know. EFA's log tells no ports.
    """
    for hardware in thresholds.shipped_models():
        for rule in model(hardware).collectives:
            if rule.nodes == 1 or rule.backend == "gloo":
                continue
            assert rule.nodes or rule.most_nodes
            assert rule.ranks_per_node
            told = rule.ports or rule.fabric in ("efa_400", "efa_3200")
            assert rule.between == "mnnvl" or (rule.between == "network" and rule.fabric and told)


def test_an_unknown_model_has_no_rules():
    rules = thresholds.load("tpu_v9")
    assert rules.model is None
    assert thresholds.load("common").model is None


def model(hardware, site=None):
    rules = thresholds.load(hardware, site).model
    assert rules is not None
    return rules


def write(folder, name, document):
    (folder / f"{name}.yml").write_text(yaml.safe_dump(document))


def test_a_sites_rules_come_first_and_add_to_the_shipped_ones(tmp_path):
    limits = {"fail_below_gbs": 300, "warn_below_gbs": 320}
    rule = {**RULE, "fabric": "ib_ndr400", "nodes": ">1", **limits}
    names = {"names": ["NVIDIA H100 NVL"], "provenance": "recorded", "source": "test"}
    write(tmp_path, "h100_sxm", {"model": "h100_sxm", "nvml_names": names, "collectives": [rule]})
    rules = model("h100_sxm", tmp_path)
    assert rules.nvml_names == ("NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3")
    own = threshold(rules, all_reduce(nodes=4, bytes=2048))
    shipped = threshold(rules, all_reduce())
    assert own is not None
    assert shipped is not None
    assert (own.value, own.warn, shipped.value) == (300, 320, 460)
    assert own.place == f"{tmp_path}/h100_sxm.yml collectives[0]"
    assert shipped.place == "validation/thresholds/h100_sxm.yml collectives[0]"
    assert (own.date, shipped.date) == ("2026-05-01", "2026-05")


def all_reduce(**changes):
    """An all_reduce over the eight GPUs of one node, as the suite measures it."""
    collective = Collective("all_reduce", "float32", 1, 8, "nvswitch", "ib_ndr400", "nccl", 8 << 30)
    return replace(collective, **changes)


def threshold(rules, question):
    rule = rules.collective(question)
    return rule and rule.threshold


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks_per_node": 4},  # fewer ranks: NVLS may not engage
        {"backend": "gloo"},
        {"bytes": 1 << 30},  # smaller transfers are slower
        {"nodes": 2},
        {"dtype": "bfloat16"},
        {"operation": "broadcast"},
    ],
)
def test_a_rule_applies_to_nothing_else(changes):
    assert threshold(model("h100_sxm"), all_reduce()).value == 460
    assert model("h100_sxm").collective(all_reduce(**changes)) is None


@pytest.mark.parametrize(
    ("ranks", "links", "fail"),
    [
        (2, "nvlink", 193),
        (4, "pcie", 25),
        (2, "pcie", None),  # a pair without a bridge
        (2, None, None),  # nothing shows the links
        (4, "nvlink", None),
    ],
)
def test_the_links_between_boards_decide(ranks, links, fail):
    limit = threshold(model("a100_pcie"), all_reduce(ranks_per_node=ranks, links=links))
    assert (limit and limit.value) == fail


@pytest.mark.parametrize("links", ["nvswitch", "nvlink", "pcie", None])
def test_a_board_that_has_nvlink_by_its_form_is_judged_without_it_too(links):
    assert threshold(model("h100_sxm"), all_reduce(links=links)).value == 460


@pytest.mark.parametrize(
    ("nodes", "fits"), [(1, [1]), (4, [4]), (">1", [2, 4, 64])], ids=["one", "four", "more"]
)
def test_a_rule_holds_for_so_many_nodes(tmp_path, nodes, fits):
    write(tmp_path, "x", {"model": "x", "collectives": [{**RULE, "nodes": nodes}]})
    rules = model("x", tmp_path)
    assert [n for n in (1, 2, 4, 64) if rules.collective(all_reduce(nodes=n))] == fits


@pytest.mark.parametrize(
    "date", ["2026-13", "26-05-01", "2026-05-32", "yesterday", "", 2026, 2026.05, None, True, []]
)
def test_a_date_is_a_date(tmp_path, date):
    write(tmp_path, "x", {"model": "x", "collectives": [{**RULE, "date": date}]})
    assert problems(thresholds.load, "x", tmp_path) == [
        f'collectives[0].date: expected a date as "2026", "2026-05" or "2026-05-31", found {date!r}'
    ]


def test_a_date_needs_no_quotes(tmp_path):
    text = yaml.safe_dump({"model": "x", "collectives": [RULE]}).replace("'", "")
    assert "date: 2026-05-01\n" in text
    (tmp_path / "x.yml").write_text(text)
    assert model("x", tmp_path).collectives[0].threshold.date == "2026-05-01"


def test_the_contract_lists_the_models_that_have_a_file():
    contract = Path(__file__).parents[2] / "cluster" / "contract.yml"
    listed = yaml.safe_load(contract.read_text())["gpu_models"]
    assert listed == [name for name in thresholds.shipped_models() if name != "cpu"]


def test_a_site_can_replace_one_tolerance(tmp_path):
    limit = {**LIMIT, "fail_above": 5.0}
    write(tmp_path, "common", {"clock_offset_s": limit})
    common = thresholds.load_common(tmp_path)
    assert common.clock_offset.value == 5.0
    assert common.training == thresholds.load_common().training


LIMIT = {"fail_above": 1e300, **ORIGIN}
BLIND = dict.fromkeys(("loss_difference", "first_step_difference", "parameter_difference"), LIMIT)


@pytest.mark.parametrize(
    ("document", "starts"),
    [
        ({"clock_offset_s": LIMIT}, ["clock_offset_s.fail_above: 1e+300 is too much, from 300 on"]),
        ({"clock_offset_s": {**LIMIT, "fail_above": 300}}, ["clock_offset_s.fail_above: 300 is"]),
        (
            {"training": {"gloo": BLIND}},
            [f"training.gloo.{name}.fail_above: 1e+300 is too much, from 0.001" for name in BLIND],
        ),
        (
            {"training": {"nccl": {**BLIND, "loss_difference": {**LIMIT, "fail_above": 9e-4}}}},
            [f"training.nccl.{name}.fail_above: 1e+300" for name in list(BLIND)[1:]],
        ),
    ],
)
def test_a_tolerance_under_which_faults_pass_is_refused(tmp_path, document, starts):
    write(tmp_path, "common", document)
    sentences = problems(thresholds.load_common, tmp_path)
    assert len(sentences) == len(starts)
    for sentence, start in zip(sentences, starts, strict=True):
        assert sentence.startswith(start)


@pytest.mark.parametrize("speed", [1e-300, 9e-7, 2e6, 1e300])
def test_a_speed_that_nothing_fails_or_nothing_reaches_is_refused(tmp_path, speed):
    found = f"expected a number from 1e-06 to 1e+06, found {speed!r}"
    write(tmp_path, "x", {"model": "x", "collectives": [{**RULE, "fail_below_gbs": speed}]})
    assert f"collectives[0].fail_below_gbs: {found}" in problems(thresholds.load, "x", tmp_path)
    write(tmp_path, "common", {"bus_bandwidth_gbs": {"gloo": {**LIMIT, "fail_above": speed}}})
    assert problems(thresholds.load_common, tmp_path) == [
        f"bus_bandwidth_gbs.gloo.fail_above: {found}"
    ]


def test_a_rule_may_say_what_its_hardware_cannot_exceed(tmp_path):
    write(tmp_path, "x", {"model": "x", "collectives": [{**RULE, "fail_above_gbs": 500}]})
    ceiling = model("x", tmp_path).collective(all_reduce()).ceiling
    assert (ceiling.op, ceiling.value) == ("≤", 500)
    assert model("h100_sxm").collective(all_reduce()).ceiling is None
    write(tmp_path, "x", {"model": "x", "collectives": [{**RULE, "fail_above_gbs": 10.0}]})
    assert problems(thresholds.load, "x", tmp_path) == [
        "collectives[0].fail_above_gbs: nothing could pass"
    ]


def test_every_problem_of_a_thresholds_file_is_told(tmp_path):
    bad = {**RULE, "source": "", "provenance": "guess", "fail_below_gbs": "__import__('os')"}
    write(tmp_path, "x", {"model": "x", "color": 1, "collectives": [bad, {"nodes": True}]})
    text = "\n".join(problems(thresholds.load, "x", tmp_path))
    for part in (
        "color: unknown key",
        "collectives[0].source: expected a text",
        "collectives[0].provenance: expected 'datasheet' or",
        "collectives[0].fail_below_gbs: expected a number",
        "collectives[1].nodes: expected a whole number of at least 1, found True",
        "collectives[1].source: is missing",
    ):
        assert part in text


def test_a_file_under_another_models_name_is_refused(tmp_path):
    write(tmp_path, "x", {"model": "y", "collectives": [{**RULE, "warn_below_gbs": 9}]})
    sentences = problems(thresholds.load, "x", tmp_path)
    assert "the file's name says 'x'" in sentences[0]
    assert "lies below fail_below_gbs" in sentences[1]


def test_yaml_that_is_no_data_is_refused(tmp_path):
    for text in ("model: x\nmodel: x\n", "!!python/object/apply:os.system [id]", "a: [", "\t"):
        (tmp_path / "x.yml").write_text(text)
        assert "is not valid YAML" in problems(thresholds.load, "x", tmp_path)[0]


# --- suites ----------------------------------------------------------------------------------


def test_every_check_is_in_a_suite_and_in_the_order_of_all():
    deep: tuple[str, ...] = (
        "host",
        "host_speed",
        "health",
        "compute",
        "isolation",
        "dcgm",
        "pairs",
    )
    deep += ("soak", "same_sums")
    quick, gpu, local, network = (
        suites.load(name).checks for name in ("quick", "gpu", "local", "network")
    )
    tier = {name: check.info.tier for name, check in CHECKS.items()}
    slow: tuple[str, ...] = ("fsdp", "tensor_parallel", "schedules", "expert_parallel", "mesh")
    of_quick = [name for name, check in CHECKS.items() if check.payload not in deep]
    slow += ("checkpoint", "resume", "inference", "scaling")
    assert quick == tuple(name for name in of_quick if name not in (*slow, "collectives"))
    assert network == tuple(name for name in CHECKS if name in network)
    assert suites.load("training").checks == ("slurm_state", "ddp", "pipeline", *slow)
    assert (*gpu, "dcgm") == tuple(
        name
        for name, check in CHECKS.items()
        if check.payload != "soak" and (tier[name] is Tier.NODE or check.payload is None)
    )
    # One machine has no Slurm, and declares what it shows.
    of_slurm = ("slurm_state", "accounting", "hostname", "cpus", "memory", "munge", "clock")
    declared = ("network", "shared_fs", "infiniband")
    of_several = ("host_stragglers", "port_errors", "same_hcas", "isolation")
    assert local == tuple(name for name in gpu if name not in of_slurm + declared + of_several)


def test_a_suite_says_how_the_jobs_of_its_checks_run(tmp_path):
    path = tmp_path / "gpu.yml"
    document = yaml.safe_load((suites.FOLDER / "gpu.yml").read_text())
    del document["compute"]
    document["checks"].append("ddp")
    path.write_text(yaml.safe_dump(document))
    assert problems(suites.read, path) == [
        "compute: a check of the suite needs it, and nothing says how it runs",
        "ddp: a check of the suite needs it, and nothing says how it runs",
    ]


def test_a_suite_for_gpus_leaves_time_to_answer():
    """NVML has its limit twice, for the node and for the GPUs; the rest is the kernel's log."""
    for name in ("gpu", "local"):
        suite = suites.load(name)
        health = suite.node["health"]["cuda"]
        assert health.run_limit_s >= 2 * health.config["nvml_timeout_s"] + 40
        cuda = suite.node["cuda"]["cuda"]
        assert cuda.run_limit_s >= cuda.config["start_limit_s"] + 20
        speed = suite.node["host_speed"]["cuda"]
        assert speed.run_limit_s >= 2 * speed.config["limit_s"] + 20
        for device in suites.DEVICES:
            compute = suite.node["compute"][device]
            assert compute.run_limit_s >= compute.config["total_s"] + 20
            load(Config, json.dumps({**compute.config, "device": device, "gpus": 8}))


CONTRACT = Path(__file__).parents[2] / "cluster" / "contract.yml"
FABRICS = yaml.safe_load(CONTRACT.read_text())["fabrics"]


@pytest.mark.parametrize("fabric", [name for name in FABRICS if name[-1].isdigit()])
@pytest.mark.parametrize(
    ("name", "payload"),
    [("quick", "all_reduce"), ("burn-in", "all_reduce"), ("network", "collectives")],
)
def test_no_collective_keeps_a_card_so_long_that_it_looks_hung(fabric, name, payload):
    """Two nodes of eight ranks and one card each: what a ring sends over that card, in seconds."""
    suite = suites.load(name)
    config = suite.cluster[payload]["nccl"].config
    rate = float(re.sub(r".*?([0-9]+)$", r"\1", fabric)) / 8  # GB/s
    limit = suite.largest_bytes.get(fabric, max(config["sizes_bytes"]))
    largest = max(size for size in config["sizes_bytes"] if size <= limit)
    calls = config["iterations"] + config["warmup"]
    assert calls * largest / 1e9 * 2 * 15 / 16 / rate < config["timeout_s"] / 4


def test_a_suite_that_is_made_of_others_has_their_checks_and_their_jobs():
    names = ("full", "gpu", "quick", "network", "training")
    full, gpu, quick, network, training = map(suites.load, names)
    # What takes a quarter of an hour, or as long as somebody likes.
    burn_in = {"dcgm", "soak", "drift", "same_bits", "soak_stragglers", "same_sums"}
    assert set(full.checks) == set(CHECKS) - burn_in
    assert full.node == gpu.node
    assert full.cluster == {
        payload: quick.cluster[payload] or network.cluster[payload] or training.cluster[payload]
        for payload in full.cluster
    }
    assert full.largest_bytes == quick.largest_bytes
    assert full.queue_limit_s == max(gpu.queue_limit_s, quick.queue_limit_s)


def test_a_suite_is_made_of_suites_that_there_are_and_that_agree(tmp_path, monkeypatch):
    def suite_problems(parts, **changes):
        path = tmp_path / "both.yml"
        document = {"name": "both", "description": "x", "suites": parts, **changes}
        path.write_text(yaml.safe_dump(document))
        return problems(suites.read, path)

    assert suite_problems(["quick"], checks=["munge"])[0].startswith("checks: unknown key")
    assert suite_problems(["quick"], name="half") == [
        "name: is 'half', the file's name says 'both'"
    ]
    assert suite_problems(["quick", "quik"]) == ["suites: there is no other suite 'quik'"]
    assert suite_problems([])[0].startswith("suites: ")
    monkeypatch.setattr(suites, "FOLDER", tmp_path)
    quick = yaml.safe_load((Path(suites.__file__).parent / "quick.yml").read_text())
    for name, limit in (("one", 60), ("two", 61)):
        own = {**quick, "name": name, "node": {"run_limit_s": limit}}
        (tmp_path / f"{name}.yml").write_text(yaml.safe_dump(own))
    assert suite_problems(["both"]) == ["suites: there is no other suite 'both'"]
    assert suite_problems(["one", "two"]) == ["suites: two sets up node another way than before"]


def test_an_unknown_suite_names_the_known_ones():
    with pytest.raises(
        UsageError, match="unknown suite 'long'; there is burn-in, full, gpu, local, network, quick"
    ):
        suites.load("long")


def test_every_problem_of_a_suite_is_told(tmp_path):
    path = tmp_path / "quick.yml"
    shutil.copy(suites.FOLDER / "quick.yml", path)
    document = yaml.safe_load(path.read_text())
    document["checks"].append("gems")
    document["ddp"]["nccl"]["steps"] = 1
    document["pipeline"]["gloo"]["depth"] = 2
    del document["node"]["run_limit_s"]
    path.write_text(yaml.safe_dump(document))
    text = "\n".join(problems(suites.read, path))
    for part in (
        f"checks[{len(document['checks']) - 1}]: expected",
        "ddp.nccl.steps: expected",
        "pipeline.gloo.depth: unknown key",
        "node.run_limit_s: is missing",
    ):
        assert part in text


def test_limits_that_contradict_each_other_are_told(tmp_path):
    path = tmp_path / "other.yml"
    document = yaml.safe_load((suites.FOLDER / "quick.yml").read_text())
    document["queue_limit_s"] = 299
    document["ddp"]["gloo"]["timeout_s"] = document["ddp"]["gloo"]["run_limit_s"] // 2 + 1
    document["ddp"]["nccl"]["join_timeout_s"] = document["ddp"]["nccl"]["run_limit_s"]
    document["pipeline"]["nccl"]["microbatches"] = 15
    document["all_reduce"]["gloo"]["sizes_bytes"] = [8, 4]
    path.write_text(yaml.safe_dump(document))
    text = "\n".join(problems(suites.read, path))
    for part in (
        "name: is 'quick'",
        "MUNGE credentials could expire",
        "ddp.gloo.run_limit_s: must be twice timeout_s and join_timeout_s",
        "ddp.nccl.run_limit_s: must be twice timeout_s and join_timeout_s",
        "pipeline.nccl.microbatches: must be 16 at least",
        "all_reduce.gloo.sizes_bytes: must rise",
    ):
        assert part in text
