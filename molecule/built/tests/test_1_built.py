"""Upstream's Slurm on all nodes, built by one of them: it runs jobs, and the validation passes."""

import json
import os
import re
from pathlib import Path

from tests import proven_cluster

FOLDER = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "slurm"
VERSION = re.search(r"\d+\.\d+\.\d+", json.loads((FOLDER / "release.json").read_text())["name"])[0]


def test_all_nodes_have_the_release_and_none_but_the_build_host_a_compiler(node):
    assert len(list((FOLDER / "kept").glob("*.tar"))) == 1
    for name in proven_cluster.NODES:
        assert node(name).check_output("sinfo --version") == f"slurm {VERSION}"
        assert node(name).package("slurm-smd").version.startswith(VERSION)
        # What an earlier run kept in the scenario's folder is not built again.
        assert name == "ctl1" or not node(name).package("debhelper").is_installed


def test_jobs_run_on_all_nodes_and_are_accounted(node):
    proven_cluster.jobs_run_and_are_accounted(node("login1"))


def test_who_has_no_job_does_not_log_in_to_a_compute_node(node, operator):
    """SchedMD's pam_slurm_adopt lies elsewhere than Debian's."""
    assert operator.virtual_cluster("ssh", "ada@gpu1", "hostname").returncode != 0
    with node("gpu1").sudo():
        journal = node("gpu1").check_output("journalctl --lines=1 --output=cat -t pam_slurm_adopt")
    assert "you have no active jobs on this node" in journal


def test_the_quick_suite_passes(operator):
    proven_cluster.the_quick_suite_passes(operator)


def test_a_second_run_changes_nothing_and_builds_nothing(operator):
    output = proven_cluster.a_second_run_changes_nothing(
        operator, "molecule/built/inventory/hosts.yml"
    )
    assert "is built on" not in output
