"""Slurm's accounting answers.

What it checks   slurmdbd answers `sacctmgr`, where Slurm is configured with accounting
Why it matters   without it limits and fair shares stand still, jobs are recorded nowhere, and
                 slurmctld's memory fills with what it cannot hand over
What to do       It is no node's fault: look at slurmdbd and its database on the controller.
                 $ systemctl status slurmdbd mariadb
                 $ sacctmgr show cluster
"""

from validation.model import Accounting, Metric, Result, Subject, Threshold, Tier, Verdict

NAME = "accounting"
TIER = Tier.CLUSTER
PAYLOAD = None

_ANSWERS = Threshold("in", "service", "", "defined", "answers, or none is configured")


def evaluate(subject: Subject, found: Accounting) -> Result:
    if not found.configured:
        verdict, said = Verdict.PASS, "none configured"
    elif found.error:
        verdict, said = Verdict.FAIL, "does not answer"
    else:
        verdict, said = Verdict.PASS, "answers"
    return Result(
        NAME,
        TIER,
        subject,
        verdict,
        found.error,
        Metric("accounting", said),
        _ANSWERS,
        blamed=(),
    )
