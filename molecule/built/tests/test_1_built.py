"""Upstream's Slurm on all nodes, built by one of them: it runs jobs, and the validation passes."""

import json
import os
import re
from pathlib import Path

from tests.web_listener import until

FOLDER = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "slurm"
VERSION = re.search(r"\d+\.\d+\.\d+", json.loads((FOLDER / "release.json").read_text())["name"])[0]
NODES = ("ctl1", "login1", "gpu1", "gpu2")


def test_all_nodes_have_the_release_and_one_the_compiler(node):
    assert len(list((FOLDER / "kept").glob("*.tar"))) == 1
    for name in NODES:
        assert node(name).check_output("sinfo --version") == f"slurm {VERSION}"
        assert node(name).package("slurm-smd").version.startswith(VERSION)
        assert node(name).package("debhelper").is_installed == (name == "ctl1")


def test_jobs_run_on_all_nodes_and_are_accounted(node):
    login = node("login1")
    hosts = login.check_output("srun -N2 --ntasks-per-node=1 --gres=gpu:1 --job-name=new hostname")
    assert sorted(hosts.splitlines()) == ["gpu1", "gpu2"]
    asked = "sacct -n -X -P --name=new -o state"
    until(lambda: login.check_output(asked) == "COMPLETED", 30)


def test_who_has_no_job_does_not_log_in_to_a_compute_node(operator):
    """SchedMD's pam_slurm_adopt lies elsewhere than Debian's."""
    told = operator.virtual_cluster("ssh", "ada@gpu1", "hostname")
    assert told.returncode != 0
    assert "you have no active jobs on this node" in told.stderr


def test_the_quick_suite_passes(operator):
    run = operator.validate("--suite", "quick")
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert "PASS" in run.stdout


def test_a_second_run_changes_nothing_and_builds_nothing(operator):
    own = ("-i", "molecule/built/inventory/hosts.yml")
    run = operator.playbook("slurm-cluster.yml", *own, timeout=1800)
    assert run.returncode == 0, run.stdout[-3000:]
    changed = re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", run.stdout, re.MULTILINE)
    assert {name for name, _ in changed} >= {*NODES}
    assert {number for _, number in changed} == {"0"}
    assert "is built on" not in run.stdout
