"""One table of names for all roles; a part is called something by whoever packs it."""

from __future__ import annotations

import re

import pytest

from playbooks.plugin_utils import slurm_packages as m
from tests.conftest import REPOSITORY

ASKED = re.compile(r"\[((?:'\w+'(?:, )?)+)\] \| slurm_packages")


def test_both_packagings_have_the_same_parts() -> None:
    parts = {packed_by: set(names) for packed_by, names in m.table().items()}
    assert parts[m.DISTRIBUTION] == parts[m.SCHEDMD]


def test_no_package_is_in_both() -> None:
    ours = {name for names in m.table()[m.SCHEDMD].values() for name in names}
    assert all(name.startswith("slurm-smd") for name in ours)
    theirs = {name for names in m.table()[m.DISTRIBUTION].values() for name in names}
    assert not any(name.startswith("slurm-smd") for name in theirs)


def test_names_come_once_and_in_order() -> None:
    assert m.names(["client", "controller", "client"]) == ["slurm-client", "slurmctld"]
    assert m.names(["rest"], m.SCHEDMD) == ["slurm-smd-slurmrestd"]
    assert m.anybodys(["controller"]) == ["slurmctld", "slurm-smd-slurmctld"]


@pytest.mark.parametrize(
    ("method", "packed_by"),
    [("distro", m.DISTRIBUTION), ("packages", m.SCHEDMD), ("build", m.SCHEDMD)],
)
def test_a_method_brings_somebodys_packages(method: str, packed_by: str) -> None:
    assert m.packaging(method) == packed_by


def test_roles_ask_for_parts_that_there_are() -> None:
    files = [*REPOSITORY.glob("roles/*/*/*.yml"), *REPOSITORY.glob("group_vars/all/*.yml")]
    parts = {
        part
        for file in files
        for words in ASKED.findall(file.read_text(encoding="utf-8"))
        for part in re.findall(r"\w+", words)
    }
    assert parts
    assert parts <= set(m.table()[m.SCHEDMD])


def test_no_role_has_names_of_its_own() -> None:
    """What is not in the table is not found where SchedMD's packages are."""
    names = {name for names in m.table()[m.DISTRIBUTION].values() for name in names}
    names -= {"slurmctld", "slurmd", "slurmdbd", "slurmrestd", "sackd"}  # and daemons
    for file in REPOSITORY.glob("roles/*/tasks/*.yml"):
        words = set(re.findall(r"[\w-]+", re.sub(r"#.*", "", file.read_text(encoding="utf-8"))))
        assert not names & words, file
