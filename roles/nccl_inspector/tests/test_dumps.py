"""What the inspector writes: the examples of NVIDIA's README, and what users could write."""

import json
from typing import Any

import pytest

from roles.nccl_inspector.files.nccl_inspector import dumps

# NVIDIA/nccl, ext-profiler/inspector/README.md: Output Example, Output Example Verbose (shortened).
V40: dict[str, dict[str, Any]] = {
    "header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1},
    "metadata": {
        "inspector_output_format_version": "v4.0",
        "git_rev": "",
        "rec_mechanism": "profiler_plugin",
        "dump_timestamp_us": 1748030377748202,
        "hostname": "example-hostname",
        "pid": 1639453,
    },
    "coll_perf": {
        "coll": "AllReduce",
        "coll_sn": 1407,
        "coll_msg_size_bytes": 17179869184,
        "coll_exec_time_us": 61974,
        "coll_algobw_gbs": 277.210914,
        "coll_busbw_gbs": 485.119099,
    },
}
# The same with the keys that inspector_json.cc of v4.2 adds.
V42 = {
    "header": {**V40["header"], "comm_name": "dp"},
    "metadata": {**V40["metadata"], "inspector_output_format_version": "v4.2"},
    "coll_perf": {
        **V40["coll_perf"],
        "coll": "ReduceScatter",
        "coll_algo": "Ring",
        "coll_proto": "Simple",
        "coll_timing_source": "kernel_gpu",
    },
}
LOST = {
    "header": V42["header"],
    "metadata": V42["metadata"],
    "dump_stats": {
        "coll_records": 1024,
        "coll_dropped_total": 17,
        "coll_dropped_since_last_dump": 3,
        "p2p_records": 0,
        "p2p_dropped_total": 0,
        "p2p_dropped_since_last_dump": 0,
    },
}


def line(document):
    return json.dumps(document).encode()


def changed(part, **values):
    return line({**V40, part: {**V40[part], **values}})


def test_a_collective_of_each_format():
    first = dumps.parse(line(V40))
    assert first == dumps.Collective(
        "0x7f8c496ae9f661", 2, "AllReduce", 17179869184, 0.061974, 485119099000.0
    )
    second = dumps.parse(line(V42))
    assert isinstance(second, dumps.Collective)
    assert second.name == "ReduceScatter"


def test_what_had_no_room():
    assert dumps.parse(line(LOST)) == dumps.Lost("0x7f8c496ae9f661", 2, 17)


def test_messages_between_two_and_what_was_not_timed_are_left_out():
    assert dumps.parse(line({"header": V40["header"], "p2p_perf": {"p2p": "Send"}})) is None
    assert dumps.parse(changed("coll_perf", coll="SendRecv")) is None
    assert dumps.parse(changed("coll_perf", coll_exec_time_us=0)) is None


@pytest.mark.parametrize(
    "hostile",
    [
        b"",
        b"[]",
        b"{}",
        b"nonsense",
        b"\xff\xfe{}",
        b"[" * 60_000,
        b'{"a":' * 10_000,
        line(V40)[:-3],
        line(V40).replace(b"61974", b"9" * 5_000),
        line(V40).replace(b"485.119099", b"NaN"),
        line(V40).replace(b"485.119099", b"1e400"),
        b" " * 70_000 + line(V40),
        changed("header", id='0x1"} 1\nup 0'),
        changed("header", id="0x" + "f" * 17),
        changed("header", id=["0x1"]),
        changed("header", rank=8),
        changed("header", rank=-1),
        changed("header", rank=True),
        changed("header", rank="2"),
        changed("header", n_ranks=10**7, rank=9 * 10**6),
        changed("coll_perf", coll_exec_time_us=-1),
        changed("coll_perf", coll_exec_time_us=3.7e9),
        changed("coll_perf", coll_busbw_gbs=1e9),
        changed("coll_perf", coll_msg_size_bytes=2**60),
        line({**V40, "header": None}),
        line({**V40, "coll_perf": []}),
        line({"coll_perf": V40["coll_perf"]}),
    ],
)
def test_what_is_not_the_inspectors_is_refused(hostile):
    with pytest.raises(dumps.Unreadable):
        dumps.parse(hostile)


def test_a_name_that_nccl_has_not_gets_no_series():
    assert dumps.parse(changed("coll_perf", coll='x"} 1')) is None
