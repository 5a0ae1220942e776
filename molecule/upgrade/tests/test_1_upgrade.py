"""A cluster that is in use gets another release of Slurm, with a run that is killed halfway."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.live_cluster import PLAIN, REPOSITORY, changed, words
from tests.patience import until
from tests.proven_cluster import NODES, tasks_that_changed

SCENARIO = REPOSITORY / "molecule/upgrade"
EXTRA = ("-i", str(SCENARIO / "inventory/hosts.yml"))
WITHOUT_PMIX = ("-e", "upgrade_mpi=none")
OLD, NEW = "24.11", "26.05"
LONG, STEPPING, SHORT = 16, 4, 200
FOLDER = "/shared/upgrade"
# Until the file is there, a step each second; then how many it was. One that begins in the second
# in which slurmctld stops, or the files of its node are replaced, is tried again.
STEP = "srun --overlap --quiet true"
STEPS = (
    f"n=0; until [ -e {FOLDER}/stop ]; do "
    f"{STEP} || {{ echo again; sleep 10; {STEP} || exit 1; }}; "
    f"n=$((n + 1)); sleep 1; done; echo $n > {FOLDER}/steps.$SLURM_JOB_ID"
)
# One step from before the upgrade until after it.
LASTING = f"srun sh -c 'until [ -e {FOLDER}/stop ]; do sleep 1; done'"
RUN_SECONDS = 2700
STARTS_THAT_FAILED = (
    *("same release", "Could not launch job", "slurmstepd init", "launch failed"),
    "unable to resolve MPI plugin",
)
# In the middle of the first node: Slurm is stopped there, and being replaced.
KILLED_AT = re.compile(
    r"PLAY \[Upgrade the compute nodes.*TASK \[slurm_install : Replace \| Install", re.DOTALL
)


def release(host) -> str:
    return re.search(r"\d+\.\d+", host.check_output("sinfo --version"))[0]


def slurmd_of(node, name: str) -> str:
    return node("login1").check_output(f"sinfo --noheader --nodes={name} --format=%v").split()[0]


def queue(node) -> Counter[str]:
    return Counter(node("login1").check_output("squeue --noheader --format=%T").split())


def accounted(node, fields: str, *options: str) -> list[list[str]]:
    ask = f"sacct --noheader --parsable2 --starttime=now-1day --format={fields} {' '.join(options)}"
    return [line.split("|") for line in node("login1").check_output(ask).splitlines()]


@pytest.fixture(scope="module")
def playbook(operator):
    def run(name: str, *arguments: str):
        return operator.playbook(name, *EXTRA, *arguments, timeout=RUN_SECONDS)

    return run


@pytest.fixture(scope="module")
def newer(operator, node):
    """The nodes know a newer Slurm, as after a change of their sources."""
    assert release(node("ctl1")) == OLD
    done = operator(
        "ansible-playbook", *operator.inventories, str(SCENARIO / "newer.yml"), timeout=600
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.fixture(scope="module")
def jobs(node, newer) -> dict[str, set[str]]:
    """Numbers of the jobs: of long steps, of many steps, and of the queue."""
    login = node("login1")
    with login.sudo():
        login.check_output(f"sh -c 'install -d -m 1777 {FOLDER} && rm -f {FOLDER}/*'")
    submit = f"sbatch --parsable --ntasks=1 --mem=20M --output={FOLDER}/%x.%j.out"

    def submitted(kind: str, count: int, script: str) -> set[str]:
        login.check_output(
            f"cat > {FOLDER}/{kind}.sh <<'EOF'\n#!/bin/bash\n{script}\nEOF\n"
            f"for i in $(seq {count}); do {submit} --job-name={kind} {FOLDER}/{kind}.sh; done "
            f"> {FOLDER}/{kind}.ids"
        )
        return set(login.check_output(f"cat {FOLDER}/{kind}.ids").split())

    started = {
        "lasting": submitted("lasting", LONG, LASTING),
        "stepping": submitted("stepping", STEPPING, STEPS),
    }
    until(lambda: queue(node) == {"RUNNING": LONG + STEPPING}, 60)
    return started | {"short": submitted("short", SHORT, "sleep 45")}


def test_apt_leaves_slurm_alone(node, newer):
    policy = node("gpu1").check_output("LC_ALL=C apt-cache policy slurmd")
    assert re.search(rf"Candidate: {re.escape(OLD)}", policy), policy
    with node("gpu1").sudo():
        simulated = node("gpu1").run("apt-get --simulate full-upgrade").stdout
        held = set(node("gpu1").check_output("apt-mark showhold").split())
    assert not re.findall(r"^(?:Inst|Remv) slurm\S*", simulated, re.MULTILINE)
    assert held >= {"slurmd", "slurm-client"}


def test_slurm_cluster_yml_refuses_and_names_the_playbook(playbook, newer):
    run = playbook("slurm-cluster.yml")
    assert run.returncode != 0
    assert "ctl1 has Slurm 24.11.5 from the distribution's packages, and 26.05" in words(run)
    assert "run playbooks/upgrade-slurm.yml" in words(run)
    assert set(changed(run.stdout).values()) <= {"0"}


def test_a_part_of_the_cluster_is_refused(playbook, newer):
    run = playbook("upgrade-slurm.yml", "--limit", "gpu1")
    assert "a part of the cluster cannot be upgraded by itself" in words(run)


def test_a_release_that_cannot_start_steps_as_now_is_refused(node, playbook, newer):
    run = playbook("upgrade-slurm.yml")
    assert run.returncode != 0
    assert f"Slurm {NEW}.5-1 has no mpi/pmix, with which steps start here" in words(run)
    assert "set slurm_settings: {MpiDefault: none}" in words(run)
    assert release(node("ctl1")) == OLD


def test_a_run_is_killed_in_the_middle(operator, node, jobs, tmp_path):
    log = tmp_path / "run.log"
    extra = (*EXTRA, *WITHOUT_PMIX)
    command = ["ansible-playbook", *operator.inventories, *extra, "playbooks/upgrade-slurm.yml"]
    environment = {**os.environ, **PLAIN, "PYTHONUNBUFFERED": "1"}
    with log.open("w") as output:
        running = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + RUN_SECONDS
        while not KILLED_AT.search(text := log.read_text()):
            assert running.poll() is None, text[-4000:]
            assert time.monotonic() < end
            time.sleep(0.2)
        time.sleep(1)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert queue(node)["RUNNING"] >= LONG + STEPPING
    assert "7200" in node("ctl1").check_output("scontrol show config | grep SlurmdTimeout")


def test_the_next_run_goes_on_to_the_end(node, jobs, playbook):
    run = playbook("upgrade-slurm.yml", *WITHOUT_PMIX)
    assert run.returncode == 0, run.stdout[-4000:]
    for name in NODES:
        assert release(node(name)) == NEW
    assert {slurmd_of(node, name)[:5] for name in ("gpu1", "gpu2")} == {NEW}
    assert "300 sec" in node("ctl1").check_output("scontrol show config | grep SlurmdTimeout")


def test_every_job_completes_and_sacct_is_exact(node, jobs):
    login = node("login1")
    states = queue(node)
    assert states["RUNNING"] >= LONG + STEPPING, states
    login.check_output(f"touch {FOLDER}/stop")
    until(lambda: not queue(node), 600)
    every = set().union(*jobs.values())
    assert len(every) == LONG + STEPPING + SHORT
    until(lambda: {state for _, state in accounted(node, "jobid,state", "-X")} == {"COMPLETED"}, 60)
    rows = accounted(node, "jobidraw,state,exitcode,restarts", "-X", "--duplicates")
    assert {row[0] for row in rows} >= every
    ours = [row for row in rows if row[0] in every]
    assert sorted(row[0] for row in ours) == sorted(every), "each job once"
    assert {tuple(row[1:]) for row in ours} == {("COMPLETED", "0:0", "0")}


def test_every_step_is_accounted(node, jobs):
    steps = accounted(node, "jobid,state")
    for job in jobs["stepping"]:
        numbered = [state for name, state in steps if re.fullmatch(rf"{job}\.\d+", name)]
        said = int(node("login1").check_output(f"cat {FOLDER}/steps.{job}"))
        again = int(node("login1").run(f"grep -cx again {FOLDER}/stepping.{job}.out").stdout)
        assert said > 20
        assert again <= 2  # when slurmctld stops, and when the files of its node are replaced
        assert Counter(numbered)["COMPLETED"] == said
        assert len(numbered) - said <= again, numbered
    for job in jobs["lasting"]:
        assert [state for name, state in steps if name == f"{job}.0"] == ["COMPLETED"]


def test_no_slurmd_started_another_release_and_no_start_failed(node):
    for name in ("gpu1", "gpu2"):
        with node(name).sudo():
            log = node(name).file("/var/log/slurm/slurmd.log").content_string
        for sign in STARTS_THAT_FAILED:
            assert sign not in log, sign


def test_what_the_way_back_needs_is_roots_alone(node):
    with node("ctl1").sudo():
        folder = Path("/var/backups/slurm")
        kept = node("ctl1").check_output(f"stat --format='%n %a %U' {folder}/*").splitlines()
        dump = next(line.split()[0] for line in kept if ".sql.gz" in line)
        assert node("ctl1").check_output(f"zcat {dump} | tail -n 1").startswith("-- Dump completed")
        state = next(line.split()[0] for line in kept if "slurmctld-" in line)
        assert "./job_state" in node("ctl1").check_output(f"tar tzf {state}").split()
    assert {line.split(" ", 1)[1] for line in kept} == {"600 root"}
    assert f"{OLD}.5-to-{NEW}" in dump


def test_another_run_changes_nothing(playbook):
    run = playbook("upgrade-slurm.yml", *WITHOUT_PMIX)
    assert run.returncode == 0, run.stdout[-3000:]
    assert set(changed(run.stdout).values()) == {"0"}, tasks_that_changed(run.stdout)
