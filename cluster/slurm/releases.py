"""What a site and its components set in Slurm's files, judged for a release of Slurm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.slurm import gres, topology
from cluster.slurm.key_problems import Place, has_plugins, nowhere, refused, refused_file
from cluster.slurm.keys import NONE, File, Release, additions, lists, taken_away

Given = tuple[File, str, Any]  # file, variable, settings


def refused_settings(
    configuration: Mapping[str, Any], release: Release, host: str = "", place: Place = nowhere
) -> list[str]:
    """Sentences, each once. `release` is that of `host`, or that will be there; "" is not known.

    configuration: settings, cgroup, private_tmp, oci, files, components, nodes, partitions,
    topology, expedited_requeue
    """
    given = [(release, *one) for one in _set(configuration)]
    given += [(NONE, *one) for one in _set_where_known(configuration)]
    site = configuration["settings"]
    own_plugins = isinstance(site, Mapping) and has_plugins(site)
    sentences = [
        sentence
        for of, file, where, settings in given
        if isinstance(settings, Mapping)  # what is none is told by others
        for sentence in refused(settings, file, of, where, host, place, own_plugins)
    ]
    for file, where, value in _files(configuration.get("files")):
        sentences += refused_file(value, file, release, where, host, place)
    return list(dict.fromkeys(sentences))


def _files(files: Any) -> Iterator[Given]:
    """Those with keys: of the others the role knows the names."""
    known = {str(file): file for file in File}
    for name, value in files.items() if isinstance(files, Mapping) else ():
        if name in known and value:
            yield known[name], f"slurm_other_files.{name}", value


def _set_where_known(configuration: Mapping[str, Any]) -> Iterator[Given]:
    """What is left out where Slurm does not read it: some release has to."""
    for who, component in configuration["components"].items():
        if isinstance(component, Mapping):
            where = f"slurm_component_{who}.settings_where_known"
            yield File.SLURM, where, component.get("settings_where_known")


def _set(configuration: Mapping[str, Any]) -> Iterator[Given]:
    """Everything that is set, and not what can be left out."""
    yield File.SLURM, "slurm_settings", _added(configuration["settings"])
    if configuration.get("expedited_requeue"):
        words = {"SlurmctldParameters": "enable_expedited_requeue"}
        yield File.SLURM, "slurm_expedited_requeue", words
    yield File.CGROUP, "slurm_cgroup_settings", configuration["cgroup"]
    declared = configuration.get("topology") or {}
    if declared.get("plugin") in topology.KEYS:
        yield File.SLURM, "slurm_topology", topology.settings(declared)
        yield File.TOPOLOGY, "slurm_topology", topology.keys(declared)
    yield File.JOB_CONTAINER, "slurm_private_tmp_settings", configuration["private_tmp"]
    yield File.OCI, "slurm_oci_settings", configuration.get("oci")
    for who, component in configuration["components"].items():
        if not isinstance(component, Mapping):
            continue
        yield File.SLURM, f"slurm_component_{who}.settings", component.get("settings") or {}
        for entry in component.get("gres") or ():
            yield File.GRES, f"slurm_component_{who}.gres", _entry(entry)
    for options in _distinct(node.get("options") or {} for node in configuration["nodes"]):
        yield File.NODE, "slurm_node_options", options
    for how in dict.fromkeys(gres.detection(node) for node in configuration["nodes"]):
        yield File.GRES, "slurm_node_autodetect", {"AutoDetect": how}
    entries = (entry for node in configuration["nodes"] for entry in node.get("gres") or ())
    for entry in _distinct(entries):
        yield File.GRES, "slurm_node_gres", _entry(entry)
    partitions: Sequence[Mapping[str, Any]] = configuration["partitions"]
    for number, partition in enumerate(partitions):
        settings = partition.get("settings") or {}
        yield File.PARTITION, f"slurm_partitions[{number}].settings", settings


def _added(settings: Any) -> Any:
    """A site's settings without the entries that take away what a role has in a list."""
    if not isinstance(settings, Mapping):
        return settings
    return {
        name: additions(value) if str(name).lower() in lists() and taken_away(value) else value
        for name, value in settings.items()
    }


def _entry(entry: Any) -> Any:
    """A line of gres.conf without the nodes that it is for, which begin it."""
    if not isinstance(entry, Mapping):
        return {}
    return {name: value for name, value in entry.items() if str(name).lower() != "nodename"}


def _distinct(several: Iterator[Any]) -> list[Any]:
    """Each mapping once: the nodes of a group have the same."""
    return list({repr(mapping): mapping for mapping in several if mapping}.values())
