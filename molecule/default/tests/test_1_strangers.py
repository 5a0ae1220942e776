"""What a user tries on others' jobs, on Slurm and on the nodes, and gets nothing from.

Logins without a job: test_1_confinement.py. Ports and passwords: test_9_ports.py. Replayed and
forged credentials: the role munge. Files and keys of others: the roles cluster_users and slurm.
"""

from __future__ import annotations

import json
import re
import shlex

import pytest

from tests.patience import until

# `$victim` is the number of somebody else's job, `$own` that of a job of the user's.
ON_THE_LOGIN_NODE = {
    # Somebody else's job
    "sees it": ("scontrol show job $victim", "Invalid job id"),
    "sees it in the queue": ("squeue --jobs=$victim", "Invalid job id"),
    "reads its script": ("scontrol write batch_script $victim -", "Invalid user id"),
    "reads its use": ("sstat --noheader --jobs=$victim.batch", "not found running"),
    "cancels it": ("scancel $victim", "denied"),
    "sends it a signal": ("scancel --signal=USR1 --batch $victim", "Invalid job id"),
    "shortens it": ("scontrol update jobid=$victim timelimit=1", "Invalid user id"),
    "requeues it": ("scontrol requeue $victim", "denied"),
    "holds it": ("scontrol hold $victim", "Invalid user id"),
    "suspends it": ("scontrol suspend $victim", "denied"),
    "runs in it": ("srun --jobid=$victim --overlap hostname", "denied"),
    "attaches to it": ("sattach $victim.0", "denied"),
    "writes to its terminal": ("scontrol notify $victim hello", "Invalid user id"),
    # More for their own
    "goes before others": ("sbatch --nice=-100 --wrap=true", "Invalid --nice value"),
    "raises a priority": ("scontrol update jobid=$own priority=4000000", "denied"),
    "puts it on top": ("scontrol top $own", "denied"),
    "writes an operator's comment": ("scontrol update jobid=$own admincomment=x", "denied"),
    "spends another account": ("sbatch --account=operations --wrap=true", "Invalid account"),
    "submits as root": ("sbatch --uid=0 --wrap=true", "only permitted by root"),
    "makes an account": ("sacctmgr -i add account thieves", "Only admins"),
    "lifts a limit": ("sacctmgr -i modify user $USER set maxsubmit=-1", "[Ee]rror"),
    "becomes an administrator": (
        "sacctmgr -i modify user $USER set adminlevel=Admin",
        "You can only change your own default account",
    ),
    # What operators do
    "drains a node": ("scontrol update nodename=gpu1 state=drain reason=x", "Invalid user id"),
    "powers one down": ("scontrol power down gpu1", "Invalid user id"),
    "closes a partition": ("scontrol update partitionname=gpu state=down", "Invalid user id"),
    "reserves nodes": (
        "scontrol create reservation user=$USER starttime=now duration=10 nodes=gpu1",
        "Invalid user id",
    ),
    "has slurmctld read its files": ("scontrol reconfigure", "Invalid user id"),
    "ends slurmctld": ("scontrol shutdown slurmctld", "Invalid user id"),
    "changes what it logs": ("scontrol setdebug debug", "Permission denied"),
    "forgets its statistics": ("sdiag --reset", "denied"),
    "has it start a program": ("strigger --set --node --down --program=/bin/true", "denied"),
    # The host
    "becomes root": ("sudo -n true", "password is required"),
    "stays after leaving": ("loginctl enable-linger", "denied"),
    "starts a service": ("systemd-run true", "denied"),
    "stops one": ("systemctl stop munge", "denied"),
}
ON_A_NODE_WITH_A_JOB = {
    "kills another's process": ("kill $process", "not permitted"),
    "reads its environment": ("cat /proc/$process/environ", "Permission denied"),
    "kills slurmd's": ("kill $(pgrep --oldest slurmstepd)", "not permitted"),
    "lengthens its job": ("scontrol update jobid=$SLURM_JOB_ID timelimit=5-0", "denied"),
    "makes a device": ("unshare --user --map-root-user mknod /tmp/null c 1 3", "not permitted"),
    "has a manager of its own": ("systemctl --user status", "Failed to connect"),
    "starts a service": ("systemd-run sleep 100", "denied"),
    "stays after its job": ("loginctl enable-linger", "Could not enable linger"),
}
ALL_LOGS = (
    "{ journalctl --no-pager; find /var/log -type f ! -path '*/journal/*' -exec cat {} +; }"
    " | tr --complement --delete '[:print:]\\n'"
)
# Runs each line NAME<tab>COMMAND of its standard input, and prints what came of it.
TRY_ALL = """import json, subprocess, sys
for line in sys.stdin.read().splitlines():
    name, command = line.split("\\t")
    done = subprocess.run(command, shell=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print("TRIED", json.dumps([name, done.stdout]))
"""


