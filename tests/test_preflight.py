"""What preflight accepts and refuses, through Ansible's own inventory, without a host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cluster import contract
from playbooks.plugin_utils import cluster
from playbooks.plugin_utils.judge import cautions
from tests.standins.inventories import (
    HARDWARE,
    REPOSITORY,
    good,
    hosts,
    judged,
    site,
    worked_out,
    write,
)

CPUS = HARDWARE["node_cpus"]


def sentences(folder: Path, *more: Path) -> str:
    return "\n".join(judged(folder, *more).sentences)


def h100(children: dict[str, Any]) -> dict[str, Any]:
    """The group of the GPU nodes."""
    group: dict[str, Any] = children["slurm_compute"]["children"]["gpu_h100"]
    return group


def with_all(folder: Path, **variables: Any) -> Path:
    """The good inventory, with variables for all hosts in a file beside it."""
    return write(folder, good(), {"group_vars/all.yml": variables})


def with_host(folder: Path, **variables: Any) -> Path:
    """The good inventory, with variables of gpu1 in its line."""
    children = good()
    h100(children)["hosts"]["gpu1"] |= variables
    return write(folder, children)


def gpus(model: str = "h100_sxm", count: int = 8, **more: Any) -> dict[str, Any]:
    return {"node_gpus": {"model": model, "count": count, **more}}


def with_hardware(folder: Path, **variables: Any) -> Path:
    children = good()
    h100(children)["vars"] = HARDWARE | variables
    return write(folder, children)


# --- accepted ------------------------------------------------------------------------------------


def test_a_good_inventory_is_refused_nothing(tmp_path: Path) -> None:
    judgement = judged(write(tmp_path, good()))
    assert judgement.sentences == []
    assert [node["name"] for node in judgement.cluster.nodes] == ["gpu1", "gpu2"]
    assert judgement.cluster.hosts_lines.splitlines()[0] == "10.0.0.1 ctl1"


def test_groups_of_the_site_are_its_own(tmp_path: Path) -> None:
    """Racks over compute nodes, groups of `constructed`, hosts that are none of the cluster's."""
    rack = {"hosts": {"gpu1": {}, "ctl1": {}}, "vars": {"rack": "r1"}}
    others = hosts(printer="printer.example.org")
    children = {"rack1": rack, "dc": {"children": {"rack1": {}}}, "other_machines": others}
    write(tmp_path, good(), children=children)
    assert sentences(tmp_path) == ""


def test_nested_groups_may_declare_what_their_parent_declares_otherwise(tmp_path: Path) -> None:
    children = good()
    big = {"hosts": {"gpu1": {}}, "vars": {"node_memory_mb": 128000}}
    h100(children)["children"] = {"gpu_h100_big": big}
    judgement = judged(write(tmp_path, children))
    assert judgement.sentences == []
    memory = {node["name"]: node["memory_mb"] for node in judgement.cluster.nodes}
    assert memory == {"gpu1": 128000, "gpu2": 64000}


def test_two_groups_of_a_host_may_declare_the_same(tmp_path: Path) -> None:
    children = good()
    children["slurm_compute"]["children"]["row7"] = {"hosts": {"gpu1": {}}, "vars": HARDWARE}
    assert sentences(write(tmp_path, children)) == ""


def test_a_variable_that_shares_a_prefix_is_the_sites(tmp_path: Path) -> None:
    names = (
        "cluster_domain",
        "node_agent_version",
        "slurm_component_settings",
        "slurm_component_pyxis",
        "munge_relay_port",
        "my_site",
        "node_rack",
    )
    assert sentences(with_all(tmp_path, **dict.fromkeys(names, "x"))) == ""


def test_a_model_of_which_we_have_no_thresholds_is_accepted(tmp_path: Path) -> None:
    assert sentences(with_hardware(tmp_path, **gpus("vr200", 4))) == ""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("H100-SXM5-80GB", "h100_sxm"),
        ("NVIDIA A100-SXM4-40GB", ""),  # no word of slurm.conf
        ("nvidia_a100_sxm4_40gb", "a100_sxm"),
        ("RTX4090", "rtx_4090"),
        ("geforce_rtx_4090", "rtx_4090"),
        ("RTX-PRO-6000-Blackwell-Server-Edition", "rtx_pro_6000"),
        ("nvidia_h20", "h20_sxm"),
        ("GB300-NVL72", "gb300"),
        ("h100", "h100_nvl or h100_pcie or h100_sxm"),
    ],
)
def test_a_model_in_other_words_is_told(tmp_path: Path, model: str, meant: str) -> None:
    refusals = sentences(with_hardware(tmp_path, **gpus(model, 8)))
    assert (f"did you mean {meant}?" in refusals) == bool(meant)
    assert refusals


