"""Which packages, by driver, source and devices."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from roles.nvidia_fabric.plugin_utils import software

VARS = Path(__file__).resolve().parents[1] / "vars/main.yml"


def trusted(value):
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: trusted(item) for key, item in value.items()}
    return [trusted(item) for item in value] if isinstance(value, list) else value


def table(source, architecture="x86_64"):
    """The role's own table, as Ansible reads it."""
    variables = trusted(yaml.safe_load(VARS.read_text()))
    variables["ansible_facts"] = {"architecture": architecture}
    templar = Templar(loader=DataLoader(), variables=variables)
    return templar.template(trust_as_template("{{ __nvidia_fabric_sources." + source + " }}"))


@pytest.mark.parametrize(
    ("source", "driver", "needed", "pinned", "free"),
    [
        ("cuda_repo", "580.95.05", ["switches"], ["nvidia-fabricmanager", "libnvidia-nscq"], []),
        ("cuda_repo", "610.57.04", ["imex"], ["nvidia-imex"], []),
        (
            "cuda_repo",
            "570.211.01",
            ["switches", "nvlink5"],
            ["nvidia-fabricmanager-570", "libnvidia-nscq-570", "libnvsdm-570"],
            ["nvlsm", "infiniband-diags"],
        ),
        (
            "cuda_repo",
            "580.95.05",
            ["switches", "nvlink5"],
            ["nvidia-fabricmanager", "libnvidia-nscq", "libnvsdm"],
            ["nvlsm", "infiniband-diags"],
        ),
        (
            "ubuntu",
            "580.95.05",
            ["switches", "nvlink5"],
            ["nvidia-fabricmanager-580", "libnvidia-nscq-580"],
            ["nvlsm", "infiniband-diags"],
        ),
        (
            "ubuntu",
            "595.71.05",
            ["switches"],
            ["nvidia-fabricmanager-595", "libnvidia-nscq-595"],
            [],
        ),
        ("ubuntu", "580.159.03", ["imex"], ["nvidia-imex-580"], []),
        ("preinstalled", "580.95.05", ["switches", "imex"], [], []),
        ("none", "580.95.05", ["switches"], [], []),
        ("cuda_repo", "580.95.05", [], [], []),
        ("cuda_repo", "", ["switches"], [], []),
    ],
)
def test_names_by_source_and_branch(source, driver, needed, pinned, free):
    assert software.packages(driver, needed, table(source)) == {"pinned": pinned, "free": free}


@pytest.mark.parametrize(
    ("switches", "bridges", "imex", "needed"),
    [
        (0, 0, False, []),
        (4, 0, False, ["switches"]),
        (0, 2, False, ["switches", "nvlink5"]),
        (0, 0, True, ["imex"]),
    ],
)
def test_what_is_needed_by_the_devices_that_are_there(switches, bridges, imex, needed):
    assert software.parts({"switches": switches, "bridges": bridges}, imex) == needed


def test_libnvsdm_is_for_x86_64_alone():
    of_arm = software.packages("580.95.05", ["nvlink5"], table("cuda_repo", "aarch64"))
    assert of_arm == {"pinned": [], "free": ["nvlsm", "infiniband-diags"]}


@pytest.mark.parametrize(
    ("name", "replaced"),
    [
        (
            "nvidia-fabricmanager",
            ["cuda-drivers-fabricmanager-570", "nvidia-fabricmanager-570"],
        ),
        ("nvidia-fabricmanager-570", []),
        (
            "nvidia-fabricmanager-580",
            ["cuda-drivers-fabricmanager-570", "nvidia-fabricmanager-570"],
        ),
        ("libnvidia-nscq", ["libnvidia-nscq-570"]),
        ("nvidia-imex-580", ["nvidia-imex"]),
        ("libnvsdm", []),
    ],
)
def test_what_another_branch_calls_it_is_replaced(name, replaced):
    installed = [
        "cuda-drivers-fabricmanager-570",
        "libnvidia-nscq-570",
        "nvidia-fabricmanager-570",
        "nvidia-fabricmanager-dev-570",
        "nvidia-imex",
    ]
    assert software.replaced(installed, name) == replaced
