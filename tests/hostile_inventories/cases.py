"""Hostile and odd inventories: edits of a good one, and what preflight says of each.

A case is a name, files that replace or extend those of the base, and the words of the refusal; no
words: it is accepted. `hosts.yml` may be given as the children of slurm_cluster.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import yaml

Files = Mapping[str, str | bytes]
ACCEPTED = ""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    files: Files
    words: str = ACCEPTED
    makes: str = ""  # a special file: fifo, link, loop, folder


def _rows(*rows: Any) -> tuple[Any, ...]:
    """Rows of values of all kinds."""
    return rows


def _hosts(**addresses: str) -> dict[str, Any]:
    return {"hosts": {name: {"ansible_host": address} for name, address in addresses.items()}}


CHILDREN: dict[str, Any] = {
    "slurm_controller": _hosts(ctl1="192.0.2.1"),
    "slurm_database": {"hosts": {"ctl1": {}}},
    "slurm_login": _hosts(login1="192.0.2.2"),
    "slurm_compute": {
        "children": {
            "gpu_h100": _hosts(gpu1="192.0.2.11", gpu2="192.0.2.12"),
            "cpu": _hosts(cpu1="192.0.2.21", cpu2="192.0.2.22"),
        }
    },
    "monitoring": {"hosts": {"ctl1": {}}},
}
H100: dict[str, Any] = {
    "node_cpus": {"sockets": 2, "cores_per_socket": 56, "threads_per_core": 2},
    "node_memory_mb": 2000000,
    "node_gpus": {"model": "h100_sxm", "count": 8},
    "fabric": "ib_ndr400",
    "nvidia_driver_branch": 580,
}
CPU: dict[str, Any] = {
    "node_cpus": {"sockets": 2, "cores_per_socket": 64, "threads_per_core": 2},
    "node_memory_mb": 500000,
    "node_gpus": {"model": "none", "count": 0},
    "fabric": "ethernet",
    "validation_runtime_source": "venv",
}
ALL: dict[str, Any] = {
    "cluster_name": "lab",
    "enroot_install": False,
    "pyxis_source": "none",
    "slurm_partitions": [
        {"name": "gpu", "nodes": ["gpu_h100"], "default": True, "max_time": "2-00:00:00"},
        {"name": "cpu", "nodes": ["cpu"]},
    ],
    "cluster_users_groups": [{"name": "physics", "gid": 3000}],
    "cluster_users_list": [{"name": "ada", "uid": 2001, "gid": 2001, "groups": ["physics"]}],
}


def _text(value: Any) -> str:
    """By libyaml where there is one: the same text in a tenth of the time."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return "---\n" + str(yaml.dump(value, Dumper=dumper, sort_keys=False))


def _inventory(children: Mapping[str, Any]) -> str:
    return _text({"all": {"children": {"slurm_cluster": {"children": dict(children)}}}})


BASE: Files = {
    "hosts.yml": _inventory(CHILDREN),
    "group_vars/all.yml": _text(ALL),
    "group_vars/gpu_h100.yml": _text(H100),
    "group_vars/cpu.yml": _text(CPU),
}


def _all(name: str, words: str, **variables: Any) -> Case:
    return Case(name, {"group_vars/all.yml": _text(ALL | variables)}, words)


def _more(name: str, words: str, text: str) -> Case:
    """Lines as they are written, under the good ones."""
    return Case(name, {"group_vars/all.yml": _text(ALL) + text + "\n"}, words)


def _h100(name: str, words: str, **variables: Any) -> Case:
    return Case(name, {"group_vars/gpu_h100.yml": _text(H100 | variables)}, words)


def _without(name: str, words: str, *keys: str) -> Case:
    left = {key: value for key, value in H100.items() if key not in keys}
    return Case(name, {"group_vars/gpu_h100.yml": _text(left)}, words)


def _edit(name: str, words: str, change: Callable[[dict[str, Any]], Any]) -> Case:
    children = copy.deepcopy(CHILDREN)
    change(children)
    return Case(name, {"hosts.yml": _inventory(children)}, words)


def _drop(group: str, children: dict[str, Any]) -> None:
    del children[group]


def _set(group: str, value: Any, children: dict[str, Any]) -> None:
    children[group] = value


def _gpu_hosts(children: Mapping[str, Any]) -> dict[str, Any]:
    hosts: dict[str, Any] = children["slurm_compute"]["children"]["gpu_h100"]["hosts"]
    return hosts


# --- names, groups, addresses --------------------------------------------------------------------


