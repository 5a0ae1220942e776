"""Why a check is not made, by what is declared, and what is too little for one."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from cluster.declaration import WITHOUT, Container, Gpus, Node
from validation.checks import checkpoint, isolation, resume
from validation.checks.comparison import alike_host
from validation.checks.infiniband import declared as rdma_ports
from validation.checks.registry import CHECKS

# Of the node tier: what looks at GPUs, what compares their figures, and what has its node to
# itself, because it measures, or has a process for each GPU that needs CPUs.
_OF_GPUS = ("health", "cuda", "compute", "dcgm", "isolation")
_OF_REAL_GPUS = (
    *("links", "load_clocks", "load_ecc"),
    *("same_product", "stragglers", "soak_stragglers"),
)
_OF_PORTS = ("infiniband", "port_errors", "same_hcas")


def skipped(check: str, node: Node, container: Container | None) -> str | None:
    """Why a check is not made on a node, by what is declared."""
    if check == "torch" and container is not None:
        return "the container brings torch"
    if check in node.without:
        return f"the declaration says that the node has no {WITHOUT[check]}"
    return _no_use(check, node)


def _no_use(check: str, node: Node) -> str | None:
    """Why a check has nothing to look at on a node, by what is declared."""
    if check == "shared_fs" and not node.shared_filesystems:
        return "no shared filesystem is declared"
    if check in _OF_PORTS and rdma_ports(node.fabric) is None:
        return f"the declared fabric {node.fabric} is neither InfiniBand nor RoCE"
    return _no_gpu(check, node)


def _no_gpu(check: str, node: Node) -> str | None:
    payload = CHECKS[check].payload
    if payload in _OF_GPUS and not node.gpus.count:
        return "no GPU is declared"
    if payload == "health" and not node.gpus.answer:
        return "virtual GPUs have no driver"
    if payload in ("cuda", "dcgm") and not node.gpus.real:
        return "virtual GPUs have no driver"
    if check in _OF_REAL_GPUS and not node.gpus.real:
        return "virtual GPUs do not compute; a CPU does"
    return _no_other(check, node)


def _no_other(check: str, node: Node) -> str | None:
    if check == isolation.NAME:
        return _no_neighbour(node)
    if check in ("load_clocks", "load_ecc") and node.gpus.mig:
        what = {"load_clocks": "clock", "load_ecc": "errors"}[check]
        return f"NVML knows the {what} of a whole GPU, and instances of MIG are declared"
    if check in ("peers", "nvlink", "links") and node.gpus.mig:
        return "MIG instances cannot reach another GPU"
    if check == "dcgm" and node.gpus.mig:
        return "DCGM's diagnostic is for whole GPUs, not for instances of MIG"
    if check == "peers" and node.gpus.count == 1:
        return "there is only one GPU"
    return None


@dataclass(frozen=True, slots=True)
class Others:
    """What a node can be compared with: GPUs of each kind, alike hosts, and all nodes."""

    gpus: Mapping[Gpus, int]
    hosts: Mapping[Hashable, int]
    nodes: int

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> "Others":
        gpus: Counter[Gpus] = Counter()
        for node in nodes:
            gpus[node.gpus] += node.gpus.devices
        return cls(gpus, Counter(map(alike_host, nodes)), len(nodes))

    def too_few(self, check: str, node: Node) -> str | None:
        """Why they are too few for a check that compares."""
        needs = CHECKS[check]
        if self.nodes < needs.info.fewest_nodes:
            return "there is no other node to reach"
        if (gpus := self.gpus[node.gpus]) < needs.fewest:
            return f"{gpus} of these GPUs, and {needs.fewest} are needed for a comparison"
        if (alike := self.hosts[alike_host(node)]) < needs.fewest_alike:
            nodes = "node" if alike == 1 else "nodes"
            return f"{alike} {nodes} of this kind, and {needs.fewest_alike} are needed to compare"
        return None


def _no_neighbour(node: Node) -> str | None:
    """Why two jobs with a GPU each cannot be side by side on a node."""
    if node.gpus.mig:
        return "jobs share these GPUs: they are cut into instances of MIG"
    if min(node.gpus.count, node.cpus) < 2:
        return "two jobs cannot have a GPU and a CPU each"
    return None


def shared_by_all(nodes: Sequence[Node]) -> list[str]:
    """The shared filesystems that are declared for each of these nodes, in the first one's order.

    A group's jobs use the first.
    """
    return [
        path
        for path in nodes[0].shared_filesystems
        if all(path in node.shared_filesystems for node in nodes)
    ]


def no_use_together(check: str, nodes: Sequence[Node]) -> str | None:
    """Why a check has nothing to do on nodes that work together, by what is declared."""
    if check in (checkpoint.NAME, resume.NAME) and not shared_by_all(nodes):
        return "no shared filesystem is declared"
    return None
