"""scripts/lint-ansible: what ansible-lint wants checked is checked, at once and at last."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.processes import run

PLAY = "- name: Work\n  hosts: all\n  tasks:\n    - name: Do\n      {}\n"
FINE = PLAY.format("ansible.builtin.debug:\n        msg: fine")
# As ansible-lint asks: for files of the checkout, and for a role by a playbook that it removes.
ASKS = """#!/bin/sh
for file in "$@"; do ansible-playbook --syntax-check -vv "$file" || exit 9; done
made=$(mktemp)
for role in roles/*; do
    echo "[{hosts: all, tasks: [{ansible.builtin.import_role: {name: $PWD/$role}}]}]" >"$made"
    ansible-playbook --syntax-check -vv "$made" || exit 9
done
rm "$made"
"""


@pytest.fixture
def checkout(tmp_path: Path, repository: Path) -> Path:
    folder = tmp_path / "checkout"
    for name in ("scripts", "bin", "playbooks", "molecule/default", "roles/one/tasks"):
        (folder / name).mkdir(parents=True)
    shutil.copy(repository / "scripts/lint-ansible", folder / "scripts")
    (folder / "bin/ansible-lint").write_text(ASKS)
    (folder / "bin/ansible-lint").chmod(0o755)
    (folder / "playbooks/site.yml").write_text(FINE)
    (folder / "molecule/default/prepare.yml").write_text(FINE)
    (folder / "roles/one/tasks/main.yml").write_text("- name: Do\n  ansible.builtin.ping:\n")
    return folder


def lint(folder: Path, *arguments: str) -> tuple[int, str]:
    path = f"{folder}/bin:{os.environ['PATH']}"
    done = run(folder / "scripts/lint-ansible", *arguments, env=os.environ | {"PATH": path})
    return done.returncode, done.stdout + done.stderr


PLAYBOOKS = ("playbooks/site.yml", "molecule/default/prepare.yml")


def test_playbooks_scenarios_and_roles_are_read(checkout: Path) -> None:
    status, output = lint(checkout, *PLAYBOOKS)
    assert (status, "Syntax: 3 playbooks, scenarios and roles are right." in output) == (0, True)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("place", "text", "sentence"),
    [
        (PLAYBOOKS[0], PLAY.format("ansible.builtin.dbug:"), "ansible.builtin.dbug"),
        (PLAYBOOKS[1], FINE + "      wehn: true\n", "wehn"),
        ("roles/one/tasks/main.yml", "- name: Do\n  nobodys_module:\n", "nobodys_module"),
    ],
)
def test_what_is_misspelt_is_refused(checkout: Path, place: str, text: str, sentence: str) -> None:
    (checkout / place).write_text(text)
    status, output = lint(checkout, *PLAYBOOKS)
    assert (status, sentence in output) == (1, True), output


def test_what_ansible_lint_refuses_is_refused(checkout: Path) -> None:
    (checkout / "bin/ansible-lint").write_text(ASKS + "echo unnamed task; exit 2\n")
    status, output = lint(checkout, *PLAYBOOKS)
    assert (status, "unnamed task" in output) == (2, True), output


def test_where_nothing_was_asked_for_nothing_is_right(checkout: Path) -> None:
    (checkout / "bin/ansible-lint").write_text("#!/bin/sh\n")
    assert lint(checkout)[0] == 1