def test_nodes_with_nvswitch_say_their_fabric(tmp_path: Path) -> None:
    children = good()
    del h100(children)["vars"]["fabric"]
    refusals = sentences(write(tmp_path / "unsaid", children))
    assert "gpu[1-2]: fabric is not set, and ethernet would be declared" in refusals
    h100(children)["vars"] |= gpus("l40s", 8)
    assert not sentences(write(tmp_path / "l40s", children))


@pytest.mark.sample(1)
@pytest.mark.parametrize("word", [{}, {"nvml": True}, {"nvml": False}])
def test_a_stand_in_for_nvml_is_declared_where_there_is_one(
    tmp_path: Path, word: dict[str, bool]
) -> None:
    virtual = {"model": "virtual", "count": 2}
    judgement = judged(with_hardware(tmp_path, node_gpus=virtual | word))
    assert judgement.sentences == []
    expected = virtual | ({"nvml": True} if word.get("nvml") else {})
    assert [node["gpus"] for node in judgement.cluster.declaration["nodes"]] == [expected, expected]


def test_a_dns_name_is_an_address_where_it_resolves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[str] = []

    def resolve(names: Any) -> dict[str, str]:
        queries.extend(names)
        return {"gpu1.example.org": "10.9.0.1"}

    monkeypatch.setattr(cluster.addresses, "__defaults__", (resolve,))
    monkeypatch.setattr(cluster.doors, "__defaults__", (resolve,))
    judgement = judged(with_host(tmp_path, ansible_host="gpu1.example.org"))
    assert judgement.sentences == []
    assert judgement.cluster.nodes[0]["address"] == "10.9.0.1"
    assert set(queries) == {"gpu1.example.org"}


def test_several_sources_are_one_inventory(tmp_path: Path) -> None:
    write(tmp_path / "a", good())
    more = {"slurm_compute": {"children": {"gpu_h100": hosts(gpu3="10.0.0.13")}}}
    write(tmp_path / "b", more, {"group_vars/gpu_h100.yml": {"node_memory_mb": 32000}})
    judgement = judged(tmp_path / "a", tmp_path / "b")
    assert judgement.sentences == []
    assert {node["memory_mb"] for node in judgement.cluster.nodes} == {32000}


# --- refused: groups -----------------------------------------------------------------------------


def test_there_is_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {children: {slurm_compute: {hosts: {gpu1: }}}}\n")
    assert "there is no group slurm_cluster (parent of all below" in sentences(tmp_path)


@pytest.mark.sample(1)
@pytest.mark.parametrize("group", ["slurm_controller", "slurm_database", "slurm_login"])
def test_a_needed_group_has_a_host(tmp_path: Path, group: str) -> None:
    children = good()
    children[group] = {}
    assert f"group {group} (" in sentences(write(tmp_path / "empty", children))
    del children[group]
    assert f"there is no group {group} (" in sentences(write(tmp_path / "missing", children))


def test_a_misspelt_group_is_told_with_the_one_that_was_meant(tmp_path: Path) -> None:
    children = good()
    children["slurm_logn"] = children.pop("slurm_login")
    assert "is slurm_logn meant to be it?" in sentences(write(tmp_path / "inside", children))
    stray: dict[str, Any] = {"slurm_computes": {"hosts": {"gpu9": {}}}}
    refusals = sentences(write(tmp_path / "outside", good(), children=stray))
    assert "slurm_computes has hosts that are not in slurm_compute (gpu9); did you" in refusals
    misspelt = good() | {"monitorring": {"hosts": {"gpu1": {}}}}
    refusals = sentences(write(tmp_path / "monitoring", misspelt))
    assert (
        "not in monitoring (gpu1); did you mean monitoring? [group-misspelt:monitorring]"
        in refusals
    )
    of_the_site = good() | {"slurm_compute2": {"hosts": {"gpu1": {}}}}
    assert not sentences(write(tmp_path / "more", of_the_site))


def test_a_host_without_a_role_is_refused(tmp_path: Path) -> None:
    idle = hosts(idle1="10.0.0.78", idle2="10.0.0.79")
    refusals = sentences(write(tmp_path / "idle", good() | {"mine": idle}))
    assert "idle[1-2]: in slurm_cluster, but in none of its groups" in refusals
    silenced = {"group_vars/all.yml": {"cluster_silenced_refusals": ["host-without-role"]}}
    assert not sentences(write(tmp_path / "silenced", good() | {"mine": idle}, silenced))


