"""What of a job is kept from others: settings that need one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from cluster.slurm.contradictions import CONTAINING
from cluster.slurm.keys import entries
from cluster.slurm.settings import text
from roles.slurm.plugin_utils.components import Components, Settings, composed, is_set

PRIVATE = "/tmp,/var/tmp,/dev/shm"  # what the role makes private


def problems(
    own: Settings, components: Components, site: Settings, private_tmp: Mapping[str, Any]
) -> list[str]:
    """Sentences. What is no mapping is told by others.

    private_tmp: wanted, folder, settings
    """
    if not isinstance(site, Mapping) or not isinstance(private_tmp["settings"], Mapping):
        return []
    sentences = [*_hidden_from_metrics(own, components, site)]
    if private_tmp["wanted"]:
        sentences += [
            *_uncontained(own, components, site),
            *_not_private(site),
            *_folder(private_tmp),
        ]
    return sentences


def _of(settings: Settings, name: str, default: Any = "") -> Any:
    """A setting of a site, as Slurm finds it: case does not count."""
    return next((value for key, value in settings.items() if str(key).lower() == name), default)


def _uncontained(own: Settings, components: Components, site: Settings) -> Iterator[str]:
    """A site may take away what the role asks for."""
    flags = text(_of(composed(own, components, site), "prologflags"))
    if not {flag.lower() for flag in entries(flags)} & set(CONTAINING):
        yield (
            f"PrologFlags is {flags or 'empty'}, and a job's private /tmp is made by Contain; "
            "leave Contain in slurm_settings.PrologFlags, or set slurm_private_tmp to false."
        )


def _not_private(site: Settings) -> Iterator[str]:
    """From 25.11 on Slurm would take the role's NamespaceType, and be silent about the old name."""
    plugin = text(_of(site, "jobcontainertype"))
    if plugin and plugin.rpartition("/")[2] != "tmpfs":
        yield (
            f"slurm_settings.JobContainerType is {plugin}, and slurm_private_tmp is true; set "
            "slurm_private_tmp to false."
        )


def _folder(private_tmp: Mapping[str, Any]) -> Iterator[str]:
    folder = PurePosixPath(str(private_tmp["folder"]))
    if not folder.is_absolute() or len(folder.parts) < 2:
        yield (
            f"slurm_private_tmp_folder is {folder}; set it to a folder of the nodes' own disks, as "
            "an absolute path."
        )
    private = entries(_of(private_tmp["settings"], "dirs") or PRIVATE)
    for path in map(PurePosixPath, private):
        if folder.is_relative_to(path):
            yield (
                f"slurm_private_tmp_folder is {folder}, and {path} is what each job has for "
                "itself; set it to a folder outside."
            )


def _hidden_from_metrics(own: Settings, components: Components, site: Settings) -> Iterator[str]:
    hidden = entries(_of(composed(own, components, site), "privatedata"))
    ignored = "ignore_private_data" in entries(_of(site, "metricsparameters"))
    if hidden and is_set(components, site, "MetricsType") and not ignored:
        yield (
            f"PrivateData is {','.join(hidden)}, and slurmctld then serves no metrics "
            "(MetricsType); set slurm_exporter_openmetrics to false, slurm_private_data to [], or "
            'from 26.05 on slurm_settings: {MetricsParameters: "ignore_private_data"}.'
        )
