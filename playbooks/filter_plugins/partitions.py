"""Partitions as Slurm has them: names of nodes instead of the groups that a site writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from cluster.partitions import PartitionError, expanded


def slurm_partitions_expanded(
    partitions: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """cluster.partitions.expanded. Raises AnsibleFilterError for what that refuses."""
    try:
        return expanded(partitions, nodes, groups)
    except PartitionError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"slurm_partitions_expanded": slurm_partitions_expanded}
