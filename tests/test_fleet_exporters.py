"""The simulated exporters of `scripts/bench fleet` tell what the sizes are reckoned with."""

from __future__ import annotations

from cluster import sizes
from tests.fleet.exporters import OF_THREADS, Fleet, gpu_samples, node_samples
from tests.fleet.measure import DROPPED

THREADS, GPUS = 224, 8


def test_a_large_node_has_as_many_series_as_sizes_are_reckoned_with():
    of_gpus = len(list(gpu_samples("gpu1", "1", GPUS)))
    everything = len(list(node_samples(THREADS))) + of_gpus
    assert 0.9 * sizes.ALL_SERIES < everything <= sizes.ALL_SERIES
    off = frozenset(sizes.collectors_off(1000))
    assert off == frozenset(OF_THREADS)
    dropped = THREADS * DROPPED["regex"].count("|") + THREADS
    fewer = len(list(node_samples(THREADS, off))) + of_gpus - dropped
    assert 0.85 * sizes.FEWER_SERIES < fewer <= sizes.FEWER_SERIES
    assert sizes.node_relabelling(1000) == [DROPPED]


def test_each_node_tells_its_own_and_the_controller_of_all():
    fleet = Fleet(nodes=16, gpus=2, threads=4)
    one, other = (fleet.page(name, "dcgm", 60) for name in ("gpu1", "gpu16"))
    assert 'UUID="GPU-gpu1-0"' in one
    assert 'UUID="GPU-gpu1-0"' not in other
    assert "slurm_node_state" not in fleet.page("gpu1", "node", 0)
    told = fleet.page("ctl1", "node", 0)
    assert 'slurm_node_state{node="gpu16"' in told
    idle = [
        next(line for line in fleet.page("gpu1", "node", second).splitlines() if "idle" in line)
        for second in (0, 60)
    ]
    assert idle[0] != idle[1]