def names() -> Iterator[Case]:
    def named(name: str, words: str) -> Case:
        return _edit(
            f"host {name!r}",
            words,
            lambda c: _gpu_hosts(c).update({name: {"ansible_host": "192.0.2.99"}}),
        )

    for name in ("gpu3", "GPU3", "g", "a1-b2", "node-0001", "x" * 63):
        yield named(name, ACCEPTED)
    for name in ("gpu_3", "gpu3.", "-gpu3", "gpu3-", "gpu.3", "gpü3", "gpu 3", "gpu3;id", "a$b"):
        yield named(name, "cannot be a NodeName")
    yield named("gpu3.example.org", "as gpu3: {ansible_host: gpu3.example.org}; scripts/init")
    yield named("192.0.2.77", "cannot be a NodeName")
    for name in ("default", "DEFAULT", "localhost", "Default"):
        yield named(name, "cannot be the name of a host")
    yield named("gpu[3-9]", "write gpu[3:9]")
    yield Case(
        "host 'gpu[3-9]' in INI", {"more.ini": "[racks]\ngpu[3-9] rack=7\n"}, "write gpu[3:9]"
    )
    yield named("x" * 64, "at most 63")
    yield named("Gpu1", "differ only in upper and lower case")
    yield named("gpu[3:2]", "runs backwards and names no host")
    for group in ("slurm_controller", "slurm_database", "slurm_login", "slurm_compute"):
        yield _edit(f"no {group}", f"no group {group}", partial(_drop, group))
        yield _edit(f"empty {group}", f"group {group}", partial(_set, group, {}))
    for group, meant in (
        ("slurm_logn", "slurm_login"),
        ("slurm_controler", "slurm_controller"),
        ("monitorring", "monitoring"),
        ("slurm_computes", "slurm_compute"),
        ("slurm_databse", "slurm_database"),
        ("storages", "storage"),
    ):
        yield _edit(
            f"group {group}",
            f"did you mean {meant}?",
            partial(_set, group, _hosts(other1="192.0.2.50")),
        )
    yield _edit(
        "host without a role",
        "other1",
        lambda c: c.update({"racks": _hosts(other1="192.0.2.50")}),
    )
    yield _edit(
        "site's own group",
        ACCEPTED,
        lambda c: c.update({"rack_7": {"hosts": {"gpu1": {}}}}),
    )
    for group in ("storage",):
        document = yaml.safe_load(BASE["hosts.yml"])
        document["all"]["children"][group] = _hosts(outside="192.0.2.60")
        yield Case(f"{group} outside", {"hosts.yml": _text(document)}, "not in slurm_cluster")


