"""Several cases in one run of a role: none passes because it was not there."""

from __future__ import annotations

import pytest

from tests.role_play import Case, Run, outcomes

CASES = [Case("good"), Case("bad")]
OUTPUT = (
    "ok: [node] => msg: '[good] begins' TASK [paint : Paint] *** changed: [node] => (item=red) "
    "changed: [node] => (item=blue) ok: [node] => msg: '[good] passes' TASK [shell] *** ok: [node] "
    "ok: [node] => msg: '[good] left two words [over]' ok: [node] => msg: '[bad] begins' "
    "TASK [paint : Refuse] *** fatal: [node]: FAILED! => msg: paint_colour is grey. "
    "ok: [node] => msg: '[bad] fails' ok: [node] => msg: '[bad] left [over]' "
    "PLAY RECAP *** node : ok=9 changed=1 rescued=1"
)


def test_each_case_has_what_came_between_its_marks() -> None:
    results = outcomes(Run(0, OUTPUT), CASES)
    results["good"].passes(changed=True)
    assert (results["good"].changed, results["good"].left) == (2, "two words")
    results["bad"].refuses("paint_colour is grey.")
    assert (results["bad"].changed, results["bad"].left) == (0, "")
    with pytest.raises(AssertionError):
        results["good"].refuses("paint_colour is grey.")
    with pytest.raises(AssertionError):
        results["bad"].passes()
    with pytest.raises(AssertionError):
        results["good"].passes(changed=False)


@pytest.mark.parametrize(
    "run",
    [
        Run(2, OUTPUT),
        Run(0, OUTPUT.replace("[bad] fails", "")),
        Run(0, OUTPUT.replace("[bad] left", "")),
        # Changes that are printed otherwise would be none.
        Run(0, OUTPUT.replace("changed: [node]", "changed node")),
    ],
)
def test_a_run_that_cannot_be_read_is_no_outcome(run: Run) -> None:
    with pytest.raises(AssertionError):
        outcomes(run, CASES)


def test_cases_have_names_of_their_own() -> None:
    with pytest.raises(AssertionError):
        outcomes(Run(0, OUTPUT), [Case("good"), Case("good")])
