"""Which cores are near each GPU: `Cores=` of gres.conf, from what a node's kernel says.

roles/slurm/files/affinity.sh reads it. Slurm numbers cores, not CPUs: socket by socket, and within
a socket in the order of their first CPUs, whatever numbers the firmware gave to them (gres.conf(5),
and `Core L#` of `lstopo -l`).

A firmware that knows nothing says that all CPUs are near, or none. On a node with several sockets
or NUMA nodes that is no answer, and none is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.slurm.gres import files_of, get

DEVICE = re.compile(r"/dev/nvidia(\d+)")

# Lines of the script.
_CPU = r"devices/system/cpu/cpu(\d+)/topology"
SOCKET = re.compile(rf"{_CPU}/physical_package_id:(\d+)")
THREADS = re.compile(rf"{_CPU}/thread_siblings_list:(\S+)")
NUMA = re.compile(r"devices/system/node/node\d+/cpulist:(\S+)")
GPU = re.compile(r"gpu (\S+) (\S+) (-|\d+)")


class UnknownError(ValueError):
    """The node does not say which cores are near, in one sentence that says why."""


@dataclass(frozen=True, slots=True)
class Node:
    """What the kernel says: CPUs by their numbers."""

    sockets: Mapping[int, int]  # CPU -> its socket
    threads: Mapping[int, frozenset[int]]  # CPU -> all CPUs of its core
    numa: Sequence[frozenset[int]]
    gpus: Sequence[tuple[str, str, str]]  # PCI address, CPUs, number of its device file

    @property
    def in_parts(self) -> bool:
        """Whether some CPUs are nearer to a device than others."""
        return len(set(self.sockets.values())) > 1 or len([cpus for cpus in self.numa if cpus]) > 1


def read(text: str) -> Node:
    """Raises UnknownError where it is none of affinity.sh's."""
    sockets: dict[int, int] = {}
    threads: dict[int, frozenset[int]] = {}
    numa: list[frozenset[int]] = []
    gpus: list[tuple[str, str, str]] = []
    for line in text.splitlines():
        if match := SOCKET.fullmatch(line):
            sockets[int(match[1])] = int(match[2])
        elif match := THREADS.fullmatch(line):
            threads[int(match[1])] = numbers(match[2])
        elif match := NUMA.fullmatch(line):
            numa.append(numbers(match[1]))
        elif match := GPU.fullmatch(line):
            gpus.append((match[1], match[2], match[3]))
        else:
            raise UnknownError(f"the kernel's {line!r} is not understood.")
    if not sockets or set(sockets) != set(threads):
        raise UnknownError("the kernel does not show sockets and cores of all CPUs.")
    return Node(sockets, threads, numa, gpus)


def numbers(text: str) -> frozenset[int]:
    """Those of `0-3,8`; none of what says nothing."""
    found: set[int] = set()
    for word in text.split(",") if text != "-" else ():
        if not (match := re.fullmatch(r"(\d+)(?:-(\d+))?", word.strip())):
            raise UnknownError(f"{text!r} is no list of numbers such as 0-3,8.")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(found)


def shown(of: frozenset[int]) -> str:
    """`0-3,8`, the other way round."""
    ranges: list[list[int]] = []
    for number in sorted(of):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def core_numbers(node: Node) -> dict[int, int]:
    """CPU -> Slurm's number of its core. Raises UnknownError where two ways of counting differ."""
    first_of_socket: dict[int, int] = {}
    for cpu, socket in sorted(node.sockets.items()):
        first_of_socket.setdefault(socket, cpu)
    cores = sorted(
        set(node.threads.values()),
        key=lambda core: (first_of_socket[_socket(node, core)], min(core)),
    )
    of = {cpu: number for number, core in enumerate(cores) for cpu in core}
    for cpus in node.numa:
        inside = {of[cpu] for cpu in cpus if cpu in of}
        if inside and max(inside) - min(inside) + 1 != len(inside) and _in_one_socket(node, cpus):
            raise UnknownError(
                f"the cores of the NUMA node with the CPUs {shown(cpus)} do not follow one "
                "another, and Slurm may count them otherwise."
            )
    return of