@pytest.mark.long
def test_alike_refusals_of_many_hosts_are_one_sentence(tmp_path: Path) -> None:
    children = good()
    names = {f"gpu{i:03d}.example.org": f"10.0.{i // 250}.{i % 250 + 1}" for i in range(1, 513)}
    children["slurm_compute"] = hosts(**names)
    refusals = sentences(write(tmp_path / "names", children))
    assert "gpu[001-512].example.org cannot be NodeNames" in refusals
    assert 'as ansible_host: "{{ inventory_hostname }}.example.org" in their' in refusals
    assert len(refusals) < 2000


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("variables", "told"),
    [
        (
            {"slurm_partitions": [{"name": "p", "nodes": ["gpu1"], "max_time": "1-0"}]},
            "gpu2 is in no partition of",
        ),
        ({"slurm_settings": {"JobContainerType": "job_container/tmpfs"}}, "is the old name of"),
        ({}, ""),
    ],
)
def test_what_works_and_is_hardly_meant_is_a_warning(
    tmp_path: Path, variables: dict[str, Any], told: str
) -> None:
    path = write(tmp_path, good(), {"group_vars/all.yml": variables})
    assert not sentences(path)
    warnings = cautions(worked_out(path)[0])
    assert len(warnings) == bool(told)
    assert told in " ".join(warnings)


@pytest.mark.parametrize("group", ["slurm_login", "slurm_database", "monitoring"])
def test_a_group_of_the_contract_is_inside_the_cluster(tmp_path: Path, group: str) -> None:
    children = good()
    outside = children.pop(group, {})
    outside |= hosts(out1="10.0.0.77")
    refusals = sentences(write(tmp_path, children, children={group: outside}))
    assert f"group {group} has hosts that are not in slurm_cluster (out1)" in refusals
    assert f"make {group} a child" in refusals


def test_a_portal_that_could_not_submit_jobs_is_refused(tmp_path: Path) -> None:
    refusals = sentences(write(tmp_path, good() | {"portal": hosts(ctl1="10.0.0.1")}))
    assert "group portal has hosts that are not in slurm_login (ctl1)" in refusals
    assert "put them into slurm_login as well" in refusals


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("databases", "backup", "sentence"),
    [
        (["ctl1", "login1"], "", "has two hosts (ctl1, login1); say which one is the backup"),
        (["ctl1", "login1"], "login1", ""),
        (["ctl1", "login1"], "gpu1", "is gpu1, which is not in slurm_database"),
        (["ctl1", "login1", "gpu1"], "login1", "has 3 hosts"),
        (["ctl1"], "ctl1", "is ctl1, which is the only host of slurm_database"),
    ],
)
def test_of_two_databases_one_is_the_backup(
    tmp_path: Path, databases: list[str], backup: str, sentence: str
) -> None:
    children = good()
    children["slurm_database"]["hosts"] = {host: {} for host in databases}
    variables = {"cluster_database_backup": backup, "slurm_database_storage_host": "db.example.org"}
    refusals = sentences(write(tmp_path, children, {"group_vars/all.yml": variables}))
    assert sentence in refusals
    assert bool(sentence) == bool(refusals)


def test_a_backup_of_accounting_needs_a_database_that_both_reach(tmp_path: Path) -> None:
    children = good()
    children["slurm_database"]["hosts"] = {"ctl1": {}, "login1": {}}
    files = {"group_vars/all.yml": {"cluster_database_backup": "login1"}}
    assert (
        "slurm_database: slurm_database_backup_host is login1, but the records are in a MariaDB on "
        "ctl1, which login1 does not reach"
    ) in sentences(write(tmp_path, children, files))


def test_two_groups_of_one_host_do_not_disagree_about_its_hardware(tmp_path: Path) -> None:
    children = good()
    children["slurm_compute"]["children"]["gpu_a100"] = {
        "hosts": {"gpu1": {}},
        "vars": HARDWARE | gpus("a100_sxm"),
    }
    refusals = sentences(write(tmp_path, children))
    assert "hosts.yml:31: gpu1: the groups gpu_a100 and gpu_h100 set node_gpus to diff" in refusals
    assert "node_cpus" not in refusals
    h100(children)["hosts"]["gpu1"] |= gpus()  # the host decides
    assert sentences(write(tmp_path, children)) == ""


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("group_vars/gpu_h10.yml", "is for a group gpu_h10 that the inventory does not have; did"),
        ("group_vars/nobody/x.yml", "is for a group nobody that"),
        ("host_vars/gpu11.yml", "is for a host gpu11 that the inventory does not have; did you"),
        ("host_vars/gpu1.example.org.yml", "is for a host gpu1.example.org that"),
    ],
)
def test_a_file_of_variables_belongs_to_someone(tmp_path: Path, file: str, sentence: str) -> None:
    assert sentence in sentences(write(tmp_path, good(), {file: {"rack": 1}}))


