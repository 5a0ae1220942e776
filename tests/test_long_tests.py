"""What scripts/test leaves for --full, and what it does not leave."""

from __future__ import annotations

import pytest

from tests import long_tests

TESTS = """\
import pytest

def test_short():
    pass

@pytest.mark.long
def test_long():
    pass

@pytest.mark.sample(3)
@pytest.mark.parametrize("second", "xy")
@pytest.mark.parametrize("case", range(4))
def test_sampled(case, second):
    pass

class TestOther:
    @pytest.mark.sample(1)
    @pytest.mark.parametrize("case", "ab")
    def test_sampled(self, case):
        pass
"""

pytest_plugins = ("pytester",)


@pytest.mark.parametrize(
    ("cases", "wanted", "places"),
    [
        (9, 3, [0, 4, 8]),
        (8, 3, [0, 3, 7]),
        (2, 3, [0, 1]),
        (3, 3, [0, 1, 2]),
        (5, 1, [0]),
        (7, 2, [0, 6]),
    ],
)
def test_the_first_the_last_and_some_between(cases, wanted, places):
    assert sorted(long_tests.sampled(cases, wanted)) == places


def test_as_many_as_are_wanted_whatever_there_are():
    for cases in range(1, 40):
        for wanted in range(1, 12):
            places = long_tests.sampled(cases, wanted)
            assert len(places) == min(cases, wanted)
            assert places <= set(range(cases))


def test_the_long_ones_and_all_but_a_sample_are_left(pytester):
    pytester.makeini("[pytest]\nmarkers =\n  long\n  sample")
    items, _ = pytester.inline_genitems(pytester.makepyfile(TESTS))
    assert {item.name for item in items} - {item.name for item in long_tests.left(items)} == {
        "test_short",
        "test_sampled[0-x]",
        "test_sampled[1-y]",
        "test_sampled[3-y]",
        "test_sampled[a]",
    }


def test_a_sample_that_is_no_number_ends_the_run(pytester):
    pytester.makeini("[pytest]\nmarkers =\n  sample")
    items, _ = pytester.inline_genitems(
        pytester.makepyfile("import pytest\n@pytest.mark.sample('all')\ndef test_one(): pass\n")
    )
    with pytest.raises(pytest.UsageError, match="test_one: sample takes a number of cases"):
        list(long_tests.left(items))
