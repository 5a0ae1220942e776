"""Generic resources of declared nodes: entries of gres.conf, and the words of Gres= and --gres."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cluster import mig
from cluster.slurm.settings import text

Node = Mapping[str, Any]

OFF = "off"
_GPU_TYPE = re.compile(r"gres/gpu:([a-z0-9_.-]+)")


def entries(node: Node) -> list[Mapping[str, Any]]:
    """The node's lines of gres.conf, as mappings: those it declares, else one for its GPUs, or one
    for each instance of MIG.

    The device files are named, not detected: GPUs can then be confined (ConstrainDevices), and a
    Slurm built without NVML does the same as one with it.
    """
    if declared := node.get("gres"):
        return list(declared)
    count = int(node["gpus"]["count"])
    if not count:
        return []
    if detected := detection(node):
        return [{"AutoDetect": detected}]
    if layout := node["gpus"].get("mig"):
        return [_instance(instance) for instance in mig.instances(count, layout)]
    files = "/dev/nvidia0" if count == 1 else f"/dev/nvidia[0-{count - 1}]"
    return [{"Name": "gpu", "Type": node["gpus"]["model"], "File": files}]


def unknown_types(written: Any, nodes: Sequence[Node], path: str) -> Iterator[tuple[str, str]]:
    """Types of GPUs in limits, such as gres/gpu:h100, that no node has: where, and the type.

    A type that slurmd finds by itself is not known here, and then no type is judged.
    """
    if any(detection(node) for node in nodes):
        return
    known = {str(entry.get("Type", "")).lower() for node in nodes for entry in entries(node)}
    yield from _unknown_types(written, known, path)


def _unknown_types(written: Any, known: Collection[str], path: str) -> Iterator[tuple[str, str]]:
    if isinstance(written, Mapping):
        for key, value in written.items():
            yield from _unknown_types(str(key), known, path)
            yield from _unknown_types(value, known, f"{path}.{key}")
    elif isinstance(written, (list, tuple)):
        for number, value in enumerate(written):
            yield from _unknown_types(value, known, f"{path}[{number}]")
    elif isinstance(written, str):
        for kind in _GPU_TYPE.findall(written.lower()):
            if kind not in known:
                yield path, kind


def detection(node: Node) -> str:
    """How slurmd finds the node's GPUs by itself; empty where their device files are named."""
    how = str(node.get("autodetect") or OFF)
    return "" if how == OFF else how


def detected_type(kind: str) -> str:
    """The type of a GPU that Slurm finds: it takes one only that is part of the GPU's own name.

    NVML's names are such as nvidia_a100-sxm4-80gb, so of a100_sxm it is a100.
    """
    return re.sub(r"_(sxm|pcie|nvl)$", "", kind)


def _instance(instance: mig.Instance) -> Mapping[str, Any]:
    """Slurm takes the numbers of these device files when slurmd starts (gres_common.c)."""
    return {"Name": "gpu", "Type": instance.profile, "MultipleFiles": ",".join(instance.devices)}


def get(entry: Mapping[str, Any], key: str) -> str:
    return next((text(value) for name, value in entry.items() if name.lower() == key), "")


def count_of(entry: Mapping[str, Any], node: Node) -> str:
    """How many of its resource an entry stands for; a suffix such as 10G stays as it is."""
    if count := get(entry, "count"):
        return count
    if files := get(entry, "file"):
        return str(len(files_of(files)))
    if get(entry, "multiplefiles"):  # all of them are one MIG device
        return "1"
    return str(node["gpus"]["count"]) if get(entry, "name") == "gpu" else "1"


def files_of(files: str) -> list[str]:
    """The paths of `/dev/nvidia[0-3,5],/dev/other`."""
    paths = []
    for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", files):
        match = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", word)
        if not match:
            paths.append(word)
            continue
        for part in match[2].split(","):
            first, _, last = part.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            paths += [f"{match[1]}{number:0{len(first)}d}{match[3]}" for number in numbers]
    return paths


def kinds(node: Node) -> dict[str, int]:
    """GPUs by type: the model, or the profiles of the MIG instances that they are cut into."""
    count = int(node["gpus"]["count"])
    mig = node["gpus"].get("mig") or {}
    return {profile: count * int(each) for profile, each in mig.items()} or {
        node["gpus"]["model"]: count
    }


def gres(node: Node) -> str:
    """A node's Gres= value, such as `gpu:h100_sxm:8`; empty for a node without any."""
    named = [entry for entry in entries(node) if get(entry, "name")]
    if entries(node) and not named:  # AutoDetect alone: what is found must be what is declared
        named = [
            {"Name": "gpu", "Type": detected_type(kind), "Count": count}
            for kind, count in kinds(node).items()
        ]
    counts: dict[str, list[str]] = {}
    for entry in named:
        word = ":".join(filter(None, (get(entry, "name"), get(entry, "type"))))
        counts.setdefault(word, []).append(count_of(entry, node))
    return ",".join(f"{word}:{_sum(several)}" for word, several in counts.items())


def _sum(counts: Sequence[str]) -> str:
    return counts[0] if len(counts) == 1 else str(sum(map(int, counts)))


def gres_types(nodes: Iterable[Node], more: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of all generic resources; gpu is always one."""
    every = [*more, *(entry for node in nodes for entry in entries(node))]
    return list(dict.fromkeys(["gpu", *filter(None, (get(entry, "name") for entry in every))]))
