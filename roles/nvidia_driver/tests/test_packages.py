"""Which packages are a driver, for every system, source, branch and kind of modules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster import gpus
from roles.nvidia_driver.plugin_utils import packages
from tests.gpu_packages import WISH

ROLE = Path(__file__).resolve().parents[1]
TABLE: list[dict[str, Any]] = yaml.safe_load(
    (ROLE / "vars" / "main.yml").read_text(encoding="utf-8")
)["__nvidia_driver_table"]
SPEC = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
SOURCES = SPEC["argument_specs"]["main"]["options"]["nvidia_driver_source"]["choices"]
SYSTEMS = ["Debian 12", "Debian 13", "Ubuntu 22", "Ubuntu 24"]


def chosen(system: str = "Debian 13", **changes: Any) -> packages.Choice:
    return packages.choose(TABLE, replace(WISH, **changes), system)


HEADERS = ["linux-headers-{kernel}", "linux-headers-{flavour}"]


@pytest.mark.parametrize(
    ("system", "source", "branch", "modules", "compute_only", "names"),
    [
        # NVIDIA's repository for Debian: the same names for all branches.
        *[
            (system, "cuda_repo", branch, modules, compute_only, [user, f"{kind}-dkms", *HEADERS])
            for system in ("Debian 12", "Debian 13")
            for branch in (580, 590, 610)
            for modules, kind, compute_only, user in (
                ("open", "nvidia-kernel-open", True, "nvidia-driver-cuda"),
                ("proprietary", "nvidia-kernel", True, "nvidia-driver-cuda"),
                ("open", "nvidia-kernel-open", False, "nvidia-open"),
                ("proprietary", "nvidia-kernel", False, "cuda-drivers"),
            )
        ],
        # NVIDIA's repository for Ubuntu: 590 is the first without its number in the names.
        *[
            (
                system,
                "cuda_repo",
                branch,
                modules,
                True,
                [
                    f"libnvidia-compute-{branch}",
                    f"libnvidia-cfg1-{branch}",
                    f"libnvidia-decode-{branch}",
                    f"libnvidia-encode-{branch}",
                    f"nvidia-utils-{branch}",
                    f"nvidia-compute-utils-{branch}",
                    f"nvidia-dkms-{branch}{suffix}",
                    *HEADERS,
                ],
            )
            for system in ("Ubuntu 22", "Ubuntu 24")
            for branch in (535, 570, 580)
            for modules, suffix in (("open", "-open"), ("proprietary", ""))
        ],
        *[
            (system, "cuda_repo", branch, modules, compute_only, [user, dkms, *HEADERS])
            for system in ("Ubuntu 22", "Ubuntu 24")
            for branch in (590, 595, 610)
            for modules, dkms, compute_only, user in (
                ("open", "nvidia-dkms-open", True, "libnvidia-compute"),
                ("proprietary", "nvidia-dkms", True, "libnvidia-compute"),
                ("open", "nvidia-dkms-open", False, "nvidia-open"),
                ("proprietary", "nvidia-dkms", False, "cuda-drivers"),
            )
        ],
        # Canonical's: signed modules, for this kernel and for the ones to come.
        *[
            (
                system,
                "ubuntu",
                branch,
                modules,
                True,
                [
                    f"nvidia-utils-{branch}-server",
                    f"libnvidia-compute-{branch}-server",
                    f"libnvidia-cfg1-{branch}-server",
                    f"libnvidia-decode-{branch}-server",
                    f"libnvidia-encode-{branch}-server",
                    f"nvidia-compute-utils-{branch}-server",
                    f"linux-modules-nvidia-{branch}-server{suffix}-{{kernel}}",
                    f"linux-modules-nvidia-{branch}-server{suffix}-{{flavour}}",
                ],
            )
            for system in ("Ubuntu 22", "Ubuntu 24")
            for branch in (535, 580, 590)
            for modules, suffix in (("open", "-open"), ("proprietary", ""))
        ],
    ],
)
def test_the_packages_of_every_combination(
    system: str, source: str, branch: int, modules: str, compute_only: bool, names: list[str]
) -> None:
    choice = chosen(
        system, source=source, branch=branch, modules=modules, compute_only=compute_only
    )
    assert choice.problems == ()
    assert choice.packages == names
    assert (choice.modules, choice.version) == (modules, str(branch))
    assert choice.built == (source != "ubuntu")


@pytest.mark.parametrize(
    ("model", "modules"),
    [
        ("v100_sxm", "proprietary"),
        ("t4", "open"),
        ("h100_sxm", "open"),
        ("gh200", "open"),
        ("b200", "open"),
        ("rtx_6000", "open"),
    ],
)
def test_auto_takes_the_modules_that_run_the_model(model: str, modules: str) -> None:
    assert chosen(model=model).modules == modules


def test_a_branch_that_came_since_is_like_the_last_and_warned_of() -> None:
    last, newer = gpus.branches()[-1], gpus.branches()[-1] + 5
    choice = chosen(branch=newer)
    assert (choice.packages, choice.problems) == (chosen(branch=last).packages, ())
    (sentence,) = choice.warnings
    assert sentence.startswith(f"nvidia_driver_branch {newer} is newer than {last}, the last that")
    assert chosen("", branch=newer).warnings == choice.warnings
    assert not chosen(branch=last).warnings


@pytest.mark.parametrize(
    ("changes", "warned"),
    [
        ({"peermem": True}, True),
        ({"peermem": True, "modules": "proprietary"}, False),
        ({"peermem": True, "model": "v100_sxm"}, False),
        ({"peermem": True, "source": "preinstalled"}, False),
        ({}, False),
    ],
)
def test_nvidia_peermem_beside_the_open_modules_is_warned_of(
    changes: dict[str, Any], warned: bool
) -> None:
    choice = chosen("", **changes)
    assert [text.split(",")[0] for text in choice.warnings] == [
        "nvidia_driver_peermem is true on a node with the open kernel modules"
    ] * warned
    assert not choice.problems


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("branch", [580, 595])
def test_gpudirect_storage_is_a_package_more(system: str, branch: int) -> None:
    plain, more = (chosen(system, branch=branch, storage=storage) for storage in (False, True))
    assert [*plain.packages, "nvidia-fs-dkms"] == [*more.packages]


def test_canonicals_modules_come_without_gpudirect_storage() -> None:
    (sentence,) = chosen("Ubuntu 24", source="ubuntu", storage=True).problems
    assert "set it to cuda_repo" in sentence


def test_the_kernel_is_held_with_modules_that_are_built_for_it_alone() -> None:
    kernel = ["linux-{flavour}", "linux-image-{flavour}", "linux-headers-{flavour}"]
    assert chosen("Ubuntu 24", source="ubuntu").kernel == kernel
    assert chosen("Ubuntu 24", source="ubuntu", kernel_modules=False).kernel == []
    assert chosen("Ubuntu 24").kernel == []


@pytest.mark.parametrize(
    ("system", "source", "modules", "others"),
    [
        ("Debian 13", "cuda_repo", "open", ["nvidia-kernel-dkms"]),
        ("Ubuntu 24", "cuda_repo", "proprietary", ["nvidia-dkms-580-open"]),
        (
            "Ubuntu 24",
            "ubuntu",
            "open",
            [
                "linux-modules-nvidia-580-server-{kernel}",
                "linux-modules-nvidia-580-server-{flavour}",
            ],
        ),
    ],
)
def test_the_other_kind_of_modules_goes(
    system: str, source: str, modules: str, others: list[str]
) -> None:
    choice = chosen(system, source=source, modules=modules)
    assert choice.others == others
    assert chosen(system, source=source, kernel_modules=False).others == []


def test_without_kernel_modules_only_libraries_and_programs_are_left() -> None:
    choice = chosen(kernel_modules=False)
    assert not [name for name in choice.packages if "dkms" in name or "linux-" in name]
    assert (choice.modules, choice.built) == ("", False)


def test_what_is_preinstalled_has_a_version_to_verify_and_no_packages() -> None:
    choice = chosen(source="preinstalled", branch=999)
    assert (choice.packages, choice.version, choice.problems) == ((), "999", [])
    assert chosen(source="preinstalled", branch=0).version == ""
    assert chosen(source="none", count=0).packages == ()


def test_before_the_system_is_known_only_the_declaration_is_judged() -> None:
    assert chosen("", source="ubuntu").problems == []
    assert chosen("", model="v100_sxm", modules="open").problems


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": "none"}, "is none on a node that has 8 GPUs (h100_sxm)"),
        ({"count": 0}, "is cuda_repo on a node without GPUs"),
        ({"version": "570.1.1"}, "is 570.1.1, which is not of the branch 580"),
        ({"version": "5800.1"}, "is 5800.1, which is not of the branch 580"),
        ({"branch": 585}, "is 585, which is no branch that we know; set it to one of 525, 530"),
        ({"model": "b200", "branch": 565}, "runs b200 (blackwell), for which 570 is the first"),
        ({"model": "v100_sxm", "branch": 590}, "runs v100_sxm (volta), for which 580 is the last"),
        ({"model": "b200", "modules": "proprietary"}, "b200 runs only with the open kernel"),
        ({"model": "gh200", "modules": "proprietary"}, "gh200 runs only with the open kernel"),
        ({"model": "v100_sxm", "modules": "open"}, "v100_sxm runs only with the proprietary"),
        ({"branch": 615, "modules": "proprietary"}, "kernel modules end with branch 610; set nvid"),
        ({"branch": 625, "modules": "proprietary"}, "kernel modules end with branch 610; set nvid"),
        ({"kernel_modules": False, "compute_only": False}, "set one of them to true"),
        ({"source": "ubuntu"}, "is a source for Ubuntu, on Debian 13"),
        ({"branch": 550}, "is 550, but nvidia_driver_source cuda_repo begins with 560 on Debian"),
        ({"storage": True, "modules": "proprietary"}, "needs NVIDIA's open kernel modules"),
        ({"storage": True, "kernel_modules": False}, "needs NVIDIA's open kernel modules"),
    ],
)
def test_a_contradiction_is_refused_in_one_sentence(changes: dict[str, Any], words: str) -> None:
    choice = chosen(**changes)
    (sentence,) = choice.problems
    assert words in sentence
    assert sentence.endswith(".")
    assert not choice.packages


@given(
    source=st.sampled_from(SOURCES),
    system=st.sampled_from([*SYSTEMS, "Debian 11", "Rocky 9", ""]),
    branch=st.one_of(st.sampled_from(gpus.branches()), st.integers(0, 700)),
    modules=st.sampled_from(["auto", "open", "proprietary"]),
    model=st.sampled_from([*gpus.known(), "rtx_6000"]),
    compute_only=st.booleans(),
    kernel_modules=st.booleans(),
)
def test_nothing_is_installed_that_does_not_run_the_gpus(
    source: str, system: str, branch: int, modules: str, model: str, **flags: bool
) -> None:
    choice = chosen(system, source=source, branch=branch, modules=modules, model=model, **flags)
    if choice.packages:
        assert not choice.problems
        assert gpus.gpu(model).branch_problem(branch) == ""
        assert branch in gpus.branches() or branch > gpus.branches()[-1]
        assert bool(choice.warnings) == (branch not in gpus.branches())
        assert choice.modules in ({*gpus.gpu(model).modules} if flags["kernel_modules"] else {""})
    elif system in SYSTEMS and source not in ("none", "preinstalled"):
        assert choice.problems
