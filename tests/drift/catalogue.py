"""What the roles claim to manage on a node, and which changes by hand are drawn from it.

Only what a role writes, installs, starts or removes by its own tasks is here, whatever host it is
on: a pattern that a host has nothing of draws nothing there. A change that no role claims to put
right is not drawn; UNCLAIMED says which those are, and why.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from itertools import cycle

ABSENT = "absent"

# What a role removes where what it was for is not declared, and the hosts on which it does.
LEFTOVERS: Mapping[str, str] = {
    "/etc/logrotate.d/plumbline-logs": "slurm_cluster",
    "/etc/plumbline/cluster.json": "slurm_compute",
    "/etc/plumbline/pyxis-importer.json": "slurm_cluster",
    "/etc/systemd/logind.conf.d/50-plumbline.conf": "slurm_login",
    "/etc/systemd/system/plumbline-pyxis-cache.service": "slurm_cluster",
    "/etc/systemd/system/user-.slice.d/50-plumbline.conf": "slurm_login",
    "/etc/tmpfiles.d/pyxis.conf": "slurm_cluster",
}
# What a node has by these names: files, `**` for any depth; lines between a role's markers in a
# file of others; leftovers; packages; units; users.
MANAGED: Mapping[str, tuple[str, ...]] = {
    "file": (
        "/etc/apt/apt.conf.d/90-plumbline",
        "/etc/lmod/*",
        "/etc/munge/munge.key",
        "/etc/mysql/mariadb.conf.d/60-slurm.cnf",
        "/etc/plumbline/**",
        "/etc/prometheus/prometheus.yml",
        "/etc/prometheus/web.yml",
        "/etc/prometheus/rules/*.yml",
        "/etc/prometheus/secrets/*",
        "/etc/prometheus/targets/*",
        "/etc/security/limits.d/90-plumbline.conf",
        "/etc/slurm/*.conf",
        "/etc/slurm/epilog.d/*",
        "/etc/slurm/prolog.d/*",
        "/etc/ssh/authorized_keys.d/*",
        "/etc/ssh/sshd_config.d/30-plumbline-users.conf",
        "/etc/systemd/system/*.d/*plumbline*.conf",
        "/etc/systemd/system/plumbline-*",
        "/etc/sysctl.d/50-plumbline-*.conf",
        "/opt/examples/*",
        "/opt/modules/modulefiles/**",
        "/opt/plumbline/bin/python",
        "/usr/local/bin/job-report",
        "/usr/local/lib/plumbline/*",
        "/usr/local/sbin/plumbline-*",
    ),
    "block": ("/etc/bash.bashrc", "/etc/hosts"),
    "leftover": tuple(LEFTOVERS),
    "package": (
        "chrony",
        "lmod",
        "logrotate",
        "lsb-release",
        "mariadb-server",
        "munge",
        "prometheus",
        "prometheus-alertmanager",
        "prometheus-node-exporter",
        "python3-pymysql",
        "python3-torch",
        "rsync",
        "slurm-client",
        "slurmctld",
        "slurmd",
        "slurmdbd",
        "libpam-slurm-adopt",
    ),
    "unit": (
        "chrony.service",
        "mariadb.service",
        "munge.service",
        "plumbline-*.timer",
        "plumbline-slurm-exporter.service",
        "plumbline-gpu-exporter.service",
        "prometheus.service",
        "prometheus-alertmanager.service",
        "prometheus-node-exporter.service",
        "slurmctld.service",
        "slurmd.service",
        "slurmdbd.service",
    ),
    "user": ("ada",),
}
HOWS: Mapping[str, tuple[str, ...]] = {
    "file": ("content", "mode", "owner", "removed"),
    "block": ("shortened",),
    "leftover": ("added",),
    "package": ("removed",),
    "unit": ("stopped", "disabled"),
    "user": ("shell", "comment"),
}


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """What is not drawn: kind, subject, how, each a pattern, on the hosts of a group."""

    kind: str
    subject: str
    how: str
    reason: str
    group: str = "all"


UNCLAIMED: tuple[Unclaimed, ...] = (
    Unclaimed(
        "file",
        "/etc/munge/munge.key",
        "content",
        "the controller's key is the cluster's: a run with another one is refused",
        "slurm_controller",
    ),
    *(
        Unclaimed(
            "file",
            "/etc/systemd/system/*.d/50-plumbline.conf",
            how,
            "daemon_inputs keeps what is in it, and systemd reads it whoever owns it",
        )
        for how in ("mode", "owner")
    ),
)
# What is made anew where it is amiss: it is not the one of before then, and need not be.
REMADE = ("/etc/plumbline/tls/host.crt", "/etc/plumbline/tls/host.key")


@dataclass(frozen=True, slots=True, order=True)
class Drift:
    """One change by hand."""

    host: str
    kind: str
    subject: str
    how: str

    def __str__(self) -> str:
        return f"{self.host}: {self.kind} {self.subject} {self.how}"


# What each host has: by kind and subject, its state.
Looked = Mapping[str, Mapping[str, Mapping[str, str]]]


def candidates(looked: Looked, groups: Mapping[str, Sequence[str]]) -> Iterator[Drift]:
    """Every change that could be drawn on a deployed cluster."""
    for host, kinds in sorted(looked.items()):
        for kind, hows in HOWS.items():
            for subject, state in sorted(kinds.get(kind, {}).items()):
                for how in hows:
                    drift = Drift(host, kind, subject, how)
                    if can_change(drift, state, kinds, groups) and not unclaimed(drift, groups):
                        yield drift


def can_change(
    drift: Drift,
    state: str,
    kinds: Mapping[str, Mapping[str, str]],
    groups: Mapping[str, Sequence[str]],
) -> bool:
    if drift.kind == "leftover":
        return state == ABSENT and drift.host in groups.get(LEFTOVERS[drift.subject], ())
    if drift.kind == "package":
        return drift.subject in kinds["alone"]
    if drift.how == "stopped":
        return "active" in state.split()
    if drift.how == "disabled":
        return "enabled" in state.split()
    return state != ABSENT


def unclaimed(drift: Drift, groups: Mapping[str, Sequence[str]]) -> bool:
    return any(
        drift.kind == exception.kind
        and fnmatch(drift.subject, exception.subject)
        and fnmatch(drift.how, exception.how)
        and (exception.group == "all" or drift.host in groups.get(exception.group, ()))
        for exception in UNCLAIMED
    )


def draw(of: Sequence[Drift], count: int, seed: int) -> list[Drift]:
    """As many changes, each of another thing; every way of changing a thing has its turn."""
    chance = random.Random(seed)
    piles: dict[tuple[str, str], list[Drift]] = {}
    for drift in sorted(of):
        piles.setdefault((drift.kind, drift.how), []).append(drift)
    for pile in piles.values():
        chance.shuffle(pile)
    drawn: dict[tuple[str, str, str], Drift] = {}
    turns = cycle(chance.sample(sorted(piles), len(piles)))
    while len(drawn) < count and any(piles.values()):
        pile = piles[next(turns)]
        while pile:
            drift = pile.pop()
            if (thing := (drift.host, drift.kind, drift.subject)) not in drawn:
                drawn[thing] = drift
                break
    return sorted(drawn.values())


# Files first, and packages last: what a package brings is there as long as something is done to it.
ORDER = ("file", "block", "leftover", "user", "unit", "package")


def changes(drifts: Sequence[Drift]) -> dict[str, list[tuple[str, str, str]]]:
    """By host, what its node is told to do, in turn."""
    ordered = sorted(drifts, key=lambda drift: (ORDER.index(drift.kind), drift))
    by_host: dict[str, list[tuple[str, str, str]]] = {}
    for drift in ordered:
        by_host.setdefault(drift.host, []).append((drift.kind, drift.subject, drift.how))
    return by_host


def as_document(drifts: Sequence[Drift]) -> list[dict[str, str]]:
    return [asdict(drift) for drift in drifts]
