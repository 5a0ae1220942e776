"""Licences and reservations: what is refused, and what scontrol is asked for."""

import datetime
from typing import Any

import pytest

from cluster.slurm import licenses
from cluster.slurm import reservations as r
from roles.slurm.library import slurm_reservations as m

NODES = [{"name": f"gpu{n}"} for n in range(1, 5)]
GROUPS = {"gpu_h100": ["gpu1", "gpu2"]}
KNOWN: dict[str, Any] = {"groups": GROUPS, "partitions": ["main"], "users": [], "accounts": []}
COURSE = {
    "name": "course",
    "nodes": ["gpu_h100"],
    "accounts": ["teaching"],
    "duration": "UNLIMITED",
}
NOW = datetime.datetime(2026, 11, 22, 12, 0)

# What Slurm 24.11 prints, on one line each.
SHOWN = """\
ReservationName=course StartTime=2026-11-20T08:00:00 EndTime=2027-11-20T08:00:00 \
Duration=365-00:00:00 Nodes=gpu[1-2] NodeCnt=2 CoreCnt=448 Features=(null) \
PartitionName=(null) Flags=SPEC_NODES TRES=cpu=896 Users=(null) Groups=(null) \
Accounts=teaching Licenses=(null) State=ACTIVE BurstBuffer=(null) MaxStartDelay=(null)
ReservationName=power StartTime=2026-12-01T08:00:00 EndTime=2026-12-01T18:00:00 \
Duration=10:00:00 Nodes=gpu[1-4] NodeCnt=4 CoreCnt=896 Features=(null) PartitionName=(null) \
Flags=MAINT,SPEC_NODES,ALL_NODES TRES=cpu=1792 Users=root Groups=(null) Accounts=(null) \
Licenses=(null) State=INACTIVE BurstBuffer=(null) MaxStartDelay=(null)
"""


def settings_of(**changes: Any) -> dict[str, str]:
    (reservation,) = r.module_arguments([{**COURSE, **changes}], NODES, GROUPS)
    settings: dict[str, str] = reservation["settings"]
    return settings


def test_a_reservation_in_scontrols_words():
    assert settings_of() == {
        "Nodes": "gpu[1-2]",
        "Accounts": "teaching",
        "StartTime": "now",
        "Duration": "UNLIMITED",
    }
    assert settings_of(start="2026-12-01T08:00", flags=["MAINT", "IGNORE_JOBS"]) | {} == {
        **settings_of(),
        "StartTime": "2026-12-01T08:00:00",
        "Flags": "MAINT,IGNORE_JOBS",
    }


def test_one_that_is_not_there_is_made_and_one_that_is_absent_removed():
    assert m.command("course", False, settings_of(), None, NOW) == [
        "create",
        "ReservationName=course",
        "Nodes=gpu[1-2]",
        "Accounts=teaching",
        "StartTime=now",
        "Duration=UNLIMITED",
    ]
    reservations = m.shown(SHOWN)
    gone = m.command("course", True, {}, reservations["course"], NOW)
    assert gone == ["delete", "ReservationName=course"]
    assert m.command("course", True, {}, None, NOW) == []


@pytest.mark.parametrize("none", ["", "No reservations in the system\n"])
def test_none_are_none(none):
    assert m.shown(none) == {}


def test_one_that_is_as_declared_is_left():
    reservations = m.shown(SHOWN)
    assert m.command("course", False, settings_of(), reservations["course"], NOW) == []
    power = settings_of(
        nodes=["ALL"],
        users=["root"],
        accounts=[],
        start="2026-12-01T08:00",
        duration="10:00:00",
        flags=["MAINT", "IGNORE_JOBS"],
    )
    assert m.command("power", False, power, reservations["power"], NOW) == []
    ends = settings_of(
        nodes=["ALL"], duration="", end="2026-12-01T18:00", users=["root"], accounts=[]
    )
    assert m.command("power", False, ends, reservations["power"], NOW) == []


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({"nodes": ["gpu[1-3]"]}, ["Nodes=gpu[1-3]"]),
        ({"accounts": ["physics"]}, ["Accounts=physics"]),
        ({"users": ["alice"]}, ["Users=alice"]),
        ({"duration": "600"}, ["Duration=600"]),
        ({"duration": "365-00:00:00"}, []),
        ({"flags": ["flex"]}, ["Flags=+FLEX"]),
        ({"start": "2026-11-21T08:00"}, []),  # it has begun
    ],
)
def test_what_differs_is_changed_and_nothing_else(changes, settings):
    argv = m.command("course", False, settings_of(**changes), m.shown(SHOWN)["course"], NOW)
    assert argv == (["update", "ReservationName=course", *settings] if settings else [])


