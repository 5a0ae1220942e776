"""What a deployment would download, worked out from the tasks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from playbooks.filter_plugins.mirror import mirror_sources
from playbooks.plugin_utils.downloads import DECLARED, MODULES
from playbooks.plugin_utils.systems import NoSystemError, facts_of
from tests import ansible_processes
from tests.conftest import REPOSITORY

Needs = dict[str, Any]

HOSTS = """
all:
  children:
    slurm_cluster:
      children:
        slurm_controller: {hosts: {ctl1: {ansible_host: 192.0.2.1}}}
        slurm_database: {hosts: {ctl1: }}
        slurm_login: {hosts: {login1: {ansible_host: 192.0.2.2}}}
        portal: {hosts: {login1: }}
        slurm_compute:
          hosts: {n1: {ansible_host: 192.0.2.3}, n2: {ansible_host: 192.0.2.4}}
          vars:
            node_cpus: {sockets: 1, cores_per_socket: 2, threads_per_core: 1}
            node_memory_mb: 1000
            fabric: ethernet
            node_gpus: {model: none, count: 0}
"""


def needs(ask, tmp_path: Path, systems: dict[str, str], more: str = "", **also: object) -> Needs:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(HOSTS + more)
    file = tmp_path / "needs.json"
    said = json.dumps({"mirror_file": str(file), "mirror_systems": systems, **also})
    run = ask(inventory, said)
    if also.get("fails"):
        assert run.returncode != 0
        assert not file.exists()
        return {"said": re.sub(r"\s+", " ", run.stdout)}
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    read: Needs = json.loads(file.read_text())
    return read


@pytest.fixture
def ask():
    def run(inventory: Path, said: str):
        playbook = str(REPOSITORY / "playbooks/mirror.yml")
        return ansible_processes.run("-i", str(inventory), "-e", said, playbook)

    return run


def kind_of(document: Needs, host: str) -> Needs:
    kind: Needs
    (kind,) = [kind for kind in document["kinds"] if host in kind["hosts"]]
    return kind


def names(kind: Needs) -> set[str]:
    return {name for wanted in kind["packages"] for name in wanted["names"]}


# --- all tasks ------------------------------------------------------------------------------------

# A command that brings something from elsewhere.
DOWNLOADS = re.compile(
    r"apt-get[^|;\n]* (install|download|source|build-dep)\b|'apt-get', 'install'|"
    r"pip'?,? '?(install|download)\b|\b(curl|wget|git clone)\b"
)


def tasks(document: object) -> list[Needs]:
    found = []
    for task in document if isinstance(document, list) else []:
        if isinstance(task, dict):
            found.append(task)
            for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
                found += tasks(task.get(part))
    return found


def files() -> list[Path]:
    return [
        *sorted((REPOSITORY / "roles").glob("*/tasks/*.yml")),
        *sorted((REPOSITORY / "roles").glob("*/handlers/*.yml")),
        *sorted((REPOSITORY / "playbooks").glob("*.yml")),
        *sorted((REPOSITORY / "playbooks/tasks").glob("*.yml")),
    ]


def test_every_command_that_downloads_declares_what():
    seen = 0
    for file in files():
        for task in tasks(yaml.safe_load(file.read_text())):
            said = [
                str(task[key])
                for key in ("ansible.builtin.shell", "command", "ansible.builtin.pip")
                if key in task
            ]
            if "ansible.builtin.pip" in task or any(DOWNLOADS.search(text) for text in said):
                # The control node collects for itself where a site tells it to.
                if task.get("delegate_to") == "localhost":
                    continue
                seen += 1
                assert DECLARED in (task.get("vars") or {}), f"{file}: {task['name']}"
    assert seen >= 6


def test_no_task_downloads_with_a_module_that_is_not_known():
    """A module of Ansible's that brings something, in a new task, has to be known here first."""
    others = {"ansible.builtin.get_url", "ansible.builtin.git", "ansible.builtin.apt_key"}
    others |= {"ansible.builtin.apt_repository", "ansible.builtin.package"}
    others |= {"ansible.builtin.subversion", "ansible.builtin.deb822_repository"}
    for file in files():
        for task in tasks(yaml.safe_load(file.read_text())):
            assert not others & set(task), f"{file}: {task['name']}"


def test_handlers_download_nothing():
    for file in (REPOSITORY / "roles").glob("*/handlers/*.yml"):
        for task in tasks(yaml.safe_load(file.read_text())):
            assert not {*MODULES} & set(task), f"{file}: {task['name']}"


# --- a cluster ------------------------------------------------------------------------------------


SITE = """
  vars:
    validation_runtime_source: none
    cluster_mirror: http://192.0.2.9:8480
    cluster_package_repositories:
      - name: site
        uris: [https://apt.example.org/deb]
        suites: [stable]
        components: [main]
        key_url: https://apt.example.org/key.asc
        key_fingerprint: "0123456789ABCDEF0123456789ABCDEF01234567"
"""


