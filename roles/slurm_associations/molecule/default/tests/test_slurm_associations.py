"""What is declared, asked of Slurm: by sacctmgr, by sshare, and by submitting jobs."""

import os
import re
import time
from pathlib import Path

import pytest
import yaml

from tests.role_play import Case

SCENARIO = Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"]) / "molecule.yml"
VARIABLES = yaml.safe_load(SCENARIO.read_text())["provisioner"]["inventory"]["group_vars"]["all"]
ACCOUNTS, QOS, USERS = (
    VARIABLES[f"slurm_associations_{kind}"] for kind in ("accounts", "qos", "users")
)
PREDICT = ("--check", "--diff")


@pytest.fixture(autouse=True)
def as_root(host):
    with host.sudo():
        yield


def shown(host, what, *columns):
    """Rows as sacctmgr prints them, without what is inherited."""
    command = f"sacctmgr -nP show {what} format={','.join(columns)}"
    return host.check_output(command).splitlines()


def association(host, account, user, *columns):
    where = f"assoc where account={account} user={user} WOPLimits"
    [row] = shown(host, where, *columns)
    return row


def transactions(host):
    """How many changes Slurm's database has recorded."""
    return len(host.check_output("sacctmgr -nP show transactions").splitlines())


def submit(host, user, *options, command="true"):
    words = " ".join(options)
    return host.run(
        f"cd /tmp && sudo -u {user} sbatch --parsable -o /dev/null {words} --wrap '{command}'"
    )


def with_(entries, name, **changes):
    """The declaration with one entry that has changes."""
    return [{**entry, **changes} if entry["name"] == name else entry for entry in entries]


# --- what is declared is so ----------------------------------------------------------------------


def test_qos_have_what_is_declared(host):
    row = "Name", "Priority", "Flags", "MaxWall", "MaxTRESPU", "MaxJobsPU", "GraceTime"
    assert "short|100|DenyOnLimit|00:10:00|gres/gpu=1,mem=1G|2|00:01:30" in shown(host, "qos", *row)
    preemption = shown(host, "qos", "Name", "Preempt", "PreemptMode", "UsageFactor")
    assert "urgent|normal,short|cancel|2.000000" in preemption


def test_accounts_are_a_tree_with_shares_and_limits(host):
    row = "ParentName", "Fairshare", "QOS", "DefaultQOS", "GrpTRES", "GrpTRESMins", "MaxWall"
    physics = "science|1|normal,short|normal|cpu=64,gres/gpu=2|cpu=100000|2-00:00:00"
    assert association(host, "physics", "''", *row) == physics
    assert association(host, "chemistry", "''", *row) == "science|5|||||"
    described = shown(host, "account science", "Description", "Organization")
    assert described == ["natural sciences|the faculty"]


def test_users_are_in_their_accounts(host):
    assert association(host, "physics", "alice", "DefaultQOS", "MaxSubmitJobs") == "short|3"
    assert association(host, "physics", "bob", "Fairshare", "MaxJobs") == "parent|1"
    assert association(host, "chemistry", "bob", "Fairshare", "MaxJobs") == "3|"
    users = shown(host, "user", "User", "DefaultAccount", "AdminLevel")
    assert {"alice|physics|None", "bob|chemistry|Operator"} <= set(users)


def test_slurmctld_has_the_shares(host):
    shares = host.check_output("sshare -naP --format=Account,User,RawShares")
    lines = [line.strip() for line in shares.splitlines()]
    assert {"science||60", "chemistry|bob|3", "physics|bob|parent"} <= set(lines)


# --- jobs are held to it -------------------------------------------------------------------------


def test_a_job_within_the_limits_runs(host):
    ran = host.run("cd /tmp && sudo -u alice srun --immediate=60 --time=5 --gres=gpu:1 hostname")
    assert ran.stdout.strip() == "node", ran.stderr


