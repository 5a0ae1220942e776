"""Rows of the verify table."""

from __future__ import annotations

import pytest

from playbooks.filter_plugins.verify import verify_failures, verify_row, verify_skipped


def test_the_same_text_passes_whatever_type_it_was():
    assert verify_row(8, "driver", "GPUs", "8")["verdict"] == "PASS"


@pytest.mark.parametrize("actual", [None, "", " "])
def test_what_was_not_found_never_passes(actual):
    row = verify_row(actual, "driver", "version", "")
    assert (row["verdict"], row["found"]) == ("FAIL", "nothing")


def test_a_failure_says_what_is_and_what_should_be():
    rows = [
        verify_row("580.1", "driver", "version", "580.2", "reboot the node."),
        verify_row("on", "driver", "persistence", "on"),
        verify_skipped("fabric", "Fabric Manager", "no NVSwitch declared"),
    ]
    sentence = "driver: version is 580.1, expected 580.2; reboot the node"
    assert verify_failures(rows) == [sentence]


def test_a_verdict_that_nobody_knows_is_a_failure():
    assert verify_failures([{**verify_row("a", "x", "y", "a"), "verdict": "pass"}])


def test_nothing_verified_is_no_success():
    with pytest.raises(ValueError, match="nothing was verified"):
        verify_failures([])
