"""What NCCL says of itself: its debug log, read into facts.

With NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,GRAPH,NET,TUNING every process prints its
version, the network it took, by what each channel reaches its peer, and which algorithm a
collective used.
Since NCCL 2.22 channels are connected when they are first used, so the log is complete only after
the collectives have run.

A fact is taken from a whole line only, and only from one that NCCL began: lines that were cut, or
written into each other, are left out. The words are those of NCCL 2.10 to 2.32: its sources print
them (src/init.cc, src/enqueue.cc, src/transport/**/*.cc, src/plugin/net.cc in NVIDIA/nccl), its
libraries hold them as formats (2.18.1 to 2.32.3), and its user guide shows them
(docs.nvidia.com/deeplearning/nccl/user-guide, Logging).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

MAX_LINE = 4096  # NCCL's own lines end at 1024 characters; the rest is for what stands before them
MAX_WARNINGS = 16
MAX_WARNING = 200


@dataclass(frozen=True)
class Communicator:
    """One rank's end of a communicator whose initialization was completed.

    host is NCCL's name of the node, device the CUDA device, bus_id the GPU's as NCCL prints it
    (hexadecimal, without its points). comm_id is the same on all ranks. nodes is how many nodes
    NCCL counts. Both are None where the log does not tell.
    """

    rank: int
    ranks: int
    host: str
    device: int
    bus_id: str
    comm_id: str | None
    nodes: int | None


@dataclass(frozen=True, order=True)
class NetDevice:
    """A network device of NET/IB, by the number that channels name it by.

    name is "mlx5_0:1"; devices that NCCL fused into one are joined by "+". layer is "IB" or "RoCE",
    None where they differ or it is not said. mbps is the rate of all of them together in Mbit/s,
    the lowest that they fell to, None where it is not said (NCCL says it since 2.24).
    """

    index: int
    name: str
    layer: str | None
    sharp: bool
    mbps: int | None


@dataclass(frozen=True)
class Transport:
    """How channels reach their peers.

    kind      P2P, SHM, NET, COLLNET or NVLS
    via       P2P: direct pointer, IPC, CUMEM, MNNVL (NVLink between nodes) or indirect; SHM: how
              either side copies; NET and COLLNET: the network's name; NVLS: nothing
    device    the network device's number, None where there is none
    direct    "GDRDMA" or "GDRDMA(PCI)" where the network reads and writes the GPU's memory
              itself, "" where not
    relayed   whether another GPU of the node passes the data on to the network device (PXN)
    channels  the channels that use it; none for NVLS, of which NCCL tells no channels
    """

    kind: str
    via: str
    device: int | None
    direct: str
    relayed: bool
    channels: tuple[int, ...]


@dataclass(frozen=True, order=True)
class Channels:
    """How many channels the largest communicator has, by what they are for."""

    collective: int
    collnet: int
    nvls: int
    p2p: int


@dataclass(frozen=True)
class Choice:
    """An algorithm and protocol that NCCL chose, and for which sizes.

    function is None in older versions, which do not name it. channels is the largest number of
    channels that took part, None where it is not said. Only rank 0 prints choices. algorithm is
    SYMMETRIC for kernels on symmetric memory, and protocol then the kernel; it is COPY_ENGINE where
    no kernel runs, and protocol then the call.
    """

    function: str | None
    algorithm: str
    protocol: str
    least_bytes: int
    most_bytes: int
    channels: int | None


@dataclass(frozen=True)
class Summary:
    """The facts of one log.

    version        "2.27.5+cuda12.9"; several are joined by ", "; None where none is said (before
                   2.22 rank 0 alone prints it)
    networks       what NCCL uses between nodes: IB, Socket, or an external plugin's name
    plugins        external network plugins that were loaded, by name or path
    provider       what libfabric runs on (efa, cxi, tcp, …); several are joined by ", "
    devices        network devices of NET/IB, used or not; transports tell which are used
    interfaces     of NET/Socket
    bootstrap      interfaces over which the ranks met
    communicators, transports, channels, choices
    warnings       NCCL WARN, the hints after it, and NCCL ATTN; each once, the first few
    unread         lines about a connection whose words are not known, or that were cut
    ring           the longest way between two GPUs of a node that its rings take, in NCCL's words:
                   NVL, NVB, C2C, PIX, PXB, PHB, SYS, …; None where the log does not tell
    nvswitch       whether NCCL found a switch between NVLinks on the node
    failed_ports   how often NCCL gave up a port of a fused device and went on with the others
                   (NCCL_IB_RESILIENCY_PORT_FAILOVER, since 2.29)
    """

    version: str | None
    networks: tuple[str, ...]
    plugins: tuple[str, ...]
    provider: str | None
    devices: tuple[NetDevice, ...]
    interfaces: tuple[str, ...]
    bootstrap: tuple[str, ...]
    communicators: tuple[Communicator, ...]
    transports: tuple[Transport, ...]
    channels: Channels | None
    choices: tuple[Choice, ...]
    warnings: tuple[str, ...]
    unread: int
    ring: str | None = None
    nvswitch: bool = False
    failed_ports: int = 0

    @property
    def proven(self) -> tuple[Transport, ...]:
        """The transports, if a communicator was completed: before that nothing runs over them."""
        return self.transports if self.communicators else ()

    @property
    def unproven(self) -> tuple[str, ...]:
        """What this log does not show."""
        shown = {
            "version": self.version,
            "communicator": self.communicators,
            "network": self.networks,
            "transport": self.proven,
            "algorithm": self.choices,
        }
        return tuple(name for name, facts in shown.items() if not facts)

    def to_json(self) -> dict[str, Any]:
        """The fields, and what is not proven, for a document."""
        return {**asdict(self), "unproven": self.unproven}


def summarize(text: str) -> Summary:
    """The facts of a log, of one process or of several. Never raises: unknown lines are skipped."""
    reader = _Reader()
    for line in _lines(text):
        reader.read(line)
    return reader.summary()


def complaint(text: str) -> str | None:
    """NCCL's last warning with the hints after it: the likeliest reason of a failure.

    Where nothing is a warning, what it wants attention for: most of that was one until 2.31.
    """
    told: dict[str, list[str]] = {}
    last = ""
    for line in _lines(text):
        start = _start(line.rstrip())
        if start is None:
            continue
        if start["level"] != "INFO":
            last = start["level"]
            told[last] = [start["text"]]
        elif last and start["text"].startswith(_HINT):
            told[last].append(start["text"])
    parts = told.get("WARN") or told.get("ATTN") or []
    return " ".join(part[:MAX_WARNING] for part in parts) or None


# --- the lines -------------------------------------------------------------------------------

# HOST:PID:TID [CUDA device] NCCL INFO …, and FILE:LINE before NCCL where it warns, since 2.30.7
# followed by the function: FILE:LINE (FUNCTION). ATTN (2.32) is less than WARN. srun, mpirun and
# others put a label or a time before it.
_START = re.compile(
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,254}):(?P<pid>[0-9]{1,10}):[0-9]{1,10} \[-?[0-9]{1,4}\] "
    r"(?:\S{1,200}:[0-9]{1,6} (?:\(\S{1,200}\) )?)?NCCL (?P<level>INFO|WARN|ATTN) (?P<text>.*)"
)
_MARK = re.compile(r"NCCL (?:INFO|WARN|ATTN) ")
_HINT = "HINT: "  # INFO, after a warning
# Until 2.21 the version stands alone in its line, after a launcher's label at most.
_BARE_VERSION = re.compile(r"(?:\S{1,64}[:>\]|] ?)?NCCL version (\S{1,40})")

_VERSION = re.compile(r"NCCL version (\S{1,40})")
_NUMBERED = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:\+cuda[0-9.]+)?")
_COMPLETE = re.compile(
    r"(?:\[Rank [0-9]+\] )?(?:\w+ )?comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>[0-9]{1,9}) "
    r"nranks (?P<ranks>[0-9]{1,9}) cudaDev (?P<device>[0-9]{1,4})(?: nvmlDev [0-9]{1,4})? "
    r"busId (?P<bus>[0-9a-f]{1,16})(?P<more>(?: [\w.+-]+)*) - Init COMPLETE"
)
_COMM_ID = re.compile(r"commId (0x[0-9a-f]+)")
_NODES = re.compile(
    r"comm (?P<comm>0x[0-9a-f]+) rank [0-9]+ nRanks [0-9]+ nNodes (?P<nodes>[0-9]{1,9}) .*"
)
_NETWORK = re.compile(r"Using network (\S.{0,63})")
_PLUGIN = re.compile(
    r"(?:NET/Plugin ?: Loaded net plugin (?P<name>\S.{0,63}?) \(v[0-9]+\)"
    r"|Plugin Path : (?P<path>\S{1,255})"
    r"|Successfully loaded external network plugin (?P<file>\S{1,255}))"
)
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([^\s,]{1,64})(?:[ ,].*)?")
_DEVICES = re.compile(r"NET/IB : Using (.*)")
_FUSED = re.compile(r"\[([0-9]{1,4})\]=\{([^{}]*)\}")
# Since 2.30.7 the port's rail and plane come after it where NCCL_IB_HCA sets them.
_DEVICE = re.compile(
    r"\[([0-9]{1,4})\] ?([^\s:,{}\[\]]{1,64}:[0-9]{1,3})(?::-?[0-9]{1,9}){0,2}/(IB|RoCE)(/SHARP)?"
    r"(?=[\s,;]|$)"
)
_VIRTUAL = re.compile(
    r"NET/IB : Made virtual device \[(?P<index>[0-9]{1,4})\] name=(?P<name>\S{1,255}) "
    r"speed=(?P<mbps>[0-9]{1,9}) ndevs=(?P<count>[0-9]{1,4})(?: [A-Za-z]{1,32}=\S{1,64})*"
)
_PORT = re.compile(
    r"NET/IB: \[[0-9]{1,4}\] (?P<card>[^\s:]{1,64}):[^\s:]{1,64}:(?P<port>[0-9]{1,3})/(?:IB|RoCE) "
    r"provider=\S{1,32} speed=(?P<mbps>[0-9]{1,9})(?: .*)?"
)
_SPEED_CHANGE = re.compile(
    r"NET/IB : (?P<port>[^\s:]{1,64}:[0-9]{1,3}) speed change detected: "
    r"(?P<before>[0-9]{1,9}) -> (?P<after>\S{1,32}) Mbps"
)
_FAILED_PORT = re.compile(r"NET/IB: (?:\w{1,99}: )?Device [0-9]{1,4} marked as failed\b.*")
_SOCKETS = re.compile(r"NET/(?:Fast)?Socket : Using (\[.*)")
_BOOTSTRAP = re.compile(r"Bootstrap ?: Using (?:\[0\])?([^\s:\[\]]{1,64}):\S+")
_INTERFACE = re.compile(r"\[[0-9]{1,4}\]([^\s:\[\]]{1,64}):\S+<[0-9]+>")
_CHANNELS = re.compile(
    r"(?P<collective>[0-9]{1,4}) coll channels, (?:(?P<collnet>[0-9]{1,4}) collnet channels, )?"
    r"(?:(?P<nvls>[0-9]{1,4}) nvls channels, )?(?P<p2p>[0-9]{1,4}) p2p channels, "
    r"[0-9]{1,4} p2p channels per peer"
)
_CONNECTION = re.compile(
    r"Channel (?P<channel>[0-9]{1,4})(?:/[0-9]{1,3})? : "
    r"[0-9]{1,9}\[[0-9a-f]{1,16}\] -> [0-9]{1,9}\[[0-9a-f]{1,16}\]"
    r"(?P<direction> \[(?:send|receive)\])? via (?P<route>.*)"
)
_COLLNET = re.compile(
    r"CollNet (?P<channel>[0-9]{1,4})(?:/[0-9]{1,3})? : [0-9]{1,9} \[(?:send|receive)\] "
    r"via COLL(?P<route>NET/.*)"
)
_P2P = re.compile(
    r"P2P/(?P<via>direct pointer|IPC|CUMEM|MNNVL|indirect(?=/[0-9]))(?:/[0-9]+\[[0-9a-f]+\])?"
    r"(?:/read)?(?:/CE)?"
)
_SHM = re.compile(r"(?:SHM/(?P<via>(?:direct|CE)/(?:direct|CE))|SHM/direct|direct shared memory)")
_NET = re.compile(
    r"NET/(?P<via>[^/]{1,64})/(?P<device>[0-9]{1,4})(?P<relay>\([0-9]{1,9}\))?"
    r"(?:/(?P<direct>GDRDMA(?:\(PCI\))?))?(?:/Shared)?(?:/flush=\w{1,32})?"
)
_NVLS = re.compile(r"NVLS comm 0x[0-9a-f]+ headRank .*|Connected NVLS tree")
# src/graph/search.cc, ncclTopoPrintGraph: `speed` in place of `bw` until 2.16. 4 is the ring.
_RING = re.compile(
    r"Pattern 4, crossNic [0-9], nChannels [0-9]{1,4}, (?:bw|speed) [0-9./]{3,40}, "
    r"type (?P<path>[A-Z0-9]{3})/[A-Z0-9]{3}, sameChannels [01]"
)
_NVSWITCH = re.compile(r" *\+ NVL\[[0-9.]{1,16}\] - NVS/\S{1,32}(?: .*)?")
# From the shortest way to the longest, as in topoPathTypeStr of src/graph/topo.cc.
PATHS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")
_CHOICE = re.compile(
    r"(?P<function>[A-Za-z]{1,32}): (?P<bytes>[0-9]{1,18}) Bytes -> Algo (?P<algorithm>[A-Za-z_]+) "
    r"proto (?P<protocol>[A-Za-z0-9]+) channel\{Lo\.\.Hi\}=\{(?P<low>[0-9]{1,4})\.\."
    r"(?P<high>[0-9]{1,4})\}(?: cgaClusterSize [0-9]{1,4})?"
)
_NUMBERED_CHOICE = re.compile(
    r"(?:(?P<function>[A-Za-z]{1,32}): )?(?P<bytes>[0-9]{1,18}) Bytes -> "
    r"Algo (?P<algorithm>[0-6]) proto (?P<protocol>[0-2]) time [0-9.]+"
)
_SYMMETRIC_CHOICE = re.compile(
    r"(?P<function>[A-Za-z]{1,32}) \[Symmetric\]: (?P<bytes>[0-9]{1,18}) Bytes -> "
    r"Kernel (?P<kernel>\w{1,64}) nchannels (?P<channels>[0-9]{1,4}) nthreads [0-9]{1,9}"
    r"(?: nWorks [0-9]{1,9})?"
)
_COPY_CHOICE = re.compile(
    r"(?P<function>[A-Za-z]{1,32}) \[Copy Engine\]: (?P<bytes>[0-9]{1,18}) Bytes -> "
    r"(?P<call>cudaMemcpy\w{0,32})"
)
# Their numbers in src/include/plugin/nccl_tuner.h.
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")

# After this NCCL runs without the CollNet whose channels it has already announced.
_NO_COLLNET = "Cannot initialize CollNet"


def _lines(text: str) -> list[str]:
    """The lines that were ended: what comes after the last end was cut, and can read as another."""
    return text.split("\n")[:-1]


def _start(line: str) -> re.Match[str] | None:
    """NCCL's beginning of a line, if there is one, only one, and the line is not too long."""
    if len(line) > MAX_LINE or len(_MARK.findall(line)) != 1:
        return None
    return _START.search(line)


