"""MariaDB's tuning by the host's memory, a database elsewhere, and the room of an upgrade."""

from typing import Any

import pytest

from roles.slurm_database.filter_plugins.slurm_database import (
    buffer_pool_mb,
    full,
    log_file_mb,
    storage_problems,
)


@pytest.mark.parametrize(
    ("memory", "pool", "log"),
    [
        (0, 1024, 256),  # nobody knows
        (1900, 1024, 256),
        (4000, 1024, 256),
        (7900, 3072, 768),
        (16000, 4096, 1024),
        (24105, 5120, 1024),
        (24300, 5120, 1024),  # another kernel, the same pool
        (1000000, 65536, 1024),
    ],
)
def test_the_pool_is_a_part_of_the_memory_in_whole_gib(memory, pool, log):
    assert (buffer_pool_mb(memory), log_file_mb(pool)) == (pool, log)


def test_a_small_pool_has_no_smaller_log_than_slurmdbd_asks_for():
    assert log_file_mb(128) == 64


def storage(**changes: Any) -> dict[str, Any]:
    hosts = {"slurmdbd": "ctl1", "backup": ""}
    return {"host": "db1", "port": 3306, "ca": "", "pool": 0, "settings": {}, **hosts, **changes}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (storage(host="", ca="/site/ca.pem"), "slurm_database_storage_ca_file is set, which is"),
        (storage(host="", port=3307), "or remove slurm_database_storage_port."),
        (storage(pool=4096), "slurm_database_storage_host is db1, whose database others tune;"),
        (storage(ca="/ca", settings={"storageParameters": "SSL_CERT=/x"}), "put SSL_CA=/etc/slurm"),
        (storage(host="", backup="ctl2"), "in a MariaDB on ctl1, which ctl2 does not reach"),
        (storage(host="127.0.0.1", backup="ctl2"), "name a database that both reach in"),
        (storage(host="localhost", backup="ctl2"), "or have no backup (cluster_database_backup)."),
    ],
)
def test_contradictions_are_one_sentence_each(settings, words):
    [problem] = storage_problems(settings)
    assert words in problem


@pytest.mark.parametrize(
    "settings",
    [
        storage(host=""),
        storage(backup="ctl2"),
        storage(host="", pool=8192),
        storage(port=3307, ca="/site/ca.pem"),
        storage(ca="/site/ca.pem", settings={"StorageParameters": "SSL_CERT=/x,SSL_CA=/y"}),
        storage(settings={"StorageParameters": "SSL_CERT=/x"}),
    ],
)
def test_what_fits_together_is_refused_nothing(settings):
    assert storage_problems(settings) == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("size=1000\nAvail Mounted on\n 9000 /\n 9000 /\n", []),
        # One filesystem has to hold both.
        ("size=1000\nAvail Mounted on\n 2000 /\n 2000 /\n", ["/ has 2000 MiB free", "2256 MiB"]),
        ("size=1000\nAvail Mounted on\n 2000 /\n 1200 /db\n", ["/db has 1200 MiB", "1256 MiB"]),
        # The database is elsewhere: only the dump is here, and how large nobody knows.
        ("size=\nAvail Mounted on\n 100 /\n", ["/ has 100 MiB free"]),
        ("size=\nAvail Mounted on\n 5000 /\n", []),
    ],
)
def test_dump_and_conversion_need_room(answer, words):
    sentences = full(answer)
    assert len(sentences) == bool(words)
    assert all(word in sentences[0] for word in words)
