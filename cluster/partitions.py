"""Partitions as Slurm has them: names of nodes instead of the groups that a site writes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from cluster.hostlist import HostlistError, compress, expand
from cluster.refusal import Refusal

ALL = "ALL"  # Slurm's own word for every node


class PartitionError(ValueError):
    """What an entry of `nodes` names is no node, in one sentence that says where."""


def expanded(
    partitions: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """Partitions with `nodes` as NodeNames, in the order of the nodes.

    An entry of `nodes` is a NodeName, a host list of them, the name of a group of nodes, or ALL.

    Raises PartitionError when an entry is none of these, or a partition ends up empty.
    """
    return [
        {**partition, "nodes": members(f"slurm_partitions[{n}].nodes", partition, nodes, groups)}
        for n, partition in enumerate(partitions)
    ]


def members(
    where: str,
    entry: Mapping[str, Any],
    nodes: Sequence[Mapping[str, Any]],
    groups: Mapping[str, Sequence[str]],
) -> list[str]:
    """The NodeNames that `nodes` of an entry stands for, in the order of the nodes.

    Raises PartitionError, which says what is wrong and where.
    """
    names = [node["name"] for node in nodes]
    known = set(names)
    chosen: set[str] = set()
    for word in entry["nodes"]:
        if word in (None, ""):
            raise PartitionError(f"{where} has an empty entry; remove it, or name a group.")
        if word == ALL:
            chosen |= known
        elif word in groups:
            chosen.update(groups[word])
        elif word in known:
            chosen.add(word)
        else:
            chosen |= _of_list(where, word, known, groups)
    if ordered := [name for name in names if name in chosen]:
        return ordered
    raise PartitionError(f"{where} has no compute node in it; name a group that has, or {ALL}.")


def _of_list(
    where: str, word: str, known: Collection[str], groups: Mapping[str, Sequence[str]]
) -> set[str]:
    """The nodes of a host list such as gpu[1-4]."""
    try:
        listed = expand(word) if set(word) & set("[,") else []
    except HostlistError as error:
        raise PartitionError(f'{where} names "{word}", and {error}.') from error
    if not listed:
        usable = sorted(name for name, of in groups.items() if set(of) & set(known))
        raise PartitionError(
            f'{where} names "{word}", which is neither a compute node nor a group; '
            f"groups with compute nodes: {', '.join(usable)}."
        )
    if unknown := [name for name in listed if name not in known]:
        raise PartitionError(
            f'{where} names "{word}", and {compress(unknown)} '
            f"{'is no compute node' if len(unknown) == 1 else 'are no compute nodes'}; name those "
            "that are, or a group."
        )
    return set(listed)


def partition_refusals(partitions: Sequence[Mapping[str, Any]]) -> Iterator[Refusal]:
    """Partitions of which Slurm could not tell which one is meant."""
    names = [str(partition["name"]) for partition in partitions]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Refusal(f"slurm_partitions has two partitions with the name {name}; rename one.")
    default = [str(partition["name"]) for partition in partitions if partition.get("default")]
    if len(default) > 1:
        yield Refusal(
            f"slurm_partitions has {len(default)} default partitions ({', '.join(default)}); leave "
            "`default: true` with the one for jobs that name none."
        )
