"""The action `nvml`: the validation's reader and pynvml, sent to a node and run there.

The node is this machine over Ansible's local connection, or a bare Python; the driver's library is
the stand-in for NVML.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from playbooks.action_plugins import nvml as action
from playbooks.plugin_utils import node_reader
from tests.standins.nvml import library


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
def look(ask):
    return lambda environment, *options, **arguments: ask(
        {"nvml": arguments, "environment": environment}, *options
    )


def test_the_node_is_asked_also_in_check_mode(node, look):
    result = look(node(), "--check", questions=["name", "mig"])
    assert (result["error"], result["driver"], result["count"]) == (None, "580.82.07", 2)
    assert [gpu["index"] for gpu in result["gpus"]] == [0, 1]
    values = {"name": "NVIDIA H100 80GB HBM3", "mig": "off"}
    assert [gpu["values"] for gpu in result["gpus"]] == [values, values]
    assert not result["changed"]


def test_a_gpu_that_is_lost_is_named_and_the_others_answer(node, look):
    result = look(node("gpu.1.error.* = GPU_IS_LOST"))
    assert [gpu["error"] for gpu in result["gpus"]] == [None, "NVML: GPU is lost (code 15)"]
    assert result["gpus"][0]["values"]["name"] == "NVIDIA H100 80GB HBM3"


def test_a_driver_that_hangs_costs_no_more_than_the_time_limit(node, look):
    result = look(node("delay_ms.nvmlInit = forever"), timeout=5)
    assert result["error"] == "NVML did not answer within 5 s when it was asked for nvmlInit"
    assert result["gpus"] == []


def test_no_driver_is_an_answer(look):
    result = look({})
    assert not result["failed"]
    assert result["error"].startswith("NVML: NVML Shared Library Not Found")
    assert result["count"] is None


def test_a_question_that_nobody_knows_is_refused(look):
    assert "questions must be one or more of" in look({}, questions=["nam"])["msg"]


def test_a_node_without_python_is_told_and_no_answer(look):
    result = look({"PATH": "/nowhere"})
    assert result["failed"]
    assert result["msg"].startswith("the program that asks NVML did not run on this node")
    assert "python3" in result["msg"].splitlines()[-1]


def test_a_bare_python_runs_it(node, tmp_path):
    """Nothing of the node's own packages is needed, nor of this checkout."""
    folder = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    done = subprocess.run(
        ["sh", "-c", node_reader.command(["20", "name"])],
        input=node_reader.archive(action.READER),
        env={**os.environ, **node(), "PATH": f"{folder}/bin:/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        check=True,
    )
    answer = action.READER.answer(done.stdout.decode())
    assert answer is not None
    assert answer["count"] == 2


def test_the_same_checkout_gives_the_same_bytes():
    assert action.READER.archive() == action.READER.archive()


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ('welcome\n{"plumbline_nvml": {"count": 1}}\nbye\n', {"count": 1}),
        ('{"plumbline_nvml": {"cou', None),
        ('{"count": 1}\n', None),
        ("", None),
    ],
)
def test_only_the_readers_own_line_is_an_answer(output, answer):
    assert action.READER.answer(output) == answer
