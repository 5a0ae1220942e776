"""Between nodes a speed is judged by what joined them: NVLink, or so many ports of the network."""

from dataclasses import replace

import pytest
import yaml

from cluster.errors import DataError
from validation import thresholds
from validation.checks import transport
from validation.checks.transport import Paths
from validation.model import Outcome, Reply, Verdict
from validation.tests import standin
from validation.tests.conftest import make_plan
from validation.tests.judging import judged
from validation.tests.whole_thresholds import COLLECTIVE
from validation.thresholds import Collective

PASS, FAIL, WARN, UNKNOWN = Verdict.PASS, Verdict.FAIL, Verdict.WARN, Verdict.INCONCLUSIVE
H100 = ("h100_sxm", 8, "ib_ndr400")
GB300 = ("gb300", 4, "roce_400")
NAMES = {"gb200": "NVIDIA GB200", "gb300": "NVIDIA GB300", "h200_sxm": "NVIDIA H200"}
GBIT = 400000


def cards(count, layer="IB", mbps=GBIT):
    return [
        {"index": index, "name": f"mlx5_{index}:1", "layer": layer, "sharp": False, "mbps": mbps}
        for index in range(count)
    ]


def answered(check, count, kind, speed, change):
    """The check's result of so many nodes; `change` is made to the log of each rank of a host."""
    nodes = [(f"n{number}", *kind) for number in range(1, count + 1)]
    suite = "quick" if check == "all_reduce" else "network"
    job = next(job for job in make_plan(*nodes, suite=suite).jobs if job.payload == check)
    document = getattr(standin, check)(
        job.hosts, job.config, kind[1], fabric=kind[2], busbw_gbs=speed
    )
    for rank, log in zip(
        document["proof"]["ranks"], document["measured"]["transport"], strict=True
    ):
        rank["gpu"] = NAMES.get(kind[0], rank["gpu"])
        change(log, rank["host"])
    reply = Reply(job.name, Outcome.EXITED, 0, "17", standin.line(document))
    return judged(check, job, reply)


def over_network(count, layer="IB", fewer=0, mbps=GBIT):
    """So many ports on each node, and on n2 fewer."""

    def change(log, host):
        log["devices"] = cards(count - fewer if host == "n2" else count, layer, mbps)

    change.__name__ = f"{count} ports of {layer} at {mbps}, {fewer} fewer"  # in a test's name
    return change


def over_nvlink(log, host):
    log["devices"], log["networks"] = [], []
    log["transports"] = [
        {**way, "via": "MNNVL"} for way in log["transports"] if way["kind"] == "P2P"
    ]


def both(log, host):
    way = next(way for way in log["transports"] if way["kind"] == "P2P")
    log["transports"].append({**way, "via": "MNNVL"})


@pytest.mark.parametrize(
    ("count", "kind", "change", "healthy"),
    [
        (2, H100, over_network(8), 440.58),
        (2, H100, over_network(12), 440.58),  # cards for storage beside them
        (4, H100, over_network(8), 368),
        (2, ("h100_sxm", 8, "roce_400"), over_network(8, "RoCE"), 430),
        (2, ("h200_sxm", 8, "ib_ndr400"), over_network(8), 440.58),
        (4, ("gb200", 4, "ib_ndr400"), over_network(4), 184),
        (2, ("gb200", 4, "ib_ndr400"), over_nvlink, 838.07),
        (6, ("gb200", 4, "ib_ndr400"), over_nvlink, 834.57),
        (2, GB300, over_network(8, "RoCE"), 376.01),
        (2, GB300, over_network(4, "RoCE"), 184),
        (6, GB300, over_nvlink, 895.08),
    ],
)
def test_healthy_nodes_are_fast_enough_and_three_quarters_of_it_are_not(
    count, kind, change, healthy
):
    result = answered("all_reduce", count, kind, healthy, change)
    told = "ran over NVLink between the nodes, which does not prove"
    if change is over_nvlink:  # which the inventory does not declare here
        assert (result.verdict, told in result.message) == (WARN, True)
    else:
        assert result.verdict is PASS, result.message
    result = answered("all_reduce", count, kind, 0.75 * healthy, change)
    assert result.verdict is FAIL
    assert " expected" in result.message


@pytest.mark.parametrize("fewer", [0, 1, 4])
def test_a_node_with_ports_that_are_down_is_held_against_what_the_others_have(fewer):
    result = answered("all_reduce", 2, H100, 440 * (8 - fewer) / 8, over_network(8, fewer=fewer))
    assert result.verdict is {0: PASS, 1: WARN, 4: FAIL}[fewer], result.message


@pytest.mark.parametrize(
    ("count", "kind", "change", "words"),
    [
        (2, H100, over_network(4), "ib_ndr400 with 4 ports each, nccl"),
        (2, H100, over_network(1), "ib_ndr400 with 1 port each, nccl"),
        (12, H100, over_network(8), "12 nodes × 8 ranks"),
        (2, ("h100_sxm", 8, "ib_xdr800"), over_network(8, mbps=2 * GBIT), "ib_xdr800 with 8 ports"),
        (2, ("gb200", 4, "ib_ndr400"), both, "2 nodes × 4 ranks, nvswitch inside, ib_ndr400"),
    ],
)
def test_what_no_figure_is_public_of_is_not_judged(count, kind, change, words):
    result = answered("all_reduce", count, kind, 100, change)
    assert result.verdict is UNKNOWN
    assert words in result.message


