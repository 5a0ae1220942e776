"""What other roles add to slurmdbd.conf: it is merged, and what cannot be is named."""

from typing import Any

import pytest

from cluster.slurm.settings import added, component_problems

ROLE = "slurm_database"
OWN = {"AuthType": "auth/munge", "StoragePass": "hidden"}
ELSEWHERE = {"storagepass": "slurm_database_password"}


def problems(components: dict[str, Any], site: dict[str, Any] | None = None) -> list[str]:
    return component_problems(components, ROLE, OWN, site or {}, ELSEWHERE)


def test_settings_of_all_components_are_added():
    components: dict[str, dict[str, Any]] = {
        "a": {"settings": {"AuthAltTypes": "auth/jwt"}, "files": ["/key"]},
        "b": {},
        "c": {"settings": {"CommitDelay": 1}},
    }
    assert added(components) == {"AuthAltTypes": "auth/jwt", "CommitDelay": 1}
    assert problems(components) == []


def test_two_that_disagree_are_named_and_the_site_decides():
    components = {"a": {"settings": {"CommitDelay": 1}}, "b": {"settings": {"commitdelay": 2}}}
    (sentence,) = problems(components)
    assert "_a sets commitdelay to 1, and slurm_database_component_b sets it to 2;" in sentence
    assert problems(components, {"CommitDelay": 3}) == []


@pytest.mark.parametrize(
    ("component", "words"),
    [
        ({"settings": {"AuthType": "auth/none"}}, "the role slurm_database sets AuthType to auth/"),
        ({"settings": {"StoragePass": "x"}}, "is not for this place; set slurm_database_password"),
        ({"setings": {}}, "slurm_database_component_x must be a mapping with settings and files"),
        ("AuthAltTypes=auth/jwt", "slurm_database_component_x must be a mapping"),
        ({"settings": {"TrackWCKey": True}}, "put the word that Slurm wants in quotes."),
    ],
)
def test_what_a_component_may_not_say_is_refused(component, words):
    (problem,) = problems({"x": component})
    assert words in problem
    assert "hidden" not in problem
