"""The payloads host and host_speed on this machine, whole and broken on purpose."""

import errno
import fcntl
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster import apart
from cluster.errors import CannotRun
from cluster.readers import infiniband, mounts
from validation.payloads import cores as cores_payload
from validation.payloads import disk, each_core, host, host_memory, host_speed, limits, shared_fs
from validation.payloads.config import load
from validation.tests import standin_host
from validation.tests.processes import runs, wait_for

ROOT = Path(__file__).parents[2]
MIB = 2**20
SPEED: dict[str, Any] = {"disk_bytes": 16 * MIB, "disk_s": 5, "memory_s": 0.05, "limit_s": 120}


def as_json(value):
    return json.loads(json.dumps(value))


# --- a process of its own ------------------------------------------------------------------------


def test_each_work_has_its_own_end():
    def complain():
        raise OSError(errno.EIO, "Input/output error")

    ends = apart.run([lambda: {"a": 1}, complain, lambda: 1 / 0, lambda: os._exit(3)], 20)
    assert [end.answer for end in ends] == [{"a": 1}, None, None, None]
    assert [end.error for end in ends] == [
        None,
        "Input/output error",
        "ZeroDivisionError: division by zero",
        "its process was killed, or ended without an answer",
    ]


def test_what_hangs_is_killed_with_all_it_started(tmp_path):
    """A pipe that nobody writes to: opening it never returns, as a file of a dead server."""
    fifo, started = tmp_path / "fifo", tmp_path / "started"
    os.mkfifo(fifo)

    def hang():
        child = subprocess.Popen(["sleep", "600"])
        started.write_text(f"{os.getpid()} {child.pid}")
        fifo.read_text()

    hung, well = apart.run([hang, lambda: "well"], 1.5)
    assert (hung.answer, hung.error) == (None, "did not answer within 1.5 s")
    assert (well.answer, well.error) == ("well", None)
    assert well.seconds < 1.5
    processes = list(map(int, started.read_text().split()))
    wait_for(lambda: not any(map(runs, processes)), seconds=10)


def test_what_ignores_every_signal_but_one_is_killed_too():
    def deaf():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(600)

    (end,) = apart.run([deaf], 0.5)
    assert end.error == "did not answer within 0.5 s"


# --- mounts ----------------------------------------------------------------------------------


MOUNTINFO = r"""
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
40 22 0:35 / /home rw,nosuid shared:20 master:3 - nfs4 nas:/export/home rw,vers=4.2,hard
41 40 0:36 / /home/big\040data rw - lustre 10.0.0.1@o2ib:/fs rw
42 22 0:50 / /scratch rw - autofs systemd-1 rw
43 42 0:51 / /scratch rw - nfs4 nas:/scratch rw
"""


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/tmp", mounts.Mount("/", "ext4", "/dev/nvme0n1p2")),
        ("/home", mounts.Mount("/home", "nfs4", "nas:/export/home")),
        ("/home/alice", mounts.Mount("/home", "nfs4", "nas:/export/home")),
        ("/homes", mounts.Mount("/", "ext4", "/dev/nvme0n1p2")),
        ("/home/big data/x", mounts.Mount("/home/big data", "lustre", "10.0.0.1@o2ib:/fs")),
        ("/scratch", mounts.Mount("/scratch", "nfs4", "nas:/scratch")),  # over the automounter's
    ],
)
def test_the_mount_that_a_path_lies_on(tmp_path, path, mount):
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTINFO)
    assert mounts.covering(path, table) == mount


def test_a_path_on_no_mount_is_an_error(tmp_path):
    (tmp_path / "mountinfo").write_text("garbage\n")
    with pytest.raises(RuntimeError, match="has no mount for /tmp"):
        mounts.covering("/tmp", tmp_path / "mountinfo")


# --- limits --------------------------------------------------------------------------------------


def test_the_limits_are_those_of_the_shell():
    values = limits.read()
    flags = {"memlock": ("l", 1024), "nofile": ("n", 1), "stack": ("s", 1024)}
    for name, (flag, unit) in flags.items():
        for which, kind in (("soft", "S"), ("hard", "H")):
            command = ["bash", "-c", f"ulimit -{kind}{flag}"]
            output = subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout.strip()
            expected = "unlimited" if output == "unlimited" else int(output) * unit
            assert values[name][which] == expected
    assert values["shm"]["error"] is None


