"""Whatever a check finds is one of its causes, with words of its own and a command."""

import random

import pytest

from tests.long_tests import SHORT
from validation.checks.registry import CHECKS
from validation.model import Verdict
from validation.tests import standin
from validation.tests.healthy_answers import ANSWERED, healthy, result
from validation.tests.judging import ONE_FINDING, changed
from validation.tests.test_checks_malformed import places_of

# Answers of a check: a few of each place, or those of a sample of the places.
_MOST = 200 if SHORT else 600


def test_a_check_tells_its_causes_apart_or_has_one_alone():
    assert {name for name, check in CHECKS.items() if not check.info.cases} == {*ONE_FINDING}


def others(value):
    """Values that a fault would put in the place of this one."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int | float):
        return (0, 1, value * 10**4, value / 10**4, value * 1.5, value * 0.8, value * 0.5, "nan")
    return ("", "x", None) if isinstance(value, str) or value is None else ([], {})


# What one node says of its neighbours may accuse these; test_checks_network tries it.
@pytest.mark.parametrize("check", sorted({*ANSWERED} - {"network"}))
def test_what_is_found_is_one_of_the_causes(check):
    answer = healthy(check)
    places = [(path, at(answer.document, path)) for _, path in places_of(answer.document)]
    changes = [(path, other) for path, value in places for other in others(value)]
    chosen = random.Random(check).sample(changes, min(_MOST, len(changes)))
    verdicts = {
        result(check, answer.job, standin.line(changed(answer.document, change))).verdict
        for change in chosen
    }  # of each, `result` has asserted it
    assert verdicts & {Verdict.FAIL, Verdict.WARN, Verdict.INCONCLUSIVE}


def at(document, path):
    for key in path:
        document = document[key]
    return document
