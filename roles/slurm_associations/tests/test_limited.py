"""The limit of a user's jobs that no account need set."""

import pytest

from roles.slurm_associations.plugin_utils.limited import limited

LIMITED = {"MaxSubmitJobs": 5000}


def test_accounts_at_the_top_have_it_and_hand_it_down():
    accounts = [
        {"name": "science", "limits": {"MaxJobs": 5}},
        {"name": "physics", "parent": "science"},
        {"name": "ops", "parent": "root"},
        {"name": "root"},
    ]
    assert limited(accounts, 5000) == [
        {"name": "science", "limits": {"MaxJobs": 5, **LIMITED}},
        {"name": "physics", "parent": "science"},
        {"name": "ops", "parent": "root", "limits": LIMITED},
        {"name": "root"},
    ]


@pytest.mark.parametrize(
    "limits", [{"maxsubmitjobs": 7}, {"MaxSubmit": -1}, {"MaxSubmitJobs": None}]
)
def test_what_a_site_says_stands(limits):
    assert limited([{"name": "a", "limits": limits}], 5000) == [{"name": "a", "limits": limits}]


def test_zero_adds_none():
    assert limited([{"name": "a"}], 0) == [{"name": "a"}]


def test_what_is_no_account_stays_for_others_to_tell():
    assert limited(["a", {"name": "b", "limits": "x"}], 5000) == ["a", {"name": "b", "limits": "x"}]
