"""NCCL's logs, recorded and made up: what is read from them, and what follows for the fabric."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.declaration import Gpus
from validation.checks import transport
from validation.checks.document import Unusable
from validation.model import Verdict
from validation.payloads import nccl_log
from validation.payloads.nccl_log import (
    Channels,
    Choice,
    NetDevice,
    Summary,
    Transport,
    summarize,
)

FOLDER = Path(__file__).parent / "nccl_logs"
LOGS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.log"))}
CONTRACT = Path(__file__).parents[2] / "cluster" / "contract.yml"
FABRICS = yaml.safe_load(CONTRACT.read_text(encoding="utf-8"))["fabrics"]

WARN, FAIL, UNKNOWN = Verdict.WARN, Verdict.FAIL, Verdict.INCONCLUSIVE
H100 = Gpus("h100_sxm", 8)
A100_PCIE = Gpus("a100_pcie", 1)


def net(via, device, *channels, direct="GDRDMA", relayed=False, kind="NET"):
    return Transport(kind, via, device, direct, relayed, channels)


def p2p(via, *channels):
    return Transport("P2P", via, None, "", False, channels)


def shm(*channels):
    return Transport("SHM", "direct/direct", None, "", False, channels)


def devices(layer, *names, sharp=False):
    """Numbered in this order, of an unknown rate."""
    return tuple(NetDevice(number, name, layer, sharp, None) for number, name in enumerate(names))


NVLS = Transport("NVLS", "", None, "", False, ())


def by_process(text):
    """The facts of each process of a recorded log, by host and process id."""
    parts: dict[tuple[str, int], list[str]] = {}
    for line in text.splitlines(keepends=True):
        if match := re.search(r"(\w+):([0-9]+):[0-9]+ \[", line):
            parts.setdefault((match[1], int(match[2])), []).append(line)
    return {process: summarize("".join(lines)) for process, lines in parts.items()}


# What each recorded log tells: every field that is not empty.
TOLD: dict[str, dict[str, object]] = {
    "bare_shm": {"transports": (shm(0, 1),)},
    "collnet_failed": {
        "version": "2.23.4+cuda12.4",
        "networks": ("IBext_v8",),
        "bootstrap": ("ib0",),
        "channels": Channels(3, 3, 0, 4),
        "transports": (
            net("IBext_v8", 0, 0),
            net("IBext_v8", 0, 0, relayed=True),
            net("IBext_v8", 1, 0, 1, 2),
            net("IBext_v8", 1, 0, relayed=True),
            net("IBext_v8", 5, 0),
            net("IBext_v8", 5, 0, relayed=True),
            p2p("CUMEM", 0),
        ),
    },
    "collnet_hangs": {
        "version": "2.23.4+cuda12.4",
        "networks": ("IBext_v8",),
        "plugins": ("/opt/nccl-rdma-sharp-plugins/src/.libs/libnccl-net.so",),
        "transports": (net("SHARP", 1, 0, kind="COLLNET"),),
        "warnings": ("SHARP int8,uint8,bfloat16 Datatypes not supported",),
    },
    "cut_by_ray": {},
    "efa_no_channels": {"networks": ("Libfabric",), "provider": "efa"},
    "efa_old": {
        "channels": Channels(2, 0, 0, 2),
        "transports": (net("AWS Libfabric", 0, 1, direct=""), p2p("IPC", 1)),
    },
    "fused_roce": {
        "networks": ("IBext_v8",),
        "plugins": ("/opt/hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so",),
        "bootstrap": ("bond0.526",),
        "devices": devices("RoCE", "mlx5_2:1+mlx5_3:1", "mlx5_0:1+mlx5_1:1"),
        "transports": (net("IBext_v8", 1, 0, 1, direct=""),),
        "warnings": ("socketFinalizeAccept: wrong type 3 != 4",),
    },
    "ib_alltoall": {
        "bootstrap": ("ibs1130f0",),
        "channels": Channels(8, 0, 0, 8),
        "transports": (net("IB", 2, 0, 1), net("IB", 3, 7), p2p("CUMEM", 0, 1)),
    },
    "ib_cut": {
        "version": "2.21.5+cuda12.4",
        "networks": ("IBext_v8",),
        "devices": devices("IB", "mlx5_0:1", sharp=True),
        "channels": Channels(2, 2, 0, 2),
        "transports": (net("IBext_v8", 0, 0, 1, direct=""),),
    },
    "ib_gpudirect": {
        "version": "2.21.5+cuda12.4",
        "networks": ("IBext_v8",),
        "plugins": (
            "/hpcx-v2.18-gcc-mlnx_ofed-ubuntu22.04-cuda12-x86_64/nccl_rdma_sharp_plugin/lib/"
            "libnccl-net.so",
        ),
        "devices": devices("IB", "mlx5_0:1", sharp=True),
        "bootstrap": ("eno1",),
        "channels": Channels(2, 2, 0, 2),
        "transports": (net("IBext_v8", 0, 0, 1),),
    },
    "ib_nvls": {
        "bootstrap": ("bond0",),
        "channels": Channels(16, 0, 16, 16),
        "transports": (
            net("IBext_v8", 1, 0, direct=""),
            net("IBext_v8", 2, 3, direct=""),
            net("IBext_v8", 4, 9, direct=""),
            NVLS,
            p2p("CUMEM", 4),
        ),
    },
    "ib_tuning": {
        "channels": Channels(16, 16, 16, 16),
        "transports": (net("IBext_v8", 7, 1, 7, 9),),
        "choices": (
            Choice(None, "TREE", "LL128", 262144, 262144, None),
            Choice(None, "RING", "SIMPLE", 8589934592, 8589934592, None),
        ),
    },
    "libfabric_tcp": {
        "version": "2.4.6+cuda10.0",
        "provider": "tcp;ofi_rxm",
        "interfaces": ("eth0",),
    },
    "mixed_devices": {
        "version": "2.12.12+cuda11.7",
        "networks": ("IB",),
        "bootstrap": ("eno1np0",),
        "devices": (
            *devices("IB", "mlx5_0:1", "mlx5_1:1"),
            NetDevice(2, "mlx5_2:1", "RoCE", False, None),
        ),
        "warnings": ("nvmlDeviceGetHandleByPciBusId() failed: Not Found",),
    },
    "mpirun_labels": {
        "networks": ("IB",),
        "devices": devices("RoCE", *(f"mlx5_{i}:1" for i in range(10))),
    },
    "nvls_one_node": {"transports": (NVLS, p2p("direct pointer", 14, 15))},
    "roce_old": {
        "version": "2.10.3+cuda11.0",
        "networks": ("IB",),
        "bootstrap": ("xgbe4",),
        "devices": devices("RoCE", "mlx5_6:1"),
        "channels": Channels(2, 0, 0, 2),
        "transports": (net("IB", 0, 0, 1), p2p("direct pointer", 0)),
        "warnings": (
            "CollNet is not supported or fails to initialize, ignoring NCCL_ALGO=COLLNET",
        ),
    },
    "roce_plugin": {
        "version": "2.26.5+cuda12.2",
        "networks": ("NCCL RDMA Plugin v6",),
        "plugins": ("/usr/local/lib/libnccl-net.so", "NCCL RDMA Plugin v6"),
        "bootstrap": ("bond0",),
        "devices": devices("RoCE", "mlx5_bond_6:1", "mlx5_bond_7:1"),
        "channels": Channels(4, 4, 0, 4),
        "transports": (
            net("NCCL RDMA Plugin v6", 0, 1, 3),
            net("NCCL RDMA Plugin v6", 0, 1, relayed=True),
            net("NCCL RDMA Plugin v6", 1, 1),
            p2p("CUMEM", 0),
        ),
    },
    "shm_beside_nvlink": {
        "networks": ("IB",),
        "devices": devices("IB", "mlx5_0:1", "mlx5_2:1"),
        "transports": (shm(0, 1),),
    },
    "sockets_one_node": {
        "version": "2.29.2+cuda12.8",
        "networks": ("Socket",),
        "interfaces": ("eth0",),
        "bootstrap": ("eth0",),
        "channels": Channels(2, 2, 0, 2),
        "transports": (net("Socket", 0, 1, direct=""),),
        "warnings": (
            "ncclSocketInit: connecting to address  with family 1 is neither AF_INET(2) nor "
            "AF_INET6(10)",
        ),
    },
    "sockets_shm": {
        "bootstrap": ("enp10s0",),
        "channels": Channels(2, 0, 0, 2),
        "transports": (net("Socket", 0, 0, direct=""), shm(0, 1)),
    },
    "torch_no_verbs": {
        "version": "2.28.9+cuda13.0",
        "networks": ("Socket",),
        "interfaces": ("eth0",),
        "bootstrap": ("eth0",),
    },
    "user_guide": {
        "version": "2.30.3+cuda13.0",
        "networks": ("IB",),
        "transports": (net("Socket", 0, 0, 1, direct=""), p2p("CUMEM", 0), shm(0)),
        "choices": (Choice("AllReduce", "RING", "SIMPLE", 33554432, 33554432, 32),),
        "warnings": ("Failed to initialize any NET plugin",),
    },
}

# Lists that are only counted.
LONG = {"collnet_failed": {"devices": 6, "warnings": 2}, "collnet_hangs": {"devices": 6}}

# Which ranks of how many said that their communicator is complete.
COMPLETE: dict[str, tuple[Sequence[int], int]] = {
    "collnet_failed": (range(8), 8),
    "efa_old": ((0, 8, 9), 16),
    "ib_alltoall": (range(4), 4),
    "ib_cut": ((0,), 2),
    "ib_gpudirect": (range(2), 2),
    "ib_nvls": ((32, 34, 36), 64),
    "ib_tuning": ((0,), 24),
    "roce_plugin": (range(4), 4),
    "sockets_one_node": ((0,), 2),
}


# --- recorded logs ---------------------------------------------------------------------------


def test_every_recorded_log_is_in_the_index_and_names_its_origin():
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)\.log` ", index, re.MULTILINE)) == set(LOGS) == set(TOLD)
    for text in LOGS.values():
        assert re.match(r"# https://(github\.com/\S+/issues/\d+|docs\.nvidia\.com/\S+)\n", text)


@pytest.mark.parametrize("name", LOGS)
def test_a_recorded_log_tells(name):
    summary = summarize(LOGS[name])
    facts = {key: getattr(summary, key) for key, value in asdict(summary).items() if value}
    facts.pop("communicators", None)
    for key, count in LONG.get(name, {}).items():
        assert len(facts.pop(key)) == count
    assert facts == TOLD[name]


@pytest.mark.parametrize("name", LOGS)
def test_a_recorded_log_tells_its_ranks(name):
    ranks, everybody = COMPLETE.get(name, ((), 0))
    communicators = summarize(LOGS[name]).communicators
    assert [item.rank for item in communicators] == list(ranks)
    assert {item.ranks for item in communicators} <= {everybody}


@pytest.mark.parametrize("name", sorted(set(LOGS) - set(COMPLETE)))
def test_without_a_complete_communicator_no_transport_is_proven(name):
    summary = summarize(LOGS[name])
    assert summary.proven == ()
    assert {"communicator", "transport"} <= set(summary.unproven)


def test_a_rank_tells_its_gpu_its_node_and_how_many_nodes_there_are():
    communicators = summarize(LOGS["roce_plugin"]).communicators
    assert [(item.host, item.device, item.bus_id) for item in communicators] == [
        ("node1", 0, "33000"),
        ("node1", 1, "23000"),
        ("node2", 0, "33000"),
        ("node2", 1, "23000"),
    ]
    assert {item.comm_id for item in communicators} == {"0x5bfdf821d2742f21"}
    # Said by rank 0 in this excerpt.
    assert [item.nodes for item in communicators] == [2, None, None, None]


def test_processes_that_share_a_stream_are_told_apart():
    processes = by_process(LOGS["collnet_failed"])
    assert len(processes) == 8
    assert processes["node2", 20776].transports == (net("IBext_v8", 5, 0, relayed=True),)
    assert all(summary.version == "2.23.4+cuda12.4" for summary in processes.values())


def test_a_collnet_that_could_not_be_initialized_is_not_claimed():
    assert "COLLNET" not in {item.kind for item in summarize(LOGS["collnet_failed"]).transports}
    text = LOGS["collnet_failed"].replace("Cannot initialize CollNet", "All is well")
    assert "COLLNET" in {item.kind for item in summarize(text).transports}


@pytest.mark.parametrize("name", LOGS)
def test_a_summary_survives_json(name):
    summary = summarize(LOGS[name])
    (document,) = documents([summary])
    assert document["unproven"] == list(summary.unproven)
    assert len(document["transports"]) == len(summary.transports)


# --- synthetic logs --------------------------------------------------------------------------


def line(text, *, rank=0, host="n1", level="INFO"):
    return f"{host}:{1000 + rank}:{2000 + rank} [0] NCCL {level} {text}"


def log(*lines):
    return "".join(f"{text}\n" for text in lines)


def complete(rank, ranks, host):
    message = f"comm 0xa{rank:x} rank {rank} nranks {ranks} cudaDev 0 busId 1000 - Init COMPLETE"
    return line(message, rank=rank, host=host)


VIRTUAL = "NET/IB : Made virtual device [{}] name={} speed=400000 ndevs=1"


def synthetic(rank, hosts, *routes, version="2.27.5+cuda12.9", extra=()):
    """A made-up log of one rank: each route is the end of a channel's line."""
    say = partial(line, rank=rank, host=hosts[rank])
    devices = "[0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [2]hfi1_0:1/IB"
    lines = [
        say(f"NCCL version {version}"),
        say(f"NET/IB : Using {devices} [RO]; OOB eth0:192.0.2.1<0>"),
        *(say(VIRTUAL.format(i, name)) for i, name in enumerate(("mlx5_0", "mlx5_1", "hfi1_0"))),
        *map(say, extra),
        complete(rank, len(hosts), hosts[rank]),
    ]
    for channel, route in enumerate(routes):
        direction = " [send]" if route.startswith("NET/") else ""
        way = f"{rank}[0] -> {(rank + 1) % len(hosts)}[0]{direction}"
        lines.append(say(f"Channel {channel:02}/0 : {way} via {route}"))
    return log(*lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P2P/MNNVL", p2p("MNNVL", 0)),
        ("P2P/CUMEM/read/CE", p2p("CUMEM", 0)),
        ("P2P/indirect/3[2f000]/read", p2p("indirect", 0)),
        ("SHM/CE/direct", Transport("SHM", "CE/direct", None, "", False, (0,))),
        ("NET/Socket/3", net("Socket", 3, 0, direct="")),
        ("NET/IB/12(9)/GDRDMA(PCI)/Shared", net("IB", 12, 0, direct="GDRDMA(PCI)", relayed=True)),
    ],
)
def test_the_ways_of_a_channel(text, expected):
    assert summarize(synthetic(0, ["n1", "n2"], text)).transports == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA and more",
        "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/",
        "Channel 00/0 : 0[0] -> 1[0] [send] via P2P/CUMEM",
        "Channel 00/0 : 0[0] -> 1[0] via NET/IB/0/GDRDMA",
        "Channel 00/0 : 0[0] -> 1[0] via P2P/WARP",
        "Channel 00/0 : 0[0] -> 1[0] via P2P/CUMEM and more",
        "Channel 00/0 : 0[0] -> via P2P/IPC",
        "CollNet 00/0 : 0 [send] via COLLNET/SHARP",
        "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0n2:1:2 [0] NCCL INFO Channel 01/0 : 1[0]",
    ],
)
def test_a_line_about_a_connection_that_cannot_be_read_is_counted_and_not_believed(text):
    summary = summarize(log(complete(0, 1, "n1"), line(text)))
    assert summary.transports == ()
    assert summary.unread == 1


