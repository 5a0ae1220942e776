"""The checks of a node's host: each judges what it should."""

import copy
import json
from dataclasses import replace

import pytest
import yaml

from cluster import declaration
from cluster.errors import DataError
from validation import plan, suites, thresholds
from validation.checks import disk, host_memory, infiniband, limits, shared_fs
from validation.checks.registry import CHECKS as ALL
from validation.model import Outcome, Reply, Tier, Verdict
from validation.tests import standin
from validation.tests import standin_host as host
from validation.tests.conftest import declare

CHECKS = {module.NAME: module for module in (limits, shared_fs, infiniband, disk, host_memory)}
PATHS = ["/home", "/scratch"]
PORTS = 2

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
UNKNOWN = Verdict.INCONCLUSIVE
RULES = thresholds.load("h100_sxm")


def job_for(check, fabric="ib_ndr400", node=("gpu1", "h100_sxm", 8), hcas=None):
    document = declare((*node, fabric))
    document["nodes"][0]["shared_filesystems"] = PATHS
    if hcas is not None:
        document["nodes"][0]["environment"] = {"NCCL_IB_HCA": hcas}
    declared = declaration.parse(document, "test")
    run_plan = plan.make(declared, suites.load("gpu"), plan.Selection(), "run", None, "secret")
    return next(job for job in run_plan.node_jobs if job.payload == ALL[check].payload)


JOBS = {check: job_for(check) for check in CHECKS}


def healthy(check):
    job = JOBS[check]
    measured = (
        host.host(job.config, "ib_ndr400") if job.payload == "host" else host.host_speed(job.config)
    )
    return copy.deepcopy(measured)


def judge(check, measured, job=None, rules=RULES, **changes):
    job = job or JOBS[check]
    document = standin.of_node(job.payload, "gpu1", measured, job.config)
    reply = Reply(job.name, Outcome.EXITED, 0, "17", standin.line(document))
    evaluate = ALL[check].evaluate
    assert evaluate is not None
    result = evaluate(job, replace(reply, **changes), rules)
    assert (result.check, result.tier, result.subject) == (check, Tier.NODE, job.subject)
    assert "\n" not in result.message
    assert len(result.message) <= 320
    return result


def with_limits(**changes):
    measured = healthy("limits")
    measured["limits"].update(changes)
    return measured


def with_shm(**changes):
    measured = healthy("limits")
    measured["limits"]["shm"].update(changes)
    return measured


def with_shared(number=0, **changes):
    """The filesystem with this number is found otherwise."""
    measured = healthy("shared_fs")
    measured["shared_filesystems"][number]["found"].update(changes)
    return measured


def silent(number, error, seconds=10.0):
    measured = healthy("shared_fs")
    measured["shared_filesystems"][number].update(found=None, error=error, seconds=seconds)
    return measured


def with_ports(*ports):
    measured = healthy("infiniband")
    measured["infiniband"]["ports"] = list(ports)
    return measured


def one_port_is(**changes):
    return with_ports(*(host.port(number) for number in range(3)), host.port(3, **changes))


def with_disk(**changes):
    measured = healthy("disk")
    measured["disk"]["found"].update(changes)
    return measured


def with_core(**changes):
    measured = healthy("host_memory")
    measured["memory"]["found"]["cores"][1].update(changes)
    return measured


# --- all checks ------------------------------------------------------------------------------


@pytest.mark.parametrize("check", CHECKS)
def test_a_healthy_node_passes(check):
    result = judge(check, healthy(check))
    assert (result.verdict, result.message) == (PASS, "")
    assert result.proof.job_id == "17"


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stdout": ""}, "no answer on stdout"),
        ({"exit_code": 1}, "exit status 1"),
        ({"outcome": Outcome.RUN_LIMIT, "exit_code": None}, "and was cancelled"),
    ],
)
def test_a_job_that_did_not_answer_fails(check, changes, said):
    result = judge(check, healthy(check), **changes)
    assert result.verdict is FAIL
    assert said in result.message


