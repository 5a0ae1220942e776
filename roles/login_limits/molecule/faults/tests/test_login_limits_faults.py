"""What a host, an administrator or an interrupted run may have left, and settings of sessions."""

from roles.login_limits.molecule.parts import (
    SLICES,
    UIDS,
    UNITS,
    limit,
    run_as,
    sleeping,
    until,
)


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


def test_an_exempt_user_whom_nobody_knows_is_told(play):
    run = play(login_limits_exempt=["ops", "mallory"])
    assert run.code == 2, run.output
    assert "mallory: no such user; make it, or take it out of login_limits_exempt" in run.output


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


def test_check_mode_changes_nothing(host, play, session):
    run = play(None, "--check", login_limits_memory_max="300M")
    assert (run.code, run.changed) == (0, 1), run.output
    assert limit(host, "alice", "memory.max") == str(256 << 20)
    assert play(None, "--check").changed == 0


def test_where_nothing_is_declared_nothing_of_the_role_stays(host, play, session):
    none = dict.fromkeys(("cpu_quota", "cpu_weight", "memory_high", "memory_max"), "")
    none |= dict.fromkeys(("memory_swap_max", "tasks_max", "io_weight"), "")
    settings = {f"login_limits_{name}": value for name, value in none.items()}
    run = play(**settings)
    assert run.code == 0, run.output
    fresh = f"cat {SLICES}/user-{UIDS['carol']}.slice/memory.max"
    assert run_as(host, "carol", fresh).stdout == "max\n"
    assert host.run(f"ls {UNITS}/user-*.slice.d {UNITS}/systemd-logind.service.d").rc != 0
    assert not host.file("/etc/systemd/logind.conf.d/50-plumbline.conf").exists
    again = play(**settings)
    assert (again.code, again.changed) == (0, 0), again.output
    assert sleeping(host) == [session]
    assert play().code == 0
