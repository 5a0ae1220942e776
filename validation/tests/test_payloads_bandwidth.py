"""Bandwidths against the worked examples of nccl-tests' doc/PERFORMANCE.md."""

import pytest

from validation.payloads.bandwidth import algbw, busbw, busbw_factor


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [
        ("all_reduce", 1, 0),
        ("all_reduce", 2, 1),
        ("all_reduce", 8, 1.75),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 4, 0.75),
        ("all_to_all", 4, 0.75),
        ("broadcast", 8, 1),
        ("reduce", 8, 1),
        ("sendrecv", 2, 1),
    ],
)
def test_the_factor_of_each_operation(operation, ranks, factor):
    assert busbw_factor(operation, ranks) == pytest.approx(factor)


def test_a_gigabyte_is_a_billion_bytes():
    assert algbw(2_000_000_000, 0.5) == pytest.approx(4.0)
    assert busbw("all_reduce", 4, 2_000_000_000, 0.5) == pytest.approx(6.0)


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "broadcast", "sendrecv"])
def test_one_rank_has_no_speed_whatever_its_clock_says(operation):
    assert busbw(operation, 1, 8, 0.0) == 0


@pytest.mark.parametrize(("operation", "ranks"), [("gemm", 2), ("all_reduce", 0)])
def test_what_has_no_bus_bandwidth_is_refused(operation, ranks):
    with pytest.raises(ValueError, match=r"ranks|bus bandwidth"):
        busbw_factor(operation, ranks)