DOWN = {"state": "1: DOWN", "phys_state": "3: Disabled"}
SLOW = {"rate": "200 Gb/sec (2X NDR)"}

CASES = [
    # limits
    (
        "limits",
        with_limits(memlock={"soft": 8388608, "hard": "unlimited"}),
        FAIL,
        "locked memory is limited to 8388608 bytes, ib_ndr400 needs it unlimited",
    ),
    (
        "limits",
        with_limits(nofile={"soft": 1024, "hard": 1024}),
        FAIL,
        "1024 open files at most, 4096 are needed",
    ),
    ("limits", with_limits(nofile={"soft": 1024, "hard": "unlimited"}), PASS, ""),
    ("limits", with_shm(free_mb=64), FAIL, "/dev/shm: 64 MiB are free, 1024 are needed"),
    (
        "limits",
        with_shm(error="No such file or directory", free_mb=0),
        FAIL,
        "/dev/shm: No such file or directory",
    ),
    ("limits", with_limits(memlock={"soft": "lots", "hard": 1}), FAIL, "memlock is 'lots'"),
    # shared_fs
    (
        "shared_fs",
        silent(1, "did not answer within 10 s"),
        FAIL,
        "/scratch: did not answer within 10 s",
    ),
    (
        "shared_fs",
        silent(0, "No such file or directory", 0.01),
        FAIL,
        "/home: No such file or directory",
    ),
    (
        "shared_fs",
        with_shared(point="/", type="ext4"),
        FAIL,
        "/home: nothing is mounted there, it is a folder of the node's own root",
    ),
    (
        "shared_fs",
        with_shared(1, write_error="Read-only file system"),
        FAIL,
        "/scratch: cannot be written to: Read-only file system",
    ),
    (
        "shared_fs",
        with_shared(type="xfs"),
        WARN,
        "/home: xfs is the filesystem of a local disk",
    ),
    # infiniband
    ("infiniband", one_port_is(**DOWN), FAIL, "mlx5_3:1: DOWN, Disabled"),
    (
        "infiniband",
        one_port_is(state="2: INIT"),
        FAIL,
        "mlx5_3:1: INIT, LinkUp",
    ),
    ("infiniband", one_port_is(**SLOW), FAIL, "mlx5_3:1: 200 Gbit/s, 400 declared"),
    (
        "infiniband",
        one_port_is(rate="800 Gb/sec (4X XDR)"),
        WARN,
        "mlx5_3:1: 800 Gbit/s, 400 declared",
    ),
    (
        "infiniband",
        one_port_is(rate=None, unread={"rate": "Invalid argument"}),
        FAIL,
        "mlx5_3:1: does not tell its rate: Invalid argument",
    ),
    ("infiniband", one_port_is(link_layer="Ethernet", **DOWN), PASS, ""),
    ("infiniband", with_ports(), FAIL, "it has no RDMA device"),
    (
        "infiniband",
        with_ports(host.port(0, link_layer="Ethernet")),
        FAIL,
        "no InfiniBand port that is meant: it has mlx5_0:1 (Ethernet)",
    ),
    ("infiniband", with_ports(host.port(0), host.port(0)), FAIL, "the answer has a port twice"),
    ("infiniband", one_port_is(rate="fast"), FAIL, "'fast' is no rate of a port"),
    ("infiniband", one_port_is(state="ACTIVE"), FAIL, "'ACTIVE' is no state of a port"),
    # disk
    ("disk", with_disk(wrong=3), FAIL, "3 bytes came back as others than were written"),
    (
        "disk",
        with_disk(error="reading: Input/output error"),
        FAIL,
        "/tmp: reading: Input/output error",
    ),
    ("disk", with_disk(bytes=0), FAIL, "0 wrong bytes in a file of 0"),
    ("disk", with_disk(read_s=0.0), FAIL, "disk read: 268435456 bytes in 0 s"),
    ("disk", with_disk(cache="unknown"), FAIL, "cache is 'unknown'"),
    ("disk", with_disk(cache="dropped"), PASS, ""),
    # host_memory
    ("host_memory", with_core(wrong=1), FAIL, "1 bytes came back as others than were written"),
    ("host_memory", with_core(copies=0), FAIL, "CPU 1: 0 copies in"),
    ("host_memory", with_core(seconds=0.01), FAIL, "CPU 1: 200 copies in 0.01 s"),
    ("host_memory", with_core(cpu=0), FAIL, "the cores that copied are not each named once"),
]


