"""From any state of Slurm's database to what is declared, in few commands, and then in none."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from roles.slurm_associations.plugin_utils import database_state, plan
from roles.slurm_associations.plugin_utils.declared import read
from roles.slurm_associations.tests.database import Database

QOS: list[dict[str, Any]] = [
    {"name": "normal", "limits": {"MaxWall": "1-00:00:00"}},
    {"name": "long", "flags": ["DenyOnLimit"], "limits": {"MaxTRESPerUser": {"gres/gpu": 8}}},
    {"name": "urgent", "priority": 100, "preempt": ["long", "normal"], "usage_factor": 2},
]
ACCOUNTS: list[dict[str, Any]] = [
    {"name": "science", "fairshare": 60, "description": "Natural sciences"},
    {"name": "physics", "parent": "science", "qos": ["normal", "long"], "default_qos": "normal"},
    {"name": "chemistry", "parent": "science", "limits": {"GrpTRES": {"cpu": 64, "mem": "1T"}}},
]
USERS: list[dict[str, Any]] = [
    {"name": "alice", "account": "physics", "default_qos": "long"},
    {"name": "bob", "accounts": ["chemistry", "physics"], "admin_level": "operator"},
]


def planned(
    database: Database,
    accounts: Sequence[Any] = (),
    qos: Sequence[Any] = (),
    users: Sequence[Any] = (),
    *,
    remove: bool = False,
) -> plan.Plan:
    declared, problems = read(accounts, qos, users)
    assert problems == []
    printed = {
        name: database.answer(call) for name, call in database_state.questions(declared).items()
    }
    there = database_state.parse(printed, declared, database.cluster)
    assert plan.untracked(declared, there) == []
    return plan.plan(declared, there, database.cluster, remove=remove)


def apply(database: Database, *declared: Sequence[Any], remove: bool = False) -> plan.Plan:
    """Runs the plan, after which there is nothing left to do."""
    first = planned(database, *declared, remove=remove)
    assert first.problems == ()
    for command in first.commands:
        database.run(command)
    again = planned(database, *declared, remove=remove)
    assert (again.commands, again.before, again.after) == ([], "", "")
    return first


def commands(changes: plan.Plan) -> list[str]:
    """What sacctmgr is told."""
    assert all(command[:2] == ("sacctmgr", "--immediate") for command in changes.commands)
    return [" ".join(command[2:]) for command in changes.commands]


@pytest.fixture
def database() -> Database:
    """With what is declared above."""
    filled = Database()
    apply(filled, ACCOUNTS, QOS, USERS)
    return filled


# --- from nothing --------------------------------------------------------------------------------


def test_what_is_declared_comes_to_be_before_what_names_it():
    changes = apply(Database(), ACCOUNTS, QOS, USERS)
    assert commands(changes) == [
        "add qos name=long Flags=DenyOnLimit MaxTRESPU=gres/gpu=8",
        "add qos name=urgent Priority=100 UsageFactor=2.0",
        "modify qos where name=normal set MaxWall=1-00:00:00",
        "modify qos where name=urgent set Preempt=long,normal",
        "add account name=science cluster=site parent=root Description=natural sciences "
        "Fairshare=60",
        "add account name=physics cluster=site parent=science QOS=long,normal DefaultQOS=normal",
        "add account name=chemistry cluster=site parent=science GrpTRES=cpu=64,mem=1048576",
        "add user name=alice account=physics cluster=site DefaultAccount=physics DefaultQOS=long",
        "add user name=bob account=chemistry cluster=site DefaultAccount=chemistry "
        "AdminLevel=operator",
        "add user name=bob account=physics cluster=site",
    ]


def test_each_change_is_a_line_before_and_a_line_after():
    database = Database()
    first = apply(database, ACCOUNTS, QOS, USERS)
    assert first.before == "QOS normal: MaxWall=none\nQOS urgent: Preempt=none\n"
    assert "user alice in physics: DefaultAccount=physics, DefaultQOS=long\n" in first.after
    changed = [{**QOS[0], "limits": {"MaxWall": "12:00:00"}}, *QOS[1:]]
    second = apply(database, ACCOUNTS, changed, USERS)
    assert second.before == "QOS normal: MaxWall=1-00:00:00\n"
    assert second.after == "QOS normal: MaxWall=0-12:00:00\n"


def test_a_thousand_users_are_a_few_commands():
    users = [{"name": f"u{number:04}", "account": "physics"} for number in range(1000)]
    database = Database()
    changes = apply(database, ACCOUNTS, QOS, users)
    assert sum(command[3] == "user" for command in changes.commands) == 1000 // plan.PER_CALL
    more = [{**user, "fairshare": 5} for user in users[:600]] + users[600:]
    changed = apply(database, ACCOUNTS, QOS, more)
    assert len(changed.commands) == 2
    assert changed.after.count("\n") == 600
    assert all(sum(map(len, command)) < 100_000 for command in changes.commands)


# --- what is there already -----------------------------------------------------------------------


def test_a_limit_is_taken_away_by_what_slurm_takes_it_away_with(database):
    chemistry = {**ACCOUNTS[2], "limits": {"GrpTRES": {"cpu": 32}, "MaxJobs": -1}}
    long = {**QOS[1], "flags": [], "limits": {"MaxTRESPU": -1}}
    urgent = {**QOS[2], "preempt": []}
    changes = apply(database, [*ACCOUNTS[:2], chemistry], [QOS[0], long, urgent], USERS)
    assert commands(changes) == [
        "modify qos where name=long set Flags=-1 MaxTRESPU=gres/gpu=-1",
        "modify qos where name=urgent set Preempt=",
        "modify account where name=chemistry cluster=site set GrpTRES=cpu=32,mem=-1",
    ]


def test_equal_changes_are_one_command(database):
    users = [{**user, "limits": {"MaxJobs": 4}} for user in USERS]
    changes = apply(database, ACCOUNTS, QOS, users)
    assert commands(changes) == [
        "modify user where name=alice,bob account=physics cluster=site set MaxJobs=4",
        "modify user where name=bob account=chemistry cluster=site set MaxJobs=4",
    ]


def test_what_somebody_added_by_hand_stays_and_is_named(database):
    database.add_qos(["mine"], {}, {"Priority": "5"})
    database.add_account(["old"], {}, {"parent": "science"})
    database.add_user(["eve"], {"account": "old"}, {"DefaultAccount": "old"})
    database.add_user(["alice"], {"account": "old"}, {})
    database.modify_user(["bob"], {"account": "physics"}, {"MaxJobs": "3", "GrpTRES": "cpu=4"})
    database.associations["physics", "alice", "gpu"] = {}
    same = apply(database, ACCOUNTS, QOS, USERS)
    assert same.commands == []
    assert same.kept == (
        "user alice in old",
        "user alice in physics, partition gpu",
        "user bob in physics: GrpTRES=cpu=4",
        "user bob in physics: MaxJobs=3",
        "user eve",
        "account old",
        "QOS mine",
    )
    assert plan.sentence(same.kept).startswith(
        "Kept, though nobody declares it: user alice in old, "
    )

    gone = apply(database, ACCOUNTS, QOS, USERS, remove=True)
    assert commands(gone) == [
        "modify user where name=bob account=physics cluster=site set GrpTRES=cpu=-1 MaxJobs=-1",
        "delete user where name=alice account=old cluster=site",
        "delete user where name=alice account=physics cluster=site partition=gpu",
        "delete user where name=eve",
        "delete account where name=old",
        "delete qos where name=mine",
    ]
    assert "account old\n" in gone.before
    assert "old" not in gone.after
    assert ("root", "root", "") in database.associations
    assert gone.kept == ()


def test_a_kind_of_which_nothing_is_declared_is_left_alone(database):
    assert apply(database, ACCOUNTS, QOS, [], remove=True).commands == []
    assert apply(database, [], QOS, [], remove=True).commands == []
    changes = apply(database, [], QOS[:2], [], remove=True)
    assert commands(changes) == ["delete qos where name=urgent"]


def test_an_account_with_users_of_which_none_is_declared_is_not_removed(database):
    changes = planned(database, [*ACCOUNTS[:2]], QOS, [], remove=True)
    assert changes.problems == (
        "slurm_associations: account chemistry is not declared and would be removed, but users are "
        "in it (bob), and no users are declared; declare the account, or the users.",
    )


def test_accounts_move_below_their_new_parents(database):
    turned = [
        {**ACCOUNTS[0], "parent": "physics"},
        {**ACCOUNTS[1], "parent": "chemistry"},
        {**ACCOUNTS[2], "parent": "root"},
    ]
    changes = apply(database, turned, QOS, USERS)
    assert commands(changes) == [
        "modify account where name=chemistry cluster=site set Parent=root",
        "modify account where name=physics cluster=site set Parent=chemistry",
        "modify account where name=science cluster=site set Parent=physics",
    ]
    assert changes.before.splitlines()[0] == "account chemistry: Parent=science"


def test_a_user_moves_from_one_account_to_another(database):
    moved = [{"name": "alice", "account": "chemistry"}, USERS[1]]
    changes = apply(database, ACCOUNTS, QOS, moved, remove=True)
    assert commands(changes) == [
        "add user name=alice account=chemistry cluster=site",
        "modify user where name=alice cluster=site set DefaultAccount=chemistry",
        "delete user where name=alice account=physics cluster=site",
    ]


def test_a_default_account_that_a_user_chose_stays_unless_one_is_declared(database):
    database.modify_user(["bob"], {}, {"DefaultAccount": "physics"})
    assert apply(database, ACCOUNTS, QOS, USERS).commands == []
    assert apply(database, ACCOUNTS, QOS, USERS, remove=True).commands == []
    declared = [USERS[0], {**USERS[1], "default_account": "chemistry"}]
    changes = apply(database, ACCOUNTS, QOS, declared)
    assert commands(changes) == [
        "modify user where name=bob cluster=site set DefaultAccount=chemistry",
    ]


def test_an_account_gets_qos_before_its_users_and_loses_them_after(database):
    physics = {**ACCOUNTS[1], "qos": ["normal", "urgent"]}
    alice = {**USERS[0], "default_qos": "urgent"}
    changes = apply(database, [ACCOUNTS[0], physics, ACCOUNTS[2]], QOS, [alice, USERS[1]])
    assert commands(changes) == [
        "modify account where name=physics cluster=site set QOS=long,normal,urgent",
        "modify user where name=alice account=physics cluster=site set DefaultQOS=urgent",
        "modify account where name=physics cluster=site set QOS=normal,urgent",
    ]
    assert changes.after.count("QOS=") == 3


def test_root_may_say_what_everyone_has():
    database = Database()
    root = {"name": "root", "qos": ["normal", "long"], "default_qos": "long"}
    changes = apply(database, [root, *ACCOUNTS], QOS, USERS, remove=True)
    assert (
        "modify account where name=root cluster=site set QOS=long,normal DefaultQOS=long"
        in commands(changes)
    )
    assert not [command for command in changes.commands if command[2] == "delete"]


# --- several clusters ----------------------------------------------------------------------------


def test_what_is_another_clusters_stays(database):
    database.add_qos(["mine"], {}, {})
    database.add_account(["old"], {}, {"parent": "root"})
    declared, _ = read(ACCOUNTS, QOS, USERS)
    printed = {
        name: database.answer(call) for name, call in database_state.questions(declared).items()
    }
    width = database_state.questions(declared)["associations"][-1].count(",")
    printed["associations"] += f"other|old|||root{'|' * (width - 4)}\n"
    printed["associations"] += f"other|theirs|||root{'|' * (width - 4)}\n"
    printed["associations"] += f"other|old|eve||{'|' * (width - 4)}\n"
    printed["accounts"] += "theirs|root|theirs\n"
    printed["users"] += "eve|old|None\n"
    there = database_state.parse(printed, declared, "SITE")
    changes = plan.plan(declared, there, "site", remove=True)
    assert commands(changes) == ["delete account where name=old cluster=site"]
    assert changes.kept == ("QOS mine",)
    defaults = database_state.defaults(
        "other|old|alice\nsite|physics|alice\nsite|root|root\n", "site"
    )
    there = database_state.with_defaults(there, defaults)
    assert (there.users["alice"].default, there.users["eve"].default) == ("physics", "")


# --- what stands in the way ----------------------------------------------------------------------


def test_what_has_jobs_is_not_removed(database):
    removals = planned(
        database, ACCOUNTS[:2], QOS[:2], [{"name": "bob", "account": "physics"}], remove=True
    ).removals
    jobs = "1|alice|physics|normal\n2|bob|chemistry|urgent\n3|bob|physics|normal\nbroken\n"
    assert plan.busy(removals, jobs) == [
        f"slurm_associations: {subject} is not declared and would be removed, but has jobs "
        f"({job}); declare it, let them end, or cancel them."
        for subject, job in [
            ("user bob in chemistry", 2),
            ("user alice", 1),
            ("account chemistry", 2),
            ("QOS urgent", 2),
        ]
    ]
    assert plan.busy(removals, "4|carol|physics|normal\n") == []


def test_resources_that_slurm_does_not_count_are_told():
    declared, _ = read([], [{"name": "a", "limits": {"GrpTRES": "gres/gpu:h100=4,cpu=1"}}], [])
    there = database_state.DatabaseState(resources=frozenset({"cpu", "gres/gpu"}))
    [sentence] = plan.untracked(declared, there)
    assert (
        "gres/gpu:h100, which Slurm does not account; add it to AccountingStorageTRES" in sentence
    )
    assert "resources" in database_state.questions(declared)
    declared, _ = read([], [{"name": "a", "limits": {"GrpTRES": "cpu=4"}}], [])
    assert "resources" not in database_state.questions(declared)


# --- any state -----------------------------------------------------------------------------------


def site(chance: random.Random) -> tuple[list[Any], list[Any], list[Any]]:
    """A declaration at random; every list has something."""

    def limits() -> dict[str, Any]:
        every = {
            "MaxJobs": chance.choice([1, 2, -1]),
            "MaxWall": chance.choice(["60", "1-00:00:00", "-1"]),
            "GrpTRES": chance.choice([{"cpu": 4}, {"mem": "1G", "cpu": 8}, -1]),
        }
        return {name: value for name, value in every.items() if chance.random() < 0.5}

    def some(names: Sequence[str]) -> list[str]:
        return [name for name in names if chance.random() < 0.5]

    qos_names = ["normal", *some(["q1", "q2", "q3"])]
    qos = [
        {
            "name": name,
            "limits": limits(),
            "preempt": [other for other in some(qos_names) if other != name],
        }
        for name in qos_names
    ]
    names = [*some(["a1", "a2", "a3", "a4"]), "a5"]
    chance.shuffle(names)
    accounts: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        account: dict[str, Any] = {"name": name, "limits": limits()}
        account["parent"] = chance.choice(["root", *names[:number]])
        if chance.random() < 0.5:
            account["qos"] = [*some(qos_names), qos_names[0]]
            account["default_qos"] = chance.choice(account["qos"])
        accounts.append(account)
    chance.shuffle(accounts)
    users = []
    for name in [*some(["u1", "u2", "u3"]), "u4"]:
        user: dict[str, Any] = {"name": name, "limits": limits()}
        user["accounts"] = chance.sample(names, chance.randint(1, min(2, len(names))))
        if chance.random() < 0.3:
            user["qos"] = [chance.choice(qos_names)]
            user["default_qos"] = user["qos"][0]
        if chance.random() < 0.3:
            user["default_account"] = user["accounts"][-1]
        users.append(user)
    return accounts, qos, users


@pytest.mark.parametrize("seed", range(30))
def test_any_site_becomes_any_other(seed):
    chance = random.Random(seed)
    database = Database()
    for _ in range(6):
        declared = site(chance)
        accounts, _, users = declared
        # A list that goes away leaves the default that it had; a site says so for both.
        for entry in (*accounts, *users):
            entry.setdefault("default_qos", "-1")
        apply(database, *declared, remove=True)
        assert set(database.accounts) == {"root", *(entry["name"] for entry in accounts)}
        assert set(database.users) == {"root", *(entry["name"] for entry in users)}
