"""Calls that are timed on a GPU, on a GPU that is made up: a queue, and a host that fills it.

Nothing here is a test of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="wrong elements are counted in tensors")

from validation.payloads import timed_calls  # noqa: E402 - importorskip
from validation.payloads.timed_calls import Call, Stream  # noqa: E402 - importorskip

HANDING_OVER_S = 60e-6  # what the host takes for one operation
CALL_S = 35e-6  # of 1 MiB on eight H200: shorter than that
CLOCK_HZ = 1.98e9


@dataclass
class Gpu:
    """Does what it was handed, in order, each at the earliest when it came; the host goes on."""

    order: list[str] = field(default_factory=list)
    host_s: float = 0.0
    gpu_s: float = 0.0

    def do(self, name: str, seconds: float) -> None:
        self.order.append(name)
        self.host_s += HANDING_OVER_S
        self.gpu_s = max(self.gpu_s, self.host_s) + seconds

    def event(self) -> Event:
        return Event(self)

    def spin(self, cycles: int) -> None:
        self.do("spin", cycles / CLOCK_HZ)

    def synchronize(self) -> None:
        self.order.append("synchronize")
        self.host_s = max(self.host_s, self.gpu_s)


@dataclass
class Event:
    gpu: Gpu
    at_s: float = 0.0

    def record(self) -> None:
        self.gpu.do("event", 0.0)
        self.at_s = self.gpu.gpu_s

    def elapsed_time(self, end: Event) -> float:
        return (end.at_s - self.at_s) * 1000


def timed(
    gpu: Gpu, call_s: float, calls: int, spin: Callable[[int], object]
) -> tuple[list[float], list[float]]:
    def wrong(number: int) -> Any:
        gpu.do(f"compare {number}", 5e-6)
        return torch.zeros(())

    call = Call(
        fill=lambda number: gpu.do(f"fill {number}", 5e-6),
        run=lambda number: gpu.do(f"run {number}", call_s),
        wrong=wrong,
    )
    stream = Stream(gpu.event, spin, lambda: gpu.do("line up", 10e-6), gpu.synchronize)
    seconds, work, _ = timed_calls.on_stream(call, stream, range(3, 3 + calls))
    return seconds, work


def test_the_gpu_spins_before_ranks_line_up_and_the_host_waits_once() -> None:
    gpu = Gpu()
    timed(gpu, CALL_S, 2, gpu.spin)

    def one(number: int) -> list[str]:
        before = ["event", f"fill {number}", "event", "spin", "line up"]
        return [*before, "event", f"run {number}", "event", f"compare {number}", "event"]

    assert gpu.order == [*one(3), *one(4), "synchronize"]


@pytest.mark.parametrize("call_s", [CALL_S, 0.01])
def test_a_call_takes_no_longer_for_what_the_host_needs_to_hand_it_over(call_s: float) -> None:
    gpu = Gpu()
    seconds, work = timed(gpu, call_s, 5, gpu.spin)
    assert seconds == pytest.approx([call_s] * 5)
    assert all(each < 0.001 for each in work)  # the spinning is nobody's work


def test_without_spinning_the_host_would_be_timed() -> None:
    gpu = Gpu()
    seconds, _ = timed(gpu, CALL_S, 5, lambda cycles: None)
    assert min(seconds) > CALL_S + HANDING_OVER_S


def test_spinning_lasts_as_long_as_a_slow_host_needs_and_not_much_longer() -> None:
    """Of the fastest and the slowest clock of boards that are supported."""
    shortest, longest = (timed_calls.SPIN_CYCLES / hertz for hertz in (2.6e9, 1.0e9))
    assert shortest > 10 * HANDING_OVER_S
    assert longest < 0.005