@pytest.mark.parametrize(
    ("user", "options", "words"),
    [
        ("alice", ["--qos=short", "--time=60"], "QOSMaxWallDurationPerJobLimit"),
        ("alice", ["--qos=short", "--gres=gpu:2"], "QOSMaxGRESPerUser"),
        ("alice", ["--qos=urgent"], "Invalid qos specification"),
        ("alice", ["--account=chemistry"], "Invalid account"),
        ("nobody", [], "Invalid account"),
    ],
)
def test_a_job_beyond_a_limit_is_refused(host, user, options, words):
    job = submit(host, user, *options)
    assert job.rc != 0
    assert words in job.stderr


def test_a_user_cannot_have_more_jobs_than_the_limit(host):
    jobs = [submit(host, "alice", "--begin=now+1hour", "--time=1") for _ in range(4)]
    host.check_output("scancel --user=alice")
    assert [job.rc for job in jobs[:3]] == [0, 0, 0]
    assert "AssocMaxSubmitJobLimit" in jobs[3].stderr


# --- the role again ------------------------------------------------------------------------------


@pytest.mark.long
def test_a_second_run_writes_nothing(host, play):
    before = transactions(host)
    run = play()
    assert (run.code, run.changed) == (0, 0), run.output
    assert "Kept, though nobody declares it" not in run.output
    assert "not enforced" not in run.output
    assert transactions(host) == before


def test_check_mode_shows_each_change_and_makes_none(host, play, attempts):
    changed = {
        "slurm_associations_qos": with_(QOS, "short", limits={"MaxWall": "00:20:00"}),
        "slurm_associations_users": [*USERS, {"name": "carol", "account": "chemistry"}],
    }
    before = transactions(host)
    predicted = play(None, *PREDICT, **changed)
    assert predicted.code == 0, predicted.output
    assert predicted.changed == 1
    assert "-QOS short: MaxWall=0-00:10:00" in predicted.output
    assert "+QOS short: MaxWall=0-00:20:00" in predicted.output
    assert "+user carol in chemistry: DefaultAccount=chemistry" in predicted.output
    assert transactions(host) == before

    outcomes = attempts([Case("done", changed), Case("again", changed), Case("back")], "--diff")
    diff = re.compile(r"--- before.*?(?=changed:)")
    assert diff.search(outcomes["done"].output)[0] == diff.search(predicted.output)[0]
    outcomes["again"].passes(changed=False)
    outcomes["back"].passes()
    assert outcomes["back"].changed == 1  # carol stays, the limit goes back
    assert "carol|chemistry|None" in shown(host, "user", "User", "DefaultAccount", "AdminLevel")


@pytest.mark.long
def test_limits_lists_and_defaults_are_taken_away(host, play):
    gone = {
        "slurm_associations_qos": with_(
            with_(QOS, "short", flags=[], limits={"MaxWall": -1, "MaxTRESPerUser": {"mem": "2G"}}),
            "urgent",
            preempt=[],
            preempt_mode="cluster",
            usage_factor=-1,
        ),
        "slurm_associations_accounts": with_(
            ACCOUNTS, "physics", qos=["normal"], default_qos="-1", limits={"GrpTRES": -1}
        ),
        "slurm_associations_users": with_(USERS, "alice", default_qos="-1", fairshare=-1),
    }
    run = play(None, **gone)
    assert run.code == 0, run.output
    assert "short||" in shown(host, "qos", "Name", "Flags", "MaxWall")
    assert "short|mem=2G" in shown(host, "qos", "Name", "MaxTRESPU")
    assert "urgent||cluster|1.000000" in shown(
        host, "qos", "Name", "Preempt", "PreemptMode", "UsageFactor"
    )
    row = "QOS", "DefaultQOS", "GrpTRES", "GrpTRESMins"
    assert association(host, "physics", "''", *row) == "normal|||cpu=100000"
    assert association(host, "physics", "alice", "DefaultQOS", "Fairshare") == "|1"
    assert play(None, **gone).changed == 0

    inherited = with_(ACCOUNTS, "physics", qos=[], default_qos="-1")
    alice = with_(USERS, "alice", default_qos="-1")
    run = play(None, slurm_associations_accounts=inherited, slurm_associations_users=alice)
    assert run.code == 0, run.output
    assert association(host, "physics", "''", "Account", "QOS") == "physics|"

    assert play().code == 0
    assert play().changed == 0


