"""What roles refuse is walked for all hosts at once, and each host is asked once for all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from playbooks.plugin_utils import roles
from playbooks.plugin_utils.refusing import Here, Refusals, refusing
from tests.standins.inventories import REPOSITORY, good, judged, site, write

ROLES = sorted(path.parent.parent.name for path in REPOSITORY.glob("roles/*/tasks/refuse.yml"))

ASK: dict[str, Any] = {
    "name": "Look",
    "ansible.builtin.command": {"cmd": "wall {{ paint_layers }}"},
}
LOOK: dict[str, Any] = ASK | {"register": "__wall"}
DRY: dict[str, Any] = {
    "name": "The wall is dry",
    "ansible.builtin.assert": {
        "that": "__wall.stdout == 'dry'",
        "fail_msg": "{{ __wall.stdout }}.",
    },
}


def plain(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def walked(
    folder: Path,
    tasks: Sequence[Mapping[str, Any]],
    answers: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    hosts: Sequence[str] = ("gpu1", "gpu2"),
    answering: Sequence[str] = ("ctl1", "gpu1", "gpu2"),
    here: Any = None,
    **defaults: Any,
) -> Refusals:
    """A role `paint` with these tasks, walked for hosts whose facts are known."""
    path = folder / "roles/paint"
    for name, content in (
        ("tasks/refuse", tasks),
        ("defaults/main", {"paint_layers": 1, **defaults}),
    ):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / f"{name}.yml").write_text(yaml.safe_dump(content, sort_keys=False))
    read = site(write(folder / "i", good()))
    for host in hosts:
        read.values.hosts[host]["ansible_facts"] = {"distribution": "Debian"}
    known = Here(
        answers or {},
        set(answering),
        lambda action: action == "web_users",
        here or (lambda question, host: pytest.fail(f"{host} was asked here: {question}")),
    )
    return refusing(read, {host: ["paint"] for host in hosts}, folder / "roles", known)


def judges(condition: str) -> dict[str, Any]:
    return {"ansible.builtin.assert": {"that": condition, "fail_msg": "no."}}


def task_result(stdout: str, **more: Any) -> dict[str, Any]:
    return {"stdout": stdout, "rc": 0, "changed": False, **more}


def first_answers(**by_host: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What hosts answer to the first step of the role."""
    return {host: {f"paint.0.{host}": answer} for host, answer in by_host.items()}


DRY_AND_WET = first_answers(gpu1=task_result("dry"), gpu2=task_result("wet"))
NONE: dict[str, list[str]] = {"gpu1": [], "gpu2": []}
ALL_WELL = Refusals(NONE, {}, NONE)


def test_a_host_is_asked_first_and_judged_by_its_answer(tmp_path: Path) -> None:
    first = walked(tmp_path, [LOOK, DRY], paint_layers=3)
    assert (first.sentences, first.left) == (NONE, NONE)
    [question] = first.questions["gpu2"]
    assert question["number"] == "paint.0.gpu2"
    assert question["arguments"] == {"cmd": "wall 3"}
    second = walked(tmp_path, [LOOK, DRY], DRY_AND_WET, paint_layers=3)
    assert second == Refusals({"gpu1": [], "gpu2": ["wet."]}, {}, NONE)


def test_an_answer_may_lead_to_a_question(tmp_path: Path) -> None:
    then = {
        "ansible.builtin.command": {"cmd": "smell {{ __wall.stdout }}"},
        "when": "__wall.stdout == 'dry'",
    }
    first = walked(tmp_path, [LOOK, then])
    assert [question["number"] for question in first.questions["gpu1"]] == ["paint.0.gpu1"]
    second = walked(tmp_path, [LOOK, then], DRY_AND_WET)
    assert list(second.questions) == ["gpu1"]
    [question] = second.questions["gpu1"]
    assert question["arguments"] == {"cmd": "smell dry"}


def test_what_can_be_asked_is_asked_beside_what_must_wait(tmp_path: Path) -> None:
    other = ASK | {"register": "__floor"}
    outcome = walked(tmp_path, [LOOK, DRY, other])
    numbers = [question["number"] for question in outcome.questions["gpu1"]]
    assert numbers == ["paint.0.gpu1", "paint.2.gpu1"]


