"""The ports of the declared fabric are up, at the declared rate.

What it checks   If the declared fabric is InfiniBand or RoCE, there are ports of that kind, each is
                 ACTIVE and LinkUp, and none is slower than declared. If NCCL_IB_HCA is declared
                 (validation_environment), only the ports that it names are judged. Otherwise these
                 are all InfiniBand ports, or at least one RoCE port: the node's other Ethernet
                 cards are listed too, and their faults are warnings. Error counters, firmware and
                 the number of cards are recorded (port_errors and same_hcas judge them).
Why it matters   If a port is down or at half its rate, jobs use the other ports and are slower,
                 without any message.
What to do       DOWN, Polling: check the cable and the switch port. If a port is not meant to be
                 used, name the others in NCCL_IB_HCA. INIT: the subnet manager is missing. A lower
                 rate: reseat or replace the cable, and compare with the switch port. Faster than
                 declared: correct the fabric. No port: the driver of the cards is not loaded, or
                 the declared fabric is another.
                 $ ssh {node} 'cd /sys/class/infiniband; grep . */ports/*/*state */ports/*/rate'
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cluster.readers.infiniband import COUNTERS, STATES
from cluster.text import printable
from validation.checks.document import Document, Fields, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When, worst
from validation.thresholds import Rules

NAME = "infiniband"
TIER = Tier.NODE
PAYLOAD = "host"

CAUSES = {
    "DOWN, Polling": When(r"DOWN|Polling|Disabled"),
    "INIT": When(r"INIT", ("sminfo",)),
    "A lower rate": When(r"declared(?!, and is faster)"),
    "Faster than declared": When(r"and is faster"),
    "No port": When(
        r"no \w+ port that is meant|does not tell",
        ("ssh {node} 'lspci | grep -i -e infiniband -e mellanox; ls /sys/class/infiniband'",),
    ),
}

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
_UNKNOWN = "Unknown"  # what the kernel says of any other, such as EFA
_LAYERS = {"ib": INFINIBAND, "roce": ETHERNET}


@dataclass(frozen=True, slots=True)
class Fabric:
    """What a fabric's word says of its ports; a rate of None is not said, in Gbit/s."""

    layer: str
    rate: int | None


def declared(fabric: str) -> Fabric | None:
    """What the contract's word declares, or None for a fabric without such ports.

    >>> declared("ib_ndr400")
    Fabric(layer='InfiniBand', rate=400)
    """
    layer = _LAYERS.get(fabric.partition("_")[0])
    rate = re.search(r"\d+$", fabric)
    return Fabric(layer, int(rate[0]) if rate else None) if layer else None


@dataclass(frozen=True, slots=True)
class _Port:
    name: str  # device and port, as NCCL_IB_HCA has them: "mlx5_0:1"
    layer: str | None
    state: str | None  # without its number
    phys_state: str | None
    rate: float | None
    unread: str


@dataclass(frozen=True, slots=True)
class _Finding:
    verdict: Verdict
    text: str
    port: str


@dataclass(frozen=True, slots=True)
class State:
    """How the ports of a node stand to the declared fabric.

    used      how many are meant
    good      how many of those are in order
    verdict   FAIL, WARN or PASS
    message   what is wrong, the worst first; empty where nothing is
    """

    used: int
    good: int
    verdict: Verdict
    message: str


def state(items: Sequence[Fields], fabric: Fabric, hcas: str | None) -> State:
    """Holds the ports of an answer against a fabric; `hcas` is NCCL_IB_HCA, None where it is not
    declared. Raises Unusable for ports that no kernel shows."""
    ports = [_port(item) for item in items]
    if len({port.name for port in ports}) != len(ports):
        raise Unusable("the answer has a port twice")
    used = [port for port in ports if _is_meant(port, fabric, hcas)]
    findings = [finding for port in used for finding in _examined(port, fabric)]
    good = {port.name for port in used} - {
        finding.port for finding in findings if finding.verdict is Verdict.FAIL
    }
    if not good:
        return State(len(used), 0, Verdict.FAIL, _none(fabric, ports, findings))
    if not every_port(fabric, hcas):
        findings = [_Finding(Verdict.WARN, f.text, f.port) for f in findings]
    verdict = worst([Verdict.PASS, *(finding.verdict for finding in findings)])
    return State(len(used), len(good), verdict, _summary(findings))