@pytest.mark.parametrize(
    "text",
    [
        "NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
        "0 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
        line("NCCL_IB_HCA set by environment to Channel 00/0 : 0[0] -> 1[0] via P2P/IPC"),
        line("Channel 00/0 : 0[0] -> 1[0] via P2P/IPC", level="WARN"),
        line("Channel 00/0 : 0[0] -> 1[0] via P2P/IPC", level="TRACE"),
        "x" * 5000 + line("Channel 00/0 : 0[0] -> 1[0] via P2P/IPC"),
    ],
)
def test_what_nccl_did_not_print_as_a_line_of_its_own_proves_nothing(text):
    assert summarize(log(complete(0, 2, "n1"), text)).transports == ()


@pytest.mark.parametrize(
    "text",
    [
        line("comm 0xa0 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE: no"),
        line("NCCL version 2.21.5+cuda12.4 or so"),
        line("Using network IB" + line("Using network Socket")),  # written into each other
        line("NET/IB : Using [0]mlx5_0:1/IBogus [RO]; OOB eth0:192.0.2.1<0>"),
        line("2 coll channels, 2 p2p channels, 2 p2p channels per peer, maybe"),
        line("1024 Bytes -> Algo 9 proto 2 time 1.0"),
    ],
)
def test_a_line_that_is_almost_one_of_nccl_says_nothing(text):
    assert summarize(log(text)) == EMPTY


