"""What is declared and not enforced looks right, and is not: slurmctld is asked."""

import pytest

from roles.slurm_associations.plugin_utils.enforced import locked_out, not_asked, unenforced

ACCOUNTS = [{"name": "a"}]
LIMITED = [{"name": "a", "limits": {"MaxJobs": 1}}]
QOS = [{"name": "q", "limits": {"MaxWall": "60"}}]
SHARED = [{"name": "a", "fairshare": 3}]
SHARES = [{"name": "u", "per_account": {"a": {"fairshare": 3}}}]
ALL = "associations,limits,qos,safe"


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
    message = unenforced(config(value), *declared)
    assert (f"AccountingStorageEnforce is {value}, without {missing};" in message) == bool(missing)
    assert bool(message) == bool(missing)


@pytest.mark.parametrize(("settings", "enforce"), [("", True), (config("none"), False)])
def test_nothing_is_said_of_a_slurmctld_that_is_away_or_to_a_site_that_wants_none(
    settings, enforce
):
    assert unenforced(settings, LIMITED, QOS, [], enforce=enforce) == ""


# --- what has no weight --------------------------------------------------------------------------


def priorities(kind: str = "priority/multifactor", **weights: int) -> str:
    by_name = {"Assoc": 0, "FairShare": 0, "QOS": 0} | weights
    lines = [f"PriorityWeight{name:<9} = {value}" for name, value in by_name.items()]
    return "\n".join([config(ALL), f"PriorityType            = {kind}", *lines, ""])


@pytest.mark.parametrize(
    ("settings", "declared", "words"),
    [
        (priorities(), (SHARED, [], []), "fairshare counts nothing: PriorityWeightFairshare is 0;"),
        (priorities(), ([], [], SHARES), "fairshare counts nothing: PriorityWeightFairshare is 0;"),
        (
            priorities(FairShare=1),
            ([{"name": "a", "priority": 3}], [{"name": "q", "priority": 3}], []),
            "PriorityWeightAssoc is 0, priority counts nothing: PriorityWeightQOS is 0;",
        ),
        (priorities("priority/basic", FairShare=1), (SHARED, [], []), "is priority/basic, not"),
        (priorities(FairShare=1), (SHARED, [], []), ""),
        (priorities(), ([{"name": "a", "fairshare": -1}], [], []), ""),
        (priorities(), (ACCOUNTS, QOS, []), ""),
    ],
)
def test_shares_and_priorities_that_count_nothing_are_named(settings, declared, words):
    message = unenforced(settings, *declared)
    assert words in message
    assert bool(message) == bool(words)


# --- before slurmctld asks for associations -------------------------------------------------------


@pytest.mark.parametrize(
    ("enforce", "kind", "expected"),
    [
        ("none", "accounting_storage/slurmdbd", True),
        ("nojobs", "accounting_storage/slurmdbd", True),
        ("associations", "accounting_storage/slurmdbd", False),
        ("safe", "accounting_storage/slurmdbd", False),
        ("none", "(null)", False),  # there is no database to know anybody
    ],
)
def test_only_a_cluster_in_use_that_does_not_ask_yet_has_a_before(enforce, kind, expected):
    assert not_asked(f"AccountingStorageType = {kind}\n{config(enforce)}") is expected
    assert not not_asked("")


def test_who_has_jobs_and_would_be_let_in_no_more_is_named():
    answer = "job ada\njob eve\njob mallory\njob root\nuser \nuser ada\nuser root\n"
    message = locked_out(answer, [{"name": "mallory", "account": "a"}])
    assert message.startswith("slurm_associations: users who have jobs have no association (eve), ")
    assert locked_out("user root\n", []) == ""
    many = "\n".join(f"job u{number:02}" for number in range(12))
    assert "(u00, u01, u02, u03, u04, u05, u06, u07, u08, u09 and 2 more)" in locked_out(many, [])
