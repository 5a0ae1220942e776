"""A whole node costs its CPUs, whatever of it a job takes."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.slurm import billing, nodes

H200 = {"sockets": 2, "cores_per_socket": 56, "threads_per_core": 2}


def node(
    name: str = "gpu1", count: int = 8, memory: int = 2_000_000, **more: Any
) -> dict[str, Any]:
    model = "h200_sxm" if count else "none"
    return {
        "name": name,
        "address": "10.0.0.1",
        "cpus": H200,
        "memory_mb": memory,
        "gpus": {"model": model, "count": count},
        **more,
    }


def weighted(text: str) -> dict[str, float]:
    return {
        name: float(value.removesuffix("G"))
        for name, _, value in (word.partition("=") for word in text.split(","))
    }


@pytest.mark.parametrize(("count", "of_one"), [(8, 28), (4, 56), (3, 74.67), (1, 224)])
def test_all_of_any_resource_costs_the_nodes_cpus(count: int, of_one: float) -> None:
    share = 2_000_000 // 224
    weights = weighted(billing.weights([node(count=count)], share))
    assert weights["CPU"] == 1
    assert weights["GRES/gpu"] == of_one
    assert weights["GRES/gpu"] * count == pytest.approx(224, abs=0.1)
    assert weights["Mem"] * 2_000_000 / 1024 == pytest.approx(224, rel=0.001)


@pytest.mark.parametrize("memory", [16_000, 257_000, 515_000, 1_031_000, 2_063_000])
def test_the_memory_that_a_job_has_by_default_costs_no_more_than_its_cpus(memory: int) -> None:
    share = memory // 224
    weights = weighted(billing.weights([node(memory=memory)], share))
    for cpus in (1, 7, 224):
        assert weights["Mem"] * cpus * share / 1024 <= cpus


def test_an_instance_of_mig_is_a_gpu() -> None:
    cut = node(gpus={"model": "h200_sxm", "count": 8, "mig": {"1g.18gb": 7}})
    assert weighted(billing.weights([cut], 8000))["GRES/gpu"] == 4


def test_of_several_kinds_it_is_the_gpu_that_has_the_most_cpus() -> None:
    kinds = [node(), node("gpu2", count=2), node("cpu1", count=0)]
    assert weighted(billing.weights(kinds, 8000))["GRES/gpu"] == 112


def test_without_gpus_slurms_own_billing_stays() -> None:
    cpu = node("cpu1", count=0)
    assert billing.weights([cpu], 8000) == ""
    assert billing.settings([{"name": "p"}], [cpu]) == {}
    (line,) = nodes.partition_lines([{"name": "p", "nodes": ["cpu1"]}], [cpu], True)
    assert "TRESBillingWeights" not in line


def test_a_site_with_prices_of_its_own_gets_none_of_ours() -> None:
    own = {"name": "p", "settings": {"tresbillingweights": "GRES/gpu=30"}}
    assert billing.settings([own, {"name": "q"}], [node()]) == {}
    ours = [{"name": "p", "settings": {"MaxNodes": 1}}, {"name": "q"}]
    assert billing.settings(ours, [node()]) == {"PriorityFlags": "MAX_TRES"}


@pytest.mark.parametrize(
    ("composed", "expected"),
    [
        ({"PriorityFlags": "max_tres", "AccountingStorageTRES": "license/x,gres/gpu"}, True),
        ({"PriorityFlags": "FAIR_TREE", "AccountingStorageTRES": "gres/gpu"}, False),
        ({"PriorityFlags": "MAX_TRES"}, False),
        ({}, False),
    ],
)
def test_weights_need_gpus_that_are_counted_and_the_largest_that_is_billed(
    composed: dict[str, str], expected: bool
) -> None:
    assert billing.by_share(composed) is expected


def test_a_partitions_own_weights_stand() -> None:
    settings = {"TRESBillingWeights": "GRES/gpu=30"}
    (line,) = nodes.partition_lines(
        [{"name": "p", "nodes": ["gpu1"], "settings": settings}], [node()], True
    )
    assert line.count("TRESBillingWeights") == 1
    assert line.endswith("TRESBillingWeights=GRES/gpu=30")