def _socket(node: Node, core: frozenset[int]) -> int:
    return node.sockets[min(core)]


def _in_one_socket(node: Node, cpus: frozenset[int]) -> bool:
    return len({node.sockets[cpu] for cpu in cpus if cpu in node.sockets}) == 1


def near(node: Node) -> dict[int, frozenset[int]]:
    """Number of a GPU's device file -> the cores near it. Raises UnknownError."""
    of = core_numbers(node)
    known = [number for _, _, number in node.gpus if number != "-"]
    if known and len(known) != len(node.gpus):
        raise UnknownError("the driver runs some of the GPUs and not the others.")
    result = {}
    # Without a driver: it numbers them in the order of their addresses.
    for place, (address, cpus, number) in enumerate(sorted(node.gpus)):
        cores = frozenset(of[cpu] for cpu in numbers(cpus) if cpu in of)
        if not cores or len(cores) == len(set(of.values())):
            raise UnknownError(
                f"of the GPU {address} the kernel says that {'all' if cores else 'no'} CPUs are "
                "near, so the firmware knows nothing of it."
            )
        result[int(number) if known else place] = cores
    return result


# --- what an inventory says ----------------------------------------------------------------------


def described(text: str, model: str = "") -> dict[str, Any]:
    """The words of an inventory: slurm_node_gres, or why there is none to print.

    Nothing without GPUs, or where every core is as near as any other.
    """
    try:
        node = read(text)
        if not node.gpus or not node.in_parts:
            return {}
        by_cores: dict[frozenset[int], list[int]] = {}
        for number, cores in sorted(near(node).items()):
            by_cores.setdefault(cores, []).append(number)
    except UnknownError as why:
        return {"slurm_node_gres_unknown": f"No Cores: {why}"}
    return {
        "slurm_node_gres": [
            {
                "Name": "gpu",
                **({"Type": model} if model else {}),
                "File": _files(numbers_),
                "Cores": shown(cores),
            }
            for cores, numbers_ in by_cores.items()
        ]
    }


def _files(of: Sequence[int]) -> str:
    text = shown(frozenset(of))
    return f"/dev/nvidia{text}" if text.isdigit() else f"/dev/nvidia[{text}]"


def has_cores(entries: Any) -> bool:
    """Whether lines of gres.conf say which cores are near."""
    return isinstance(entries, Sequence) and any(
        get(entry, "cores") for entry in entries if isinstance(entry, Mapping)
    )


def problems(text: str, entries: Sequence[Mapping[str, Any]], name: str) -> list[str]:
    """Where a node's `Cores` are others than those that its kernel says are near."""
    try:
        declared = [(entry, numbers(cores)) for entry in entries if (cores := get(entry, "cores"))]
    except UnknownError as why:
        return [f"{name}: slurm_node_gres has Cores: {why}"]
    try:
        node = read(text)
        known = near(node) if node.gpus else {}
    except UnknownError as why:
        return [
            f"{name}: slurm_node_gres has Cores, which cannot be checked: {why} Remove Cores, or "
            "compare them with `lstopo -l` and set slurm_check_cores: false."
        ]
    if not node.gpus:  # virtual ones, or none: what is missing is told by others
        return []
    return [
        f"{name}: slurm_node_gres has Cores {shown(cores)} for /dev/nvidia{device}, {what}."
        for entry, cores in declared
        for device, what in _differences(entry, cores, known)
    ]


def _differences(
    entry: Mapping[str, Any], declared: frozenset[int], known: Mapping[int, frozenset[int]]
) -> Iterator[tuple[int, str]]:
    """Number of a device file of the entry, and what is wrong with its cores."""
    files = files_of(get(entry, "file")) + files_of(get(entry, "multiplefiles"))
    for device in (int(match[1]) for file in files if (match := DEVICE.fullmatch(file))):
        if device not in known:
            yield device, "a GPU that the node does not show"
        elif known[device] != declared:
            yield (
                device,
                f"and near it are {shown(known[device])}; set what playbooks/describe-nodes.yml "
                "prints",
            )
