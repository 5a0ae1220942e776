"""What the inventory says to the monitoring: who is asked what, and what should be there.

Pure functions over `groups`, the partitions and the declared nodes; group_vars give their results
to the roles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
THRESHOLDS = ROOT / "validation" / "thresholds"
CLUSTER, COMPUTE = "slurm_cluster", "slurm_compute"
# The first of these that a host is in is its group; a host that does more is named by what hurts
# most when it is away.
GROUPS = {
    "slurm_controller": "controller",
    "slurm_database": "database",
    "slurm_login": "login",
    COMPUTE: "compute",
    "monitoring": "monitoring",
}
# The key that signs Grafana's packages since 2023-08-24, "Grafana Labs <engineering@grafana.com>";
# Grafana's pages say when and why, several independent public repositories the whole of it.
GRAFANA_FINGERPRINT = "B53AE77BADB630A683046005963FA27710458545"
# Whose alerts no playbook silences that works on compute nodes.
NEEDED = ("slurm_controller", "slurm_database", "monitoring")

Groups = Mapping[str, Sequence[str]]
Node = Mapping[str, Any]


# Where a node stands, as it is declared: who fails together is told together.
PLACES = ("rack", "switch")


def hosts(
    groups: Groups, partitions: Iterable[Mapping[str, Any]], nodes: Iterable[Node] = ()
) -> list[dict[str, Any]]:
    """Every host of the cluster with its labels `group` and, of compute nodes, `partition_group`,
    and `rack` and `switch` where it declares them.

    `partition_group` is the first group, in the order of the partitions, that one of them is made
    of; a node that is only in partitions of all nodes has none.
    """
    places = {
        str(node["name"]): {place: node[place] for place in PLACES if node.get(place)}
        for node in nodes
    }
    group_of = {
        host: label for name, label in reversed(GROUPS.items()) for host in groups.get(name) or ()
    }
    named = [str(name) for partition in partitions for name in partition.get("nodes") or ()]
    partition_group_of = {
        host: name
        for name in reversed(named)
        if name not in (COMPUTE, CLUSTER, "all")
        for host in groups.get(name) or ()
    }
    return [
        {
            "name": host,
            "labels": {
                **({"group": group_of[host]} if host in group_of else {}),
                **(
                    {"partition_group": partition_group_of[host]}
                    if host in partition_group_of
                    else {}
                ),
                **places.get(host, {}),
            },
        }
        for host in groups.get(CLUSTER) or ()
    ]


def nodes_to_silence(
    hostvars: Mapping[str, Mapping[str, Any]],
    batch: Iterable[str],
    groups: Groups,
    *,
    back: bool = False,
) -> list[str]:
    """The nodes of a batch that are out of service for work on them; with `back` those that were.

    A host on which others depend is never among them: what its daemons lack is told, also while it
    is worked on as a compute node.
    """
    needed = {host for name in NEEDED for host in groups.get(name) or ()}
    mark = "__node_reboot_done" if back else "__node_reboot_draining"
    return [
        name
        for name in batch
        if name not in needed
        and mark in hostvars[name]
        and (back or "__node_reboot_done" not in hostvars[name])
    ]


def address(addresses: Mapping[str, str], name: str) -> str:
    """The address of one of the cluster's hosts. Raises ValueError for another."""
    ip = addresses.get(name)
    if ip is None:
        raise ValueError(f"{name} is no host of the cluster, so it has no address")
    return ip


def grafana_repositories(mirror: str) -> list[dict[str, Any]]:
    """Entries for the role package_repositories; `mirror` is laid out as upstream's."""
    address = mirror.rstrip("/")
    return [
        {
            "name": "grafana",
            "uris": [f"{address}/"],
            "suites": ["stable"],
            "components": ["main"],
            "key_url": f"{address}/gpg.key",
            "key_fingerprint": GRAFANA_FINGERPRINT,
            # Nothing else comes from there, whatever is in it.
            "pins": [
                {"packages": ["*"], "priority": 100},
                {"packages": ["grafana"], "priority": 500},
            ],
        }
    ]


def gpu_hosts(hostvars: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Those of the hosts whose GPUs dcgm-exporter tells of, by each one's own variables."""
    return [name for name in names if hostvars[name].get("gpu_exporter_source") == "dcgm"]


# What Prometheus is to ask slurmctld for. /metrics/jobs-users-accts has a series for each user and
# account there ever was, so it is left out.
SLURM_ENDPOINTS = ("jobs", "nodes", "partitions", "scheduler")


def slurm_scrapes(controllers: Sequence[str], port: int) -> list[dict[str, Any]]:
    """Entries of `scrape_configs` for the OpenMetrics endpoint of the first controller.

    A backup answers with a redirection to it. All have the label `job` of one and the same job, and
    an `endpoint` that tells them apart. Slurm's own label `node` is the node that is told of.
    """
    return [
        {
            "job_name": f"slurm_{endpoint}",
            "metrics_path": f"/metrics/{endpoint}",
            "scrape_interval": "60s",
            "honor_labels": True,
            "follow_redirects": False,
            "static_configs": [
                {
                    "targets": [f"{name}:{port}"],
                    "labels": {"node": name, "group": "controller", "endpoint": endpoint},
                }
                for name in controllers[:1]
            ],
            "relabel_configs": [{"target_label": "job", "replacement": "slurm"}],
        }
        for endpoint in SLURM_ENDPOINTS
    ]


def expected_gpus(nodes: Iterable[Node]) -> list[dict[str, Any]]:
    """What each compute node declares, with the names that boards of the model are known to have.

    Nodes without GPUs are there with none: a GPU that turns up in one is undeclared.
    """
    return [
        {
            "node": node["name"],
            "model": node["gpus"]["model"],
            "count": node["gpus"]["count"],
            "names": list(board_names(node["gpus"]["model"])),
        }
        for node in nodes
    ]


@cache
def board_names(model: str) -> tuple[str, ...]:
    """What NVML calls boards of a model, as validation/thresholds has it; none of a site's own."""
    path = THRESHOLDS / f"{model}.yml"
    if not path.is_file():
        return ()
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    return tuple((document.get("nvml_names") or {}).get("names") or ())
