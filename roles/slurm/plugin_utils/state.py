"""What Slurm says, in words that Ansible can judge: its parser, its nodes, its packages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from cluster.slurm import energy
from cluster.slurm.keys import release
from cluster.slurm.node_states import NOWHERE, slurm_nodes

# --- nodes ---------------------------------------------------------------------------------------


def waiting(answer: str, names: Collection[str]) -> list[str]:
    """Of these nodes, those that Slurm does not take as they are."""
    nodes = slurm_nodes(answer)
    return [name for name in names if nodes.get(name, NOWHERE).unsettled]


def mended(answer: str, names: Collection[str]) -> list[str]:
    """Nodes that Slurm drained for a wrong declaration, and that register as declared now."""
    nodes = slurm_nodes(answer)
    pairs = ((name, nodes.get(name, NOWHERE)) for name in names)
    return [name for name, node in pairs if node.by_slurm and not node.unsettled]


def kept_out(answer: str, names: Collection[str]) -> list[str]:
    """`NAME (reason)` of nodes that somebody drained: no failure, and not ours to undo."""
    nodes = slurm_nodes(answer)
    pairs = ((name, nodes.get(name, NOWHERE)) for name in names)
    return [
        f"{name} ({node.reason or 'no reason given'})"
        for name, node in pairs
        if node.drained and not node.unsettled and not node.by_slurm
    ]


def unusable(answer: str, names: Collection[str]) -> dict[str, str]:
    """Node -> why Slurm gives it no job, a sentence without its end."""
    nodes = slurm_nodes(answer)
    return {
        name: str(nodes.get(name, NOWHERE))
        for name in names
        if nodes.get(name, NOWHERE).unsettled or nodes.get(name, NOWHERE).by_slurm
    }


# --- Slurm's parser ------------------------------------------------------------------------------


def parser_verdict(output: str) -> str:
    """One sentence from what Slurm's parser printed before it gave up."""
    lines = [re.sub(r"^\w+: (error|fatal): ", "", line).strip() for line in output.splitlines()]
    lines = [re.sub(r"^_\w+: ", "", line) for line in lines if line]
    for line in lines:
        if match := re.search(r"unrecognized key: (\S+)", line):
            return f"this version of Slurm knows no setting {match[1]}; correct or remove it"
    for line in lines:
        if match := re.search(r'(\w+) value ["(](.*)[")] is not', line):
            return f"{match[1]} cannot be {match[2]!r}: {line}"
        if match := re.search(r'Bad value "(.*)" for (\w+)', line):
            return f"{match[2]} cannot be {match[1]!r}"
    useful = [line for line in lines if not line.startswith("Unable to process configuration")]
    return "; ".join(dict.fromkeys(useful[:2] or lines[:1])) or "it gave no reason"


# --- hosts ---------------------------------------------------------------------------------------


def host_problems(
    look: str, controller: str, host: Mapping[str, object], cluster: Mapping[str, object]
) -> list[str]:
    """What is wrong with a host as it is; `look` and `controller` are the role's look at each.

    host     name, constrain, sackd
    cluster  name, controller, state
    """
    return list(_host_problems(look, controller, host, cluster))


def _host_problems(
    look: str, controller: str, host: Mapping[str, object], cluster: Mapping[str, object]
) -> Iterator[str]:
    name = host["name"]
    mine, theirs = release(look), release(controller)
    if mine and theirs and mine > theirs:
        yield (
            f"{name} has Slurm {mine}, and its controller {cluster['controller']} has the "
            f"older {theirs}, which refuses it; upgrade the controller first, or install "
            f"{theirs} on {name}."
        )
    if mine and mine < "22.05" and "cgroup2fs" in look and host["constrain"]:
        yield (
            f"{name} has Slurm {mine}, which knows no cgroup v2; boot it with "
            "systemd.unified_cgroup_hierarchy=0, install Slurm 22.05 or newer, or set "
            "slurm_constrain: false, which confines no job to what it asked for."
        )
    if host["sackd"] and mine and "sackd=there" not in look:
        yield (
            f"{name} has Slurm {mine}, and APT knows no package sackd there, which Slurm has from "
            "23.11 on; set slurm_login_delivery: files."
        )
    yield from energy.host_problems(look, name)
    if queue := re.search(r"^queue=(\S+)", look, re.MULTILINE):
        yield (
            f"slurmctld on {name} has its queue in {queue[1]}, and would begin without it in "
            f"{cluster['state']}; stop slurmctld there, copy the folder with its owner, and run "
            "this again (docs/operate/ha.md)."
        )
    jobs = re.findall(r"^open_tmp=(\w+)$", look, re.MULTILINE)
    if "unknown" in jobs:
        yield (
            f"Whether jobs run in the cluster {cluster['name']} is not known, since slurmctld on "
            f"{name} does not answer, and they could start no step once slurm_private_tmp is on; "
            "start slurmctld, or set slurm_private_tmp: false until it answers."
        )
    elif jobs:
        yield (
            f"{len(jobs)} jobs run in the cluster {cluster['name']} without a /tmp of their own, "
            "and could start no step once slurm_private_tmp is on; drain the nodes and wait for "
            "the jobs' end, or set slurm_private_tmp: false (docs/operate/confinement.md)."
        )
    deployed = re.search(r"^cluster=([^|\s]+)", look, re.MULTILINE)
    if deployed and deployed[1].lower() != str(cluster["name"]).lower():
        yield (
            f"{name} is the controller of the cluster {deployed[1]}, and cluster_name is "
            f"{cluster['name']}; set cluster_name back, or, to give up its queue and begin a new "
            f"cluster, stop slurmctld there and remove {cluster['state']}/clustername and "
            "/etc/slurm/slurm.conf."
        )
