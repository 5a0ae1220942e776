"""What cannot work is told before any host is asked, all of it at once, one sentence each."""

from typing import Any

import pytest

from roles.slurm_associations.plugin_utils.declared import problems, read

ACCOUNTS: list[dict[str, Any]] = [
    {"name": "physics", "parent": "science", "qos": ["normal", "long"], "default_qos": "normal"},
    {"name": "science", "fairshare": 60},
    {"name": "root", "qos": ["normal"]},
]
QOS: list[dict[str, Any]] = [
    {"name": "long", "limits": {"MaxWall": "7-00:00:00", "MaxTRESPerUser": {"gres/gpu": 8}}},
    {"name": "urgent", "preempt": ["long", "normal"], "priority": 100},
]
USERS: list[dict[str, Any]] = [
    {"name": "alice", "account": "physics"},
    {
        "name": "bob",
        "accounts": ["physics", "science"],
        "default_account": "science",
        "limits": {"MaxJobs": 4},
        "per_account": {"science": {"limits": {"MaxJobs": 1}}},
    },
]


def test_what_fits_together_is_refused_nothing():
    partitions: list[dict[str, Any]] = [
        {"name": "a", "settings": {"QOS": "long", "AllowAccounts": ["physics", "Science"]}},
        {"name": "b", "settings": {"AllowQos": "ALL", "DenyQOS": "urgent,normal"}},
        {"name": "c"},
    ]
    assert problems(ACCOUNTS, QOS, USERS, partitions) == []


def test_what_is_declared_is_read_with_parents_first():
    declared, _ = read(ACCOUNTS, QOS, USERS)
    assert [(account.name, account.parent, account.depth) for account in declared.accounts] == [
        ("root", "", 0),
        ("science", "root", 1),
        ("physics", "science", 2),
    ]
    assert declared.qos[0].values == {"MaxWall": 10080, "MaxTRESPU": (("gres/gpu", 8),)}
    bob = declared.users[1]
    assert (bob.first, bob.default) == ("science", "science")
    assert bob.accounts == {"physics": {"MaxJobs": 4}, "science": {"MaxJobs": 1}}
    assert (declared.users[0].first, declared.users[0].default) == ("physics", "")
    assert declared.resources() == {"gres/gpu"}


def test_what_is_said_first_for_a_user_in_an_account_comes_before_what_is_said_for_all():
    user = {"name": "eve", "account": "science", "accounts": ["physics", "science"], "fairshare": 2}
    declared, refusals = read(ACCOUNTS, QOS, [user])
    assert refusals == []
    assert list(declared.users[0].accounts) == ["science", "physics"]


