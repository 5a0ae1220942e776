"""How MariaDB is tuned for slurmdbd, and what cannot be of a database elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

GIB = 1024  # MiB
LEAST_MB = 256
PORT = 3306
LOOPBACK = re.compile(r"localhost|127\..*|::1")


def buffer_pool_mb(memory_mb: int) -> int:
    """InnoDB's buffer pool on a host with so much memory, in MiB.

    SchedMD's accounting page asks for 5 to 50 percent of the memory and at least 4 GiB. The host
    may be a controller too, so it is a quarter. Whole GiB: a kernel that takes a few MiB more does
    not restart the database.
    """
    most = min(memory_mb // 2, 64 * GIB)
    wanted = min(max(memory_mb // 4, 4 * GIB), most)
    return max(wanted // GIB, 1) * GIB


def log_file_mb(pool_mb: int) -> int:
    """InnoDB's log, in MiB: a quarter of the pool, as the page asks, and no more than its example
    has, for after a crash all of it is read again."""
    return min(max(pool_mb // 4, 64), GIB)


def lines(output: str) -> dict[str, str]:
    """Name -> value of lines `NAME=VALUE`."""
    return {name: value for name, _, value in (line.partition("=") for line in output.splitlines())}


def full(answer: str) -> list[str]:
    """Where an upgrade has too little room, as sentences.

    Of `size=MIB` of the database, if it is this host's, and of lines `AVAILABLE PATH`: first the
    filesystem of the dump, then that of the database. A dump with gzip is never larger than the
    tables; of these the conversion copies one at a time.
    """
    size = int(next(iter(re.findall(r"^size=(\d+)$", answer, re.MULTILINE)), 0))
    needed: dict[str, int] = {}
    free: dict[str, int] = {}
    for available, path in re.findall(r"^ *(\d+) +(/\S*)$", answer, re.MULTILINE):
        needed[path] = needed.get(path, LEAST_MB) + size
        free[path] = int(available)
    return [
        f"{path} has {free[path]} MiB free, and dump and conversion of a database of {size} MiB "
        f"may need {most} MiB; make room there."
        for path, most in needed.items()
        if free[path] < most
    ]


def storage_problems(storage: Mapping[str, Any]) -> list[str]:
    """What contradicts itself in `storage`, as a site has it.

    host, port, ca, pool, settings  of the database
    slurmdbd, backup                hosts of slurmdbd
    """
    return list(_problems(storage))


def _problems(storage: Mapping[str, Any]) -> Iterator[str]:
    host, ca = str(storage["host"]), str(storage["ca"])
    settings = {str(name).lower(): value for name, value in storage["settings"].items()}
    parameters = str(settings.get("storageparameters") or "")
    if (backup := str(storage["backup"])) and (not host or LOOPBACK.fullmatch(host)):
        yield (
            f"slurm_database_backup_host is {backup}, but the records are in a MariaDB on "
            f"{storage['slurmdbd']}, which {backup} does not reach and which is away when that is; "
            "name a database that both reach in slurm_database_storage_host "
            "(docs/operate/ha.md), or have no backup (cluster_database_backup)."
        )
    if not host:
        for name, is_set in (
            ("slurm_database_storage_ca_file", ca),
            ("slurm_database_storage_port", int(storage["port"]) != PORT),
        ):
            if is_set:
                yield (
                    f"{name} is set, which is for a database elsewhere; name its host in "
                    f"slurm_database_storage_host, or remove {name}."
                )
        return
    if int(storage["pool"]):
        yield (
            "slurm_database_buffer_pool_mb is for MariaDB on this host, and "
            f"slurm_database_storage_host is {host}, whose database others tune; remove one of "
            "them."
        )
    if ca and parameters and "SSL_CA=" not in parameters.upper():
        yield (
            "slurm_database_settings.StorageParameters would replace what "
            "slurm_database_storage_ca_file sets; put SSL_CA=/etc/slurm/storage-ca.pem into it, or "
            "remove one of them."
        )


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "slurm_database_buffer_pool_mb": buffer_pool_mb,
            "slurm_database_full": full,
            "slurm_database_log_file_mb": log_file_mb,
            "slurm_database_lines": lines,
            "slurm_database_storage_problems": storage_problems,
        }
