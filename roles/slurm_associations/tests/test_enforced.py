"""What is declared and not enforced looks right, and is not: slurmctld is asked."""

from __future__ import annotations

import pytest

from roles.slurm_associations.plugin_utils.enforced import unenforced

ACCOUNTS = [{"name": "a"}]
LIMITED = [{"name": "a", "limits": {"MaxJobs": 1}}]
QOS = [{"name": "q", "limits": {"MaxWall": "60"}}]


def config(value: str) -> str:
    """As `scontrol show config` prints it."""
    return f"AccountingStorageBackupHost = (null)\nAccountingStorageEnforce = {value}\nX = 1\n"


@pytest.mark.parametrize(
    ("value", "declared", "missing"),
    [
        ("none", (ACCOUNTS, [], []), "associations"),
        ("none", (LIMITED, [], []), "associations and limits"),
        ("none", (LIMITED, QOS, []), "associations and limits and qos"),
        ("associations", (LIMITED, [], []), "limits"),
        ("associations,limits", (LIMITED, QOS, []), "qos"),
        ("associations,limits,safe", ([], QOS, []), "qos"),
        ("associations,nojobs", (ACCOUNTS, [], [{"name": "u", "account": "a"}]), ""),
        ("associations,limits,qos,safe", (LIMITED, QOS, []), ""),
        ("qos,safe", (LIMITED, QOS, []), ""),
        ("none", ([], [], []), ""),
    ],
)
def test_what_is_missing_is_named(value, declared, missing):
    said = unenforced(config(value), *declared)
    assert (f"AccountingStorageEnforce is {value}, without {missing};" in said) == bool(missing)
    assert bool(said) == bool(missing)


def test_nothing_is_said_of_a_slurmctld_that_is_away():
    assert unenforced("", LIMITED, QOS, []) == ""
