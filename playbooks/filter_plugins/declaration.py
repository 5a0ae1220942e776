"""What the inventory declares the cluster to be: the contract between the two halves.

Slurm's configuration, the validation and (later) the alerts all derive from this one document.
`node_*` variables are set per compute group in the inventory; see docs/inventory.md.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

Groups = Mapping[str, Sequence[str]]
HostVars = Mapping[str, Mapping[str, Any]]

COMPUTE = "slurm_compute"
TOPOLOGY = ("sockets", "cores_per_socket", "threads_per_core")


class DeclarationError(AnsibleFilterError):
    """A declaration that cannot be used; one sentence: what, where, what to set instead."""


def declared_address(name: str, variables: Mapping[str, Any]) -> str:
    """IP address of a host: `node_address`, else `ansible_host`."""
    address = str(variables.get("node_address") or variables.get("ansible_host") or name)
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise DeclarationError(
            f"{name}: {address!r} is not an IP address; set node_address (or ansible_host) "
            f"of {name} to the address that the other nodes reach it at."
        ) from None
    return address


def declared_hosts(names: Sequence[str], hostvars: HostVars) -> list[dict[str, str]]:
    """Name and address of each host, in the order given."""
    return [{"name": n, "address": declared_address(n, hostvars[n])} for n in names]


def _count(name: str, where: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DeclarationError(
            f"{name}: {where} is {value!r}; set it to a whole number of {least} or more."
        )
    return value


def _mapping(name: str, where: str, value: object, keys: Sequence[str], example: str) -> Any:
    if value is None:
        raise DeclarationError(f"{name}: {where} is not set; set it for its group, as {example}.")
    if not isinstance(value, Mapping) or sorted(value) != sorted(keys):
        shown = dict(value) if isinstance(value, Mapping) else value
        raise DeclarationError(
            f"{name}: {where} is {shown!r}; it must have exactly the keys {', '.join(keys)}, "
            f"as {example}."
        )
    return value


def declared_node(name: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """One compute node as declared.

    Raises DeclarationError when something is missing or of the wrong kind.
    """
    cpus = _mapping(
        name,
        "node_cpus",
        variables.get("node_cpus"),
        TOPOLOGY,
        "{sockets: 2, cores_per_socket: 32, threads_per_core: 2}",
    )
    gpus = _mapping(
        name,
        "node_gpus",
        variables.get("node_gpus"),
        ("model", "count"),
        "{model: h100_sxm, count: 8} ({model: none, count: 0} declares a CPU node)",
    )
    return {
        "name": name,
        "address": declared_address(name, variables),
        "cpus": {key: _count(name, f"node_cpus.{key}", cpus[key], 1) for key in TOPOLOGY},
        "memory_mb": _count(name, "node_memory_mb", variables.get("node_memory_mb"), 1),
        "gpus": {
            "model": str(gpus["model"]),
            "count": _count(name, "node_gpus.count", gpus["count"], 0),
        },
        "fabric": str(variables.get("fabric") or "ethernet"),
    }


def declared_nodes(groups: Groups, hostvars: HostVars) -> list[dict[str, Any]]:
    """Every compute node as declared, in the inventory's order."""
    return [declared_node(name, hostvars[name]) for name in groups.get(COMPUTE, [])]


def declaration(
    nodes: Sequence[Mapping[str, Any]],
    *,
    cluster: str,
    controller: Sequence[str],
    login: Sequence[str],
    partitions: Sequence[Mapping[str, Any]],
    python: str,
) -> dict[str, Any]:
    """The document that `python -m validation.run` reads; validation/declaration.py is its schema.

    Slurm counts logical CPUs, so does the document.
    """
    return {
        "schema": 1,
        "cluster": cluster,
        "controller": list(controller),
        "login": list(login),
        "python": python,
        "partitions": [
            {"name": p["name"], "nodes": list(p["nodes"]), "default": bool(p.get("default"))}
            for p in partitions
        ],
        "nodes": [
            {
                "name": node["name"],
                "cpus": node["cpus"]["sockets"]
                * node["cpus"]["cores_per_socket"]
                * node["cpus"]["threads_per_core"],
                "memory_mb": node["memory_mb"],
                "gpus": dict(node["gpus"]),
                "fabric": node["fabric"],
            }
            for node in nodes
        ],
    }


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "declaration": declaration,
            "declared_hosts": declared_hosts,
            "declared_nodes": declared_nodes,
        }
