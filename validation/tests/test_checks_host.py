"""The checks of a node's host: each judges what it should."""

import pytest
import yaml

from cluster.errors import DataError
from validation import thresholds
from validation.checks import infiniband
from validation.checks.registry import CHECKS as ALL
from validation.model import Outcome, Reply, Tier, Verdict
from validation.tests import standin
from validation.tests import standin_host as host
from validation.tests.conftest import declare, plan_of
from validation.tests.judging import judged

CHECKS = ("limits", "shared_fs", "infiniband", "port_errors", "disk", "host_memory", "cores")
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
    jobs = plan_of(document, suite="gpu").node_jobs
    return next(job for job in jobs if job.payload == ALL[check].payload)


JOBS = {check: job_for(check) for check in CHECKS}


def healthy(check):
    job = JOBS[check]
    if job.payload == "host":
        return host.host(job.config, "ib_ndr400")
    return host.host_speed(job.config)


def judge(check, measured, job=None, rules=RULES):
    job = job or JOBS[check]
    document = standin.of_node(job.payload, "gpu1", measured, job.config)
    reply = Reply(job.name, Outcome.EXITED, 0, "17", standin.line(document))
    result = judged(check, job, reply, rules)
    assert result.tier is Tier.NODE
    return result


def with_limits(**changes):
    measured = healthy("limits")
    measured["limits"].update(changes)
    return measured


def with_shm(**changes):
    return with_limits(shm={**host.limits()["shm"], **changes})


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


def counting(later=None, **counters):
    """The last of four ports counts so much, and after two seconds what is in `later`."""
    first = {**host.COUNTERS, **counters}
    last = {**first, **(later or {})}
    ports = [*map(host.port, range(3)), host.port(3, counters=first, later=last)]
    return with_ports(*ports)


def with_disk(**changes):
    measured = healthy("disk")
    measured["disk"]["found"].update(changes)
    return measured


def with_core(**changes):
    measured = healthy("host_memory")
    measured["memory"]["found"]["cores"][1].update(changes)
    return measured


# --- one fault at a time ---------------------------------------------------------------------


DOWN = {"state": "1: DOWN", "phys_state": "3: Disabled"}
SLOW = {"rate": "200 Gb/sec (2X NDR)"}
ETHERNET = {"link_layer": "Ethernet"}
UNTOLD = {"rate": None, "unread": {"rate": "Invalid argument"}}


def soft(limit, hard="unlimited"):
    return {"soft": limit, "hard": hard}


