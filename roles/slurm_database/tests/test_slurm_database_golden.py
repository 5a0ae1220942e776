"""slurmdbd.conf of one rich cluster for the releases of Slurm, word by word.

`pytest roles/slurm roles/slurm_database --renew-golden` writes it anew; read the difference.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cluster.slurm.keys import File, Release
from tests.standins.golden import unexplained
from tests.standins.slurm_files import RELEASES, declared, of_role, policy

GOLDEN = Path(__file__).parent / "golden"
NAME = "slurmdbd.conf"


def evaluate(site: Any, release: Release, expression: str) -> Any:
    look = {"__slurm_database_policy": policy(release)}
    return of_role(site, "slurm_database", "ctl1", expression, **look)


@pytest.mark.parametrize("release", RELEASES)
def test_slurmdbd_conf_is_the_golden_one(release, golden):
    template = "lookup('ansible.builtin.template', 'etc/slurm/slurmdbd.conf.j2')"
    golden(GOLDEN / release / NAME, evaluate(declared(release), release, template))


@pytest.mark.parametrize(("older", "newer"), [*pairwise(RELEASES)])
def test_releases_differ_in_what_the_table_says_and_in_nothing_else(older, newer):
    before, after = ((GOLDEN / release / NAME).read_text() for release in (older, newer))
    assert unexplained(before, after, File.SLURMDBD, (older, newer)) == set()


def test_what_this_slurmdbd_does_not_read_is_refused_with_what_to_set_instead():
    site = declared("26.05")
    (task,) = (
        task
        for task in site.read(Path(__file__).parents[1] / "tasks/version.yml")
        if "__slurm_database_unread" in task.get("vars", {})
    )
    refusals = evaluate(site, "24.11", task["vars"]["__slurm_database_unread"].strip().strip("{}"))
    host = site.values.hosts["ctl1"].get("inventory_hostname")
    assert [re.sub(r" \(set in [^)]+:\d+\)", "", refusal) for refusal in refusals] == [
        f"slurm_database_purge.PurgeJobScriptAfter: {host} has Slurm 24.11, and only 26.05 and "
        "newer read PurgeJobScriptAfter; set PurgeJobAfter, which is for all of a job.",
        f"slurm_database_settings.MaxPurgeLimit: {host} has Slurm 24.11, and only 25.11 and "
        "newer read MaxPurgeLimit; remove it, the limit is 50000.",
    ]


def test_a_database_elsewhere_is_named_with_its_port_and_who_vouches_for_it():
    elsewhere = {
        "slurm_database_storage_host": "db1",
        "slurm_database_storage_port": 3307,
        "slurm_database_storage_ca_file": "/site/ca.pem",
    }
    site = declared("24.11")
    settings = of_role(site, "slurm_database", "ctl1", "__slurm_database_composed", **elsewhere)
    stored = {name: value for name, value in settings.items() if name.startswith("Storage")}
    assert stored == {
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "db1",
        "StoragePort": "3307",
        "StorageParameters": "SSL_CA=/etc/slurm/storage-ca.pem",
        "StorageLoc": "slurm_acct_db",
        "StorageUser": "slurm",
        "StoragePass": "a-password-of-the-tests",
    }


@pytest.mark.parametrize(
    ("output", "records", "password"),
    [
        ("Host=localhost\nPass=x=y", "localhost", "x=y"),
        ("Pass=secret", "", "secret"),
        ("", "", ""),
    ],
)
def test_what_a_slurmdbd_has_is_read_from_two_lines(output, records, password):
    look = {"__slurm_database_current_config": {"stdout": output}}
    for name, expected in (("storage", records), ("password", password)):
        expression = f"__slurm_database_current_{name}"
        assert of_role(declared("24.11"), "slurm_database", "ctl1", expression, **look) == expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"StorageHost": "db1"}, "set slurm_database_storage_host."),
        ({"StoragePass": "x"}, "set slurm_database_password."),
        ({"DbdPort": 7000}, "set slurm_database_port."),
        ({"TrackWCKey": True}, "put the word that Slurm wants in quotes."),
    ],
)
def test_settings_that_cannot_work_are_named(settings, words):
    site = declared("24.11")
    look = {"slurm_database_settings": settings}
    (problem,) = of_role(site, "slurm_database", "ctl1", "__slurm_database_refused", **look)
    assert problem.startswith("slurm_database_settings.")
    assert problem.endswith(words)
