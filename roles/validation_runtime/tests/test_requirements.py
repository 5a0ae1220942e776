"""What pip is told, and what of it a node lacks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.tags import cpython_tags

from roles.validation_runtime.plugin_utils import requirements, sources

HASHED = """\
# made by pip-compile --generate-hashes
--index-url https://mirror.example.org/simple
torch==2.13.0+cu126 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via -r requirements.in
numpy==2.4.6 --hash=sha256:cc  # one line
colorama==0.4.6 ; sys_platform == "win32" \\
    --hash=sha256:dd
"""


def listed(**versions: str) -> str:
    return json.dumps([{"name": name, "version": text} for name, text in versions.items()])


def test_a_file_says_what_without_how():
    assert list(requirements.entries(HASHED)) == [
        "torch==2.13.0+cu126",
        "numpy==2.4.6",
        'colorama==0.4.6 ; sys_platform == "win32"',
    ]


@pytest.mark.parametrize(
    ("entry", "pin"),
    [
        ("torch==2.13.0", requirements.Pin("2.13.0")),
        ("torch == 2.13.0+cu126", requirements.Pin("2.13.0", "cu126")),
        ("torch==2.*", None),
        ("torch>=2.11,<3", None),
        ("torch", None),
        ("torch @ https://example.org/torch.whl", None),
    ],
)
def test_only_an_equals_sign_holds_a_version_still(entry, pin):
    assert requirements.pin(entry) == pin


def test_torch_gets_its_build_and_nothing_else_does():
    lines = ["numpy==2.13.0", "Torch==2.13.0", "torchvision==0.28.0"]
    assert requirements.with_build(lines, "cu126") == [
        "numpy==2.13.0",
        "Torch==2.13.0+cu126",
        "torchvision==0.28.0",
    ]
    assert requirements.with_build(lines, "") == lines
    assert requirements.with_build(["torch==2.13.0+cu130"], "cu130") == ["torch==2.13.0+cu130"]
    assert requirements.with_build(["numpy==1.0"], "cu130") == ["numpy==1.0"]


@pytest.mark.parametrize(
    ("text", "have", "lacking"),
    [
        ("torch==2.13.0+cu126\n", {"torch": "2.13.0+cu126"}, []),
        ("torch==2.13.0+cu126\n", {"torch": "2.13.0+cu130"}, ["torch==2.13.0+cu126"]),
        ("torch==2.13.0+cu126\n", {"torch": "2.13.0"}, ["torch==2.13.0+cu126"]),
        ("torch==2.13.0\n", {"torch": "2.13.0+cpu"}, []),
        ("torch==2.13.0\n", {"torch": "2.14.0"}, ["torch==2.13.0"]),
        ("nvidia-ml-py==13.615.71\n", {"nvidia_ml_py": "13.615.71"}, []),
        ("numpy\n", {}, ["numpy"]),
        ("x==1 ; sys_platform == 'win32'\n", {}, []),
        (HASHED, {"torch": "2.13.0+cu126", "numpy": "2.4.6"}, []),
    ],
)
def test_what_an_environment_lacks(text, have, lacking):
    assert requirements.lacking(text, listed(**have)) == lacking


@given(st.one_of(st.text(), st.sampled_from(["", "{}", "[1]", "null", '[{"name": 1}]', "[{}]"])))
def test_an_answer_that_is_none_is_an_environment_with_nothing(output):
    assert requirements.lacking("torch==2.13.0\n", output) == ["torch==2.13.0"]


def test_the_index_of_torchs_builds_stands_beside_the_others():
    address = "https://site/whl/{build}"
    more = ["--extra-index-url", "https://site/whl/cu126"]
    assert sources.indexes("", "", address, "cu126") == more
    both = ["--index-url", "https://a", "--extra-index-url", "https://b"]
    assert sources.indexes("https://a", "https://b", "", "cu126") == both
    assert sources.indexes("", "", address, "") == []


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_wheels_for_another_kind_of_node(machine):
    options = sources.platform(machine, "3.12")
    platforms = [options[at + 1] for at, word in enumerate(options) if word == "--platform"]
    assert f"manylinux_2_28_{machine}" in platforms  # torch's own
    assert not any("musl" in tag or "2_36" in tag for tag in platforms)
    tags = {str(tag) for tag in cpython_tags((3, 12), platforms=platforms)}
    assert f"cp312-cp312-manylinux_2_28_{machine}" in tags


def test_kinds_of_nodes_have_folders_of_their_own():
    names = {
        sources.kind(machine, python, text, index)
        for machine in ("x86_64", "aarch64")
        for python in ("3.11", "3.12")
        for text in ("torch==2.13.0+cu126\n", "torch==2.13.0+cu130\n")
        for index in ([], ["--index-url", "https://a"])
    }
    assert len(names) == 16
    assert sources.kind("aarch64", "3.12", "x", []).startswith("aarch64-python3.12-")
