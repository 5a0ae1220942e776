"""Lines of topology.conf, from the racks and switches that nodes are declared to be at.

    plugin       tree or block
    from         switch or rack: what of a node is its leaf switch, or its block
    switches     of a tree, switch -> the switches below it, as host lists
    block_sizes  of blocks, the base size and multiples of it by powers of two

Without `switches` one switch joins all leaves: Slurm gives no job nodes that no switch joins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.hostlist import HostlistError, compress, expand

Node = Mapping[str, Any]
Topology = Mapping[str, Any]

KEYS = {"tree": {"plugin", "from", "switches"}, "block": {"plugin", "from", "block_sizes"}}
PLACES = {"tree": "switch", "block": "rack"}  # what `from` is when nobody says
TOP = "top"  # joins the leaves where no switches are declared
# HOST_NAME_MAX, which Slurm holds names of switches to.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
MOST_LEVELS = 16  # MAX_BLOCK_LEVELS


def settings(topology: Topology) -> dict[str, str]:
    """What slurm.conf says of it."""
    return {"TopologyPlugin": f"topology/{topology['plugin']}"} if topology else {}


def keys(topology: Topology) -> dict[str, str]:
    """What of topology.conf not all releases read."""
    sizes = topology.get("block_sizes") or []
    return {"BlockSizes": ",".join(map(str, sizes))} if sizes else {}


def lines(topology: Topology, nodes: Sequence[Node]) -> list[str]:
    """The lines of topology.conf; none where nothing is declared."""
    if not topology:
        return []
    places = _places(topology, nodes)
    if topology["plugin"] == "block":
        blocks = [f"BlockName={name} Nodes={compress(members)}" for name, members in places.items()]
        return [*blocks, *(f"{key}={value}" for key, value in keys(topology).items())]
    leaves = [f"SwitchName={name} Nodes={compress(members)}" for name, members in places.items()]
    return [
        *leaves,
        *(
            f"SwitchName={name} Switches={compress(below)}"
            for name, below in _switches(topology, places).items()
        ),
    ]


def above(topology: Topology, nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Switches that others are below, as declared; none where that is wrong: the role tells so."""
    if not topology or not topology.get("switches") or problems(topology, nodes):
        return {}
    return _switches(topology, _places(topology, nodes))


def _place(topology: Topology) -> str:
    return str(topology.get("from") or PLACES[topology["plugin"]])


