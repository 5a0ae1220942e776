"""The short form of scripts/campaign."""

import pytest

from validation.tests import campaign, campaign_hosts

SEEDS = range(120)


@pytest.mark.sample(2)
@pytest.mark.parametrize("first", range(0, len(SEEDS), 20))
def test_no_fault_ends_green_and_no_good_node_is_accused(first):
    runs = [campaign.faulty(seed) for seed in SEEDS[first : first + 20]]
    assert [run for run in runs if run.false_green] == []
    assert [(run.fault, run.unfair, run.why) for run in runs if run.unfair] == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("first", range(0, len(SEEDS), 20))
def test_what_sites_do_to_a_healthy_run_ends_green(first):
    runs = [campaign.well(seed) for seed in SEEDS[first : first + 20]]
    assert [run for run in runs if run.false_red] == []


HOSTS = range(20)


@pytest.mark.sample(1)
@pytest.mark.parametrize("first", range(0, len(HOSTS), 10))
def test_what_is_wrong_with_one_node_is_found_and_no_other_accused(first):
    runs = [campaign_hosts.faulty(seed) for seed in HOSTS[first : first + 10]]
    assert [(run.fault, run.why) for run in runs if run.false_green] == []
    assert [(run.fault, run.unfair, run.why) for run in runs if run.unfair] == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("first", range(0, len(HOSTS), 10))
def test_what_nodes_are_like_ends_green(first):
    runs = [campaign_hosts.well(seed) for seed in HOSTS[first : first + 10]]
    assert [run for run in runs if run.false_red] == []
