"""The role's filters; what they do is in cluster/slurm and plugin_utils, by subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster import sizes
from cluster.slurm import (
    affinity,
    billing,
    contradictions,
    energy,
    gres,
    licenses,
    nodes,
    releases,
    reservations,
    topology,
)
from playbooks.plugin_utils.origin import written_at
from roles.slurm.plugin_utils import (
    components,
    confinement,
    leaving,
    mpi,
    other_files,
    patience,
    state,
)


def _refused_settings(configuration: Mapping[str, Any], release: str, host: str = "") -> list[str]:
    """What a release of Slurm does not read; "" is any that we support."""
    return releases.refused_settings(configuration, release, host, written_at)


def _contradictions(
    settings: Mapping[str, Any],
    site: Mapping[str, Any],
    controllers: Sequence[Mapping[str, Any]] = (),
    compute: Sequence[Mapping[str, Any]] = (),
) -> list[str]:
    """What does not go together, and where a site wrote it."""
    hosts = {
        "SlurmctldPort": {controller.get("name", "") for controller in controllers},
        "SlurmdPort": {node.get("name", "") for node in compute},
    }
    return contradictions.contradictions(settings, site, written_at, hosts)


def _patience(text: str, seconds: patience.Times) -> str:
    """slurm.conf with these times, or as it was where none is given."""
    return patience.raised(text, seconds) if seconds else patience.lowered(text)


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "slurm_patience": _patience,
            "slurm_composed": components.composed,
            "slurm_patient": patience.patient,
            "slurm_asked": components.is_set,
            "slurm_plugstack": components.plugstack,
            "slurm_scripts": components.scripts,
            "slurm_script_files": components.script_files,
            "slurm_setting_problems": components.setting_problems,
            "slurm_mpi": mpi.said,
            "slurm_mpi_default": mpi.default,
            "slurm_mpi_problems": mpi.problems,
            "slurm_mpi_lost": mpi.lost,
            "slurm_other_files_texts": other_files.texts,
            "slurm_other_files_problems": other_files.problems,
            "slurm_confinement_problems": confinement.problems,
            "slurm_billing_settings": billing.settings,
            "slurm_billed_by_share": billing.by_share,
            "slurm_size_settings": sizes.slurm_settings,
            "slurm_has_cores": affinity.has_cores,
            "slurm_cores_problems": affinity.problems,
            "slurm_node_lines": nodes.node_lines,
            "slurm_gres_lines": nodes.gres_lines,
            "slurm_gres_types": gres.gres_types,
            "slurm_partition_lines": nodes.partition_lines,
            "slurm_node_problems": nodes.node_problems,
            "slurm_controller_problems": nodes.controller_problems,
            "slurm_partition_problems": nodes.partition_problems,
            "slurm_leaving": leaving.leaving_nodes,
            "slurm_leaving_refusals": leaving.leaving_refusals,
            "slurm_removal_refusals": leaving.removal_refusals,
            "slurm_to_drain": leaving.to_drain,
            "slurm_to_cancel": leaving.to_cancel,
            "slurm_to_set_down": leaving.to_set_down,
            "slurm_still_bound": leaving.still_bound,
            "slurm_topology_settings": topology.settings,
            "slurm_topology_lines": topology.lines,
            "slurm_topology_problems": topology.problems,
            "slurm_energy_settings": energy.settings,
            "slurm_energy_packages": energy.packages,
            "slurm_energy_problems": energy.problems,
            "slurm_energy_look": energy.look,
            "slurm_licenses": licenses.licenses,
            "slurm_license_problems": licenses.license_problems,
            "slurm_reservations_wanted": reservations.module_arguments,
            "slurm_reservation_problems": reservations.problems,
            "slurm_refused_settings": _refused_settings,
            "slurm_contradictions": _contradictions,
            "slurm_waiting": state.waiting,
            "slurm_mended": state.mended,
            "slurm_kept_out": state.kept_out,
            "slurm_unusable": state.unusable,
            "slurm_parser_verdict": state.parser_verdict,
            "slurm_host_problems": state.host_problems,
        }
