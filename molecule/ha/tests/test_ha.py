"""No job is lost, and none is counted twice: a controller dies while jobs come in, and the database
stands still while jobs run. What it took is a table in $MOLECULE_EPHEMERAL_DIRECTORY/ha.md."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

JOBS = int(os.environ.get("PLUMBLINE_HA_JOBS", "600"))
ARRAY = min(1000, JOBS // 4)
FINAL = {"COMPLETED"}
TABLE = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "ha.md"
# One array after another, as in a script of a user: a submission without an answer is made again,
# under the same name.
SUBMIT = """
for number in $(seq {arrays}); do
  until sbatch --parsable --job-name=ha-$number --array=1-{size} --ntasks=1 --output=/dev/null \\
      --time=5 --wrap=true >>ha.ids 2>>ha.errors; do
    echo failed-$number >>ha.failed
    sleep 0.5
  done
done
touch ha.done
"""


def until(question, seconds, what):
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.2)
    return answer


def note(*cells):
    with TABLE.open("a") as table:
        print("|", " | ".join(map(str, cells)), "|", file=table)


def rows(login, name):
    """(id, state) of each row that sacct has, with those of a job that was there before."""
    said = login.check_output(
        f"sacct -a -D -X -n -P -S now-1day --name={name} --format=jobid,state"
    )
    return [tuple(line.split("|")[:2]) for line in said.splitlines()]


def answers(login):
    return login.run("timeout 2 squeue -h").rc == 0


@pytest.fixture
def primary(node):
    """The primary, which is there again in the end."""
    host = node("ctl1")
    yield host
    with host.sudo():
        host.check_output("systemctl unmask --runtime slurmctld && systemctl start slurmctld")
    until(
        lambda: "primary) at ctl1 is UP" in node("login1").run("scontrol ping").stdout,
        120,
        "the primary answers again",
    )


def test_both_controllers_run_and_have_one_state(node):
    said = node("login1").check_output("scontrol ping")
    assert "Slurmctld(primary) at ctl1 is UP" in said
    assert "Slurmctld(backup) at ctl2 is UP" in said
    assert "/shared/state/slurmctld" in node("login1").check_output("scontrol show config")


def test_a_controller_that_is_killed_loses_no_job_and_counts_none_twice(node, primary):
    login, arrays = node("login1"), -(-JOBS // ARRAY)
    login.check_output("rm -f ha.*")
    script = SUBMIT.format(arrays=arrays, size=ARRAY)
    began = time.monotonic()
    login.check_output(f"cat >ha.sh <<'END'\n{script}\nEND\nnohup bash ha.sh >&- 2>&- <&- &")
    until(lambda: login.run("wc -l <ha.ids").stdout.strip() >= "1", 120, "the first array")
    until(lambda: "R" in login.run("squeue -h -t R -o %t").stdout, 120, "the first job")
    with primary.sudo():
        primary.check_output(
            "systemctl mask --runtime slurmctld && systemctl kill --signal=KILL slurmctld"
        )
    killed = time.monotonic()
    assert not answers(login)
    until(lambda: answers(login), 180, "the backup takes over")
    without = time.monotonic() - killed
    assert "Slurmctld(backup) at ctl2 is UP" in login.run("scontrol ping").stdout
    until(lambda: login.run("test -e ha.done").rc == 0, 600, "all arrays are submitted")
    until(lambda: not login.run("squeue -h").stdout, 60 + JOBS, "all jobs end")
    ids = [line.partition(";")[0] for line in login.check_output("cat ha.ids").splitlines()]
    repeated = login.run("wc -l <ha.failed").stdout.strip() or "0"
    wanted = {f"{number}_{index}" for number in ids for index in range(1, ARRAY + 1)}
    names = ",".join(f"ha-{number}" for number in range(1, arrays + 1))

    def all_final():
        found = dict(rows(login, names))
        return wanted <= found.keys() and set(found.values()) <= FINAL

    until(all_final, 180, "every job is final in the accounts")
    found = [job for job, _ in rows(login, names)]
    assert len(found) == len(set(found)), "a job is there twice"
    # A submission whose answer was lost with the controller is an array more, and none is less.
    assert len(found) % ARRAY == 0
    assert len(ids) == arrays
    seconds = time.monotonic() - began
    note("primary killed", f"{len(found)} jobs, {arrays} arrays", f"{without:.1f} s without")
    note("submissions without an answer", repeated, f"{seconds:.0f} s in all")


def test_the_primary_is_in_charge_again(node):
    login = node("login1")
    until(
        lambda: re.search(r"primary\) at ctl1 is UP", login.run("scontrol ping").stdout),
        60,
        "the primary",
    )
    assert sorted(login.check_output("srun -N2 hostname").split()) == ["gpu1", "gpu2"]


def test_jobs_that_end_while_the_database_stands_still_are_all_accounted(node):
    login, database = node("login1"), node("ctl1")
    login.check_output(
        "sbatch --parsable --job-name=quiet --array=1-200 --output=/dev/null --wrap='sleep 1'"
    )
    until(lambda: "R" in login.run("squeue -h -t R -o %t").stdout, 60, "the first job")
    with database.sudo():
        database.check_output("systemctl stop mariadb")
    try:
        until(lambda: not login.run("squeue -h").stdout, 600, "all jobs end")
    finally:
        with database.sudo():
            database.check_output("systemctl start mariadb")

    def all_there():
        found = login.run("sacct -a -D -X -n -P -S now-1day --name=quiet --format=jobid,state")
        states = dict(line.split("|")[:2] for line in found.stdout.splitlines())
        return len(states) == 200 and set(states.values()) == FINAL

    began = time.monotonic()
    until(all_there, 300, "200 jobs in the accounts")
    assert len(rows(login, "quiet")) == 200
    note("MariaDB stopped", "200 jobs", f"{time.monotonic() - began:.1f} s until all were there")
