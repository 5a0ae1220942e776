"""What takes a GPU node out of service: every role whose change would disturb jobs says so."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.conftest import REPOSITORY

PLAYBOOK = REPOSITORY / "playbooks/gpu-software.yml"
SOFTWARE = REPOSITORY / "playbooks/tasks/node_software.yml"
ROLES: list[str] = yaml.safe_load(
    (REPOSITORY / "playbooks/vars/gpu_software.yml").read_text(encoding="utf-8")
)["__gpu_software_roles"]
ASKED = [name for name in ROLES if (REPOSITORY / f"roles/{name}/tasks/ask.yml").exists()]


def play() -> dict[str, Any]:
    plays = yaml.safe_load(PLAYBOOK.read_text(encoding="utf-8"))
    return next(play for play in plays if play["name"] == "Find the nodes that must leave service")


def wanted(**facts: bool) -> bool:
    """Whether a node with these facts must leave service."""
    expression = play()["tasks"][-1]["vars"]["__node_reboot_wanted"]
    return bool(
        Templar(loader=DataLoader(), variables=facts).template(trust_as_template(expression))
    )


def test_the_roles_that_can_disturb_jobs_are_known() -> None:
    assert ASKED == ["nvidia_driver", "rdma", "nvidia_mig"]


def test_each_of_them_is_asked() -> None:
    asked = [task["ansible.builtin.import_role"] for task in play()["tasks"][:-1]]
    assert [role["name"] for role in asked] == ASKED
    assert {role["tasks_from"] for role in asked} == {"ask.yml"}


@pytest.mark.parametrize("role", ASKED)
@pytest.mark.parametrize("word", ["change", "reboot"])
def test_a_change_of_any_of_them_drains_the_node(role: str, word: str) -> None:
    assert wanted() is False
    assert wanted(**{f"__{role}_{word}": False}) is False
    assert wanted(**{f"__{role}_{word}": True}) is True


@pytest.mark.parametrize("role", ASKED)
def test_each_of_them_goes_on_after_a_reboot_of_its_own(role: str) -> None:
    tasks = yaml.safe_load(SOFTWARE.read_text(encoding="utf-8"))[0]["block"]
    names = [
        task.get("ansible.builtin.import_role", {}).get("name")
        or task.get("vars", {}).get("__rebooted_for", "") + " again"
        for task in tasks
    ]
    assert names.index(f"{role} again") == names.index(role) + 1
