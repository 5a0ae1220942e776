"""However a limit is written, by a site or by sacctmgr, it is one value."""

import pytest

from roles.slurm_associations.plugin_utils import properties
from roles.slurm_associations.plugin_utils.properties import Unreadable

QOS = properties.by_word(properties.QOS)
ASSOCIATION = properties.by_word(properties.ASSOCIATION)


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("24:00:00", "1-00:00:00"),
        ("1-0", "1-00:00:00"),
        ("1440", "1-00:00:00"),
        ("1439:30", "1-00:00:00"),  # Slurm counts begun minutes
        ("1-12:30", "1-12:30:00"),
        ("90", "01:30:00"),
        ("0", "00:00:00"),
        ("-1", ""),
        ("UNLIMITED", ""),
        pytest.param(-1, "", id="a number"),
        (None, ""),
    ],
)
def test_times_are_the_same_however_they_are_written(written, printed):
    wall = QOS["MaxWall"]
    assert wall.value(written) == wall.printed_value(printed)


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ({"cpu": 64, "gres/gpu": 8, "mem": "500G"}, "cpu=64,gres/gpu=8,mem=500G"),
        ({"MEM": 512000}, "mem=500G"),
        ("mem=1.5T,GRES/gpu=4", "gres/gpu=4,mem=1536G"),
        ("mem=1000", "mem=1000M"),
        ({"gres/gpu:h100_sxm": 4}, "gres/gpu:h100_sxm=4"),
        ({"cpu": 1024}, "cpu=1K"),
        ({"cpu": 0}, "cpu=0"),
        ({"cpu": -1}, ""),
        ({}, ""),
        (-1, ""),
    ],
)
def test_resources_are_compared_as_numbers(written, printed):
    limit = ASSOCIATION["GrpTRES"]
    assert limit.value(written) == limit.printed_value(printed)


def test_what_was_never_set_is_what_slurm_has_by_itself():
    assert ASSOCIATION["Fairshare"].value(-1) == ASSOCIATION["Fairshare"].printed_value("1") == 1
    assert QOS["UsageFactor"].value(1) == QOS["UsageFactor"].printed_value("1.000000")
    assert QOS["GraceTime"].value(None) == QOS["GraceTime"].printed_value("00:00:00")
    assert QOS["GraceTime"].value(90) == QOS["GraceTime"].printed_value("00:01:30")
    assert QOS["PreemptMode"].value("Cluster") == QOS["PreemptMode"].printed_value("cluster")
    assert QOS["Flags"].value([]) == QOS["Flags"].printed_value("")
    assert QOS["Flags"].value(["nodecay", "DenyOnLimit"]) == QOS["Flags"].printed_value(
        "DenyOnLimit,NoDecay"
    )
    assert ASSOCIATION["QOS"].value(["b", "a"]) == ASSOCIATION["QOS"].printed_value("a,b")


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("MaxWall", 86400),  # 24:00:00 without quotes
        ("MaxWall", "a day"),
        ("MaxWall", True),
        ("GrpJobs", "many"),
        ("GrpJobs", 1.5),
        ("GrpJobs", True),
        ("GrpTRES", "gpu=4"),
        ("GrpTRES", {"gres": 4}),
        ("GrpTRES", {"cpu": "lots"}),
        ("GrpTRES", "cpu"),
        ("UsageFactor", "twice"),
        ("Flags", True),
    ],
)
def test_what_slurm_would_read_as_something_else_is_refused(word, written):
    with pytest.raises(Unreadable):
        QOS[word].value(written)


def test_a_value_of_a_later_slurm_differs_from_everything():
    assert QOS["MaxWall"].printed_value("soon") == "soon"


@pytest.mark.parametrize(
    ("prop", "wanted", "had", "setting"),
    [
        (QOS["MaxWall"], 1440, None, "MaxWall=1-00:00:00"),
        (QOS["MaxWall"], None, 1440, "MaxWall=-1"),
        (QOS["GrpTRES"], (("cpu", 4),), (("cpu", 8), ("mem", 1)), "GrpTRES=cpu=4,mem=-1"),
        (QOS["GrpTRES"], None, (("mem", 1),), "GrpTRES=mem=-1"),
        (QOS["Preempt"], frozenset({"b", "a"}), None, "Preempt=a,b"),
        (QOS["Preempt"], None, frozenset({"a"}), "Preempt="),
        (QOS["Flags"], None, frozenset({"NoDecay"}), "Flags=-1"),
        (QOS["PreemptExemptTime"], 90, None, "PreemptExemptTime=0-00:01:30"),
        (ASSOCIATION["DefaultQOS"], None, "a", "DefaultQOS=-1"),
        (ASSOCIATION["Fairshare"], "parent", 1, "Fairshare=parent"),
    ],
)
def test_sacctmgr_is_told_the_whole_of_it(prop, wanted, had, setting):
    assert prop.setting(wanted, had) == setting


def test_a_limit_has_one_meaning_under_all_of_its_names():
    for known in (properties.QOS, properties.ASSOCIATION):
        names = [
            name.lower() for prop in known if not prop.option for name in (prop.word, *prop.also)
        ]
        assert len(names) == len(set(names))
    assert properties.limits(properties.QOS)["maxtresperuser"] is QOS["MaxTRESPU"]