@pytest.mark.sample(1)
@pytest.mark.parametrize("file", ["group_vars/README.md", "group_vars/.gpu.swp", "host_vars/gpu1"])
def test_other_files_beside_an_inventory_are_none_of_ours(tmp_path: Path, file: str) -> None:
    assert sentences(write(tmp_path, good(), {file: {"rack": 1}})) == ""


# --- refused: names and addresses ----------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("localhost", "localhost cannot be the name of a host"),
        ("default", "default cannot be"),
        ("DEFAULT", "DEFAULT cannot be"),
        ("g" * 64, "has 64 characters"),
        ("gpu1.example.org", "gpu1.example.org cannot be a NodeName"),
        ("gpu_1", "gpu_1 cannot be a NodeName"),
        ("GPU1", "gpu1 and GPU1 differ only in upper and lower case"),
    ],
)
def test_a_name_that_no_host_can_have(tmp_path: Path, name: str, sentence: str) -> None:
    children = good()
    h100(children)["hosts"][name] = {"ansible_host": "10.0.0.99"}
    assert sentence in sentences(write(tmp_path, children))


def test_all_is_no_name_of_a_host(tmp_path: Path) -> None:
    from cluster.names import name_refusals  # noqa: PLC0415 - Ansible refuses it, too

    assert "all cannot be" in str(next(name_refusals(["all"])))


def test_addresses_are_of_one_host_each(tmp_path: Path) -> None:
    refusals = sentences(with_host(tmp_path, ansible_host="10.0.0.12"))
    assert "gpu[1-2] have one address, 10.0.0.12; give each" in refusals


def test_one_machine_has_one_name(tmp_path: Path) -> None:
    twin = {"ansible_host": "10.0.0.12", "node_address": "10.1.0.11"}
    refusals = sentences(with_host(tmp_path / "same", **twin))
    assert "gpu[1-2] are names of one machine" in refusals
    assert "at 10.0.0.12 port 22" in refusals
    assert sentences(with_host(tmp_path / "forwarded", **twin, ansible_port=2201)) == ""


def test_a_name_that_does_not_resolve_is_no_address(tmp_path: Path) -> None:
    refusals = sentences(with_host(tmp_path, ansible_host="gpu1.invalid"))
    assert "gpu1: ansible_host is 'gpu1.invalid', which this machine cannot resolve" in refusals
    assert "set node_address" in refusals


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "0.0.0.0"])
def test_an_address_is_one_that_others_reach(tmp_path: Path, address: str) -> None:
    assert f"gpu1: {address} is" in sentences(with_host(tmp_path, ansible_host=address))


# --- refused: hardware ---------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "model",
    ["", " ", "h100 sxm", "h100,sxm", "h100:sxm", "h100\nsxm", "h100;rm", "$(id)", None, 3090],
)
def test_a_model_is_a_word(tmp_path: Path, model: object) -> None:
    refusals = sentences(with_hardware(tmp_path, node_gpus={"model": model, "count": 8}))
    assert "gpu[1-2]: node_gpus.model " in refusals
    assert "\n" not in refusals


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (gpus("none"), "has the model none and a count of 8"),
        (gpus("H100-SXM"), "did you mean h100_sxm?"),
        (gpus(count=-1), "is -1; set it to a whole number of 0"),
        ({"node_gpus": {"modell": "x", "count": 1}}, "unknown key modell; did you mean model?"),
        (gpus(migs={"1g.10gb": 7}), "has the unknown key migs; did you mean mig?"),
        (gpus(mig=7), "is 7; write it as {1g.10gb: 7}"),
        (gpus(mig={}), "is {}; write it as"),
        (gpus(mig={"1g10gb": 7}), "has the profile '1g10gb'"),
        (gpus(mig={"1g.10gb": "7"}), "is '7'; "),
        (
            gpus(mig={"3g.40gb": 2, "2g.20gb": 1}),
            "wants 1 of 2g.20gb, 2 of 3g.40gb on every GPU, for which no h100_sxm has room",
        ),
        (gpus("virtual", 2, mig={"1g.10gb": 7}), "only real GPUs have instances"),
        ({"node_gpus": None}, "is not set; set it for the node's group"),
        (gpus(nvml=True), "is set for the model h100_sxm; leave it out"),
        (gpus("virtual", nvml="yes"), "is 'yes'; set it to true, or leave it out"),
        ({"node_gpus": {"count": 8, "nvml": True}}, "has no model; write it as {model"),
        ({"node_cpus": 16}, "is 16; it must have the keys sockets"),
        (
            {"node_cpus": {"sockets": 1, "cores": 8}},
            "unknown key cores; write it as {sockets",
        ),
        ({"fabric": "10gbe"}, "did you mean ethernet?"),
        ({"fabric": "eth_10"}, "did you mean ethernet?"),
        ({"fabric": "ib_ndr40"}, "did you mean ib_ndr400?"),
        ({"node_cpus": CPUS | {"sockets": 0}}, "is 0; set it to a whole number of 1"),
        ({"node_memory_mb": "lots"}, "is 'lots'; "),
        ({"node_memory_mb": True}, "is True; "),
        ({"node_memory_mb": 0}, "is 0; "),
        ({"fabric": "ib_ndr40"}, "which is none that we know; did you mean ib_ndr400?"),
        ({"fabric": "infiniband"}, "is 'infiniband', which is none"),
        ({"fabric": ""}, "is '', which is none"),
    ],
)
def test_hardware_that_cannot_be_is_told_once_for_all_its_nodes(
    tmp_path: Path, variables: dict[str, Any], words: str
) -> None:
    [refusal] = judged(with_hardware(tmp_path, **variables)).sentences
    assert f"gpu[1-2]: {next(iter(variables))}" in refusal
    assert words in refusal
    assert "\n" not in refusal


