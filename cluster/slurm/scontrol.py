"""What `scontrol show` says of a cluster: nodes, partitions and the configuration.

The text of `scontrol -o` is one line per node or partition and the same in Slurm 22.05 to 26.05.
`--json` (nodes: from 23.02 on, where Slurm was built with it) has the same in other shapes: a
number may be an object, a list may be a text. Partitions and the configuration are read from the
text, which says in every release what the default is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster import hostlist
from cluster.slurm import node_states
from cluster.text import printable

# Behind these a line has what people wrote.
_FREE = re.compile(r" (?:Reason|Comment|AdminComment|Extra)=")
_NOTHING = ("(null)", "N/A", "")


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node in Slurm. `words` are those of its state; `hostname` is how Slurm reaches it."""

    name: str
    hostname: str
    cpus: int
    memory_mb: int
    gres: str
    features: tuple[str, ...]
    words: frozenset[str]

    @property
    def there(self) -> bool:
        """Whether it is a machine with a slurmd, be it switched off."""
        return not self.words & {"FUTURE", "EXTERNAL", "DYNAMIC_FUTURE"}

    @property
    def awake(self) -> bool:
        """Whether it can be given a job without being started for it."""
        gone = node_states.DRAINED | node_states.UNSETTLED
        away = {"MAINT", "MAINTENANCE", "RESERVED", "POWER_DOWN", "REBOOT_REQUESTED", "ERROR"}
        return self.there and not self.words & (gone | away)


@dataclass(frozen=True, slots=True)
class SlurmPartition:
    """A partition. `open_` says that it takes jobs of everybody, and nobody hides it."""

    name: str
    nodes: tuple[str, ...]
    default: bool
    up: bool
    open_: bool


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """What the declaration needs of `scontrol show config`."""

    cluster: str
    version: str
    controllers: tuple[str, ...]
    auth: str
    accounting: str


def _fields(line: str) -> dict[str, str]:
    """The words `Key=value` of a line, the first of each; "" for what is not set.

    A value that has blanks (OS=Linux 6.1 …) keeps its first word: none of ours has any.
    """
    fixed = _FREE.split(line, maxsplit=1)[0]
    found: dict[str, str] = {}
    for key, value in re.findall(r"(?:^|(?<= ))([A-Za-z][A-Za-z0-9_]*)=(\S*)", fixed):
        found.setdefault(key, "" if value in _NOTHING else value)
    return found


def _whole(text: str, what: str) -> int:
    if not text.isdigit():
        raise ValueError(f"{what} is {text!r}, no number")
    return int(text)


def nodes(text: str) -> list[SlurmNode]:
    """The nodes of `scontrol -a -o show nodes`. Raises ValueError for what cannot be read."""
    return [_node(line) for line in text.splitlines() if line.startswith("NodeName=")]


def _node(line: str) -> SlurmNode:
    fields = _fields(line)
    name = fields.get("NodeName", "")
    return SlurmNode(
        name,
        fields.get("NodeHostName", "") or name,
        _whole(fields.get("CPUTot", ""), f"CPUTot of {name}"),
        _whole(fields.get("RealMemory", ""), f"RealMemory of {name}"),
        fields.get("Gres", ""),
        tuple(word for word in fields.get("AvailableFeatures", "").split(",") if word),
        node_states.words(fields.get("State", "")),
    )


def nodes_of_json(text: str) -> list[SlurmNode]:
    """The nodes of `scontrol -a show nodes --json`. Raises ValueError for another document."""
    try:
        document = json.loads(text)
        return [_node_of_json(item) for item in document["nodes"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"scontrol's JSON is not understood: {error!r}") from error


def _node_of_json(item: Mapping[str, Any]) -> SlurmNode:
    state = item["state"]
    words = [*([state] if isinstance(state, str) else state), *item.get("state_flags", [])]
    return SlurmNode(
        str(item["name"]),
        str(item.get("hostname") or item["name"]),
        _number(item["cpus"]),
        _number(item["real_memory"]),
        "" if item.get("gres") in (*_NOTHING, None) else str(item["gres"]),
        tuple(_listed(item.get("features", ""))),
        node_states.words("+".join(map(str, words))),
    )


def _number(value: Any) -> int:
    if isinstance(value, Mapping) and value.get("set", True):
        value = value["number"]
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no number")
    return value


def _listed(value: Any) -> list[str]:
    words = value.split(",") if isinstance(value, str) else value
    return [str(word) for word in words if str(word) not in _NOTHING]


def partitions(text: str) -> list[SlurmPartition]:
    """The partitions of `scontrol -a -o show partitions`. Raises ValueError."""
    found = []
    for line in text.splitlines():
        if not line.startswith("PartitionName="):
            continue
        fields = _fields(line)
        names = fields.get("Nodes", "")
        closed = fields.get("Hidden") == "YES" or fields.get("RootOnly") == "YES"
        limited = fields.get("AllowGroups", "ALL") != "ALL"
        found.append(
            SlurmPartition(
                fields["PartitionName"],
                tuple(hostlist.expand(names)) if names else (),
                fields.get("Default") == "YES",
                fields.get("State", "UP") == "UP",
                not closed and not limited,
            )
        )
    return found


def config(text: str) -> SlurmConfig:
    """Out of `scontrol show config`: a line is `Key   = value`."""
    found = dict(re.findall(r"^(\S+) *= *(.*?) *$", text, re.MULTILINE))
    hosts = [value for key, value in found.items() if re.fullmatch(r"SlurmctldHost\[\d+\]", key)]
    version = re.search(r"[0-9]+\.[0-9.]+\S*", found.get("SLURM_VERSION", ""))
    return SlurmConfig(
        printable(found.get("ClusterName", "")),
        version[0] if version else "",
        tuple(host.partition("(")[0] for host in hosts),
        found.get("AuthType", ""),
        found.get("AccountingStorageType", ""),
    )
