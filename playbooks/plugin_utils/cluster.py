"""The whole cluster as declared, worked out once for all hosts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible.errors import AnsibleError, AnsibleFilterError

from cluster import declaration, names
from cluster.contract import COMPUTE, CONTROLLER, LOGIN, Contract
from cluster.hardware import (
    JUDGES,
    UNSAID_FABRIC,
    Problem,
    declared_node,
    environment_problems,
    needs_fabric,
    shared_problems,
    transports_problems,
)
from cluster.hostlist import listed
from cluster.partitions import PartitionError, expanded, partition_refusals
from cluster.refusal import Refusal, standing
from cluster.slurm import topology
from playbooks.plugin_utils.openings import is_wanted, openings
from playbooks.plugin_utils.origin import where_set
from playbooks.plugin_utils.site import Site, resolve

ADDRESS_VARIABLES = ("node_address", "ansible_host")
SILENCED = "cluster_silenced_refusals"
SSH_PORT = "22"
# What the worked out cluster is registered as; group_vars/all/cluster.yml reads it.
WORKED_OUT = "__cluster"
# Connections that reach a host by its address; others (podman, local) have no door to share.
# What a group of nodes adds to its lines of Slurm's configuration, and its key in a node.
# For the validation alone, not for Slurm.
ENVIRONMENT, SHARED, TRANSPORTS = "environment", "shared_filesystems", "transports"
ADDITIONS = {
    "slurm_node_options": "options",
    "slurm_node_gres": "gres",
    "slurm_node_autodetect": "autodetect",
    "node_rack": "rack",
    "node_switch": "switch",
    "validation_environment": ENVIRONMENT,
    "validation_shared_filesystems": SHARED,
    "validation_transports": TRANSPORTS,
}
OVER_THE_NETWORK = {"ssh", "ansible.builtin.ssh", "smart", "paramiko_ssh", "paramiko"}

Resolve = Callable[[Iterable[str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What playbooks and roles read of the whole cluster; plain data."""

    nodes: Sequence[Mapping[str, Any]] = ()
    hosts: Sequence[Mapping[str, str]] = ()
    controllers: Sequence[Mapping[str, str]] = ()
    hosts_lines: str = ""
    declaration: Mapping[str, Any] = field(default_factory=dict)
    # For firewalls: see openings.py.
    peers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ports: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    port_profiles: Mapping[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def cause(error: BaseException) -> BaseException:
    """The last link of an error's chain: what went wrong, without where Ansible noticed it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def reason(error: BaseException) -> str:
    """What went wrong with a template, in words for who wrote it."""
    last = cause(error)
    circular = isinstance(last, RecursionError) or "maximum recursion" in str(last)
    return "it refers to itself" if circular else str(last).rstrip(".")


def addresses(site: Site, look_up: Resolve = resolve) -> tuple[dict[str, str], list[Refusal]]:
    """The address of each host that has one, and what is wrong with the others."""
    address_of: dict[str, str] = {}
    refusals: list[Refusal] = []
    to_resolve: dict[str, tuple[str, str]] = {}
    for host in site.names:
        try:
            variable, text = _written_address(site, host)
        except AnsibleError as error:
            refusals.append(Refusal(f"{host}: its address cannot be evaluated: {reason(error)}"))
            continue
        literal = names.literal_address(text)
        if literal is None:
            to_resolve[host] = (variable, text)
        else:
            address_of[host] = literal
    # The resolver takes 192.0.2 for 192.0.0.2.
    named = [text for _, text in to_resolve.values() if not names.NUMERIC.fullmatch(text)]
    resolved = look_up(named)
    for host, (_, text) in to_resolve.items():
        if text in resolved:
            address_of[host] = resolved[text]
    unknown = {host: entry for host, entry in to_resolve.items() if entry[1] not in resolved}
    refusals += names.unresolved(unknown)
    for host, address in address_of.items():
        if problem := names.address_problem(address):
            what = f", which {host} resolves to here," if host in to_resolve else ""
            refusals.append(
                Refusal(
                    f"{host}: {problem}{what} and not one that the other hosts reach it at; set "
                    f"node_address of {host} to that one."
                )
            )
    return {host: address_of[host] for host in site.names if host in address_of}, refusals


def _written_address(site: Site, host: str) -> tuple[str, str]:
    """The variable that says where a host is, and what it says; else nothing and its name."""
    for name in ADDRESS_VARIABLES:
        if site.values.defined(host, name) and (text := str(site.values.value(host, name) or "")):
            return name, text
    return "", host


def doors(site: Site, states: Mapping[str, str], look_up: Resolve = resolve) -> dict[str, Any]:
    """Address and port at which Ansible reaches each host, over the network."""
    texts: dict[str, tuple[str, str]] = {}
    for host in site.names:
        kind = _setting(site, host, "ansible_connection", "ssh")
        if kind in OVER_THE_NETWORK:
            port = _setting(site, host, "ansible_port", SSH_PORT)
            texts[host] = (_setting(site, host, "ansible_host", host), port)
    to_resolve = {text for text, _ in texts.values() if names.literal_address(text) is None}
    resolved = look_up(to_resolve)
    return {
        host: (names.literal_address(text) or resolved.get(text, text), port)
        for host, (text, port) in texts.items()
    }


def _setting(site: Site, host: str, name: str, otherwise: str) -> str:
    if not site.values.defined(host, name):
        return otherwise
    try:
        return str(site.values.value(host, name) or otherwise)
    except AnsibleError:
        return otherwise


def hardware(site: Site, contract: Contract) -> tuple[dict[str, dict[str, Any]], list[Refusal]]:
    """What each compute node declares, and what is wrong with it, told once for equal hosts."""
    declared: dict[str, dict[str, Any]] = {}
    refusals: list[Refusal] = []
    compute = [host for host in site.groups.get(COMPUTE, []) if host in site.values.hosts]
    for name in contract.hardware:
        judge = JUDGES[name]
        for hosts in site.values.same(compute, name).values():
            value, problems = None, []
            if site.values.defined(hosts[0], name):
                try:
                    value = site.values.value(hosts[0], name)
                except AnsibleError as error:
                    problems = [Problem(f"{name} cannot be evaluated: {reason(error)}")]
            problems = problems or list(judge(value, contract))
            raw = site.values.hosts[hosts[0]].get(name)
            owners = site.owners(hosts[0])
            known = problems and raw is not None
            where = where_set(name, raw, site.sources, owners) if known else ""
            refusals += [
                Refusal(
                    f"{listed(hosts)}: {_with(where, name, problem.sentence)}",
                    problem.kind,
                    name if problem.kind else "",
                )
                for problem in problems
            ]
            # A refusal that a site silenced leaves the value as it is.
            if all(problem.kind for problem in problems):
                for host in hosts:
                    declared.setdefault(host, {})[name] = value
    return declared, [*refusals, *_unsaid_fabrics(declared)]


def _unsaid_fabrics(declared: Mapping[str, Mapping[str, Any]]) -> Iterator[Refusal]:
    hosts = [
        host
        for host, values in declared.items()
        if values.get("fabric") is None and needs_fabric(values.get("node_gpus") or {})
    ]
    if len(hosts) > 1:
        yield Refusal(
            f"{listed(hosts)}: fabric is not set, and {UNSAID_FABRIC} would be declared; set it "
            f"for the nodes' group, as fabric: ib_ndr400, or to {UNSAID_FABRIC} if there is no "
            "other.",
            "fabric-unsaid",
        )


def additions(site: Site) -> tuple[dict[str, dict[str, Any]], list[Refusal]]:
    """What nodes declare for Slurm and the validation beside their hardware; nothing for most."""
    added: dict[str, dict[str, Any]] = {}
    wrong: dict[str, list[str]] = defaultdict(list)
    for host in site.groups.get(COMPUTE, []):
        for name, key in ADDITIONS.items():
            if host not in site.values.hosts or not site.values.defined(host, name):
                continue
            try:
                value = site.values.value(host, name)
            except AnsibleError as error:
                wrong[f"{name} cannot be evaluated: {reason(error)}"].append(host)
                continue
            problems = _addition_problems(name, value)
            for problem in problems:
                wrong[problem.sentence].append(host)
            if value and not problems:
                added |= {host: added.get(host, {}) | {key: value}}
    refusals = [Refusal(f"{listed(hosts)}: {sentence}") for sentence, hosts in wrong.items()]
    return added, refusals


def _addition_problems(name: str, value: Any) -> list[Problem]:
    """Of what no role judges by its argument spec."""
    if name == "validation_environment" and isinstance(value, Mapping):
        return list(environment_problems(value))
    if name == "validation_shared_filesystems" and isinstance(value, list):
        return list(shared_problems(value))
    if name == "validation_transports" and isinstance(value, Mapping):
        return list(transports_problems(value))
    return []  # the contract says what it is


def _with(where: str, name: str, sentence: str) -> str:
    """The sentence with the place behind its subject: a variable, or something in one."""
    return re.sub(rf"^{re.escape(name)}\S*", lambda match: match[0] + where, sentence, count=1)


def silenced(site: Site) -> list[str]:
    """The refusals that the site silenced; a list that cannot be read silences none."""
    if not site.names or not site.values.defined(site.names[0], SILENCED):
        return []
    try:
        kinds = site.values.value(site.names[0], SILENCED)
    except AnsibleError:
        return []
    return [str(word) for word in kinds] if isinstance(kinds, list) else []


def work_out(site: Site, contract: Contract) -> tuple[Cluster, list[Refusal]]:
    """The cluster, and every refusal that stands in its way. With refusals it may be incomplete."""
    address_of, refusals = addresses(site)
    declared, more = hardware(site, contract)
    refusals += more
    door_of = doors(site, address_of)
    refusals += names.address_refusals(address_of, door_of)
    added, more = additions(site)
    refusals += more
    for_validation = {
        name: {key: extra.pop(key) for key in (ENVIRONMENT, SHARED, TRANSPORTS) if key in extra}
        for name, extra in added.items()
    }
    hosts = [{"name": name, "address": address} for name, address in address_of.items()]
    by_name = {host["name"]: host for host in hosts}
    nodes = [
        declared_node(name, address_of[name], declared[name]) | added.get(name, {})
        for name in site.groups.get(COMPUTE, [])
        if name in address_of and set(contract.hardware) <= set(declared.get(name, {}))
    ]
    cluster = Cluster(
        nodes=nodes,
        hosts=hosts,
        controllers=[by_name[n] for n in site.groups.get(CONTROLLER, []) if n in by_name],
        hosts_lines=names.hosts_lines(hosts),
    )
    if standing(refusals, silenced(site)) or not nodes:
        return cluster, refusals
    try:
        document, more = _document(site, nodes, for_validation)
    except PartitionError as error:
        return cluster, [*refusals, Refusal(str(error))]
    except AnsibleError as error:
        if isinstance(last := cause(error), (AnsibleFilterError, PartitionError)):
            return cluster, [*refusals, Refusal(str(last))]
        sentence = f"what the cluster declares cannot be evaluated: {reason(error)}."
        return cluster, [*refusals, Refusal(sentence)]
    except (KeyError, TypeError, AttributeError):
        return cluster, refusals  # of another shape than the roles' argument specs ask for
    cluster = replace(cluster, declaration=document)
    cluster, of_ports = _with_ports(cluster, site, contract, address_of, door_of)
    return cluster, [*refusals, *more, *of_ports]


def _with_ports(
    cluster: Cluster,
    site: Site,
    contract: Contract,
    address_of: Mapping[str, str],
    door_of: Mapping[str, tuple[str, str]],
) -> tuple[Cluster, list[Refusal]]:
    """The cluster with what firewalls let in, if a host has one."""
    if not is_wanted(site):
        return cluster, []
    # What the roles' ports depend on may read the cluster, which is not to be worked out once more.
    site.values.define(WORKED_OUT, {"cluster": cluster.plain()})
    try:
        opened = openings(site, contract.peers, address_of, door_of)
    except (AnsibleError, TypeError) as error:
        sentence = f"the ports that roles open cannot be evaluated: {reason(error)}."
        return cluster, [Refusal(sentence)]
    opened_ports = replace(
        cluster, peers=opened.peers, ports=opened.ports, port_profiles=opened.profiles
    )
    return opened_ports, []


def _document(
    site: Site, nodes: Sequence[Mapping[str, Any]], for_validation: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], list[Refusal]]:
    """The declaration, from variables that have one value in the whole cluster."""
    first = site.names[0]
    partitions = site.values.value(first, "slurm_partitions")
    if not all(isinstance(partition["nodes"], list) for partition in partitions):
        raise TypeError("slurm_partitions")
    by_node = expanded(partitions, nodes, site.groups)
    prefix = site.values.value(first, "validation_runtime_prefix")
    declared = site.values.defined(first, "slurm_topology")
    switches = site.values.value(first, "slurm_topology") if declared else {}
    document = declaration.document(
        nodes,
        cluster=str(site.values.value(first, "cluster_name")),
        controller=site.groups.get(CONTROLLER, []),
        login=site.groups.get(LOGIN, []),
        partitions=by_node,
        python=f"{prefix}/bin/python",
        for_validation=for_validation,
        switches=topology.above(switches, nodes),
    )
    return document, list(partition_refusals(by_node))