def test_rates_of_devices():
    text = log(
        line("NET/IB : Made virtual device [0] name=mlx5_0 speed=400000 ndevs=1"),
        line("NET/IB : Made virtual device [1] name=mlx5_1 speed=400000 ndevs=1"),
        line("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.1<0>"),
        line("NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2"),
    )
    assert summarize(text).devices == (
        NetDevice(0, "mlx5_0:1", "IB", False, 400000),
        NetDevice(1, "mlx5_1:1", "IB", False, 400000),
        NetDevice(2, "mlx5_0:1+mlx5_1:1", "IB", False, 800000),
    )


def test_a_device_of_several_that_are_not_all_named_is_not_claimed():
    text = log(line("NET/IB : Made virtual device [0] name=mlx5_0 speed=800000 ndevs=2"))
    assert summarize(text).devices == ()


def test_ports_of_different_networks_that_are_fused_have_no_layer():
    message = "NET/IB : Using [0]={[0] mlx5_0:1/IB, [1] mlx5_1:1/RoCE} [RO]; OOB eth0:192.0.2.1<0>"
    assert [device.layer for device in summarize(log(line(message))).devices] == [None]
    text = log(
        line("NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000 ndevs=2"),
        line("NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:192.0.2.1<0>"),
    )
    assert [device.layer for device in summarize(text).devices] == ["IB", "RoCE", None]