def _places(topology: Topology, nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Leaf switch or block -> NodeNames, in the order of the first node of each."""
    places: dict[str, list[str]] = {}
    for node in nodes:
        if where := node.get(_place(topology)):
            places.setdefault(str(where), []).append(node["name"])
    return places


def _switches(topology: Topology, leaves: Mapping[str, Any]) -> dict[str, list[str]]:
    if declared := topology.get("switches"):
        return {str(name): _names(below) for name, below in declared.items()}
    return {TOP: list(leaves)} if len(leaves) > 1 else {}


def _names(below: Any) -> list[str]:
    """Names of `[leaf1, "leaf[2-4]"]`, or of one host list."""
    entries = below if isinstance(below, (list, tuple)) else [below]
    return [name for entry in entries for name in expand(str(entry))]


# --- what is wrong, as sentences -----------------------------------------------------------------


def problems(topology: Any, nodes: Sequence[Node]) -> list[str]:
    """What cannot be a topology of these nodes."""
    if not topology:
        return []
    plugin = topology.get("plugin")
    if plugin not in KEYS:
        return [f"slurm_topology.plugin is {plugin!r}; set it to tree or block."]
    sentences = [
        f"slurm_topology.{key} is nothing of a topology of plugin {plugin}; remove it."
        for key in topology
        if key not in KEYS[plugin] and topology[key]
    ]
    sentences += _unplaced(topology, nodes)
    places = _places(topology, nodes)
    sentences += [
        f"node_{_place(topology)} is {name!r}; name it with letters, digits and dashes, "
        "at most 64 of them."
        for name in places
        if not NAME.fullmatch(name)
    ]
    if sentences:
        return sentences
    return [*(_block_problems if plugin == "block" else _tree_problems)(topology, places)]


def _unplaced(topology: Topology, nodes: Sequence[Node]) -> Iterator[str]:
    place = _place(topology)
    if without := [node["name"] for node in nodes if not node.get(place)]:
        what = "leaf switch" if topology["plugin"] == "tree" else "block"
        yield (
            f"slurm_topology makes a {what} of each node_{place}, and "
            f"{compress(without)} {'has' if len(without) == 1 else 'have'} none; "
            f"set node_{place} for every group of nodes."
        )


def _block_problems(topology: Topology, blocks: Mapping[str, Sequence[str]]) -> Iterator[str]:
    sizes = topology.get("block_sizes") or [len(next(iter(blocks.values()), []))]
    base = sizes[0]
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        yield f"slurm_topology.block_sizes is {sizes!r}; set it to numbers of nodes, as [16, 64]."
        return
    for size in sizes:
        times, rest = divmod(size, base)
        if rest or times & (times - 1) or times.bit_length() > MOST_LEVELS:
            yield (
                f"slurm_topology.block_sizes has {size}, which is not {base} times a power of two; "
                "Slurm pairs blocks, and pairs of blocks."
            )
    if small := [name for name, members in blocks.items() if len(members) < base]:
        fewest = min(len(blocks[name]) for name in small)
        yield (
            f"slurm_topology: {_some(small, 'block')} fewer than {base} nodes, the base size "
            f"of a block; set block_sizes to [{fewest}], or correct node_{_place(topology)}."
        )


def _some(names: Sequence[str], what: str) -> str:
    many = len(names) > 1
    return f"the {what}{'s' * many} {compress(names)} {'have' if many else 'has'}"


def _tree_problems(topology: Topology, leaves: Mapping[str, Sequence[str]]) -> Iterator[str]:
    declared = topology.get("switches") or {}
    if not isinstance(declared, Mapping):
        yield (
            f"slurm_topology.switches is {declared!r}; write each switch with those below it, "
            'as {spine1: ["leaf[1-4]"]}.'
        )
        return
    try:
        switches = _switches(topology, leaves)
    except HostlistError as error:
        yield f"slurm_topology.switches: {error}."
        return
    above: dict[str, list[str]] = {}
    for name, below in switches.items():
        if not NAME.fullmatch(name):
            yield (
                f"slurm_topology.switches has {name!r}; name it with letters, digits and dashes."
            )
        if name in leaves:
            yield (
                f"slurm_topology.switches has {name}, which is the node_{_place(topology)} of "
                f"{compress(leaves[name])}; a switch of Slurm's has nodes or switches "
                "below it, not both."
            )
        for child in below:
            above.setdefault(child, []).append(name)
            if child not in leaves and child not in switches:
                yield (
                    f"slurm_topology.switches.{name} names {child}, which is no other switch and "
                    f"no node's node_{_place(topology)}; correct or remove it."
                )
    for child, parents in above.items():
        if len(parents) > 1:
            yield (
                f"slurm_topology.switches has {child} below {' and '.join(parents)}; a tree has "
                "one way up, so name it once."
            )
    if alone := [name for name in leaves if name not in above and len(leaves) > 1]:
        yield (
            f"slurm_topology.switches has no switch above {compress(alone)}; no job "
            "could have nodes there and elsewhere, so name the one above."
        )
    yield from _circles(switches)


def _circles(switches: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for name in switches:
        seen, below = {name}, list(switches[name])
        while below:
            child = below.pop()
            if child == name:
                yield f"slurm_topology.switches has {name} below itself; correct it."
                return
            if child not in seen:
                seen.add(child)
                below += switches.get(child, ())
