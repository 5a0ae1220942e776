"""Versions with known holes, as sites declare them."""

from __future__ import annotations

import pytest

from cluster.fixed_versions import DRIVER, KERNEL, holes, installed, known


@pytest.mark.parametrize(
    ("variable", "declared", "better"),
    [
        ("nvidia_driver_version", "580.95.05", "580.159.03"),
        ("nvidia_driver_version", "580.159.03", ""),
        ("nvidia_driver_version", "580.159.04-1ubuntu1", ""),
        ("nvidia_driver_version", "535.309.01", ""),
        ("nvidia_driver_version", "550.90.07", "570.211.01"),  # no fix of its own
        ("nvidia_driver_version", "610.10", ""),  # newer than what the bulletins speak of
        ("nvidia_driver_version", "", ""),
        ("nvidia_driver_branch", "580", ""),  # the newest of it
        ("nvidia_driver_branch", "550", "570.211.01"),
        ("nvidia_driver_branch", "0", ""),  # no driver
        ("nvidia_container_toolkit_version", "1.18.0-1", "1.19.1"),
        ("nvidia_container_toolkit_version", "1.20.1-1", ""),
        ("dcgm_version", "1:4.5.2-1", "4.5.3"),
        ("dcgm_version", "4.7.0", ""),
        ("slurm_install_version", "24.11.5", "25.05.9"),
        ("slurm_install_version", "25.11.8", ""),
        ("slurm_install_version", "25.11", ""),
        ("slurm_install_version", "26.11.0", ""),
        ("slurm_install_url", "https://m/25.05/slurm-25.11.2.tar.bz2", "25.11.8"),
    ],
)
def test_a_version_is_compared_with_the_fixes_of_its_branch(variable, declared, better):
    sentence = known()[variable].hole(declared)
    assert (f"has holes that {better} has not" in sentence) if better else sentence == ""


def test_every_entry_says_when_and_where():
    for software in [*known().values(), *installed().values()]:
        assert software.date.startswith(("2025-", "2026-"))
        assert software.source.startswith("https://")


def test_installed_versions_are_judged_by_their_package() -> None:
    versions = {DRIVER: "580.95.05", "datacenter-gpu-manager-4-core": "1:4.7.1-1", "bash": "5.2"}
    (sentence,) = holes(versions, "Debian 13")
    assert sentence.startswith("NVIDIA's driver 580.95.05 has holes that 580.159.03 has not")
    assert holes({DRIVER: "580.159.03"}, "Debian 13") == []


@pytest.mark.parametrize(
    ("system", "package", "version", "better"),
    [
        ("Debian 12", KERNEL, "6.1.153-1", "6.1.187"),
        ("Debian 12", KERNEL, "6.1.187-1", ""),
        ("Debian 13", KERNEL, "6.12.57-1", "6.12.85"),
        ("Debian 13", KERNEL, "6.12.86-1", ""),
        ("Debian 13", KERNEL, "6.18.9-1~bpo13+1", ""),
        # Its numbers say nothing of what it mends.
        ("Ubuntu 24", KERNEL, "6.8.0-45.45", ""),
        ("Ubuntu 24", "runc", "1.3.0-0ubuntu2~24.04.1", "1.3.3"),
        ("Ubuntu 24", "runc", "1.3.3-0ubuntu1~24.04.2", ""),
        ("Ubuntu 22", "runc", "1.1.12-0ubuntu2~22.04.1", "1.2.8"),
        ("Debian 13", "runc", "1.1.15+ds1-2", ""),
        ("Debian 13", "containerd.io", "1.7.27-1", "1.7.29"),
        ("Ubuntu 24", "containerd.io", "2.2.1-1~ubuntu.24.04~noble", ""),
    ],
)
def test_what_no_variable_declares_is_judged_where_its_numbers_say_it(
    system, package, version, better
):
    said = holes({package: version}, system)
    assert [f"has holes that {better} has not" in sentence for sentence in said] == [True] * bool(
        better
    )


def test_what_can_be_asked_of_a_node_has_one_row_each() -> None:
    assert installed().keys() == {
        DRIVER,
        "nvidia-container-toolkit",
        "datacenter-gpu-manager-4-core",
        "datacenter-gpu-manager-exporter",
        KERNEL,
        "runc",
        "containerd.io",
    }