SEVENTHS = gpus(mig={"1g.10gb": 7})
HALVES = [
    {"Name": "gpu", "Type": "half", "File": "/dev/nvidia[0-7]", "Count": 16},
    {"Name": "shard", "Count": 64},
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("variables", "more"),
    [
        (SEVENTHS, {}),  # instances need no lines of a site's own
        (SEVENTHS | {"slurm_node_gres": [{"AutoDetect": "nvml"}]}, {"gres": "gpu:1g.10gb:56"}),
        (gpus() | {"slurm_node_gres": HALVES}, {"gres": "gpu:half:16"}),
    ],
    ids=["instances", "found by Slurm", "a site's own type"],
)
def test_the_validation_learns_what_slurm_gives_out(
    tmp_path: Path, variables: dict[str, Any], more: dict[str, str]
) -> None:
    judgement = judged(with_hardware(tmp_path, **variables))
    assert not judgement.sentences
    assert judgement.cluster.declaration["nodes"][0]["gpus"] == variables["node_gpus"] | more


ENVIRONMENT = "validation_environment"
SHARED = "validation_shared_filesystems"


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        (ENVIRONMENT, "NCCL_DEBUG=INFO", "must be of type dict, but is 'NCCL_DEBUG=INFO'"),
        (ENVIRONMENT, {"NCCL-DEBUG": "INFO"}, f"{ENVIRONMENT}.NCCL-DEBUG is no name of an"),
        (ENVIRONMENT, {"SLURM_NTASKS": "1"}, f"{ENVIRONMENT}.SLURM_NTASKS is set by Slurm"),
        (ENVIRONMENT, {"MASTER_ADDR": "gpu1"}, f"{ENVIRONMENT}.MASTER_ADDR is set"),
        (ENVIRONMENT, {"NCCL_IB_DISABLE": True}, "is True; set it to a text of one line"),
        (ENVIRONMENT, {"NCCL_IB_HCA": ["mlx5_0"]}, "NCCL_IB_HCA is ['mlx5_0']; "),
        (ENVIRONMENT, {"NCCL_IB_HCA": "mlx5_0\nrm"}, "NCCL_IB_HCA is 'mlx5_0\\nrm'; "),
        (SHARED, "/home", "must be of type list, but is '/home'"),
        (SHARED, ["home"], "has 'home'; set it to absolute paths below the root"),
        (SHARED, ["/"], "has '/'; "),
        (SHARED, ["/home\n"], "has '/home\\n'; "),
        (SHARED, [7], SHARED),
    ],
)
def test_what_the_validation_cannot_use_is_told_once(
    tmp_path: Path, variable: str, value: object, words: str
) -> None:
    [refusal] = judged(with_hardware(tmp_path, **{variable: value})).sentences
    assert variable in refusal
    assert words in refusal


def test_the_environment_of_a_group_is_declared_for_its_nodes(tmp_path: Path) -> None:
    environment = {"NCCL_SOCKET_IFNAME": "ib0", "NCCL_IB_GID_INDEX": 3}
    judgement = judged(with_hardware(tmp_path, validation_environment=environment))
    assert not judgement.sentences
    nodes = judgement.cluster.declaration["nodes"]
    texts = {"NCCL_SOCKET_IFNAME": "ib0", "NCCL_IB_GID_INDEX": "3"}
    assert [node["environment"] for node in nodes] == [texts, texts]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"nvsl": True}, "validation_transports.nvsl is no transport; known are nvlink, nvls,"),
        ({"nvls": "yes"}, "validation_transports.nvls is 'yes'; set it to true or leave it out"),
        ({"rails": 0}, "validation_transports.rails: expected a number above 0 or a list of cards"),
        ("nvls", "must be of type dict, but is 'nvls'"),
    ],
)
def test_declared_transports_that_mean_nothing_are_refused(
    tmp_path: Path, value: object, words: str
) -> None:
    judgement = judged(with_hardware(tmp_path, validation_transports=value))
    assert any(words in sentence for sentence in judgement.sentences), judgement.sentences