def test_the_channels_are_those_of_the_largest_communicator():
    text = log(
        *(line(f"{n} coll channels, {n} p2p channels, 1 p2p channels per peer") for n in (2, 8, 4))
    )
    assert summarize(text).channels == Channels(8, 0, 0, 8)


def test_a_cut_device_list_claims_only_whole_devices():
    cut = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/Ro"
    assert [device.index for device in summarize(log(line(cut))).devices] == [0, 1]


def test_choices_of_one_kind_are_put_together():
    template = "AllReduce: {} Bytes -> Algo NVLS proto SIMPLE channel{{Lo..Hi}}={{0..{}}}"
    chosen = ((2048, 3), (4096, 15), (1024, 7))
    text = log(*(line(template.format(size, high)) for size, high in chosen))
    assert summarize(text).choices == (Choice("AllReduce", "NVLS", "SIMPLE", 1024, 4096, 16),)


def test_several_versions_are_all_told():
    text = log("NCCL version 2.18.1+cuda12.1", line("NCCL version 2.21.5+cuda12.4"))
    assert summarize(text).version == "2.18.1+cuda12.1, 2.21.5+cuda12.4"


@pytest.mark.parametrize(
    "text",
    ["torch was built with NCCL version 2.21.5", "NCCL version unknown", "NCCL version 2.21.5 yes"],
)
def test_others_that_speak_of_a_version(text):
    assert summarize(log(text)).version is None


def test_warnings_are_few_and_short():
    text = log(*(line("w" * 1000 + str(i % 3), level="WARN") for i in range(20)))
    assert summarize(text).warnings == ("w" * nccl_log.MAX_WARNING,)
    text = log(*(line(f"warning {i}", level="WARN") for i in range(20)))
    assert len(summarize(text).warnings) == nccl_log.MAX_WARNINGS


# --- any text --------------------------------------------------------------------------------

EMPTY = Summary(None, (), (), None, (), (), (), (), (), None, (), (), 0)


def test_no_log_proves_nothing_and_says_so():
    assert summarize("") == EMPTY
    assert EMPTY.unproven == ("version", "communicator", "network", "transport", "algorithm")


@given(st.text())
def test_arbitrary_text_proves_no_transport(text):
    summary = summarize(text)
    assert summary.proven == ()
    assert "transport" in summary.unproven
    json.dumps(summary.to_json(), allow_nan=False)


PIECES = st.sampled_from(
    [
        *(piece for text in LOGS.values() for piece in re.findall(r"\S+|\s+", text)),
        *"[]:/0123456789{} \n",
    ]
)


@given(st.lists(PIECES, max_size=80).map("".join))
def test_shuffled_words_of_logs_never_raise_and_prove_no_transport(text):
    summary = summarize(text)
    assert summary.proven == ()


@given(st.sampled_from(sorted(LOGS)), st.data())
def test_a_log_that_was_cut_proves_no_more_than_the_whole(name, data):
    text = LOGS[name]
    end = data.draw(st.integers(0, len(text)))
    whole, cut = summarize(text), summarize(text[:end])
    if "Cannot initialize CollNet" not in text:  # which takes back what was said before
        assert set(kinds(cut)) <= set(kinds(whole))
    assert {item.rank for item in cut.communicators} <= {item.rank for item in whole.communicators}