def _is_meant(port: _Port, fabric: Fabric, hcas: str | None) -> bool:
    of_layer = port.layer in (fabric.layer, None)
    return of_layer and (hcas is None or named(hcas, port.name))


def meant(items: Sequence[Fields], declared_fabric: str, hcas: str | None) -> dict[str, Fields]:
    """The ports of an answer that the fabric has, or NCCL_IB_HCA names, by their names."""
    fabric = declared(declared_fabric)
    ports = ((_port(item), item) for item in items)
    return {port.name: item for port, item in ports if fabric and _is_meant(port, fabric, hcas)}


def every_port_of(declared_fabric: str, hcas: str | None) -> bool:
    """Whether it is known which of a node's ports are the fabric's, see every_port."""
    fabric = declared(declared_fabric)
    return fabric is not None and every_port(fabric, hcas)


def every_port(fabric: Fabric, hcas: str | None) -> bool:
    """Whether each port must be in order, or one: which of a node's Ethernet cards are the fabric's
    is not declared without NCCL_IB_HCA."""
    return fabric.layer != ETHERNET or hcas is not None


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    node = job.nodes[0]
    hcas = dict(job.environment).get("NCCL_IB_HCA")

    def judge(document: Document) -> Result:
        answered = document.measured.inner("infiniband")
        judgement = judged(answered, node.fabric, hcas)
        items = answered.items("ports")
        # Without a good one, or where it cannot be told which are meant, one would do.
        wanted = judgement.used if judgement.good and judgement.verdict is Verdict.FAIL else None
        return _result(
            job, document, judgement.verdict, judgement.message, judgement.good, items, wanted
        )

    return answer(NAME, job, reply, judge)


def judged(answered: Fields, declared_fabric: str, hcas: str | None) -> State:
    """The ports that a node told of, held against its fabric and NCCL_IB_HCA.

    Raises Unusable for an answer that cannot be judged, and a fabric without such ports.
    """
    fabric = declared(declared_fabric)
    if fabric is None:
        raise Unusable(f"the declared fabric {declared_fabric} has no such ports")
    if (error := answered.maybe_text("error")) is not None:
        raise Unusable(f"the kernel does not report its ports: {printable(error, 120)}")
    return state(answered.items("ports"), fabric, hcas)


def _result(
    job: Job,
    document: Document,
    verdict: Verdict,
    message: str,
    good: int,
    items: Sequence[Fields],
    least: int | None = None,
) -> Result:
    """Held against all ports that are meant, or against one where it cannot be told which are."""
    source = f"inventory: fabric {job.nodes[0].fabric}"
    return Result(
        NAME,
        TIER,
        job.subject,
        verdict,
        message,
        Metric("in order", good, "ports"),
        Threshold("≥", least or 1, "ports", "declared", source),
        tuple(_metrics(items)),
        document.proof,
    )


def _none(fabric: Fabric, ports: Sequence[_Port], findings: Sequence[_Finding]) -> str:
    if findings:
        return _summary(findings)
    others = ", ".join(f"{port.name} ({port.layer})" for port in ports)
    has = f"it has {others}" if others else "it has no RDMA device"
    return printable(f"no {fabric.layer} port that is meant: {has}", 300)


