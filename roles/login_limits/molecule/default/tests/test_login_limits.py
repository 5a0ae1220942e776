"""Users who log in to a node, what they may take, and what is left to the others."""

import shlex

import pytest

from roles.login_limits.molecule.parts import (
    LIMITED,
    LOGIN,
    SLICES,
    UIDS,
    allocate,
    events,
    kernel,
    limit,
    run_as,
    sleeping,
    until,
)
from tests.role_play import Case


@kernel
def test_the_kernel_holds_a_session_to_what_is_declared(host, session):
    cpus = int(host.check_output("nproc"))
    assert limit(host, "alice", "cpu.max") == f"{cpus * 40_000} 100000"
    assert limit(host, "alice", "cpu.weight") == "50"
    assert limit(host, "alice", "memory.high") == str(250 << 20)
    assert limit(host, "alice", "memory.max") == str(256 << 20)
    assert limit(host, "alice", "memory.swap.max") == "0"
    assert limit(host, "alice", "pids.max") == "100"
    cgroup = host.check_output(f"cat /proc/{session}/cgroup")
    assert cgroup.startswith("0::/user.slice/user-2001.slice/")


@kernel
def test_who_takes_too_much_memory_is_killed_and_nobody_else(host, session):
    with host.sudo():
        host.check_output(
            f"systemd-run --quiet --collect --unit=work-of-bob {LOGIN} bob@localhost "
            + shlex.quote("python3 -c 'import time; x = b\"x\" * (150 << 20); time.sleep(600)'")
        )
        host.check_output(
            "systemd-run --quiet --collect --unit=work-of-root "
            "python3 -c 'import time; x = b\"x\" * (400 << 20); time.sleep(600)'"
        )
        memory = f"cat {SLICES}/user-{UIDS['bob']}.slice/memory.current"
        until(lambda: int(host.run(memory).stdout or 0) > 150 << 20)
    try:
        before = int(events(host, "alice")["oom_kill"])
        greedy = run_as(host, "alice", allocate(700))
        assert (greedy.rc, greedy.stdout) == (137, "")
        assert int(events(host, "alice")["oom_kill"]) > before
        assert int(events(host, "bob")["oom_kill"]) == 0
        assert sleeping(host) == [session]
        for unit in ("work-of-bob", "work-of-root"):
            state = host.check_output(f"systemctl show {unit} --property=SubState --value")
            assert state == "running"
        assert run_as(host, "alice", allocate(100)).stdout == "100\n"
        assert host.check_output(allocate(400)) == "400"  # ops
    finally:
        with host.sudo():
            host.run("systemctl stop work-of-bob work-of-root")


@kernel
def test_who_takes_all_cpus_waits(host, session):
    busy = (
        "timeout 3 sh -c 'while :; do :; done & while :; do :; done & while :; do :; done & wait'"
    )
    run_as(host, "alice", busy)
    counters = dict(line.split() for line in limit(host, "alice", "cpu.stat").splitlines())
    assert int(counters["nr_throttled"]) > 0


@kernel
def test_who_starts_too_many_tasks_gets_no_more(host, session):
    start = "threading.Thread(target=time.sleep, args=(5,)).start()"
    many = f"python3 -c 'import threading, time; [{start} for _ in range(200)]'"
    assert "can't start new thread" in run_as(host, "alice", many).stderr
    assert run_as(host, "bob", many).rc != 0
    with host.sudo():
        host.check_output(many)
    assert run_as(host, "alice", "echo works").stdout == "works\n"


@kernel
def test_services_and_the_exempt_have_no_limits(host):
    with host.sudo():
        root = f"{LOGIN} root@localhost"
        host.check_output("cat /root/.ssh/users.pub >> /root/.ssh/authorized_keys")
        cgroup = host.check_output(f"{root} cat /proc/self/cgroup")
        assert cgroup.startswith("0::/user.slice/user-0.slice/")
        read = f"cat {SLICES}/user-0.slice/memory.max"
        assert host.check_output(f"{root} {read}") == "max"
        assert host.check_output("cat /sys/fs/cgroup/system.slice/memory.max") == "max"
        assert host.check_output("cat /sys/fs/cgroup/system.slice/ssh.service/memory.max") == "max"
    assert host.check_output("cat /proc/self/cgroup").startswith("0::/user.slice/user-1000.slice/")
    assert limit(host, "ops", "memory.max") == "max"
    assert limit(host, "ops", "cpu.max") in {"max", "max 100000"}


@pytest.mark.long
@kernel
def test_what_the_node_cannot_have_is_refused(attempts):
    outcomes = attempts(
        [
            Case("memory", {"login_limits_memory_max": "9000G"}),
            Case("cpus", {"login_limits_cpu_quota": "9000"}),
            Case("operator", {"login_limits_exempt": []}),
        ]
    )
    outcomes["memory"].refuses("login_limits_memory_max is 9000G, and node has")
    outcomes["cpus"].refuses("login_limits_cpu_quota is 9000, and node has")
    outcomes["operator"].refuses("logs in to node as ops, whom the limits would hit")


@pytest.mark.skipif(LIMITED, reason="this node can have limits")
def test_limits_for_a_node_that_cannot_have_them_are_refused_and_nothing_is_left(host, attempts):
    """What is left of this scenario where it has no kernel of its own: nothing is limited."""
    outcomes = attempts([Case("limits", {"login_limits_cpu_quota": "40%"}), Case("none")])
    outcomes["limits"].refuses("and only v2 holds users to limits")
    assert outcomes["limits"].changed == 0
    outcomes["none"].passes(changed=False)
    assert not host.file("/etc/systemd/system/user-.slice.d/50-plumbline.conf").exists
