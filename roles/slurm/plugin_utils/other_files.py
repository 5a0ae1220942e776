"""Files that plugins of Slurm read, as a site gives them in slurm_other_files."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible.plugins.filter.core import to_nice_yaml

from cluster.slurm.key_problems import leading
from cluster.slurm.keys import File, entries
from cluster.slurm.settings import mapping_problems, text

CONF = (File.ACCT_GATHER, File.BURST_BUFFER, File.HELPERS, File.MPI)
YAML = (File.NAMESPACE, File.RESOURCES, File.TOPOLOGY_YAML)
LUA = ("burst_buffer.lua", "cli_filter.lua", "job_submit.lua")
NAMES = sorted((*map(str, (*CONF, *YAML)), *LUA))

ELSEWHERE = {
    "cgroup.conf": "slurm_cgroup_settings",
    "gres.conf": "slurm_node_gres",
    "job_container.conf": "slurm_private_tmp_settings",
    "oci.conf": "slurm_oci_settings",
    "plugstack.conf": "plugstack of a slurm_component_NAME",
    "slurm.conf": "slurm_settings",
    "slurmdbd.conf": "slurm_database_settings",
    "topology.conf": "slurm_topology",
}
# Without it Slurm does not read the file: setting, and the plugin.
READ_FOR = {
    "burst_buffer.conf": ("BurstBufferType", "burst_buffer/"),
    "burst_buffer.lua": ("BurstBufferType", "burst_buffer/lua"),
    "cli_filter.lua": ("CliFilterPlugins", "cli_filter/lua"),
    "helpers.conf": ("NodeFeaturesPlugins", "node_features/helpers"),
    "job_submit.lua": ("JobSubmitPlugins", "job_submit/lua"),
    "namespace.yaml": ("NamespaceType", "namespace/linux"),
}
# What keys of acct_gather.conf begin with: setting, and the plugins that read them. Daemons end for
# keys of one that is not loaded.
GATHERED_BY = {
    "energyipmi": ("AcctGatherEnergyType", ("ipmi", "xcc")),
    "energyxcc": ("AcctGatherEnergyType", ("xcc",)),
    "infinibandofed": ("AcctGatherInterconnectType", ("ofed",)),
    "interconnectofed": ("AcctGatherInterconnectType", ("ofed",)),
    "profilehdf5": ("AcctGatherProfileType", ("hdf5",)),
    "profileinfluxdb": ("AcctGatherProfileType", ("influxdb",)),
    "sysfsinterfaces": ("AcctGatherInterconnectType", ("sysfs",)),
}
# Every user of a node reads its files, and slurmd writes those that it fetches so as well.
SECRET = ("energyipmipassword", "profileinfluxdbpass")


def texts(files: Mapping[str, Any], managed: str) -> dict[str, str]:
    """Name -> text of every file that a site may give; that of one that it does not is empty."""
    return {name: _text(name, files[name], managed) if files.get(name) else "" for name in NAMES}


def _text(name: str, value: Any, managed: str) -> str:
    if name in LUA:
        return f"-- {managed}\n{str(value).rstrip()}\n"
    if name in YAML:
        return f"# {managed}\n{to_nice_yaml(value, sort_keys=False)}"
    entries = value if isinstance(value, list) else [value]
    lines = [line for entry in entries for line in _lines(File(name), entry)]
    return "".join(f"{line}\n" for line in (f"# {managed}", *lines))


def _lines(file: File, entry: Mapping[str, Any]) -> list[str]:
    words = [f"{name}={text(value)}" for name, value in entry.items() if text(value)]
    return [" ".join(words)] if leading(file, entry) else words


# --- what is wrong, as sentences -----------------------------------------------------------------


def problems(files: Any, settings: Mapping[str, Any], topology: Mapping[str, Any]) -> list[str]:
    """What is wrong with the files beside their keys, which refused_settings judges.

    settings: of slurm.conf, all together; topology: what slurm_topology says
    """
    if not isinstance(files, Mapping):
        return ["slurm_other_files must be a mapping, name of a file to what is in it."]
    sentences = [
        sentence for name, value in files.items() for sentence in _of_file(str(name), value)
    ]
    have = {
        str(name).lower(): [word.lower().rpartition("/")[2] for word in entries(value)]
        for name, value in settings.items()
    }
    sentences += _not_gathered(files.get(File.ACCT_GATHER), have)
    for name, (key, plugin) in READ_FOR.items():
        words = have.get(key.lower(), ())
        wanted = plugin.rpartition("/")[2]
        if files.get(name) and not (wanted in words if wanted else words):
            yet = f"set slurm_settings.{key} to {plugin if wanted else 'its plugin'}"
            sentences.append(f"slurm_other_files has {name}, which nothing reads; {yet}.")
    if topology and files.get(File.TOPOLOGY_YAML):
        sentences.append(
            "slurm_topology is set, and slurm_other_files has topology.yaml, which Slurm takes in "
            "its place; remove one of them."
        )
    return sentences


def _not_gathered(file: Any, have: Mapping[str, Sequence[str]]) -> Iterator[str]:
    keys = [str(key) for key in file] if isinstance(file, Mapping) else []
    for prefix, (setting, plugins) in GATHERED_BY.items():
        of = [key for key in keys if key.lower().startswith(prefix)]
        if of and not set(plugins) & set(have.get(setting.lower(), ())):
            kind = setting.removeprefix("AcctGather").removesuffix("Type").lower()
            yield (
                f"slurm_other_files.acct_gather.conf has {of[0]}, and Slurm ends for keys of a "
                f"plugin that it does not load; set slurm_settings.{setting} to "
                f"acct_gather_{kind}/{plugins[0]}, or remove it."
            )


def _instead(name: str) -> str:
    if name in ELSEWHERE:
        return f"set {ELSEWHERE[name]}."
    near = difflib.get_close_matches(name, NAMES, n=1, cutoff=0.8)
    return f"did you mean {near[0]}?" if near else f"it may have {', '.join(NAMES)}."


def _of_file(name: str, value: Any) -> Iterator[str]:
    where = f"slurm_other_files.{name}"
    if name not in NAMES:
        yield f"slurm_other_files has {name}; {_instead(name)}"
    elif name in LUA:
        if not isinstance(value, str):
            yield f"{where} must be the text of the script, as {{{{ lookup('file', …) }}}}."
    elif name in CONF:
        entries = value if isinstance(value, list) else [value]
        for number, entry in enumerate(entries):
            at = f"{where}[{number}]" if isinstance(value, list) else where
            yield from mapping_problems(at, entry)
            for key in entry if isinstance(entry, Mapping) else ():
                if str(key).lower() in SECRET:
                    yield (
                        f"{at}.{key} would be readable by every user of a node; remove it, and let "
                        "the service trust the nodes' network."
                    )
