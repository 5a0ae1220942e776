"""What a site and its components set, and the release of Slurm that was found does not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.slurm import gres, topology
from cluster.slurm.keys import File, Release, unread


def unread_settings(configuration: Mapping[str, Any], installed: Release, host: str) -> list[str]:
    """Sentences, each once; none where the release is not known.

    configuration: settings, cgroup, private_tmp, components, nodes, partitions, topology
    """
    if not installed:
        return []
    sentences = (
        sentence
        for file, where, settings in _set(configuration)
        for sentence in unread(settings, file, installed, where, host)
    )
    return list(dict.fromkeys(sentences))


def _set(configuration: Mapping[str, Any]) -> Iterator[tuple[File, str, Mapping[str, Any]]]:
    """(file, variable, settings) of everything that is set, and not what can be left out."""
    yield File.SLURM, "slurm_settings", configuration["settings"]
    yield File.CGROUP, "slurm_cgroup_settings", configuration["cgroup"]
    declared = configuration.get("topology") or {}
    yield File.SLURM, "slurm_topology", topology.settings(declared)
    yield File.TOPOLOGY, "slurm_topology", topology.keys(declared)
    yield File.JOB_CONTAINER, "slurm_private_tmp_settings", configuration["private_tmp"]
    for who, component in configuration["components"].items():
        yield File.SLURM, f"slurm_component_{who}.settings", component.get("settings") or {}
        for entry in component.get("gres") or ():
            yield File.GRES, f"slurm_component_{who}.gres", entry
    for options in _distinct(node.get("options") or {} for node in configuration["nodes"]):
        yield File.NODE, "slurm_node_options", options
    for how in dict.fromkeys(gres.detection(node) for node in configuration["nodes"]):
        yield File.GRES, "slurm_node_autodetect", {"AutoDetect": how}
    entries = (entry for node in configuration["nodes"] for entry in node.get("gres") or ())
    for entry in _distinct(entries):
        yield File.GRES, "slurm_node_gres", entry
    partitions: Sequence[Mapping[str, Any]] = configuration["partitions"]
    for number, partition in enumerate(partitions):
        settings = partition.get("settings") or {}
        yield File.PARTITION, f"slurm_partitions[{number}].settings", settings


def _distinct(several: Iterator[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each mapping once: the nodes of a group have the same."""
    return list({repr(sorted(mapping.items())): mapping for mapping in several if mapping}.values())
