"""What a check says of an answer, and answers in which one thing is changed."""

import functools
import pickle

from validation import causes, thresholds
from validation.checks.registry import CHECKS
from validation.model import Verdict

rules_of = functools.cache(thresholds.load)


def judged(check, job, reply, rules=None):
    """The check's result, which is about the job's subject and has one short line to say."""
    evaluate = CHECKS[check].evaluate
    assert evaluate is not None
    result = evaluate(job, reply, rules or rules_of(job.nodes[0].hardware))
    assert (result.check, result.subject) == (check, job.subject)
    assert_told(result)
    return result


# Checks that find one thing, so that all of their advice is about it.
ONE_FINDING = {
    "accounting": "slurmdbd does not answer",
    "hostname": "another name than Slurm's",
    "memory": "less than declared",
    "clock": "apart from the login node's",
    "processes": "a process of somebody else",
}


def assert_advised(result):
    """What a check has measured and found wrong is one of its cases."""
    if result.verdict in (Verdict.PASS, Verdict.SKIP) or result.check in ONE_FINDING:
        return
    if result.value is None or result.threshold is not None:  # else a baseline is to be recorded
        assert causes.case(CHECKS[result.check].info, result), f"{result.check}: {result.message}"


def assert_told(result):
    """Its message is one short line, and no sentence with a full stop; and one of its cases."""
    assert "\n" not in result.message
    assert len(result.message) <= 320
    assert not result.message.endswith(".")
    assert_advised(result)


def put(document, path, value):
    """Changes what lies at the path, or removes it for `...`."""
    *above, last = path
    for key in above:
        document = document[key]
    if value is ...:
        del document[last]
    else:
        document[last] = value


def changed(document, *changes):
    """A copy in which (path, value) are put. By pickle, which is faster than deepcopy."""
    document = pickle.loads(pickle.dumps(document))
    for path, value in changes:
        put(document, path, value)
    return document
