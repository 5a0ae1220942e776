"""What a large cluster needs, at the sizes of four: nothing changes for small ones."""

from __future__ import annotations

import pytest

from cluster import sizes


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (4, {"MaxJobCount": 100_000, "MessageTimeout": 30}),
        (100, {"MaxJobCount": 100_000, "MessageTimeout": 30}),
        (256, {"MaxJobCount": 100_000, "MessageTimeout": 30}),
        (1000, {"MaxJobCount": 100_000, "TreeWidth": 32, "MessageTimeout": 30}),
        (2500, {"MaxJobCount": 250_000, "TreeWidth": 50, "MessageTimeout": 60}),
        (4000, {"MaxJobCount": 250_000, "TreeWidth": 16, "MessageTimeout": 60}),
        (8000, {"MaxJobCount": 250_000, "TreeWidth": 20, "MessageTimeout": 60}),
    ],
)
def test_slurms_settings_follow_from_the_number_of_nodes(
    nodes: int, expected: dict[str, int]
) -> None:
    assert sizes.slurm_settings(nodes) == expected


@pytest.mark.parametrize("nodes", range(257, 2501, 97))
def test_two_hops_reach_every_node(nodes: int) -> None:
    width = sizes.slurm_settings(nodes)["TreeWidth"]
    assert width**2 >= nodes
    assert width == sizes.TREE_WIDTH or (width - 1) ** 2 < nodes


@pytest.mark.parametrize("hosts", [1, 4, 100, 256])
def test_a_small_cluster_keeps_the_kernels_settings_and_mungeds(hosts: int) -> None:
    assert sizes.sysctls(hosts) == {}
    assert sizes.munge_threads(hosts) == 2


@pytest.mark.parametrize(
    ("hosts", "backlog", "neighbours"),
    [
        (257, 4096, (1024, 2048, 4096)),
        (1000, 4096, (2048, 4096, 8192)),
        (4000, 8192, (8192, 16384, 32768)),
    ],
)
def test_bursts_and_neighbours_are_those_of_all_hosts(
    hosts: int, backlog: int, neighbours: tuple[int, int, int]
) -> None:
    wanted = sizes.sysctls(hosts)
    assert wanted["net.core.somaxconn"] == wanted["net.ipv4.tcp_max_syn_backlog"] == backlog
    for family in ("ipv4", "ipv6"):
        found = (wanted[f"net.{family}.neigh.default.gc_thresh{number}"] for number in (1, 2, 3))
        assert tuple(found) == neighbours
    assert sizes.munge_threads(hosts) == 10


@pytest.mark.parametrize(
    ("hosts", "interval", "off", "disk_gb", "memory_gb"),
    [
        (6, 15, False, 17, 1),
        (64, 15, False, 177, 5),
        (65, 15, True, 68, 2),
        (256, 15, True, 266, 7),
        (1000, 30, True, 519, 24),
        (2000, 60, True, 519, 48),
    ],
)
def test_monitoring_of_a_large_cluster_asks_less_often_and_for_less(
    hosts, interval, off, disk_gb, memory_gb
):
    assert sizes.scrape_interval_s(hosts) == interval
    assert bool(sizes.collectors_off(hosts)) == bool(sizes.node_relabelling(hosts)) == off
    assert sizes.retention_gb(hosts, interval, "30d") == disk_gb
    assert sizes.memory_gb(hosts) == memory_gb


def test_what_is_no_duration_is_refused():
    assert sizes.retention_gb(1000, 30, "4w2d") == sizes.retention_gb(1000, 30, "30d")
    for text in ("", "30", "a month", "30d "):
        with pytest.raises(ValueError, match="is no duration such as 30d"):
            sizes.seconds(text)
