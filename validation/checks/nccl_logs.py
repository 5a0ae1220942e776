"""NCCL's logs of all ranks, as an answer has them (payloads.nccl_log.Summary), read strictly."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from validation.checks.document import Fields, Unusable
from validation.checks.nccl_notes import Note
from validation.model import Verdict
from validation.nccl_formats import number, recorded

KINDS = ("P2P", "SHM", "NET", "COLLNET", "NVLS")
# NCCL's own, and the plugins that are built from it (HPC-X and others); SHARP is its CollNet.
VERBS_NETWORK = re.compile(r"IB|IBext(?:_v[0-9]+)?|NCCL RDMA Plugin(?: v[0-9]+)?|SHARP")
_PORTS = 4  # in a sentence


@dataclass(frozen=True, slots=True)
class Device:
    index: int
    name: str
    layer: str | None
    mbps: int | None

    @property
    def ports(self) -> tuple[str, ...]:
        """Of a device that NCCL fused, all of them."""
        return tuple(self.name.split("+"))


@dataclass(frozen=True, slots=True)
class Transport:
    kind: str
    via: str
    device: int | None
    direct: bool

    @property
    def network(self) -> bool:
        return self.kind in ("NET", "COLLNET")

    @property
    def nvlink_between_nodes(self) -> bool:
        return self.kind == "P2P" and self.via == "MNNVL"


@dataclass(frozen=True, slots=True)
class Choice:
    function: str | None
    algorithm: str
    protocol: str
    least_bytes: int
    most_bytes: int

    @property
    def way(self) -> str:
        return f"{self.algorithm} {self.protocol}"

    @property
    def nvls(self) -> bool:
        """Whether NVSwitches add up or multiply on the way. Kernels on symmetric memory say so by
        MC, multicast: AllReduce_RSxLDMC_AGxSTMC (src/sym_kernels.cc of NVIDIA/nccl).
        """
        kernel = self.algorithm == "SYMMETRIC" and "MC" in self.protocol
        return kernel or self.algorithm.startswith("NVLS")

    @property
    def in_switches(self) -> bool:
        """Whether any switches do: bus bandwidth is then not what a wire carries."""
        return self.nvls or self.algorithm.startswith("COLLNET")


@dataclass(frozen=True, slots=True)
class Log:
    """One rank's log, as far as it is judged."""

    rank: int
    host: str
    version: str | None
    provider: str | None
    communicators: tuple[tuple[int, int], ...]  # this rank, and of how many
    devices: tuple[Device, ...]
    transports: tuple[Transport, ...]
    choices: tuple[Choice, ...]
    ring: str | None
    networks: tuple[str, ...]
    bootstrap: tuple[str, ...]
    warnings: tuple[str, ...]
    unread: int
    failed_ports: int

    def devices_of(self, transport: Transport) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.index == transport.device)

    @property
    def ports_used(self) -> dict[str, None]:
        """The ports of network cards that its channels use."""
        return {
            port: None
            for transport in self.transports
            if transport.network
            for device in self.devices_of(transport)
            for port in device.ports
        }


def read(summaries: Sequence[Mapping[str, Any]], hosts: Sequence[str]) -> tuple[Log, ...]:
    """The logs in the order of the ranks. Raises Unusable where there are not as many."""
    if len(summaries) != len(hosts) or not hosts:
        raise Unusable(f"{len(summaries)} NCCL logs of {len(hosts)} ranks")
    return tuple(
        read_one(summary, rank, host)
        for rank, (summary, host) in enumerate(zip(summaries, hosts, strict=True))
    )


def read_one(summary: Mapping[str, Any], rank: int, host: str) -> Log:
    fields = Fields(summary, f"nccl_log[{rank}].")
    return Log(
        rank=rank,
        host=host,
        version=fields.maybe_text("version"),
        provider=fields.maybe_text("provider"),
        communicators=tuple(
            (item.whole("rank"), item.whole("ranks")) for item in fields.items("communicators")
        ),
        devices=tuple(
            Device(
                item.whole("index"),
                item.text("name"),
                item.maybe_text("layer"),
                item.whole("mbps") if item.has("mbps") else None,
            )
            for item in fields.items("devices")
        ),
        transports=tuple(_transport(item) for item in fields.items("transports")),
        choices=tuple(
            Choice(
                item.maybe_text("function"),
                item.text("algorithm"),
                item.text("protocol"),
                item.whole("least_bytes"),
                item.whole("most_bytes"),
            )
            for item in fields.items("choices")
        ),
        ring=fields.maybe_text("ring"),
        networks=fields.words("networks"),
        bootstrap=fields.words("bootstrap"),
        warnings=fields.words("warnings"),
        unread=fields.whole("unread"),
        failed_ports=fields.whole("failed_ports"),
    )


def _transport(fields: Fields) -> Transport:
    kind = fields.text("kind")
    if kind not in KINDS:
        raise Unusable(f"NCCL has no transport {kind!r}")
    device = fields.whole("device") if fields.has("device") else None
    return Transport(kind, fields.text("via"), device, fields.text("direct") != "")


@dataclass(frozen=True, slots=True)
class Problem:
    """What the logs speak against.

    verdict   FAIL: it ran over something else than declared. INCONCLUSIVE: the logs do not show
              over what. WARN: as declared, but slower than it could be
    sentence  names the nodes
    nodes     whom it concerns; None where one of them is at fault and it is not known which
    """

    verdict: Verdict
    sentence: str
    nodes: tuple[str, ...] | None


def hosts_of(logs: Sequence[Log]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(log.host for log in logs))


def names_of(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - 8} more" if len(nodes) > 8 else ""
    return ", ".join(nodes[:8]) + more


# --- what they say of a result -------------------------------------------------------------------


def notes(logs: Sequence[Log]) -> list[Note]:
    """Each rank's last warning, and between nodes the network and the bootstrap's interface."""
    said = [("warned", log.warnings[-1], log) for log in logs if log.warnings]
    if len({log.host for log in logs}) > 1:
        said += [("network", _network(log), log) for log in logs if log.networks]
        said += [("bootstrap", ", ".join(log.bootstrap), log) for log in logs if log.bootstrap]
    return [Note(kind, text, log.rank, log.host) for kind, text, log in said]


def _network(log: Log) -> str:
    used = [*log.ports_used]
    more = f" and {len(used) - _PORTS} more" if len(used) > _PORTS else ""
    return " ".join((*log.networks, *used[:_PORTS])) + more


def newer(logs: Sequence[Log]) -> list[Note]:
    """A release of NCCL that is newer than all whose log is recorded; none where it is not."""
    newest = recorded().newest
    found = {version for log in logs if log.version for version in log.version.split(", ")}
    return [
        Note("release", f"{version} is newer than {newest}, the newest whose log is known")
        for version in sorted(found)
        if number(version) > number(newest)
    ]
