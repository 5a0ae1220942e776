"""Accounting on one node: slurmdbd answers, its database is nobody else's."""

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
    assert shown == "physics"


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
