"""Accounting on one node: slurmdbd answers, its database is nobody else's; runs that go wrong."""

import os
import re
import secrets
from hashlib import sha256
from pathlib import Path

import pytest

from roles.slurm_database.filter_plugins.slurm_database import buffer_pool_mb, log_file_mb
from tests.role_play import Case

PASSWORD = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / ".secrets/slurm_database_password"
CONFIGURE = {"ansible.builtin.include_role": {"name": "slurm_database", "tasks_from": "configure"}}
INTERRUPT = {"ansible.builtin.fail": {"msg": "interrupted"}}
CLIENT = """ClusterName=scenario
SlurmctldHost=node
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=node
"""


def test_slurmdbd_answers_and_keeps_what_it_is_told(host):
    """Through the protocol that slurmctld and sacctmgr speak, authenticated by MUNGE."""
    host.run_expect([0], f"printf '{CLIENT}' > /tmp/client.conf")
    with host.sudo("slurm"):
        sacctmgr = "env SLURM_CONF=/tmp/client.conf sacctmgr"
        host.check_output(f"{sacctmgr} -i add cluster scenario")
        host.check_output(f"{sacctmgr} -i add account physics")
        shown = host.check_output(f"{sacctmgr} -n -P show account physics format=account")
        config = host.check_output(f"{sacctmgr} show config")
    assert shown == "physics"
    assert re.search(r"^MessageTimeout += 21 sec", config, re.MULTILINE)


def test_the_daemons_come_back_after_a_reboot(host):
    for name in ("mariadb", "slurmdbd"):
        assert host.service(name).is_running
        assert host.service(name).is_enabled


def test_the_database_listens_on_loopback_only(host):
    with host.sudo():
        listening = host.check_output("ss -Hltnp")
    addresses = [line.split()[3] for line in listening.splitlines() if "mariadbd" in line]
    assert addresses == ["127.0.0.1:3306"]


def test_the_account_needs_its_password(host):
    with host.sudo():
        refused = host.run("mariadb --user=slurm --password=wrong --execute 'select 1'")
    assert refused.rc != 0
    assert "Access denied" in refused.stderr


def test_the_password_is_readable_by_slurm_alone(host):
    with host.sudo():
        file = host.file("/etc/slurm/slurmdbd.conf")
        assert (file.user, file.mode) == ("slurm", 0o600)


def test_slurmdbd_has_nothing_to_warn_about(host):
    """It says at start when InnoDB is smaller than it needs."""
    with host.sudo():
        log = host.file("/var/log/slurm/slurmdbd.log").content_string
    log, started, _ = log.partition(" started\n")  # what tests above do to it comes later
    assert started
    assert "Database settings not recommended values" not in log
    assert "error:" not in log


def started(host, unit: str) -> str:
    return host.check_output(f"systemctl show {unit} --property=ActiveEnterTimestampMonotonic")


def innodb(host, name: str) -> int:
    """In MiB."""
    with host.sudo():
        shown = host.check_output(f"mariadb -BNe 'select @@innodb_{name}'")
    return int(shown) // 1024**2


def memory_mb(host) -> int:
    return int(host.check_output("sed -n 's/^MemTotal: *//p' /proc/meminfo").split()[0]) // 1024


def test_innodb_has_its_part_of_the_memory(host):
    pool = buffer_pool_mb(memory_mb(host))
    assert innodb(host, "buffer_pool_size") == pool
    assert innodb(host, "log_file_size") == log_file_mb(pool)


def configured(host, name: str) -> str:
    with host.sudo():
        return host.check_output(f"sed -n 's/^{name}=//p' /etc/slurm/slurmdbd.conf")


