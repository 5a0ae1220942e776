"""Transports that a site declares: what NCCL's logs say against each, and what they do not show."""

import json
from dataclasses import replace

import pytest

from cluster.declaration import _TRANSPORTS as READ
from cluster.declaration import Gpus, Transports
from validation.checks import declared_transports, nccl_logs, transport
from validation.checks.declared_transports import Wanted
from validation.model import Verdict
from validation.tests import standin
from validation.tests.healthy_answers import result
from validation.tests.judging import changed
from validation.tests.test_checks import job_of

PASS, WARN, FAIL, UNKNOWN = (
    Verdict.PASS,
    Verdict.WARN,
    Verdict.FAIL,
    Verdict.INCONCLUSIVE,
)
P2P = ("P2P", "CUMEM", None, "")
SHM = ("SHM", "direct/direct", None, "")
NVLS = ("NVLS", "", None, "")
MNNVL = ("P2P", "MNNVL", None, "")


def net(device, direct="GDRDMA", via="IB"):
    return ("NET", via, device, direct)


def choice(algorithm, most_bytes=8589934592, protocol="SIMPLE", function="AllReduce"):
    return {
        "function": function,
        "algorithm": algorithm,
        "protocol": protocol,
        "least_bytes": 4,
        "most_bytes": most_bytes,
        "channels": None,
    }


def logs(hosts, *ways, ring="NVL", choices=(), devices=2, layer="IB"):
    """The summaries of ranks on these hosts, all of whom go the same ways."""
    summaries = []
    for number, host in enumerate(hosts):
        log = standin.nccl_log(number, len(hosts), host, sorted(set(hosts)), "ib_ndr400")
        log["devices"] = [
            {"index": i, "name": f"mlx5_{i}:1", "layer": layer, "sharp": False, "mbps": None}
            for i in range(devices)
        ]
        log["transports"] = [
            {"kind": k, "via": v, "device": d, "direct": g, "relayed": False, "channels": [0]}
            for k, v, d, g in ways
        ]
        log["ring"] = ring
        log["choices"] = list(choices) if number == 0 else []
        summaries.append(log)
    return summaries


ONE, TWO = ("n1", "n1"), ("n1", "n1", "n2", "n2")


def judged(hosts, summaries, *, all_links=True, all_rails=True, **declared):
    wanted = Wanted(
        {host: Transports.of(declared) for host in hosts}, all_links=all_links, rails=all_rails
    )
    text = json.loads(json.dumps(summaries))
    return transport.judge(text, hosts, "ib_ndr400", Gpus("h100_pcie", 2), wanted)


@pytest.mark.parametrize(
    ("declared", "ways", "more", "sentence"),
    [
        ({"nvlink": True}, [P2P], {}, None),
        ({"nvlink": True}, [SHM], {}, "NVLink is declared, and NCCL went over host memory on n1"),
        ({"nvlink": True}, [P2P], {"ring": "PHB"}, "NVLink is declared, and NCCL went over PCIe"),
        (
            {"nvlink": True},
            [net(0)],
            {},
            "NVLink is declared, and NCCL went over the network on n1",
        ),
        ({"nvls": True}, [P2P, NVLS], {"choices": [choice("NVLS")]}, None),
        ({"nvls": True}, [P2P, NVLS], {"choices": [choice("NVLS_TREE")]}, None),
        (
            {"nvls": True},
            [P2P],
            {"choices": [choice("SYMMETRIC", protocol="ALLREDUCE_RSXLDMC_AGXSTMC")]},
            None,
        ),
        (
            {"nvls": True},
            [P2P, NVLS],
            {"choices": [choice("TREE", 64, "LL"), choice("RING")]},
            "NVLS is declared, and NCCL added up with RING SIMPLE on n1",
        ),
        # before 2.20 NCCL tells no choices: that the switches were set up is all there is
        ({"nvls": True}, [P2P, NVLS], {}, None),
    ],
)
def test_within_a_node(declared, ways, more, sentence):
    problem = judged(ONE, logs(ONE, *ways, **more), **declared)
    if sentence is None:
        assert problem is None
    else:
        assert problem.verdict is FAIL
        assert problem.sentence.startswith(sentence)
        assert problem.nodes == ("n1",)


@pytest.mark.parametrize(
    ("declared", "ways", "more", "sentence"),
    [
        ({"gdrdma": True}, [P2P, net(0), net(1)], {}, None),
        (
            {"gdrdma": True},
            [P2P, net(0, "")],
            {},
            "GPUDirect RDMA is declared, and NCCL copied through host memory to IB on n1, n2",
        ),
        ({"mnnvl": True}, [P2P, MNNVL], {}, None),
        (
            {"mnnvl": True},
            [P2P, net(0)],
            {},
            "MNNVL is declared, and NCCL went over IB between nodes on n1, n2",
        ),
        ({"rails": 2}, [P2P, net(0), net(1)], {}, None),
        (
            {"rails": 2},
            [P2P, net(0)],
            {},
            "2 rails are declared, and NCCL used 1 on n1: mlx5_0:1",
        ),
        ({"rails": ["mlx5_0", "mlx5_1:1"]}, [P2P, net(0), net(1)], {}, None),
        (
            {"rails": ["mlx5_0", "mlx5_1"]},
            [P2P, net(0)],
            {},
            "rail mlx5_1 is declared, and NCCL did not use it on n1",
        ),
        (
            {"rails": ["mlx5_1", "mlx5_2"]},
            [P2P, net(0)],
            {},
            "rails mlx5_1, mlx5_2 are declared, and NCCL did not use them on n1",
        ),
    ],
)
def test_between_nodes(declared, ways, more, sentence):
    problem = judged(TWO, logs(TWO, *ways, **more), **declared)
    if sentence is None:
        assert problem is None
    else:
        assert (problem.verdict, problem.sentence) == (FAIL, sentence)