CASES = {
    "limits": [
        (with_limits(memlock=soft(8388608)), FAIL, "memory is limited to 8388608 bytes, ib_ndr400"),
        (with_limits(nofile=soft(1024, 1024)), FAIL, "1024 open files at most, 4096 are needed"),
        (with_limits(nofile=soft(1024)), PASS, ""),
        (with_shm(free_mb=64), FAIL, "/dev/shm: 64 MiB are free, 1024 are needed"),
        (with_shm(error="No such file", free_mb=0), FAIL, "/dev/shm: No such file"),
        (with_limits(memlock=soft("lots", 1)), FAIL, "memlock is 'lots'"),
    ],
    "shared_fs": [
        (silent(1, "did not answer"), FAIL, "/scratch: did not answer"),
        (silent(0, "No such file", 0.01), FAIL, "/home: No such file"),
        (
            with_shared(point="/", type="ext4"),
            FAIL,
            "/home: nothing is mounted there, it is a folder of the node's own root",
        ),
        (
            with_shared(1, write_error="Read-only"),
            FAIL,
            "/scratch: cannot be written to: Read-only",
        ),
        (with_shared(type="xfs"), WARN, "/home: xfs is the filesystem of a local disk"),
    ],
    "infiniband": [
        (one_port_is(**DOWN), FAIL, "mlx5_3:1: DOWN, Disabled"),
        (one_port_is(phys_state="2: Polling"), FAIL, "mlx5_3:1: ACTIVE, Polling"),
        (one_port_is(state="2: INIT"), FAIL, "mlx5_3:1: INIT, LinkUp"),
        (one_port_is(**SLOW), FAIL, "mlx5_3:1: 200 Gbit/s, 400 declared"),
        (one_port_is(rate="800 Gb/sec (4X XDR)"), WARN, "mlx5_3:1: 800 Gbit/s, 400 declared"),
        (one_port_is(**UNTOLD), FAIL, "mlx5_3:1: does not tell its rate: Invalid argument"),
        (one_port_is(**ETHERNET, **DOWN), PASS, ""),
        (with_ports(), FAIL, "it has no RDMA device"),
        (with_ports(host.port(0, **ETHERNET)), FAIL, "that is meant: it has mlx5_0:1 (Ethernet)"),
        (with_ports(host.port(0), host.port(0)), FAIL, "the answer has a port twice"),
        (one_port_is(rate="fast"), FAIL, "'fast' is no rate of a port"),
        (one_port_is(state="ACTIVE"), FAIL, "'ACTIVE' is no state of a port"),
    ],
    "port_errors": [
        (counting(symbol_error=10**9), FAIL, "mlx5_3:1: 1,000,000,000 symbol errors, 4,166,667 an"),
        (counting(symbol_error=240 * 200), WARN, "mlx5_3:1: 48,000 symbol errors, 200 an hour"),
        (counting(symbol_error=240 * 100, link_downed=10), PASS, ""),
        (counting(link_downed=5000), FAIL, "mlx5_3:1: the link went down 5,000 times"),
        (counting(link_downed=12), WARN, "mlx5_3:1: the link went down 12 times"),
        (counting(link_error_recovery=101), FAIL, "mlx5_3:1: the link trained again 101 times"),
        (counting(later={"symbol_error": 10}), FAIL, "mlx5_3:1: 10 symbol errors in 2 s"),
        (counting(later={"symbol_error": 1}), WARN, "mlx5_3:1: 1 symbol errors in 2 s"),
        (counting(later={"link_downed": 2}), FAIL, "mlx5_3:1: the link went down 1 times in 2 s"),
        (counting(symbol_error=5, later={"symbol_error": 0}), PASS, ""),  # set back meanwhile
        (counting(symbol_error=None, link_downed=None), PASS, ""),
        (with_ports(), UNKNOWN, "there is no port to look at, see infiniband"),
    ],
    "disk": [
        (with_disk(wrong=3), FAIL, "3 bytes came back as others than were written"),
        (with_disk(error="reading: Input/output error"), FAIL, "/tmp: reading: Input/output error"),
        (with_disk(bytes=0), FAIL, "0 wrong bytes in a file of 0"),
        (with_disk(read_s=0.0), FAIL, "disk read: 268435456 bytes in 0 s"),
        (with_disk(read_s=5e-324), FAIL, "disk read: 268435456 bytes in 4.94066e-324 s"),
        (with_disk(cache="unknown"), FAIL, "cache is 'unknown'"),
        (with_disk(cache="dropped"), PASS, ""),
    ],
    "host_memory": [
        (with_core(wrong=1), FAIL, "1 bytes came back as others than were written"),
        (with_core(copies=0), FAIL, "CPU 1: 0 copies in"),
        (with_core(seconds=0.01), FAIL, "CPU 1: 200 copies in 0.01 s"),
        (with_core(cpu=0), FAIL, "the cores that copied are not each named once"),
    ],
}


@pytest.mark.parametrize(
    ("check", "measured", "verdict", "words"),
    [(check, *case) for check, cases in CASES.items() for case in cases],
)
def test_what_is_wrong_shows(check, measured, verdict, words):
    result = judge(check, measured)
    assert result.verdict is verdict
    assert words in result.message
    assert bool(result.message) == bool(words)


# --- by what is declared ---------------------------------------------------------------------


def test_locked_memory_matters_where_rdma_is_declared():
    measured = with_limits(memlock={"soft": 65536, "hard": 65536})
    assert judge("limits", measured, job_for("limits", "ethernet")).verdict is PASS
    assert judge("limits", measured, job_for("limits", "roce_100")).verdict is FAIL


def test_shared_memory_is_measured():
    result = judge("limits", with_shm(type="tmpfs", size_mb=4096, free_mb=2048), job_for("limits"))
    values = {metric.name: metric.value for metric in result.metrics}
    assert [values[f"shm {what}"] for what in ("type", "size", "free")] == ["tmpfs", 4096, 2048]


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
    ("fabric", "expected"),
    [
        ("ib_hdr200", infiniband.Fabric("InfiniBand", 200)),
        ("roce_25", infiniband.Fabric("Ethernet", 25)),
        ("ib_x", infiniband.Fabric("InfiniBand", None)),
        ("ethernet", None),
        ("efa_400", None),
    ],
)
def test_the_words_of_the_contract_say_what_a_port_is(fabric, expected):
    assert infiniband.declared(fabric) == expected


def test_errors_of_a_port_of_which_it_is_not_known_whether_it_is_meant_are_a_warning():
    ports = [
        host.port(number, link_layer="Ethernet", counters={**host.COUNTERS, "link_downed": downed})
        for number, downed in enumerate((1, 5000))
    ]
    job = job_for("port_errors", "roce_100")
    assert judge("port_errors", with_ports(*ports), job).verdict is WARN
    job = job_for("port_errors", "roce_100", hcas="mlx5")
    assert judge("port_errors", with_ports(*ports), job).verdict is FAIL
    job = job_for("port_errors", "roce_100", hcas="mlx5_0")
    assert judge("port_errors", with_ports(*ports), job).verdict is PASS