def kinds(summary):
    return [(item.kind, item.via, item.device, item.direct) for item in summary.transports]


def test_a_line_without_its_end_is_not_read():
    text = line("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/1")  # … of NET/IB/12/GDRDMA
    assert summarize(text) == EMPTY
    assert len(summarize(text + "\n").transports) == 1


# --- the judgement ---------------------------------------------------------------------------

TWO_NODES = ("n1", "n1", "n2", "n2")
GOOD = ("P2P/CUMEM", "NET/IB/0/GDRDMA")


def documents(summaries):
    """As they come out of an answer."""
    return json.loads(json.dumps([s.to_json() for s in summaries], allow_nan=False))


def ring(hosts, *routes, **changes):
    return [synthetic(rank, hosts, *routes, **changes) for rank in range(len(hosts))]


def but(*ranks, routes=GOOD, **changes):
    """The logs of a good ring, but those of these ranks."""
    texts = ring(TWO_NODES, *GOOD)
    for rank in ranks:
        texts[rank] = synthetic(rank, TWO_NODES, *routes, **changes)
    return texts


def verdict_of(problem):
    return problem and problem.verdict


def judge(texts, hosts=TWO_NODES, fabric="ib_ndr400", gpus=H100):
    return judged([summarize(text) for text in texts], hosts, fabric, gpus)


def judged(summaries, hosts, fabric, gpus):
    """What the logs speak against, which is one of the causes of whatever ran over them."""
    problem = transport.judge(documents(summaries), hosts, fabric, gpus)
    words = [when.words for when in transport.CAUSES.values()]
    assert problem is None or sum(bool(re.search(each, problem.sentence)) for each in words) == 1
    return problem


def recorded(name, fabric, gpus):
    """The judgement of a recorded log of all ranks."""
    summaries = sorted(
        by_process(LOGS[name]).values(),
        key=lambda summary: [each.rank for each in summary.communicators],
    )
    hosts = [summary.communicators[0].host for summary in summaries]
    return judged(summaries, hosts, fabric, gpus)


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize(
    ("name", "gpus", "carrier", "fits"),
    [
        ("ib_gpudirect", A100_PCIE, "InfiniBand", "ib"),
        ("collnet_failed", Gpus("a100_sxm", 2), "InfiniBand", "ib"),
        ("roce_plugin", Gpus("h20", 2), "RoCE", "roce"),
    ],
)
def test_recorded_runs_fail_for_every_fabric_but_theirs(name, gpus, carrier, fits, fabric):
    problem = recorded(name, fabric, gpus)
    if fabric.startswith(fits + "_"):
        assert problem is None
    elif fabric == "ethernet" and carrier == "RoCE":
        assert problem.verdict is WARN
    else:
        assert problem.verdict is FAIL
        assert problem.sentence.startswith(f"NCCL ran over {carrier} on node1, node2")
        assert problem.sentence.endswith(f"{fabric} is declared")


HIDDEN = "NCCL's log does not show the transport of its network"


@pytest.mark.parametrize(
    ("old", "new", "verdict", "sentence"),
    [
        ("NET/IBext_v8/0/GDRDMA", "NET/Socket/0", FAIL, "NCCL ran over sockets on node1, node2,"),
        ("/GDRDMA\n", "\n", WARN, "NCCL did not use GPUDirect RDMA on node1, node2: all data"),
        ("mlx5_0:1/IB/SHARP", "mlx5_0:1/RoCE", FAIL, "NCCL ran over RoCE on node1, node2, ib_hdr"),
        ("[0]mlx5_0", "[1]mlx5_0", UNKNOWN, f"{HIDDEN} IBext_v8 on node1, node2, ib_hdr200 is"),
        ("IBext_v8/0", "Teleport/0", UNKNOWN, f"{HIDDEN} Teleport on node1, node2, ib_hdr200 is"),
    ],
)
def test_a_recorded_log_with_other_words(old, new, verdict, sentence, monkeypatch):
    monkeypatch.setitem(LOGS, "changed", LOGS["ib_gpudirect"].replace(old, new))
    problem = recorded("changed", "ib_hdr200", A100_PCIE)
    assert problem.verdict is verdict
    assert problem.sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("dropped", "sentence"),
    [
        (r"node2.* via NET/.*", "NCCL's log does not show how the ranks on node2 reached the"),
        (r".* via NET/.*", "NCCL's log does not show how the ranks on node1, node2 reached the ot"),
        (r"node1.* NET/IB : Using .*", f"{HIDDEN} IBext_v8"),
        (r"node2.*Init COMPLETE", "NCCL's log shows no complete communicator of 2 ranks on node2"),
    ],
)
def test_a_recorded_log_without_some_lines_is_inconclusive(dropped, sentence):
    text = re.sub(rf"^{dropped}\n", "", LOGS["ib_gpudirect"], flags=re.MULTILINE)
    processes = by_process(text)
    summaries = [processes["node1", 5425], processes["node2", 4962]]
    problem = judged(summaries, ("node1", "node2"), "ib_hdr200", A100_PCIE)
    assert problem.verdict is UNKNOWN
    assert problem.sentence.startswith(sentence)


