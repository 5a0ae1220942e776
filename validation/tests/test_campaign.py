"""The short form of scripts/campaign."""

import pytest

from validation.tests import campaign

SEEDS = range(120)


@pytest.mark.parametrize("first", range(0, len(SEEDS), 20))
def test_no_fault_ends_green_and_no_good_node_is_accused(first):
    runs = [campaign.faulty(seed) for seed in SEEDS[first : first + 20]]
    assert [run for run in runs if run.false_green] == []
    assert [(run.fault, run.unfair, run.why) for run in runs if run.unfair] == []


@pytest.mark.parametrize("first", range(0, len(SEEDS), 20))
def test_what_sites_do_to_a_healthy_run_ends_green(first):
    runs = [campaign.well(seed) for seed in SEEDS[first : first + 20]]
    assert [run for run in runs if run.false_red] == []