def test_declared_transports_reach_the_declaration(tmp_path: Path) -> None:
    said = {"nvls": True, "gdrdma": False, "rails": ["mlx5_0"]}
    judgement = judged(with_hardware(tmp_path, validation_transports=said))
    assert not judgement.sentences
    nodes = judgement.cluster.declaration["nodes"]
    assert [node["transports"] for node in nodes] == [{"nvls": True, "rails": ["mlx5_0"]}] * 2


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("below", "declared"),
    [
        (["leaf1"], {"spine": ["leaf1"]}),
        # There is no leaf2, which the role says.
        ("leaf[1-2]", None),
    ],
)
def test_places_and_the_switches_above_them_are_declared(
    tmp_path: Path, below: object, declared: object
) -> None:
    children = good()
    h100(children)["vars"] = HARDWARE | {"node_rack": "r7", "node_switch": "leaf1"}
    tree = {"slurm_topology": {"plugin": "tree", "switches": {"spine": below}}}
    document = judged(write(tmp_path, children, {"group_vars/all.yml": tree})).cluster.declaration
    assert [(node["switch"], node["rack"]) for node in document["nodes"]] == [("leaf1", "r7")] * 2
    assert document.get("switches") == declared


def test_the_shared_filesystems_of_a_group_are_declared_for_its_nodes(tmp_path: Path) -> None:
    judgement = judged(with_hardware(tmp_path, validation_shared_filesystems=["/home", "/scratch"]))
    assert not judgement.sentences
    nodes = judgement.cluster.declaration["nodes"]
    assert [node["shared_filesystems"] for node in nodes] == [["/home", "/scratch"]] * 2
    assert not any("shared_filesystems" in node for node in judgement.cluster.nodes)


def test_the_file_and_line_that_set_it_are_named(tmp_path: Path) -> None:
    children = good()
    del h100(children)["vars"]["fabric"]
    write(tmp_path, children, {"group_vars/gpu_h100.yml": "---\nfabric: ib_nrd400\n"})
    assert "fabric (set in " in sentences(tmp_path)
    assert "gpu_h100.yml:2) is 'ib_nrd400'" in sentences(tmp_path)


# --- refused: variables --------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["", "a b", "a\nb", 'a"b', "a'b", "-a", "a" * 41, 7, "a.b"])
def test_a_cluster_name_that_slurm_cannot_have(tmp_path: Path, name: object) -> None:
    refusals = sentences(with_all(tmp_path, cluster_name=name))
    assert "cluster_name is" in refusals


def test_a_cluster_name_in_upper_case_is_not_what_slurm_would_call_it(tmp_path: Path) -> None:
    refusals = sentences(with_all(tmp_path, cluster_name="Zurich-1"))
    assert "of which Slurm would make 'zurich-1'; set it to zurich-1." in refusals


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"slurm_partitons": []}, "is no variable of Plumbline; did you mean slurm_partitions?"),
        ({"node_gpu": {}}, "did you mean node_gpus?"),
        ({"node_memory_gb": 1}, "did you mean node_memory_mb?"),
        ({"slurm_slurmd_timeout": "soon"}, "must be of type int, but is 'soon'"),
        ({"validation_runtime_source": "conda"}, "must be one of"),
        ({"nvidia_driver_source": "debian"}, "never passed verification; set it to cuda_repo, and"),
        ({"slurm_partitions": [{"name": "x", "nods": []}]}, "slurm_partitions (set in "),
        ({"slurm_partitions": [{"name": "x", "nodes": ["gpu_h200"]}]}, 'names "gpu_h200"'),
        ({"slurm_database_password": "ChangeMe"}, "is a word that everyone knows"),
        ({"slurm_database_password": "short"}, "is shorter than 16 characters"),
        ({"slurm_constrain": "no"}, "must be of type bool, but is 'no', which is text; write"),
        ({"slurm_constrain": "no"}, """with -e as '{"slurm_constrain": false}'."""),
        ({"slurm_partitions": [{"name": "p", "nodes": "ALL"}]}, "[0].nodes must be of type list"),
        ({"cluster_silenced_refusals": "unknown-variable:x"}, "must be of type list"),
        ({"cluster_silenced_refusals": ["unknown-variabel"]}, "did you mean unknown-variable?"),
        ({"cluster_secrets": "{{ no_such_thing }}"}, "'no_such_thing' is undefined"),
    ],
)
def test_a_variable_that_cannot_work(
    tmp_path: Path, variables: dict[str, Any], sentence: str
) -> None:
    refusals = sentences(with_all(tmp_path, **variables))
    assert sentence in refusals
    assert len(refusals.splitlines()) == 1