@settings(deadline=None)
@given(st.data())
def test_no_line_of_a_recorded_log_can_be_lost_unnoticed(data):
    """Dropping lines of a good log never makes it speak of anything else, and is noticed where
    a rank's proof was in them."""
    lines = LOGS["ib_gpudirect"].splitlines()
    kept = [text for text in lines if not data.draw(st.booleans())]
    processes = by_process(log(*kept))
    summaries = [processes.get(key, EMPTY) for key in (("node1", 5425), ("node2", 4962))]
    problem = judged(summaries, ("node1", "node2"), "ib_hdr200", A100_PCIE)
    whole = all(summary.proven and summary.devices for summary in summaries)
    assert (problem is None) == whole
    assert problem is None or problem.verdict is UNKNOWN


@pytest.mark.parametrize("fabric", [fabric for fabric in FABRICS if fabric != "ethernet"])
@pytest.mark.parametrize("route", ["NET/Socket/0", "NET/FastSocket/1"])
def test_sockets_fail_for_every_fabric_but_ethernet(fabric, route):
    problem = judge(ring(TWO_NODES, "P2P/CUMEM", route), fabric=fabric)
    assert problem.verdict is FAIL
    assert problem.sentence == f"NCCL ran over sockets on n1, n2, {fabric} is declared"
    assert problem.nodes == ("n1", "n2")


@pytest.mark.parametrize(
    ("provider", "fabric", "verdict"),
    [
        ("efa (found 4 nics)", "efa_400", None),
        ("efa, fabric is efa (found 4 nics)", "efa_400", None),
        ("cxi", "slingshot_200", None),
        ("psm2", "opa_100", None),
        ("opx", "opa_400", None),
        ("tcp;ofi_rxm", "ethernet", None),
        ("tcp;ofi_rxm", "efa_400", FAIL),
        ("sockets", "slingshot_200", FAIL),
        ("efa", "ib_ndr400", FAIL),
        ("verbs;ofi_rxm", "ib_ndr400", UNKNOWN),
        ("magic", "efa_400", UNKNOWN),
        (None, "efa_400", UNKNOWN),
    ],
)
@pytest.mark.parametrize("name", ["Libfabric", "AWS Libfabric"])
def test_libfabric_is_what_its_provider_is(provider, fabric, verdict, name):
    extra = (f"NET/OFI Selected Provider is {provider}",) if provider else ()
    texts = ring(TWO_NODES, "P2P/CUMEM", f"NET/{name}/0/GDRDMA", extra=extra)
    assert verdict_of(judge(texts, fabric=fabric)) is verdict


@pytest.mark.parametrize(
    ("device", "fabric", "verdict"),
    [
        (0, "ib_ndr400", None),
        (1, "roce_400", None),
        (2, "opa_400", None),
        (0, "opa_400", FAIL),
        (2, "ib_ndr400", FAIL),
        (1, "ethernet", WARN),
        (0, "ethernet", FAIL),
        (7, "ib_ndr400", UNKNOWN),
        (0, "token_ring", UNKNOWN),
    ],
)
def test_verbs_are_what_the_used_device_is(device, fabric, verdict):
    texts = ring(TWO_NODES, "P2P/CUMEM", f"NET/IB/{device}/GDRDMA")
    assert verdict_of(judge(texts, fabric=fabric)) is verdict


@pytest.mark.parametrize("fabric", FABRICS)
def test_every_word_of_the_contract_is_known(fabric):
    problem = judge(ring(TWO_NODES, "P2P/CUMEM", "NET/Socket/0"), fabric=fabric)
    assert (problem is None) == (fabric == "ethernet")


@pytest.mark.parametrize(
    ("name", "mbps", "verdict"),
    [
        ("mlx5_0", 400000, None),
        ("mlx5_0", 800000, None),
        ("mlx5_0", 200000, FAIL),
        ("mlx5_0+mlx5_0", 800000, None),
        ("mlx5_0+mlx5_0", 400000, FAIL),
    ],
)
def test_a_used_device_below_the_declared_rate_fails(name, mbps, verdict):
    count = name.count("+") + 1
    message = f"NET/IB : Made virtual device [0] name={name} speed={mbps} ndevs={count}"
    problem = judge(ring(TWO_NODES, *GOOD, extra=(message,)))
    assert verdict_of(problem) is verdict
    if problem:
        assert "at 200 Gbit/s on n1, n2, ib_ndr400 is declared" in problem.sentence


def test_an_unused_device_below_the_declared_rate_is_nothing():
    message = "NET/IB : Made virtual device [5] name=mlx5_5 speed=25000 ndevs=1"
    assert judge(ring(TWO_NODES, *GOOD, extra=(message,))) is None


@pytest.mark.parametrize(
    ("gpus", "fabric", "warned"),
    [
        (H100, "ib_ndr400", True),
        (Gpus("l40s", 2), "ib_ndr400", True),
        (Gpus("rtx_4090", 2), "ib_ndr400", False),  # GeForce has none
        (Gpus("virtual", 2), "ib_ndr400", False),
    ],
)
def test_without_gpudirect_is_a_warning(gpus, fabric, warned):
    problem = judge(ring(TWO_NODES, "P2P/CUMEM", "NET/IB/0"), fabric=fabric, gpus=gpus)
    assert (problem is not None) == warned
    if problem:
        assert problem.verdict is WARN
        assert problem.nodes == ("n1", "n2")


ONE_NODE = ("n1", "n1")
MANY = tuple(f"n{i}" for i in range(20))
SUBGROUP = (
    "ncclCommSplit comm 0xff rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 parent 0xa3 "
    "color 1 key 1 commId 0x12 - Init COMPLETE"
)


def with_a_subgroup():
    texts = ring(TWO_NODES, *GOOD)
    texts[3] += log(line(SUBGROUP, rank=3, host="n2"))
    assert len(summarize(texts[3]).communicators) == 2
    return texts


