"""scripts/new-role: the role that it makes is one that this repository's checks accept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, load_script
from tests.processes import ANSIBLE_PLAYBOOK, passes, run
from tests.runner import chains

new_role = load_script("new-role")
SUMMARY = "Sets the speed of the fans: \"quiet\", 'loud' #1"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the new role alone."""
    root = tmp_path_factory.mktemp("checkout")
    new_role.make(root / "roles", "fan_control", SUMMARY)
    (root / ".gitignore").touch()  # yamllint reads what is ignored
    return root


def works(folder: Path, *command: str | Path) -> str:
    settings = {
        "ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"),
        "ANSIBLE_ROLES_PATH": str(folder / "roles"),
    }
    return passes(*command, cwd=folder, env=os.environ | settings)


def test_it_has_no_more_files_than_a_role_needs(checkout):
    files = [path for path in (checkout / "roles").rglob("*") if path.is_file()]
    assert 0 < len(files) <= 12
    assert [path for path in files if "skeleton" in path.read_text() + str(path)] == []


def test_its_variables_are_described_and_it_says_what_it_does(checkout, check_role_specs):
    assert check_role_specs.check(checkout) == (1, [])
    specs = check_role_specs.read(checkout / "roles/fan_control/meta/argument_specs.yml")
    assert specs["argument_specs"]["main"]["short_description"] == SUMMARY


def test_its_yaml_is_as_ours(checkout):
    yamllint = Path(sys.executable).with_name("yamllint")
    works(checkout, yamllint, "--strict", "-c", REPOSITORY / ".yamllint", "roles")


def test_ansible_can_read_it(checkout):
    play = "[{hosts: all, tasks: [{import_role: {name: fan_control}}]}]"
    (checkout / "play.yml").write_text(play)
    works(checkout, ANSIBLE_PLAYBOOK, "--syntax-check", "-i", "localhost,", "play.yml")


def test_its_tests_are_collected(checkout):
    command = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "roles")
    assert "2 tests collected" in works(checkout, sys.executable, *command)


def test_its_scenario_is_planned(checkout):
    assert chains.read(checkout) == chains.Scenarios({"fan_control": frozenset()})


@pytest.mark.parametrize(
    ("name", "summary", "sentence"),
    [
        ("Fan", "x", "Fan is no name of a role"),
        ("fan-control", "x", "fan-control is no name"),
        ("../fan", "x", "/fan is no name"),
        ("fan_control", "x", "fan_control exists; choose another name"),
        ("fans", " ", "must be one line"),
        ("fans", "one\ntwo", "must be one line"),
        ("fans", "x" * 111, "must be one line"),
    ],
)
def test_what_cannot_be_a_role_is_refused_and_leaves_nothing(checkout, name, summary, sentence):
    before = sorted(checkout.rglob("*"))
    with pytest.raises(new_role.Refused, match=sentence):
        new_role.make(checkout / "roles", name, summary)
    assert sorted(checkout.rglob("*")) == before


def test_the_program_says_in_one_sentence_why_not():
    done = run(sys.executable, REPOSITORY / "scripts/new-role", "munge", "Again.")
    assert done.returncode == 1
    assert done.stderr.startswith("new-role: ")
    assert done.stderr.endswith("roles/munge exists; choose another name\n")
