"""What follows from how many hosts a cluster has: kernel, MUNGE and Slurm of a large one.

Up to SMALL hosts the kernel and munged stay as they are. The sources are SchedMD's guides for
large clusters (slurm.schedmd.com/big_sys.html) and for many jobs
(slurm.schedmd.com/high_throughput.html), and arp(7). fs.file-max, of which the first guide speaks,
is not here: systemd raises it to the kernel's limit at each boot.
"""

from __future__ import annotations

import math

SMALL = 256
LARGE = 1024  # from here on the first guide speaks

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
