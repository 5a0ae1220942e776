"""A variable that goes is refused by name, with what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster import removed_variables
from tests import variable_names
from tests.standins.inventories import good, judged, write

SENTENCES = removed_variables.sentences()


def test_every_variable_that_went_is_in_the_table() -> None:
    """Else: add it to cluster/removed_variables.yml."""
    assert variable_names.remembered() - variable_names.of_now() == set(SENTENCES)


def test_every_variable_of_now_is_remembered() -> None:
    """Else: python -m tests.variable_names."""
    assert variable_names.of_now() <= variable_names.remembered()


@pytest.mark.parametrize("name", SENTENCES)
def test_what_to_do_is_a_sentence_about_variables_that_exist(name: str) -> None:
    sentence = SENTENCES[name]
    assert sentence.endswith(".")
    prefix = name.partition("_")[0] + "_"
    words = {word.strip(".,;") for word in sentence.split()}
    named = {word for word in words if word.startswith(prefix) and "/" not in word}
    assert named <= variable_names.of_now()


def test_an_entry_without_an_answer_is_none() -> None:
    for entry in ({"since": "2026"}, {"since": "2026", "now": "a", "instead": "b"}, {"now": "a"}):
        with pytest.raises(ValueError, match="must have since, and either"):
            removed_variables._sentence("x", entry)


def test_preflight_refuses_it_where_it_is_set_and_says_what_instead(tmp_path: Path) -> None:
    text = "---\nnode_base_hosts: {}\njupyterhub_key_group: portal\n"
    site = write(tmp_path, good(), {"group_vars/all.yml": text})
    place = tmp_path / "group_vars/all.yml"
    sentences = "\n".join(judged(site).sentences)
    assert f"node_base_hosts (set in {place}:2) is gone since 2026-11-21; set node" in sentences
    assert "rename it to jupyterhub_certificate_group." in sentences
    assert "did you mean" not in sentences
