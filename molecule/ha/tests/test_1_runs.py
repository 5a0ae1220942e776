"""What the playbook does to two controllers: nothing, or one after the other is changed."""

from __future__ import annotations

import json
import os
import re
import shlex

import pytest
import yaml

from tests.live_cluster import REPOSITORY, changed, words

SCENARIO = REPOSITORY / "molecule/ha/inventory"
CONTROLLERS = ("ctl1", "ctl2")
SETTINGS = yaml.safe_load((SCENARIO / "group_vars/all.yml").read_text())["slurm_settings"]
STARTED = "systemctl show --property=ActiveEnterTimestampMonotonic --value slurmctld"
# Until ha.stop is there: what `scontrol ping` says, one answer on each line.
PING = "while [ ! -e ha.stop ]; do scontrol ping | tr '\\n' ' '; echo; sleep 0.2; done"


@pytest.fixture(scope="module")
def playbook(operator):
    def run(name: str, *arguments: str):
        return operator.playbook(name, "-i", str(SCENARIO / "hosts.yml"), *arguments, timeout=1800)

    return run


def started(node) -> list[int]:
    return [int(node(name).check_output(STARTED)) for name in CONTROLLERS]


def extra_vars(**variables) -> tuple[str, str]:
    return ("-e", json.dumps(variables))


def test_both_controllers_run_and_have_one_state(node):
    output = node("login1").check_output("scontrol ping")
    assert "Slurmctld(primary) at ctl1 is UP" in output
    assert "Slurmctld(backup) at ctl2 is UP" in output
    assert "/shared/state/slurmctld" in node("login1").check_output("scontrol show config")
    for name in CONTROLLERS:
        assert node(name).service("slurmdbd").is_running


def test_a_second_run_changes_nothing_on_both_controllers(node, playbook):
    before = started(node)
    run = playbook("slurm-cluster.yml")
    assert run.returncode == 0, run.stdout[-3000:]
    assert set(changed(run.stdout)) >= {*CONTROLLERS, "login1", "gpu1", "gpu2"}
    assert set(changed(run.stdout).values()) == {"0"}
    assert started(node) == before


def test_a_change_for_one_controller_alone_is_refused(node, playbook):
    before = started(node)
    other = extra_vars(slurm_settings=SETTINGS | {"MessageTimeout": 17})
    run = playbook("slurm.yml", "--limit", "ctl1", *other)
    assert run.returncode != 0
    assert "ctl2: this controller is not in the run, which changes Slurm's files on ctl1" in (
        words(run)
    )
    assert "(slurm.conf)" in words(run)
    assert set(changed(run.stdout).values()) == {"0"}
    same = playbook("slurm.yml", "--limit", "ctl1")
    assert same.returncode == 0, same.stdout[-3000:]
    assert started(node) == before


@pytest.mark.parametrize("away", CONTROLLERS)
def test_with_one_controller_away_the_others_are_done(node, playbook, away, tmp_path):
    """Ansible does not reach it; its daemon runs on. Only what changes Slurm's files is refused."""
    (tmp_path / "off.yml").write_text(f"all: {{hosts: {{{away}: {{ansible_port: 9}}}}}}\n")
    off = ("-i", str(tmp_path / "off.yml"))
    before = started(node)
    run = playbook("slurm-cluster.yml", *off)
    assert f"{away} cannot be reached" in words(run)
    assert set(changed(run.stdout).values()) <= {"0"}

    silenced = {"cluster_silenced_refusals": [f"controller-away:{away}"]}
    run = playbook("slurm-cluster.yml", *off, *extra_vars(**silenced))
    recap = dict(re.findall(r"^(\S+) .*?failed=(\d+)", run.stdout, re.MULTILINE))
    assert set(recap.values()) == {"0"}, run.stdout[-3000:]
    assert f"Not reached, and therefore not configured: {away}" in words(run)
    assert {changed(run.stdout)[name] for name in ("login1", "gpu1", "gpu2")} == {"0"}

    other = extra_vars(slurm_settings=SETTINGS | {"MessageTimeout": 17}, **silenced)
    run = playbook("slurm-cluster.yml", *off, *other)
    assert f"{away}: this controller is not in the run" in words(run)
    assert started(node) == before


def test_a_change_restarts_one_controller_after_the_other_and_one_always_answers(node, playbook):
    login = node("login1")
    job = login.check_output("sbatch --parsable -N2 -o /dev/null --wrap 'sleep 900'")
    login.check_output(f"rm -f ha.stop; nohup sh -c {shlex.quote(PING)} >ha.pings 2>&1 <&- &")
    before = started(node)
    try:
        run = playbook("slurm.yml", *extra_vars(slurm_settings=SETTINGS | {"MessageTimeout": 15}))
    finally:
        login.check_output("touch ha.stop")
    assert run.returncode == 0, run.stdout[-3000:]
    after = started(node)
    assert all(new > old for new, old in zip(after, before, strict=True))
    assert after == sorted(after), "the primary comes first"
    pings = [line for line in login.check_output("cat ha.pings").splitlines() if line.strip()]
    assert len(pings) > 20
    assert [line for line in pings if "is UP" not in line] == []
    assert login.check_output(f"squeue -h -j {job} -o %T") == "RUNNING"
    assert "15 sec" in login.check_output("scontrol show config | grep MessageTimeout")

    # Files that a reload takes over: the primary reads them without a restart, the backup at one.
    partitions = [
        {"name": "gpu", "nodes": ["slurm_compute"], "default": True},
        {"name": "late", "nodes": ["slurm_compute"]},
    ]
    run = playbook(
        "slurm.yml",
        *extra_vars(slurm_settings=SETTINGS | {"MessageTimeout": 15}, slurm_partitions=partitions),
    )
    assert run.returncode == 0, run.stdout[-3000:]
    assert started(node)[0] == after[0]
    assert started(node)[1] > after[1]
    assert "late" in login.check_output("sinfo -h -o %P")

    run = playbook("slurm.yml")
    assert run.returncode == 0, run.stdout[-3000:]
    assert login.check_output(f"squeue -h -j {job} -o %T") == "RUNNING"
    login.check_output(f"scancel {job}")


def test_a_queue_is_not_left_behind(playbook, node):
    before = started(node)
    run = playbook("slurm.yml", *extra_vars(slurm_state_save_location="/shared/scratch/slurmctld"))
    assert run.returncode != 0
    assert "slurmctld on ctl1 has its queue in /shared/state/slurmctld" in words(run)
    assert started(node) == before


@pytest.mark.skipif(
    os.environ.get("PLUMBLINE_OS", "debian13") == "debian12", reason="Slurm 22.05 has no sackd"
)
def test_a_login_node_without_files_follows_by_sackd(node, playbook):
    login, fetching = node("login1"), extra_vars(slurm_login_delivery="sackd")
    run = playbook("slurm.yml", *fetching)
    assert run.returncode == 0, run.stdout[-3000:]
    assert not login.file("/etc/slurm/slurm.conf").exists
    assert login.service("sackd").is_running
    assert sorted(login.check_output("srun -N2 hostname").split()) == ["gpu1", "gpu2"]
    again = playbook("slurm.yml", *fetching)
    assert changed(again.stdout)["login1"] == "0", again.stdout[-3000:]
    back = playbook("slurm.yml")
    assert back.returncode == 0, back.stdout[-3000:]
    assert not login.package("sackd").is_installed
    assert login.file("/etc/slurm/slurm.conf").exists
    assert sorted(login.check_output("srun -N2 hostname").split()) == ["gpu1", "gpu2"]