def test_a_node_that_has_just_started_may_have_trained_its_links():
    measured = counting(symbol_error=100)
    measured["infiniband"]["uptime_s"] = 60.0
    assert judge("port_errors", measured).verdict is PASS


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


# --- what any machine reaches ------------------------------------------------------------------


DISK = 268435456  # bytes, as the suites have it


@pytest.mark.parametrize(
    ("seconds", "verdict", "words"),
    [
        (1000, FAIL, "disk write 0.0002684 GB/s, any machine does 0.002"),
        (10, WARN, "disk write 0.02684 GB/s, any machine does 0.05"),
        (2.5, PASS, ""),  # a hard disk
    ],
)
def test_a_disk_slower_than_any_is_found_without_a_threshold_of_the_site(seconds, verdict, words):
    result = judge("disk", with_disk(bytes=DISK, write_s=seconds))
    assert (result.verdict, result.message) == (verdict, words)
    for cache in ("dropped", "in memory"):  # too slow for a cache is too slow for a disk
        result = judge("disk", with_disk(bytes=DISK, write_s=seconds, cache=cache))
        assert (result.verdict, result.message) == (verdict, words)


def test_a_sites_own_threshold_says_more_than_the_floor(tmp_path):
    rules = site(tmp_path, disk_write_gbs={"fail_below_gbs": 1.0})
    result = judge("disk", with_disk(write_s=2.5), rules=rules)
    assert (result.verdict, result.message) == (FAIL, "disk write 0.1074 GB/s, 1.0 are needed")


def test_memory_slower_than_any_is_found():
    measured = healthy("host_memory")
    for core in measured["memory"]["found"]["cores"]:
        core["copies"] = 1
    result = judge("host_memory", measured)
    assert (result.verdict, result.value.name) == (FAIL, "memory copy")
    assert result.message == "memory copy 0.1341 GB/s, any machine does 0.2"


# --- cores -------------------------------------------------------------------------------------


def with_cores(*factors, how=("alone", "together"), wrong=0):
    """Each core takes so much longer than a healthy one."""
    measured = healthy("cores")
    tried = {"tries": 900, "best_s": 0.0002, "wrong": 0}
    cores = []
    for cpu, factor in enumerate(factors):
        slow = {**tried, "best_s": 0.0002 * factor, "wrong": wrong}
        cores.append({"cpu": cpu, "alone": dict(tried), "together": dict(tried)})
        cores[-1].update({name: dict(slow) for name in how})
    measured["cores"]["found"]["cores"] = cores
    return measured


HYBRID = (*[1.0] * 8, *[2.2] * 16)  # efficient cores beside fast ones, and the other way round


@pytest.mark.parametrize(
    ("measured", "verdict", "words"),
    [
        (
            with_cores(*[1] * 63, 200),
            FAIL,
            "CPU 63: 0.00655 GB/s alone, the median of 64 cores is 1.31",
        ),
        (with_cores(1, 1, 200, how=["together"]), FAIL, "CPU 2: 0.00655 GB/s together, the median"),
        (with_cores(1, 200), FAIL, "CPU 1: 0.00655 GB/s alone, the median of 2 cores is 0.659"),
        (with_cores(1, 1, 3), WARN, "CPU 2: 0.437 GB/s alone, the median of 3 cores is 1.31"),
        (with_cores(*[1] * 6, *[9] * 5), FAIL, "CPU 6: 0.146 GB/s alone"),
        (with_cores(*HYBRID), PASS, ""),
        (with_cores(*[2.2] * 8, *[1.0] * 16), PASS, ""),
        (with_cores(*(1 + cpu % 5 / 4 for cpu in range(48))), PASS, ""),  # a noisy hypervisor
        (with_cores(1), PASS, ""),
        (with_cores(1, 1, wrong=1), FAIL, "4 hashes are wrong"),
        (with_cores(*[200] * 4), FAIL, "the median core hashes 0.00655 GB/s, 0.01 are needed"),
        (with_cores(1, 0.001), FAIL, "CPU 1: 900 tries alone, the best in 2e-07 s"),
    ],
)
def test_a_slow_core_is_named(measured, verdict, words):
    result = judge("cores", measured)
    assert result.verdict is verdict
    assert result.message.startswith(words)
    assert bool(result.message) == bool(words)


def test_many_slow_cores_are_counted():
    message = judge("cores", with_cores(*[1] * 60, *[200] * 5)).message
    assert message.endswith("; and 2 more")