def by_nvls():
    heads = (log(line("NVLS comm 0xa0 headRank 0 nHeads 2", rank=rank)) for rank in (0, 1))
    return [text + head for text, head in zip(ring(ONE_NODE), heads, strict=True)]


def without_a_version(rank):
    texts = ring(TWO_NODES, *GOOD)
    texts[rank] = re.sub(r".*NCCL version.*\n", "", texts[rank])
    return texts


@pytest.mark.parametrize(
    ("texts", "hosts"),
    [
        (ring(TWO_NODES, *GOOD), TWO_NODES),
        (without_a_version(1), TWO_NODES),
        (with_a_subgroup(), TWO_NODES),
        (by_nvls(), ONE_NODE),
        (ring(("n1",)), ("n1",)),  # it has nobody to reach
    ],
    ids=["good", "a rank without a version", "a subgroup", "NVLS alone", "one rank"],
)
def test_no_problem(texts, hosts):
    assert judge(texts, hosts) is None


BOTH = ("n1", "n2")
GB200 = Gpus("gb200", 2)
PROBLEMS = {
    "one node fell back": (but(3, routes=["NET/Socket/0"]), FAIL, ("n2",), "over sockets on n2,"),
    "two versions": (
        but(1, version="2.21.5+cuda12.4"),
        FAIL,
        None,
        "different versions of NCCL: 2.21.5+cuda12.4 on n1; 2.27.5+cuda12.9 on n1, n2",
    ),
    "no network": (ring(TWO_NODES, "P2P/CUMEM"), UNKNOWN, BOTH, "no connection over the network"),
    "no network of one": (but(2, 3, routes=["P2P/CUMEM"]), UNKNOWN, ("n2",), "network on n2"),
    "one by one": (
        [synthetic(0, (host,), "P2P/CUMEM") for host in TWO_NODES],
        UNKNOWN,
        BOTH,
        "no complete communicator of 4 ranks on n1, n2",
    ),
    "another rank's log": (
        [ring(TWO_NODES, *GOOD)[rank] for rank in (0, 1, 3, 3)],
        FAIL,
        ("n2",),
        "the NCCL log of rank 2 on n2 is that of rank 3",
    ),
    "unknown words": (ring(TWO_NODES, *GOOD, "P2P/WARP"), WARN, (), "4 lines of NCCL's log"),
    "not over NVLink": (
        ring(TWO_NODES, *GOOD, "SHM/direct/direct"),
        WARN,
        BOTH,
        "over host memory on n1, n2",
    ),
}


@pytest.mark.parametrize(("texts", "verdict", "nodes", "words"), PROBLEMS.values(), ids=PROBLEMS)
def test_each_problem_is_told(texts, verdict, nodes, words):
    problem = judge(texts)
    assert (problem.verdict, problem.nodes) == (verdict, nodes)
    assert words in problem.sentence


@pytest.mark.parametrize(
    ("texts", "verdict", "words"),
    [
        (ring(TWO_NODES, "P2P/MNNVL"), WARN, "n1, n2 ran over NVLink between the nodes, which"),
        # Each node shows it for itself.
        (
            [*ring(TWO_NODES, "P2P/MNNVL")[:2], *ring(TWO_NODES, "P2P/CUMEM")[2:]],
            UNKNOWN,
            "no connection over the network on n1, n2",
        ),
    ],
)
def test_nvlink_between_nodes_proves_no_fabric(texts, verdict, words):
    problem = judge(texts, gpus=GB200)
    assert (problem.verdict, problem.nodes) == (verdict, BOTH)
    assert words in problem.sentence


@pytest.mark.parametrize(
    ("route", "model", "over"),
    [
        ("P2P/CUMEM", "h100_sxm", None),
        ("P2P/IPC", "h100_sxm", None),
        ("SHM/direct/direct", "h100_sxm", "host memory"),
        ("SHM/direct/direct", "b200", "host memory"),
        ("NET/IB/0/GDRDMA", "a100_sxm", "the network"),
        ("NET/Socket/0", "v100_sxm", "the network"),
        ("SHM/direct/direct", "l40s", None),
        ("SHM/direct/direct", "a100_pcie", None),
        ("NET/Socket/0", "t4", None),
    ],
)
def test_one_node(route, model, over):
    problem = judge(ring(ONE_NODE, route), ONE_NODE, gpus=Gpus(model, 2))
    if over is None:
        assert problem is None
    else:
        assert problem.verdict is WARN
        assert problem.sentence == (
            f"GPUs of one node reached each other over {over} on n1, not over NVLink"
        )


@pytest.mark.parametrize(
    ("texts", "hosts", "words"),
    [
        (ring(ONE_NODE), ONE_NODE, "NCCL's log"),
        ([""], ("n1",), "no complete communicator of 1 ranks on n1"),
    ],
)
def test_one_node_without_a_connection_is_not_proven(texts, hosts, words):
    problem = judge(texts, hosts)
    assert (problem.verdict, problem.nodes) == (UNKNOWN, ("n1",))
    assert words in problem.sentence


def test_many_nodes_are_not_all_named():
    problem = judge(ring(MANY, "NET/Socket/0"), MANY)
    assert problem.sentence.startswith("NCCL ran over sockets on n0, n1, n2, n3, n4, n5, n6, n7")
    assert "and 12 more" in problem.sentence
    assert problem.nodes == MANY