def tried(operator, attempts, before: str = "", step: str = ""):
    """By attempt, what its command printed when ada tried it in one shell."""
    lines = "".join(f"{name}\t{command}\n" for name, (command, _) in attempts.items())
    shell = f"{before} printf %s {shlex.quote(lines)} | python3 -c {shlex.quote(TRY_ALL)}"
    words = f"{step} bash -c {shlex.quote(shell)}"
    done = operator.virtual_cluster("ssh", "ada@login1", words)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = dict(json.loads(found) for found in re.findall("^TRIED (.*)$", done.stdout, re.M))
    assert printed.keys() == attempts.keys(), done.stdout
    return printed


def state(node, number):
    """What a user could have changed of somebody else's job, and of the cluster."""
    ask = f"scontrol show job {number}; scontrol show partition gpu; scontrol show reservation"
    with node("ctl1").sudo():
        shown = node("ctl1").check_output(f"sh -c '{ask}; sinfo --noheader --list-reasons'")
    keys = "JobState|TimeLimit|Restarts|PartitionName|State|ReservationName"
    return re.findall(rf"\b(?:{keys})=\S+|^.* gpu1$", shown, re.MULTILINE)


@pytest.fixture(scope="module")
def victim(node):
    """A job on gpu1 of an account that is not ada's."""
    submit = (
        "cd /tmp && runuser -u plumbline-validation -- sbatch --parsable --output=/dev/null"
        " --nodelist=gpu1 --mem=100M --time=60 --wrap='srun sleep 900'"
    )
    with node("login1").sudo():
        number = node("login1").check_output(submit)
    with node("gpu1").sudo():
        until(lambda: node("gpu1").run("pgrep --exact --uid plumbline-validation sleep").rc == 0)
    yield number
    with node("ctl1").sudo():
        node("ctl1").check_output(f"scancel {number}")


@pytest.fixture(scope="module")
def refusals(operator, node, victim):
    """What all attempts printed, by attempt; the victim's job and the cluster are as before."""
    before = state(node, victim)
    assert {"JobState=RUNNING", "TimeLimit=01:00:00", "State=UP"} <= set(before)
    own = "own=$(sbatch --parsable --begin=tomorrow --output=/dev/null --wrap=true);"
    attempts = tried(operator, ON_THE_LOGIN_NODE, f"{own} export own victim={victim};")
    operator.virtual_cluster("ssh", "ada@login1", "scancel --me")
    process = "export process=$(pgrep --exact --uid plumbline-validation sleep);"
    step = "srun --nodelist=gpu1 --mem=100M"
    inside = tried(operator, ON_A_NODE_WITH_A_JOB, process, step)
    assert state(node, victim) == before
    return {
        **{("login1", name): text for name, text in attempts.items()},
        **{("gpu1", name): text for name, text in inside.items()},
    }


@pytest.mark.parametrize("name", ON_THE_LOGIN_NODE)
def test_a_user_on_the_login_node_is_refused(refusals, name):
    assert re.search(ON_THE_LOGIN_NODE[name][1], refusals["login1", name])


@pytest.mark.parametrize("name", ON_A_NODE_WITH_A_JOB)
def test_a_user_beside_anothers_job_is_refused(refusals, name):
    assert re.search(ON_A_NODE_WITH_A_JOB[name][1], refusals["gpu1", name])


def test_what_a_job_hides_from_its_shell_ends_with_it(operator, node):
    hide = "setsid sh -c 'sleep 900 &' & sleep 1; pgrep --exact --uid $USER sleep"
    words = f"srun --nodelist=gpu1 --mem=100M bash -c {shlex.quote(hide)}"
    done = operator.virtual_cluster("ssh", "ada@login1", words)
    assert done.returncode == 0, done.stdout + done.stderr
    with node("gpu1").sudo():
        until(lambda: node("gpu1").run("pgrep --exact --uid ada sleep").rc != 0)


@pytest.mark.parametrize("name", ["ctl1", "login1", "gpu1"])
def test_no_log_of_a_node_has_a_password(operator, node, name):
    files = (operator.inventory / ".secrets").glob("*_password")
    passwords = {path.name: path.read_text(encoding="utf-8").strip() for path in files}
    assert {"monitoring_admin_password", "slurm_database_password"} <= passwords.keys()
    with node(name).sudo():
        logs = node(name).check_output(f"sh -c {shlex.quote(ALL_LOGS)}")
    assert "systemd" in logs
    assert [file for file, password in passwords.items() if password in logs] == []