@pytest.mark.long
def test_runs_that_were_interrupted_before_a_restart_are_mended_by_the_next(host, play, tmp_path):
    settings = {"slurm_database_buffer_pool_mb": 512, "slurm_database_purge": {}}
    before = {unit: started(host, unit) for unit in ("mariadb", "slurmdbd")}
    folder = Path(__file__).resolve().parents[3] / "templates"
    mariadb = "etc/mysql/mariadb.conf.d/60-slurm.cnf"
    template = {"src": f"{folder}/{mariadb}.j2", "dest": f"/{mariadb}"}
    rendered = {"__slurm_database_buffer_pool_mb": 512, "__slurm_database_log_file_mb": 128}
    managed = "Managed by Ansible; changes made here are lost."
    write = {"ansible.builtin.template": template, "vars": rendered}
    play([write, INTERRUPT], ansible_managed=managed, **settings)
    assert innodb(host, "buffer_pool_size") > 512  # as it was started
    assert started(host, "mariadb") == before["mariadb"]

    # The next run is cut off later: between slurmdbd's file and its restart.
    play([CONFIGURE, INTERRUPT], ansible_managed=managed, **settings)
    assert innodb(host, "buffer_pool_size") == 512
    assert not configured(host, "PurgeJobAfter")  # an emptied setting is gone
    assert started(host, "slurmdbd") == before["slurmdbd"]

    mended = play(ansible_managed=managed, **settings)
    assert mended.code == 0, mended.output
    after = {unit: started(host, unit) for unit in before}
    assert all(after[unit] != before[unit] for unit in before)
    again = play(ansible_managed=managed, **settings)
    assert (again.code, again.changed) == (0, 0), again.output
    assert {unit: started(host, unit) for unit in before} == after


@pytest.mark.long
def test_a_lost_password_is_taken_over_from_the_cluster(host, play):
    kept = PASSWORD.read_text().strip()
    PASSWORD.unlink()
    # The port too: a run is green when slurmdbd answers where it is told to. The next takes it
    # back.
    run = play(slurm_database_port=6820)
    assert run.code == 0, run.output
    assert ":6820 " in host.check_output("ss -Hltn")
    assert "is copied from slurmdbd on node to" in run.output
    assert PASSWORD.read_text().strip() == kept == configured(host, "StoragePass")
    assert PASSWORD.stat().st_mode & 0o777 == 0o600


def test_what_cannot_work_is_refused_and_another_password_unless_it_is_rotated_in(host, attempts):
    before = configured(host, "StoragePass")
    other = secrets.token_hex(16)
    PASSWORD.write_text(other)
    sums = "sed -n 's/^StoragePass=//p' /etc/slurm/slurmdbd.conf | sha256sum"

    def settings(**values):
        return {"slurm_database_settings": values}

    tried = attempts(
        [
            Case("too_new", settings(StoragePassScript="/x")),
            Case("not_here", settings(StoragePass="x")),
            Case("refused", mends=sums),
            Case("rotated", {"slurm_database_password_rotate": "true"}),
        ]
    )
    tried["too_new"].refuses("only 25.11 and newer read StoragePassScript; set slurm_dat")
    tried["not_here"].refuses("is not for this place; set slurm_database_password")
    refused = tried["refused"]
    refused.refuses("is not the one that slurmdbd on node uses; move the file away")
    assert refused.left.split() == [sha256(f"{before}\n".encode()).hexdigest(), "-"]
    assert [tried[name].changed for name in ("too_new", "not_here", "refused")] == [0, 0, 0]
    tried["rotated"].passes()
    assert configured(host, "StoragePass") == other
    for outcome in tried.values():
        assert before not in outcome.output
        assert other not in outcome.output
    assert ":6819 " in host.check_output("ss -Hltn")


@pytest.mark.long
def test_the_password_of_a_site_is_its_word(host, play):
    """It wins over the file and what is deployed, and is written nowhere on the control node."""
    run = play(slurm_database_password="TheSitesOwn0123456789abcdefghijk")
    assert run.code == 0, run.output
    assert configured(host, "StoragePass") == "TheSitesOwn0123456789abcdefghijk"
    assert not PASSWORD.read_text().startswith("TheSites")
    assert play(slurm_database_password_rotate="true").code == 0


@pytest.mark.long
def test_a_slurmdbd_that_does_not_answer_ends_the_run_with_a_sentence(attempts):
    """Without MUNGE it listens, and refuses whoever comes; started anew, it ends."""
    patience = "__slurm_database_patience"
    tried = attempts(
        [
            Case("refuses", {patience: 1}, breaks="systemctl stop munge"),
            Case(
                "ended",
                {patience: 3},
                breaks="systemctl stop slurmdbd",
                mends="systemctl start munge",
            ),
        ]
    )
    tried["refuses"].refuses("slurmdbd on node does not answer on port 6819: sacctmgr: error:")
    tried["refuses"].refuses("see /var/log/slurm/slurmdbd.log there")
    tried["ended"].refuses("slurmdbd on node does not answer on port 6819: ")
    tried["ended"].refuses("fatal: Unable to initialize authentication plugins")
