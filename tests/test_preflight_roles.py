"""Roles bring their own refusals: found in the playbook, judged without a host where possible."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from playbooks.plugin_utils import roles
from playbooks.plugin_utils.refusing import Here, Refusals, refusing
from playbooks.plugin_utils.site import Site
from tests.standins.inventories import REPOSITORY, good, judged, site, write

REFUSE = """
- name: Refuse | The colour is one that there is
  ansible.builtin.assert:
    that: paint_colour in __paint_colours
    fail_msg: paint_colour is {{ paint_colour }}; set it to one of {{ __paint_colours | join }}.

- name: Refuse | Only where it is painted
  when: paint_layers | int > 0
  vars: {__paint_most: 3}
  block:
    - name: Refuse | Not too much
      ansible.builtin.assert:
        that: [paint_layers is integer, paint_layers <= __paint_most]
        fail_msg: paint_layers is {{ paint_layers }}, more than {{ __paint_most }}.

- name: Refuse | Look at the wall
  ansible.builtin.command: {cmd: wall}
  register: __paint_wall

- name: Refuse | The wall is dry
  ansible.builtin.assert:
    that: __paint_wall.rc == 0
    fail_msg: wet.

- name: Refuse | The system is one that has paint
  ansible.builtin.assert:
    that: ansible_facts['distribution'] == 'Debian'
    fail_msg: no paint.
