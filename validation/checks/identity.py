"""Which GPUs a node told of, by UUID, and whether it keeps to them through a run.

A UUID belongs to one board. A node that computes on another one than it listed is not the machine
that was judged before, or has lost a GPU and found another meanwhile. Instances of MIG have UUIDs
of their own, which nothing lists beforehand: they are left out.
"""

from collections.abc import Iterator

from validation.checks.document import Document, Unusable, read
from validation.model import Job, Reply, Tier

_WHOLE = "GPU-"


class Identities:
    """The GPUs of each node, as its first list of them in this run has them."""

    def __init__(self) -> None:
        self._listed: dict[str, frozenset[str]] = {}

    def strangers(self, job: Job, reply: Reply) -> dict[str, str]:
        """The nodes of which this answer tells a GPU that is on no list of theirs, and which."""
        try:
            document = read(job, reply)
            told = list(_told(job, document))
        except Unusable:
            return {}  # the checks say why
        if job.payload in ("node", "health") and told:
            self._listed.setdefault(job.hosts[0], frozenset(uuid for _, uuid in told))
        return {
            host: uuid
            for host, uuid in reversed(told)
            if host in self._listed and uuid not in self._listed[host]
        }


def _told(job: Job, document: Document) -> Iterator[tuple[str, str]]:
    """Node and UUID of each whole GPU that an answer names."""
    if job.tier is Tier.CLUSTER:
        of_ranks = ((rank.host, rank.gpu_uuid) for rank in document.proof.ranks)
        short = {host.split(".", 1)[0]: host for host in job.hosts}
        told = [(short.get(host.split(".", 1)[0], host), uuid) for host, uuid in of_ranks]
    else:
        told = [(job.hosts[0], uuid) for uuid in _of_node(job.payload, document)]
    for host, uuid in told:
        if uuid is not None and uuid.startswith(_WHOLE):
            yield host, uuid


def _of_node(payload: str, document: Document) -> Iterator[str | None]:
    where = {"node": None, "health": "values", "cuda": "start", "compute": "start"}
    if payload not in where:
        return
    for gpu in document.measured.items("gpus"):
        inner = where[payload]
        if inner is not None and not gpu.has(inner):
            continue
        fields = gpu if inner is None else gpu.inner(inner)
        if "uuid" in fields.values:
            yield fields.maybe_text("uuid")