def named(hcas: str, port: str) -> bool:
    """Whether NCCL_IB_HCA means a port, such as "mlx5_0:1".

    A list of names, each the beginning of a device's; "=" before it makes them whole names, "^"
    those that are not meant
    (https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca).

    >>> [named(hcas, "mlx5_1:1") for hcas in ("mlx5", "=mlx5", "^mlx5_1:1", "=mlx5_1")]
    [True, False, False, True]
    """
    words = hcas.lstrip("^=")
    signs = hcas[: len(hcas) - len(words)]
    device, _, number = port.partition(":")
    listed = False
    for word in words.split(","):
        name, _, wanted = word.strip().partition(":")
        same = device == name if "=" in signs else bool(name) and device.startswith(name)
        listed = listed or (same and wanted in ("", number))
    return listed != ("^" in signs)


def _port(item: Fields) -> _Port:
    unread = item.texts("unread")
    states = {name: item.maybe_text(name) for name in STATES}
    missing = [name for name, text in states.items() if text is None]
    if any(name not in unread for name in missing):
        raise Unusable(f"{item.text('device')} has neither {missing[0]} nor a reason for none")
    rate, layer = states["rate"], states["link_layer"]
    if layer not in (INFINIBAND, ETHERNET, _UNKNOWN, None):
        raise Unusable(f"{printable(layer, 40)!r} is no link layer of a port")
    return _Port(
        f"{item.text('device')}:{item.whole('port')}",
        layer,
        _word(states["state"]),
        _word(states["phys_state"]),
        None if rate is None else _rate(rate),
        ", ".join(f"{name}: {unread[name]}" for name in missing),
    )


def _word(state: str | None) -> str | None:
    """ "ACTIVE" out of "4: ACTIVE"."""
    if state is None:
        return None
    match = re.fullmatch(r"\d+: (.+)", state)
    if match is None:
        raise Unusable(f"{printable(state, 40)!r} is no state of a port")
    return printable(match[1], 40)


def _rate(text: str) -> float:
    """400 out of "400 Gb/sec (4X NDR)"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) Gb/sec(?: \(.*\))?", text)
    if match is None:
        raise Unusable(f"{printable(text, 40)!r} is no rate of a port")
    return float(match[1])


def _examined(port: _Port, fabric: Fabric) -> Iterator[_Finding]:
    if port.unread:
        yield _Finding(Verdict.FAIL, f"does not tell its {printable(port.unread, 80)}", port.name)
    elif port.state != "ACTIVE" or port.phys_state != "LinkUp":
        yield _Finding(Verdict.FAIL, f"{port.state}, {port.phys_state}", port.name)
    elif fabric.rate is not None and port.rate != fabric.rate:
        low = port.rate is None or port.rate < fabric.rate
        text = f"{port.rate:g} Gbit/s, {fabric.rate} declared" + ("" if low else ", and is faster")
        yield _Finding(Verdict.FAIL if low else Verdict.WARN, text, port.name)


_ORDER = (Verdict.FAIL, Verdict.WARN)


def _summary(findings: Sequence[_Finding]) -> str:
    """One line, the worst first; ports of which the same is said stand together."""
    alike: dict[tuple[int, str], list[str]] = {}
    for finding in findings:
        key = (_ORDER.index(finding.verdict), finding.text)
        alike.setdefault(key, []).append(finding.port)
    parts = [f"{', '.join(ports)}: {text}" for (_, text), ports in sorted(alike.items())]
    return printable("; ".join(parts), 300)


def _metrics(items: Sequence[Fields]) -> Iterator[Metric]:
    yield Metric("HCAs", len({item.text("device") for item in items}), "devices")
    yield Metric("ports", len(items), "ports")
    for item in items:
        port = f"{item.text('device')}:{item.whole('port')}"
        for name in ("state", "rate", "link_layer", "firmware", "board"):
            if (text := item.maybe_text(name)) is not None:
                yield Metric(f"{port} {name}", printable(text, 60))
        counters = item.inner("counters")
        for name in COUNTERS:
            if counters.has(name):
                yield Metric(f"{port} {name}", counters.whole(name))
