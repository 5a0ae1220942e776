"""The one table of what depends on a GPU's model."""

from __future__ import annotations

import pytest

from cluster import contract, gpus
from playbooks.filter_plugins.gpus import product_names
from tests.standins.nvml import library
from validation import thresholds


def test_it_knows_the_models_of_the_contract_and_no_others() -> None:
    assert sorted([*gpus.known(), "virtual"]) == sorted(contract.load().gpu_models)


def test_it_uses_no_word_for_a_model_that_is_none() -> None:
    table = gpus._document()
    assert {*table["grace"], *table["nvlink5"], *table["nvswitch"]} <= set(gpus.known())
    models = [model for of in table["generations"].values() for model in of["models"]]
    assert len(models) == len(set(models))
    assert sorted(gpus.branches()) == list(gpus.branches())


@pytest.mark.parametrize(
    ("model", "modules"),
    [
        ("v100_sxm", ("proprietary",)),
        ("t4", ("open", "proprietary")),
        ("h100_sxm", ("open", "proprietary")),
        ("gh200", ("open",)),  # Hopper, and Grace
        ("b200", ("open",)),
        ("gb200", ("open",)),
        ("gb300", ("open",)),
        ("rtx_pro_6000", ("open",)),
        ("h20_sxm", ("open", "proprietary")),
        ("l40", ("open", "proprietary")),
        ("a10", ("open", "proprietary")),
        ("rtx_6000", ("open", "proprietary")),  # a site's own
    ],
)
def test_the_kernel_modules_that_run_a_model(model: str, modules: tuple[str, ...]) -> None:
    assert gpus.gpu(model).modules == modules


@pytest.mark.parametrize(
    ("model", "branch", "problem"),
    [
        ("b200", 570, ""),
        ("b200", 565, "no such driver runs b200 (blackwell), for which 570 is the first"),
        ("gb300", 570, ""),
        (
            "rtx_pro_6000",
            550,
            "no such driver runs rtx_pro_6000 (blackwell), for which 570 is the first",
        ),
        ("v100_sxm", 580, ""),
        ("v100_sxm", 590, "no such driver runs v100_sxm (volta), for which 580 is the last"),
        ("h100_sxm", 999, ""),
        ("rtx_6000", 1, ""),
    ],
)
def test_the_branches_that_run_a_model(model: str, branch: int, problem: str) -> None:
    assert gpus.gpu(model).branch_problem(branch) == problem


def test_the_fabric_inside_a_node() -> None:
    assert gpus.gpu("h100_sxm").nvswitch == (8,)
    assert not gpus.gpu("h100_pcie").nvswitch
    assert (gpus.gpu("b200").nvlink5, gpus.gpu("b200").grace) == (True, False)
    assert (gpus.gpu("gb200").nvlink5, gpus.gpu("gb200").grace) == (True, True)
    assert not gpus.gpu("gb200").nvswitch
    assert (gpus.gpu("gb300").nvlink5, gpus.gpu("gb300").grace) == (True, True)
    assert not gpus.gpu("gb300").nvswitch
    assert gpus.gpu("h20_sxm").nvswitch == (8,)
    assert (gpus.gpu("rtx_pro_6000").nvlink5, gpus.gpu("rtx_pro_6000").nvswitch) == (False, ())


def test_the_names_are_those_that_the_validation_knows() -> None:
    for model in contract.load().gpu_models:
        known = thresholds.load(model).model
        assert known is not None
        assert product_names(model) == list(known.nvml_names)
    assert product_names("virtual") == [library.BOARDS["virtual"]["name"]]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA GB300", "gb300"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx_pro_6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx_pro_6000"),
        ("NVIDIA H20", "h20_sxm"),
        ("NVIDIA H20-3e", "h20_sxm"),
        ("NVIDIA H200", "h200_sxm"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA GH200 120GB", "gh200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GH200 144G HBM3e", "gh200"),
    ],
)
def test_the_name_of_a_board_tells_its_model(name: str, model: str) -> None:
    assert [own for own in contract.load().gpu_models if name in product_names(own)] == [model]


def test_no_name_is_that_of_two_models() -> None:
    names = [name for model in contract.load().gpu_models for name in product_names(model)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("model", ["", "rtx_6000", "../common", "schema"])
def test_a_model_that_is_none_of_ours_has_no_names(model: str) -> None:
    assert product_names(model) == []