@pytest.mark.heavy("reads all tasks of all roles for a cluster")
def test_each_host_needs_what_its_roles_install_from_where_it_is_published(ask, tmp_path):
    lock = tmp_path / "tools.txt"
    lock.write_text(f"six==1.17.0 --hash=sha256:{'a' * 64}\n")
    library = f"[{{name: tools, version: '1', python: python3.11, requirements: {lock}}}]"
    image = "{name: torch, image: 'nvcr.io#nvidia/pytorch:1', licence: x, description: y}"
    old = "{name: old, image: 'old:1', state: absent}"
    images = f"[{image}, {old}]"
    site = f"{SITE}    user_libraries_published: {library}\n"
    site += f"    container_images_root: /images\n    container_images_published: {images}\n"
    document = needs(ask, tmp_path, {"all": "debian13", "n*": "ubuntu2404"}, site)
    controller, login = kind_of(document, "ctl1"), kind_of(document, "login1")
    node = kind_of(document, "n1")
    importer, other = node, kind_of(document, "n2")
    assert names(importer) == names(other)
    assert {"slurmctld", "slurmdbd", "mariadb-server", "chrony"} <= names(controller)
    assert "slurmd" in names(node)
    assert "slurmd" not in names(login)
    assert node["system"]["distribution"] == "Ubuntu"
    assert login["system"]["distribution_release"] == "trixie"
    assert login["system"]["python"] == "3.13"
    # The portal's environment, with the hashes that are pinned.
    assert any("jupyterhub" in wheels["requirements"] for wheels in login["wheels"])
    assert all("--hash=sha256:" in wheels["requirements"] for wheels in login["wheels"])
    assert controller["wheels"] == []
    # Users' libraries, for the Python that they are declared with.
    tools = {"requirements": lock.read_text(), "options": ["--require-hashes"], "python": "3.11"}
    assert tools in node["wheels"]
    assert tools in login["wheels"]
    assert importer["images"] == [{"image": "nvcr.io#nvidia/pytorch:1", "digest": ""}]
    assert other["images"] == controller["images"] == []
    # Nodes that have a mirror need the same.
    (repository,) = node["repositories"]
    assert repository["uris"] == ["https://apt.example.org/deb"]
    assert repository["key_url"] == "https://apt.example.org/key.asc"
    assert "192.0.2.9" not in json.dumps(document)


PLAY = """
- name: Install something
  hosts: slurm_compute
  tasks:
    - name: Ask
      ansible.builtin.command: "true"
      register: asked
    - name: Undecided, so that it counts
      distribution_packages: {name: [one]}
      when: asked.stdout | default('') == 'yes'
    - name: Decided, so that it does not
      distribution_packages: {name: [two]}
      when: inventory_hostname == 'n2' and asked is defined
    - name: Not this one
      distribution_packages: {name: [three]}
      when: "'slurm_login' in group_names"
    - name: For each
      ansible.builtin.include_tasks: each.yml
      loop: [four, five]
      loop_control: {loop_var: each}
    - name: By a command
      ansible.builtin.shell: apt-get install six
      vars: {__downloads: {packages: [six], own: ["s*"]}}
    - name: The last
      distribution_packages: {name: LAST}
"""
EACH = """
- name: One of them
  release_file:
    url: "http://example.org/{{ each }}.deb"
    sha256: "{{ 'a' * 64 }}"
    dest: "/x/{{ each }}"
- name: Install it
  ansible.builtin.apt: {deb: "/x/{{ each }}"}
"""


def play(tmp_path: Path, last: str) -> list[str]:
    (tmp_path / "play.yml").write_text(PLAY.replace("LAST", last))
    (tmp_path / "each.yml").write_text(EACH)
    return [str(tmp_path / "play.yml")]


@pytest.mark.long
def test_conditions_count_unless_they_are_known_not_to_hold(ask, tmp_path):
    playbooks = play(tmp_path, "[seven]")
    document = needs(ask, tmp_path, {"all": "debian13"}, mirror_playbooks=playbooks)
    first, second = kind_of(document, "n1"), kind_of(document, "n2")
    assert names(first) == {"one", "six", "seven"}
    assert names(second) == {"one", "two", "six", "seven"}
    assert names(kind_of(document, "login1")) == set()
    assert [file["url"] for file in first["files"]] == [
        f"http://example.org/{name}.deb" for name in ("four", "five")
    ]
    assert first["debs"] == [["a" * 64]]
    assert first["own"] == ["s*"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("last", "why"),
    [
        # A default is no answer: nobody knows whether it will be the one.
        ('"{{ asked.stdout_lines | default([]) }}"', "only a run knows asked"),
        ('["linux-headers-{{ ansible_facts.kernel }}"]', "only a run knows ansible_facts.kernel"),
    ],
)
def test_what_cannot_be_said_is_told_and_nothing_is_written(ask, tmp_path, last, why):
    playbooks = play(tmp_path, last)
    failed = needs(ask, tmp_path, {"all": "debian13"}, mirror_playbooks=playbooks, fails=True)
    assert f"The last: what it downloads on n1 cannot be said: {why}." in failed["said"]


def test_a_system_that_is_not_known_is_refused():
    with pytest.raises(NoSystemError, match="there is no system debian11; name one of debian12"):
        facts_of("debian11")
    with pytest.raises(NoSystemError, match="there is no system debian13/riscv64"):
        facts_of("debian13/riscv64")


def test_sources_of_a_mirror_are_signed_by_the_distribution():
    text = mirror_sources(facts_of("ubuntu2404/aarch64"))
    assert "URIs: http://ports.ubuntu.com/ubuntu-ports\n" in text
    assert "Suites: noble-security\n" in text
    assert text.count("Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg") == 2
    assert text.count("Check-Valid-Until: no") == 2
