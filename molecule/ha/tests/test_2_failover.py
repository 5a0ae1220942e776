"""No job is lost, and none is counted twice, whatever dies: controller, database, slurmdbd.

The primary is killed while jobs come in, MariaDB stands still while jobs run. What it took
is in .cache/test/ha.md.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

from tests.live_cluster import REPOSITORY, after_a_crash
from tests.patience import until

JOBS = int(os.environ.get("PLUMBLINE_HA_JOBS", "10000"))
ARRAY = max(1, min(1000, JOBS // 10))
ARRAYS = -(-JOBS // ARRAY)
RUN = f"ha-{int(time.time())}"  # sacct still has the jobs of the run before
TABLE = REPOSITORY / ".cache/test/ha.md"
HEARTBEAT = "/shared/state/slurmctld/heartbeat"
JOB_STATE = "/shared/state/slurmctld/job_state"
# What one controller had begun, and the next was to begin again, leaves neither job held nor node
# drained.
NODES_TELL, *LET_GO = after_a_crash()
# As a user's script does it, one array after another. A submission without an answer is made again.
# The second half begins when nobody is in charge.
SUBMIT = f"""
for number in $(seq {ARRAYS}); do
  while [ $number -gt {ARRAYS // 2} ] && [ ! -e ha.killed ]; do sleep 0.1; done
  until sbatch --parsable --job-name={RUN}-$number --array=1-{ARRAY} -n1 --output=/dev/null \\
      --time=60 --wrap=true >>ha.ids 2>>ha.errors; do
    echo $number >>ha.repeated
    sleep 0.5
  done
done
touch ha.done
"""


def note(*cells: object) -> None:
    line = f"| {' | '.join(map(str, cells))} |"
    print(line)
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    with TABLE.open("a") as table:
        table.write(f"{line}\n")


def rows(login, names: str, options: str = "") -> list[tuple[str, str]]:
    """(job, state) of every row that sacct has of jobs with these names."""
    command = f"sacct -a -X -n -P -S now-1day --name={names} -o jobid,state {options}"
    result = login.run(command)
    return [tuple(line.split("|")) for line in result.stdout.splitlines()] if not result.rc else []


def in_charge(node) -> str:
    """Which controller last said that it is, as each does every few seconds: 0 is the primary."""
    with node("login1").sudo():
        output = node("login1").check_output(f"od -A n -t d8 --endian=big {HEARTBEAT}")
    return output.split()[1]


def saved(login) -> bool:
    """Whether the state that a controller would find is newer than the jobs that users know of.

    slurmctld writes it every five seconds at most, so a crash takes the last ones with it.
    """
    with login.sudo():
        times = login.check_output(f"stat -c %Y {JOB_STATE} ~ops/ha.ids")
    state, known = map(int, times.split())
    return state > known + 1


def answers(login) -> bool:
    return login.run("timeout 2 squeue -h -o %i").rc == 0


def is_up(login, name: str) -> bool:
    return f"at {name} is UP" in login.run("scontrol ping").stdout


def only_the_long_one_is_left(login) -> bool:
    with login.sudo():
        for command in LET_GO:
            login.check_output(command)
    return login.run("squeue -h -o %j").stdout.split() == ["long"]


def kill(host, unit: str) -> None:
    """As a crash, and systemd does not start it again."""
    with host.sudo():
        host.check_output(f"systemctl mask --runtime {unit}")
        host.check_output(f"systemctl kill --signal=KILL {unit}")


def bring_back(host, unit: str) -> None:
    with host.sudo():
        host.check_output(f"systemctl unmask --runtime {unit}")
        host.check_output(f"systemctl reset-failed {unit}; systemctl start {unit}")


@pytest.fixture
def long_job(node):
    """One that runs all the while."""
    login = node("login1")
    job = login.check_output(
        "sbatch --parsable --job-name=long -n1 -o /dev/null --wrap 'sleep 86400'"
    )
    until(lambda: login.run(f"squeue -h -j {job} -o %T").stdout.strip() == "RUNNING", 60)
    yield job
    until(lambda: login.run(f"scancel {job}").rc == 0, 60)


def test_jobs_outlive_their_controller_and_are_counted_once(node, long_job):
    login, began = node("login1"), time.monotonic()
    assert in_charge(node) == "0"
    login.check_output("rm -f ha.*")
    login.check_output(f"cat >ha.sh <<'END'\n{SUBMIT}\nEND\nnohup bash ha.sh >&- 2>&- <&- &")
    half = ARRAYS // 2
    until(lambda: int(login.run("cat ha.ids 2>&- | wc -l").stdout) >= half, 300)
    until(lambda: "COMPLETED" in dict(rows(login, f"{RUN}-1")).values(), 300)

    until(lambda: saved(login), 60)

    killed = time.monotonic()
    kill(node("ctl1"), "slurmctld")
    login.check_output("touch ha.killed")
    try:
        assert not answers(login)
        until(lambda: answers(login), 180)
        note("primary killed", f"{time.monotonic() - killed:.0f} s without a controller")
        until(lambda: in_charge(node) == "1", 60)
        assert not is_up(login, "ctl1")
        assert is_up(login, "ctl2")
        assert login.check_output(f"squeue -h -j {long_job} -o %T") == "RUNNING"
        with login.sudo():
            login.check_output(NODES_TELL)
        until(lambda: login.run("test -e ha.done").rc == 0, 900)
        until(lambda: only_the_long_one_is_left(login), 300 + JOBS)
    finally:
        bring_back(node("ctl1"), "slurmctld")

    ids = [line.partition(";")[0] for line in login.check_output("cat ha.ids").splitlines()]
    assert len(set(ids)) == ARRAYS
    wanted = {f"{job}_{index}" for job in ids for index in range(1, ARRAY + 1)}
    names = ",".join(f"{RUN}-{number}" for number in range(1, ARRAYS + 1))

    def all_final() -> bool:
        states = dict(rows(login, names))
        return wanted <= states.keys() and set(states.values()) == {"COMPLETED"}

    until(all_final, 600)
    jobs = rows(login, names)
    assert [job for job, times in Counter(job for job, _ in jobs).items() if times > 1] == []
    # A submission whose answer was lost with the controller is an array more, as its user made it.
    assert len(jobs) % ARRAY == 0
    # One that ended in the seconds before the crash, which no state knew of, ran twice.
    note("jobs that ran a second time", len(rows(login, names, "--duplicates")) - len(jobs))
    repeated = login.run("cat ha.repeated 2>&- | wc -l").stdout.strip()
    note("jobs, each once and completed", len(jobs))
    note("submissions made again", repeated, f"{time.monotonic() - began:.0f} s in all")


def test_the_primary_is_in_charge_again(node, long_job):
    login = node("login1")
    until(lambda: is_up(login, "ctl1") and in_charge(node) == "0", 120)
    until(lambda: answers(login), 60)
    assert sorted(login.check_output("srun -N2 hostname").split()) == ["gpu1", "gpu2"]
    assert login.check_output(f"squeue -h -j {long_job} -o %T") == "RUNNING"


def test_a_controller_is_taken_out_for_maintenance_and_comes_back(node, long_job):
    """As docs/operate/ha.md says: the backup is told to take over, and the primary takes back."""
    login = node("login1")
    began = time.monotonic()
    with login.sudo():
        login.check_output("scontrol takeover")
    until(lambda: answers(login) and in_charge(node) == "1", 120)
    note("scontrol takeover", f"{time.monotonic() - began:.0f} s")
    assert login.check_output(f"squeue -h -j {long_job} -o %T") == "RUNNING"
    bring_back(node("ctl1"), "slurmctld")
    until(lambda: answers(login) and in_charge(node) == "0", 120)
    assert login.check_output(f"squeue -h -j {long_job} -o %T") == "RUNNING"


def test_jobs_that_end_while_the_database_stands_still_are_all_accounted(node):
    login = node("login1")
    login.check_output("sbatch --job-name=quiet --array=1-200 -o /dev/null --wrap 'sleep 1'")
    until(lambda: "RUNNING" in login.run("squeue -h -o %T").stdout, 60)
    with login.sudo():
        login.check_output("systemctl stop mariadb")
    try:
        until(lambda: not login.run("squeue -h -n quiet").stdout, 900)
    finally:
        with login.sudo():
            login.check_output("systemctl start mariadb")
    began = time.monotonic()

    def all_there() -> bool:
        states = dict(rows(login, "quiet"))
        return len(states) == 200 and set(states.values()) == {"COMPLETED"}

    until(all_there, 600)
    assert len(rows(login, "quiet")) == 200
    note("MariaDB back", "200 jobs", f"{time.monotonic() - began:.0f} s until all were there")


def test_the_other_slurmdbd_answers_when_the_first_is_killed(node):
    login, backup = node("login1"), node("ctl2")

    def listens() -> bool:
        return bool(backup.check_output("ss -H -l -t -n 'sport = :6819'"))

    assert not listens()
    killed = time.monotonic()
    kill(node("ctl1"), "slurmdbd")
    try:
        until(lambda: login.run("timeout 5 sacctmgr -n show cluster").rc == 0, 120)
        note("slurmdbd killed", f"{time.monotonic() - killed:.0f} s until the other answers")
        assert listens()
        login.check_output("sbatch --wait --job-name=other --array=1-5 -o /dev/null --wrap true")
        until(lambda: Counter(s for _, s in rows(login, "other")) == {"COMPLETED": 5}, 120)
    finally:
        bring_back(node("ctl1"), "slurmdbd")
    until(lambda: not listens(), 120)
    until(lambda: login.run("timeout 5 sacctmgr -n show cluster").rc == 0, 120)
    assert len(rows(login, "other")) == 5
