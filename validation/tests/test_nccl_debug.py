"""NCCL's own log of a rank: where it is asked for, and what is made of one that is not there."""

from pathlib import Path

import pytest

from validation.payloads import nccl_debug
from validation.payloads.rendezvous import steering
from validation.payloads.watch import Watch

LOGS = Path(__file__).parent / "nccl_logs"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_the_log_is_asked_for_whatever_was_declared(tmp_path):
    environ = {"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "ib0"}
    before = steering(environ)
    path = nccl_debug.request(environ)
    assert environ["NCCL_DEBUG"] == "INFO"
    assert environ["NCCL_DEBUG_SUBSYS"] == "INIT,BOOTSTRAP,GRAPH,NET,TUNING"
    assert environ["NCCL_DEBUG_FILE"] == str(path)
    assert tmp_path in path.parents
    assert before == {"NCCL_DEBUG": "WARN", "NCCL_SOCKET_IFNAME": "ib0"}  # what the report shows


@pytest.mark.parametrize(
    ("declared", "diagnosed", "seen"),
    [
        ({}, True, {"NCCL_RUN_RAS_DIAGNOSTICS": "1", "NCCL_RUN_DIAGNOSTICS": "1"}),
        ({}, False, {"NCCL_RUN_RAS_DIAGNOSTICS": "1"}),
        (
            {"NCCL_RUN_RAS_DIAGNOSTICS": "0", "NCCL_RUN_DIAGNOSTICS": "0"},
            True,
            {"NCCL_RUN_RAS_DIAGNOSTICS": "0", "NCCL_RUN_DIAGNOSTICS": "0"},
        ),
    ],
)
def test_nccl_is_to_diagnose_itself_unless_a_site_says_no(declared, diagnosed, seen):
    environ = dict(declared)
    nccl_debug.request(environ, diagnosed=diagnosed)
    assert {name: environ[name] for name in environ if "DIAGNOSTICS" in name} == seen


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, "localhost:28028"),
        ({"SLURM_JOB_ID": "4711"}, "localhost:28643"),
        ({"SLURM_JOB_ID": "4095"}, "localhost:32123"),
        ({"SLURM_JOB_ID": "4711", "NCCL_RAS_ADDR": "localhost:9999"}, "localhost:9999"),
    ],
)
def test_ras_answers_on_a_port_of_the_job(environ, address):
    nccl_debug.request(environ)
    assert environ["NCCL_RAS_ADDR"] == address


def test_each_rank_has_a_log_of_its_own():
    assert len({nccl_debug.request({}) for _ in range(8)}) == 8


def test_what_the_log_shows_is_found():
    path = nccl_debug.request({})
    path.write_bytes((LOGS / "ib_gpudirect.log").read_bytes() + b"\xff\xfe")
    shown = nccl_debug.summary(path)
    assert [(way["kind"], way["direct"]) for way in shown["transports"]] == [("NET", "GDRDMA")]


def test_a_log_that_is_missing_shows_nothing():
    path = nccl_debug.request({})
    shown = nccl_debug.summary(path)
    assert not shown["transports"]
    assert "transport" in shown["unproven"]
    assert nccl_debug.complaint(path) is None
    assert nccl_debug.complaint(None) is None  # without NCCL


def test_a_rank_that_fails_tells_what_nccl_last_warned_of():
    path = nccl_debug.request({})
    path.write_text(
        "n1:1:1 [0] init.cc:9 (ncclCommInit) NCCL WARN Multiple Ranks are using the same "
        "GPU/Partition.\n"
    )

    class Store:
        def __getattr__(self, name):
            return {"check": lambda _: False, "get": lambda _: "[]"}.get(name, lambda *_: None)

    watch = Watch(Store, ("localhost", 1), 1, ["n1", "n1"], 60, path)
    error = watch.explain("invalid usage")
    watch.stop()
    assert str(error) == (
        "NCCL: Multiple Ranks are using the same GPU/Partition.; invalid usage (while joining); "
        "all ranks still respond"
    )
