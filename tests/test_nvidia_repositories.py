"""NVIDIA's repositories for each system, and what group_vars make of an inventory."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible.template import Templar, trust_as_template

from playbooks.filter_plugins import nvidia as filters
from playbooks.filter_plugins.mirror import mirror_repositories
from playbooks.plugin_utils import monitoring, nvidia
from roles.package_repositories.filter_plugins.package_repositories import problems
from tests.conftest import REPOSITORY

MIRRORS = {"cuda": "https://m/cuda/", "nvidia_container_toolkit": "https://m/toolkit"}


def facts(system: str = "Debian 12", machine: str = "x86_64") -> dict[str, str]:
    name, release = system.split()
    return {
        "distribution": name,
        "distribution_major_version": release,
        "architecture": machine,
    }


def repositories(*names: str, only: tuple[str, ...] = (), **of: Any) -> list[dict[str, Any]]:
    return nvidia.repositories(names, facts(**of), MIRRORS, only)


@pytest.mark.parametrize(
    ("system", "machine", "address", "key"),
    [
        ("Debian 12", "x86_64", "https://m/cuda/debian12/x86_64/", "3bf863cc"),
        ("Debian 13", "aarch64", "https://m/cuda/debian13/sbsa/", "8793F200"),
        ("Ubuntu 22", "x86_64", "https://m/cuda/ubuntu2204/x86_64/", "3bf863cc"),
        ("Ubuntu 24", "aarch64", "https://m/cuda/ubuntu2404/sbsa/", "3bf863cc"),
    ],
)
def test_the_cuda_repository_of_a_system(system: str, machine: str, address: str, key: str) -> None:
    (entry,) = repositories("cuda", system=system, machine=machine)
    assert entry["uris"] == [address]
    assert entry["key_url"] == f"{address}{key}.pub"
    # The name of a key is the end of its fingerprint.
    assert entry["key_fingerprint"].endswith(key.upper())
    assert entry["architectures"] == ["arm64" if machine == "aarch64" else "amd64"]


def test_the_toolkits_repository() -> None:
    (entry,) = repositories("nvidia_container_toolkit", machine="aarch64")
    assert entry["uris"] == ["https://m/toolkit/stable/deb/arm64/"]
    assert entry["key_url"] == "https://m/toolkit/gpgkey"


@pytest.mark.parametrize("system", nvidia.CUDA)
def test_the_role_takes_what_is_made(system: str) -> None:
    assert (
        problems(repositories("cuda", "nvidia_container_toolkit", system=system, only=("a*",)))
        == []
    )


def test_the_role_takes_grafanas() -> None:
    (entry,) = monitoring.grafana_repositories("https://m/grafana/")
    assert problems([entry]) == []
    assert entry["key_url"] == "https://m/grafana/gpg.key"


def test_a_driver_of_the_distribution_stays_its_own() -> None:
    (entry,) = repositories("cuda", only=("datacenter-gpu-manager-4-*",))
    assert [(pin["packages"], pin["priority"]) for pin in entry["pins"]] == [
        (["*"], 100),
        (["datacenter-gpu-manager-4-*"], 500),
    ]
    assert repositories("cuda")[0]["pins"] == []


@pytest.mark.parametrize(
    ("names", "of", "words"),
    [
        (["cuda"], {"system": "Debian 11"}, "is not for Debian 11, only Debian 12, Debian 13"),
        (["cuda"], {"machine": "riscv64"}, "has no packages for riscv64"),
        (["cudnn"], {}, "there is no repository cudnn"),
    ],
)
def test_a_system_without_one_is_one_sentence(
    names: list[str], of: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        repositories(*names, **of)


def listed(**variables: Any) -> list[str]:
    """The names of the repositories that group_vars give a node."""
    raw: dict[str, Any] = {}
    for name in ("package_repositories", "dcgm", "nvidia_container_toolkit", "grafana"):
        raw |= yaml.safe_load((REPOSITORY / f"group_vars/all/{name}.yml").read_text())
    raw |= {"group_names": [], "cluster_mirror": ""} | variables | {"ansible_facts": facts()}
    templar = Templar(variables={name: trusted(value) for name, value in raw.items()})
    templar.environment.filters["nvidia_repositories"] = filters.repositories
    templar.environment.filters["mirror_repositories"] = mirror_repositories
    templar.environment.filters["grafana_repositories"] = monitoring.grafana_repositories
    return [entry["name"] for entry in templar.template(trusted(raw["package_repositories_list"]))]


def trusted(value: Any) -> Any:
    return trust_as_template(value) if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({}, []),
        ({"node_gpus": {"model": "none", "count": 0}}, []),
        ({"node_gpus": {"model": "virtual", "count": 2, "nvml": True}}, []),
        ({"node_gpus": {"model": "h100_sxm", "count": 8}}, ["cuda", "nvidia_container_toolkit"]),
        ({"nvidia_driver_source": "cuda_repo"}, ["cuda"]),
        ({"cluster_package_repositories": [{"name": "site"}]}, ["site"]),
        ({"group_names": ["monitoring"]}, ["grafana"]),
        ({"group_names": ["monitoring"], "grafana_source": "none"}, []),
        ({"group_names": ["monitoring"], "grafana_source": "package"}, []),
    ],
)
def test_what_a_node_declares_decides(variables: dict[str, Any], names: list[str]) -> None:
    assert listed(**variables) == names


def test_the_hpc_sdk_is_read_from_a_repository_with_a_key_that_the_site_names():
    (entry,) = filters.hpc_sdk(facts(machine="aarch64"), "https://m/hpc/", "A" * 40)
    assert entry["uris"] == ["https://m/hpc/arm64/"]
    assert entry["key_url"] == "https://m/hpc/DEB-GPG-KEY-NVIDIA-HPC-SDK"
    assert problems([entry]) == []
    assert filters.hpc_sdk_packages("26.5", "A" * 40) == ["nvhpc-26-5"]
    assert filters.hpc_sdk_packages("", "") == []
    for version, key, sentence in (
        ("26.5", "", "hpc_sdk_key_fingerprint is not; set that to"),
        ("newest", "A" * 40, "hpc_sdk_version is newest; set it to a release"),
    ):
        with pytest.raises(AnsibleFilterError, match=sentence):
            filters.hpc_sdk_packages(version, key)
