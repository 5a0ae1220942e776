"""A node's clock agrees with the login node's.

What it checks   the offset between the two clocks stays within the threshold
Why it matters   MUNGE refuses credentials of clocks minutes apart; make, TLS, caches and anybody
                 who compares two nodes' logs need far better
What to do       Find out whether time is kept at all and from which servers; after repair the
                 offset is corrected in steps, or at once by restarting the time service.
                 $ ssh {node} timedatectl
                 $ ssh {node} 'chronyc tracking || timedatectl timesync-status'

The node writes its time into two lines, when its task starts and with its answer, and the login
node notes when each arrives. A line arrives after it was written, so each difference is the true
offset less the line's time through srun (milliseconds; more on a busy node), never more than the
true offset. The larger of the two is judged: a node ahead is seen that much too small, a node
behind that much too large.
"""

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
        offset = round(max(samples) / 1e9, 6)
        verdict = threshold.judge(abs(offset))
        message = ""
        if verdict is not Verdict.PASS:
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