def partition(name: str) -> str:
    """A line of YAML, with the name as it is written."""
    return f"slurm_partitions: [{{nodes: [ALL], name: {name}}}]"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (partition("p, max_time: 24:00:00"), "max_time is 24:00:00, which YAML reads as 86400"),
        (partition("2024"), "but is the number 2024; put it in quotes"),
        (partition("no"), 'as false; put it in quotes, as "no"'),
        (
            partition("p, settings: {Hidden: yes}"),
            "slurm_partitions[0].settings.Hidden must be a word, but YAML reads yes, no, on, off",
        ),
        (
            partition("p, settings: {DefaultTime: 1:30:00}"),
            "settings.DefaultTime is 1:30:00, which YAML reads as 5400",
        ),
        ("slurm_settings: {DebugFlags: no}", "slurm_settings.DebugFlags must be a word"),
        ("slurm_settings: {ResumeTimeout: 10:30}", "slurm_settings.ResumeTimeout is 10:30, which"),
    ],
)
def test_what_yaml_reads_as_something_else_goes_into_quotes(
    tmp_path: Path, text: str, sentence: str
) -> None:
    [refusal] = judged(write(tmp_path, good(), {"group_vars/all.yml": f"---\n{text}\n"})).sentences
    assert sentence in refusal


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("slurm_settings: {SchedulerParamters: defer}", "did you mean SchedulerParameters?"),
        ("slurm_settings: {MaxJobCount: many}", "is many; set a whole number, 1 or more."),
        ("slurm_settings: {CryptoType: x}", "set CredType."),
        ("slurm_settings: {SrunPortRange: 6000-7000}", "is 6000-7000, and SlurmctldPort is 6817"),
        ("slurm_node_options: {Wieght: 1}", "did you mean Weight?"),
        ("slurm_node_gres: [{Name: gpu, Fil: /dev/x}]", "did you mean File?"),
        ("slurm_cgroup_settings: {ConstrainCore: 'yes'}", "did you mean ConstrainCores?"),
        ("slurm_database_settings: {CommitDelai: 1}", "did you mean CommitDelay?"),
        ("slurm_database_purge: {PurgeJobAfter: a year}", "set a time such as 12months"),
        ("slurm_database_port: 99999", "is 99999; set a port from 1 to 65535."),
        (partition("p, settings: {MaxTme: 1-0}"), "did you mean MaxTime?"),
        (partition("p, max_time: two days"), "max_time is two days; set a time such as"),
        (
            "slurm_install_method: packages\nslurm_install_repository: r\n"
            "slurm_install_version: 23.11.10\nslurm_settings: {MetricsType: metrics/openmetrics}",
            "Slurm 23.11 is to be installed, and only 25.11 and newer read MetricsType",
        ),
    ],
)
def test_what_slurm_does_not_read_is_refused_before_slurm_is_there(
    tmp_path: Path, text: str, sentence: str
) -> None:
    site = write(tmp_path, good(), {"group_vars/all.yml": f"---\n{text}\n"})
    refusals = " ".join(judged(site).sentences)
    assert sentence in refusals


def test_a_value_that_slurm_does_not_read_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    text = "---\nslurm_settings:\n  MaxArraySize: 1000\n  TreeWidth: 0\n"
    refusals = judged(write(tmp_path, good(), {"group_vars/all.yml": text})).sentences
    place = f"(set in {tmp_path / 'group_vars/all.yml'}:4)"
    assert refusals == [
        f"slurm_settings.TreeWidth {place} is 0; set a whole number from 1 to 65535."
    ]


def test_numbers_and_words_are_settings(tmp_path: Path) -> None:
    settings = {"MaxJobCount": 10000, "DisableRootJobs": "no", "PreemptExemptTime": "0:10"}
    assert sentences(with_all(tmp_path, slurm_settings=settings)) == ""


def test_one_partition_is_the_default(tmp_path: Path) -> None:
    partitions = [
        {"name": "a", "nodes": ["ALL"], "default": True},
        {"name": "b", "nodes": ["ALL"], "default": True},
    ]
    refusals = sentences(with_all(tmp_path, slurm_partitions=partitions))
    assert "slurm_partitions has 2 default partitions (a, b)" in refusals


def test_partitions_have_names_of_their_own(tmp_path: Path) -> None:
    partitions = [{"name": "a", "nodes": ["ALL"]}, {"name": "a", "nodes": ["gpu1"]}]
    refusals = sentences(with_all(tmp_path, slurm_partitions=partitions))
    assert "two partitions with the name a" in refusals