@pytest.mark.parametrize(
    ("check", "measured", "verdict", "said"), CASES, ids=[f"{c[0]}-{c[3][:40]}" for c in CASES]
)
def test_what_is_wrong_shows(check, measured, verdict, said):
    result = judge(check, measured)
    assert result.verdict is verdict
    assert said in result.message
    assert bool(result.message) == bool(said)


# --- by what is declared ---------------------------------------------------------------------


def test_locked_memory_matters_where_rdma_is_declared():
    measured = with_limits(memlock={"soft": 65536, "hard": 65536})
    assert judge("limits", measured, job_for("limits", "ethernet")).verdict is PASS
    assert judge("limits", measured, job_for("limits", "roce_100")).verdict is FAIL


def test_shared_memory_matters_where_nccl_runs():
    measured = with_shm(free_mb=64)
    job = job_for("limits", "ethernet", ("gpu1", "virtual", 2))
    assert judge("limits", measured, job).verdict is PASS


@pytest.mark.parametrize(
    ("hcas", "verdict"),
    [
        (None, FAIL),
        ("mlx5_0,mlx5_1,mlx5_2", PASS),
        ("=mlx5_0:1", PASS),
        ("^mlx5_3", PASS),
        ("mlx5", FAIL),
        ("=mlx5", FAIL),
        ("^mlx5_3:2", FAIL),
    ],
)
def test_the_ports_that_are_meant_are_those_of_nccl_ib_hca(hcas, verdict):
    job = job_for("infiniband", hcas=hcas)
    assert judge("infiniband", one_port_is(**DOWN), job).verdict is verdict


def roce(*changes):
    ports = [{"link_layer": "Ethernet", "rate": "100 Gb/sec (4X EDR)", **item} for item in changes]
    return with_ports(*(host.port(number, **item) for number, item in enumerate(ports)))


def test_of_roce_one_port_must_be_there_and_the_others_may_be_anything():
    job = job_for("infiniband", "roce_100")
    assert judge("infiniband", roce({}, {}), job).verdict is PASS
    slow = judge("infiniband", roce({}, {"rate": "25 Gb/sec (1X EDR)"}), job)
    assert (slow.verdict, slow.message) == (WARN, "mlx5_1:1: 25 Gbit/s, 100 declared")
    none = judge("infiniband", roce(DOWN, {"rate": "25 Gb/sec (1X EDR)"}), job)
    assert none.verdict is FAIL
    named = job_for("infiniband", "roce_100", hcas="mlx5")
    assert judge("infiniband", roce({}, DOWN), named).verdict is FAIL


@pytest.mark.parametrize(
    ("fabric", "found"),
    [
        ("ib_hdr200", infiniband.Fabric("InfiniBand", 200)),
        ("roce_25", infiniband.Fabric("Ethernet", 25)),
        ("ib_x", infiniband.Fabric("InfiniBand", None)),
        ("ethernet", None),
        ("efa_400", None),
    ],
)
def test_the_words_of_the_contract_say_what_a_port_is(fabric, found):
    assert infiniband.declared(fabric) == found


def test_a_slow_answer_of_a_file_server_is_a_warning():
    measured = healthy("shared_fs")
    measured["shared_filesystems"][0]["seconds"] = 7.5
    result = judge("shared_fs", measured)
    assert (result.verdict, result.message) == (
        WARN,
        "/home: took 7.5 s to answer, of 10 s at most",
    )


def test_filesystems_that_were_not_asked_for_fail():
    measured = healthy("shared_fs")
    del measured["shared_filesystems"][1]
    assert judge("shared_fs", measured).message == "the answer is about /home, not as declared"


