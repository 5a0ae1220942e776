"""A site's own playbooks between the layers: which belong where, then real runs of a layer."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from playbooks.callback_plugins.hooks import known_layers
from playbooks.plugin_utils import hooks
from tests.conftest import REPOSITORY
from tests.processes import ANSIBLE_PLAYBOOK, passes, run

# A layer that has no host here, so nothing of it runs.
LAYER = REPOSITORY / "playbooks/portal.yml"
HOSTS = yaml.safe_dump(
    {
        "all": {
            "vars": {
                "ansible_connection": "local",
                "ansible_host": "192.0.2.1",
                "site_word": "ours",
            },
            "children": {"slurm_cluster": {"hosts": {"ctl1": None}}},
        }
    }
)


def play(name: str, task: dict[str, object]) -> list[dict[str, object]]:
    tasks = [{"name": "Speak", **task}]
    return [{"name": name, "hosts": "slurm_cluster", "gather_facts": False, "tasks": tasks}]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/hosts.yml").write_text(HOSTS)
    return tmp_path / "site"


def write(folder: Path, name: str, text: object) -> None:
    path = folder.with_name(f"{folder.name}.hooks") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(text))


def settings() -> dict[str, str]:
    own = {"ANSIBLE_CONFIG": str(REPOSITORY / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return os.environ | own | {"ANSIBLE_STDOUT_CALLBACK": "default"}


def test_layers_are_those_of_the_whole_and_each_has_two_places() -> None:
    layers = known_layers()
    assert {"nodes", "slurm", "monitoring"} <= set(layers)
    assert not hooks.NO_LAYERS & set(layers)
    plays = ["", "nodes", "nodes", "storage", "", "slurm"]
    assert list(hooks.places(plays)) == [
        (1, "before-nodes"),
        (3, "after-nodes"),
        (3, "before-storage"),
        (4, "after-storage"),
        (5, "before-slurm"),
        (6, "after-slurm"),
    ]
    assert list(hooks.places([])) == list(hooks.places([""])) == []


def test_they_lie_beside_the_inventory_of_the_run(tmp_path: Path) -> None:
    for name in ("site.hooks", "other.hooks", "site"):
        (tmp_path / name).mkdir()
    assert hooks.folder([str(tmp_path / "site")]) == tmp_path / "site.hooks"
    assert hooks.folder(["ctl1,gpu1", str(tmp_path / "else")]) is None
    with pytest.raises(hooks.HookError, match="both have playbooks of the site"):
        hooks.folder([str(tmp_path / "site"), str(tmp_path / "other")])


@pytest.mark.parametrize("name", ["before-slrum.yml", "slurm.yml", "before-preflight.yml"])
def test_a_file_that_would_never_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(hooks.HookError, match=r"would never run; name it before-LAYER\.yml or"):
        hooks.files(tmp_path, ["nodes", "slurm"])


def test_two_files_for_one_place_are_refused_and_others_may_lie_beside(tmp_path: Path) -> None:
    for name in ("before-slurm.yml", "README.md", "roles/a.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert hooks.files(tmp_path, ["slurm"]) == {"before-slurm": tmp_path / "before-slurm.yml"}
    (tmp_path / "before-slurm.yaml").touch()
    with pytest.raises(hooks.HookError, match="are for one place"):
        hooks.files(tmp_path, ["slurm"])


def test_a_layer_that_is_run_has_them_before_and_after_it(site: Path) -> None:
    """With variables of ours and of the site, and with roles of the site, found in both ways."""
    shown = {"msg": "{{ site_word }} {{ cluster_name }} {{ playbook_dir | basename }}"}
    write(site, "before-portal.yml", play("First", {"ansible.builtin.debug": shown}))
    write(site, "after-portal.yml", play("Last", {"ansible.builtin.include_role": {"name": "own"}}))
    write(site, "before-slurm.yml", play("Never", {"ansible.builtin.debug": {"msg": "never"}}))
    task = {"name": "Own", "ansible.builtin.debug": {"msg": "{{ lookup('file', 'word') }}"}}
    write(site, "roles/own/tasks/main.yml", [task])
    write(site, "roles/own/files/word", "from the role")
    output = passes(
        str(ANSIBLE_PLAYBOOK), "-i", str(site), str(LAYER), env=settings(), cwd=site.parent
    )
    plays = re.findall(r"^PLAY \[(.*?)\]", output, re.MULTILINE)
    first, last = plays.index("First"), plays.index("Last")
    assert last > first + 1
    assert plays[last + 1 :] == []
    assert "ours plumbline playbooks" in output
    assert "from the role" in output
    assert "never" not in output


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("before-portl.yml", [], "would never run"),
        ("before-portal.yml", [{"hosts": "all", "taks": []}], "taks"),
        ("after-portal.yml", [], "must contain at least one play"),
    ],
)
def test_what_cannot_be_one_ends_the_run_before_any_play(
    site: Path, name: str, text: object, words: str
) -> None:
    write(site, name, text)
    done = run(str(ANSIBLE_PLAYBOOK), "-i", str(site), str(LAYER), env=settings(), cwd=site.parent)
    assert done.returncode == 4
    assert words in done.stdout + done.stderr
    assert "PLAY [" not in done.stdout
