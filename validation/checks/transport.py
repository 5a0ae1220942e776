"""Whether ranks spoke over what is declared, by NCCL's own logs of all ranks.

all_reduce and all trainings are held against it: each connects by itself, and a bandwidth means
something only for the network it was measured on. InfiniBand that fell back to sockets must fail,
and never become a baseline. What no log shows is not proven.

What to do       A declared transport that was not used: the inventory names it in
                 validation_transports, and NCCL went another way; look at NVLink and its switches,
                 at the ports of the rails, and for GPUDirect RDMA at the row "RDMA to GPU memory"
                 of gpu-software.yml --tags verify, or correct the declaration. Different versions
                 of torch or NCCL: apply the role validation_runtime to the named nodes. Another
                 network than declared: the declared fabric was not used, or not at its rate; check
                 the links of the named nodes, and NCCL_IB_HCA and similar variables in
                 validation_environment. A better network than declared: nothing is slow; correct
                 node_fabric in the inventory, so that this network is proven. A port that failed:
                 NCCL lost it during the job and went on over the others; check cables and error
                 counters of the named nodes. Slower than it could be: the network is right, and a
                 part of it is not used; look for ports that are down, at NVLink, and at the health
                 check rdma_path, which names bridges between GPUs and network cards that send data
                 round by the processor. Not in NCCL's log: what the ranks ran over is not proven;
                 remove NCCL_DEBUG variables from validation_environment, and report the version of
                 NCCL if that does not help.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from cluster.declaration import Gpus
from cluster.text import printable
from validation.checks import commands, declared_transports, nccl_logs, nccl_notes
from validation.checks.declared_transports import NOTHING_WANTED, Wanted
from validation.checks.document import Document, Fields, Unusable, read
from validation.checks.nccl_logs import (
    VERBS_NETWORK,
    Device,
    Log,
    Problem,
    Transport,
    hosts_of,
    names_of,
)
from validation.checks.nccl_notes import Note
from validation.model import Job, Reply, Result, Verdict, When, worst

_BETTER = r"NVLink between|RoCE on [^;]*, ethernet"
CAUSES = {
    "A declared transport that was not used": When(
        r"(?:is|are) declared, and NCCL", (commands.TOPOLOGY, commands.PORTS)
    ),
    "Different versions of torch or NCCL": When(r"different versions of", (commands.TORCH,)),
    "Another network than declared": When(rf"ran over (?!{_BETTER})", (commands.PORTS,)),
    "A better network than declared": When(rf"ran over (?:{_BETTER})", (commands.PORTS,)),
    "A port that failed": When(
        r"a port of the network failed",
        (commands.COUNTERS, "ssh {node} 'sudo dmesg -T | tail -50'"),
    ),
    "Slower than it could be": When(
        r"NCCL found \d+ ports|did not use GPUDirect|GPUs of one node reached each other",
        (commands.PORTS, commands.TOPOLOGY),
    ),
    "Not in NCCL's log": When(
        r"NCCL's log (?:shows no|does not show)|of NCCL's log|the NCCL log of|no fabric that",
        (commands.TORCH,),
    ),
}

SOCKETS = "sockets"
INFINIBAND = "InfiniBand"
ROCE = "RoCE"
OMNI_PATH = "Omni-Path"
EFA = "EFA"
SLINGSHOT = "Slingshot"

# What a declared fabric runs over, by the word before its rate (cluster/contract.yml).
_EXPECTED = {
    "ethernet": (SOCKETS, ROCE),
    "ib": (INFINIBAND,),
    "roce": (ROCE,),
    "opa": (OMNI_PATH,),
    "efa": (EFA,),
    "slingshot": (SLINGSHOT,),
}

_LAYERS = {"ib": "IB", "roce": "RoCE"}  # of the fabrics that verbs reach, as NCCL says it

# How libfabric names what it runs on (fi_provider(7)); `tcp;ofi_rxm` is tcp. verbs and psm3 are
# left out: either runs on several networks.
_PROVIDERS = {
    "tcp": SOCKETS,
    "sockets": SOCKETS,
    "udp": SOCKETS,
    "efa": EFA,
    "cxi": SLINGSHOT,
    "psm2": OMNI_PATH,
    "opx": OMNI_PATH,
}

_SOCKET_NETWORKS = ("Socket", "FastSocket")  # FastSocket: Google's plugin, TCP as well
_LIBFABRIC_NETWORKS = ("AWS Libfabric", "Libfabric")  # aws-ofi-nccl, by its version
_OMNI_PATH_DEVICE = "hfi1_"  # the kernel's driver; to verbs its link is InfiniBand

_OWN_VERBS = "IB"
_TELLS_RATES = (2, 24)  # the release from which on NCCL's own NET/IB tells the rate of each device

_LONGEST = 300  # of what is shown beside a number
_CARDS = "NCCL_IB_HCA"
_ALL_LINKS = ("all_reduce", "collectives", "pairs")  # payloads whose channels use every link
_RELEASE = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\.")
_RATE = re.compile(r"[a-z]+_[a-z]*([0-9]+)")

# All GPUs of such a node reach each other over NVLink. Boards with bridges reach one or three.
_NVLINK_MODEL = re.compile(r"\w+_sxm|b[23]00|gb[23]00")
# GeForce boards have no GPUDirect RDMA (docs.nvidia.com/cuda/gpudirect-rdma: Tesla and Quadro do).
_WITHOUT_GPUDIRECT = re.compile(r"rtx_[345]0[0-9]0(?:_\w+)?")


def held_against(
    result: Result, job: Job, document: Document, notes: Sequence[Note] = ()
) -> Result:
    """A check's result, or the worse one that NCCL's own logs speak for.

    The answer of every payload of ranks has them as `transport`; `notes` are what its ranks said
    on standard error. Raises Unusable where the logs are not there, or not one for each rank.
    """
    if job.backend != "nccl":
        return result
    hosts = [rank.host for rank in sorted(document.proof.ranks, key=lambda rank: rank.rank)]
    summaries = [log.values for log in document.measured.items("transport")]
    first = job.nodes[0]
    problem = judge(summaries, hosts, first.fabric, first.gpus, wanted(job))
    logs = nccl_logs.read(summaries, hosts)
    if problem is not None:
        result = with_problem(result, problem)
    return _explained(result, problem, logs, notes)


def with_problem(result: Result, problem: Problem) -> Result:
    """The worse of both. What ranks worked with is told before how fast they were."""
    if problem.verdict is not Verdict.WARN:
        result = replace(result, unjudged=())  # nothing to take a baseline from
    verdict = worst((result.verdict, problem.verdict))
    if verdict is result.verdict and verdict is not problem.verdict:
        return result  # the failure that is told already is what counts
    parts = [result.message, problem.sentence]
    if problem.verdict is Verdict.FAIL:
        parts.reverse()
    blamed = result.blamed if result.verdict is verdict else problem.nodes
    message = "; ".join(part for part in parts if part)
    return replace(result, verdict=verdict, message=message, blamed=blamed)


def _explained(
    result: Result, problem: Problem | None, logs: Sequence[Log], notes: Sequence[Note]
) -> Result:
    """With what NCCL says of itself: beside the numbers, and in the words of a failure."""
    newer = nccl_logs.newer(logs)
    said = [*(note for note in notes if note.kind == "diagnosed"), *newer]
    if not result.verdict.green:
        said += nccl_logs.notes(logs)
    unproven = problem is not None and problem.verdict is Verdict.INCONCLUSIVE
    if result.verdict is Verdict.FAIL or unproven:
        more = nccl_notes.sentence(said, told=result.message)
        result = replace(result, message=f"{result.message}; {more}" if more else result.message)
    return replace(result, metrics=(*result.metrics, *nccl_notes.details(said)))


def judge(
    summaries: Sequence[Mapping[str, Any]],
    hosts: Sequence[str],
    fabric: str,
    gpus: Gpus,
    declared: Wanted = NOTHING_WANTED,
) -> Problem | None:
    """The worst that the logs of all ranks speak against, or None.

    summaries  payloads.nccl_log.Summary.to_json of every rank, in the order of the ranks
    hosts      the node of every rank
    fabric     the declared one
    gpus       the declared ones of each node
    declared   the transports that each node must use

    Raises Unusable for a summary that is not one, and for more or fewer of them than ranks.
    """
    logs = nccl_logs.read(summaries, hosts)
    nodes = tuple(dict.fromkeys(hosts))
    problems = [_versions(logs), _communicators(logs)]
    if len(hosts) > 1:
        problems += [_nothing_seen(logs)]
    if len(nodes) > 1:
        problems += [
            _network_missing(logs, nodes, fabric, declared),
            _carriers(logs, fabric),
            _rate(logs, fabric),
            _failed_ports(logs),
            _fewer_ports(logs, fabric),
            _without_gpudirect(logs, fabric, gpus),
        ]
    problems += declared_transports.problems(logs, declared)
    problems += [_beside_nvlink(logs, gpus, one_node=len(nodes) == 1), _unread(logs)]
    actual = [problem for problem in problems if problem is not None]
    if not actual:
        return None
    order = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.WARN)
    worst = min(actual, key=lambda problem: order.index(problem.verdict))
    return replace(worst, sentence=printable(worst.sentence, 300))  # it has words of the answer


def links(summaries: Sequence[Mapping[str, Any]]) -> str | None:
    """Over what the rings of a node go from GPU to GPU: nvswitch, nvlink or pcie.

    None unless the logs of all ranks tell, and tell the same. NCCL looks for the rings itself, so a
    pair without a bridge, or a link that is down, shows here. Of boards that are no SXM modules,
    nvlink is a bridge.

    Raises Unusable for a summary that is not one.
    """
    ways: set[str | None] = set()
    for rank, summary in enumerate(summaries):
        fields = Fields(summary, f"nccl_log[{rank}].")
        way, nvswitch = fields.maybe_text("ring"), fields.flag("nvswitch")
        if way in ("NVL", "NVB"):
            ways.add("nvswitch" if nvswitch else "nvlink")
        else:
            ways.add("pcie" if way in ("PIX", "PXB", "PXN", "PHB", "SYS") else None)
    return ways.pop() if len(ways) == 1 else None


@dataclass(frozen=True, slots=True)
class Paths:
    """What a collective's bytes went over, as far as the logs tell; see thresholds.Collective."""

    links: str | None = None
    between: str | None = None
    ports: int | None = None