def test_a_sample_for_a_baseline_says_what_joined_the_nodes():
    (sample,) = answered("all_reduce", 2, H100, 100, over_network(4)).unjudged
    assert dict(sample.keys)["between"] == "network"
    kind = ("h100_sxm", 4, "ib_ndr400")
    (sample,) = answered("all_reduce", 1, kind, 100, over_network(4)).unjudged
    assert "between" not in dict(sample.keys)


def test_each_operation_is_judged_by_its_own_figure():
    """Over NVLink no figure of a reduce_scatter is public."""
    result = answered("collectives", 2, ("gb200", 4, "ib_ndr400"), 840, over_nvlink)
    assert "no threshold recorded for reduce_scatter, broadcast, sendrecv on" in result.message
    assert "NVLink between them" in result.message
    result = answered("collectives", 2, ("gb200", 4, "ib_ndr400"), 560, over_nvlink)
    assert result.verdict is FAIL
    for operation in ("all_reduce", "all_gather"):
        assert f"busbw {operation} 8 GiB is" in result.message
    assert "reduce_scatter" not in result.message


# --- what the logs show ----------------------------------------------------------------------

TWO = ["n1", "n1", "n2", "n2"]


def logs(*changes, fabric="ib_ndr400"):
    summaries = [
        {**standin.nccl_log(rank, 4, host, ["n1", "n2"], fabric), "ring": "NVL", "nvswitch": True}
        for rank, host in enumerate(TWO)
    ]
    for log, host in zip(summaries, TWO, strict=True):
        for change in changes:
            change(log, host)
    return summaries


def fused(log, host):
    log["devices"] = [{**cards(1)[0], "name": "mlx5_0:1+mlx5_1:1", "mbps": 2 * GBIT}]


def slower_beside(log, host):
    log["devices"] = [*cards(4), *({**card, "index": 9} for card in cards(6, mbps=GBIT // 2)[4:])]


def silent(log, host):
    if host == "n1":
        log["transports"] = []


@pytest.mark.parametrize(
    ("change", "fabric", "between", "ports"),
    [
        (over_network(8), "ib_ndr400", "network", 8),
        (over_network(8, mbps=None), "ib_ndr400", "network", 8),
        (over_network(8, fewer=3), "ib_ndr400", "network", 8),
        (over_network(8, layer="RoCE"), "ib_ndr400", "network", None),
        (over_network(8, mbps=GBIT // 2), "ib_ndr400", "network", None),
        (slower_beside, "ib_ndr400", "network", 4),
        (fused, "ib_ndr400", "network", 2),
        (silent, "ib_ndr400", "network", 1),
        (over_nvlink, "ib_ndr400", "mnnvl", None),
        (both, "ib_ndr400", None, 1),
        (over_network(0), "ethernet", "network", None),
        (over_network(8), "efa_3200", "network", None),
    ],
)
def test_the_logs_tell_what_joined_the_nodes(change, fabric, between, ports):
    found = transport.paths(logs(change, fabric=fabric), TWO, fabric)
    assert found == Paths("nvswitch", between, ports)


def test_within_one_node_nothing_is_between():
    assert transport.paths(logs(), ["n1"] * 4, "ib_ndr400") == Paths("nvswitch")


# --- which rule fits -------------------------------------------------------------------------


def model(tmp_path, *rules):
    whole = [{**COLLECTIVE, "nodes": ">1", **rule} for rule in rules]
    (tmp_path / "t4.yml").write_text(yaml.safe_dump({"model": "t4", "collectives": whole}))
    return thresholds.load("t4", tmp_path).model


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        ({}, True),
        ({"most_nodes": 4}, True),
        ({"most_nodes": 3}, False),
        ({"between": "network"}, True),
        ({"between": "mnnvl"}, False),
        ({"between": "network", "ports": 8}, True),
        ({"between": "network", "ports": 4}, True),
        ({"between": "network", "ports": 9}, False),
    ],
)
def test_a_rule_fits_what_it_says(tmp_path, rule, fits):
    four = Collective("all_reduce", "float32", 4, 8, None, "x", "nccl", 1024, "network", 8)
    found = model(tmp_path, rule).collective(four)
    assert (found is not None) is fits
    unknown = replace(four, between=None, ports=None)
    found = model(tmp_path, rule).collective(unknown)
    assert (found is not None) is (fits and "between" not in rule)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"nodes": 2, "most_nodes": 8}, 'most_nodes: nodes is 2, not ">1"'),
        ({"nodes": 1, "between": "mnnvl"}, "between: nothing lies between the nodes of one node"),
        ({"ports": 8}, "ports: only a network has ports, and between does not say network"),
        ({"between": "mnnvl", "ports": 8}, "ports: only a network has ports"),
        ({"between": "nvlink"}, "between: expected"),
        ({"most_nodes": 1}, "most_nodes: expected"),
    ],
)
def test_a_rule_that_never_fits_is_refused(tmp_path, rule, problem):
    with pytest.raises(DataError) as caught:
        model(tmp_path, rule)
    assert any(f"collectives[0].{problem}" in sentence for sentence in caught.value.problems)
