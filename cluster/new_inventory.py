"""The files of a new inventory, from the names of hosts and what the compute nodes told.

Pure functions of `scripts/init`. The hosts are written as people write them: `gpu[1-8]`,
`gpu1.example.org` (the short name becomes the NodeName), `gpu[1-2]=192.0.2.[11-12]`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.contract import Contract
from cluster.hardware import NO_GPU, TOPOLOGY, UNSAID_FABRIC, needs_fabric
from cluster.hostlist import HostlistError, compress, expand, listed
from cluster.names import CLUSTER_NAME, cluster_name_refusals, name_refusals

# What must not be committed with an inventory (docs/operate/inventory-in-git.md).
IGNORED = (".secrets/", ".vault-password", ".plumbline-*")
# More than any node has: preflight refuses it on the node itself, and says what the node has.
UNKNOWN_MEMORY = 999_999_999
UNSEEN = "unseen"  # the group of nodes that told nothing
MEMORY_SPREAD = 0.98  # nodes of one kind differ by what their firmware keeps

ADDRESS = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
# Words that YAML takes for something else than text, beside numbers.
_NO_TEXT = re.compile(r"y|n|yes|no|on|off|true|false|null|[0-9].*", re.IGNORECASE)


class Refused(Exception):
    """Why there can be no such inventory; one sentence."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person says of the cluster; hosts by name, with the address or "" for none."""

    cluster: str
    user: str
    controller: Mapping[str, str]
    database: Mapping[str, str]
    login: Mapping[str, str]
    compute: Mapping[str, str]
    monitoring: Mapping[str, str]

    @property
    def groups(self) -> dict[str, Mapping[str, str]]:
        return {
            "slurm_controller": self.controller,
            "slurm_database": self.database,
            "slurm_login": self.login,
            "slurm_compute": self.compute,
            "monitoring": self.monitoring,
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """Compute nodes of one kind; `hardware` as describe-nodes.yml prints it, or nothing."""

    group: str
    nodes: Sequence[str]
    hardware: Mapping[str, Any]
    model: str = NO_GPU
    fabric: str = UNSAID_FABRIC

    @property
    def gpus(self) -> int:
        return int(self.hardware.get("gpus_on_the_pci_bus", 0))


# --- hosts ---------------------------------------------------------------------------------------


def hosts(text: str) -> dict[str, str]:
    """Names and addresses of `NAMES[=ADDRESSES]`, separated by blanks. Raises Refused."""
    of: dict[str, str] = {}
    for word in text.split():
        written, _, where = word.partition("=")
        try:
            names = expand(written)
            addresses = expand(where) if where else names
        except HostlistError as error:
            raise Refused(f"{error}; write hosts as gpu[1-8], or gpu1=192.0.2.11") from None
        if len(names) != len(addresses):
            raise Refused(
                f"{word} has {len(names)} names and {len(addresses)} addresses; "
                "give each host its own"
            )
        for name, address in zip(names, addresses, strict=True):
            if not ADDRESS.fullmatch(address):
                raise Refused(f"{address} is no address of a host")
            short = name if name.replace(".", "").isdigit() else name.partition(".")[0]
            _add(of, short, "" if address == short else address)
    return of


def _add(of: dict[str, str], name: str, address: str) -> None:
    if of.get(name) and address and of[name] != address:
        raise Refused(f"{name} would be both {of[name]} and {address}; give each host its own name")
    of[name] = address or of.get(name, "")


def checked(wanted: Wanted) -> Wanted:
    """The same, with each host's address in all its groups. Raises Refused for what cannot be."""
    addresses: dict[str, str] = {}
    for members in wanted.groups.values():
        for name, address in members.items():
            _add(addresses, name, address)
    for what, members in (("controller", wanted.controller), ("compute node", wanted.compute)):
        if not members:
            raise Refused(f"there is no {what}; a cluster has at least one")
    if both := sorted(wanted.compute.keys() & wanted.controller.keys()):
        raise Refused(f"{listed(both)} would be controller and compute node; jobs would slow it")
    if not USER.fullmatch(wanted.user):
        raise Refused(f"{wanted.user!r} is no name of a user")
    wrong = [*name_refusals(list(addresses)), *cluster_name_refusals(wanted.cluster)]
    if wrong:
        raise Refused(wrong[0].sentence.rstrip("."))
    known = {
        group: {name: addresses[name] for name in members}
        for group, members in wanted.groups.items()
    }
    return Wanted(wanted.cluster, wanted.user, *known.values())


def cluster_name(folder: str) -> str:
    """A name for the cluster after that of its folder."""
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.lower()).strip("-_")[:40].strip("-_")
    return name if CLUSTER_NAME.fullmatch(name) else "cluster"