_Route = tuple[str, str, int | None, str, bool]  # a Transport without its channels


def _route(text: str, between_nodes: bool) -> _Route | None:
    """The transport that a channel's line ends with. NET alone tells a direction."""
    if between_nodes:
        return _network_route("NET", text)
    if match := _P2P.fullmatch(text):
        return "P2P", match["via"], None, "", False
    if match := _SHM.fullmatch(text):
        return "SHM", match["via"] or "direct/direct", None, "", False
    return None


def _network_route(kind: str, text: str) -> _Route | None:
    if match := _NET.fullmatch(text):
        return kind, match["via"], int(match["device"]), match["direct"] or "", bool(match["relay"])
    return None


# --- the facts -------------------------------------------------------------------------------


class _Reader:
    """Takes lines one by one, and keeps what they say."""

    def __init__(self) -> None:
        self._versions: set[str] = set()
        self._networks: set[str] = set()
        self._plugins: set[str] = set()
        self._providers: set[str] = set()
        self._devices: set[NetDevice] = set()
        self._virtual: dict[int, tuple[str, int, int]] = {}
        self._ports: dict[str, int] = {}  # Mbit/s
        self._speed_changes: dict[str, tuple[int, int | None]] = {}  # from what, to the lowest
        self._failed_ports = 0
        self._interfaces: set[str] = set()
        self._bootstrap: set[str] = set()
        self._communicators: dict[tuple[str, str], Communicator] = {}
        self._nodes: dict[tuple[str, str], int] = {}
        self._transports: dict[_Route, set[int]] = {}
        self._channels: list[Channels] = []
        self._choices: dict[tuple[str | None, str, str], Choice] = {}
        self._warnings: dict[str, None] = {}
        self._no_collnet = False
        self._unread = 0
        self._rings: set[str] = set()
        self._nvswitch = False
        self._process = ""  # host and process id: a communicator's address is its process's own
        self._host = ""
        self._readers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], bool]], ...] = (
            (_CONNECTION, self._connection),
            (_COLLNET, self._collnet),
            (_NVLS, self._nvls),
            (_CHOICE, self._choice),
            (_NUMBERED_CHOICE, self._numbered_choice),
            (_SYMMETRIC_CHOICE, self._symmetric_choice),
            (_COPY_CHOICE, self._copy_choice),
            (_COMPLETE, self._complete),
            (_NODES, self._node_count),
            (_CHANNELS, self._channel_count),
            (_VERSION, self._version),
            (_NETWORK, lambda match: _add(self._networks, match[1])),
            (_PLUGIN, self._plugin),
            (_PROVIDER, lambda match: _add(self._providers, match[1])),
            (_VIRTUAL, self._virtual_device),
            (_PORT, self._port),
            (_DEVICES, self._device_list),
            (_SOCKETS, self._socket_list),
            (_BOOTSTRAP, lambda match: _add(self._bootstrap, match[1])),
            (_RING, lambda match: match["path"] in PATHS and _add(self._rings, match["path"])),
            (_NVSWITCH, self._switch),
        )

    def read(self, line: str) -> None:
        line = line.rstrip()
        start = _start(line)
        if start is None:
            if match := _BARE_VERSION.fullmatch(line):
                self._version(match)
            self._unread += _MARK.search(line) is not None and " via " in line
            return
        self._host, self._process = start["host"], f"{start['host']}:{start['pid']}"
        text = start["text"]
        if start["level"] != "INFO" or text.startswith(_HINT):
            self._warnings[text[:MAX_WARNING]] = None
        self._event(text)
        if start["level"] != "INFO":
            return
        for pattern, reader in self._readers:
            if (match := pattern.fullmatch(text)) and reader(match):
                return
        self._unread += text.startswith(("Channel ", "CollNet ")) and " via " in text

    def summary(self) -> Summary:
        transports = [
            Transport(*route, channels=tuple(sorted(channels)))
            for route, channels in self._transports.items()
            if not (route[0] == "COLLNET" and self._no_collnet)
        ]
        return Summary(
            version=", ".join(sorted(self._versions)) or None,
            networks=tuple(sorted(self._networks)),
            plugins=tuple(sorted(self._plugins)),
            provider=", ".join(sorted(self._providers)) or None,
            devices=self._all_devices(),
            interfaces=tuple(sorted(self._interfaces)),
            bootstrap=tuple(sorted(self._bootstrap)),
            communicators=self._all_communicators(),
            transports=tuple(sorted(transports, key=_order)),
            channels=max(self._channels, default=None),
            choices=tuple(sorted(self._choices.values(), key=lambda choice: choice.least_bytes)),
            warnings=tuple(self._warnings)[:MAX_WARNINGS],
            unread=self._unread,
            ring=max(self._rings, key=PATHS.index, default=None),
            nvswitch=self._nvswitch,
            failed_ports=self._failed_ports,
        )

    def _event(self, text: str) -> None:
        """What releases tell at different levels: what changed after it was told."""
        self._no_collnet |= text.startswith(_NO_COLLNET)
        self._failed_ports += _FAILED_PORT.fullmatch(text) is not None
        if match := _SPEED_CHANGE.fullmatch(text):
            self._speed_change(match)
        else:
            self._unread += " speed change detected" in text

    # Each takes one line's match, and says whether it could be used.

    def _version(self, match: re.Match[str]) -> bool:
        return bool(_NUMBERED.fullmatch(match[1])) and _add(self._versions, match[1])

    def _plugin(self, match: re.Match[str]) -> bool:
        return _add(self._plugins, match["name"] or match["path"] or match["file"])

    def _complete(self, match: re.Match[str]) -> bool:
        comm_id = _COMM_ID.search(match["more"])
        self._communicators[self._process, match["comm"]] = Communicator(
            rank=int(match["rank"]),
            ranks=int(match["ranks"]),
            host=self._host,
            device=int(match["device"]),
            bus_id=match["bus"],
            comm_id=comm_id[1] if comm_id else None,
            nodes=None,
        )
        return True

    def _node_count(self, match: re.Match[str]) -> bool:
        self._nodes[self._process, match["comm"]] = int(match["nodes"])
        return True

    def _channel_count(self, match: re.Match[str]) -> bool:
        counts = {name: int(count or 0) for name, count in match.groupdict().items()}
        self._channels.append(Channels(**counts))
        return True

    def _connection(self, match: re.Match[str]) -> bool:
        route = _route(match["route"], between_nodes=match["direction"] is not None)
        return self._used(route, (int(match["channel"]),))

    def _collnet(self, match: re.Match[str]) -> bool:
        return self._used(_network_route("COLLNET", match["route"]), (int(match["channel"]),))

    def _switch(self, match: re.Match[str]) -> bool:
        self._nvswitch = True
        return True

    def _nvls(self, match: re.Match[str]) -> bool:
        return self._used(("NVLS", "", None, "", False), ())

    def _used(self, route: _Route | None, channels: Iterable[int]) -> bool:
        if route is None:
            return False
        self._transports.setdefault(route, set()).update(channels)
        return True

    def _choice(self, match: re.Match[str]) -> bool:
        channels = int(match["high"]) - int(match["low"]) + 1
        return self._chosen(
            match["function"], match["algorithm"], match["protocol"], int(match["bytes"]), channels
        )

    def _numbered_choice(self, match: re.Match[str]) -> bool:
        algorithm = _ALGORITHMS[int(match["algorithm"])]
        protocol = _PROTOCOLS[int(match["protocol"])]
        return self._chosen(match["function"], algorithm, protocol, int(match["bytes"]), None)

    def _symmetric_choice(self, match: re.Match[str]) -> bool:
        size, channels = int(match["bytes"]), int(match["channels"])
        return self._chosen(match["function"], "SYMMETRIC", match["kernel"], size, channels)

    def _copy_choice(self, match: re.Match[str]) -> bool:
        size = int(match["bytes"])
        return self._chosen(match["function"], "COPY_ENGINE", match["call"], size, None)

    def _chosen(
        self, function: str | None, algorithm: str, protocol: str, size: int, channels: int | None
    ) -> bool:
        key = (function, algorithm.upper(), protocol.upper())
        before = self._choices.get(key, Choice(*key, size, size, channels))
        self._choices[key] = Choice(
            *key,
            min(size, before.least_bytes),
            max(size, before.most_bytes),
            None if channels is None else max(channels, before.channels or 0),
        )
        return True

    def _device_list(self, match: re.Match[str]) -> bool:
        text = match[1].split("; OOB ")[0]
        for index, inside in _FUSED.findall(text):
            self._add_device(int(index), _DEVICE.findall(inside))
        for device in _DEVICE.findall(_FUSED.sub("", text)):
            self._add_device(int(device[0]), [device])
        return True

    def _add_device(self, index: int, members: list[tuple[str, str, str, str]]) -> None:
        if members:
            layers = {layer for _, _, layer, _ in members}
            layer = layers.pop() if len(layers) == 1 else None
            name = "+".join(name for _, name, _, _ in members)
            sharp = all(sharp for _, _, _, sharp in members)
            self._devices.add(NetDevice(index, name, layer, sharp, None))

    def _virtual_device(self, match: re.Match[str]) -> bool:
        self._virtual[int(match["index"])] = (
            match["name"],
            int(match["mbps"]),
            int(match["count"]),
        )
        return True

    def _port(self, match: re.Match[str]) -> bool:
        self._ports[f"{match['card']}:{match['port']}"] = int(match["mbps"])
        return True

    def _speed_change(self, match: re.Match[str]) -> None:
        """Keeps the rate before the first change and the lowest one, None if one is not known."""
        before, after = int(match["before"]), match["after"]
        first, lowest = self._speed_changes.get(match["port"], (before, before))
        if lowest is not None:
            lowest = min(lowest, int(after)) if after.isdecimal() else None
        self._speed_changes[match["port"]] = (first, lowest)

    def _socket_list(self, match: re.Match[str]) -> bool:
        self._interfaces.update(_INTERFACE.findall(match[1]))
        return True

    # What becomes of several lines.

    def _all_devices(self) -> tuple[NetDevice, ...]:
        """The listed devices, and those that NCCL made of several of them, with their rates."""
        devices = set(self._devices)
        for index, (name, mbps, count) in self._virtual.items():
            members = self._members(index, name)
            names = "+".join(
                member.name if member else part
                for member, part in zip(members, name.split("+"), strict=True)
            )
            layers = {member.layer if member else None for member in members}
            sharp = all(member is not None and member.sharp for member in members)
            if len(members) == count:
                layer = layers.pop() if len(layers) == 1 else None
                devices = {device for device in devices if device.index != index}
                devices.add(NetDevice(index, names, layer, sharp, mbps))
        rated = [replace(device, mbps=self._rate(device)) for device in devices]
        return tuple(sorted(rated, key=lambda device: (device.index, device.name)))

    def _members(self, index: int, name: str) -> list[NetDevice | None]:
        """The listed devices of a virtual one, which names their cards: "mlx5_0+mlx5_1".

        Ports of one card have the same name: a device of its own has the number of its port, a
        fused one has the card's ports in their order.
        """
        members: list[NetDevice | None] = []
        for card in name.split("+"):
            ports = [each for each in self._devices if each.name.rpartition(":")[0] == card]
            ports.sort(key=lambda port: (port in members, port.index != index, port.index))
            members.append(ports[0] if ports else None)
        return members

    def _rate(self, device: NetDevice) -> int | None:
        """Mbit/s of all ports of a device, at the lowest that each of them fell to."""
        ports = device.name.split("+")
        mbps = device.mbps
        if mbps is None and all(port in self._ports for port in ports):
            mbps = sum(self._ports[port] for port in ports)
        for port in ports:
            before, lowest = self._speed_changes.get(port, (0, 0))
            mbps = None if mbps is None or lowest is None else max(0, mbps - before + lowest)
        return mbps

    def _all_communicators(self) -> tuple[Communicator, ...]:
        communicators = [
            replace(communicator, nodes=self._nodes.get(key))
            for key, communicator in self._communicators.items()
        ]
        return tuple(
            sorted(communicators, key=lambda communicator: (-communicator.ranks, communicator.rank))
        )


def _add(facts: set[str], fact: str) -> bool:
    facts.add(fact)
    return True


def _order(transport: Transport) -> tuple[str, str, int, str, bool]:
    device = -1 if transport.device is None else transport.device
    return transport.kind, transport.via, device, transport.direct, transport.relayed
