"""Who comes into a node through SSH, where a login lands, and what jobs see of each other.

`molecule/default` asks the kernel that runs the tests, `molecule/faults` one with cgroup v2.
"""

import shlex

import pytest

from tests.patience import until
from tests.role_play import refused

LOGIN = "ssh -q -i /root/.ssh/users -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
STACK = "/etc/pam.d/sshd"


def run(host, command):
    """As root. 255, a status of ssh and srun, becomes 1: testinfra takes it for its own SSH's."""
    with host.sudo():
        return host.run(f"cd /tmp; ({command}); rc=$?; exit $((rc == 255 ? 1 : rc))")


def run_as(host, user, command):
    """In a login of the user's own."""
    return run(host, f"{LOGIN} {user}@localhost {shlex.quote(command)}")


def submit(host, user, command="sleep 600", options="--gres=gpu:1 --mem=200M"):
    with host.sudo():
        line = f"sbatch --parsable --output=/dev/null {options} --wrap {shlex.quote(command)}"
        return host.check_output(f"cd /tmp && sudo -u {user} {line}")


def state(host, job):
    with host.sudo():
        shown = host.check_output(f"scontrol -o show job {job}")
    return dict(word.split("=", 1) for word in shown.split() if "=" in word)["JobState"]


def await_logins(host, job):
    """Wait for the step that adopts logins: slurmctld calls a job running before slurmd has it."""
    with host.sudo():
        until(lambda: "extern" in host.run(f"scontrol listpids {job}").stdout)


def cancel(host, job):
    with host.sudo():
        host.run(f"scancel {job}")
    until(lambda: state(host, job) not in {"RUNNING", "PENDING", "COMPLETING"})


@pytest.fixture
def job(host):
    """A job of alice's with one GPU."""
    number = submit(host, "alice")
    await_logins(host, number)
    yield number
    cancel(host, number)


def test_who_has_no_job_is_turned_away(host):
    denied = run(host, f"{LOGIN.replace('-q ', '')} bob@localhost true")
    assert denied.rc != 0
    assert "you have no active jobs on this node" in denied.stderr


def test_administrators_and_root_come_in_and_keep_their_sessions(host):
    assert "/job_" not in run_as(host, "root", "cat /proc/self/cgroup").stdout
    admin = run_as(host, "ops", "cat /proc/self/cgroup; echo $XDG_SESSION_ID")
    assert admin.rc == 0, admin.stderr
    assert "/job_" not in admin.stdout
    assert admin.stdout.splitlines()[-1], "no session of logind's"


def test_who_has_a_job_lands_in_its_cgroup_and_ends_with_it(host, job):
    shown = run_as(host, "alice", "cat /proc/self/cgroup")
    assert shown.rc == 0, shown.stderr
    assert f"/job_{job}/step_extern" in shown.stdout
    # Every controller: a login that logind took away again would be held to nothing.
    of_slurm = [line for line in shown.stdout.splitlines() if "/job_" in line]
    assert not [line for line in shown.stdout.splitlines() if "user.slice" in line], shown.stdout
    assert of_slurm
    with host.sudo():
        host.check_output(
            f"systemd-run --quiet --collect --unit=login-of-alice {LOGIN} alice@localhost sleep 555"
        )
    there = "pgrep --uid alice --full 'sleep 555'"
    until(lambda: host.run(there).rc == 0)
    cancel(host, job)
    until(lambda: host.run(there).rc != 0)
    assert run_as(host, "alice", "true").rc != 0


def test_a_job_and_a_login_to_it_open_no_gpu_but_theirs(host, job):
    """The driver is not there (ENXIO); a device of another job is refused before it (EPERM)."""
    tries = "head -c1 /dev/nvidia0; head -c1 /dev/nvidia1"
    inside = run_as(host, "alice", tries)
    assert "/dev/nvidia0' for reading: No such device or address" in inside.stderr
    assert "/dev/nvidia1' for reading: Operation not permitted" in inside.stderr
    with host.sudo():
        step = host.run(f"cd /tmp && sudo -u alice srun --jobid={job} --overlap sh -c '{tries}'")
        free = host.run(tries)
    assert "/dev/nvidia1' for reading: Operation not permitted" in step.stderr
    assert "Operation not permitted" not in free.stderr


def test_a_job_has_a_tmp_and_a_shm_of_its_own_that_end_with_it(host, job):
    names = "/tmp/of-alice /dev/shm/of-alice"
    assert run_as(host, "alice", f"touch {names} && chmod 666 {names}").rc == 0
    with host.sudo():
        same = host.run(f"cd / && sudo -u alice srun --jobid={job} --overlap ls {names}")
        assert same.rc == 0, same.stderr
        assert host.run(f"ls {names}").stdout == ""
        # Below the node's name where Slurm was built for several slurmd on a host, as Debian's is.
        folder = host.check_output(f"find /var/lib/slurm/job-tmp -maxdepth 2 -name {job}")
        assert folder
        assert host.run(f"sudo -u bob ls {folder}").rc != 0
    other = submit(host, "bob", "sleep 600", "--mem=100M")
    try:
        await_logins(host, other)
        assert run_as(host, "bob", "ls /tmp /dev/shm").stdout == "/dev/shm:\n\n/tmp:\n"
        assert run_as(host, "bob", f"ls {names}").rc != 0
    finally:
        cancel(host, other)
    cancel(host, job)
    with host.sudo():
        until(lambda: not host.file(folder).exists)


