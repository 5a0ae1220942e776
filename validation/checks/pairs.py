"""Any two nodes reach each other at full speed; the node, link or switch that does not is named.

What it checks   Nodes sum up buffers two by two, all pairs of a round at once. The sum is right in
                 every element, and the bus bandwidth at the largest size reaches the threshold and
                 a share of what the other pairs of the run reach. The nodes of a pair that does
                 not are paired with nodes that are good, until the finding has a name: a node that
                 is bad with every partner, a link between two nodes that are good with all others,
                 or a switch behind which every pair is bad. Where NCCL uses several network cards
                 of a node, the same is done over each of them alone. Of what a node sends over
                 TCP meanwhile hardly anything is lost.
Why it matters   A job of many nodes runs at the speed of its slowest link, and its own failure does
                 not tell which one that is. Two nodes that fail together look alike.
What to do       Packets are lost: read the error counters of both interfaces and of their switch
                 ports, and check the cables and modules between them. A node: take it out of
                 service, and compare its CPUs, GPUs and network interfaces with those of its peers.
                 A link: check the cable, the switch port and the route between the two nodes, and
                 firewall rules on either of them. A switch: check its uplinks and the ports to the
                 named nodes. Not told apart: too few good nodes were left to pair with; repeat the
                 run with more nodes.
                 $ ssh {node} ip -statistics link
                 $ ssh {node} nft list ruleset

The pairs are chosen, and the findings made, by validation.localise.
"""

import statistics
from dataclasses import replace

from validation.checks import all_reduce, transport
from validation.checks.document import Fields, Unusable, read, unusable_result
from validation.model import Job, Metric, Reply, Result, Tier, Verdict, When
from validation.thresholds import Rules

NAME = "pairs"
TIER = Tier.CLUSTER
PAYLOAD = "pairs"

FEWEST_NODES = 2

# By the sentences of validation/localise/findings.py.
CAUSES = {
    "Packets are lost": When(
        r"TCP segments from",
        (
            "ssh {node} ip -statistics link",
            "ssh {node} nstat -az TcpRetransSegs TcpExtTCPDSACKRecvSegs",
        ),
    ),
    "A node": When(r"failed with every partner"),
    "A link": When(r"[Tt]he link between"),
    "A switch": When(r"at fault as a whole|[Ww]hat (leads out of|joins)|^The rail"),
    "Not told apart": When(
        r"failed with (?!every partner)|fail with each other and are|whether it|"
        r"not measured with any|ran well with no other",
        ("sinfo --Node --long",),
    ),
}
SHARED = (all_reduce, transport)

_FEWEST_SENT, _FEWEST_LOST = 1000, 10  # segments


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    """What one pair's answer says by itself, as of any all_reduce of two nodes.

    Without a threshold it is inconclusive; what the other pairs reach is then all there is to hold
    it against (validation.pairing). The speed is that of all calls together: a node that stalls now
    and then shows in their mean, and not in their median.
    """
    result = replace(all_reduce.of_sums(job, reply, rules), check=NAME)
    if result.value is None or result.value.unit != "GB/s" or result.verdict is Verdict.FAIL:
        return result
    measured = read(job, reply).measured
    try:
        host, share = _lost(job, measured)
    except Unusable as unusable:
        return unusable_result(NAME, job, reply, unusable)
    largest = measured.items("sizes")[-1]
    size, calls = largest.whole("bytes"), largest.numbers("calls_s")
    speed = all_reduce.bus_bandwidth(size, statistics.mean(calls), job.ranks)
    value = replace(result.value, value=round(speed, 4))
    if result.threshold is not None and result.threshold.judge(speed) is Verdict.FAIL:
        message = f"{value.name} is {value.value} GB/s, at least {result.threshold.value} expected"
        return replace(result, verdict=Verdict.FAIL, value=value, message=message)
    limit = rules.common.limits["tcp_lost_share"]
    if limit.judge(share) is Verdict.FAIL:
        most = float(limit.value)
        message = (
            f"{share:.1%} of the TCP segments from {host} were lost, at most {most:.0%} expected"
        )
        value = Metric("TCP segments lost", round(share, 4), "")
        return replace(result, verdict=Verdict.FAIL, message=message, value=value, threshold=limit)
    return replace(result, value=value)


def _lost(job: Job, measured: Fields) -> tuple[str, float]:
    """The node of whose segments most were lost, and their share. All of its ranks count the same.

    Of few segments nothing can be told: over RDMA there are hardly any.
    """
    rows = measured.items("tcp")
    if len(rows) != job.ranks:
        raise Unusable(f"tcp is of {len(rows)} ranks, {job.ranks} were asked for")
    shares = [("", 0.0)]
    for number, row in enumerate(rows):
        sent, again, needless = (row.whole(name) for name in ("sent", "again", "needless"))
        if again > sent:
            raise Unusable(f"{again} of {sent} TCP segments were sent again")
        if sent >= _FEWEST_SENT and again - needless >= _FEWEST_LOST:
            shares.append((job.hosts[number // job.ranks_per_node], (again - needless) / sent))
    return max(shares, key=lambda item: item[1])