@pytest.mark.long
def test_qos_and_defaults_change_hands_in_an_order_that_slurm_takes(host, play):
    other = {
        "slurm_associations_accounts": with_(
            ACCOUNTS, "physics", qos=["normal", "urgent"], default_qos="urgent"
        ),
        "slurm_associations_users": with_(USERS, "alice", default_qos="urgent"),
    }
    run = play(None, **other)
    assert run.code == 0, run.output
    assert association(host, "physics", "''", "QOS", "DefaultQOS") == "normal,urgent|urgent"
    assert play(None, **other).changed == 0
    assert play().code == 0
    assert association(host, "physics", "alice", "DefaultQOS") == "short"


@pytest.mark.long
def test_accounts_turn_round_and_users_move(host, play):
    turned = with_(
        with_(with_(ACCOUNTS, "science", parent="physics"), "physics", parent="chemistry"),
        "chemistry",
        parent="root",
    )
    moved = with_(USERS, "alice", account="science", default_qos="normal")
    variables = {
        "slurm_associations_accounts": turned,
        "slurm_associations_users": moved,
        "slurm_associations_unmanaged": "remove",
    }
    run = play(None, **variables)
    assert run.code == 0, run.output
    tree = shown(host, "assoc where user=''", "Account", "ParentName")
    assert {"science|physics", "physics|chemistry", "chemistry|root"} <= set(tree)
    assert "alice|science" in shown(host, "user", "User", "DefaultAccount")
    assert shown(host, "assoc where user=alice", "Account") == ["science"]
    assert play(None, **variables).changed == 0

    assert play(None, slurm_associations_unmanaged="remove").code == 0
    assert "science|root" in shown(host, "assoc where user=''", "Account", "ParentName")


@pytest.mark.long
def test_what_is_added_by_hand_is_kept_and_named_and_removed_when_the_site_says_so(
    host, play, attempts
):
    by_hand = """
        sacctmgr -i add qos mine priority=7
        sacctmgr -i add account old parent=science cluster=scenario
        sacctmgr -i add account older parent=old cluster=scenario
        sacctmgr -i add user eve account=older cluster=scenario
        sacctmgr -i add user bob account=old cluster=scenario
        sacctmgr -i add user alice account=physics cluster=scenario partition=main
        sacctmgr -i modify user where name=alice account=physics partition=main set maxjobs=2
        sacctmgr -i modify account where name=chemistry set maxjobs=9 grptres=cpu=3
    """
    for line in by_hand.strip().splitlines():
        host.check_output(line.strip())
    before = transactions(host)
    job = submit(host, "bob", "--account=old", "--time=5", command="sleep 300")
    assert job.rc == 0, job.stderr
    remove = {"slurm_associations_unmanaged": "remove"}
    outcomes = attempts([Case("kept"), Case("refused", remove)])
    outcomes["kept"].passes(changed=False)
    kept = "Kept, though nobody declares it: account chemistry: GrpTRES=cpu=3"
    assert kept in outcomes["kept"].output
    outcomes["refused"].refuses("account old is not declared and would be removed, but has jobs")
    assert transactions(host) == before
    host.check_output("scancel --user=bob")
    deadline = time.monotonic() + 60
    while host.check_output("squeue -h") and time.monotonic() < deadline:
        time.sleep(1)

    predicted = play(None, *PREDICT, **remove)
    assert "-account older" in predicted.output, predicted.output
    assert transactions(host) == before
    outcomes = attempts([Case("done", remove), Case("again", remove)])
    outcomes["done"].passes(changed=True)
    outcomes["again"].passes(changed=False)
    accounts = shown(host, "account", "Account")
    assert sorted(accounts) == sorted(account["name"] for account in ACCOUNTS)
    assert sorted(shown(host, "qos", "Name")) == ["normal", "short", "urgent"]
    assert sorted(shown(host, "user", "User")) == ["alice", "bob", "root"]
    assert shown(host, "assoc where user=alice", "Account", "Partition") == ["physics|"]
    assert association(host, "chemistry", "''", "MaxJobs", "GrpTRES") == "|"
    assert association(host, "root", "root", "Account") == "root"


