"""How many nodes go out of service at once."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from hypothesis import given
from hypothesis import strategies as st

from playbooks.filter_plugins.reboot_batches import bound, planned_batches, reboot_batches


@pytest.mark.parametrize(
    ("at_once", "nodes", "most"),
    [(1, 3, 1), ("5%", 3, 1), ("5%", 1000, 50), ("3", 1000, 3), ("100%", 8, 8), ("5%", 39, 1)],
)
def test_a_number_or_a_part_of_all(at_once: object, nodes: int, most: int) -> None:
    assert bound(at_once, nodes) == most


@pytest.mark.parametrize("at_once", [0, "0%", "101%", "many", "", -1, 1.5, "5 %"])
def test_what_is_no_number_is_refused(at_once: object) -> None:
    with pytest.raises(AnsibleFilterError, match="node_reboot_at_once is"):
        bound(at_once, 10)


def test_the_first_goes_alone() -> None:
    hosts = [f"gpu{number}" for number in range(8)]
    assert reboot_batches(hosts, hosts, 3, 8) == [1, 3, 3, 1]
    assert reboot_batches(hosts, [], 3, 8) == [8]
    assert reboot_batches(hosts, ["gpu2", "gpu5", "gpu7"], 1, 8) == [5, 2, 1]
    assert reboot_batches([], [], 1, 8) == [1]


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 9))
def test_no_batch_has_more_than_allowed_and_every_host_is_in_one(
    goes: list[bool], most: int
) -> None:
    hosts = [str(number) for number in range(len(goes))]
    turns = [host for host, out in zip(hosts, goes, strict=True) if out]
    sizes = reboot_batches(hosts, turns, most, len(hosts))
    left, batches = list(hosts), []
    for size in sizes:
        batches.append([host for host in left[:size] if host in turns])
        del left[:size]
    assert left == []
    assert all(len(batch) <= most for batch in batches)
    assert len(batches[0]) <= 1


def test_the_plan_is_found_on_any_host() -> None:
    hostvars = {"gpu1": {}, "gpu2": {"__node_reboot_batches": [1, 2]}}
    assert planned_batches(hostvars, ["gpu1", "gpu2"]) == [1, 2]
    assert planned_batches(hostvars, ["gpu1"]) == ["100%"]
    assert planned_batches({}, ["gpu1", "gpu2"]) == ["100%"]
