"""DCGM's diagnostic passes on every GPU of a node.

What it checks   `dcgmi diag` runs at the suite's level (3 in burn-in). Every declared GPU passes at
                 least one test and fails none. A test that did not run, an answer that cannot be
                 read, and a missing answer are not a pass.
Why it matters   The diagnostic loads memory, PCIe, power and computing units for a quarter of an
                 hour, as a training does for days, and finds faulty boards that pass short tests.
What to do       The message is DCGM's own reason, with GPU and test. A test failed: run it again by
                 hand with --verbose. Replace a GPU that fails twice. No connection, or no dcgmi:
                 apply the role dcgm. Fewer GPUs than declared: see the check `gpus` first.
                 $ ssh {node} 'dcgmi discovery --list; systemctl status nvidia-dcgm'
                 $ ssh {node} 'dcgmi diag --run 3 --verbose'
"""

from cluster.text import printable
from validation.checks.document import Document, Unusable, answer
from validation.model import Job, Metric, Reply, Result, Threshold, Tier, Verdict, When
from validation.payloads import dcgm_diag
from validation.thresholds import Rules

NAME = "dcgm"
TIER = Tier.NODE
PAYLOAD = "dcgm"

CAUSES = {
    "A test failed": When(r"[Ff]ail", ("ssh {node} 'dcgmi diag --run 3 --verbose'",)),
    "No connection, or no dcgmi": When(
        r"no dcgmi|not found|connect|hostengine",
        ("ssh {node} 'dcgmi discovery --list; systemctl status nvidia-dcgm'",),
    ),
    "Fewer GPUs than declared": When(
        r"declared|GPUs passed", ("ssh {node} 'dcgmi discovery --list'",)
    ),
}


def evaluate(job: Job, reply: Reply, rules: Rules) -> Result:
    def judge(document: Document) -> Result:
        measured = document.measured
        level, status = measured.whole("level"), measured.whole("status")
        passed, reason = measured.whole("passed"), printable(measured.text("reason"), 200)
        if level != job.config["level"]:
            raise Unusable(f"the diagnostic ran at level {level}, not {job.config['level']}")
        if status not in (dcgm_diag.PASSED, dcgm_diag.FAILED):
            raise Unusable(f"dcgmi diag gives no verdict: {reason}")
        declared = job.nodes[0].gpus.count
        expected = Threshold("=", declared, "GPUs", "declared", "inventory")
        value = Metric("GPUs that passed", passed, "GPUs")
        verdict = expected.judge(passed)
        if status == dcgm_diag.FAILED:
            verdict = Verdict.FAIL
        return Result(
            NAME,
            TIER,
            job.subject,
            verdict,
            "" if verdict.green else reason,
            value,
            expected,
            (Metric("level of the diagnostic", level), Metric("DCGM says", reason)),
            document.proof,
        )

    return answer(NAME, job, reply, judge)