# --- kinds of nodes ------------------------------------------------------------------------------


def kinds(compute: Iterable[str], described: Mapping[str, Mapping[str, Any]]) -> list[Kind]:
    """Nodes that are alike, in their order, without model and fabric; unseen nodes come last."""
    alike: dict[str, list[list[str]]] = {}
    unseen = []
    by_memory = sorted(compute, key=lambda name: _memory(described.get(name, {})), reverse=True)
    for name in by_memory:
        if name not in described:
            unseen.append(name)
            continue
        rest = {key: value for key, value in described[name].items() if key != "node_memory_mb"}
        groups = alike.setdefault(json.dumps(rest, sort_keys=True), [])
        least = MEMORY_SPREAD * _memory(described[groups[-1][0]]) if groups else 0
        if groups and _memory(described[name]) >= least:
            groups[-1].append(name)
        else:
            groups.append([name])
    order = {name: number for number, name in enumerate(compute)}
    groups_of_nodes = [
        sorted(nodes, key=order.__getitem__) for some in alike.values() for nodes in some
    ]
    kinds = [
        Kind("", nodes, min((described[name] for name in nodes), key=_memory))
        for nodes in sorted(groups_of_nodes, key=lambda nodes: order[nodes[0]])
    ]
    lost = sorted(unseen, key=order.__getitem__)
    return [*kinds, *([Kind(UNSEEN, lost, {})] if lost else [])]


def _memory(hardware: Mapping[str, Any]) -> int:
    return int(hardware.get("node_memory_mb", 0))


def named(some: Iterable[Kind]) -> list[Kind]:
    """The kinds with the names of their groups: cpu, gpu_h100_sxm, gpu_h100_sxm_2."""
    seen: dict[str, int] = {}
    result = []
    for kind in some:
        base = kind.group or (f"gpu_{kind.model}".replace("-", "_") if kind.gpus else "cpu")
        base = re.sub(r"[^A-Za-z0-9_]", "_", base)
        seen[base] = seen.get(base, 0) + 1
        name = base if seen[base] == 1 else f"{base}_{seen[base]}"
        result.append(Kind(name, kind.nodes, kind.hardware, kind.model, kind.fabric))
    return result


def kind_problem(kind: Kind, contract: Contract) -> str:
    """What somebody must say of a kind before it can be declared; "" for nothing."""
    who = listed(kind.nodes)
    if kind.gpus and kind.model == NO_GPU:
        return (
            f"{who}: the PCI bus has {kind.gpus} GPUs, and not their model; give it with "
            f"--gpu-model, one of {', '.join(contract.gpu_models)}"
        )
    if kind.fabric not in ("", *contract.fabrics):
        return f"{kind.fabric!r} is no fabric; give --fabric one of {', '.join(contract.fabrics)}"
    if kind.gpus and not kind.fabric and needs_fabric({"model": kind.model}):
        return (
            f"{who}: nodes with {kind.model} are joined by a fabric; give it with --fabric, one "
            f"of {', '.join(contract.fabrics)}"
        )
    return ""


