"""Settings that keep jobs from each other, and need one another."""

from typing import Any

import pytest

from roles.slurm.plugin_utils.confinement import problems

OWN = {"PrologFlags": "Contain", "PrivateData": []}
PRIVATE = {"wanted": True, "folder": "/var/lib/slurm/job-tmp", "settings": {}}


def refusals(site: Any = None, private: dict[str, Any] | None = None, **own: Any) -> list[str]:
    return problems({**OWN, **own}, {}, site or {}, {**PRIVATE, **(private or {})})


def test_what_the_role_sets_by_itself_can_work():
    assert refusals() == []


@pytest.mark.parametrize("flags", ["-Contain,Serial", ["Alloc", "-contain"], "", None])
def test_a_private_tmp_without_contain_is_refused(flags):
    (sentence,) = refusals({"prologflags": flags})
    assert "a job's private /tmp is made by Contain; leave Contain in" in sentence
    assert refusals({"prologflags": flags}, {"wanted": False}) == []


@pytest.mark.parametrize("flags", ["contain,X11", "X11,-Contain", ["Alloc", "RunInJob"], "Serial"])
def test_a_site_may_have_x11_where_it_says_so(flags):
    """What the role asks for stays there, and X11 and RunInJob imply Contain."""
    assert refusals({"PrologFlags": flags}) == []


def test_contain_may_be_what_a_component_asks_for():
    parts = {"site": {"settings": {"PrologFlags": "Contain"}}}
    assert problems({}, parts, {"PrologFlags": "Serial"}, PRIVATE) == []
    assert len(problems(OWN, parts, {"PrologFlags": ""}, PRIVATE)) == 1


@pytest.mark.parametrize(
    ("private", "sentence"),
    [
        ({"folder": "/tmp/jobs"}, "and /tmp is what each job has for itself"),
        ({"folder": "/dev/shm"}, "and /dev/shm is what each job has for itself"),
        ({"folder": "/scratch/a", "settings": {"dirs": "/tmp,/scratch"}}, "and /scratch is what"),
        ({"folder": "jobs"}, "as an absolute path"),
        ({"folder": "/"}, "as an absolute path"),
    ],
)
def test_a_folder_that_a_job_would_hide_from_itself_is_refused(private, sentence):
    (problem,) = refusals(private=private)
    assert sentence in problem
    assert refusals(private={**private, "wanted": False}) == []


def test_a_folder_outside_of_what_is_private_is_not():
    assert refusals(private={"folder": "/tmpfs/jobs"}) == []
    assert refusals(private={"folder": "/dev/shm/x", "settings": {"Dirs": "/tmp"}}) == []


def test_metrics_that_nobody_would_get_are_refused():
    metrics = {"MetricsType": "metrics/openmetrics"}
    (sentence,) = refusals(metrics, PrivateData=["jobs"])
    assert "PrivateData is jobs, and slurmctld then serves no metrics (MetricsType)" in sentence
    assert refusals(metrics) == []
    assert refusals({**metrics, "PrivateData": ""}, PrivateData=["jobs"]) == []
    assert (
        refusals({**metrics, "MetricsParameters": "ignore_private_data"}, PrivateData=["jobs"])
        == []
    )
    assert len(refusals({**metrics, "PrivateData": "usage"})) == 1


def test_what_is_no_mapping_is_told_by_others():
    assert problems(OWN, {}, ["x"], PRIVATE) == []  # type: ignore[arg-type]
    assert refusals(private={"settings": "x"}) == []
