"""What the inventory says to the monitoring."""

from __future__ import annotations

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible.template import trust_as_template

from playbooks.filter_plugins.monitoring import web_config
from playbooks.plugin_utils import documents, monitoring, systemd

GROUPS = {
    "all": ["ctl1", "login1", "gpu1", "gpu2", "mon1", "other"],
    "slurm_cluster": ["ctl1", "login1", "gpu1", "gpu2", "mon1"],
    "slurm_controller": ["ctl1"],
    "slurm_database": ["ctl1"],
    "slurm_login": ["login1", "ctl1"],
    "slurm_compute": ["gpu1", "gpu2"],
    "h100": ["gpu1"],
    "rack1": ["gpu1", "gpu2"],
    "monitoring": ["mon1", "ctl1"],
}


def labels(partitions):
    return {host["name"]: host["labels"] for host in monitoring.hosts(GROUPS, partitions)}


def test_each_host_of_the_cluster_has_its_first_group():
    by_host = labels([{"name": "gpu", "nodes": ["slurm_compute"]}])
    groups = {"ctl1": "controller", "login1": "login", "mon1": "monitoring"}
    groups |= {"gpu1": "compute", "gpu2": "compute"}
    assert by_host == {host: {"group": group} for host, group in groups.items()}


def test_a_compute_node_has_the_first_group_that_a_partition_is_made_of():
    by_host = labels([{"name": "all", "nodes": ["slurm_compute"]}, {"nodes": ["h100", "rack1"]}])
    assert by_host["gpu1"] == {"group": "compute", "partition_group": "h100"}
    assert by_host["gpu2"] == {"group": "compute", "partition_group": "rack1"}
    assert by_host["ctl1"] == {"group": "controller"}


def test_a_compute_node_has_the_rack_and_switch_that_it_declares():
    nodes = [{"name": "gpu1", "rack": "r1", "switch": "leaf1"}, {"name": "gpu2", "switch": "leaf1"}]
    by_host = {host["name"]: host["labels"] for host in monitoring.hosts(GROUPS, [], nodes)}
    assert by_host["gpu1"] == {"group": "compute", "rack": "r1", "switch": "leaf1"}
    assert by_host["gpu2"] == {"group": "compute", "switch": "leaf1"}
    assert by_host["ctl1"] == {"group": "controller"}


def test_without_the_cluster_there_is_nobody():
    assert monitoring.hosts({"all": ["one"]}, []) == []


def test_a_host_has_one_address():
    known = {"ctl1": "10.0.0.1", "gpu1": "10.0.0.11"}
    assert monitoring.address(known, "gpu1") == "10.0.0.11"
    with pytest.raises(ValueError, match="gpu2 is no host of the cluster"):
        monitoring.address(known, "gpu2")


NODES = [
    {"name": "gpu1", "gpus": {"model": "h100_sxm", "count": 8}},
    {"name": "gpu2", "gpus": {"model": "virtual", "count": 2, "nvml": True}},
    {"name": "cpu1", "gpus": {"model": "none", "count": 0}},
    {"name": "own1", "gpus": {"model": "a_sites_own", "count": 1}},
]


def test_dcgm_is_asked_where_a_host_says_so():
    sources = {"gpu1": {"gpu_exporter_source": "dcgm"}, "gpu2": {"gpu_exporter_source": "nvml"}}
    assert monitoring.gpu_hosts(sources | {"cpu1": {}}, ["gpu1", "gpu2", "cpu1"]) == ["gpu1"]


def test_slurms_own_endpoint_is_asked_of_the_first_controller_as_one_job():
    scrapes = monitoring.slurm_scrapes(["ctl1", "ctl2"], 6817)
    paths = [f"/metrics/{of}" for of in ("jobs", "nodes", "partitions", "scheduler")]
    assert [scrape["metrics_path"] for scrape in scrapes] == paths
    assert all(scrape["static_configs"][0]["targets"] == ["ctl1:6817"] for scrape in scrapes)
    assert all(scrape["relabel_configs"][0]["replacement"] == "slurm" for scrape in scrapes)
    labels = [scrape["static_configs"][0]["labels"]["endpoint"] for scrape in scrapes]
    assert len(set(labels)) == len(scrapes)  # or their series `up` would be one


def test_what_is_declared_is_expected_with_the_names_of_the_boards():
    expected = {row["node"]: row for row in monitoring.expected_gpus(NODES)}
    assert expected["gpu1"]["names"] == ["NVIDIA H100 80GB HBM3"]
    counts = {"gpu1": 8, "gpu2": 2, "cpu1": 0, "own1": 1}
    assert [(name, row["count"]) for name, row in expected.items()] == [*counts.items()]
    assert expected["own1"]["names"] == []


def test_a_listener_without_users_is_refused():
    config = yaml.safe_load(web_config({"a": "hash"}, "/c", "/k"))
    assert config["basic_auth_users"] == {"a": "hash"}
    with pytest.raises(AnsibleFilterError, match="open to everybody"):
        web_config({}, "/c", "/k")


def test_a_units_command_is_exactly_its_words():
    words = ["/bin/x", "--a=b", "--re=a\\.b$", "--f=50%", "two words", "it's", 'a"b', ""]
    assert systemd.command(words) == (
        '/bin/x --a=b "--re=a\\\\.b$$" "--f=50%%" "two words" "it\'s" "a\\"b" ""'
    )
    with pytest.raises(ValueError, match="more than one line"):
        systemd.command(["a\nb"])


def test_values_of_ansibles_are_written_as_what_they_are():
    """YAML's writer refuses a text that remembers where it is from."""
    text = trust_as_template("30s")
    with pytest.raises(yaml.representer.RepresenterError):
        yaml.safe_dump(text)
    value = {"a": [text, 1, 1.5, True, None], "b": {text: (text,)}}
    assert yaml.safe_load(documents.to_yaml(value)) == {
        "a": ["30s", 1, 1.5, True, None],
        "b": {"30s": ["30s"]},
    }
