"""Lines of nodes.conf, gres.conf and partitions.conf, from declared nodes.

Everything comes from what the inventory declares, nothing from facts of other hosts: a node that
is switched off keeps its line, and the others get theirs. Nodes that are alike share a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from cluster import contract
from cluster.hostlist import compress
from cluster.slurm.billing import WEIGHTS, cpus, weights
from cluster.slurm.contradictions import one_key_of
from cluster.slurm.gres import count_of, detection, entries, files_of, get, gres, kinds
from cluster.slurm.key_problems import must_be
from cluster.slurm.keys import File
from cluster.slurm.settings import mapping_problems, text, value_problems

Node = Mapping[str, Any]
Partition = Mapping[str, Any]

# Nodes of one line: a line stays readable, also where addresses do not compress.
PER_LINE = 256

# Parameters of slurm.conf that are made from the declaration, and from what.
FROM_DECLARATION = {
    "nodename": "its name in the inventory",
    "nodeaddr": "node_address",
    "nodehostname": "its name in the inventory",
    "cpus": "node_cpus",
    "sockets": "node_cpus",
    "socketsperboard": "node_cpus",
    "corespersocket": "node_cpus",
    "threadspercore": "node_cpus",
    "realmemory": "node_memory_mb",
    "gres": "slurm_node_gres",
    "features": "Feature, as slurm.conf(5) of all releases has it",
}
FROM_PARTITION = {
    "partitionname": "slurm_partitions[].name",
    "nodes": "slurm_partitions[].nodes",
    "default": "slurm_partitions[].default",
}
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
RESERVED = {"all", "default", "n/a"}


# --- lines ---------------------------------------------------------------------------------------


def words(settings: Mapping[str, Any]) -> str:
    """`Key=value …`; a value with spaces is quoted, one that is empty is left out."""
    shown = ((key, text(value)) for key, value in settings.items())
    return " ".join(
        f'{key}="{value}"' if " " in value else f"{key}={value}" for key, value in shown if value
    )


def _attributes(node: Node) -> str:
    """What a node's line says beside its name and address."""
    parts = node["cpus"]
    return words(
        {
            "Sockets": parts["sockets"],
            "CoresPerSocket": parts["cores_per_socket"],
            "ThreadsPerCore": parts["threads_per_core"],
            "RealMemory": node["memory_mb"],
            "Gres": gres(node),
            **(node.get("options") or {}),
        }
    )


def _alike(nodes: Iterable[Node], attributes: Any) -> Iterator[tuple[Any, list[Node]]]:
    """(attributes, nodes) for nodes with the same attributes, in the order of the first of each."""
    groups: dict[Any, list[Node]] = {}
    for node in nodes:
        groups.setdefault(attributes(node), []).append(node)
    for shared, members in groups.items():
        for start in range(0, len(members), PER_LINE):
            yield shared, members[start : start + PER_LINE]


def node_lines(nodes: Sequence[Node]) -> list[str]:
    """The NodeName= lines; names and addresses of a line belong together one by one."""
    return [
        f"NodeName={compress((n['name'] for n in members), ordered=True)} "
        f"NodeAddr={compress((n['address'] for n in members), ordered=True)} {shared}"
        for shared, members in _alike(nodes, _attributes)
    ]


