"""The newest Slurm that Debian has: deployed, asked, and proven by the validation."""

import re

from tests import proven_cluster


def test_it_is_the_newest_slurm(node):
    said = node("login1").check_output("sinfo --version")
    assert tuple(map(int, re.findall(r"\d+", said)[:2])) >= (26, 5), said


def test_jobs_run_on_all_nodes_and_are_accounted(node):
    proven_cluster.jobs_run_and_are_accounted(node("login1"))


def test_the_quick_suite_passes(operator):
    proven_cluster.the_quick_suite_passes(operator)


def test_a_second_run_changes_nothing(operator):
    proven_cluster.a_second_run_changes_nothing(operator, "molecule/unstable/inventory/hosts.yml")
