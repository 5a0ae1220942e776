"""The action `nvml`: the validation's reader and pynvml, sent to a node and run there.

The node is this machine over Ansible's local connection, or a bare Python; the driver's library is
the stand-in for NVML.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from playbooks.plugin_utils import node_reader
from tests.standins.nvml import library

ROOT = Path(__file__).resolve().parent.parent
spec = spec_from_file_location("nvml_action", ROOT / "playbooks/action_plugins/nvml.py")
assert spec is not None and spec.loader is not None  # noqa: PT018 - for mypy
action = sys.modules["nvml_action"] = module_from_spec(spec)
spec.loader.exec_module(action)


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    """The library's path. Without a compiler these tests fail: they would prove nothing."""
    return library.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def node(fake, tmp_path):
    """The environment of a node that is described by these lines below healthy ones."""

    def described(*faults, count=2):
        description = tmp_path / "description"
        description.write_text(library.describe(count, "h100_sxm", *faults))
        return dict(library.environment(fake, description))

    return described


@pytest.fixture
def ask(tmp_path):
    """Asks through ansible-playbook, as a role does; the task's result."""

    def run(environment, *options, **arguments):
        task = {"nvml": arguments, "environment": environment, "register": "answer"}
        show = {"ansible.builtin.copy": {"content": "{{ answer }}", "dest": str(tmp_path / "out")}}
        tasks = [{"ignore_errors": True, **task}, {"check_mode": False, **show}]
        play = [{"hosts": "localhost", "connection": "local", "gather_facts": False}]
        playbook = tmp_path / "play.yml"
        playbook.write_text(json.dumps([play[0] | {"tasks": tasks}]))
        python = f"ansible_python_interpreter={sys.executable}"
        command = ["ansible-playbook", "-i", "localhost,", str(playbook), "-e", python, *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads((tmp_path / "out").read_text(encoding="utf-8"))

    return run


def test_the_node_is_asked_also_in_check_mode(node, ask):
    result = ask(node(), "--check", questions=["name", "mig"])
    assert (result["error"], result["driver"], result["count"]) == (None, "580.82.07", 2)
    assert [gpu["index"] for gpu in result["gpus"]] == [0, 1]
    values = {"name": "NVIDIA H100 80GB HBM3", "mig": "off"}
    assert [gpu["values"] for gpu in result["gpus"]] == [values, values]
    assert not result["changed"]


def test_a_gpu_that_is_lost_is_named_and_the_others_answer(node, ask):
    result = ask(node("gpu.1.error.* = GPU_IS_LOST"))
    assert [gpu["error"] for gpu in result["gpus"]] == [None, "NVML: GPU is lost (code 15)"]
    assert result["gpus"][0]["values"]["name"] == "NVIDIA H100 80GB HBM3"


def test_a_driver_that_hangs_costs_no_more_than_the_time_limit(node, ask):
    result = ask(node("delay_ms.nvmlInit = forever"), timeout=1)
    assert result["error"] == "NVML did not answer within 1 s when it was asked for nvmlInit"
    assert result["gpus"] == []


def test_no_driver_is_an_answer(ask):
    result = ask({})
    assert not result["failed"]
    assert result["error"].startswith("NVML: NVML Shared Library Not Found")
    assert result["count"] is None


def test_a_question_that_nobody_knows_is_refused(ask):
    assert "questions must be one or more of" in ask({}, questions=["nam"])["msg"]


def test_a_node_without_python_is_told_and_no_answer(ask):
    result = ask({"PATH": "/nowhere"})
    assert result["failed"]
    assert result["msg"].startswith("the program that asks NVML did not run on this node")
    assert "python3" in result["msg"].splitlines()[-1]


def test_a_bare_python_runs_it(node, tmp_path):
    """Nothing of the node's own packages is needed, nor of this checkout."""
    folder = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    done = subprocess.run(
        ["sh", "-c", node_reader.command(["20", "name"])],
        input=action.archive(),
        env={**os.environ, **node(), "PATH": f"{folder}/bin:/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        check=True,
    )
    assert action.READER.answer(done.stdout.decode())["count"] == 2


def test_the_same_checkout_gives_the_same_bytes():
    first = action.archive()
    action.archive.cache_clear()
    assert action.archive() == first


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('welcome\n{"plumbline_nvml": {"count": 1}}\nbye\n', {"count": 1}),
        ('{"plumbline_nvml": {"cou', None),
        ('{"count": 1}\n', None),
        ("", None),
    ],
)
def test_only_the_readers_own_line_is_an_answer(said, found):
    assert action.READER.answer(said) == found
