"""The filters of playbooks/update-nodes.yml, through which what a round knows goes as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from playbooks.filter_plugins import node_updates as f
from playbooks.plugin_utils import updates as u
from tests.test_updates import FOUR, MINE, progress

SLURM = "answers\n" + "".join(f"{name} IDLE\n" for name in FOUR) + "-- slurmd --\n-- jobs --\n"
NOTHING = "-- reservation --\n"


def through(document: object) -> Any:
    """As Ansible keeps a fact: it has lists, and no tuples."""
    return json.loads(json.dumps(document))


def test_a_first_round_begins_an_update():
    known = f.progress(NOTHING, SLURM, ["gpu1", "gpu2"], FOUR, "50%")
    assert (known["nodes"], known["at_once"], known["done"]) == (("gpu1", "gpu2"), 2, {})
    assert " on " in known["by"]
    plan = f.plan(through(known), NOTHING, SLURM, ["gpu2"])
    assert plan["drain"] == ("gpu2",)


def test_the_next_goes_on_and_anew_begins_another():
    before = progress(FOUR, done={"gpu1": u.RETURNED}, failed={"gpu2": "x"})
    said = f"{u.written(before)}{NOTHING}"
    assert f.progress(said, SLURM, ["gpu3"], FOUR, 1)["done"] == {"gpu1": u.RETURNED}
    assert f.progress(said, SLURM, ["gpu3"], FOUR, 1)["failed"] == {"gpu2": "x"}
    assert f.progress(said, SLURM, ["gpu3"], FOUR, 1, retry=True)["failed"] == {}
    assert f.progress(said, SLURM, ["gpu3"], FOUR, 1, anew=True)["nodes"] == ("gpu3",)
    over = f"{u.written(progress(FOUR, ended=True))}{NOTHING}"
    assert f.progress(over, SLURM, ["gpu3"], FOUR, 1)["nodes"] == ("gpu3",)


@pytest.mark.parametrize(
    ("said", "slurm", "at_once", "why"),
    [
        ("", SLURM, 1, "did not answer."),
        ("{" + NOTHING, SLURM, 1, "cannot be read; move it away"),
        (NOTHING, "silent", 1, "slurmctld does not answer."),
        (NOTHING, SLURM, "0%", "node_update_at_once is '0%'"),
    ],
)
def test_what_cannot_be_decided_on_is_one_sentence(said, slurm, at_once, why):
    with pytest.raises(AnsibleFilterError, match=why):
        f.progress(said, slurm, FOUR, FOUR, at_once)


def test_a_file_that_cannot_be_read_is_no_obstacle_for_another_update():
    assert f.progress("{" + NOTHING, SLURM, FOUR, FOUR, 1, anew=True)["nodes"] == FOUR


def test_the_nodes_of_a_round_are_the_hosts_of_its_play():
    assert f.hosts({}, ["ctl1"]) == f.NOBODY
    assert f.hosts({"ctl1": {}}, ["ctl1"]) == f.NOBODY
    assert f.hosts({"ctl1": {"__node_update_now": []}}, ["ctl1"]) == f.NOBODY
    assert f.hosts({"ctl1": {"__node_update_now": ["gpu1", "gpu2"]}}, ["ctl1"]) == "gpu1,gpu2"


def test_what_nodes_say_of_themselves_becomes_the_progress():
    known = through(f.beginning(through(f.progress(NOTHING, SLURM, FOUR, FOUR, 4)), FOUR[:3]))
    assert known["begun"] == list(FOUR[:3])
    planned = {"chosen": list(FOUR[:3])}
    facts = {
        "gpu1": {"__node_update_fits": True},
        "gpu2": {"__node_update_failed": "gpu2: apt-get failed"},
        "gpu3": {},
    }
    found = f.results(planned, facts, {"gpu1": ""}, SLURM)
    assert found["done"] == {"gpu1": u.RETURNED}
    assert found["failed"] == {
        "gpu2": "gpu2: apt-get failed",
        "gpu3": "gpu3 stopped answering while it was updated",
    }
    after = f.recorded(known, found, [])
    assert (after["done"], after["ended"]) == ({"gpu1": u.RETURNED}, False)
    assert after["begun"] == ("gpu2", "gpu3")


def test_all_filters_are_there():
    filters = f.FilterModule().filters()
    known = through(f.progress(NOTHING, SLURM, FOUR, FOUR, 4))
    plan = through(f.plan(known, NOTHING, SLURM, FOUR))
    assert (
        filters["node_update_told"](plan, known)
        == "Begins an update of 4 nodes, 4 at once; drains gpu1."
    )
    assert filters["node_update_summary"](known, plan, "x").startswith("0 of 4 nodes are done.")
    assert u.parsed(filters["node_update_text"](known)) == u.of_document(known)
    drained = SLURM.replace("gpu2 IDLE", f"gpu2 IDLE+DRAIN {MINE}")
    assert filters["node_update_to_drain"]({"gpu2": "x"}, drained) == ["gpu2"]
    assert filters["node_update_reserved"]("-- reservation --\ngpu[1-2]\n") == ["gpu1", "gpu2"]
