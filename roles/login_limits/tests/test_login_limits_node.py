"""What is read of a host."""

from subprocess import CompletedProcess

import pytest

from roles.login_limits.library import login_limits_node as reader

CGROUP2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"
HYBRID = (
    "tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0\n"
    "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
    "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0\n"
)
V1 = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n"


@pytest.fixture
def host(tmp_path):
    """One user is logged in, and a user manager's own slice lies below."""
    fake = reader.Host(tmp_path / "proc", tmp_path / "cgroup", tmp_path / "linger")
    (fake.proc / "sys/kernel").mkdir(parents=True)
    (fake.proc / "meminfo").write_text("MemTotal:  2048 kB\nSwapTotal: 0 kB\nHugePages_Total: 0\n")
    (fake.proc / "mounts").write_text(CGROUP2)
    (fake.proc / "sys/kernel/pid_max").write_text("32768\n")
    (fake.proc / "sys/kernel/threads-max").write_text("15000\n")
    slice_of = fake.slice(2001)
    slice_of.mkdir(parents=True)
    (fake.cgroup / "cgroup.controllers").write_text("cpu io memory pids\n")
    (slice_of / "cpu.max").write_text("80000 100000\n")
    (slice_of / "io.weight").write_text("default 30\n8:0 10\n")
    fake.linger.mkdir()
    (fake.linger / "alice").touch()
    return fake


@pytest.fixture
def replies(monkeypatch):
    """Answers of commands, by the first two words."""
    answers: dict[str, str] = {}

    def run(*command):
        return CompletedProcess(command, 0, answers.get(" ".join(command[:2]), ""), "")

    monkeypatch.setattr(reader, "run", run)
    return answers


@pytest.mark.parametrize(
    ("mounts", "version"), [(CGROUP2, "v2"), (HYBRID, "hybrid"), (V1, "v1"), ("", "no version")]
)
def test_the_version_of_cgroups(mounts, version):
    assert reader.cgroup_version(mounts) == version


def test_a_host_is_read_as_it_is(host, replies):
    state = reader.node(host, ["root", "nobody-of-this-name"], False)
    assert (state["cgroup"], state["memory"], state["swap"]) == ("v2", 2 << 20, 0)
    assert state["controllers"] == ["cpu", "io", "memory", "pids"]
    assert state["tasks"] == 15000
    assert state["users"] == {"root": 0, "nobody-of-this-name": None}
    assert state["slices"] == {"2001": {"cpu.max": "80000 100000", "io.weight": "30"}}
    assert state["linger"] == ["alice"]
    assert state["free"] == []


def test_of_v1_nothing_more_is_asked(host, replies):
    (host.proc / "mounts").write_text(HYBRID)
    state = reader.node(host, [], True)
    assert (state["cgroup"], state["controllers"], state["slices"]) == ("hybrid", [], {})


def test_a_probe_is_the_first_line_of_each_file(host, replies):
    replies["systemd-run --quiet"] = "cpu.max 80000 100000\nmemory.max max\nio.weight default 30\n"
    state = reader.node(host, [], True)
    assert state["probe"] == {"cpu.max": "80000 100000", "memory.max": "max", "io.weight": "30"}
    assert state["probe_error"] == ""


def test_who_is_free_is_what_systemd_reads(replies, monkeypatch):
    monkeypatch.setattr(reader, "uid_of", {"root": 0, "ops": 1000, "late": 1001}.get)
    replies["systemctl show"] = (
        "Id=user-0.slice\nDropInPaths=/x/user-0.slice.d/50-plumbline.conf\nNeedDaemonReload=no\n\n"
        "Id=user-1000.slice\nDropInPaths=/x/user-.slice.d/50-plumbline.conf\nNeedDaemonReload=no\n"
        "\nId=user-1001.slice\nDropInPaths=\nNeedDaemonReload=yes\n"
    )
    assert reader.free_users({"root": 0, "ops": 1000, "late": 1001, "unknown": None}) == ["root"]


def test_slices_that_systemd_has_not_read_anew(replies):
    replies["systemctl show"] = (
        "Id=user-0.slice\nNeedDaemonReload=no\n\nId=user-2001.slice\nNeedDaemonReload=yes\n"
    )
    assert reader.waiting_for_reload() == ["user-2001.slice"]


def test_logind_is_asked_itself(replies):
    replies["busctl get-property"] = "b true\n"
    assert reader.logind() == {"RemoveIPC": "yes", "KillUserProcesses": "yes"}
    replies["busctl get-property"] = ""
    assert reader.logind() == {}


def test_who_logged_in_is_not_whom_sudo_makes_of_him(monkeypatch):
    monkeypatch.setenv("SUDO_UID", "0")
    assert reader.operator() == "root"
    monkeypatch.setenv("SUDO_UID", "3999999999")
    assert reader.operator() == "3999999999"


def test_a_command_that_cannot_be_started_has_no_answer():
    done = reader.run("/nonexistent/command")
    assert (done.returncode, done.stdout) == (1, "")
