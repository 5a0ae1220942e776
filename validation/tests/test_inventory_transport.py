"""Scripts through ansible-runner, on this machine and on hosts that are not there."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from cluster.errors import EnvironmentProblem
from validation import run
from validation.errors import TransportError, Unreachable
from validation.tests.conftest import VIRTUAL, declare
from validation.transport import inventory
from validation.transport.inventory import Inventory

pytest.importorskip("ansible_runner")

HOSTS = f"""
login1 ansible_host=127.0.0.1 ansible_port=1 ansible_connection=ssh
login2 ansible_connection=local ansible_become=true ansible_become_method=nonexistent
login3 ansible_connection=local ansible_python_interpreter=/nowhere/python
[all:vars]
ansible_python_interpreter={sys.executable}
"""


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    monkeypatch.setenv("ANSIBLE_SSH_RETRIES", "0")
    path = tmp_path / "hosts"
    path.write_text(HOSTS)
    return str(path)


def test_a_script_runs_with_its_input_and_without_become(hosts):
    transport = Inventory([hosts], ["login2"])
    script = "read word; echo \"$word {{ 1 + 1 }} 'quoted'\" ; cat >&2; exit 3"
    done = transport.run(script, b"hello\nrest {{ x }}\n", timeout_s=60)
    assert (done.status, done.stdout) == (3, "hello {{ 1 + 1 }} 'quoted'")
    assert done.stderr == "rest {{ x }}"
    assert transport.via == "login2 (through the inventory)"


@pytest.mark.long
def test_a_user_of_its_own_is_become_and_what_to_do_if_not(tmp_path):
    program = tmp_path / "sudo"
    program.write_text('#!/bin/sh\necho "$@" >> "$0.words"; exec sh -c "$(eval echo \\${$#})"\n')
    program.chmod(0o755)
    path = tmp_path / "hosts"
    local = f"ansible_connection=local ansible_python_interpreter={sys.executable}"
    path.write_text(
        f"good {local} ansible_become_exe={program} ansible_pipelining=true\n"
        f"bad {local} ansible_become_exe=/bin/false-sudo ansible_pipelining=true\n"
    )
    transport = Inventory([str(path)], ["good"], "plumbline-validation")
    assert transport.run("echo here").stdout == "here"
    assert transport.via == "good (through the inventory as plumbline-validation)"
    assert "-u plumbline-validation" in (tmp_path / "sudo.words").read_text()
    with pytest.raises(TransportError, match="or set validation_user to an empty name to submit"):
        Inventory([str(path)], ["bad"], "plumbline-validation").run("true")


def test_the_next_host_is_used_when_the_first_is_unreachable(hosts):
    transport = Inventory([hosts], ["login1", "login2"])
    assert transport.run("echo here").stdout == "here"
    assert transport.via.startswith("login2")
    assert "login1 is unreachable" in transport.notes[0]
    assert "used login2 instead" in transport.notes[0]


def test_no_host_that_answers_is_one_sentence(hosts):
    with pytest.raises(Unreachable, match="no host to submit jobs from: login1 is unreachable"):
        Inventory([hosts], ["login1"]).run("true")


def test_a_host_that_the_inventory_does_not_have_is_told(hosts):
    with pytest.raises(Unreachable, match="login9 is not in the inventory"):
        Inventory([hosts], ["login9"]).run("true")


def test_a_module_that_cannot_run_is_no_answer(hosts):
    with pytest.raises(TransportError, match=r"login3: .*nowhere"):
        Inventory([hosts], ["login3"]).run("true")


@pytest.mark.long
def test_another_login_node_can_be_asked_when_the_first_is_gone(hosts):
    assert Inventory([hosts], ["login1"]).elsewhere() is None
    other = Inventory([hosts], ["login1", "login2"]).elsewhere()
    assert other is not None
    assert other.run("echo here").stdout == "here"


def test_folders_of_a_killed_run_go_with_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = tmp_path / f"plumbline-control-{os.getuid()}-999999999-x"
    running = tmp_path / f"plumbline-control-{os.getuid()}-{os.getppid()}-x"
    for folder in (gone, running):
        folder.mkdir()
    with inventory._folder() as mine:
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            [running.name, Path(mine).name]
        )


PLAYBOOK = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.copy:
        content: '%s'
        dest: "{{ declaration_file }}"
        mode: "0644"
"""


def test_the_declaration_comes_from_the_playbook(hosts, tmp_path, monkeypatch, capsys):
    path = tmp_path / "declaration.yml"
    path.write_text(PLAYBOOK % json.dumps(declare(*VIRTUAL)))
    monkeypatch.setattr(inventory, "DECLARE", path)
    assert run.main(["-i", hosts, "--dry-run"]) == 0
    assert "node-gpu2" in capsys.readouterr().out


def test_a_playbook_that_fails_says_why(hosts, tmp_path, monkeypatch):
    path = tmp_path / "declaration.yml"
    path.write_text(
        "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks:\n"
        "    - name: Refuse\n      ansible.builtin.fail: {msg: gpu_h200 is no group}\n"
    )
    monkeypatch.setattr(inventory, "DECLARE", path)
    with pytest.raises(EnvironmentProblem, match="task 'Refuse': gpu_h200 is no group"):
        inventory.declaration([hosts])


def test_a_missing_playbook_is_told(hosts, monkeypatch, tmp_path):
    monkeypatch.setattr(inventory, "DECLARE", tmp_path / "none.yml")
    with pytest.raises(EnvironmentProblem, match=r"none\.yml is missing"):
        inventory.declaration([hosts])


def test_a_broken_inventory_is_told(tmp_path):
    path = tmp_path / "hosts.yml"
    path.write_text("all: [")
    with pytest.raises(TransportError, match=r"cannot be read.*/hosts\.yml:1: is no YAML"):
        Inventory([str(path)], ["login1"]).run("true")