def test_one_that_has_not_begun_can_be_moved():
    later = settings_of(
        nodes=["ALL"], users=["root"], accounts=[], start="2026-12-02T08:00", duration=600
    )
    argv = m.command("power", False, later, m.shown(SHOWN)["power"], NOW)
    assert argv == ["update", "ReservationName=power", "StartTime=2026-12-02T08:00:00"]


@pytest.mark.parametrize(
    "times",
    [
        {"start": "2026-11-21T08:00", "duration": "60"},
        {"start": "2026-11-21T08:00", "duration": "", "end": "2026-11-22T12:00"},
    ],
)
def test_one_that_is_over_is_not_made_again(times):
    assert m.command("course", False, settings_of(**times), None, NOW) == []
    weekly = settings_of(**times, flags=["WEEKLY"])
    assert m.command("course", False, weekly, None, NOW)[0] == "create"


@pytest.mark.parametrize(
    ("duration", "minutes"),
    [("90", 90), ("8:00:00", 480), ("00:30", 30), ("2-00:00:00", 2880), ("unlimited", 525600)],
)
def test_durations_are_compared_by_what_they_mean(duration, minutes):
    assert m.minutes(duration) == minutes


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "1st"}, "1st is no name"),
        ({"nodes": []}, "has no nodes"),
        ({"nodes": ["gpu_h200"]}, 'course.nodes names "gpu_h200", which is neither a compute node'),
        ({"nodes": ["gpu[3-6]"]}, 'names "gpu[3-6]", and gpu[5-6] are no compute nodes'),
        ({"accounts": []}, "course is for nobody; name users or accounts"),
        ({"partition": "gpu"}, "is in the partition gpu, which slurm_partitions does not have"),
        ({"start": "tomorrow"}, "starts at 'tomorrow'; write now, or"),
        ({"duration": ""}, "needs either a duration or an end"),
        ({"end": "2026-12-01T08:00"}, "needs either a duration or an end"),
        ({"duration": "a day"}, "lasts 'a day'; write minutes"),
        ({"duration": "", "end": "noon"}, "ends at 'noon'; write"),
        ({"start": "2026-12-02T08:00", "duration": "", "end": "2026-12-01T08:00"}, "before it"),
    ],
)
def test_what_cannot_be_reserved_is_one_sentence(changes, sentence):
    (problem,) = r.problems([{**COURSE, **changes}], NODES, KNOWN)
    assert problem.startswith("slurm_reservations")
    assert sentence in problem


def test_users_and_accounts_are_held_against_those_that_are_declared():
    known = KNOWN | {"users": ["alice"], "accounts": ["physics"]}
    (account,) = r.problems([COURSE], NODES, known)
    assert "course is for the account teaching, which slurm_accounts does not declare" in account
    (user,) = r.problems([{**COURSE, "accounts": [], "users": ["root", "eve"]}], NODES, known)
    assert "is for the user eve, which slurm_users does not declare" in user
    assert r.problems([COURSE], NODES, KNOWN) == []


def test_two_of_one_name_are_refused_and_one_that_goes_needs_only_its_name():
    (problem,) = r.problems([COURSE, COURSE], NODES, KNOWN)
    assert problem == "slurm_reservations has two with the name course; rename one."
    assert r.problems([{"name": "course", "state": "absent"}], NODES, KNOWN) == []


def test_licences():
    assert licenses.licenses({"matlab": 10, "ansys": 4}) == "matlab:10,ansys:4"
    assert licenses.license_problems({"matlab": 10}) == []
    bad = licenses.license_problems({"matlab:x": 1, "ansys": 0, "abaqus": True})
    assert [problem.partition(";")[0] for problem in bad] == [
        "slurm_licenses has the name 'matlab:x'",
        "slurm_licenses.ansys is 0",
        "slurm_licenses.abaqus is True",
    ]
