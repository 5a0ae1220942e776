"""The newest Slurm that Debian has: deployed, asked, and proven by the validation."""

import re

from playbooks.plugin_utils.monitoring import SLURM_ENDPOINTS
from tests import proven_cluster
from tests.patience import until
from tests.web_listener import Listener


def test_it_is_the_newest_slurm(node):
    version = node("login1").check_output("sinfo --version")
    assert tuple(map(int, re.findall(r"\d+", version)[:2])) >= (26, 5), version


def test_jobs_run_on_all_nodes_and_are_accounted(node):
    proven_cluster.jobs_run_and_are_accounted(node("login1"))


def test_the_quick_suite_passes(operator):
    proven_cluster.the_quick_suite_passes(operator)


def test_prometheus_asks_slurmctld_itself(node):
    prometheus = Listener(node("ctl1"), 9090, "ctl1")

    def endpoints() -> set[str]:
        return {sample["metric"]["endpoint"] for sample in prometheus.query('up{job="slurm"} == 1')}

    until(lambda: endpoints() == {*SLURM_ENDPOINTS}, seconds=150)  # two intervals, and a half
    assert [sample["value"][1] for sample in prometheus.query("slurm_nodes")] == ["2"]
    assert {sample["metric"]["node"] for sample in prometheus.query("slurm_node_cpus")} == {
        "gpu1",
        "gpu2",
    }


def test_a_second_run_changes_nothing(operator):
    proven_cluster.a_second_run_changes_nothing(operator, "molecule/unstable/inventory/hosts.yml")