def addresses() -> Iterator[Case]:
    def at(address: Any, words: str, variable: str = "ansible_host") -> Case:
        return _edit(
            f"{variable} {address!r}",
            words,
            lambda c: _gpu_hosts(c)["gpu1"].update({variable: address}),
        )

    for good in ("192.0.2.111", "10.0.0.9"):
        yield at(good, ACCEPTED)
        yield at(good, ACCEPTED, "node_address")
    for loop in ("127.0.0.1", "127.9.9.9", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::1", "::"):
        yield at(loop, "gpu1")
        yield at(loop, "gpu1", "node_address")
    yield at("0x7f000001", "every host's own")
    for half in (
        "192.0.2",
        "192.0.2.",
        "1",
        "192.0.2.300",
        "192.0.2.1.1",
        "192.0.2.1/24",
    ):
        yield at(half, "cannot resolve")
        yield at(half, "cannot resolve", "node_address")
    for six in ("2001:db8::11", "[2001:db8::11]", "fd00::5", "2001:0db8:0:0:0:0:0:1"):
        yield at(six, "IPv6")
        yield at(six, "IPv6", "node_address")
    for bad in ("2001:db8:::1", "2001:db8", "fe80::1%eth0"):
        yield at(bad, "gpu1", "node_address")
    yield at("192.0.2.12", "have one address")
    yield at("no-such-host.invalid", "cannot resolve")
    yield at("a b", "cannot resolve")
    yield at("{{ nothing }}", "nothing")


# --- hardware ------------------------------------------------------------------------------------


def hardware() -> Iterator[Case]:
    yield from cpus_and_memory()
    yield from gpus()


def cpus_and_memory() -> Iterator[Case]:
    cpus = H100["node_cpus"]
    for key in cpus:
        for value in _rows(0, -1, "2", 1.5, True, None, [], "two"):
            yield _h100(f"{key} {value!r}", f"node_cpus.{key}", node_cpus=cpus | {key: value})
        less = {name: value for name, value in cpus.items() if name != key}
        yield _h100(f"no {key}", f"has no {key}", node_cpus=less)
    yield _h100("cpus 224", "must have the keys", node_cpus=224)
    yield _h100("more cpus", "unknown key", node_cpus=cpus | {"core": 2})
    for value in _rows(0, -1, "500", "500GB", 1.5, True, [], {}):
        yield _h100(f"memory {value!r}", "node_memory_mb", node_memory_mb=value)
    for name in ("node_cpus", "node_memory_mb", "node_gpus"):
        yield _without(f"no {name}", f"{name} is not set", name)
    yield _without("no fabric", "fabric is not set", "fabric")
    yield _without("no branch", ACCEPTED, "nvidia_driver_branch")
    for fabric in _rows("10gbe", "eth_10", "tcp", "100g"):
        yield _h100(f"fabric {fabric}", "did you mean ethernet?", fabric=fabric)
    for fabric in _rows(
        "ib", "ib_ndr", "infiniband", "IB_NDR400", 400, True, [], "roce", "nvlink", ""
    ):
        yield _h100(f"fabric {fabric!r}", "fabric is", fabric=fabric)
    for fabric in _rows(
        "ib_hdr200", "roce_400", "ethernet", "efa_3200", "ib_xdr800", "slingshot_200"
    ):
        yield _h100(f"fabric {fabric}", ACCEPTED, fabric=fabric)


def gpus() -> Iterator[Case]:
    for model in ("a100_sxm", "h200_sxm", "b200", "l40s", "h100_pcie"):
        yield _h100(f"model {model}", ACCEPTED, node_gpus={"model": model, "count": 4})
    for model, meant in _rows(
        ("H100", "h100_"),
        ("H100-SXM5-80GB", "h100_sxm"),
        ("h100sxm", "h100_sxm"),
        ("A100_SXM", "a100_sxm"),
        ("h100_sxm5", "h100_sxm"),
        ("L40S", "l40s"),
        ("RTX 4090", "node_gpus.model"),
        ("", "node_gpus.model"),
        (100, "node_gpus.model"),
        (True, "node_gpus.model"),
        (None, "node_gpus.model"),
        ("h100 sxm", "node_gpus.model"),
        ("h100,sxm", "node_gpus.model"),
        ("h100\nsxm", "node_gpus.model"),
        ("-h100", "node_gpus.model"),
        ("none", "model none"),
        ([], "node_gpus.model"),
    ):
        yield _h100(f"model {model!r}", meant, node_gpus={"model": model, "count": 8})
    for count in _rows(-1, "8", 1.5, True, None, [], "eight"):
        yield _h100(
            f"gpus {count!r}", "node_gpus.count", node_gpus={"model": "h100_sxm", "count": count}
        )
    yield _h100("gpus 8", "must have the keys", node_gpus=8)
    yield _h100("gpus list", "must have the keys", node_gpus=["h100_sxm", 8])
    for key, meant in (
        ("migs", "mig"),
        ("modle", "model"),
        ("cont", "count"),
        ("colour", "colour"),
    ):
        written = {"model": "h100_sxm", "count": 8, key: 1}
        yield _h100(f"gpus.{key}", meant, node_gpus=written)
    yield _h100("stand-in of real GPUs", "nvml", node_gpus=H100["node_gpus"] | {"nvml": True})
    layouts: Iterable[tuple[Any, str]] = (
        ({"1g.10gb": 7}, ACCEPTED),
        ({"3g.40gb": 2}, ACCEPTED),
        ({"1g.10gb": 4, "3g.40gb": 1}, ACCEPTED),
        ({"1g.10gb": 8}, "1g.10gb"),
        ({"3g.40gb": 3}, "3g.40gb"),
        ({"1g.5gb": 7}, "1g.5gb"),
        ({"8g.80gb": 1}, "8g.80gb"),
        ({"1g": 7}, "1g"),
        ({"1g.10gb": 0}, "node_gpus.mig.1g.10gb"),
        ({"1g.10gb": "7"}, "node_gpus.mig.1g.10gb"),
        ({}, "node_gpus.mig"),
        ("1g.10gb", "node_gpus.mig"),
        (7, "node_gpus.mig"),
        (["1g.10gb"], "node_gpus.mig"),
        (None, "node_gpus.mig"),
    )
    for layout, words in layouts:
        yield _h100(f"mig {layout!r}", words, node_gpus=H100["node_gpus"] | {"mig": layout})
    for branch in _rows(0, 58, -1, "580.95.05", "new", 1.5, []):
        yield _h100(f"branch {branch!r}", "nvidia_driver_branch", nvidia_driver_branch=branch)
    # Newer than any that we know, which is a warning.
    yield _h100("branch 999", ACCEPTED, nvidia_driver_branch=999)
    yield _h100("source", "nvidia_driver_source", nvidia_driver_source="debian")
    yield _h100("source", "nvidia_driver_source", nvidia_driver_source="cuda")


# --- Slurm's words -------------------------------------------------------------------------------


def slurm() -> Iterator[Case]:
    settings = (
        ("SchedulerParamters: defer", "did you mean SchedulerParameters?"),
        ("FastSchedule: 2", "FastSchedule"),
        ("CryptoType: crypto/munge", "CredType"),
        ("MaxJobCount: many", "MaxJobCount"),
        ("MaxJobCount: 0", "MaxJobCount"),
        ("MaxJobCount: -5", "MaxJobCount"),
        ("MaxJobCount: 10000", ACCEPTED),
        ("TreeWidth: 0", "TreeWidth"),
        ("TreeWidth: 65536", "TreeWidth"),
        ("SlurmctldPort: 6818", ACCEPTED),  # no controller is a compute node
        ("SlurmctldPort: 0", "SlurmctldPort"),
        ("SlurmctldPort: 99999", "SlurmctldPort"),
        ("SlurmdPort: 6817", ACCEPTED),
        ("SlurmdPort: 6819", "6819"),
        ("SlurmdTimeout: soon", "SlurmdTimeout"),
        ("PreemptType: preempt/qoss", "PreemptType"),
        ("PreemptType: preempt/qos, PreemptMode: REQUEUE", ACCEPTED),
        ("PreemptType: preempt/qos", "PreemptMode is not set"),
        ("SelectType: select/linear", ACCEPTED),
        ("SelectType: select/cons_tresss", "SelectType"),
        ("SwitchType: switch/cray", "SwitchType"),
        ("DebugFlags: no", "must be a word"),
        ("ResumeTimeout: 10:30", "YAML reads as"),
        ("PriorityWeightAge: -1", "PriorityWeightAge"),
        ("PriorityWeightAge: 1000", ACCEPTED),
        ("PriorityDecayHalfLife: 7-0", ACCEPTED),
        ("PriorityDecayHalfLife: a week", "PriorityDecayHalfLife"),
        ("ReturnToService: 7", "ReturnToService"),
        ("ReturnToService: 1", ACCEPTED),
        ("MaxArraySize: 1e9", "MaxArraySize"),
        ("TaskPlugin: task/none", ACCEPTED),
        ("AuthType: auth/none", "lets whoever reaches a daemon be any user"),
        ("CredType: cred/none", "lets whoever reaches a daemon be any user"),
        ("AuthType: auth/munge", ACCEPTED),
        ("SlurmUser: root", "the role needs slurm"),
        ("SlurmUser: slurm", ACCEPTED),
        ("JobCompType: jobcomp/nowhere", "PluginDir where a plugin of your own lies"),
        ("JobSubmitPlugins: our_own", "PluginDir where a plugin of your own lies"),
        ("JobSubmitPlugins: our_own, PluginDir: /opt/site/slurm", ACCEPTED),
        ("Epilog: [a]", "the absolute path of one program"),
        ("Epilog: [/a, /b]", "the absolute path of one program"),
        ("Epilog: /opt/site/epilog", ACCEPTED),
        ("RebootProgram: /usr/sbin/reboot now", ACCEPTED),
        ("JobContainerType: job_container/tmpfs", ACCEPTED),
        ("JobContainerType: job_container/none", "set slurm_private_tmp to false"),
        ("ClusterName: other", "ClusterName"),
        ("PartitionName: x", "PartitionName"),
        ("NodeName: x", "NodeName"),
        ("Prolog: {a: b}", "Prolog"),
        ('"Max JobCount": 5', "Max JobCount"),
        ('MaxJobCount: "5\\nSlurmUser=root"', "MaxJobCount"),
        ("KillWait: null", ACCEPTED),
        ("KillWait: 30", ACCEPTED),
    )
    for text, words in settings:
        yield _more(f"slurm_settings {text}", words, f"slurm_settings: {{{text}}}")
    children = copy.deepcopy(CHILDREN)
    children["slurm_compute"]["children"]["cpu"]["hosts"]["ctl1"] = {}
    both = {"SlurmctldPort": 6818}
    yield Case(
        "SlurmctldPort: 6818 on a compute node",
        {
            "hosts.yml": _inventory(children),
            "group_vars/all.yml": _text(ALL | {"slurm_settings": both}),
        },
        "set slurm_settings.SlurmctldPort or slurm_settings.SlurmdPort to another port",
    )
    for text, words in (
        ("slurm_node_options: {Wieght: 1}", "did you mean Weight?"),
        ("slurm_node_options: {Weight: heavy}", "Weight"),
        ("slurm_node_options: {Weight: 10}", ACCEPTED),
        ("slurm_node_options: {CPUs: 4}", "CPUs"),
        ("slurm_node_options: [1]", "slurm_node_options"),
        ("slurm_node_gres: [{Name: gpu, Fil: /dev/x}]", "did you mean File?"),
        ("slurm_cgroup_settings: {ConstrainCore: 'yes'}", "did you mean ConstrainCores?"),
        ("slurm_cgroup_settings: {ConstrainCores: maybe}", "ConstrainCores"),
        ("slurm_cgroup_settings: {CgroupPlugin: cgroup/v3}", "CgroupPlugin"),
        ("slurm_settings: [a]", "must be of type dict"),
        ("slurm_database_settings: {DbdPort: 7000}", "set slurm_database_port"),
        ("slurm_database_settings: {AuthType: auth/none}", "be any user"),
        ("slurm_database_settings: {SlurmUser: root}", "the role needs slurm"),
        ("slurm_install_version: newest", "which is no version"),
        ("slurm_install_version: '24.11.5'", ACCEPTED),
        ("validation_runtime_prefix: opt/x", "must be an absolute path"),
        ("validation_runtime_prefix: /opt/x", ACCEPTED),
        ("slurm_energy: [gpu]", "Slurm reads the energy of AMD's GPUs alone"),
        ("slurm_energy: [rapl]", ACCEPTED),
        ("slurm_oci_settings: {RunTimeRunn: x}", "did you mean RunTimeRun?"),
        ("slurm_oci_settings: {DisableCleanup: perhaps}", "set YES or NO"),
        ("slurm_other_files: {mpi.conf: {PMIxDirectCon: 'true'}}", "did you mean PMIxDirectConn?"),
        ("slurm_other_files: {mpi.conf: {PMIxDirectConn: 'true'}}", ACCEPTED),
        ("slurm_other_files: {mpi.cnf: {PMIxDebug: 1}}", "did you mean mpi.conf?"),
        ("slurm_other_files: {acct_gather.conf: {EnergyIPMIFrequency: often}}", "a whole number"),
        (
            "slurm_other_files: {acct_gather.conf: {ProfileHDF5Dir: /x}}",
            "AcctGatherProfileType to acct_gather_profile/hdf5",
        ),
        ("slurm_other_files: {helpers.conf: [{BootTime: 5}]}", "NodeFeaturesPlugins"),
        ("slurm_other_files: {topology.yaml: [{tre: {}}]}", "did you mean tree?"),
        ("slurm_other_files: {resources.yaml: [{mode: MODE_9}]}", "MODE_9"),
        ("slurm_other_files: [mpi.conf]", "slurm_other_files"),
        ("slurm_database_settings: {CommitDelai: 1}", "did you mean CommitDelay?"),
        ("slurm_database_settings: {DebugLevel: loud}", "DebugLevel"),
        ("slurm_database_purge: {PurgeJobAfter: a year}", "set a time such as 12months"),
        ("slurm_database_purge: {PurgeJobAfter: 12months}", ACCEPTED),
        ("slurm_database_port: 0", "set a port from 1 to 65535"),
        ("slurm_database_port: 99999", "set a port from 1 to 65535"),
        ("slurm_database_port: -1", "set a port from 1 to 65535"),
        ("slurm_database_port: six", "slurm_database_port"),
        ("slurm_database_port: 6817", "6817"),
        ("slurm_database_port: 3306", "3306"),
        ("slurm_database_port: 22", "22"),
        ("slurm_database_port: 9090", "9090"),
        ("slurm_database_port: 7031", ACCEPTED),
        (
            'slurm_database_password: "a-long-password-here\\nStorageUser=root"',
            "slurm_database_password",
        ),
        ("slurm_database_password: 'a long password with blanks'", "slurm_database_password"),
        ("slurm_database_password: short", "slurm_database_password"),
        ("slurm_database_password: ChangeMe", "slurm_database_password"),
        ("slurm_database_password: ''", ACCEPTED),
        ("slurm_database_password: 12345678", "slurm_database_password"),
        ("slurm_database_password: aGoodPassword16Chars", ACCEPTED),
        ("slurm_state_save_location: spool/slurm", "slurm_state_save_location"),
        ("slurm_state_save_location: ''", "slurm_state_save_location"),
        ("slurm_state_save_location: /", "slurm_state_save_location"),
        ("slurm_state_save_location: ~/state", "slurm_state_save_location"),
        ('slurm_state_save_location: "/a b"', "slurm_state_save_location"),
        ('slurm_state_save_location: "/a\\nb"', "slurm_state_save_location"),
        ("slurm_state_save_location: /srv/slurm", ACCEPTED),
        ("slurm_state_save_location: [x]", "slurm_state_save_location"),
        ("slurm_constrain: no way", "slurm_constrain"),
        ("slurm_constrain: 'no'", "which is text"),
    ):
        yield _more(text, words, text)


def partitions() -> Iterator[Case]:
    def of(text: str, words: str) -> Case:
        whole = {key: value for key, value in ALL.items() if key != "slurm_partitions"}
        return Case(
            f"partitions {text}",
            {"group_vars/all.yml": _text(whole) + f"slurm_partitions: {text}\n"},
            words,
        )

    rest = "nodes: [ALL]"
    yield of(f"[{{name: p, {rest}}}]", ACCEPTED)
    for name, words in (
        ("2024", "is the number 2024"),
        ("no", "as false"),
        ("a b", "slurm_partitions"),
        ("DEFAULT", "DEFAULT"),
        ("'a,b'", "slurm_partitions"),
        ('"a\\nb"', "slurm_partitions"),
        ("''", "slurm_partitions"),
        ("[x]", "slurm_partitions"),
        ("a=b", "slurm_partitions"),
        ("long-name_1.x", ACCEPTED),
    ):
        yield of(f"[{{name: {name}, {rest}}}]", words)
    for more, words in (
        ("max_time: 24:00:00", "which YAML reads as 86400"),
        ("max_time: two days", "set a time such as"),
        ("max_time: 2-00:00:00", ACCEPTED),
        ("max_time: UNLIMITED", ACCEPTED),
        ("max_time: -5", "max_time"),
        ("max_time: ''", "max_time is empty"),
        ("settings: {MaxTme: 1-0}", "did you mean MaxTime?"),
        ("settings: {Hidden: yes}", "must be a word"),
        ("settings: {DefaultTime: 1:30:00}", "which YAML reads as 5400"),
        ("settings: {PriorityTier: first}", "PriorityTier"),
        ("settings: {PriorityTier: 10}", ACCEPTED),
        ("settings: {OverSubscribe: MAYBE}", "OverSubscribe"),
        ("settings: {Nodes: gpu1}", "Nodes"),
        ("settings: [a]", "slurm_partitions"),
        ("defalt: true", "defalt"),
        ("default: 'yes'", "default"),
        ("nodes: []", "slurm_partitions"),
    ):
        base = "" if more.startswith("nodes") else f"{rest}, "
        yield of(f"[{{name: p, {base}{more}}}]", words)
    for nodes, words in (
        ("[gpu_h200]", "gpu_h200"),
        ("[gpu_h100, cpu]", ACCEPTED),
        ("[gpu1, cpu2, gpu2, cpu1]", ACCEPTED),
        ("ALL", "must be of type list"),
        ("[login1, gpu_h100, cpu]", "login1"),
        ("[gpu9, cpu]", "gpu9"),
        ("[slurm_login]", "no compute node"),
        ("['gpu[1-2]', cpu]", ACCEPTED),
        ("['gpu[1-9]', cpu]", "gpu[3-9]"),
        ("[7]", "slurm_partitions"),
        ("[null]", "has an empty entry"),
        ("[ALL, null]", "has an empty entry"),
        ("[gpu1]", ACCEPTED),  # the others are told in a warning
    ):
        yield of(f"[{{name: p, nodes: {nodes}}}]", words)
    yield of("[]", "slurm_partitions")
    yield of("{}", "slurm_partitions")
    yield of("text", "slurm_partitions")
    yield of("[[]]", "slurm_partitions")
    yield of("[{nods: [ALL], name: p}]", "missing required arguments: nodes")
    yield of("[{nodes: [ALL]}]", "name")
    yield of(f"[{{name: p, {rest}}}, {{name: p, {rest}}}]", "two partitions with the name p")
    # Two partitions to slurmctld, which compares their names to the letter (list_find_part).
    yield of(f"[{{name: p, {rest}}}, {{name: P, {rest}}}]", ACCEPTED)
    yield of(
        f"[{{name: p, {rest}, default: true}}, {{name: q, {rest}, default: true}}]",
        "2 default partitions",
    )


def accounting() -> Iterator[Case]:
    def qos(limits: str, words: str) -> Case:
        text = f"slurm_qos:\n  - {{name: normal}}\n  - {{name: long, {limits}}}"
        return _more(f"qos {limits}", words, text)

    yield qos("priority: 10", ACCEPTED)
    for limits, words in (
        ("gres/gpu: 8", ACCEPTED),
        ("'gres/gpu:h100_sxm': 8", ACCEPTED),
        ("'gres/gpu:h100': 8", "gres/gpu:h100, which no node has; the nodes' GPUs are h100_sxm"),
        ("'gres/gpu:a100_sxm': 8", "gres/gpu:a100_sxm, which no node has"),
        ("gpu: 8", "gpu is none of"),
        ("cpu: many", "many"),
        ("cpu: -2", "slurm_associations"),
    ):
        yield qos(f"limits: {{MaxTRESPerUser: {{{limits}}}}}", words)
    yield qos("priority: high", "priority")
    yield qos("preempt: [nobody]", "nobody")
    yield qos("flags: [NoSuchFlag]", "nosuchflag")
    yield qos("max_wal: 1-0", "max_wal")
    for name, declared, on, words in (
        ("lnog", "[{name: long}]", "true", "validation_background_qos names the QOS lnog"),
        ("long", "[{name: long}]", "true", ACCEPTED),
        ("lnog", "[]", "true", ACCEPTED),  # the site keeps them by hand
        ("lnog", "[{name: long}]", "false", ACCEPTED),
    ):
        text = f"validation_background: {on}\nvalidation_background_qos: {name}"
        yield _more(f"background {name} {declared} {on}", words, f"slurm_qos: {declared}\n{text}")
    for text, words in (
        ("slurm_qos: [{name: a}, {name: a}]", "a"),
        ("slurm_qos: [{name: 'a b'}]", "a b"),
        ("slurm_qos: [{nme: a}]", "missing required arguments: name"),
        ("slurm_qos: a", "slurm_qos"),
        ("slurm_accounts: [{name: physics}]", ACCEPTED),
        ("slurm_accounts: [{name: physics, parent: nobody}]", "nobody"),
        ("slurm_accounts: [{name: a, parent: b}, {name: b, parent: a}]", "each other's parents"),
        ("slurm_accounts: [{name: 'a b'}]", "a b"),
        ("slurm_accounts: [{name: a, share: 1}]", "share"),
        ("slurm_users: [{name: ada, accounts: [nobody]}]", "nobody"),
        ("slurm_users: [{name: ada}]", "ada has no account"),
        ("slurm_users: ada", "slurm_users"),
    ):
        yield _more(text, words, text)


def users() -> Iterator[Case]:
    def user(entry: str, words: str) -> Case:
        whole = {key: value for key, value in ALL.items() if key != "cluster_users_list"}
        text = _text(whole) + f"cluster_users_list: [{entry}]\n"
        return Case(f"user {entry}", {"group_vars/all.yml": text}, words)

    yield user("{name: bob, uid: 2002, gid: 2002}", ACCEPTED)
    for name in ("slurm", "munge", "root", "daemon", "prometheus"):
        yield user(f"{{name: {name}, uid: 2002, gid: 2002}}", name)
    for name in ("'a b'", "'a:b'", "'../a'", "''", "7", "no", "-a", '"a\\nb"', "x" * 40, "[a]"):
        yield user(f"{{name: {name}, uid: 2002, gid: 2002}}", "cluster_users")
    for uid in ("02001", "0", "-1", "many", "1.5", "'2002'", "99999999999", "true", "null", "5"):
        words = ACCEPTED if uid == "'2002'" else "uid"
        yield user(f"{{name: bob, uid: {uid}, gid: 2002}}", words)
    yield user("{name: bob, uid: 2002, gid: 2002}, {name: eve, uid: 2002, gid: 2003}", "2002")
    yield user("{name: bob, uid: 2002, gid: 2002}, {name: bob, uid: 2003, gid: 2003}", "bob")
    for more, words in (
        ("groups: [chemistry]", "chemistry"),
        ("groups: physics", "groups"),
        ("shell: bash", "shell"),
        ("shel: /bin/bash", "shel"),
        ("home: home/bob", "home"),
        ("ssh_keys: ['ssh-ed25519 KEY']", "no whole public key"),
        ("ssh_keys: [not a key]", "no public key"),
        ("ssh_keys: ssh-ed25519", "ssh_keys"),
    ):
        yield user(f"{{name: bob, uid: 2002, gid: 2002, {more}}}", words)


def variables() -> Iterator[Case]:
    for name, meant in (
        ("slurm_partitons", "slurm_partitions"),
        ("node_gpu", "node_gpus"),
        ("node_memory_gb", "node_memory_mb"),
        ("cluster_nam", "cluster_name"),
        ("slurm_setings", "slurm_settings"),
        ("nvidia_driver_brunch", "nvidia_driver_branch"),
        ("cluster_user_list", "cluster_users_list"),
    ):
        yield _all(f"variable {name}", f"did you mean {meant}?", **{name: 1})
    for name in ("my_variable", "site_contact", "ntp_servers_of_ours"):
        yield _all(f"variable {name}", ACCEPTED, **{name: "x"})
    for value in _rows(
        "",
        "a b",
        "a\nb",
        'a"b',
        "-a",
        "a" * 41,
        7,
        "a.b",
        "Zurich-1",
        [],
        {},
        None,
        True,
    ):
        yield _all(f"cluster_name {value!r}", "cluster_name", cluster_name=value)
    for value in _rows("zurich-1", "a", "lab_2"):
        yield _all(f"cluster_name {value}", ACCEPTED, cluster_name=value)
    for value, words in _rows(
        ("unknown-variable:x", "must be of type list"),
        (["unknown-variabel"], "did you mean unknown-variable?"),
        (["no"], "no"),
        ([7], "7"),
        (["unknown-variable:x"], ACCEPTED),
    ):
        yield _all(f"silenced {value!r}", words, cluster_silenced_refusals=value)
    yield _all("undefined", "undefined", cluster_secrets="{{ no_such_thing }}")
    yield _all("loop of two", "cluster_name", cluster_name="{{ a }}", a="{{ b }}", b="{{ a }}")
    yield _all("loop of itself", "cluster_name", cluster_name="{{ cluster_name }}")
    yield _all("template", "cluster_name", cluster_name="{{ 1 / 0 }}")
    yield _all("template", "cluster_name", cluster_name="{{ x")
    yield _all("filter", "cluster_name", cluster_name="{{ 'x' | no_such_filter }}")
    yield _all("evaluated", ACCEPTED, cluster_name="{{ site_name }}", site_name="lab")
    yield Case("host_vars of nobody", {"host_vars/gpu9.yml": "a: 1\n"}, "host_vars/gpu9.yml")
    yield Case(
        "group_vars of nobody", {"group_vars/gpu_h10.yml": "a: 1\n"}, "did you mean gpu_h100"
    )
    yield Case("host's own name", {"host_vars/gpu1.yml": "cluster_name: other\n"}, "cluster_name")
    yield Case("host's own memory", {"host_vars/gpu1.yml": "node_memory_mb: 1000\n"}, ACCEPTED)


# --- files ---------------------------------------------------------------------------------------


def files() -> Iterator[Case]:
    all_ = "group_vars/all.yml"
    good = str(BASE[all_])
    for name, text, words in (
        ("tab", "a:\n\tb: 1\n", "all.yml:"),
        ("bracket", "a: [1, 2\n", "all.yml:"),
        ("brace", "a: {b: 1\n", "all.yml:"),
        ("quote", 'a: "x\n', "all.yml:"),
        ("colon", "a: b: c\n", "all.yml:"),
        ("two documents", "a: 1\n---\nb: 2\n", "all.yml:"),
        ("twice", "cluster_name: other\n", "cluster_name"),
        ("nested twice", "a: {b: 1, b: 2}\n", "all.yml:"),
        ("alias of nothing", "a: *nothing\n", "all.yml:"),
        ("unknown tag", "a: !python/object/apply:os.system [id]\n", "all.yml:"),
        ("unknown tag", "a: !!python/name:os.system x\n", "all.yml:"),
        ("NUL", "a: 1\0\n", "all.yml:"),
        ("control character", "a: \x07\n", "all.yml:"),
        ("indent", " a: 1\n", "all.yml:"),
        ("number as name", "7: a\n", "all.yml:"),
        ("name with blank", "my variable: a\n", ACCEPTED),
        ("CRLF", "a: 1\r\n", ACCEPTED),
        ("comment", "# ünïcode ☃\n", ACCEPTED),
        ("no end", "a: 1", ACCEPTED),
        ("percent", "a: '100 %'\n", ACCEPTED),
    ):
        yield Case(f"yaml {name}", {all_: good + text}, words)
    yield Case("yaml BOM", {all_: "\ufeff" + good}, ACCEPTED)
    yield Case("yaml list", {all_: "- a\n- b\n"}, "all.yml")
    yield Case("yaml word", {all_: "hello\n"}, "all.yml")
    yield Case("yaml latin-1", {all_: good.encode() + "a: über\n".encode("latin-1")}, "all.yml:")
    yield Case("yaml utf-16", {all_: good.encode("utf-16")}, "all.yml")
    yield Case("yaml binary", {all_: bytes(range(256))}, "all.yml")
    yield Case(
        "empty file", {"group_vars/login.yml": "", "group_vars/cpu.yml": _text(CPU)}, "login.yml"
    )
    yield Case("empty cpu", {"group_vars/slurm_login.yml": ""}, ACCEPTED)
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    yield Case("bomb", {all_: good + bomb}, "all.yml")
    yield Case(
        "bomb in hosts", {"group_vars/cpu.yml": str(BASE["group_vars/cpu.yml"]) + bomb}, "cpu.yml"
    )
    yield Case("deep", {all_: good + "a: " + "[" * 3000 + "]" * 3000 + "\n"}, "all.yml")
    yield Case("itself", {all_: good + "a: &a [*a]\n"}, "all.yml")
    yield Case("vault", {all_: "$ANSIBLE_VAULT;1.1;AES256\n6162\n"}, "is encrypted")
    yield Case(
        "vault, cut off",
        {"group_vars/slurm_login.yml": "$ANSIBLE_VAULT;1.1;AES256\n"},
        "is encrypted",
    )
    for place in ("group_vars/slurm_login.yml", "host_vars/gpu1.yml"):
        yield Case(f"FIFO {place}", {place: ""}, place, makes="fifo")
        yield Case(f"loop {place}", {place: ""}, place, makes="loop")
        yield Case(f"lost link {place}", {place: ""}, place, makes="lost")
    for name in (
        "LICENSE",
        "Makefile",
        "README.md",
        "keys/ada.pub",
        "dashboards/a.json",
        "notes.txt",
    ):
        yield Case(f"file {name}", {name: "hello: [\n"}, ACCEPTED)
    yield Case("backup", {"group_vars/all.yml~": "a: [\n"}, ACCEPTED)
    yield Case("hidden", {"group_vars/.all.yml.swp": "\0"}, ACCEPTED)
    for name, text in (
        ("tab", "all:\n\tchildren: {}\n"),
        ("list", "- gpu1\n"),
        ("word", "gpu1\n"),
        ("empty", ""),
        ("bracket", "all: {children: [\n"),
        ("groups as list", "all: {children: [slurm_cluster]}\n"),
        ("hosts as list", "all: {children: {slurm_cluster: {hosts: [gpu1]}}}\n"),
        ("hosts as word", "all: {children: {slurm_cluster: {hosts: gpu1 gpu2}}}\n"),
        ("NUL", "all: \0\n"),
        ("latin-1", "\udcfc"),
    ):
        content = text.encode("utf-8", "surrogateescape")
        yield Case(f"hosts {name}", {"hosts.yml": content}, "hosts.yml")
    yield Case("hosts none", {"hosts.yml": "all: {children: {slurm_cluster: {}}}\n"}, "slurm_c")
    twice = str(BASE["hosts.yml"]).replace("gpu2:", "gpu1:")
    yield Case("host twice", {"hosts.yml": twice}, "gpu1")


def secrets() -> Iterator[Case]:
    for text, words in (
        ("cluster_secrets: secrets", "cluster_secrets"),
        ("cluster_secrets: ''", "cluster_secrets"),
        ("cluster_secrets: [a]", "cluster_secrets"),
        ("grafana_port: 99999", "grafana_port"),
        ("grafana_port: 0", "grafana_port"),
        ("prometheus_port: 3000", "3000"),
        ("prometheus_port: 9090", ACCEPTED),
        ("node_exporter_port: 0", "node_exporter_port"),
        ("node_exporter_port: 70000", "node_exporter_port"),
        ("slurmrestd_port: 0", "slurmrestd_port"),
        ("munge_key_file: key", "munge_key_file"),
        ("tls_certificate_days: -1", "tls_certificate"),
        ("shared_storage_exports: /home", "shared_storage_exports"),
        ("shared_storage_exports: [{path: home}]", "shared_storage"),
        ("validation_environment: {A B: c}", "validation_environment"),
        ("validation_environment: {CUDA_VISIBLE_DEVICES: 0}", "validation_environment"),
        ("validation_shared_filesystems: [home]", "validation_shared_filesystems"),
        ("validation_transports: {nvsl: true}", "validation_transports"),
        ("validation_transports: {rails: 0}", "validation_transports"),
    ):
        yield _more(text, words, text)


GROUPS = (
    names,
    addresses,
    hardware,
    slurm,
    partitions,
    accounting,
    users,
    variables,
    files,
    secrets,
)
CASES: tuple[Case, ...] = tuple(case for group in GROUPS for case in group())
