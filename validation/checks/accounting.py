"""Slurm's accounting answers.

What it checks   slurmdbd answers `sacctmgr`, if Slurm is configured with accounting.
Why it matters   Without accounting, limits and fair shares do not change, jobs are not recorded,
                 and slurmctld's memory fills with records that it cannot deliver.
What to do       No node is at fault: check slurmdbd and its database.
                 $ systemctl status slurmdbd mariadb
                 $ sacctmgr show cluster
"""

from validation.model import Accounting, Metric, Result, Subject, Threshold, Tier, Verdict

NAME = "accounting"
TIER = Tier.CLUSTER
PAYLOAD = None

_ANSWERS = Threshold("in", "service", "", "defined", "answers, or none is configured")


def evaluate(subject: Subject, answer: Accounting) -> Result:
    if not answer.configured:
        verdict, state = Verdict.PASS, "none configured"
    elif answer.error:
        verdict, state = Verdict.FAIL, "does not answer"
    else:
        verdict, state = Verdict.PASS, "answers"
    return Result(
        NAME,
        TIER,
        subject,
        verdict,
        answer.error,
        Metric("accounting", state),
        _ANSWERS,
        blamed=(),
    )
