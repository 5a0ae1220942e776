"""Suspects in quarantine: what is decided from what Slurm says."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError

from playbooks.filter_plugins import quarantine as f
from playbooks.plugin_utils import quarantine as q

SLURM = """answers
gpu1 IDLE {reason1}
gpu2 MIXED
gpu3 IDLE+DRAIN [plumbline:quarantine] the validation has it as failing [root@2026-11-28T01:00:00]
gpu4 IDLE+DRAIN new cable [alice@2026-11-28T01:00:00]
gpu5 DOWN+NOT_RESPONDING Not responding [slurm@2026-11-28T01:00:00]
gpu6 IDLE+MAINTENANCE+RESERVED
-- slurmd --
-- jobs --
4711 R ada 2026-11-28T09:00:00 gpu2
4712 PD ada N/A (Resources)
"""
NONE = ""
SOME = (
    "ReservationName=plumbline-quarantine StartTime=2026-11-28T01:00:00 Nodes=gpu6 NodeCnt=1"
    " Users=plumbline-validation\n"
)


def slurm() -> str:
    return SLURM.format(reason1="")


def test_each_node_goes_where_it_belongs() -> None:
    planned = q.plan(["gpu1", "gpu2", "gpu3", "gpu4", "gpu5", "gpu7"], slurm(), SOME)
    assert planned.reserved == ("gpu6", "gpu1", "gpu2", "gpu3")
    assert planned.new == ("gpu1", "gpu2", "gpu3")
    assert planned.resume == ("gpu3",)
    assert planned.ready == ("gpu1", "gpu3")
    assert planned.waits == {"gpu2": "job 4711 (ada)"}
    assert planned.refused.keys() == {"gpu4", "gpu5", "gpu7"}
    assert "it is drained (new cable" in planned.refused["gpu4"]


def test_a_run_that_was_killed_goes_on_and_changes_nothing_twice() -> None:
    planned = q.plan(["gpu6"], slurm(), SOME)
    assert (planned.new, planned.ready) == ((), ("gpu6",))
    assert q.reserve(planned, q.kept(SOME), "x") == []


def test_a_slurm_that_does_not_answer_is_an_error() -> None:
    for answer, words in (("silent", "does not answer"), ("", "began with")):
        with pytest.raises(AnsibleFilterError, match=words):
            f.plan(answer, ["gpu1"], NONE)


def test_the_reservation_is_made_and_grows_and_shrinks() -> None:
    planned = q.plan(["gpu1", "gpu2"], slurm(), NONE)
    assert q.reserve(planned, q.kept(NONE), "plumbline-validation") == [
        *("scontrol", "create", "reservation", "reservationname=plumbline-quarantine"),
        *("starttime=now", "duration=infinite", "flags=maint,ignore_jobs", "nodes=gpu1,gpu2"),
        "users=plumbline-validation",
    ]
    grown = q.plan(["gpu1"], slurm(), SOME)
    update = ["scontrol", "update", "reservationname=plumbline-quarantine"]
    assert q.reserve(grown, q.kept(SOME), "x") == [*update, "nodes=gpu6,gpu1"]
    two = SOME.replace("Nodes=gpu6", "Nodes=gpu[5-6]")
    assert q.release(q.kept(two), ["gpu6"]) == [*update, "nodes=gpu5"]
    assert q.release(q.kept(two), ["gpu5", "gpu6"])[:2] == ["scontrol", "delete"]
    assert q.release(q.kept(two), ["gpu1"]) == []
    assert q.release(q.kept(NONE), ["gpu1"]) == []


def test_a_reservation_of_another_name_is_none_of_ours() -> None:
    other = SOME.replace("plumbline-quarantine", "plumbline-quarantine-2")
    assert q.kept(other) == []
    assert q.kept(SOME.replace("Nodes=gpu6", "Nodes=(null)")) == []


def test_a_reason_is_one_line_and_ours() -> None:
    assert q.reason('it has\n"two" lines') == "[plumbline:quarantine] it has 'two' lines"
    assert len(q.reason("x" * 500)) == 200


def test_what_is_not_back_is_told() -> None:
    planned = f.plan(slurm(), ["gpu1", "gpu2", "gpu4"], NONE)
    told = f.told(planned, {"gpu1": "", "gpu3": "the validation has it as failing: 1 GPU"})
    assert [line.split(":")[0] for line in told] == [
        "gpu4 is left alone",
        "gpu2 is kept, and waits for job 4711 (ada)",
        "gpu3 is drained",
    ]
    assert f.told(f.plan(slurm(), ["gpu1"], NONE), {"gpu1": ""}) == []