# --- answers that are not to be trusted -------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_a_log_for_every_rank_and_no_more(count):
    texts = ring(TWO_NODES, *GOOD)
    with pytest.raises(Unusable, match=f"{count} NCCL logs of 4 ranks"):
        judge((texts * 2)[:count])


def test_no_ranks_at_all():
    with pytest.raises(Unusable):
        judge([], ())


def answered(*routes):
    """The summaries of a ring, as they come out of an answer."""
    return documents(map(summarize, ring(TWO_NODES, *(routes or GOOD))))


def verdict_on(summaries, gpus=H100):
    return verdict_of(transport.judge(summaries, TWO_NODES, "ib_ndr400", gpus))


JUDGED = (
    "version",
    "provider",
    "communicators",
    "devices",
    "transports",
    "choices",
    "ring",
    "networks",
    "bootstrap",
    "warnings",
    "unread",
    "failed_ports",
)


@pytest.mark.parametrize("field", JUDGED)
def test_a_summary_without_a_field_is_unusable(field):
    summaries = answered()
    del summaries[2][field]
    with pytest.raises(Unusable, match=rf"the answer has no nccl_log\[2\]\.{field}"):
        verdict_on(summaries)


def test_two_devices_of_one_number_leave_it_open():
    summaries = answered()
    for document in summaries:
        document["devices"][1]["index"] = 0
    assert verdict_on(summaries) is UNKNOWN


@pytest.mark.parametrize("kind", ["", "NVLINK", "net"])
def test_a_transport_that_nccl_has_not_is_unusable(kind):
    summaries = answered()
    summaries[0]["transports"][0]["kind"] = kind
    with pytest.raises(Unusable, match="NCCL has no transport"):
        verdict_on(summaries)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def test_no_transport_but_nvlink_goes_between_nodes_by_its_name():
    summaries = answered("P2P/MNNVL")
    for document in summaries:
        document["transports"][0]["kind"] = "SHM"
    assert verdict_on(summaries, GB200) is UNKNOWN


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "x" * 5000])
def test_words_of_an_answer_are_printed_on_one_short_line(name):
    summaries = answered()
    summaries[3]["transports"][0]["via"] = name
    summaries[3]["version"] = name
    problem = transport.judge(summaries, TWO_NODES, "ib_ndr400", H100)
    assert problem is not None
    assert problem.sentence.isprintable()
    assert len(problem.sentence) <= 300


def passes(summaries):
    try:
        return verdict_on(summaries) is None
    except Unusable:
        return False


@given(st.sampled_from(JUDGED), JUNK)
def test_no_malformed_summary_is_a_pass(field, junk):
    summaries = answered()
    honest = summaries[1][field]
    summaries[1][field] = junk
    # Texts and empty lists are of the right kind; what they say may still be nothing.
    if passes(summaries):
        assert junk == honest or field in ("version", "provider")


@given(st.sampled_from(("kind", "via", "device", "direct")), JUNK)
def test_no_malformed_transport_is_a_pass(field, junk):
    summaries = answered()
    for document in summaries:
        for item in document["transports"]:
            if item["kind"] == "NET":
                item[field] = junk
    if passes(summaries):
        assert (field == "direct" and isinstance(junk, str) and junk) or junk == 0


# --- the links between the GPUs of a node --------------------------------------------------------

# As NCCL printed them: 2.26 on H20 with NVSwitch, 2.10 on V100, 2.25 on eight RTX 4090.
RING = "Pattern 4, crossNic 1, nChannels 4, bw 24.000000/24.000000, type NVL/PIX, sameChannels 0"
OLD = "Pattern 4, crossNic 0, nChannels 4, speed 1.200000/1.200000, type SYS/SYS, sameChannels 0"
BUS = "Pattern 4, crossNic 0, nChannels 1, bw 5.000000/5.000000, type SYS/PIX, sameChannels 1"
TREE = "Pattern 1, crossNic 0, nChannels 1, bw 5.000000/5.000000, type PHB/PIX, sameChannels 1"
SWITCH = "                             + NVL[370.8] - NVS/0"
BRIDGE = "                             + NVL[100.0] - GPU/19000 (1)"


def summary_of(*texts):
    lines = "".join(f"gpu1:100:101 [0] NCCL INFO {text}\n" for text in texts)
    return summarize(lines).to_json()


@pytest.mark.parametrize(
    ("texts", "links"),
    [
        ((SWITCH, RING), "nvswitch"),
        ((BRIDGE, RING), "nvlink"),
        ((OLD,), "pcie"),
        ((BUS, TREE), "pcie"),
        ((SWITCH, BUS), "pcie"),  # there is a switch, and the ring does not go over it
        ((RING, BUS), "pcie"),  # of two communicators the longer way
        ((SWITCH,), None),
        ((TREE,), None),
        ((RING.replace("NVL", "XYZ"),), None),
        ((RING[:-1],), None),
        ((), None),
    ],
)
def test_the_log_tells_the_links_of_a_node(texts, links):
    assert transport.links([summary_of(*texts)] * 2) == links


def test_links_that_not_every_rank_tells_alike_are_not_known():
    assert transport.links([summary_of(BRIDGE, RING), summary_of(BUS)]) is None
    assert transport.links([summary_of(BRIDGE, RING), summary_of()]) is None
    assert transport.links([]) is None


@pytest.mark.parametrize("change", [{"ring": 4}, {"nvswitch": "no"}, {"nvswitch": None}])
def test_a_summary_of_links_that_is_none_is_refused(change):
    with pytest.raises(Unusable):
        transport.links([{**summary_of(RING), **change}])