def test_a_rail_that_one_node_lost_is_told_of_that_node():
    healthy, short = logs(TWO, P2P, net(0), net(1)), logs(TWO, P2P, net(0))
    problem = judged(TWO, [*healthy[:2], *short[2:]], rails=2)
    assert (problem.verdict, problem.nodes) == (FAIL, ("n2",))


def test_ranks_of_a_node_use_its_rails_together():
    summaries = logs(TWO, P2P)
    for number, log in enumerate(summaries):
        log["transports"] += logs(TWO, net(number % 2))[0]["transports"]
    assert judged(TWO, summaries, rails=2) is None


def test_over_several_nodes_a_ring_in_place_of_nvls_is_a_warning():
    """NCCL's own tables may prefer it there."""
    problem = judged(TWO, logs(TWO, P2P, net(0), choices=[choice("RING")]), nvls=True)
    assert problem.verdict is WARN
    assert "NVLS is declared, and NCCL added up with RING SIMPLE" in problem.sentence


@pytest.mark.parametrize(
    ("hosts", "summaries", "declared", "what"),
    [
        (ONE, logs(ONE, P2P, ring=None), {"nvlink": True}, "NVLink"),
        (ONE, logs(ONE, P2P), {"nvls": True}, "NVLS"),
        (TWO, logs(TWO, P2P, net(7)), {"rails": 2}, "its rails"),
    ],
)
def test_what_the_logs_do_not_show_is_inconclusive(hosts, summaries, declared, what):
    wanted = Wanted({host: Transports.of(declared) for host in hosts}, all_links=True)
    read = nccl_logs.read(summaries, hosts)
    found = [p for p in declared_transports.problems(read, wanted) if p is not None]
    assert {problem.verdict for problem in found} == {UNKNOWN}
    assert f"does not show {what} on n1" in found[0].sentence


def test_a_job_that_does_not_use_every_link_proves_no_rails_and_no_nvls():
    summaries = logs(TWO, P2P, net(0), choices=[choice("RING")])
    assert judged(TWO, summaries, all_links=False, rails=2, nvls=True) is None
    assert judged(TWO, summaries, all_rails=False, rails=2) is None


def test_one_gpu_of_a_node_has_no_nvlink_to_prove():
    hosts = ("n1", "n2")
    assert judged(hosts, logs(hosts, net(0), ring="PHB"), nvlink=True) is None


def test_nvlink_between_nodes_that_is_declared_needs_no_network():
    summaries = logs(TWO, P2P, MNNVL)
    assert judged(TWO, summaries, mnnvl=True) is None
    assert judged(TWO, summaries).verdict is WARN  # ib_ndr400 is not proven


# --- in a result ----------------------------------------------------------------------------------

NODES = (("h1", "h100_sxm", 8, "ib_ndr400"),)
REAL = job_of("all_reduce", *NODES)
DOCUMENT = standin.all_reduce(REAL.hosts, REAL.config, 8, busbw_gbs=480, fabric="ib_ndr400")


def with_transports(**declared):
    nodes = tuple(replace(node, transports=Transports.of(declared)) for node in REAL.nodes)
    return replace(REAL, nodes=nodes)


def verdict(job, *changes):
    return result("all_reduce", job, standin.line(changed(DOCUMENT, *changes)))


RINGS = (["measured", "transport", 0, "choices"], [choice("RING")])


def test_a_bandwidth_above_its_threshold_does_not_hide_a_transport_that_was_not_used():
    assert verdict(REAL, RINGS).verdict is PASS
    told = verdict(with_transports(nvls=True), RINGS)
    assert told.verdict is FAIL
    assert told.message.startswith("NVLS is declared, and NCCL added up with RING SIMPLE on h1")


def test_a_transport_is_told_before_the_bandwidth_that_it_explains():
    slow = standin.all_reduce(REAL.hosts, REAL.config, 8, busbw_gbs=360, fabric="ib_ndr400")
    text = standin.line(changed(slow, RINGS))
    told = result("all_reduce", with_transports(nvls=True), text)
    assert told.message.startswith("NVLS is declared, and NCCL added up with RING SIMPLE on h1; ")
    assert "at least 460" in told.message


def test_a_declaration_travels_through_json():
    for said in ({}, {"nvls": True, "rails": 8}, {"gdrdma": True, "rails": ["mlx5_0", "mlx5_3:1"]}):
        assert Transports.of(said).said == said
        problems: list[str] = []
        assert READ(json.loads(json.dumps(said)), "x", problems) is not None
        assert problems == []


@pytest.mark.parametrize(
    "said",
    [{"rails": 0}, {"rails": True}, {"rails": []}, {"rails": [""]}, {"nvls": 1}, {"nvsl": True}],
)
def test_a_declaration_that_means_nothing_is_refused(said):
    problems: list[str] = []
    READ(said, "x", problems)
    assert problems