@pytest.mark.parametrize(
    ("accounts", "qos", "users", "sentence"),
    [
        ([{"name": "a", "parent": "sciense"}, {"name": "science"}], [], [],
         "account a: parent names the account sciense, which is not declared; did you mean "
         "science?"),
        ([{"name": "a", "parent": "nowhere"}], [], [],
         "which is not declared; declare it, or use one of a, root."),
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "c"}, {"name": "c", "parent": "a"}],
         [], [], "accounts a, b, c are each other's parents"),
        ([{"name": "a", "parent": "a"}], [], [],
         "account a is its own parent; give it another one."),
        ([{"name": "a"}, {"name": "a"}], [], [],
         "account a is declared 2 times; leave one of them."),
        ([{"name": "Physics"}], [], [], "Slurm makes lower case of it; write physics."),
        ([{"name": "a,b"}], [], [], "the name may have letters, digits"),
        ([{"name": "root", "parent": "a"}, {"name": "a"}], [], [], "root is the top of the tree"),
        ([{"name": "a", "qos": ["lng"]}], [{"name": "long"}], [],
         "account a: qos names the QOS lng, which is not declared; did you mean long?"),
        ([{"name": "a", "default_qos": "long"}], [], [], "the QOS long, which is not declared"),
        ([{"name": "a", "qos": ["normal"], "default_qos": "long"}], [{"name": "long"}], [],
         "account a: default_qos is long, which is not in its qos (normal)"),
        ([{"name": "a", "limits": {"MaxJob": 3}}], [], [],
         "account a: MaxJob is no limit of Slurm's; did you mean MaxJobs?"),
        ([{"name": "a", "limits": {"MaxTRESPerUser": {"cpu": 3}}}], [], [],
         "MaxTRESPerUser is a limit of a QOS alone; set it there."),
        ([{"name": "a", "limits": {"GrpTRES": {"gpu": 3}}}], [], [],
         "and gpu is none of cpu, mem,"),
        ([{"name": "a", "limits": {"MaxWall": 86400}}], [], [],
         'account a: MaxWall is 86400; set it to a time in quotes, such as "1-00:00:00"'),
        ([{"name": "a", "limits": {"MaxWall": "1", "maxwalldurationperjob": "2"}}], [], [],
         "limits has MaxWall under two names"),
        ([{"name": "a", "limits": ["MaxJobs"]}], [], [], "make it a mapping"),
        ([{"name": "a", "fairshare": "much"}], [], [], "account a: fairshare is 'much'"),
        ([{"name": "a", "description": "a | b"}], [], [], "leave out quotes, | and line breaks."),
        ([], [{"name": "a", "preempt": ["b"]}], [], "QOS a: preempt names the QOS b, which is not"),
        ([], [{"name": "a", "preempt": ["a"]}], [], "QOS a preempts itself"),
        ([], [{"name": "a", "flags": ["DenyOnLimits"]}], [], "did you mean DenyOnLimit?"),
        ([], [{"name": "a", "limits": {"MaxTRESRunMins": "cpu=1"}}], [],
         "MaxTRESRunMins is a limit of accounts and users, not of a QOS; set it there."),
        ([], [], [{"name": "eve"}], "user eve has no account; set account, or accounts."),
        ([], [], [{"name": "eve", "account": "a"}], "user eve names the account a, which is not"),
        ([{"name": "a"}], [], [{"name": "eve", "account": "a"}, {"name": "eve", "account": "a"}],
         "user eve is declared 2 times; leave one of them."),
        ([{"name": "a"}], [], [{"name": "eve", "accounts": ["a", "a"]}],
         "user eve is in the account a 2 times"),
        ([{"name": "a"}, {"name": "b"}], [],
         [{"name": "eve", "account": "a", "default_account": "b"}],
         "user eve: default_account is b, which is none of the user's accounts (a)"),
        ([{"name": "a"}], [], [{"name": "root", "account": "a"}], "user root is Slurm's own"),
        ([{"name": "a"}], [], [{"name": "eve", "account": "a", "qos": ["x"]}],
         "user eve: qos names the QOS x, which is not declared; declare it, or use one of normal."),
        ([{"name": "a", "qos": ["normal"]}], [{"name": "x"}],
         [{"name": "eve", "account": "a", "default_qos": "x"}],
         "user eve in a: default_qos is x, which is not in its qos (normal)"),
        ([{"name": "a"}], [], [{"name": "eve", "account": "a", "per_account": {"b": {}}}],
         "user eve in b: per_account names an account that the user is not in"),
        ([{"name": "a"}], [],
         [{"name": "eve", "account": "a", "per_account": {"a": {"default_account": "a"}}}],
         "default_account is not for here; use fairshare, priority, qos, default_qos, limits."),
        ([{"name": "a"}], [], [{"name": "eve", "account": "a", "per_account": ["a"]}],
         "make it a mapping by account."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_what_to_set_instead(accounts, qos, users, sentence):
    refusals = problems(accounts, qos, users)
    assert [refusal for refusal in refusals if sentence in refusal], refusals
    assert all(refusal.startswith("slurm_associations: ") for refusal in refusals)
    assert len(refusals) == len(set(refusals))


def test_all_of_it_is_told_at_once():
    refusals = problems([{"name": "A"}], [{"name": "q", "preempt": ["z"]}], [{"name": "eve"}])
    assert len(refusals) == 3


def test_a_partition_names_what_is_declared():
    settings = {"AllowQos": "long,lnog", "AllowAccounts": "chemistry"}
    qos, account = problems(ACCOUNTS, QOS, [], [{"name": "gpu", "settings": settings}])
    assert "partition gpu: AllowQos names the QOS lnog, which is not declared; did" in qos
    assert "partition gpu: AllowAccounts names the account chemistry, which is not" in account


def test_the_validation_submits_with_what_is_declared():
    assert problems(ACCOUNTS, QOS, [], [], {"account": "Physics", "qos": "urgent"}) == []
    (refusal,) = problems(ACCOUNTS, QOS, [], [], {"account": "phisics", "qos": "normal"})
    assert "validation_submission: account names the account phisics, which is not" in refusal


@pytest.mark.parametrize("name", ["", "long", "Urgent", "normal"])
def test_tests_in_the_background_have_a_qos_that_is_declared(name):
    assert problems(ACCOUNTS, QOS, [], background_qos=name) == []


def test_a_qos_of_tests_in_the_background_that_nobody_declares_is_refused():
    (near,) = problems(ACCOUNTS, QOS, [], background_qos="lnog")
    assert near == (
        "slurm_associations: validation_background_qos names the QOS lnog, which is not declared; "
        "did you mean long?"
    )
    (far,) = problems(ACCOUNTS, QOS, [], background_qos="scavenger")
    assert "which is not declared; declare it, or use one of" in far


def test_what_is_kept_by_hand_is_not_judged():
    partitions = [{"name": "gpu", "settings": {"QOS": "mine", "AllowAccounts": "ours"}}]
    submission = {"account": "ours", "qos": "mine"}
    assert problems([], [], [], partitions, submission, background_qos="mine") == []
