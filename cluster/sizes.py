"""What follows from how many hosts a cluster has: kernel, MUNGE and Slurm of a large one.

Up to SMALL hosts the kernel and munged stay as they are. The sources are SchedMD's guides for
large clusters (slurm.schedmd.com/big_sys.html) and for many jobs
(slurm.schedmd.com/high_throughput.html), and arp(7). fs.file-max, of which the first guide speaks,
is not here: systemd raises it to the kernel's limit at each boot.
"""

from __future__ import annotations

import math
import re
from typing import Any

SMALL = 256
LARGE = 1024  # from here on the first guide speaks

# Up to so many hosts Prometheus has a small computer's memory and disk to spare.
FEW = 64
# And may run beside slurmctld: 2.4 GB of memory are not what a controller lacks.
FEW_BESIDE_SLURM = 100
# Series that node_exporter and dcgm-exporter have of a node with 224 threads and 8 GPUs: all, and
# without those for each thread that no board or rule asks for (scripts/bench fleet).
ALL_SERIES, FEWER_SERIES = 8_000, 3_000
# For a sample on the disk, at most ("1-2 bytes"), where the formula is too:
# https://prometheus.io/docs/prometheus/latest/storage/#operational-aspects
SAMPLE_BYTES = 2
# For a series in memory, of this daemon with our rules (scripts/bench fleet, 2026-11-28).
SERIES_BYTES = 4_000
LEAST_DISK_GB = 10
DURATION_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
DURATION = re.compile(r"(?:\d+[smhdwy])+")
# Of node_exporter: a series or more for each thread, and nothing here asks for them.
THREAD_COLLECTORS = ("cpu.guest", "cpufreq", "schedstat", "softnet")

# The kernel's own since Linux 5.4.
BACKLOG = 4096
# What munged has, and what the second guide suggests.
FEW_THREADS, MANY_THREADS = 2, 10

# Slurm's own TreeWidth, and the nodes up to which the first guide takes the square root.
TREE_WIDTH = 16
TWO_LEVELS = 2500
# Jobs that slurmctld keeps: for each node, at least, and at most. slurm.conf(5) warns of more than
# a few hundred thousand.
JOBS_OF_NODE, LEAST_JOBS, MOST_JOBS = 100, 100_000, 250_000


def sysctls(hosts: int) -> dict[str, int]:
    """The kernel's settings on every host.

    A burst of connections is as large as the cluster. In a flat network every host is a neighbour,
    over Ethernet and once more over InfiniBand, and a full table of neighbours drops packets.
    """
    if hosts <= SMALL:
        return {}
    both = _power_of_two(2 * hosts)
    backlog = max(BACKLOG, both)
    return {
        "net.core.somaxconn": backlog,
        "net.ipv4.tcp_max_syn_backlog": backlog,
        **{
            f"net.{family}.neigh.default.gc_thresh{number}": both * times
            for family in ("ipv4", "ipv6")
            for number, times in ((1, 1), (2, 2), (3, 4))
        },
    }


def munge_threads(hosts: int) -> int:
    """Threads of munged where all nodes' credentials come together."""
    return FEW_THREADS if hosts <= SMALL else MANY_THREADS


def scrape_interval_s(hosts: int) -> int:
    """Textfiles are up to a minute old, and every rule looks at five minutes at least."""
    return 15 if hosts <= SMALL else 30 if hosts <= LARGE else 60


def collectors_off(hosts: int) -> list[str]:
    """Collectors of node_exporter that a large cluster goes without."""
    return [] if hosts <= FEW else list(THREAD_COLLECTORS)


def node_relabelling(hosts: int) -> list[dict[str, Any]]:
    """What Prometheus of a large cluster does not keep of node_exporter.

    Of each thread's time that which it was idle, waited, or was in the kernel: the rest of it is
    the programs'.
    """
    if hosts <= FEW:
        return []
    return [
        {
            "source_labels": ["__name__", "mode"],
            "regex": "node_cpu_seconds_total;(irq|nice|softirq|steal|user)",
            "action": "drop",
        }
    ]


def series(hosts: int) -> int:
    return hosts * (ALL_SERIES if hosts <= FEW else FEWER_SERIES)


def retention_gb(hosts: int, interval_s: float, kept: str) -> int:
    """Disk for the samples of so many hosts; `kept` is a duration as Prometheus has it.

    Raises ValueError for what is no duration.
    """
    samples_s = series(hosts) / interval_s
    return max(LEAST_DISK_GB, math.ceil(seconds(kept) * samples_s * SAMPLE_BYTES / 1e9))


def memory_gb(hosts: int) -> int:
    """Memory of Prometheus: twice its series, for queries and the collector of garbage."""
    return max(1, math.ceil(2 * series(hosts) * SERIES_BYTES / 1e9))


def seconds(duration: str) -> int:
    """
    >>> seconds("30d"), seconds("1h30m")
    (2592000, 5400)
    """
    if not DURATION.fullmatch(duration):
        raise ValueError(f"{duration!r} is no duration such as 30d")
    return sum(int(n) * DURATION_S[unit] for n, unit in re.findall(r"(\d+)([smhdwy])", duration))


def slurm_settings(nodes: int) -> dict[str, int]:
    """Settings of slurm.conf for so many compute nodes."""
    every = {
        "MaxJobCount": min(max(LEAST_JOBS, JOBS_OF_NODE * nodes), MOST_JOBS),
        # An answer comes through the whole tree, from a slurmctld that many ask. And so long srun
        # tries to reach one that is restarted, before the job that wanted a step fails; with
        # Slurm's own 10 it gave up after 28 s (molecule/reliability, 2026-11-27).
        "MessageTimeout": 30 if nodes <= LARGE else 60,
    }
    if nodes <= SMALL:
        return every
    # Messages pass from node to node: two hops, or three.
    return every | {"TreeWidth": max(TREE_WIDTH, _root(nodes, 2 if nodes <= TWO_LEVELS else 3))}


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _root(number: int, degree: int) -> int:
    """Rounded up, so that so many hops reach every node."""
    root = math.ceil(math.pow(number, 1 / degree))
    return root - 1 if (root - 1) ** degree >= number else root