"""


@pytest.fixture
def shop(tmp_path: Path) -> dict[str, Path]:
    """A role with refusals, one without, and playbooks that give them to hosts."""
    files: dict[str, Any] = {
        "roles/paint/tasks/refuse.yml": REFUSE,
        "roles/paint/defaults/main.yml": {"paint_colour": "red", "paint_layers": 1},
        "roles/paint/vars/main.yml": {"__paint_colours": ["red", "blue"]},
        "roles/paint/meta/argument_specs.yml": {
            "argument_specs": {"main": {"options": {"paint_colour": {"type": "str"}}}}
        },
        "roles/quiet/tasks/main.yml": [],
        "site.yml": [
            {"import_playbook": "layer.yml"},
            {"ansible.builtin.import_playbook": "b.yml"},
        ],
        "tasks/one.yml": [{"import_tasks": "two.yml"}, {"include_tasks": "{{ item }}.yml"}],
        "tasks/two.yml": [{"include_role": {"name": "paint"}}],
        "layer.yml": [{"hosts": "slurm_compute:!gpu2", "roles": [{"role": "paint"}, "quiet"]}],
        "b.yml": [
            {
                "hosts": ["slurm_login", "slurm_controller"],
                "tasks": [
                    {"block": [{"ansible.builtin.include_tasks": {"file": "tasks/one.yml"}}]},
                    {"include_role": {"name": "quiet", "tasks_from": "other"}},
                    {"ansible.builtin.include_role": {"name": "{{ item }}"}},
                ],
            }
        ],
    }
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return {"roles": tmp_path / "roles", "playbook": tmp_path / "site.yml"}


def plain(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_the_playbook_says_which_role_goes_where(shop: dict[str, Path]) -> None:
    pairs = roles.roles_of(shop["playbook"], plain)
    assert list(pairs) == [
        ("slurm_compute:!gpu2", "paint"),
        ("slurm_compute:!gpu2", "quiet"),
        ("slurm_login:slurm_controller", "paint"),
    ]


def test_our_playbook_gives_every_role_to_someone() -> None:
    playbook = REPOSITORY / "playbooks/slurm-cluster.yml"
    names = {role for _, role in roles.roles_of(playbook, plain)}
    assert names >= {"node_base", "munge", "nvidia_driver", "enroot", "slurm", "slurm_database"}


def test_a_good_inventory_is_refused_nothing(tmp_path: Path, shop: dict[str, Path]) -> None:
    judgement = judged(write(tmp_path / "i", good()), **shop)
    assert judgement.sentences == []
    painted = {host: ["paint"] for host in ("ctl1", "login1", "gpu1")}
    assert judgement.roles == {**painted, "gpu2": []}


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"paint_colour": "grey"}, "paint_colour is grey; set it to one of redblue."),
        ({"paint_layers": 7}, "paint_layers is 7, more than 3."),
        ({"paint_colour": "{{ my_colour }}", "my_colour": "pink"}, "paint_colour is pink; set it"),
    ],
)
def test_a_role_refuses_without_a_host(
    tmp_path: Path, shop: dict[str, Path], variables: dict[str, Any], sentence: str
) -> None:
    [refusal] = judged(with_all(tmp_path / "i", **variables), **shop).sentences
    assert sentence in refusal


def role_refusals(read: Site, roles_of: dict[str, list[str]], folder: Path) -> Refusals:
    """What roles refuse by the facts of hosts, before these are asked for more."""

    def here(_: object, host: str) -> dict[str, Any]:
        pytest.fail(f"{host}: nothing is asked on the control node")

    return refusing(read, roles_of, folder, Here({}, set(roles_of), lambda _: False, here))


def test_facts_are_judged_for_all_hosts_at_once(tmp_path: Path, shop: dict[str, Path]) -> None:
    read = site(write(tmp_path / "i", good()))
    for host, system in (("gpu1", "Debian"), ("login1", "Slackware")):
        read.values.hosts[host]["ansible_facts"] = {"distribution": system}
    by_host = {"gpu1": ["paint"], "login1": ["paint"]}
    outcome = role_refusals(read, by_host, shop["roles"])
    assert outcome.sentences == {"gpu1": [], "login1": ["no paint."]}
    assert [question["arguments"] for question in outcome.questions["gpu1"]] == [{"cmd": "wall"}]
    assert outcome.left == {"gpu1": [], "login1": []}


def test_a_role_that_only_asserts_is_not_asked_on_the_host(
    tmp_path: Path, shop: dict[str, Path]
) -> None:
    tasks = [task for task in yaml.safe_load(REFUSE) if "wall" not in task["name"]]
    assert roles.only_asserts(tasks)
    (shop["roles"] / "paint/tasks/refuse.yml").write_text(yaml.safe_dump(tasks))
    judgement = judged(write(tmp_path / "i", good()), **shop)
    assert judgement.roles["gpu1"] == ["paint"]  # without facts it has more to say
    read = site(tmp_path / "i")
    read.values.hosts["gpu1"]["ansible_facts"] = {"distribution": "Debian"}
    assert role_refusals(read, {"gpu1": ["paint"]}, shop["roles"]) == Refusals(
        {"gpu1": []}, {}, {"gpu1": []}
    )
    (shop["roles"] / "paint/tasks/refuse.yml").write_text(yaml.safe_dump(tasks[:2]))
    assert judged(tmp_path / "i", **shop).roles["gpu1"] == []


def test_hosts_that_a_role_is_not_given_to_are_not_judged(
    tmp_path: Path, shop: dict[str, Path]
) -> None:
    files = {"host_vars/gpu2.yml": {"paint_layers": 7}}
    assert judged(write(tmp_path / "i", good(), files), **shop).sentences == []


def test_a_when_that_does_not_hold_refuses_nothing(tmp_path: Path, shop: dict[str, Path]) -> None:
    assert judged(with_all(tmp_path / "i", paint_layers=-5), **shop).sentences == []


def with_all(folder: Path, **variables: Any) -> Path:
    return write(folder, good(), {"group_vars/all.yml": variables})


def with_gpus(folder: Path, **variables: Any) -> Path:
    """The good inventory, whose GPU nodes have these variables."""
    return write(folder, good(), {"group_vars/gpu_h100.yml": variables})


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"validation_runtime_source": "distribution"}, "has no CUDA"),
        ({"nvidia_driver_branch": 58}, "nvidia_driver_branch is 58, which is no branch"),
        ({"nvidia_driver_branch": 0}, "declares no driver"),
        (
            {"nvidia_driver_branch": 570, "validation_runtime_torch_build": "cu130"},
            "does not run on h100_sxm with driver branch 570: cu130 needs 580 or newer",
        ),
        ({"validation_runtime_requirements_file": "/no/such"}, "/no/such, which is not a file"),
        (
            {
                "validation_runtime_wheel_folder": "/a",
                "validation_runtime_control_wheel_folder": "/b",
            },
            "are both set",
        ),
        ({"validation_runtime_control_wheel_folder": "~/wheels"}, "is ~/wheels; set it"),
        ({"nvidia_driver_branch": "580.95.05"}, "must be of type int, but is '580.95.05'"),
    ],
)
def test_a_torch_that_cannot_run_is_refused_without_a_host(
    tmp_path: Path, variables: dict[str, Any], sentence: str
) -> None:
    refusals = judged(with_gpus(tmp_path, **variables)).sentences
    assert [refusal for refusal in refusals if sentence in refusal], refusals


@pytest.mark.parametrize(
    ("machine", "refused"),
    [("x86_64", []), ("aarch64", []), ("riscv64", ["not built for riscv64"])],
)
def test_the_architecture_is_judged_when_the_host_has_told_it(
    tmp_path: Path, machine: str, refused: list[str]
) -> None:
    read = site(with_gpus(tmp_path, nvidia_driver_branch=570))
    facts = {
        "architecture": machine,
        "os_family": "Debian",
        "distribution": "Debian",
        "distribution_major_version": "12",
    }
    read.values.hosts["gpu1"]["ansible_facts"] = facts
    by_host = {"gpu1": ["validation_runtime"]}
    outcome = role_refusals(read, by_host, REPOSITORY / "roles")
    assert (outcome.questions, outcome.left) == ({}, {"gpu1": []})
    assert len(outcome.sentences["gpu1"]) == len(refused)
    assert all(words in outcome.sentences["gpu1"][0] for words in refused)


def test_faked_gpus_and_nodes_without_need_no_driver(tmp_path: Path) -> None:
    for gpus in ({"model": "virtual", "count": 2}, {"model": "none", "count": 0}):
        variables = {"node_gpus": gpus, "nvidia_driver_branch": 0}
        assert judged(with_gpus(tmp_path, **variables)).sentences == []


def test_two_users_with_one_uid_are_one_sentence_without_a_host(tmp_path: Path) -> None:
    users = [{"name": "ada", "uid": 2001, "gid": 2001}, {"name": "bob", "uid": 2001, "gid": 2002}]
    [refusal] = judged(with_all(tmp_path, cluster_users_list=users)).sentences
    assert "cluster_users: ada and bob have one uid, 2001; give each its own." in refusal


def test_users_log_in_where_they_submit_and_where_their_jobs_run(tmp_path: Path) -> None:
    read = site(write(tmp_path, good())).values
    for name in ("cluster_users_logins", "cluster_users_make_homes"):
        values = {host: read.value(host, name) for host in ("ctl1", "login1", "gpu1")}
        assert values == {"ctl1": False, "login1": True, "gpu1": True}


@pytest.mark.long
def test_the_cost_grows_with_the_nodes_and_not_with_their_square(tmp_path: Path) -> None:
    """Four times the nodes cost about four times as much; the square would be sixteen times."""

    def seconds(count: int) -> float:
        children = good()
        hosts = {f"n{n}": {"ansible_host": f"10.{n // 250}.1.{n % 250 + 1}"} for n in range(count)}
        children["slurm_compute"]["children"]["gpu_h100"]["hosts"] = hosts
        folder = write(tmp_path / str(count), children)
        begin = time.process_time()
        assert judged(folder).sentences == []
        return time.process_time() - begin

    seconds(10)  # what is read once
    assert seconds(1000) < 8 * seconds(250)


def test_raw_variables_are_read_whatever_the_limit(tmp_path: Path) -> None:
    read = site(write(tmp_path, good()))
    assert read.hosts("slurm_compute:!gpu2") == ["gpu1"]
    assert read.names == read.groups["slurm_cluster"]
