"""Network adapters of one kind have the same firmware on all nodes.

What it checks   Adapters with one board id, of the declared fabric, have the same firmware, within
                 a node and over all nodes with the same GPUs and fabric; these nodes have as many
                 of them. The majority is right if it is at least three.
Why it matters   Firmware decides how an adapter reacts to congestion and retries. One that missed
                 an update is slow or drops its link together with the others, and with nobody
                 alone.
What to do       Other firmware: give the named adapter the firmware that the others have, and
                 restart the node. Another number of HCAs: look for a card that is missing, is
                 switched off, or is more than declared.
                 $ ssh {node} 'cd /sys/class/infiniband; grep . */fw_ver */board_id'
                 $ ssh {node} 'sudo mlxfwmanager --query'
"""

from collections.abc import Hashable, Sequence

from cluster.declaration import Node
from validation.checks import comparison, infiniband
from validation.checks.comparison import ComparedNode, Fact, Facts, all_equal
from validation.checks.document import Document, Unusable
from validation.model import Job, Metric, Result, Threshold, Tier, Verdict, When

NAME = "same_hcas"
TIER = Tier.NODE
PAYLOAD = "host"
FEWEST_ALIKE = 2

CAUSES = {
    "Other firmware": When(r"firmware (?!differs)\S+, \d+ of"),
    "Another number of HCAs": When(
        r"HCAs \d+, \d+ of", ("ssh {node} 'lspci | grep -i -e infiniband -e mellanox'",)
    ),
}
SHARED = (comparison,)

_THRESHOLD = Threshold("=", 0, "values", "defined", "what most nodes have, if at least three agree")


def compare(members: Sequence[ComparedNode]) -> list[Result]:
    return all_equal(NAME, _THRESHOLD, members, _facts, _alike)


def _alike(node: Node) -> Hashable:
    return (node.gpus, node.fabric)


def _facts(job: Job, document: Document) -> Facts:
    answered = document.measured.inner("infiniband")
    fabric, hcas = job.nodes[0].fabric, dict(job.environment).get("NCCL_IB_HCA")
    infiniband.judged(answered, fabric, hcas)
    ports = infiniband.meant(answered.items("ports"), fabric, hcas)
    if not ports:
        raise Unusable("there is no port to compare, see infiniband", Verdict.INCONCLUSIVE)
    devices = {item.text("device"): item for item in ports.values()}
    facts = [
        Fact(None, "firmware", (board,), firmware, device)
        for device, item in devices.items()
        if (board := item.maybe_text("board")) and (firmware := item.maybe_text("firmware"))
    ]
    if infiniband.every_port_of(fabric, hcas):
        facts.append(Fact(None, "HCAs", (), str(len(devices))))
    lacking = () if facts else ("the kernel does not tell firmware and board of any HCA",)
    return Facts(tuple(facts), lacking, (Metric("HCAs", len(devices), "devices"),))
