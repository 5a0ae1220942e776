"""Which plugin of MPI steps start with, where packages of Slurm differ in what they have."""

from __future__ import annotations

import pytest

from roles.slurm.plugin_utils import mpi

FOLDER = "/usr/lib/x86_64-linux-gnu/slurm"
WITH = f"{FOLDER}/mpi_pmi2.so\n{FOLDER}/mpi_pmix.so\n{FOLDER}/mpi_pmix_v5.so\n"
# As dpkg-deb lists a package: with what links lead to.
WITHOUT = (
    f"-rw-r--r-- root/root 27080 2026-10-19 18:59 .{FOLDER}-wlm/mpi_cray_shasta.so\n"
    f"-rw-r--r-- root/root 110288 2026-10-19 18:59 .{FOLDER}-wlm/mpi_pmi2.so\n"
    f"-rw-r--r-- root/root 110288 2026-10-19 18:59 .{FOLDER}-wlm/select_cons_tres.so\n"
)
LINKED = f"lrwxrwxrwx root/root 0 2026-10-19 18:59 .{FOLDER}/mpi_pmix.so -> ./mpi_pmix_v5.so\n"
RUNNING = "ClusterName=c\nMpiDefault=pmix\n"


def test_plugins_are_those_of_the_files():
    assert mpi.plugins(WITH) == ["none", "pmi2", "pmix", "pmix_v5"]
    assert mpi.plugins(WITHOUT) == ["cray_shasta", "none", "pmi2"]
    assert mpi.plugins(LINKED) == ["none", "pmix", "pmix_v5"]
    assert mpi.plugins("") == []


@pytest.mark.parametrize(
    ("listing", "default"), [(WITH, "pmix"), (LINKED, "pmix"), ("", "pmix"), (WITHOUT, "")]
)
def test_steps_start_with_pmix_where_there_is_one(listing, default):
    assert mpi.default(listing) == default


@pytest.mark.parametrize("settings", [{}, None, {"MpiDefault": "pmi2"}, {"mpidefault": "none"}])
def test_what_a_slurm_has_is_no_problem(settings):
    assert mpi.problems(settings, WITHOUT, "ctl1") == []


def test_what_a_site_wants_and_its_slurm_has_not_is_refused():
    (sentence,) = mpi.problems({"mpiDefault": "pmix"}, WITHOUT, "ctl1")
    assert sentence.startswith("slurm_settings.MpiDefault is pmix, and Slurm on ctl1 has no such")
    assert "It has cray_shasta, none, pmi2; set one of them" in sentence
    assert mpi.problems({"MpiDefault": "pmix"}, "", "ctl1") == []  # not installed yet


@pytest.mark.parametrize("text", [RUNNING, RUNNING.replace("MpiDefault=", "mpidefault = ")])
def test_a_release_that_cannot_start_steps_as_now_is_refused(text):
    (sentence,) = mpi.lost(text, {}, WITHOUT, "26.05.5-1")
    assert sentence.startswith("Slurm 26.05.5-1 has no mpi/pmix, with which steps start here")
    assert "set slurm_settings: {MpiDefault: none}" in sentence
    assert mpi.lost(text, {"MpiDefault": "pmix"}, WITHOUT, "26.05.5-1") == [sentence]
    assert mpi.lost(text, {}, WITH, "26.05.5-1") == []
    assert mpi.lost(text, {"MpiDefault": "none"}, WITHOUT, "26.05.5-1") == []


def test_a_slurm_whose_plugins_are_not_known_is_not_taken():
    assert mpi.lost(RUNNING, {}, "", "26.05.5-1") != []
    assert mpi.lost("#MpiDefault=pmix\n", {}, WITHOUT, "26.05.5-1") == []