def test_a_refusal_ends_the_role_on_its_host(tmp_path: Path) -> None:
    outcome = walked(tmp_path, [judges("paint_layers > 2"), LOOK])
    assert outcome.sentences == {"gpu1": ["no."], "gpu2": ["no."]}
    assert outcome.questions == {}


FAILS = "role paint could not evaluate"


@pytest.mark.parametrize(
    ("task", "answer", "sentences"),
    [
        ({}, task_result("", rc=1, msg="non-zero return code"), [FAILS]),
        ({}, task_result("", failed=True, msg="boom"), [f"{FAILS} its refusals (boom)."]),
        ({"ignore_errors": True}, task_result("", failed=True, msg="boom"), []),
        ({"failed_when": False}, task_result("", rc=1), []),
        ({"failed_when": "__wall.stdout == 'x'"}, task_result("x", msg="x"), [FAILS]),
        ({"failed_when": ["__wall.rc != 0", "__wall.stdout == ''"]}, task_result("x", rc=1), []),
    ],
)
def test_a_question_fails_as_its_task_says(
    tmp_path: Path, task: dict[str, Any], answer: dict[str, Any], sentences: list[str]
) -> None:
    outcome = walked(tmp_path, [LOOK | task], first_answers(gpu1=answer), hosts=["gpu1"])
    assert len(outcome.sentences["gpu1"]) == len(sentences)
    assert all(map(str.startswith, outcome.sentences["gpu1"], sentences))
    assert outcome.left == {"gpu1": []}


def test_what_is_forgiven_is_a_failure_to_later_steps(tmp_path: Path) -> None:
    later = {"ansible.builtin.assert": {"that": "not (__wall is failed)", "fail_msg": "no wall."}}
    answers = first_answers(gpu1=task_result("", failed=True, msg="boom"))
    tasks = [LOOK | {"ignore_errors": True}, later]
    outcome = walked(tmp_path, tasks, answers, hosts=["gpu1"])
    assert outcome.sentences == {"gpu1": ["no wall."]}


def test_what_is_asked_once_is_told_to_all(tmp_path: Path) -> None:
    once = LOOK | {"run_once": True, "delegate_to": "{{ groups['slurm_controller'][0] }}"}
    first = walked(tmp_path, [once, DRY])
    assert list(first.questions) == ["ctl1"]
    assert [question["number"] for question in first.questions["ctl1"]] == ["paint.0"]
    second = walked(tmp_path, [once, DRY], {"ctl1": {"paint.0": task_result("wet")}})
    assert second.sentences == {"gpu1": ["wet."], "gpu2": ["wet."]}


def test_who_is_not_in_the_run_is_asked_by_ansible(tmp_path: Path) -> None:
    once = LOOK | {"run_once": True, "delegate_to": "ctl1"}
    outcome = walked(tmp_path, [once, DRY], answering=["gpu1", "gpu2"])
    assert outcome.left == {"gpu1": ["paint"], "gpu2": ["paint"]}
    assert outcome.questions == {}


