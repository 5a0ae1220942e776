"""Users who log in to a node, what they may take, and what is left to the others."""

import shlex
import time

import pytest

from tests.role_play import refused

LOGIN = "ssh -q -i /root/.ssh/users -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
SLICES = "/sys/fs/cgroup/user.slice"
UIDS = {"root": 0, "ops": 1000, "alice": 2001, "bob": 2002, "carol": 2003}
UNITS = "/etc/systemd/system"
SECONDS = 60


def run_as(host, user, command):
    """In a session of the user's own, as one who came through SSH has it."""
    # Of a shell that is replaced by a killed program SSH tells no exit status.
    with host.sudo():
        return host.run(f"{LOGIN} {user}@localhost {shlex.quote(f'{command}; exit $?')}")


def allocate(mebibytes):
    return f"python3 -c 'x = b\"x\" * ({mebibytes} << 20); print(len(x) >> 20)'"


def limit(host, user, file):
    with host.sudo():
        return host.check_output(f"cat {SLICES}/user-{UIDS[user]}.slice/{file}")


def events(host, user):
    return dict(line.split() for line in limit(host, user, "memory.events").splitlines())


def until(question):
    deadline = time.monotonic() + SECONDS
    while not (answer := question()):
        assert time.monotonic() < deadline, f"nothing after {SECONDS} s"
    return answer


def sleeping(host):
    """Process IDs of what alice runs."""
    return host.run("pgrep --uid alice --exact sleep").stdout.split()


@pytest.fixture
def session(host):
    """A session of alice's that stays; the process ID of what runs in it."""
    with host.sudo():
        host.check_output(
            "systemd-run --quiet --collect --unit=session-of-alice "
            f"{LOGIN} alice@localhost sleep 600"
        )
    yield until(lambda: sleeping(host))[0]
    with host.sudo():
        host.run("systemctl stop session-of-alice")
        host.run("loginctl terminate-user alice")
    until(lambda: not sleeping(host))


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


def test_who_takes_all_cpus_waits(host, session):
    busy = (
        "timeout 3 sh -c 'while :; do :; done & while :; do :; done & while :; do :; done & wait'"
    )
    run_as(host, "alice", busy)
    told = dict(line.split() for line in limit(host, "alice", "cpu.stat").splitlines())
    assert int(told["nr_throttled"]) > 0


def test_who_starts_too_many_tasks_gets_no_more(host, session):
    start = "threading.Thread(target=time.sleep, args=(5,)).start()"
    many = f"python3 -c 'import threading, time; [{start} for _ in range(200)]'"
    assert "can't start new thread" in run_as(host, "alice", many).stderr
    assert run_as(host, "bob", many).rc != 0
    with host.sudo():
        host.check_output(many)
    assert run_as(host, "alice", "echo works").stdout == "works\n"


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


def test_a_limit_that_the_kernel_does_not_know_is_told(host, play, session):
    known = host.file(f"{SLICES}/io.weight").exists
    run = play(login_limits_io_weight="30")
    if known:
        assert run.code == 0, run.output
        assert limit(host, "alice", "io.weight") == "default 30"
    else:
        assert run.code == 2, run.output
        assert "io.weight of a new session is nothing, expected 30; a kernel" in run.output
    assert play().code == 0


def test_new_limits_hold_for_a_session_that_runs(host, play, session):
    run = play(login_limits_memory_max="300M", login_limits_cpu_quota="0.5")
    assert run.code == 0, run.output
    assert limit(host, "alice", "memory.max") == str(300 << 20)
    assert limit(host, "alice", "cpu.max") == "50000 100000"
    assert sleeping(host) == [session]

    run = play(login_limits_exempt=["ops", "alice"])
    assert run.code == 0, run.output
    assert limit(host, "alice", "memory.max") == "max"

    run = play()
    assert run.code == 0, run.output
    assert limit(host, "alice", "memory.max") == str(256 << 20)
    assert not host.file(f"{UNITS}/user-2001.slice.d").exists
    assert sleeping(host) == [session]


def test_limits_that_go_are_gone_in_a_session_that_runs(host, play, session):
    none = dict.fromkeys(
        ("cpu_quota", "cpu_weight", "memory_high", "memory_max", "tasks_max", "io_weight"), ""
    )
    run = play(**{f"login_limits_{name}": value for name, value in none.items()})
    assert run.code == 0, run.output
    assert limit(host, "alice", "memory.max") == "max"
    assert limit(host, "alice", "memory.high") == "max"
    assert limit(host, "alice", "cpu.max") == "max 100000"
    assert play().code == 0


