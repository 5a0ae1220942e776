"""Archives of a node with a real slurmctld, slurmdbd and MariaDB, and the way back."""

import base64
import json
import os
from pathlib import Path

import pytest

from roles.backup.files.backup import sealed
from tests.checkers import checker
from tests.patience import until
from tests.role_play import Case

FOLDER = "/var/backups/plumbline"
METRICS = "/var/lib/plumbline"
UNIT = "plumbline-backup"
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory/nodes.yml"


def archives(host):
    return host.check_output(f"ls {FOLDER} | grep 'age$' || true").split()


@pytest.fixture
def root(host):
    with host.sudo():
        yield host


def decrypted(host, folder):
    """The newest archive, decrypted here as playbooks/restore.yml does: the node has no key."""
    document = json.loads(INVENTORY.read_text().partition("---")[2])
    key = document["all"]["vars"]["ansible_ssh_private_key_file"]
    archive = folder / "archive.age"
    text = host.check_output(f"base64 {FOLDER}/{archives(host)[-1]}")
    archive.write_bytes(base64.b64decode(text))
    tar = folder / "archive.tar"
    about = sealed.unseal(archive, Path(key), tar, checker("age")[0])
    return about, tar


def test_the_first_archive_is_there_and_copied(root):
    assert archives(root)
    assert root.service(f"{UNIT}.timer").is_enabled
    assert root.service(f"{UNIT}.timer").is_running
    copies = root.check_output("ls /srv").split()
    assert {name.removesuffix(".sha256") for name in copies} >= set(archives(root))
    assert root.run("cd /srv && sha256sum --check --quiet *.sha256").rc == 0
    metrics = root.check_output(f"cat {METRICS}/plumbline_backup*.prom")
    assert "plumbline_backup_max_age_seconds 129600" in metrics
    assert "plumbline_backup_last_success_timestamp_seconds 1" in metrics


def test_old_archives_go_and_nothing_plain_is_left(root):
    for _ in range(3):
        root.check_output(f"systemctl start {UNIT} && sleep 1.1")
    assert len(archives(root)) == 2
    assert root.check_output(f"ls -A {FOLDER} | grep -v -e 'age$' -e 'sha256$'") == ".lock"


def test_accounting_and_queue_come_back(root, play, tmp_path):
    root.check_output("sacctmgr -i add account kept description=kept organization=site")
    job = root.check_output("sbatch --parsable --hold --uid=nobody --chdir=/tmp --wrap hostname")
    until(lambda: job in root.check_output("squeue -h -o %A"), 20)
    root.check_output("sleep 6")  # slurmctld saves its queue some seconds after a change
    root.check_output(f"systemctl start {UNIT}")
    about, tar = decrypted(root, tmp_path)
    assert about.next_job == int(job) + 1
    assert about.secrets.keys() == {"munge.key", "slurm_database_password"}
    assert "files/etc/mysql" in {member.path for member in about.members}
    root.check_output("sacctmgr -i delete account kept")
    root.check_output(f"scancel {job}")
    copy = {"src": str(tar), "dest": "/root/archive.tar", "mode": "0600"}
    put = "plumbline-backup put"
    run = play(
        [
            {"ansible.builtin.copy": copy},
            {
                "ansible.builtin.shell": "set -e; "
                f"! {put} state /root/archive.tar /var/lib/slurm/slurmctld || exit 1; "
                "systemctl stop slurmctld slurmdbd; "
                f"{put} database /root/archive.tar slurm_acct_db; "
                f"{put} state /root/archive.tar /var/lib/slurm/slurmctld; "
                "systemctl start slurmdbd slurmctld"
            },
        ]
    )
    assert run.code == 0, run.output
    until(lambda: "kept" in root.run("sacctmgr -nP show account format=account").stdout, 60)
    until(lambda: job in root.run("squeue -h -o %A").stdout, 60)
    databases = root.check_output("mariadb -N -e 'show databases'").split()
    assert [name for name in databases if name.startswith("slurm_acct_db_before_")]
    assert "slurm_acct_db_restoring" not in databases
    assert root.run("ls -d /var/lib/slurm/slurmctld.before-*").rc == 0


@pytest.mark.long
def test_what_cannot_be_kept_fails_the_role_and_keys_taken_away_remove_the_timer(attempts):
    cases = [
        Case(
            "missing",
            {"backup_files": ["/nothing/here"]},
            breaks=f"rm {FOLDER}/*.age",
            mends=f"ls {FOLDER} | grep -c part$ || true",
        ),
        Case("mended", mends=f"ls {FOLDER} | grep -c age$"),
        Case(
            "off",
            {"backup_recipients": []},
            mends=f"systemctl is-active {UNIT}.timer; ls {FOLDER} {METRICS} | grep -e age -e prom",
        ),
        Case("on", mends=f"systemctl is-active {UNIT}.timer"),
    ]
    done = attempts(cases)
    done["missing"].refuses("made no archive: /nothing/here is to be kept and is not there")
    assert done["missing"].left == "0"
    done["mended"].passes(changed=True)
    assert done["mended"].left == "1"
    done["off"].passes(changed=True)
    assert done["off"].left.startswith("inactive scenario-node-")
    assert ".prom" not in done["off"].left
    done["on"].passes(changed=True)
    assert done["on"].left == "active"