@pytest.fixture
def unasked(host):
    """A slurmctld in use that asks nobody for an association yet."""
    restart = "systemctl restart slurmctld && until scontrol ping | grep -q UP; do sleep 0.2; done"
    host.check_output("cp -p /etc/slurm/slurm.conf /root/slurm.conf")
    host.check_output(f"sed -i /^AccountingStorageEnforce/d /etc/slurm/slurm.conf && {restart}")
    yield
    host.check_output(f"scancel --user=nobody; mv /root/slurm.conf /etc/slurm/ && {restart}")


@pytest.mark.long
def test_users_with_jobs_are_not_locked_out_by_a_cluster_that_begins_to_ask(
    host, attempts, unasked
):
    job = submit(host, "nobody", "--begin=now+1hour", "--time=1")
    assert job.rc == 0, job.stderr
    nobody = {"slurm_associations_users": [*USERS, {"name": "nobody", "account": "chemistry"}]}
    cases = [
        Case("without", tasks_from="before_enforcing"),
        Case("with", nobody, "before_enforcing"),
    ]
    predicted = attempts(cases, *PREDICT)
    locked_out = "users who have jobs have no association (nobody), and would be locked out"
    predicted["without"].refuses(locked_out)
    predicted["with"].passes()
    assert "+user nobody in chemistry" in predicted["with"].output
    assert shown(host, "assoc where user=nobody", "Account") == []
    done = attempts(cases)
    done["without"].refuses(locked_out)
    done["with"].passes()
    assert "not enforced" not in done["with"].output
    assert shown(host, "assoc where user=nobody", "Account") == ["chemistry"]


def test_a_cluster_that_asks_already_has_no_before_and_what_cannot_work_changes_nothing(
    host, attempts
):
    late = {"slurm_associations_users": [*USERS, {"name": "late", "account": "chemistry"}]}
    tpu = with_(QOS, "short", limits={"GrpTRES": {"gres/tpu": 1}})
    before = transactions(host)
    outcomes = attempts(
        [
            Case("before", late, "before_enforcing"),
            Case("cluster", {"slurm_associations_cluster": "other"}),
            Case("not_accounted", {"slurm_associations_qos": tpu}),
        ]
    )
    outcomes["before"].passes()
    outcomes["cluster"].refuses("does not know the cluster other")
    outcomes["not_accounted"].refuses("limits name gres/tpu, which Slurm does not account")
    assert [outcome.changed for outcome in outcomes.values()] == [0, 0, 0]
    assert transactions(host) == before


@pytest.mark.long
def test_a_thousand_users_are_two_commands(host, play):
    crowd = [{"name": f"u{number:04}", "account": "chemistry"} for number in range(1000)]
    users = {"slurm_associations_users": [*USERS, *crowd]}
    before = set(shown(host, "assoc where account=chemistry", "User"))
    run = play(None, "-v", **users)
    assert run.code == 0, run.output
    assert run.output.count("sacctmgr --immediate add user") == 2
    joined = set(shown(host, "assoc where account=chemistry", "User")) - before
    assert joined == {user["name"] for user in crowd}
    assert play(None, **users).changed == 0
    run = play(None, slurm_associations_unmanaged="remove")
    assert run.code == 0, run.output
    assert len(shown(host, "assoc where account=chemistry", "User")) == 2