@pytest.mark.parametrize(
    "variable", [{"cluster_name": "other"}, {"slurm_settings": {"MaxJobCount": 5}}]
)
def test_what_is_one_for_the_cluster_is_the_same_on_all_hosts(
    tmp_path: Path, variable: dict[str, Any]
) -> None:
    refusals = sentences(with_host(tmp_path, **variable))
    name = next(iter(variable))
    assert f"{name} has one value in the whole cluster, but differs between" in refusals
    assert "gpu1" in refusals


def test_a_secret_is_never_shown(tmp_path: Path) -> None:
    refusals = sentences(with_all(tmp_path, slurm_database_password="hunter2hunter"))
    assert "slurm_database_password" in refusals
    assert "hunter2" not in refusals


def test_nothing_is_written_to_judge_a_secret(tmp_path: Path) -> None:
    secret = tmp_path / "made"
    text = "{{ lookup('ansible.builtin.password', '" + str(secret) + "') }}"
    assert sentences(with_all(tmp_path / "site", slurm_database_password=text)) == ""
    assert not secret.exists()


def test_facts_are_judged_later(tmp_path: Path) -> None:
    text = "{{ 'venv' if ansible_facts['distribution_release'] == 'bookworm' else 'distribution' }}"
    assert sentences(with_all(tmp_path, validation_runtime_source=text)) == ""


def test_a_list_where_text_belongs_is_told_and_not_what_reads_it(tmp_path: Path) -> None:
    told = sentences(with_all(tmp_path, slurm_state_save_location=["/srv/slurm"]))
    assert told.endswith("must be text, but is ['/srv/slurm'].")
    assert "slurm_state_save_location (set in" in told
    assert "cannot be evaluated" not in told


# --- silenced ------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("word", ["unknown-variable", "unknown-variable:node_gpu"])
def test_a_site_silences_one_refusal(tmp_path: Path, word: str) -> None:
    refusals = sentences(with_all(tmp_path / "loud", node_gpu=1))
    assert refusals.endswith("[unknown-variable:node_gpu]")
    quiet = with_all(tmp_path / "quiet", node_gpu=1, cluster_silenced_refusals=[word])
    assert sentences(quiet) == ""


def test_silencing_one_silences_no_other(tmp_path: Path) -> None:
    other = ["unknown-variable:node_cpu"]
    refusals = sentences(with_all(tmp_path, node_gpu=1, cluster_silenced_refusals=other))
    assert "[unknown-variable:node_gpu]" in refusals


def test_a_silenced_fabric_is_declared_as_it_is_written(tmp_path: Path) -> None:
    children = good()
    h100(children)["vars"]["fabric"] = "ours"
    silence = {"group_vars/all.yml": {"cluster_silenced_refusals": ["fabric-unknown"]}}
    judgement = judged(write(tmp_path, children, silence))
    assert judgement.sentences == []
    assert {node["fabric"] for node in judgement.cluster.declaration["nodes"]} == {"ours"}


# --- the contract --------------------------------------------------------------------------------


def test_the_models_are_those_that_have_thresholds() -> None:
    files = (REPOSITORY / "validation" / "thresholds").glob("*.yml")
    assert set(contract.load().gpu_models) == {path.stem for path in files} - {"common", "cpu"}


def test_every_refusal_that_can_be_silenced_is_in_the_contract() -> None:
    words = contract.load().silenceable
    code = "".join(
        path.read_text()
        for files in (
            *("cluster/hardware.py", "cluster/names.py", "cluster/partitions.py"),
            *("playbooks/plugin_utils/*.py", "playbooks/filter_plugins/*.py"),
        )
        for path in REPOSITORY.glob(files)
        if not path.name.startswith("security")  # items of scripts/verify, which refuse nothing
    )
    assert {word for word in words if f'"{word}"' in code} == set(words)
    kinds = re.findall(r'^ +"([a-z]+-[a-z]+(?:-[a-z]+)?)",$', code, re.MULTILINE)
    assert set(kinds) <= set(words)


def test_the_documentation_has_the_contract() -> None:
    text = (REPOSITORY / "docs" / "reference" / "inventory.md").read_text()
    terms = contract.load()
    for name in (*terms.groups, *terms.variables, *terms.silenceable, *terms.fabrics):
        assert f"`{name}`" in text, name


def test_the_site_is_read_by_the_lookup_as_well(tmp_path: Path) -> None:
    read = site(write(tmp_path, good()))
    result, refusals = cluster.work_out(read, contract.load())
    assert refusals == []
    assert result.declaration["nodes"][0]["cpus"] == 16