def paths(summaries: Sequence[Mapping[str, Any]], hosts: Sequence[str], fabric: str) -> Paths:
    """Raises Unusable for a summary that is not one, and for more or fewer of them than ranks."""
    inside = links(summaries)
    if len(set(hosts)) < 2:
        return Paths(inside)
    logs = nccl_logs.read(summaries, hosts)
    return Paths(inside, _between(logs), _most_ports(logs, fabric))


def _between(logs: Sequence[Log]) -> str | None:
    """Nodes of several racks use NVLink and the network at once: no figure is known of that."""
    ways = {
        "mnnvl" if transport.nvlink_between_nodes else "network"
        for log in logs
        for transport in log.transports
        if transport.nvlink_between_nodes or transport.network
    }
    return ways.pop() if len(ways) == 1 else None


def _most_ports(logs: Sequence[Log], fabric: str) -> int | None:
    """Of the declared kind and rate, on the node that has most of them. Cards for storage may be
    slower ones; of a device whose rate is not told the declared one is taken.
    """
    family, rate = _family(fabric), _RATE.fullmatch(fabric)
    if family not in _LAYERS or rate is None:
        return None
    ports: dict[str, set[str]] = {}
    for log in logs:
        for device in log.devices:
            known = None if device.mbps is None else device.mbps / 1000 / len(device.ports)
            if device.layer == _LAYERS[family] and (known is None or known >= int(rate[1])):
                ports.setdefault(log.host, set()).update(device.ports)
    return max((len(names) for names in ports.values()), default=None)


