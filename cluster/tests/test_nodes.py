"""Lines of Slurm's configuration, from declared nodes."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.slurm import gres
from cluster.slurm import nodes as n


def node(name: str, address: str = "10.0.0.1", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "address": address,
        "cpus": {"sockets": 2, "cores_per_socket": 8, "threads_per_core": 2},
        "memory_mb": 64000,
        "gpus": {"model": "h100_sxm", "count": 8},
    } | changes


CPU_ONLY = {"model": "none", "count": 0}
ATTRIBUTES = "Sockets=2 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=64000"


def test_a_gpu_node_declares_its_topology_and_gres() -> None:
    assert n.node_lines([node("gpu1")]) == [
        f"NodeName=gpu1 NodeAddr=10.0.0.1 {ATTRIBUTES} Gres=gpu:h100_sxm:8"
    ]


def test_a_cpu_node_has_no_gres() -> None:
    assert n.node_lines([node("cpu1", gpus=CPU_ONLY)]) == [
        f"NodeName=cpu1 NodeAddr=10.0.0.1 {ATTRIBUTES}"
    ]
    assert n.gres_lines([node("cpu1", gpus=CPU_ONLY)]) == []


def test_nodes_that_are_alike_share_a_line_and_names_stay_with_addresses() -> None:
    many = [
        node("gpu001", "10.0.0.254"),
        node("cpu1", "10.1.0.1", gpus=CPU_ONLY),
        node("gpu002", "10.0.0.255"),
        node("gpu003", "10.0.1.0"),
        node("gpu007", "10.0.0.9"),
    ]
    assert n.node_lines(many) == [
        "NodeName=gpu[001-003,007] NodeAddr=10.0.0.[254-255],10.0.1.0,10.0.0.9 "
        f"{ATTRIBUTES} Gres=gpu:h100_sxm:8",
        f"NodeName=cpu1 NodeAddr=10.1.0.1 {ATTRIBUTES}",
    ]
    assert n.gres_lines(many) == [
        "NodeName=gpu[001-003,007] Name=gpu Type=h100_sxm File=/dev/nvidia[0-7]"
    ]


def test_a_thousand_nodes_are_a_few_short_lines() -> None:
    many = [node(f"gpu{i:04d}", f"10.0.{i // 250}.{i % 250 + 1}") for i in range(1000)]
    lines = n.node_lines(many)
    assert len(lines) == 4
    assert max(map(len, lines)) < 300
    assert lines[0].startswith("NodeName=gpu[0000-0255] NodeAddr=10.0.0.[1-250],10.0.1.[1-6] ")


@pytest.mark.parametrize(
    ("count", "files"), [(1, "/dev/nvidia0"), (2, "/dev/nvidia[0-1]"), (8, "/dev/nvidia[0-7]")]
)
def test_every_gpu_has_its_device_file(count: int, files: str) -> None:
    declared = node("gpu1", gpus={"model": "a100_sxm", "count": count})
    assert n.gres_lines([declared]) == [f"NodeName=gpu1 Name=gpu Type=a100_sxm File={files}"]


def test_options_of_a_group_are_words_of_its_line() -> None:
    options = {"Weight": 10, "Feature": ["nvme", "ib"], "CoreSpecCount": 2, "Comment": "a b"}
    (line,) = n.node_lines([node("gpu1", options=options)])
    assert line.endswith(
        'Gres=gpu:h100_sxm:8 Weight=10 Feature=nvme,ib CoreSpecCount=2 Comment="a b"'
    )


def test_gres_of_a_group_replaces_what_its_gpus_would_be() -> None:
    halves = [
        {"Name": "gpu", "Type": "h100_sxm", "File": "/dev/nvidia[0-3]", "Cores": "0-7"},
        {"Name": "gpu", "Type": "h100_sxm", "File": "/dev/nvidia[4-7]", "Cores": "8-15"},
        {"Name": "shard", "Count": 32},
    ]
    declared = node("gpu1", gres=halves)
    assert n.gres_lines([declared]) == [
        "NodeName=gpu1 Name=gpu Type=h100_sxm File=/dev/nvidia[0-3] Cores=0-7",
        "NodeName=gpu1 Name=gpu Type=h100_sxm File=/dev/nvidia[4-7] Cores=8-15",
        "NodeName=gpu1 Name=shard Count=32",
    ]
    assert gres.gres(declared) == "gpu:h100_sxm:8,shard:32"
    assert gres.gres_types([declared], [{"Name": "nic"}]) == ["gpu", "nic", "shard"]


def test_a_mig_instance_is_one_gpu_with_several_device_files() -> None:
    caps = "/dev/nvidia0,/dev/nvidia-caps/nvidia-cap{},/dev/nvidia-caps/nvidia-cap{}"
    slices = [
        {"Name": "gpu", "Type": "1g.10gb", "MultipleFiles": caps.format(i, i + 1)} for i in (3, 12)
    ]
    declared = node("gpu1", gres=slices)
    assert gres.gres(declared) == "gpu:1g.10gb:2"
    assert len(n.gres_lines([declared])) == 2


@pytest.mark.parametrize(
    "how", [{"gres": [{"AutoDetect": "nvml"}]}, {"autodetect": "nvml"}], ids=["gres", "autodetect"]
)
def test_autodetect_keeps_the_declared_number_and_a_type_that_nvml_has(how: Any) -> None:
    declared = node("gpu1", **how)
    assert gres.gres(declared) == "gpu:h100:8"
    assert n.gres_lines([declared]) == ["NodeName=gpu1 AutoDetect=nvml"]


def cut(**changes: Any) -> dict[str, Any]:
    mig = {"1g.10gb": 4, "3g.40gb": 1}
    return node("gpu1", gpus={"model": "h100_sxm", "count": 8, "mig": mig}, **changes)


def test_autodetect_keeps_the_declared_instances() -> None:
    declared = cut(gres=[{"AutoDetect": "nvml"}])
    assert gres.gres(declared) == "gpu:1g.10gb:32,gpu:3g.40gb:8"
    assert n.gres_lines([declared]) == ["NodeName=gpu1 AutoDetect=nvml"]
    assert n.node_problems([declared]) == []


def test_instances_are_named_by_the_declaration_alone() -> None:
    path = "/dev/plumbline-mig/gpu0-1g.10gb-1"
    assert gres.gres(cut()) == "gpu:1g.10gb:32,gpu:3g.40gb:8"
    lines = n.gres_lines([cut(), {**cut(), "name": "gpu2"}])
    assert len(lines) == 8 * 5
    assert lines[1] == (
        f"NodeName=gpu[1-2] Name=gpu Type=1g.10gb MultipleFiles=/dev/nvidia0,{path}.gi,{path}.ci"
    )
    assert lines[-1].split()[2:] == [
        "Type=3g.40gb",
        "MultipleFiles=/dev/nvidia7,"
        "/dev/plumbline-mig/gpu7-3g.40gb-0.gi,/dev/plumbline-mig/gpu7-3g.40gb-0.ci",
    ]
    assert len({line.partition(",")[2] for line in lines}) == 40
    assert n.node_problems([cut()]) == []


def test_lines_of_a_sites_own_make_the_declared_instances() -> None:
    half = [{"Name": "gpu", "Type": "1g.10gb", "MultipleFiles": "/dev/nvidia0,/dev/nvidia-caps/x"}]
    (problem,) = n.node_problems([cut(gres=half * 32)])
    assert problem == (
        "gpu1: slurm_node_gres makes gpu:1g.10gb:32, node_gpus declares "
        "gpu:1g.10gb:32,gpu:3g.40gb:8; change one of them."
    )
    both = half * 32 + [{**half[0], "Type": "3g.40gb"}] * 8
    assert n.node_problems([cut(gres=both)]) == []


def test_lines_of_components_follow() -> None:
    lines = n.gres_lines([node("gpu1")], [{"Count": 4, "Name": "nic", "NodeName": "gpu1"}])
    assert lines[1] == "NodeName=gpu1 Name=nic Count=4"


# --- partitions ----------------------------------------------------------------------------------

NODES = [node("gpu1"), node("gpu2"), node("cpu1", gpus=CPU_ONLY, memory_mb=16000)]


def partition(*names: str, **more: Any) -> str:
    (line,) = n.partition_lines([{"name": "p", "nodes": list(names), **more}], NODES)
    return line


def test_a_job_without_memory_gets_its_share_of_the_smallest_node() -> None:
    assert partition("gpu1", "cpu1", default=True) == (
        "PartitionName=p Nodes=cpu1,gpu1 Default=YES MaxTime=INFINITE DefMemPerCPU=500 State=UP"
    )


def test_a_partition_with_memory_by_node_has_none_by_cpu() -> None:
    """Slurm would read DefMemPerCPU, which is the role's, and not the site's."""
    line = partition("gpu1", settings={"DefMemPerNode": 32000})
    assert line.endswith("MaxTime=INFINITE State=UP DefMemPerNode=32000")


def test_of_two_keys_that_exclude_each_other_one_is_refused() -> None:
    settings = {"AllowAccounts": "a", "denyaccounts": "b"}
    (sentence,) = n.partition_problems([{"name": "p", "nodes": ["ALL"], "settings": settings}])
    assert sentence.startswith("slurm_partitions[0].settings has AllowAccounts and DenyAccounts")
    (sentence,) = n.node_problems([node("n", options={"CoreSpecCount": 2, "CPUSpecList": "0"})])
    assert sentence.startswith("n: slurm_node_options has CoreSpecCount and CPUSpecList, and")


def test_what_is_kept_for_the_system_is_no_share() -> None:
    nodes = [node("gpu1", options={"MemSpecLimit": 32000})]
    (line,) = n.partition_lines([{"name": "p", "nodes": ["gpu1"]}], nodes)
    assert "DefMemPerCPU=1000" in line


def test_all_nodes_are_one_word_so_that_another_node_is_no_change() -> None:
    assert "Nodes=ALL " in partition("gpu1", "gpu2", "cpu1")
    assert "Nodes=gpu[1-2] " in partition("gpu1", "gpu2")


def test_settings_of_a_partition_win() -> None:
    words = partition(
        "gpu1", max_time="1-00:00:00", settings={"DefMemPerCpu": 10, "PriorityTier": 5}
    ).split()
    assert {"MaxTime=1-00:00:00", "DefMemPerCpu=10", "PriorityTier=5"} <= set(words)
    assert not [word for word in words if word.startswith("DefMemPerCPU")]


# --- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "words"),
    [
        ([], "slurm_partitions is empty"),
        ([{"name": "a", "default": True}, {"name": "b", "default": True}], "2 default partitions"),
        ([{"name": "a"}, {"name": "a"}], "which another partition has"),
        ([{"name": "ALL"}], "Slurm's own words"),
        ([{"name": "a b"}], "'a b'"),
        ([{"name": "a", "max_time": 86400}], "24:00:00"),
        ([{"name": "a", "settings": {"Hidden": True}}], "in quotes"),
        ([{"name": "a", "settings": {"Nodes": "x"}}], "set slurm_partitions[].nodes"),
    ],
)
def test_partitions_that_cannot_work_are_named(partitions: Any, words: str) -> None:
    (sentence,) = n.partition_problems(partitions)
    assert words in sentence


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"State": False}}, "in quotes"),
        ({"options": {"RealMemory": 1}}, "set node_memory_mb"),
        ({"gres": ["gpu"]}, "each entry is a mapping"),
    ],
)
def test_options_that_cannot_work_are_named(changes: dict[str, Any], words: str) -> None:
    (sentence,) = n.node_problems([node("gpu1", **changes), node("gpu2")])
    assert sentence.startswith("gpu1: ")
    assert words in sentence


FINE: dict[str, Any] = {
    "state": "/var/lib/slurm/slurmctld",
    "shared": [],
    "accounting": "ctl1",
    "accounting_backup": "",
    "accounting_port": 6819,
    "database_port": 6819,
    "delivery": "configless",
    "login": "files",
    "parameters": "idle_on_node_suspend,enable_configless",
}


@pytest.mark.parametrize(
    ("controllers", "changes", "words"),
    [
        (2, {}, "below one that shared_storage_mounts declares"),
        (2, {"shared": ["/shared"]}, "set it to a folder below /shared."),
        (2, {"shared": ["/shared"], "state": "/shared2/x"}, "no filesystem that they share"),
        (1, {"accounting_port": 7000}, "set slurm_database_port alone"),
        (1, {"parameters": "rl_enable"}, "without enable_configless"),
        (1, {"accounting_backup": "ctl1"}, "and slurm_accounting_host is ctl1; a backup is beside"),
        (1, {"accounting": "", "accounting_backup": "ctl2"}, "slurm_accounting_host is empty;"),
        (1, {"delivery": "files", "login": "sackd"}, "set slurm_config_delivery: configless, or"),
    ],
)
def test_contradictions_of_the_controllers_are_named(
    controllers: int, changes: dict[str, Any], words: str
) -> None:
    hosts = [{"name": "ctl", "address": "10.0.0.1"}] * controllers
    (sentence,) = n.controller_problems(hosts, FINE | changes)
    assert words in sentence
    assert n.controller_problems(hosts[:1], FINE) == []


def test_what_does_not_apply_contradicts_nothing() -> None:
    hosts = [{"name": "ctl", "address": "10.0.0.1"}]
    assert n.controller_problems(hosts, FINE | {"accounting": "", "database_port": 7}) == []
    assert n.controller_problems(hosts, FINE | {"delivery": "files", "parameters": ""}) == []
    assert n.controller_problems(hosts, FINE | {"accounting_backup": "ctl2"}) == []
    assert n.controller_problems(hosts, FINE | {"login": "sackd"}) == []
    shared = FINE | {"state": "/shared/state/slurmctld", "shared": ["/home", "/shared"]}
    assert n.controller_problems(hosts * 2, shared) == []


# --- GPUs that are found, and lines for others than declared -------------------------------------


def test_nodes_whose_gpus_are_found_have_lines_of_their_own() -> None:
    two = [node("gpu1"), node("gpu2", autodetect="nvidia"), node("gpu3", autodetect="off")]
    assert n.gres_lines(two) == [
        "NodeName=gpu[1,3] Name=gpu Type=h100_sxm File=/dev/nvidia[0-7]",
        "NodeName=gpu2 AutoDetect=nvidia",
    ]
    assert n.gres_lines([node("cpu1", gpus=CPU_ONLY, autodetect="nvml")]) == []


@pytest.mark.parametrize(
    ("model", "kind", "of_nvml"),
    [
        ("h100_sxm", "h100", "nvidia_h100_80gb_hbm3"),
        ("a100_pcie", "a100", "nvidia_a100-pcie-40gb"),
        ("h200_nvl", "h200", "nvidia_h200_nvl"),
        ("rtx_4090", "rtx_4090", "nvidia_geforce_rtx_4090"),
        ("l40s", "l40s", "nvidia_l40s"),
        ("h20_sxm", "h20", "nvidia_h20-3e"),
        ("gb300", "gb300", "nvidia_gb300"),
        ("rtx_pro_6000", "rtx_pro_6000", "nvidia_rtx_pro_6000_blackwell_server_edition"),
        ("t4", "t4", "tesla_t4"),
    ],
)
def test_the_type_of_a_gpu_that_is_found_is_part_of_its_name(
    model: str, kind: str, of_nvml: str
) -> None:
    assert gres.detected_type(model) == kind
    assert kind in of_nvml


FOUR = {"Name": "gpu", "Type": "h100_sxm", "File": "/dev/nvidia[0-3]"}
ALL = {**FOUR, "File": "/dev/nvidia[0-7]"}
CUT = {"model": "a30", "count": 1, "mig": {"1g.6gb": 4}}
VIRTUAL = {"model": "virtual", "count": 2}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gres": [FOUR]}, "slurm_node_gres has 4 GPUs, and node_gpus declares 8; change one"),
        ({"gres": [FOUR, FOUR]}, "slurm_node_gres has 4 GPUs, and node_gpus declares 8"),
        ({"gres": [{"Name": "gpu", "Count": 7}]}, "slurm_node_gres has 7 GPUs"),
        ({"gres": [{"Name": "nic", "Count": 4}]}, "slurm_node_gres has 0 GPUs"),
        ({"gres": [FOUR], "gpus": CPU_ONLY}, "has 4 GPUs, and node_gpus declares 0"),
        ({"gres": [{**ALL, "Type": "a100_sxm"}]}, "of type a100_sxm, and node_gpus declares h100"),
        ({"gres": [FOUR], "autodetect": "nvml"}, "slurm_node_autodetect is nvml, and slurm_node_g"),
        ({"autodetect": "nvidia", "gpus": CUT}, "is nvidia, which finds no instances of MIG; set"),
        ({"autodetect": "nvml", "gpus": VIRTUAL}, "would find none of the virtual GPUs"),
    ],
)
def test_gres_other_than_the_declared_hardware_is_refused(
    changes: dict[str, Any], sentence: str
) -> None:
    (problem,) = n.node_problems([node("gpu1", **changes)])
    assert problem.startswith("gpu1: ")
    assert sentence in problem


@pytest.mark.parametrize(
    "gres",
    [
        [FOUR, {**FOUR, "File": "/dev/nvidia[4-7]", "Cores": "56-111"}],
        [{**ALL, "Type": "half", "Count": 16}],
        [{**ALL, "Type": "big"}, {"Name": "shard", "Count": 64}],
        [{"Name": "gpu"}],
        [{"AutoDetect": "nvml"}],
        [{"AutoDetect": "nvml"}, {"Name": "nic", "Count": 4}],
    ],
)
def test_lines_of_a_sites_own_for_the_same_gpus_are_taken(gres: list[dict[str, Any]]) -> None:
    assert n.node_problems([node("gpu1", gres=gres)]) == []
