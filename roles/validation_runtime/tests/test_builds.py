"""Which build of torch runs where, and what is said when none does."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cluster import gpus
from roles.validation_runtime.plugin_utils import builds

ROLE = Path(__file__).resolve().parents[1]
TABLE: dict[str, Any] = yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))[
    "__validation_runtime_builds"
]
MODELS = sorted(gpus.known())
TORCH = ["torch==2.13.0", "nvidia-ml-py==13.615.71"]


def chosen(
    model: str = "h100_sxm",
    branch: int = 580,
    machine: str = "x86_64",
    requested: str = builds.AUTO,
    lines: list[str] | None = None,
    hashed: bool = False,
) -> builds.Choice:
    node = builds.Machine(gpu_model=model, driver_branch=branch, machine=machine)
    return builds.choose(lines or TORCH, requested, node, TABLE, hashed=hashed)


@pytest.mark.parametrize(
    ("model", "branch", "machine", "torch", "build"),
    [
        # CUDA 13 begins with 580; what is older gets CUDA 12.
        ("h100_sxm", 580, "x86_64", "2.13.0", "cu130"),
        ("h100_sxm", 610, "x86_64", "2.13.0", "cu130"),
        ("h100_sxm", 575, "x86_64", "2.13.0", "cu126"),
        ("h100_sxm", 535, "x86_64", "2.13.0", "cu126"),
        ("a100_sxm", 525, "x86_64", "2.13.0", "cu126"),
        ("rtx_4090", 550, "x86_64", "2.14.0", "cu126"),
        # Volta has no CUDA 13, whatever the driver.
        ("v100_sxm", 580, "x86_64", "2.13.0", "cu126"),
        # Blackwell has none of 12.6.
        ("b200", 580, "x86_64", "2.13.0", "cu130"),
        ("b200", 570, "x86_64", "2.11.0", "cu128"),
        ("gh200", 580, "aarch64", "2.13.0", "cu130"),
        ("gh200", 550, "aarch64", "2.13.0", "cu126"),
        ("gb200", 580, "aarch64", "2.13.0", "cu130"),
        # Before the node is asked, some architecture will do.
        ("gb200", 580, "", "2.13.0", "cu130"),
        # A model of the site's own: the driver is all that is known.
        ("rtx_6000", 550, "x86_64", "2.13.0", "cu126"),
        # Without GPUs the small build, whatever the driver.
        ("", 0, "x86_64", "2.13.0", "cpu"),
        ("", 0, "aarch64", "2.99.0", "cpu"),
        ("", 0, "", "2.13.0", "cpu"),
    ],
)
def test_the_build_fits_gpu_driver_and_architecture(model, branch, machine, torch, build):
    choice = chosen(model, branch, machine, lines=[f"torch=={torch}"])
    assert choice == builds.Choice(build)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"branch": 0}, "declares no driver"),
        ({"branch": 58}, "is 58, which is no branch that we know; set it to one of 525, 530"),
        ({"branch": 508}, "is 508, which is no branch that we know"),
        ({"model": "b200", "branch": 550}, "(blackwell), for which 570 is the first"),
        ({"model": "v100_sxm", "branch": 590}, "(volta), for which 580 is the last"),
        (
            {"model": "b200", "branch": 570},
            "570: cu130 needs 580 or newer, cu126 has no code for blackwell on x86_64, cu132 needs",
        ),
        ({"model": "t4", "machine": "aarch64"}, "has no code for turing on aarch64"),
        ({"machine": "riscv64"}, "cu130 is not built for riscv64"),
        ({"model": "", "machine": "riscv64"}, "no build cpu of torch for riscv64"),
        # Asked for by name.
        ({"requested": "cu130", "branch": 570}, "torch 2.13.0+cu130 does not run on h100_sxm with"),
        ({"requested": "cu126", "model": "b200"}, "cu126 has no code for blackwell on x86_64"),
        (
            {"requested": "cu128"},
            "There is no build cu128 of torch 2.13.0, only cu130, cu126, cu132",
        ),
        ({"requested": "cpu"}, "cpu has no CUDA"),
        ({"requested": "cu140", "lines": ["torch==3.1.0"]}, "the drivers are not known"),
        ({"requested": "rocm7.2", "lines": ["torch==3.1.0"]}, "rocm7.2 has no CUDA"),
        # In what pip is told.
        ({"lines": ["torch==2.5.1"]}, "Which builds torch 2.5.1 has is not known"),
        *(({"lines": [line]}, "torch open") for line in ("torch>=2.11", "torch==2.*", "torch")),
        ({"lines": ["torch=2.13.0"]}, "is no requirement"),
        ({"lines": ["torch==2.13.0+cu130"], "requested": "cu126"}, "are two builds"),
        ({"lines": ["torch==2.13.0+cu130"], "branch": 570}, "cu130 needs 580 or newer"),
        ({"hashed": True}, "does not name its build; write it as torch==2.13.0+cu126"),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(arguments, words):
    choice = chosen(**arguments)
    assert choice.build == ""
    assert words in choice.problem
    assert choice.problem.endswith((".", "any."))
    assert "\n" not in choice.problem


def test_a_build_may_be_named_in_the_version_or_beside_it():
    assert chosen(requested="cu126") == builds.Choice("cu126")
    assert chosen(lines=["torch==2.13.0+cu126"]) == builds.Choice("cu126")
    assert chosen(lines=["torch==2.13.0+cu126"], requested="cu126") == builds.Choice("cu126")
    assert chosen(lines=["torch==2.13.0+cu126"], hashed=True) == builds.Choice("cu126")


def test_a_torch_that_the_table_does_not_know_is_held_to_its_driver():
    old = ["torch==2.9.1"]
    assert chosen(lines=old, requested="cu129", branch=550) == builds.Choice("cu129")
    assert "needs 580" in chosen(lines=old, requested="cu130", branch=550).problem


def test_who_wants_any_build_is_asked_nothing_here():
    """The node answers then: torch itself says whether it reaches the driver."""
    assert chosen(requested=builds.ANY, branch=0, machine="riscv64") == builds.Choice()
    assert chosen(lines=["nvidia-ml-py==13.615.71"], branch=0) == builds.Choice()


def test_a_file_with_hashes_on_a_node_without_gpus_is_taken_as_it_is():
    assert chosen(model="", hashed=True) == builds.Choice()


@given(
    model=st.sampled_from(["", "x", *MODELS]),
    branch=st.one_of(st.sampled_from(gpus.branches()), st.integers()),
    machine=st.sampled_from(["", "x86_64", "aarch64", "ppc64le"]),
    requested=st.sampled_from(["auto", "cpu", "cu126", "cu128", "cu130", "cu132", "cu999", "x"]),
    torch=st.sampled_from(["2.9.0", "2.11.0", "2.13.0", "2.14.0"]),
)
def test_no_node_with_gpus_gets_a_build_that_its_driver_does_not_run(
    model, branch, machine, requested, torch
):
    choice = chosen(model, branch, machine, requested, [f"torch=={torch}"])
    assert bool(choice.build) != bool(choice.problem)
    if model and choice.build:
        assert branch >= TABLE["oldest_branch"][int(choice.build[2:4])]
        assert branch in gpus.branches() or branch > gpus.branches()[-1]


def test_the_table_knows_its_own_words():
    generations = {gpu.generation for gpu in gpus.known().values()}
    assert {build for of in TABLE["torch"].values() for build in of} <= set(TABLE["builds"])
    for machines in TABLE["builds"].values():
        assert set(machines) == {"x86_64", "aarch64"}
        assert {g for of in machines.values() for g in of} <= generations