def one_line(message: str) -> str:
    """What Ansible says of a failure, for a line of a file: it may be what a host said."""
    line = " ".join(message.removeprefix("Task failed: ").split())
    return "".join(letter for letter in line if letter.isprintable())


def by_reason(failed: Mapping[str, str]) -> dict[str, list[str]]:
    """The nodes that failed for each reason."""
    reasons: dict[str, list[str]] = {}
    for name, why in failed.items():
        reasons.setdefault(why, []).append(name)
    return reasons


# --- files ---------------------------------------------------------------------------------------


def files(wanted: Wanted, some: Sequence[Kind], failed: Mapping[str, str]) -> dict[str, str]:
    """The text of each file; `failed` says why nodes told nothing."""
    return {
        "hosts.yml": hosts_text(wanted, some),
        "group_vars/all/cluster.yml": _cluster_text(wanted),
        "group_vars/all/slurm.yml": _partitions_text(some),
        **{f"group_vars/{kind.group}.yml": _kind_text(kind, failed) for kind in some},
        ".gitignore": "# Secrets and locks: none of them belongs into git.\n"
        + "".join(f"{pattern}\n" for pattern in IGNORED),
    }


def hosts_text(wanted: Wanted, some: Sequence[Kind]) -> str:
    """hosts.yml; a host's address stands where the host is named first."""
    placed: set[str] = set()

    def members(names: Mapping[str, str], depth: int) -> list[str]:
        lines = _members({name: names[name] for name in names if name not in placed})
        lines += _members({name: "" for name in names if name in placed})
        placed.update(names)
        return [" " * depth + line for line in lines]

    lines = [
        "---",
        "# The hosts of the cluster. Names become the nodes' own names and Slurm's NodeNames;",
        "# ansible_host is where a host is reached, if its name alone does not say so.",
        "all:",
        "  vars:",
        "    # A sudo user that exists on every host and logs in with a key.",
        f"    ansible_user: {_text(wanted.user)}",
        "  children:",
        "    slurm_cluster: # every host of the cluster is in it",
        "      children:",
    ]
    meaning = {
        "slurm_controller": "slurmctld; the first host is the primary, more are backups",
        "slurm_database": "slurmdbd and MariaDB",
        "slurm_login": "where users log in and submit",
        "slurm_compute": "slurmd; a group for each kind of node, declared in group_vars/GROUP.yml",
        "monitoring": "Prometheus, Alertmanager, Grafana; none of it is installed without a host",
        "storage": "NFS server, if the cluster provides one",
    }
    for group, names in {**wanted.groups, "storage": {}}.items():
        lines.append(f"        {group}: # {meaning[group]}")
        if group == "slurm_compute":
            lines.append("          children:")
            for kind in some:
                own = {name: names[name] for name in kind.nodes}
                lines += [f"            {kind.group}:", "              hosts:", *members(own, 16)]
        elif names:
            lines += ["          hosts:", *members(names, 12)]
    return "\n".join([*lines, ""])


def _members(names: Mapping[str, str]) -> list[str]:
    """Lines of hosts, alike ones as a range of Ansible's."""
    by_address: dict[str, list[str]] = {}
    for name, address in names.items():
        of_domain = address.startswith(f"{name}.")
        where = f'"{{{{ inventory_hostname }}}}{address[len(name) :]}"' if of_domain else address
        by_address.setdefault(where, []).append(name)
    return [
        line
        for address, some in by_address.items()
        for pattern in patterns(some)
        for line in (f"{_text(pattern)}:", f"  ansible_host: {address}" if address else "")
        if line
    ]


def patterns(names: Iterable[str]) -> list[str]:
    """Names as Ansible's ranges: gpu[1:8]."""
    result = []
    for word in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", compress(names)):
        prefix, _, inside = word.rstrip("]").partition("[")
        for part in inside.split(","):
            low, dash, high = part.partition("-")
            result.append(f"{prefix}[{low}:{high}]" if dash else f"{prefix}{part}")
    return result