def test_what_another_node_can_compare_is_recorded():
    metrics = {m.name: m.value for m in judge("shared_fs", healthy("shared_fs")).metrics}
    assert metrics["/home source"] == "nas:/export/home"
    assert metrics["/home inode"] == 128
    metrics = {m.name: m.value for m in judge("infiniband", healthy("infiniband")).metrics}
    assert metrics["HCAs"] == PORTS
    assert metrics["mlx5_0:1 link_downed"] == 1
    assert metrics["mlx5_0:1 firmware"] == "28.39.2048"


# --- speeds ----------------------------------------------------------------------------------


def site(folder, **limits_of):
    """Rules of a site that knows its hosts."""
    read = {
        name: {"provenance": "recorded", "source": "12 nodes", "date": "2026", **limit}
        for name, limit in limits_of.items()
    }
    text = yaml.safe_dump({"model": "h100_sxm", "host": read})
    (folder / "h100_sxm.yml").write_text(text)
    return thresholds.load("h100_sxm", folder)


def test_a_speed_is_reported_and_the_result_says_what_was_judged():
    result = judge("disk", healthy("disk"))
    assert (result.value.name, result.value.value) == ("wrong", 0)
    metrics = {m.name: (m.value, m.unit) for m in result.metrics}
    assert metrics["disk write"] == (2.097, "GB/s")
    assert metrics["disk read"] == (4.194, "GB/s")
    metrics = {m.name: m.value for m in judge("host_memory", healthy("host_memory")).metrics}
    assert metrics["memory copy"] == pytest.approx(26.8, abs=0.1)


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [
        ({"fail_below_gbs": 2.0}, PASS),
        ({"fail_below_gbs": 2.0, "warn_below_gbs": 3.0}, WARN),
        ({"fail_below_gbs": 3.0}, FAIL),
    ],
)
def test_a_speed_is_judged_where_a_site_says_what_it_must_be(tmp_path, limit, verdict):
    rules = site(tmp_path, disk_write_gbs=limit, disk_read_gbs={"fail_below_gbs": 1.0})
    result = judge("disk", healthy("disk"), rules=rules)
    assert result.verdict is verdict
    assert (result.value.name, result.value.value) == ("disk write", 2.097)
    assert result.threshold.source == "12 nodes"
    assert ("2.097 GB/s" in result.message) == (verdict is not PASS)
    wrong = judge("disk", with_disk(wrong=1), rules=rules)
    assert (wrong.verdict, wrong.value.name) == (FAIL, "wrong")


@pytest.mark.parametrize("cache", ["dropped", "in memory"])
def test_a_speed_past_no_page_cache_is_not_judged(tmp_path, cache):
    rules = site(tmp_path, disk_read_gbs={"fail_below_gbs": 1.0})
    assert judge("disk", with_disk(cache=cache), rules=rules).verdict is UNKNOWN


def test_copies_that_stay_in_the_caches_say_nothing_of_the_memory(tmp_path):
    measured = healthy("host_memory")
    measured["memory"]["found"]["cache_bytes"] = 2**30
    rules = site(tmp_path, memory_copy_gbs={"fail_below_gbs": 1.0})
    names = [metric.name for metric in judge("host_memory", measured).metrics]
    assert "memory copy" not in names
    assert "memory copy, cached" in names
    assert judge("host_memory", measured, rules=rules).verdict is UNKNOWN
    assert judge("host_memory", healthy("host_memory"), rules=rules).verdict is PASS


def test_thresholds_that_contradict_themselves_are_refused(tmp_path):
    with pytest.raises(DataError) as caught:
        site(tmp_path, disk_read_gbs={"fail_below_gbs": 2.0, "warn_below_gbs": 1.0})
    assert list(caught.value.problems) == [
        "host.disk_read_gbs.warn_below_gbs: lies below fail_below_gbs"
    ]


def test_the_stand_in_is_json():
    for check in CHECKS:
        assert json.loads(json.dumps(healthy(check))) == healthy(check)
