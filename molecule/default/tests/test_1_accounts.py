"""Whose jobs Slurm takes and for whom they count, as its users and its operator see it."""

import json

import pytest
import yaml

from tests.live_cluster import REPOSITORY
from tests.patience import until

DEMO = yaml.safe_load((REPOSITORY / "inventory/demo/group_vars/all.yml").read_text())


@pytest.fixture
def ctl1(node):
    with node("ctl1").sudo():
        yield node("ctl1")


def submit(node, user, *options):
    words = " ".join(["--parsable", "--output=/dev/null", *options, "--wrap='sleep 2'"])
    with node("login1").sudo():
        return node("login1").run(f"cd /tmp && runuser -u {user} -- sbatch {words}")


def test_slurm_asks_everybody_for_an_account_and_holds_all_to_their_limits(node):
    shown = node("login1").check_output("scontrol show config")
    [line] = [line for line in shown.splitlines() if line.startswith("AccountingStorageEnforce ")]
    assert line.partition("= ")[2] == "associations,limits,qos,safe"


def test_ops_and_ada_have_the_accounts_that_are_declared(node):
    associations = node("ctl1").check_output("sacctmgr -nP show assoc format=account,user,qos")
    assert {"operations|ops|normal", "research|ada|normal,urgent"} <= set(associations.splitlines())
    shares = node("ctl1").check_output("sshare -naP --format=Account,User,RawShares")
    rows = {line.strip() for line in shares.splitlines()}
    assert {"research||9", "research|ada|1", "operations|ops|1"} <= rows


def test_jobs_of_ops_and_ada_are_accounted_and_reported(node, ctl1):
    begin, end = (
        ctl1.check_output(f"date +%Y-%m-%dT%H:00:00 --date='{hours} hour'") for hours in (0, 1)
    )
    jobs = [submit(node, user, "--time=1") for user in ("ops", "ada")]
    assert [job.rc for job in jobs] == [0, 0], jobs
    numbers = ",".join(job.stdout.strip() for job in jobs)
    ask = f"sacct -anXP --jobs={numbers} --format=user,account,state"
    wanted = {"ops|operations|COMPLETED", "ada|research|COMPLETED"}
    until(lambda: set(ctl1.check_output(ask).splitlines()) == wanted)
    # What sreport adds up is worked out once an hour, when it is over.
    ctl1.check_output(f"sacctmgr -i rollup {begin} {end}")
    report = ctl1.check_output(
        "sreport -nP -t seconds cluster AccountUtilizationByUser "
        f"start={begin} end={end} format=Account,Login,Used"
    )
    used = dict(line.rsplit("|", 1) for line in report.splitlines())
    assert int(used["research|ada"]) > 0, report
    assert int(used["operations|ops"]) > 0, report


@pytest.mark.parametrize(
    ("user", "options", "words"),
    [
        ("nobody", [], "Invalid account or account/partition combination specified"),
        ("ada", ["--account=operations"], "Invalid account or account/partition combination"),
        ("ops", ["--qos=urgent"], "Invalid qos specification"),
        ("ada", ["--qos=urgent", "--time=120"], "QOSMaxWallDurationPerJobLimit"),
    ],
)
def test_a_job_beyond_what_is_declared_is_refused(node, user, options, words):
    job = submit(node, user, *options)
    assert job.rc != 0
    assert words in job.stderr


def test_check_mode_shows_a_changed_limit_and_changes_nothing(node, operator):
    qos = [
        {**entry, "limits": {**entry["limits"], "MaxWall": "02:00:00"}}
        if "limits" in entry
        else entry
        for entry in DEMO["slurm_qos"]
    ]
    arguments = ("--check", "--diff", "--limit=ctl1", "--tags=slurm_associations")
    run = operator.playbook("slurm.yml", *arguments, "-e", json.dumps({"slurm_qos": qos}))
    assert run.returncode == 0, run.stdout[-3000:]
    assert "-QOS urgent: MaxWall=0-01:00:00" in run.stdout
    assert "+QOS urgent: MaxWall=0-02:00:00" in run.stdout
    limits = node("ctl1").check_output("sacctmgr -nP show qos urgent format=maxwall")
    assert limits == "01:00:00"