def _text(word: str) -> str:
    return json.dumps(word) if _NO_TEXT.fullmatch(word) else word


def _cluster_text(wanted: Wanted) -> str:
    return (
        "---\n# Name of the cluster, in Slurm, in accounting and in reports.\n"
        f"cluster_name: {_text(wanted.cluster)}\n"
        "\n# Each host lets in what its roles need, and SSH (docs/operate/firewall.md). Name the\n"
        "# networks that operators come from in firewall_ssh_from; login nodes, which users come\n"
        "# to, get a value of their own in group_vars/slurm_login.yml.\n"
        "firewall_enabled: true\n"
    )


def _partitions_text(some: Sequence[Kind]) -> str:
    """One partition for each kind; the first is the default."""
    lines = [
        "---",
        "# Partitions, by group; `settings` takes any further option of slurm.conf(5).",
        "slurm_partitions:",
    ]
    for number, kind in enumerate(some):
        default = ", default: true" if number == 0 else ""
        lines.append(
            f"  - {{name: {kind.group}, nodes: [{kind.group}]{default}, max_time: 2-00:00:00}}"
        )
    return "\n".join([*lines, ""])


def _kind_text(kind: Kind, failed: Mapping[str, str]) -> str:
    return _seen_text(kind) if kind.hardware else _unseen_text(kind, failed)


def _seen_text(kind: Kind) -> str:
    hardware = kind.hardware
    cpus = ", ".join(f"{key}: {int(hardware['node_cpus'][key])}" for key in TOPOLOGY)
    mig = hardware.get("mig")
    cut = ", mig: {" + ", ".join(f"{name}: {n}" for name, n in mig.items()) + "}" if mig else ""
    memory = _memory(hardware)
    lines = [
        "---",
        f"# What {listed(kind.nodes)} told of themselves. Compare it with what you bought: a GPU",
        "# that was missing when they were asked is not noticed otherwise.",
        f"node_cpus: {{{cpus}}}",
        f"node_memory_mb: {memory // 100 * 100 or memory} # for jobs; the system has the rest",
        f"node_gpus: {{model: {kind.model}, count: {kind.gpus}{cut}}}",
        f"fabric: {kind.fabric or UNSAID_FABRIC}",
        "",
    ]
    if each := hardware.get("mig_of_each_gpu"):
        lines += [f"# Their GPUs are cut in different ways, which cannot be declared: {each}", ""]
    if kind.gpus:
        lines += [
            "# The branch of the driver that the nodes get, 580 of 580.95.05. NVIDIA has no 580",
            "# for Debian 13: write 595 there. With the source `preinstalled` it is only held",
            "# against what is there (docs/operate/gpu-nodes.md).",
            "nvidia_driver_branch: 580",
            "nvidia_driver_source: cuda_repo",
            "",
        ]
    else:
        lines += ["validation_runtime_source: venv # without CUDA", ""]
    return "\n".join(lines)


def _unseen_text(kind: Kind, failed: Mapping[str, str]) -> str:
    reasons = by_reason({name: failed.get(name, "told nothing") for name in kind.nodes})
    return "\n".join(
        [
            "---",
            "# PLACEHOLDERS: these nodes told nothing when the inventory was made. Ask them with",
            "#   ansible-playbook -i THIS-FOLDER playbooks/describe-nodes.yml",
            "# and write here what they print. Until then preflight refuses the nodes themselves:",
            "# no node has as much memory.",
            *(f"# {listed(names)}: {reason}" for reason, names in reasons.items()),
            "node_cpus: {sockets: 1, cores_per_socket: 1, threads_per_core: 1}",
            f"node_memory_mb: {UNKNOWN_MEMORY}",
            "node_gpus: {model: none, count: 0}",
            f"fabric: {kind.fabric or UNSAID_FABRIC}",
            "",
            "validation_runtime_source: venv # of nodes with GPUs: remove it",
            "",
        ]
    )