def test_users_see_their_own_jobs_alone(host, job):
    with host.sudo():
        assert host.check_output(f"squeue --noheader --format=%u --jobs={job}") == "alice"
        assert host.check_output("sudo -u alice squeue --noheader --format=%u") == "alice"
        assert host.check_output("sudo -u bob squeue --noheader --format=%u") == ""
        assert "Invalid job id" in host.run(f"sudo -u bob scontrol show job {job}").stderr


def test_a_job_over_its_memory_ends_so(host):
    greedy = "python3 -c 'b = bytearray(400_000_000); print(len(b))'"
    over = submit(host, "alice", greedy, "--mem=100M")
    until(lambda: state(host, over) not in {"RUNNING", "PENDING", "COMPLETING"})
    assert state(host, over) == "OUT_OF_MEMORY"
    enough = submit(host, "alice", greedy, "--mem=900M")
    until(lambda: state(host, enough) not in {"RUNNING", "PENDING", "COMPLETING"})
    assert state(host, enough) == "COMPLETED"


def test_a_job_of_one_core_has_one(host):
    if int(host.check_output("nproc")) < 2:
        pytest.skip("this machine has one CPU, so no job can take a second one")
    with host.sudo():
        # The mask of the task can be widened by itself, its cpuset cannot.
        widen = "taskset --all-tasks --pid --cpu-list 0-1 $$ >&2; nproc"
        shown = host.run(f"cd /tmp && sudo -u alice srun --cpus-per-task=1 sh -c '{widen}'")
    assert shown.stdout == "1\n", shown.stderr


def test_what_a_job_may_lock_is_not_the_submitters_limit(host):
    with host.sudo():
        line = "cd /tmp && ulimit -l 64 && sudo -u alice srun sh -c 'ulimit -l'"
        shown = host.check_output(line)
        slurmd = host.check_output("systemctl show slurmd --property=LimitMEMLOCK --value")
    assert slurmd == "infinity"
    if int(host.check_output("stat -f -c %t /sys/fs/cgroup"), 16) != 0x63677270:
        assert shown != "64"  # a container's limit may be less than that of a machine
    else:
        assert shown == "unlimited"


def test_root_submits_nothing(host):
    tried = run(host, "srun --immediate=10 true")
    assert tried.rc != 0
    assert "Invalid user id" in tried.stderr


def test_no_window_of_a_job_reaches_a_login_node(host):
    # Of a display that there need not be: srun looks for the socket of one on this host only.
    tried = run(host, "sudo -u alice env DISPLAY=elsewhere:9 srun --x11 --immediate=10 true")
    assert tried.rc != 0
    assert "X11" in tried.stderr, tried.stderr


@pytest.mark.long
def test_who_is_locked_out_comes_in_again(host, play):
    """The role is told to let in a group that nobody is in, past its own refusal."""
    before = host.file(STACK).content_string
    configure = {"ansible.builtin.include_role": {"name": "job_login", "tasks_from": "configure"}}
    patience = ("-e", '{"__job_login_patience": 20}')
    run = play([configure], *patience, job_login_admin_groups=["nobodys"])
    assert run.code != 0, run.output
    until(lambda: host.file(STACK).content_string == before)
    assert run_as(host, "ops", "true").rc == 0
    assert play().changed == 0


def test_what_would_lock_out_ansible_is_refused(play):
    refused(
        play(job_login_admin_groups=["adm"]),
        "Ansible logs in to node as a user of the groups ops, and only adm would come in",
    )


@pytest.mark.long
def test_check_mode_changes_nothing(host, play):
    before = host.file(STACK).content_string
    run = play(None, "--check", job_login_of_several_jobs="deny")
    assert run.code == 0, run.output
    assert run.changed > 0
    assert host.file(STACK).content_string == before


@pytest.mark.long
def test_it_can_be_taken_away(host, play):
    with host.sudo():
        shipped = host.check_output("dpkg-query --showformat='${Conffiles}' --show openssh-server")
        sum_ = next(line.split()[1] for line in shipped.splitlines() if STACK in line)
    run = play(job_login_enabled=False)
    assert run.code == 0, run.output
    assert host.check_output(f"md5sum {STACK}").split()[0] == sum_
    assert run_as(host, "bob", "true").rc == 0
    assert play(job_login_enabled=False).changed == 0
    assert play().code == 0
    assert run_as(host, "bob", "true").rc != 0
