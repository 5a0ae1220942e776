"""What may be cleaned, what is spared, and what Slurm runs around jobs."""

from __future__ import annotations

import pytest

from playbooks.filter_plugins.job_scratch import PROGRAM, scratch_component
from roles.scratch.filter_plugins.scratch import scratch_problems, scratch_spares


@pytest.mark.parametrize("root", ["/scratch", "/local/scratch", "/shared/scratch", "/srv/scratch"])
def test_a_folder_of_its_own_may_be_cleaned(root):
    assert scratch_problems(root, 30, "/shared/home") == []


@pytest.mark.parametrize(
    "root", ["/home", "/var", "/var/lib", "/etc/x", "/usr/local/scratch", "/srv"]
)
def test_the_systems_folders_are_refused(root):
    (problem,) = scratch_problems(root, 30, "/shared/home")
    assert f"scratch_root is {root}, which is the system's, and old files in it" in problem


@pytest.mark.parametrize("root", ["/shared", "/shared/home"])
def test_homes_are_not_cleaned(root):
    (problem,) = scratch_problems(root, 30, "/shared/home")
    assert "the homes in /shared/home would be cleaned of old files" in problem


@pytest.mark.parametrize("root", ["scratch", "/scratch/", "/a b", "/shared/../etc", "/", "/$HOME"])
def test_what_is_no_path(root):
    assert f"scratch_root is {root!r}; give the full path" in scratch_problems(root, 30, "")[0]


def test_days_that_are_none():
    assert scratch_problems("/scratch", 0, "") == []
    assert "scratch_keep_days is -1" in scratch_problems("/scratch", -1, "")[0]


def test_what_lies_below_is_spared_and_never_the_folder_itself():
    folders = ["/scratch", "/scratch/datasets", "/scratch2/x", "", "/", "/scratch/datasets"]
    assert scratch_spares("/scratch", folders) == ["/scratch/datasets"]


def test_a_cluster_without_it_has_no_scripts():
    assert scratch_component("", True) == {"prolog": [], "epilog": [], "task_prolog": []}


def test_temporary_files_of_a_job_go_where_they_are_its_own():
    (task,) = scratch_component("/scratch", True)["task_prolog"]
    assert 'echo "export TMPDIR=$folder"' in task["content"]
    (task,) = scratch_component("/scratch", False)["task_prolog"]
    assert "TMPDIR" not in task["content"]
    assert 'echo "export JOB_SCRATCH=$folder"' in task["content"]
    (epilog,) = scratch_component("/scratch", False)["epilog"]
    assert f"exec {PROGRAM} end\n" in epilog["content"]