def test_shared_memory_that_is_not_there(tmp_path):
    shm = limits.read(tmp_path / "none")["shm"]
    assert (shm["error"], shm["free_mb"]) == ("No such file or directory", 0)


# --- shared filesystems --------------------------------------------------------------------------


def test_a_folder_that_can_be_written_to(tmp_path):
    folder = as_json(shared_fs.look(str(tmp_path)))
    assert (folder["written"], folder["write_error"]) == (str(tmp_path), None)
    assert folder["inode"] == tmp_path.stat().st_ino
    assert folder["free_mb"] > 0
    assert not list(tmp_path.iterdir())


def not_root(work):
    """The answer of a user who may not write everywhere."""

    def as_nobody():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        return work()

    (end,) = apart.run([as_nobody if os.getuid() == 0 else work], 20)
    assert end.error is None
    return end.answer


@pytest.fixture
def open_path():
    """A folder that other users reach, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="plumbline-test-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def test_a_folder_that_may_not_be_written_to(open_path):
    open_path.chmod(0o555)
    folder = not_root(partial(shared_fs.look, str(open_path), home="/elsewhere"))
    assert (folder["written"], folder["write_error"]) == (None, "this user may not write there")


def test_the_home_below_is_written_to(open_path):
    home = open_path / "alice"
    home.mkdir()
    home.chmod(0o777)
    open_path.chmod(0o555)
    folder = not_root(partial(shared_fs.look, str(open_path), home=str(home)))
    assert (folder["written"], folder["write_error"]) == (str(home), None)
    home.chmod(0o555)
    folder = not_root(partial(shared_fs.look, str(open_path), home=str(home)))
    assert folder["write_error"] == "Permission denied"
    open_path.chmod(0o755)


def test_other_data_than_was_written_shows(tmp_path, monkeypatch):
    other = io.BytesIO(bytes(shared_fs.SIZE))
    monkeypatch.setattr(shared_fs, "open", lambda name, mode: other, raising=False)
    folder = shared_fs.look(str(tmp_path))
    assert folder["write_error"] == "what is read back is not what was written"


def test_a_filesystem_that_hangs_does_not_hang_the_payload(tmp_path, monkeypatch):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    usual = os.listdir

    def listdir(path):
        return fifo.read_text() if str(path) == "/hung" else usual(path)

    monkeypatch.setattr(os, "listdir", listdir)
    config = host.Config(limit_s=1.5, shared_filesystems=("/hung", str(tmp_path), "/none/at/all"))
    started = time.monotonic()
    results = as_json(host.measure(config))
    assert time.monotonic() - started < 10
    hung, well, none = results["shared_filesystems"]
    assert (hung["found"], hung["error"]) == (None, "did not answer within 1.5 s")
    assert well["error"] is None
    assert none["error"] == "No such file or directory"
    assert results["infiniband"]["error"] is None


# --- RDMA ports ----------------------------------------------------------------------------------


def device(root, name, *ports):
    """A device as the kernel shows it; `ports` are those of the stand-in."""
    folder = root / name
    for number, port in enumerate(ports, 1):
        place = folder / "ports" / str(number)
        (place / "counters").mkdir(parents=True)
        for what in infiniband.STATES:
            (place / what).write_text(f"{port[what]}\n")
        for what, count in port["counters"].items():
            (place / "counters" / what).write_text(f"{count}\n")
    (folder / "fw_ver").write_text("28.39.2048\n")
    (folder / "board_id").write_text("MT_0000000838\n")
    return folder


def test_ports_are_read_as_the_kernel_shows_them(tmp_path):
    ports = [standin_host.port(number) for number in range(10, 12)]
    for port in ports:
        device(tmp_path, port["device"], port)
    (tmp_path.parent / "uptime").write_text("4711.25 9000.00\n")
    answer = as_json(host.ports_twice(tmp_path, tmp_path.parent / "uptime"))
    assert answer["ports"] == ports
    assert (answer["uptime_s"], answer["seconds"]) == (4711.25, pytest.approx(2, abs=1))


def test_what_ports_count_while_they_are_looked_at(tmp_path, monkeypatch):
    place = device(tmp_path, "mlx5_0", standin_host.port(0)) / "ports" / "1" / "counters"
    waited = []

    def wait(seconds):
        waited.append(seconds)
        (place / "symbol_error").write_text("1000\n")

    monkeypatch.setattr(time, "sleep", wait)
    (port,) = host.ports_twice(tmp_path)["ports"]
    assert (port["counters"]["symbol_error"], port["later"]["symbol_error"]) == (0, 1000)
    assert waited == [host.LOOK_S]
    assert host.ports_twice(tmp_path / "none")["ports"] == []
    assert len(waited) == 1


def test_a_second_port_and_one_that_is_down(tmp_path):
    down = standin_host.port(0, state="1: DOWN", phys_state="2: Polling")
    device(tmp_path, "mlx5_0", standin_host.port(0), down)
    ports = infiniband.read(tmp_path)
    assert [(port["port"], port["state"]) for port in ports] == [(1, "4: ACTIVE"), (2, "1: DOWN")]


def test_a_file_that_cannot_be_read_says_so(tmp_path):
    place = device(tmp_path, "mlx5_0", standin_host.port(0)) / "ports" / "1"
    (place / "rate").unlink()
    (place / "counters" / "symbol_error").unlink()
    (port,) = infiniband.read(tmp_path)
    assert (port["rate"], port["counters"]["symbol_error"]) == (None, None)
    assert port["unread"] == dict.fromkeys(("rate", "symbol_error"), "No such file or directory")


def test_no_device_is_no_port(tmp_path):
    assert infiniband.read(tmp_path / "infiniband") == []


# --- the disk --------------------------------------------------------------------------------


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def measured(most=16 * MIB, seconds=5.0, memory=16 * MIB):
    return as_json(disk.measure(most, seconds, memory))


def test_the_disk_keeps_what_is_written(scratch):
    result = measured()
    assert (result["error"], result["wrong"], result["bytes"]) == (None, 0, 16 * MIB)
    assert result["cache"] in (disk.DIRECT, disk.DROPPED, disk.IN_MEMORY)
    assert result["write_s"] > 0
    assert result["read_s"] > 0
    assert not list(scratch.iterdir())


def test_no_more_is_written_than_there_is_time_for(scratch):
    assert measured(seconds=1e-9)["bytes"] == disk.BLOCK


def test_no_more_is_written_than_a_quarter_of_what_is_free(scratch, monkeypatch):
    space = os.statvfs(scratch)
    few = 40 * MIB // space.f_frsize
    fields = [few if i == 4 else value for i, value in enumerate(space)]  # f_bavail
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))
    assert measured(most=64 * MIB)["bytes"] == 8 * MIB
    fields[4] = MIB // space.f_frsize
    result = measured()
    assert (result["error"], result["bytes"]) == ("no room for a file of 4 MiB", 0)


def test_a_file_in_memory_is_bounded_by_the_memory(scratch, monkeypatch):
    monkeypatch.setattr(mounts, "covering", lambda path: mounts.Mount("/tmp", "tmpfs", "tmpfs"))
    result = measured(memory=8 * MIB)
    assert (result["bytes"], result["cache"]) == (8 * MIB, disk.IN_MEMORY)


def test_without_a_way_round_the_page_cache_it_is_said(scratch, monkeypatch):
    def refuse(descriptor, command, *rest):
        if command == fcntl.F_SETFL:
            raise OSError(errno.EINVAL, "Invalid argument")
        return 0

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    result = measured()
    assert (result["cache"], result["error"], result["wrong"]) == (disk.DROPPED, None, 0)


def test_a_wrong_byte_shows(scratch, monkeypatch):
    usual = os.preadv

    def flip(descriptor, buffers, offset):
        count = usual(descriptor, buffers, offset)
        if offset == disk.BLOCK:
            buffers[0][5000] ^= 4
        return count

    monkeypatch.setattr(os, "preadv", flip)
    assert measured()["wrong"] == 1


def test_a_page_that_is_anothers_shows(scratch, monkeypatch):
    usual = os.preadv
    other = disk.BLOCK
    monkeypatch.setattr(os, "preadv", lambda d, buffers, offset: usual(d, buffers, other))
    assert measured()["wrong"] > 0


def test_a_read_that_brings_nothing_shows(scratch, monkeypatch):
    monkeypatch.setattr(os, "preadv", lambda descriptor, buffers, offset: disk.BLOCK)
    assert measured()["wrong"] > disk.BLOCK


@pytest.mark.parametrize(
    ("call", "words"), [("pwritev", "writing"), ("fsync", "writing"), ("preadv", "reading")]
)
def test_an_error_of_the_disk_is_told(scratch, monkeypatch, call, words):
    def fail(*arguments):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, call, fail)
    assert measured()["error"] == f"{words}: Input/output error"


def test_a_call_that_stops_half_way_is_an_error(scratch, monkeypatch):
    monkeypatch.setattr(os, "pwritev", lambda descriptor, buffers, offset: 512)
    assert measured()["error"] == f"writing: 512 bytes of {disk.BLOCK}"


def test_a_folder_that_is_read_only(open_path, monkeypatch):
    open_path.chmod(0o555)
    monkeypatch.setattr(tempfile, "tempdir", str(open_path))
    result = not_root(measured)
    assert result["error"] == "a file cannot be made: Permission denied"
    space = os.statvfs(open_path)
    fields = [value | os.ST_RDONLY if i == 8 else value for i, value in enumerate(space)]
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))
    assert measured()["error"] == "Read-only file system"


# --- the memory ------------------------------------------------------------------------------


def test_the_memory_is_copied_on_every_core():
    result = as_json(host_memory.measure(0.05, 64 * MIB))
    cores = each_core.one_of_each(os.sched_getaffinity(0))
    assert [core["cpu"] for core in result["cores"]] == cores
    for core in result["cores"]:
        assert core["copies"] >= 1
        assert core["seconds"] >= 0.05
        assert core["wrong"] == 0
    assert result["array_bytes"] == 64 * MIB // (2 * len(cores))


class Faulty:
    """Memory in which a bit falls over with each copy."""

    def __init__(self, memory):
        self._view = memoryview(memory)

    def __setitem__(self, place, value):
        if isinstance(value, Faulty):
            self._view[place] = value._view
            self._view[4097] ^= 4
        else:
            self._view[place] = value

    def __getitem__(self, place):
        return self._view[place]


def test_a_wrong_bit_shows(monkeypatch):
    monkeypatch.setattr(host_memory, "memoryview", Faulty, raising=False)
    result = host_memory.measure(0.01, 16 * MIB)
    assert [core["wrong"] for core in result["cores"]] == [1] * len(result["cores"])


def test_one_byte_of_many_is_counted():
    assert disk.different(b"abcd" * 1000, b"abcd" * 1000) == 0
    assert disk.different(b"abcd", b"abce") == 1


def test_every_core_is_timed_alone_and_with_the_others():
    allowed = os.sched_getaffinity(0)
    result = as_json(cores_payload.measure())
    assert [core["cpu"] for core in result["cores"]] == each_core.one_of_each(allowed)
    for core in result["cores"]:
        for how in ("alone", "together"):
            assert core[how]["tries"] >= cores_payload.FEWEST
            assert 0 < core[how]["best_s"] < 1
            assert core[how]["wrong"] == 0
    assert os.sched_getaffinity(0) == allowed


def test_a_core_that_computes_wrong_shows(monkeypatch):
    monkeypatch.setattr(cores_payload, "DIGEST", "another")
    for core in cores_payload.measure()["cores"]:
        assert core["alone"]["wrong"] == core["alone"]["tries"]
        assert core["together"]["wrong"] == core["together"]["tries"]


def test_a_slow_core_has_no_good_try(monkeypatch):
    """200 times slower, as an interrupted one is not: that has some good tries."""
    usual, slow = time.perf_counter, {min(os.sched_getaffinity(0))}
    calls = iter(range(10**9))

    def clock():
        factor = 200 if os.sched_getaffinity(0) == slow else 1
        return usual() * factor + (0.05 if next(calls) % 9 == 0 else 0)

    monkeypatch.setattr(time, "perf_counter", clock)
    slowest, *others = cores_payload.measure()["cores"]
    for other in others:
        assert slowest["alone"]["best_s"] > 20 * other["alone"]["best_s"]


def test_a_process_that_dies_is_told(monkeypatch):
    monkeypatch.setattr(os, "sched_setaffinity", lambda *arguments: os.kill(os.getpid(), 9))
    with pytest.raises(CannotRun, match=r"did not end well, on CPU .* with signal 9"):
        host_memory.measure(0.01, 64 * MIB)


def test_too_little_memory_is_told():
    with pytest.raises(CannotRun, match="0 MiB of memory are too few"):
        host_memory.measure(0.01, 1000)


@pytest.mark.parametrize(
    ("cores", "caches", "memory", "size"),
    [
        (2, 0, 2**40, 16 * MIB),  # the least
        (2, 32 * MIB, 2**40, 64 * MIB),  # four times the caches, by both
        (192, 2304 * MIB, 2**40, 48 * MIB),  # two sockets with stacked caches
        (2, 32 * MIB, 100 * MIB, 25 * MIB),  # a small node
        (64, 32 * MIB, 100 * MIB, 0),
    ],
)
def test_arrays_are_as_large_as_the_caches_and_the_memory_say(cores, caches, memory, size):
    assert host_memory.array_bytes(cores, caches, memory) == size


def test_two_threads_of_a_core_are_one_and_its_cache_counts_once(tmp_path):
    for cpu, core in ((0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")):
        (tmp_path / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(f"{core}\n")
        for index, (level, size, shared) in enumerate(((1, "48K", core), (3, "96M", "0-3"))):
            place = tmp_path / f"cpu{cpu}" / "cache" / f"index{index}"
            place.mkdir(parents=True)
            (place / "level").write_text(f"{level}\n")
            (place / "size").write_text(f"{size}\n")
            (place / "shared_cpu_list").write_text(f"{shared}\n")
    assert each_core.one_of_each({1, 2, 3}, tmp_path) == [1, 2]
    assert host_memory.cache_bytes([1, 2], tmp_path) == 96 * MIB
    assert each_core.one_of_each({0, 1}, tmp_path / "none") == [0, 1]
    assert host_memory.cache_bytes([0, 1], tmp_path / "none") == 0


def test_what_is_free_is_at_most_what_the_job_may_have(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    assert host_memory.available_bytes(None, tmp_path / "meminfo") == 2 * MIB
    assert host_memory.available_bytes(1, tmp_path / "meminfo") == MIB
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\n")
    with pytest.raises(CannotRun, match="has no MemAvailable"):
        host_memory.available_bytes(None, tmp_path / "meminfo")


# --- the whole payloads --------------------------------------------------------------------------


def test_only_what_is_asked_is_measured(scratch):
    results = host_speed.measure(host_speed.Config(disk=True, memory=False, cores=False, **SPEED))
    assert results["memory"] is None
    assert results["disk"]["error"] is None
    assert results["disk"]["found"]["wrong"] == 0


def test_a_disk_that_hangs_is_given_up(scratch, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: time.sleep(600))
    # Arrays as large as real caches ask for take longer than this limit on a busy machine.
    monkeypatch.setattr(host_memory, "cache_bytes", lambda *_: 0)
    config = host_speed.Config(disk=True, memory=True, cores=True, **{**SPEED, "limit_s": 20})
    results = host_speed.measure(config)
    assert results["disk"] == {"found": None, "error": "did not answer within 20 s"}
    assert results["memory"]["error"] is None
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    ("kind", "config", "complaint"),
    [
        (host.Config, {"shared_filesystems": ["home"]}, "'home', no absolute path"),
        (host.Config, {"shared_filesystems": []}, "not a list of texts"),
        (host.Config, {"limit_s": 0}, "limit_s is 0.0, not above zero"),
        (host_speed.Config, {**SPEED, "disk": True, "cores": True}, 'lacks the key "memory"'),
        (
            host_speed.Config,
            {**SPEED, "disk": True, "memory": True, "cores": True, "disk_bytes": 0},
            "disk_bytes is 0, not above zero",
        ),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(kind, config, complaint):
    with pytest.raises(CannotRun, match=re.escape(complaint)):
        load(kind, json.dumps(config))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("host", {"limit_s": 10, "shared_filesystems": ["/tmp"]}),
        ("host_speed", {**SPEED, "disk": True, "memory": True, "cores": True}),
    ],
)
def test_a_payload_answers_without_torch(tmp_path, name, config):
    (tmp_path / "torch.py").write_text("raise RuntimeError('torch was imported')\n")
    answer = subprocess.run(
        [sys.executable, "-m", "validation.payloads", name, json.dumps(config)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    document = json.loads(answer.stdout)
    assert document["payload"] == name
