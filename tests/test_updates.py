"""Which nodes an update drains, works on, gives back and leaves: from what Slurm said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from playbooks.plugin_utils import updates as u
from playbooks.plugin_utils.service import Answer, read

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
MINE = f"{u.MARK} update, by ops on control [root@2026-11-27T11:00:00]"
FAN = "bad fan [ops@2026-11-27T11:00:00]"


def slurm(states: Mapping[str, str], jobs: Mapping[str, float | None] = {}) -> Answer:
    """`jobs` are hours that the job of a node still has; None is one without an end."""
    lines = [f"{name} {state}" for name, state in states.items()]
    held = []
    for number, (name, hours) in enumerate(jobs.items(), start=1):
        end = "N/A" if hours is None else f"{NOW + timedelta(hours=hours):%Y-%m-%dT%H:%M:%S}"
        held.append(f"{number} R ann {end} {name}")
    return read("\n".join(["answers", *lines, "-- slurmd --", "-- jobs --", *held]) + "\n")


def progress(nodes: Iterable[str], at_once: int = 10, **more: object) -> u.Progress:
    values = {"since": "2026-11-27T11:00:00+00:00", "by": "ops on control", "at_once": at_once}
    return u.Progress(**values, nodes=tuple(nodes), **more)  # type: ignore[arg-type]


def decide(
    known: u.Progress, answer: Answer, reserved: Iterable[str] = (), **more: object
) -> u.Plan:
    return u.decide(known, answer, set(reserved), now=NOW, **more)  # type: ignore[arg-type]


FOUR = ("gpu1", "gpu2", "gpu3", "gpu4")
IDLE = dict.fromkeys(FOUR, "IDLE")


# --- what goes first ------------------------------------------------------------------------------


def test_one_node_goes_first_and_rather_an_empty_one():
    answer = slurm(IDLE | {"gpu1": "ALLOCATED"}, {"gpu1": 1})
    plan = decide(progress(FOUR), answer)
    assert plan.drain == ("gpu2",)
    assert not plan.chosen
    out = slurm(IDLE | {"gpu1": "ALLOCATED", "gpu2": f"IDLE+DRAIN {MINE}"}, {"gpu1": 1})
    plan = decide(progress(FOUR), out)
    assert (plan.drain, plan.chosen) == ((), ("gpu2",))


def test_when_one_has_come_back_so_many_go_as_are_allowed():
    plan = decide(progress(FOUR, 2, done={"gpu2": u.RETURNED}), slurm(IDLE))
    assert plan.drain == ("gpu1", "gpu3")


def test_the_jobs_that_end_soonest_decide():
    states = dict.fromkeys(FOUR, "MIXED")
    answer = slurm(states, {"gpu1": 5, "gpu2": None, "gpu3": 1, "gpu4": 2})
    plan = decide(progress(FOUR, 3, done={"x": u.RETURNED}), answer)
    assert plan.drain == ("gpu3", "gpu4", "gpu1")


def test_a_failed_first_node_keeps_all_others_in_service():
    answer = slurm(IDLE | {"gpu1": f"IDLE+DRAIN {MINE}"})
    plan = decide(progress(FOUR, failed={"gpu1": "no GPU"}, begun=("gpu1",)), answer)
    assert not plan.work
    assert plan.blocked == (
        "no further node leaves service, because the first one, gpu1, did not come back"
    )
    # Nor does one go that somebody else has drained.
    kept = slurm(IDLE | {"gpu1": f"IDLE+DRAIN {MINE}", "gpu2": f"IDLE+DRAIN {FAN}"})
    assert not decide(progress(FOUR, failed={"gpu1": "no GPU"}), kept).work


def test_a_failed_node_with_a_reason_of_a_person_holds_nobody_up():
    answer = slurm(IDLE | {"gpu1": f"IDLE+DRAIN {FAN}"})
    plan = decide(progress(FOUR, failed={"gpu1": "no GPU"}), answer)
    assert (plan.drain, plan.blocked) == (("gpu2",), "")


def test_failed_nodes_count_as_out():
    answer = slurm(IDLE | {"gpu1": f"IDLE+DRAIN {MINE}"})
    known = progress(FOUR, 2, failed={"gpu1": "no GPU"}, done={"gpu4": u.RETURNED})
    assert decide(known, answer).drain == ("gpu2",)
    one = decide(replace(known, at_once=1), answer)
    assert not one.work
    assert "gpu1 did not come back, and node_update_at_once allows 1" in one.blocked


# --- nobody waits for another's job ---------------------------------------------------------------


def test_a_long_job_on_one_node_holds_no_other_up():
    """The node with the job was drained when all were busy; the others are empty meanwhile."""
    states = IDLE | {"gpu1": f"ALLOCATED+DRAIN {MINE}"}
    answer = slurm(states, {"gpu1": 24})
    known = progress(FOUR, 1, done={"x": u.RETURNED})
    plan = decide(known, answer)
    assert (plan.give_back, plan.drain) == (("gpu1",), ("gpu2",))
    assert not plan.waits
    # One whose job is about to end keeps its place.
    soon = decide(known, slurm(states, {"gpu1": 0.1}))
    assert (soon.give_back, soon.drain) == ((), ())
    assert soon.waits == {"gpu1": soon.waits["gpu1"]}
    assert soon.waits["gpu1"].startswith("job 1 of ann until ")


def test_what_was_worked_on_is_never_given_back_unproven():
    states = IDLE | {"gpu1": f"ALLOCATED+DRAIN {MINE}"}
    known = progress(FOUR, 1, done={"x": u.RETURNED}, begun=("gpu1",))
    plan = decide(known, slurm(states, {"gpu1": None}))
    assert (plan.give_back, plan.drain) == ((), ())


def test_a_thousand_nodes_are_done_round_by_round_and_never_more_are_out_than_allowed():
    """Every third node has a job of a day, and each day starts a new one where a node serves."""
    names = [f"gpu{number:04}" for number in range(1000)]
    busy = dict.fromkeys(names[::3], 24.0)
    states = {name: "ALLOCATED" if name in busy else "IDLE" for name in names}
    known, rounds, most = progress(names, 100), 0, 0
    while known.left:
        rounds += 1
        assert rounds < 200
        plan = decide(known, slurm(states, busy))
        states |= dict.fromkeys(plan.give_back, "ALLOCATED")
        for name in plan.drain:
            states[name] = f"{'ALLOCATED' if name in busy else 'IDLE'}+DRAIN {MINE}"
        most = max(most, sum(MINE in state for state in states.values()))
        update = decide(known, slurm(states, busy)).chosen
        assert not set(update) & set(busy)
        known = u.recorded(known, dict.fromkeys(update, u.RETURNED), {}, ())
        states |= dict.fromkeys(update, "IDLE")
        if not update:  # the long jobs end, those of draining nodes for good
            assert all(name in busy for name in known.left)
            for name in [name for name in busy if MINE in states[name]]:
                del busy[name]
                states[name] = f"IDLE+DRAIN {MINE}"
    assert most == 100
    assert known.ended
    assert len(known.done) == 1000
    assert rounds < 30


# --- whose a node is ------------------------------------------------------------------------------


def test_what_somebody_else_drained_is_updated_when_it_is_empty_and_no_place_is_counted():
    states = IDLE | {"gpu1": f"IDLE+DRAIN {FAN}", "gpu2": f"ALLOCATED+DRAIN {FAN}"}
    known = progress(FOUR, 1, done={"x": u.RETURNED})
    plan = decide(known, slurm(states, {"gpu2": 1}))
    assert (plan.chosen, plan.kept, plan.drain) == (("gpu1",), ("gpu1",), ("gpu3",))
    assert "gpu2" in plan.waits
    # Not as the first: it could not come back.
    assert not decide(progress(FOUR), slurm(states, {"gpu2": 1})).chosen
    alone = decide(progress(["gpu1"]), slurm({"gpu1": f"IDLE+DRAIN {FAN}"}))
    assert alone.chosen == ("gpu1",)


def test_what_another_playbook_drained_is_somebody_elses():
    states = {"gpu1": "IDLE+DRAIN [plumbline:reboot] new kernel, by ops [root@2026-11-27]"}
    plan = decide(progress(["gpu1"], done={"x": u.RETURNED}), slurm(states))
    assert plan.kept == ("gpu1",)


def test_nodes_that_are_down_are_named_and_those_switched_off_are_left():
    states = {
        "gpu1": "DOWN+NOT_RESPONDING Not responding [slurm@2026-11-27]",
        "gpu2": "IDLE+POWERED_DOWN",
        "gpu3": f"DOWN+DRAIN {MINE}",
        "gpu4": "IDLE",
    }
    plan = decide(progress(FOUR, done={"x": u.RETURNED}), slurm(states))
    assert set(plan.down) == {"gpu1", "gpu3"}
    assert plan.down["gpu1"].startswith("slurmctld holds it as DOWN+NOT_RESPONDING")
    assert plan.off == ("gpu2",)
    assert plan.drain == ("gpu4",)
    assert not plan.waits


def test_a_node_that_slurm_does_not_know_runs_no_jobs():
    plan = decide(progress(["new"], done={"x": u.RETURNED}), slurm({}))
    assert (plan.chosen, plan.strangers) == (("new",), ("new",))


def test_a_round_of_some_nodes_leaves_the_others():
    plan = decide(progress(FOUR, 4, done={"x": u.RETURNED}), slurm(IDLE), limit={"gpu3"})
    assert plan.drain == ("gpu3",)


# --- rounds that were killed ----------------------------------------------------------------------


def test_what_was_being_proven_is_drained_before_its_reservation_goes():
    states = IDLE | {"gpu1": "IDLE+MAINTENANCE+RESERVED"}
    known = progress(FOUR, 4, done={"gpu2": u.RETURNED}, begun=("gpu1",))
    plan = decide(known, slurm(states), {"gpu1"})
    assert (plan.again, plan.unproven, plan.reserved) == (("gpu1",), ("gpu1",), ("gpu1",))
    assert plan.drain == ("gpu3", "gpu4")
    # Also where this round is for others: deleting the reservation would let everybody in.
    other = decide(known, slurm(states), {"gpu1"}, limit={"gpu3"})
    assert (other.again, other.unproven) == ((), ("gpu1",))
    # One that somebody has drained meanwhile keeps that reason.
    states["gpu1"] = f"IDLE+DRAIN+MAINTENANCE {FAN}"
    assert decide(known, slurm(states), {"gpu1"}).unproven == ()


def test_a_new_update_takes_over_what_an_earlier_one_left():
    answer = slurm(IDLE | {"gpu4": f"IDLE+DRAIN {MINE}"})
    begun = u.begun(["gpu1"], answer, {"gpu3"}, by="ann", now=NOW, at_once=2)
    assert begun.nodes == ("gpu1", "gpu3", "gpu4")
    assert begun.begun == ("gpu3", "gpu4")


def test_the_same_update_goes_on_with_what_the_inventory_has():
    known = progress(
        FOUR, done={"gpu1": u.RETURNED}, failed={"gpu2": "x", "gpu3": "y"}, begun=("gpu2", "gpu3")
    )
    on = u.taken_up(known, ["gpu1", "gpu2", "gpu4"], retry=False, at_once=3)
    assert (on.nodes, on.failed, on.at_once) == (("gpu1", "gpu2", "gpu4"), {"gpu2": "x"}, 3)
    assert on.begun == ("gpu2",)
    assert on.left == ["gpu4"]
    assert u.taken_up(known, FOUR, retry=True, at_once=3).left == ["gpu2", "gpu3", "gpu4"]


# --- the end of a round ---------------------------------------------------------------------------


def test_what_became_of_each_node():
    plan = u.Plan(
        chosen=("good", "bad", "broken", "silent", "kept", "new", "down"),
        kept=("kept",),
        strangers=("new",),
    )
    fit = {"good", "bad", "kept", "new", "down"}
    proof = {"good": "", "bad": "the validation has it as failing: gpus: 1 found", "down": ""}
    states = dict.fromkeys(("good", "bad"), "IDLE") | {"down": "DOWN+NOT_RESPONDING x [slurm@1]"}
    done, failed = u.results(
        plan, fit, {"broken": "apt-get failed", "silent": ""}, proof, slurm(states)
    )
    assert done == {"good": u.RETURNED, "kept": u.KEPT, "new": u.UNKNOWN}
    assert failed == {
        "bad": "bad may not return: the validation has it as failing: gpus: 1 found",
        "broken": "apt-get failed",
        "silent": "silent stopped answering while it was updated",
        "down": "down did not come back: slurmctld holds it as DOWN+NOT_RESPONDING: x [slurm@1]",
    }


def test_what_somebody_drains_meanwhile_is_theirs():
    states = {
        "gpu1": f"IDLE+DRAIN {FAN}",
        "gpu2": f"IDLE+DRAIN {MINE}",
        "gpu3": f"IDLE+DRAIN {FAN}",
    }
    answer = slurm(states)
    assert u.to_return(states, answer) == ["gpu2"]
    plan, fit = u.Plan(chosen=tuple(states)), set(states)
    done, failed = u.results(plan, fit, {}, {"gpu3": "it fails"}, answer)
    assert done == {"gpu1": u.KEPT}
    assert failed == {
        "gpu2": "gpu2 may not return: it was not validated",
        "gpu3": "gpu3 may not return: it fails",
    }


def test_no_verdict_is_no_pass():
    assert u.verdicts(["gpu1"], "", "validation: no login node\n") == {
        "gpu1": "the validation came to no verdict: validation: no login node"
    }
    summary = """{"nodes": [
        {"name": "gpu1", "standing": "passing", "reason": ""},
        {"name": "gpu2", "standing": "unproven", "reason": "gemm: no threshold"},
        {"name": "gpu4"}]}"""
    found = u.verdicts(["gpu1", "gpu2", "gpu3", "gpu4"], summary, "")
    assert found["gpu1"] == ""
    assert found["gpu2"] == "the validation has it as unproven: gemm: no threshold"
    assert found["gpu3"] == "the validation came to no verdict: it said nothing"
    assert found["gpu4"].startswith("the validation has it as unproven")


def test_only_what_nobody_else_drained_gets_our_reason():
    states = {"a": "IDLE", "b": f"IDLE+DRAIN {MINE}", "c": f"IDLE+DRAIN {FAN}", "d": "DOWN"}
    assert u.to_drain(["a", "b", "c", "d", "new"], slurm(states)) == ["a", "b", "d"]
    assert u.reason('no\n "GPU"') == "[plumbline:update] no 'GPU'"
    assert len(u.reason("x" * 999)) <= 200


def test_an_update_ends_when_all_are_done_or_switched_off():
    known = progress(["gpu1", "gpu2"], begun=("gpu1",))
    after = u.recorded(known, {"gpu1": u.RETURNED}, {}, ["gpu2"])
    assert (after.ended, after.begun) == (True, ())
    assert not u.recorded(known, {"gpu1": u.RETURNED}, {}, []).ended
    failed = u.recorded(known, {"gpu1": u.RETURNED}, {"gpu2": "x"}, [])
    assert not failed.ended
    assert u.recorded(failed, {"gpu2": u.RETURNED}, {}, []).ended


# --- the file, and what is said -------------------------------------------------------------------


def test_the_file_is_read_as_it_was_written():
    known = progress(FOUR, done={"gpu1": u.RETURNED}, failed={"gpu2": "x"}, begun=("gpu2",))
    assert u.parsed(u.written(known)) == known
    assert u.parsed("") is None


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', '{"schema": 1, "nodes": 3}', "null"])
def test_what_is_no_progress_is_refused(text):
    with pytest.raises(u.NoProgress, match="cannot be read; move it away"):
        u.parsed(text)


def test_the_file_of_another_version_is_refused():
    with pytest.raises(u.NoProgress, match="another version of Plumbline"):
        u.parsed('{"schema": 2}')


def test_what_the_controller_says_of_an_update():
    assert u.told("{}\n-- reservation --\ngpu[1-2]\n") == ("{}\n", {"gpu1", "gpu2"})
    assert u.told("-- reservation --\n(null)\n") == ("", set())
    with pytest.raises(u.NoProgress, match="did not answer"):
        u.told("")


@pytest.mark.parametrize(
    ("output", "why"), [("silent", "slurmctld does"), ("", "the answer began")]
)
def test_without_an_answer_nothing_is_decided(output, why):
    with pytest.raises(u.NoProgress, match=why):
        u.answered(output)


def test_how_far_it_is_is_one_line():
    states = IDLE | {"gpu1": f"ALLOCATED+DRAIN {MINE}", "gpu2": "DOWN x [slurm@1]"}
    known = progress(FOUR, 1, done={"gpu3": u.RETURNED}, failed={"gpu4": "no GPU"})
    line = u.outlook(known, decide(known, slurm(states, {"gpu1": None})))
    assert line == (
        "1 of 4 nodes are done; 1 waits for jobs: gpu1 (job 1 of ann); 1 failed: gpu4; 1 down: gpu2"
    )


def test_the_summary_names_what_failed_and_how_to_go_on():
    answer = slurm(IDLE | {"gpu1": f"IDLE+DRAIN {MINE}"})
    known = progress(FOUR, failed={"gpu1": "gpu1: no GPU"})
    text = u.summary(known, decide(known, answer), "scripts/update-nodes -i x")
    assert "    gpu1: gpu1: no GPU" in text
    assert "No further node leaves service, because the first one, gpu1, did not come back." in text
    assert text.endswith("    scripts/update-nodes -i x")
    some = progress(FOUR, done={"gpu1": u.RETURNED})
    assert "All nodes of this run are done" in u.summary(some, u.Plan(), "x", ["gpu1"])
    assert "The update goes on with" in u.summary(some, u.Plan(), "x", ["gpu1", "gpu2"])
    over = progress(FOUR, done=dict.fromkeys(FOUR, u.RETURNED), ended=True)
    assert u.summary(over, u.Plan(), "x").endswith("The update is complete.")