def entry_lines(entries_: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Lines of gres.conf for entries, in Slurm's customary order."""
    first = ("nodename", "autodetect", "name", "type")
    return tuple(
        words(dict(sorted(entry.items(), key=lambda item: _place(item[0].lower(), first))))
        for entry in entries_
    )


def _place(key: str, first: Sequence[str]) -> int:
    return first.index(key) if key in first else len(first)


def gres_lines(nodes: Sequence[Node], more: Iterable[Mapping[str, Any]] = ()) -> list[str]:
    """The lines of gres.conf: for nodes that are alike, then those of components."""
    own = [
        f"NodeName={compress((n['name'] for n in members), ordered=True)} {line}"
        for lines, members in _alike(nodes, lambda node: entry_lines(entries(node)))
        for line in lines
    ]
    return [*own, *entry_lines(more)]


def partition_lines(
    partitions: Sequence[Partition], nodes: Sequence[Node], by_share: bool = False
) -> list[str]:
    """The PartitionName= lines, for partitions whose `nodes` are NodeNames.

    by_share: whether a job is billed for the largest share that it has of its nodes
    """
    by_name = {node["name"]: node for node in nodes}
    return [_partition_line(partition, by_name, by_share) for partition in partitions]


def _partition_line(partition: Partition, by_name: Mapping[str, Node], by_share: bool) -> str:
    """A job that asks for no memory gets its CPUs' share of the smallest node.

    Without DefMemPerCPU it would get the whole memory of its node, and no second job start there.
    """
    members = partition["nodes"]
    share = min(_share(by_name[name]) for name in members)
    everyone = len(set(members)) == len(by_name)
    settings = {
        # One word for everyone: another node is no change of the partition.
        "Nodes": "ALL" if everyone else compress(members),
        "Default": "YES" if partition.get("default") else "NO",
        "MaxTime": partition.get("max_time") or "INFINITE",
        "DefMemPerCPU": share,
        WEIGHTS: weights([by_name[name] for name in members], share) if by_share else "",
        "State": "UP",
    }
    theirs = partition.get("settings") or {}
    replaced = {name.lower() for name in theirs}
    if "defmempernode" in replaced:  # Slurm would take DefMemPerCPU instead
        replaced.add("defmempercpu")
    kept = {name: value for name, value in settings.items() if name.lower() not in replaced}
    return f"PartitionName={partition['name']} {words({**kept, **theirs})}"


def _share(node: Node) -> int:
    """Memory of one CPU; what is kept for the system is no job's."""
    kept = get(node.get("options") or {}, "memspeclimit")
    return max(1, (int(node["memory_mb"]) - int(kept or 0)) // cpus(node))


# --- what is wrong, as sentences -----------------------------------------------------------------


def node_problems(nodes: Sequence[Node]) -> list[str]:
    """What is wrong with the options and GRES that nodes declare; each sentence once."""
    problems: dict[str, None] = {}
    for node in nodes:
        if not any(
            (node.get("options"), node.get("gres"), node["gpus"].get("mig"), detection(node))
        ):
            continue
        sentences = [*_options_problems(node.get("options") or {})]
        for entry in node.get("gres") or []:
            sentences += _gres_problems(entry)
        sentences += _detection_problems(node)
        if node["gpus"].get("mig") and not sentences:
            sentences += _mig_problems(node)
        elif node.get("gres") and not sentences:
            sentences += _gpu_problems(node)
        problems.update(dict.fromkeys(f"{node['name']}: {sentence}" for sentence in sentences))
    return list(problems)


def _options_problems(options: Any) -> Iterator[str]:
    yield from mapping_problems("slurm_node_options", options, FROM_DECLARATION)
    if isinstance(options, Mapping):
        yield from one_key_of(options, "slurm_node_options")


def _mig_problems(node: Node) -> Iterator[str]:
    declared = ",".join(f"gpu:{kind}:{count}" for kind, count in kinds(node).items())
    if (gpus := _gpus(gres(node))) != _gpus(declared):
        yield (
            f"slurm_node_gres makes {','.join(sorted(gpus)) or 'no GPU'}, node_gpus declares "
            f"{declared}; change one of them."
        )


def _detection_problems(node: Node) -> Iterator[str]:
    how = detection(node)
    if how and node.get("gres"):
        yield (
            f"slurm_node_autodetect is {how}, and slurm_node_gres names what there is; "
            "remove one of them."
        )
    if how == "nvidia" and node["gpus"].get("mig"):
        yield (
            "slurm_node_autodetect is nvidia, which finds no instances of MIG; set nvml, or "
            "nothing: their device files are then named."
        )
    if how and node["gpus"]["model"] == "virtual":
        yield (
            f"slurm_node_autodetect is {how}, and slurmd would find none of the virtual GPUs; "
            "remove it."
        )


def _gpu_problems(node: Node) -> Iterator[str]:
    """Lines for other GPUs than the node has; their type may be of the site's own making."""
    model, count = node["gpus"]["model"], int(node["gpus"]["count"])
    lines = [entry for entry in node["gres"] if get(entry, "name").lower() == "gpu"]
    if not lines and (not count or any(get(entry, "autodetect") for entry in node["gres"])):
        return
    files = {file for entry in lines for file in files_of(get(entry, "file"))}
    counts = [count_of(entry, node) for entry in lines]
    total = len(files) or sum(int(number) for number in counts if number.isdigit())
    if total != count and not any(get(entry, "multiplefiles") for entry in lines):
        yield (
            f"slurm_node_gres has {total} GPUs, and node_gpus declares {count}; change one of them."
        )
        return
    for kind in dict.fromkeys(get(entry, "type") for entry in lines):
        if kind != model and kind in _models():
            yield (
                f"slurm_node_gres has GPUs of type {kind}, and node_gpus declares {model}; "
                "change one of them."
            )


@cache
def _models() -> frozenset[str]:
    return frozenset(contract.load().gpu_models)


def _gpus(words: str) -> set[str]:
    return {word for word in words.split(",") if word.startswith("gpu:")}


def _gres_problems(entry: Any) -> Iterator[str]:
    if not isinstance(entry, Mapping):
        yield f"slurm_node_gres has {entry!r}; each entry is a mapping such as {{Name: gpu}}."
        return
    yield from mapping_problems("slurm_node_gres", entry, {"nodename": "slurm_node_gres by group"})


def partition_problems(partitions: Any) -> list[str]:
    """What is wrong with partitions, less the nodes that they name."""
    if not partitions:
        return ["slurm_partitions is empty; jobs could be submitted to no partition."]
    problems = []
    names: list[str] = []
    for number, partition in enumerate(partitions):
        where = f"slurm_partitions[{number}]"
        name = str(partition.get("name"))
        if not NAME.fullmatch(name) or name.lower() in RESERVED:
            problems.append(
                f"{where}.name is {name!r}; take letters, digits, dashes and underscores, "
                "and none of Slurm's own words ALL and DEFAULT."
            )
        if name in names:
            problems.append(f"{where}.name is {name}, which another partition has; rename one.")
        names.append(name)
        problems += _time_problems(f"{where}.max_time", partition.get("max_time"))
        settings = partition.get("settings") or {}
        problems += mapping_problems(f"{where}.settings", settings, FROM_PARTITION)
        if isinstance(settings, Mapping):
            problems += one_key_of(settings, f"{where}.settings")
    default = [str(part["name"]) for part in partitions if part.get("default")]
    if len(default) > 1:
        problems.append(
            f"slurm_partitions has {len(default)} default partitions ({', '.join(default)}); "
            "leave `default: true` with one."
        )
    return problems


_FOLDER = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+/?")  # as a word of slurm.conf


def controller_problems(
    controllers: Sequence[Mapping[str, str]], options: Mapping[str, Any]
) -> list[str]:
    """What contradicts itself about the controllers.

    options: state, shared, accounting, accounting_backup, accounting_port, database_port,
    delivery, login, parameters
    """
    problems = []
    state, shared = str(options["state"]), list(map(str, options["shared"]))
    if not _FOLDER.fullmatch(state):
        problems.append(
            f"slurm_state_save_location is {state!r}; set it to the absolute path of a folder, of "
            "letters, digits and the signs . _ and -, such as /var/lib/slurm/slurmctld."
        )
    if len(controllers) > 1 and not any(state.startswith(f"{path}/") for path in shared):
        problems.append(
            f"slurm_controllers has {len(controllers)} hosts, but slurm_state_save_location is "
            f"{state}, which is on no filesystem that they share; set it to a folder below "
            f"{' or '.join(shared) or 'one that shared_storage_mounts declares'}."
        )
    if options["accounting"] and options["accounting_port"] != options["database_port"]:
        problems.append(
            f"slurm_accounting_port is {options['accounting_port']}, and slurm_database_port is "
            f"{options['database_port']}; set slurm_database_port alone, the other follows."
        )
    backup = options["accounting_backup"]
    if backup and options["accounting"] in ("", backup):
        problems.append(
            f"slurm_accounting_backup_host is {backup}, and slurm_accounting_host is "
            f"{options['accounting'] or 'empty'}; a backup is beside another host of slurmdbd."
        )
    if options["login"] == "sackd" and options["delivery"] != "configless":
        problems.append(
            "slurm_login_delivery is sackd, which fetches what slurm_config_delivery: "
            f"{options['delivery']} does not offer; set slurm_config_delivery: configless, or "
            "slurm_login_delivery: files."
        )
    parameters = {word.strip().lower() for word in options["parameters"].split(",")}
    if options["delivery"] == "configless" and "enable_configless" not in parameters:
        problems.append(
            f"slurm_settings.SlurmctldParameters is {options['parameters']!r}, without "
            "enable_configless, which nodes need to fetch their configuration; add it, or set "
            "slurm_config_delivery: files."
        )
    return problems


def _time_problems(where: str, value: Any) -> Iterator[str]:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield (
            f"{where} is the number {value}, which YAML may have made of a time such as 24:00:00; "
            'write it in quotes: "1-00:00:00", or "60" for minutes.'
        )
    elif problems := list(value_problems(where, value)):
        yield from problems
    elif value == "":
        yield f"{where} is empty; set a time such as 2-00:00:00, or remove it."
    elif value and (must := must_be(File.PARTITION, "MaxTime", value)):
        yield f"{where} is {value}; set {must}."