def cards(job: Job, reply: Reply) -> list[str]:
    """The ports of network cards that NCCL used, as NCCL_IB_HCA takes them; none without verbs."""
    names: dict[str, None] = {}
    with suppress(Unusable):
        measured = read(job, reply).measured
        for fields in measured.items("transport") if measured.has("transport") else ():
            log = nccl_logs.read_one(fields.values, 0, "")
            for transport in log.transports:
                if transport.network and VERBS_NETWORK.fullmatch(transport.via):
                    for device in log.devices_of(transport):
                        names |= dict.fromkeys(device.ports)
    return sorted(names)


def wanted(job: Job) -> Wanted:
    """What the inventory declares of the job's nodes, as far as this job can show it."""
    # Pairs that run over one rail alone have a list of cards of their own (plan/model.py).
    rails = dict(job.environment).get(_CARDS) == dict(job.nodes[0].environment).get(_CARDS)
    return Wanted(
        {node.name: node.transports for node in job.nodes},
        all_links=job.payload in _ALL_LINKS,
        rails=rails,
    )


def in_switches(summaries: Sequence[Mapping[str, Any]], function: str, size: int) -> bool:
    """Whether NCCL had switches add up for so many bytes of a function (NVLS, SHARP)."""
    for rank, summary in enumerate(summaries):
        for choice in nccl_logs.read_one(summary, rank, "").choices:
            fits = choice.least_bytes <= size <= choice.most_bytes
            if fits and choice.in_switches and choice.function in (function, None):
                return True
    return False