def test_a_run_that_was_interrupted_is_mended_by_the_next(host, play, session):
    configure = {
        "ansible.builtin.include_role": {"name": "login_limits", "tasks_from": "configure"}
    }
    stop = {"ansible.builtin.fail": {"msg": "interrupted"}}
    interrupted = play([configure, stop], login_limits_memory_max="280M")
    assert "interrupted" in interrupted.output
    assert limit(host, "alice", "memory.max") == str(256 << 20)
    mended = play(login_limits_memory_max="280M")
    assert mended.code == 0, mended.output
    assert limit(host, "alice", "memory.max") == str(280 << 20)
    again = play(login_limits_memory_max="280M")
    assert (again.code, again.changed) == (0, 0), again.output
    assert play().code == 0


def test_a_percentage_of_memory_is_one_of_the_hosts(host, play, session):
    run = play(login_limits_memory_high="", login_limits_memory_max="20%")
    assert run.code == 0, run.output
    total = int(host.check_output("awk '/^MemTotal/ {print $2}' /proc/meminfo")) << 10
    assert abs(int(limit(host, "alice", "memory.max")) - total // 5) <= 4096
    assert play().code == 0


def test_check_mode_changes_nothing(host, play, session):
    run = play(None, "--check", login_limits_memory_max="300M")
    assert (run.code, run.changed) == (0, 1), run.output
    assert limit(host, "alice", "memory.max") == str(256 << 20)
    assert play(None, "--check").changed == 0


def test_a_limit_that_somebody_set_by_hand_is_told(host, play, session):
    with host.sudo():
        host.check_output("systemctl set-property --runtime user-2001.slice MemoryMax=1G")
    try:
        run = play()
        assert run.code == 2, run.output
        assert "sessions with other limits is user 2001 (memory.max 1073741824)" in run.output
    finally:
        with host.sudo():
            host.check_output("systemctl revert user-2001.slice")
    assert play().code == 0


def test_users_may_not_keep_processes_without_a_session(host, play):
    denied = run_as(host, "carol", "loginctl enable-linger")
    assert denied.rc != 0
    assert host.check_output("loginctl show-user ops --property=Linger --value") == "no"

    assert play(login_limits_linger=True).code == 0
    allowed = run_as(host, "carol", "loginctl enable-linger")
    assert allowed.rc == 0, allowed.stderr
    assert host.file("/var/lib/systemd/linger/carol").exists
    assert play(login_limits_linger=True).changed == 0

    assert play().code == 0
    assert not host.file("/var/lib/systemd/linger/carol").exists
    assert play().changed == 0


def test_processes_end_with_the_session_only_where_that_is_declared(host, play):
    left = "setsid sleep 700 < /dev/null > /dev/null 2>&1 & sleep 0.2"
    there = "pgrep --uid carol --full 'sleep 700'"
    run_as(host, "carol", left)
    state = "loginctl show-user carol --property=State --value"
    until(lambda: host.run(state).stdout == "closing\n")
    assert host.run(there).rc == 0
    with host.sudo():
        host.run("loginctl terminate-user carol")

    assert play(login_limits_kill_user_processes=True).code == 0
    try:
        run_as(host, "carol", left)
        until(lambda: host.run(there).rc != 0)
    finally:
        assert play().code == 0


def test_what_cannot_work_is_refused(play):
    refused(play(login_limits_cpu_quota="0"), "login_limits_cpu_quota is 0; set it to a part of")
    refused(play(login_limits_memory_max="9000G"), "login_limits_memory_max is 9000G, and node has")
    refused(play(login_limits_cpu_quota="9000"), "login_limits_cpu_quota is 9000, and node has")
    refused(play(login_limits_exempt=[]), "logs in to node as ops, whom the limits would hit")
    refused(play(login_limits_exempt=["1000"]), 'login_limits_exempt has "1000"; give the names')


def test_an_exempt_user_whom_nobody_knows_is_told(play):
    run = play(login_limits_exempt=["ops", "mallory"])
    assert run.code == 2, run.output
    assert "mallory: no such user; make it, or take it out of login_limits_exempt" in run.output
