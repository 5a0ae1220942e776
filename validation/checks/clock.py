"""A node's clock agrees with the login node's.

What it checks   The offset between the two clocks is within the threshold.
Why it matters   MUNGE refuses credentials if clocks are minutes apart. make, TLS, caches and the
                 comparison of logs need much better.
What to do       Check whether a time service runs, and which servers it uses. Once repaired, it
                 corrects the offset gradually, or at once when you restart it.
                 $ ssh {node} timedatectl
                 $ ssh {node} 'chronyc tracking || timedatectl timesync-status'

The node writes its time into two lines, when its task starts and with its answer; a line arrives at
the login node after it was written. The login node notes when it sends the task its input, and the
node when it has read that. So the node's time is ahead by no less than each line says, and by no
more than the input says: the true offset lies between, and how slow srun is only widens that. What
is judged is the value nearest to zero, so that a slow line accuses nobody; where the farthest would
fail, the check cannot tell. Without a time of the input the lines alone are judged, and a slow one
shows as a node that is behind.

The login node reads its clock once, when its launcher starts, and counts on from there: a step of
its clock during the run moves none of these times.

Where all nodes are off by the same, it is the login node's clock that is (`compare`).
"""

from collections.abc import Sequence
from dataclasses import replace

from validation.checks.comparison import ComparedNode
from validation.checks.document import Document, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Tier, Verdict
from validation.thresholds import Rules

NAME = "clock"
TIER = Tier.NODE
PAYLOAD = "node"


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    threshold = rules.common.clock_offset

    def judge(document: Document) -> Result:
        if reply.document_ns is None:
            raise Unusable("the login node did not note when the answer arrived")
        samples = [document.measured.whole("time_ns") - reply.document_ns]
        samples += [start.node_ns - start.arrival_ns for start in reply.starts]
        least = max(samples)
        received = [start.received_ns for start in reply.starts if start.received_ns is not None]
        most = least
        if reply.fed_ns is not None and received:
            most = max(least, min(time - reply.fed_ns for time in received))
        offset = round(min(max(0, least), most) / 1e9, 6)
        verdict = threshold.judge(abs(offset))
        message = ""
        farthest = max(abs(least), abs(most)) / 1e9
        if verdict.green and not threshold.judge(farthest).green:
            verdict = Verdict.INCONCLUSIVE
            message = f"srun was too slow to tell: the clock may be off by up to {farthest:.3g} s"
        elif verdict is not Verdict.PASS:
            direction = "ahead of" if offset > 0 else "behind"
            message = f"the node's clock is {abs(offset):.3g} s {direction} the login node's"
        return Result(
            NAME,
            TIER,
            job.subject,
            verdict,
            message,
            Metric("offset", offset, "s"),
            threshold,
            proof=document.proof,
        )

    return answer(NAME, job, reply, judge)


def compare(members: Sequence[ComparedNode]) -> list[Result]:
    """The results of all nodes: clocks are held against the login node's, which may be wrong."""
    results = [
        evaluate(member.job, member.reply, member.rules)
        for member in members
        if member.reply is not None
    ]
    offset = _common_offset(results)
    if offset is None:
        return results
    return [_blame_login_node(result, offset) if result.value else result for result in results]


def _common_offset(results: Sequence[Result]) -> float | None:
    """By how much all nodes are off together, in seconds: then it is the login node's clock.

    One node alone says nothing about which of the two is wrong; of two that agree the login node
    is the simpler explanation.
    """
    judged = [result for result in results if result.value is not None]
    offsets = [float(result.value.value) for result in judged if result.value is not None]
    limits = [float(result.threshold.value) for result in judged if result.threshold is not None]
    if len(judged) < 2 or any(result.verdict is not Verdict.FAIL for result in judged):
        return None
    if max(offsets) - min(offsets) > min(limits):
        return None
    return sorted(offsets)[len(offsets) // 2]


def _blame_login_node(result: Result, offset: float) -> Result:
    """The result of a node whose clock is off as all others' are."""
    direction = "behind" if offset > 0 else "ahead of"
    message = (
        f"the login node's clock is {abs(offset):.3g} s {direction} those of all nodes, "
        "which agree with each other"
    )
    return replace(result, message=message, blamed=())