def chosen(summaries: Sequence[Mapping[str, Any]], function: str, size: int) -> str:
    """The algorithm and protocol that NCCL chose for so many bytes of a function, in NCCL's words:
    "RING SIMPLE"; several are joined by " or ". Empty where no log tells: NCCL before 2.23 names no
    function, and it chooses none for what is sent from one rank to another.
    """
    ways: dict[str, None] = {}
    for rank, summary in enumerate(summaries):
        for item in Fields(summary, f"nccl_log[{rank}].").items("choices"):
            if item.maybe_text("function") == function and (
                item.whole("least_bytes") <= size <= item.whole("most_bytes")
            ):
                ways[f"{item.text('algorithm')} {item.text('protocol')}"] = None
    return printable(" or ".join(ways), _LONGEST)


def carriers(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Over what the channels of all ranks went, and which network devices: "NET/IB mlx5_0:1,
    P2P/CUMEM"; as NCCL says it. Empty where no log tells.
    """
    ways: set[str] = set()
    for rank, summary in enumerate(summaries):
        log = nccl_logs.read_one(summary, rank, "")
        for transport in log.transports:
            names = [device.name for device in log.devices_of(transport)]
            way = f"{transport.kind}/{transport.via}" if transport.via else transport.kind
            ways.update([" ".join([way, name]) for name in names] or [way])
    return printable(", ".join(sorted(ways)), _LONGEST)


# --- judging ---------------------------------------------------------------------------------


def _versions(logs: Sequence[Log]) -> Problem | None:
    """Rank 0 alone tells its version before NCCL 2.22, so a log without one is no problem."""
    hosts: dict[str, dict[str, None]] = {}
    for log in logs:
        for version in log.version.split(", ") if log.version else ():
            hosts.setdefault(version, {})[log.host] = None
    if len(hosts) < 2:
        return None
    listing = "; ".join(
        f"{version} on {names_of(tuple(hosts[version]))}" for version in sorted(hosts)
    )
    return Problem(Verdict.FAIL, f"the ranks run different versions of NCCL: {listing}", None)


def _communicators(logs: Sequence[Log]) -> Problem | None:
    everybody = len(logs)
    without: list[Log] = []
    for log in logs:
        ranks = [rank for rank, ranks in log.communicators if ranks == everybody]
        if not ranks:
            without.append(log)
        elif log.rank not in ranks:
            sentence = f"the NCCL log of rank {log.rank} on {log.host} is that of rank {ranks[0]}"
            return Problem(Verdict.FAIL, sentence, (log.host,))
    if without:
        nodes = hosts_of(without)
        sentence = (
            f"NCCL's log shows no complete communicator of {everybody} ranks on {names_of(nodes)}"
        )
        return Problem(Verdict.INCONCLUSIVE, sentence, nodes)
    return None


def _nothing_seen(logs: Sequence[Log]) -> Problem | None:
    nodes = hosts_of([log for log in logs if not log.transports])
    if not nodes:
        return None
    sentence = f"NCCL's log does not show how the ranks on {names_of(nodes)} reached the others"
    return Problem(Verdict.INCONCLUSIVE, sentence, nodes)


def _network_missing(
    logs: Sequence[Log], nodes: Sequence[str], fabric: str, declared: Wanted
) -> Problem | None:
    """Every node must have reached another one, over the network or over NVLink between nodes."""
    reached = set(
        hosts_of([log for log in logs if any(transport.network for transport in log.transports)])
    )
    silent = tuple(node for node in nodes if node not in reached)
    if not silent:
        return None
    linked = hosts_of(
        [log for log in logs if any(transport.nvlink_between_nodes for transport in log.transports)]
    )
    if set(silent) <= set(linked):
        if all(declared.of(node).mnnvl for node in silent):
            return None  # as declared
        sentence = (
            f"{names_of(silent)} ran over NVLink between the nodes, which does not prove {fabric}"
        )
        return Problem(Verdict.WARN, sentence, silent)
    sentence = f"NCCL's log shows no connection over the network on {names_of(silent)}"
    return Problem(Verdict.INCONCLUSIVE, sentence, silent)


def _carriers(logs: Sequence[Log], fabric: str) -> Problem | None:
    expected = _EXPECTED.get(_family(fabric))
    if expected is None:
        return Problem(Verdict.INCONCLUSIVE, f"{fabric} is no fabric that is known", ())
    wrong: dict[str, dict[str, None]] = {}
    unknown: dict[str, dict[str, None]] = {}
    better: dict[str, None] = {}
    for log in logs:
        for transport in log.transports:
            if not transport.network:
                continue
            carrier = _carrier(log, transport)
            if carrier is None:
                unknown.setdefault(transport.via, {})[log.host] = None
            elif carrier not in expected:
                wrong.setdefault(carrier, {})[log.host] = None
            elif carrier != expected[0]:
                better[log.host] = None
    if wrong:
        return _ran_over(Verdict.FAIL, wrong, fabric, "NCCL ran over {}")
    if unknown:
        sentence = "NCCL's log does not show the transport of its network {}"
        return _ran_over(Verdict.INCONCLUSIVE, unknown, fabric, sentence)
    if better:
        sentence = f"NCCL ran over {ROCE} on {names_of(tuple(better))}, {fabric} is declared"
        return Problem(Verdict.WARN, sentence, ())
    return None


def _ran_over(
    verdict: Verdict, hosts: Mapping[str, Mapping[str, None]], fabric: str, template: str
) -> Problem:
    """`template` has a place for a network's name."""
    parts = [
        f"{template.format(name)} on {names_of(tuple(nodes))}" for name, nodes in hosts.items()
    ]
    nodes = tuple(dict.fromkeys(node for names in hosts.values() for node in names))
    return Problem(verdict, f"{' and '.join(parts)}, {fabric} is declared", nodes)


def _carrier(log: Log, transport: Transport) -> str | None:
    """What a connection between nodes ran over, None where the log does not tell."""
    if transport.via in _SOCKET_NETWORKS:
        return SOCKETS
    if transport.via in _LIBFABRIC_NETWORKS:
        return _PROVIDERS.get((log.provider or "").split(";")[0])
    if VERBS_NETWORK.fullmatch(transport.via):
        carriers = {_verbs_carrier(device) for device in log.devices_of(transport)}
        return carriers.pop() if len(carriers) == 1 else None
    return None


def _verbs_carrier(device: Device) -> str | None:
    if device.layer == "IB":
        return OMNI_PATH if device.name.startswith(_OMNI_PATH_DEVICE) else INFINIBAND
    return ROCE if device.layer == "RoCE" else None


def _rate(logs: Sequence[Log], fabric: str) -> Problem | None:
    """A device that channels use must have the declared rate.

    NCCL before 2.24 and plugins do not tell it. Where it should be told and is not, it was told in
    words that are not known.
    """
    declared = _RATE.fullmatch(fabric)
    if declared is None or _family(fabric) not in _LAYERS:
        return None
    slow: dict[str, dict[str, None]] = {}
    untold: dict[str, dict[str, None]] = {}
    tells = _tells_rates(logs)
    for log in logs:
        for transport in log.transports:
            if not (transport.network and VERBS_NETWORK.fullmatch(transport.via)):
                continue
            for device in log.devices_of(transport):
                if device.mbps is None:
                    if tells and transport.via == _OWN_VERBS:
                        untold.setdefault(device.name, {})[log.host] = None
                    continue
                gbps = device.mbps / 1000 / len(device.ports)
                if gbps < int(declared[1]):
                    slow.setdefault(f"{device.name} at {gbps:g} Gbit/s", {})[log.host] = None
    if slow:
        return _ran_over(Verdict.FAIL, slow, fabric, "NCCL ran over {}")
    if untold:
        sentence = "NCCL's log does not show the rate of {}"
        return _ran_over(Verdict.INCONCLUSIVE, untold, fabric, sentence)
    return None


def _tells_rates(logs: Sequence[Log]) -> bool:
    """Whether this NCCL says at what rate a device of NET/IB runs; one of no known version should.

    Rank 0 alone tells its version before NCCL 2.22.
    """
    releases = [
        (int(match[1]), int(match[2]))
        for log in logs
        for match in _RELEASE.finditer(log.version or "")
    ]
    return max(releases, default=_TELLS_RATES) >= _TELLS_RATES


def _failed_ports(logs: Sequence[Log]) -> Problem | None:
    """With port failover NCCL goes on without a port that failed, only slower.

    Either end of a connection can be the one that failed, so no node is named as the cause.
    """
    lost = hosts_of([log for log in logs if log.failed_ports])
    if not lost:
        return None
    sentence = f"a port of the network failed during the job, as NCCL on {names_of(lost)} tells"
    return Problem(Verdict.FAIL, f"{sentence}, which went on over the others", None)


def _fewer_ports(logs: Sequence[Log], fabric: str) -> Problem | None:
    """Nodes of one kind have as many ports of the fabric; NCCL lists those that are up."""
    layer = _LAYERS.get(_family(fabric))
    if layer is None:
        return None
    ports: dict[str, set[str]] = {}
    for log in logs:
        names = {port for each in log.devices if each.layer == layer for port in each.ports}
        ports.setdefault(log.host, set()).update(names)
    most = max(len(names) for names in ports.values())
    fewer = {host: len(names) for host, names in ports.items() if 0 < len(names) < most}
    if not fewer:
        return None
    listing = ", ".join(f"{count} on {host}" for host, count in list(fewer.items())[:8])
    more = f" and {len(fewer) - 8} nodes more" if len(fewer) > 8 else ""
    sentence = f"NCCL found {most} ports of {fabric} on other nodes, but {listing}{more}"
    return Problem(Verdict.WARN, sentence, tuple(fewer))


def _without_gpudirect(logs: Sequence[Log], fabric: str, gpus: Gpus) -> Problem | None:
    if _family(fabric) not in _LAYERS:
        return None
    if not gpus.real or _WITHOUT_GPUDIRECT.fullmatch(gpus.model):
        return None
    copied = hosts_of(
        [
            log
            for log in logs
            if any(transport.network and not transport.direct for transport in log.transports)
        ]
    )
    if not copied:
        return None
    sentence = (
        f"NCCL did not use GPUDirect RDMA on {names_of(copied)}: all data goes through host memory"
    )
    return Problem(Verdict.WARN, sentence, copied)


def _beside_nvlink(logs: Sequence[Log], gpus: Gpus, one_node: bool) -> Problem | None:
    if not _NVLINK_MODEL.fullmatch(gpus.model):
        return None
    kinds = ("SHM", "NET") if one_node else ("SHM",)
    beside = [log for log in logs if any(transport.kind in kinds for transport in log.transports)]
    if not beside:
        return None
    nodes = hosts_of(beside)
    used = {
        transport.kind for log in beside for transport in log.transports if transport.kind in kinds
    }
    words = {"SHM": "host memory", "NET": "the network"}
    over = " and ".join(words[kind] for kind in kinds if kind in used)
    sentence = (
        f"GPUs of one node reached each other over {over} on {names_of(nodes)}, not over NVLink"
    )
    return Problem(Verdict.WARN, sentence, nodes)


def _unread(logs: Sequence[Log]) -> Problem | None:
    """Of a known release such lines were cut; one that is newer has other words for all it says."""
    partly = [log for log in logs if log.unread]
    if not partly:
        return None
    nodes = hosts_of(partly)
    lines = sum(log.unread for log in partly)
    sentence = (
        f"{lines} lines of NCCL's log about connections on {names_of(nodes)} could not be read"
    )
    verdict = Verdict.INCONCLUSIVE if nccl_logs.newer(partly) else Verdict.WARN
    return Problem(verdict, sentence, ())


def _family(fabric: str) -> str:
    return fabric.partition("_")[0]
