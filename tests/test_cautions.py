"""What preflight warns of and lets pass: versions with known holes, jobs that run for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster import gpus
from playbooks.plugin_utils.judge import cautions, pmix_refusals
from tests.standins.inventories import good, site, write


def told(folder, **variables):
    return cautions(site(write(folder / "i", good(), {"group_vars/all.yml": variables})))


def test_versions_with_known_holes_are_told_once_for_all_hosts(tmp_path):
    driver, toolkit = told(
        tmp_path, nvidia_driver_version="580.95.05", nvidia_container_toolkit_version="1.18.0-1"
    )
    assert driver.startswith("nvidia_driver_version is 580.95.05 on ")
    assert driver.count("580.159.03") == 1
    assert "gpu[1-2]" in driver
    assert "1.18.0 has holes that 1.19.1 has not (known since 2026-06-30," in toolkit


def test_what_the_roles_install_by_default_has_no_known_hole(tmp_path):
    assert told(tmp_path) == []


def test_a_branch_of_the_driver_that_came_since_is_told_and_accepted(tmp_path):
    newest = gpus.branches()[-1]
    (sentence,) = told(tmp_path, nvidia_driver_branch=newest + 5)
    assert sentence.startswith(f"nvidia_driver_branch {newest + 5} is newer than {newest}, the ")
    assert "So it is on" in sentence
    assert "gpu[1-2]" in sentence
    assert told(tmp_path, nvidia_driver_branch=newest) == []


@pytest.mark.parametrize(
    ("partition", "endless"),
    [
        ({}, True),
        ({"max_time": "7-00:00:00"}, False),
        ({"settings": {"DefaultTime": "1:00"}}, False),
        ({"settings": {"maxtime": "1:00"}}, False),
        ({"settings": {"State": "UP"}}, True),
    ],
)
def test_partitions_whose_jobs_run_for_ever_are_told_in_one_line(tmp_path, partition, endless):
    names = ("a", "b")
    partitions = [{"name": name, "nodes": ["slurm_compute"]} | partition for name in names]
    sentences = told(tmp_path, slurm_partitions=partitions)
    assert len(sentences) == endless
    assert all("run for ever in a, b. Set max_time" in sentence for sentence in sentences)


@pytest.mark.parametrize(
    ("variables", "refused"),
    [
        ({}, True),
        ({"slurm_settings": {"mpiDefault": "pmix_v5"}}, True),
        ({"slurm_settings": {"MpiDefault": "none"}}, False),
        ({"slurm_install_method": "distro"}, False),
        ({"slurm_install_build_options": ["--with-nvml=/usr"]}, False),
    ],
)
def test_a_slurm_built_without_pmix_is_refused_where_pmix_is_the_default(
    tmp_path, variables, refused
):
    built = {"slurm_install_method": "build", "slurm_install_build_options": ["--without-pmix"]}
    read = site(write(tmp_path / "i", good(), {"group_vars/all.yml": built | variables}))
    sentences = [str(refusal) for refusal in pmix_refusals(read)]
    assert len(sentences) == refused
    assert all("slurm_install_build_options has --without-pmix" in text for text in sentences)


def test_monitoring_of_a_large_cluster_beside_slurmctld_is_told(tmp_path):
    inventory = site(write(tmp_path / "i", good(), {}))
    hosts = [f"h{number}" for number in range(101)]
    small, large, apart = (
        replace(inventory, groups={**inventory.groups, **groups})
        for groups in (
            {"slurm_cluster": hosts[:100], "monitoring": inventory.groups["slurm_controller"]},
            {"slurm_cluster": hosts, "monitoring": inventory.groups["slurm_controller"]},
            {"slurm_cluster": hosts, "monitoring": ["mon1"]},
        )
    )
    assert cautions(small) == cautions(apart) == []
    (sentence,) = cautions(large)
    assert "in monitoring and in slurm_controller: Prometheus of 101 hosts needs up to 3 GB" in (
        sentence
    )
