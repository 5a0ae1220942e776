"""A database that others keep on another host, over TLS; and what is refused before it is lost."""

import os
from pathlib import Path

import pytest

from tests.role_play import refused

FOLDER = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
CLIENT = """ClusterName=scenario
SlurmctldHost=ctl1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl1
"""
IMPATIENT = ("--limit=ctl1", "-e", "__slurm_database_patience=3")
RULES = {"ansible.builtin.include_role": {"name": "slurm_database", "tasks_from": "refuse"}}


@pytest.fixture
def ctl1(node):
    with node("ctl1").sudo():
        yield node("ctl1")


@pytest.fixture
def login1(node):
    with node("login1").sudo():
        yield node("login1")


def configured(host, name):
    return host.check_output(f"sed -n 's/^{name}=//p' /etc/slurm/slurmdbd.conf")


def test_no_database_is_on_slurmdbds_host(ctl1):
    assert not ctl1.package("mariadb-server").is_installed
    listening = ctl1.check_output("ss -Hltn")
    assert ":6819 " in listening
    assert ":3306 " not in listening


def test_what_slurmdbd_is_told_is_kept_on_the_other_host(ctl1, login1):
    """The account there takes no connection without TLS."""
    ctl1.check_output(f"printf '{CLIENT}' > /tmp/client.conf")
    ctl1.check_output("env SLURM_CONF=/tmp/client.conf sacctmgr -i add cluster scenario")
    ask = "mariadb --skip-ssl -BNe"  # root on that host; nobody there vouches for the certificate
    kept = login1.check_output(f"{ask} 'select name from slurm_acct_db.cluster_table'")
    assert kept == "scenario"
    assert "REQUIRE SSL" in login1.check_output(f"{ask} \"show grants for slurm@'%'\"")


def test_a_password_that_is_not_the_accounts_is_told_in_the_databases_words(play):
    run = play(None, *IMPATIENT, slurm_database_password="NotTheOne0123456789abcdef")
    try:
        refused(run, "does not answer on port 6819")
        assert "mysql_real_connect failed: 1045 Access denied for user" in run.output
        assert "NotTheOne" not in run.output
    finally:
        assert play(None, "--limit=ctl1").code == 0


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"slurm_database_storage_port": 3307}, "nothing answers at "),
        (
            {"slurm_database_storage_host": "", "slurm_database_storage_ca_file": ""},
            "and would start without them at localhost; copy the database there",
        ),
        ({"slurm_database_storage_ca_file": "/nowhere.pem"}, "the control node has no such file"),
        ({"slurm_database_buffer_pool_mb": 4096}, "whose database others tune; remove one of"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_changed(play, variables, sentence):
    run = play(None, "--limit=ctl1", **variables)
    refused(run, sentence)
    assert run.changed == 0


def test_a_password_is_asked_for_and_not_made_up(ctl1, play):
    ctl1.check_output("mv /etc/slurm/slurmdbd.conf /root/")
    try:
        run = play([RULES], "--limit=ctl1", slurm_database_password="")
    finally:
        ctl1.check_output("mv /root/slurmdbd.conf /etc/slurm/")
    refused(run, "the password of slurm there is not known; set slurm_database_password in")
    assert not (FOLDER / ".secrets/slurm_database_password").exists()


def test_a_site_that_moves_its_records_says_so_and_gets_mariadb_here(ctl1, play):
    here = {"slurm_database_storage_host": "", "slurm_database_storage_ca_file": ""}
    run = play(None, "--limit=ctl1", slurm_database_storage_move=True, **here)
    assert run.code == 0, run.output
    assert configured(ctl1, "StorageHost") == "localhost"
    assert configured(ctl1, "StorageParameters") == ""
    assert ctl1.service("mariadb").is_running
    assert play(None, "--limit=ctl1", **here).changed == 0