def test_the_control_node_is_asked_at_once(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    def here(question: Mapping[str, Any], host: str) -> dict[str, Any]:
        calls.append((question["action"], host))
        return task_result("dry")

    local: dict[str, Any] = LOOK | {"delegate_to": "localhost"}
    own: dict[str, Any] = {"web_users": {"files": {}}}
    assert walked(tmp_path, [local, DRY, own], here=here) == ALL_WELL
    assert calls == [
        ("ansible.builtin.command", "gpu1"),  # the same for both
        ("web_users", "gpu1"),
        ("web_users", "gpu2"),
    ]


def test_steps_that_do_not_apply_ask_nothing(tmp_path: Path) -> None:
    skipped = LOOK | {"when": "paint_layers > 5"}
    then = {"ansible.builtin.assert": {"that": "__wall is skipped", "fail_msg": "{{ __wall }}"}}
    assert walked(tmp_path, [skipped, then]) == ALL_WELL


def test_a_fact_that_a_step_sets_is_read_by_the_next(tmp_path: Path) -> None:
    remember = {"ansible.builtin.set_fact": {"__paint": "{{ __wall.stdout }}"}}
    then = {"ansible.builtin.assert": {"that": "__paint == 'dry'", "fail_msg": "{{ __paint }}."}}
    answers = first_answers(gpu1=task_result("wet"))
    outcome = walked(tmp_path, [LOOK, remember, then], answers, hosts=["gpu1"])
    assert outcome.sentences == {"gpu1": ["wet."]}


@pytest.mark.parametrize(
    "task",
    [
        LOOK | {"loop": [1]},
        LOOK | {"until": "true"},
        LOOK | {"delay": 1},
        LOOK | {"with_items": [1]},
        judges("ansible_check_mode"),
        judges("ansible_user == 'root'"),
        judges("no_such_variable > 1"),
    ],
)
def test_what_only_ansible_knows_or_can_do_is_left_to_it(
    tmp_path: Path, task: dict[str, Any]
) -> None:
    outcome = walked(tmp_path, [task])
    assert outcome.left == {"gpu1": ["paint"], "gpu2": ["paint"]}


def test_a_loop_over_nothing_is_done(tmp_path: Path) -> None:
    task = LOOK | {"loop": "{{ paint_walls }}"}
    assert walked(tmp_path, [task], paint_walls=[]) == ALL_WELL


def test_what_was_not_asked_is_no_yes(tmp_path: Path) -> None:
    """A default in place of an answer that is to come decides nothing."""
    then = {
        "ansible.builtin.assert": {
            "that": "(__wall | default({'stdout': 'dry'})).stdout == 'dry'",
            "fail_msg": "wet.",
        }
    }
    answers = first_answers(gpu1=task_result("wet"))
    assert walked(tmp_path, [LOOK, then], answers, hosts=["gpu1"]).sentences == {"gpu1": ["wet."]}


@pytest.mark.parametrize("role", ROLES)
def test_every_role_is_made_of_steps(role: str) -> None:
    steps = roles.steps(role, REPOSITORY / "roles" / role / roles.REFUSE, plain)
    assert [step.number for step in steps] == list(range(len(steps)))


def test_blocks_and_imported_files_are_steps_with_their_conditions(tmp_path: Path) -> None:
    (tmp_path / "look.yml").write_text(yaml.safe_dump([LOOK | {"when": "c"}]))
    block = {
        "when": "a",
        "vars": {"x": 1},
        "become": False,
        "block": [{"import_tasks": "look.yml", "when": "b"}],
    }
    (tmp_path / "refuse.yml").write_text(yaml.safe_dump([block, DRY]))
    first, second = roles.steps("paint", tmp_path / "refuse.yml", plain)
    assert first.when == ("a", "b", "c")
    assert first.variables == {"x": 1}
    assert first.become is False
    assert (second.number, second.when) == (1, ())


def test_our_roles_are_asked_all_at_once_and_none_is_left_to_ansible(tmp_path: Path) -> None:
    pinned = dict.fromkeys(("4.2.1-amd64-enroot", "4.2.1-amd64-enroot+caps"), 64 * "0")
    variables = {"ansible_user": "operator", "enroot_sha256": pinned}
    read = site(write(tmp_path, good(), {"group_vars/all.yml": variables}))
    system = {"os_family": "Debian", "distribution": "Debian", "distribution_release": "trixie"}
    version = {"distribution_major_version": "13", "distribution_version": "13.1"}
    for host in read.names:
        raw = read.values.hosts[host]
        raw["ansible_facts"] = {**system, **version, "architecture": "x86_64"}
    for name, value in (("ansible_check_mode", False), ("ansible_play_hosts", read.names)):
        read.values.define(name, value)
    by_host = judged(tmp_path).roles
    here = Here({}, set(read.names), lambda name: False, lambda *_: {"stat": {"exists": False}})
    outcome = refusing(read, by_host, REPOSITORY / "roles", here)
    assert outcome.left == {host: [] for host in read.names}
    assert outcome.sentences == {host: [] for host in read.names}
    names = {str(question["number"]).partition(".")[0] for question in outcome.questions["gpu1"]}
    assert names >= {"enroot", "slurm", "nvidia_driver", "job_login", "cluster_users"}
