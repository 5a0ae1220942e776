"""Transports that a site declares, NVLink, NVLS, MNNVL, GPUDirect RDMA, rails: did NCCL use them?

A bandwidth above its threshold does not say so: one rail of eight that is lost costs an eighth, and
with port failover (NCCL_IB_RESILIENCY_PORT_FAILOVER, 2.29.7) nothing else fails. What is declared
and was not used is told by its name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.declaration import NO_TRANSPORTS, Transports
from validation.checks.nccl_logs import Log, Problem, hosts_of, names_of
from validation.model import Verdict

_OVER_NVLINK = ("NVL", "NVB")  # of a ring's way from GPU to GPU
_OTHER_WAYS = ("PIX", "PXB", "PXN", "P2C", "PHB", "SYS", "NET", "DIS")
_REDUCED = "AllReduce"  # what switches add up


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is declared of each node.

    all_links  whether the job's channels use every link: all sums do, a pipeline's messages do not
    rails      whether the job may use all network cards
    """

    nodes: Mapping[str, Transports] = field(default_factory=dict)
    all_links: bool = False
    rails: bool = True

    def of(self, host: str) -> Transports:
        return self.nodes.get(host, NO_TRANSPORTS)


NOTHING_WANTED = Wanted()


def problems(logs: Sequence[Log], wanted: Wanted) -> list[Problem | None]:
    """What of it was not used, or is not shown."""
    nodes = hosts_of(logs)
    between = len(nodes) > 1
    found: list[Problem | None] = [_nvlink(_of(logs, wanted, "nvlink"), one_node=not between)]
    if wanted.all_links:
        found.append(_nvls(_of(logs, wanted, "nvls"), logs, one_node=not between))
    if between:
        found += [_mnnvl(_of(logs, wanted, "mnnvl")), _gdrdma(_of(logs, wanted, "gdrdma"))]
        if wanted.all_links and wanted.rails:
            found += list(_rails(logs, wanted))
    return found


def _of(logs: Sequence[Log], wanted: Wanted, name: str) -> list[Log]:
    """The logs of the nodes of which this is declared."""
    return [log for log in logs if getattr(wanted.of(log.host), name)]


def _nvlink(logs: Sequence[Log], *, one_node: bool) -> Problem | None:
    """Between the GPUs of a node. One GPU alone reaches none."""
    alone = {host for host in hosts_of(logs) if sum(log.host == host for log in logs) == 1}
    logs = [log for log in logs if log.host not in alone]
    beside = [log for log in logs if _beside_nvlink(log, one_node)]
    if beside:
        ways = sorted({_way(log, one_node) for log in beside})
        return _unused("NVLink is declared, and NCCL went over {} on {}", ways, beside)
    silent = [log for log in logs if log.ring not in _OVER_NVLINK and not _has(log, "NVLS")]
    return _unshown("NVLink", silent)


def _beside_nvlink(log: Log, one_node: bool) -> bool:
    kinds = ("SHM", "NET", "COLLNET") if one_node else ("SHM",)
    return any(_has(log, kind) for kind in kinds) or log.ring in _OTHER_WAYS


def _way(log: Log, one_node: bool) -> str:
    if _has(log, "SHM"):
        return "host memory"
    return "the network" if one_node and (_has(log, "NET") or _has(log, "COLLNET")) else "PCIe"


def _nvls(logs: Sequence[Log], everyones: Sequence[Log], *, one_node: bool) -> Problem | None:
    """Rank 0 alone tells which algorithm was chosen. Over several nodes NCCL's own tables may
    prefer a ring, which is no fault.
    """
    choices = [
        choice for log in everyones for choice in log.choices if choice.function in (_REDUCED, None)
    ]
    if not logs or any(choice.nvls for choice in choices):
        return None
    if choices:
        largest = max(choice.most_bytes for choice in choices)
        ways = sorted({choice.way for choice in choices if choice.most_bytes == largest})
        found = _unused("NVLS is declared, and NCCL added up with {} on {}", ways, logs)
        return found if one_node else Problem(Verdict.WARN, found.sentence, found.nodes)
    return _unshown("NVLS", [log for log in logs if not _has(log, "NVLS")])


def _mnnvl(logs: Sequence[Log]) -> Problem | None:
    def linked(log: Log) -> bool:
        return any(transport.nvlink_between_nodes for transport in log.transports)

    without = _nodes_without(logs, linked)
    if not without:
        return None
    ways = sorted({t.via for log in without for t in log.transports if t.network}) or ["nothing"]
    return _unused("MNNVL is declared, and NCCL went over {} between nodes on {}", ways, without)


def _gdrdma(logs: Sequence[Log]) -> Problem | None:
    copied = [log for log in logs if any(t.network and not t.direct for t in log.transports)]
    if not copied:
        return None
    ways = sorted({t.via for log in copied for t in log.transports if t.network and not t.direct})
    words = "GPUDirect RDMA is declared, and NCCL copied through host memory to {} on {}"
    return _unused(words, ways, copied)


def _rails(logs: Sequence[Log], wanted: Wanted) -> Iterator[Problem]:
    """Of each node, over the ports that the channels of all its ranks use together."""
    for host in hosts_of(logs):
        declared = wanted.of(host)
        own = [log for log in logs if log.host == host]
        used = sorted({port for log in own for port in log.ports_used})
        if not (declared.rails or declared.cards) or not any(
            transport.network for log in own for transport in log.transports
        ):
            continue
        if not used:
            yield Problem(Verdict.INCONCLUSIVE, _not_shown("its rails", (host,)), (host,))
            continue
        lost = [card for card in declared.cards if not any(_same(card, port) for port in used)]
        if lost:
            word = "rail" if len(lost) == 1 else "rails"
            sentence = f"{word} {', '.join(lost)} {_are(lost)} declared, and NCCL did not use"
            yield Problem(Verdict.FAIL, f"{sentence} {_it(lost)} on {host}", (host,))
        elif len(used) < declared.rails:
            sentence = (
                f"{declared.rails} rails are declared, and NCCL used {len(used)} on {host}: "
                f"{', '.join(used)}"
            )
            yield Problem(Verdict.FAIL, sentence, (host,))


def _same(card: str, port: str) -> bool:
    """Whether a card, or one of its ports ("mlx5_0:1"), is a port that NCCL names."""
    return port == card or port.rpartition(":")[0] == card


def _are(cards: Sequence[str]) -> str:
    return "is" if len(cards) == 1 else "are"


def _it(cards: Sequence[str]) -> str:
    return "it" if len(cards) == 1 else "them"


def _has(log: Log, kind: str) -> bool:
    return any(transport.kind == kind for transport in log.transports)


def _nodes_without(logs: Sequence[Log], fits: Callable[[Log], bool]) -> list[Log]:
    """The logs of nodes of which none fits."""
    fitting = set(hosts_of([log for log in logs if fits(log)]))
    return [log for log in logs if log.host not in fitting]


def _unused(words: str, ways: Sequence[str], logs: Sequence[Log]) -> Problem:
    nodes = hosts_of(logs)
    return Problem(Verdict.FAIL, words.format(" and ".join(ways), names_of(nodes)), nodes)


def _unshown(what: str, logs: Sequence[Log]) -> Problem | None:
    nodes = hosts_of(logs)
    return Problem(Verdict.INCONCLUSIVE, _not_shown(what, nodes), nodes) if nodes else None


def _not_shown(what: str, nodes: Sequence[str]) -> str:
    return f"NCCL's log does not show {what} on {names_of(nodes)}, which the inventory declares"
