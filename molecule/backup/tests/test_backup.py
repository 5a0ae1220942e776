"""A cluster in use is backed up, its controller destroyed and restored; and what is refused.

The tests are one story, in their order. What they measure is in .cache/test/backup.md.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests import live_cluster, processes
from tests.checkers import checker
from tests.live_cluster import REPOSITORY, operate, sources, under_test, virtual_cluster
from tests.patience import until

CLUSTER = under_test()
INVENTORY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
ARCHIVES = INVENTORY / ".plumbline-backups"
SECRETS = INVENTORY / ".secrets"
KEY = REPOSITORY / ".cache/virtual-cluster" / CLUSTER / "id_ed25519"
MEASURED = REPOSITORY / ".cache/test/backup.md"
RUN_SECONDS = 1800

on = partial(live_cluster.on, CLUSTER)
eventually = partial(until, seconds=180)

# What can be asked of history, accounts and the queue. A job runs on, so what grows with it is left
# out.
QUESTIONS = {
    "jobs": "sudo sacct --allusers --parsable2 --noheader --starttime=2020-01-01 "
    "--endtime=now --state=COMPLETED,FAILED,CANCELLED "
    "--format=jobidraw,jobname,user,account,qos,partition,state,exitcode,submit,start,end,elapsedraw,nodelist,alloctres,workdir,submitline",
    "begun": "sudo sacct --allusers --allocations --parsable2 --noheader --starttime=2020-01-01 "
    "--format=jobidraw,jobname,user,account,qos,submit,start,nodelist,reqtres",
    "associations": "sudo sacctmgr --parsable2 show associations",
    "qos": "sudo sacctmgr --parsable2 show qos",
    "users": "sudo sacctmgr --parsable2 show users withassoc",
    "transactions": "sudo sacctmgr --parsable2 show transactions | sort | head -20",
    "queue": "sudo squeue --noheader --sort=i --states=PENDING,RUNNING "
    "--format='%A|%j|%u|%a|%q|%t|%r|%S|%V|%l|%N|%b'",
    "reservations": "sudo scontrol -o show reservation | sed 's/ State=[A-Z]*//'",
}


def asked() -> dict[str, str]:
    return {name: on("ctl1", command) for name, command in QUESTIONS.items()}


def next_job() -> int:
    return int(on("ctl1", "scontrol show config | sed -n 's/^NEXT_JOB_ID *= *//p'"))


def play(playbook: str, *arguments: str, **variables: object) -> subprocess.CompletedProcess[str]:
    extra = [f"--extra-vars={json.dumps(variables)}"] if variables else []
    own = f"--inventory={REPOSITORY}/molecule/backup/inventory/hosts.yml"
    words = ("ansible-playbook", *sources(INVENTORY), own, f"playbooks/{playbook}")
    return operate(*words, *arguments, *extra, timeout=RUN_SECONDS)


def restore(**variables: object) -> subprocess.CompletedProcess[str]:
    words = {"backup_age_program": checker("age")[0], "backup_restore_identity": str(KEY)}
    return play("restore.yml", **{**words, **variables})


def archive() -> Path:
    return max(ARCHIVES.glob("*-ctl1-*.tar.age"))


def submit(name: str, words: str, *options: str) -> int:
    shown = on(
        "login1",
        f"cd /tmp && sbatch --parsable --output=/dev/null --job-name={name} "
        f"{' '.join(options)} --wrap '{words}'",
    )
    return int(shown)


def measure(text: str) -> None:
    MEASURED.parent.mkdir(parents=True, exist_ok=True)
    with MEASURED.open("a") as file:
        file.write(f"- {text}\n")


@pytest.fixture(scope="module")
def before() -> Mapping[str, str]:
    """A cluster in use, what it says, and its backup."""
    done = submit("done", "hostname")
    failed = submit("failed", "exit 3")
    submit("running", "sleep 20000; exit 7", "--nodelist=gpu1", "--mem=100")
    submit("held", "hostname", "--hold")
    submit("later", "hostname", "--begin=now+10days")
    on(
        "ctl1",
        "sudo scontrol create reservation reservationname=maintenance users=root nodes=gpu2 "
        "starttime=now+5days duration=60 flags=maint",
    )
    on("ctl1", "sudo sacctmgr -i modify user where name=ada set maxjobs=7 fairshare=42")
    eventually(lambda: on("ctl1", "squeue -h -t R -n running"))
    for job in (done, failed):
        eventually(lambda job=job: on("ctl1", f"sudo sacct -X -n -P -o end -j {job}") != "Unknown")
    time.sleep(6)  # slurmctld saves its queue some seconds after a change
    before = asked()
    assert len(before["jobs"].splitlines()) >= 4
    assert len(before["queue"].splitlines()) == 3
    assert "|7|" in before["associations"]
    began = time.monotonic()
    backup = play("backup.yml")
    assert backup.returncode == 0, backup.stdout + backup.stderr
    measure(f"playbooks/backup.yml: {time.monotonic() - began:.0f} s")
    measure(f"archive of ctl1: {archive().stat().st_size} bytes")
    return {**before, "next": str(next_job())}


def test_a_backup_is_made_while_slurm_runs_on(before):
    said = on(
        "ctl1", "sudo journalctl --output=cat --lines=1 _SYSTEMD_UNIT=plumbline-backup.service"
    )
    measure(f"on ctl1: {json.loads(said)['seconds']} s")
    active = "systemctl is-active slurmctld slurmdbd mariadb plumbline-backup.timer"
    assert on("ctl1", active).split() == ["active"] * 4


def test_prometheus_knows_how_old_the_backup_is(before):
    ask = (
        "sudo sh -c 'curl -s --cacert /etc/plumbline/tls/ca.crt -u "
        'admin:$(cat /etc/prometheus/secrets/admin_password) --data-urlencode query="time() - '
        'plumbline_backup_last_success_timestamp_seconds < plumbline_backup_max_age_seconds" '
        "https://ctl1:9090/api/v1/query'"
    )

    def known() -> bool:
        result = json.loads(on("ctl1", ask))["data"]["result"]
        return [series["metric"]["node"] for series in result] == ["ctl1"]

    eventually(known)


def daemons() -> str:
    """Whether anything was restarted, and what is in the places of the state."""
    return on(
        "ctl1",
        "systemctl show -p ExecMainStartTimestamp slurmctld slurmdbd mariadb munge; "
        "sudo ls -d /var/lib/slurm/* /var/lib/mysql/*/",
    )


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("truncated", "is truncated or damaged"),
        ("wrong key", "is encrypted to other keys than the one in"),
        ("too old", "days old, and 0 are allowed"),
        ("no archive", "is no archive of age"),
        ("other cluster", "is of the cluster plumbline, and this is another"),
        ("in use", "has a queue with"),
    ],
)
def test_what_cannot_be_restored_is_refused_before_anything_is_touched(
    before, tmp_path, case, sentence
):
    copy = tmp_path / archive().name
    shutil.copy(archive(), copy)
    changes: dict[str, object] = {"backup_restore_from": str(copy)}
    if case == "truncated":
        os.truncate(copy, copy.stat().st_size // 2)
    elif case == "wrong key":
        processes.passes(*checker("age-keygen"), "-o", tmp_path / "key")
        changes["backup_restore_identity"] = str(tmp_path / "key")
    elif case == "too old":
        changes["backup_restore_max_age_days"] = 0
    elif case == "no archive":
        copy.write_text("nothing")
    elif case == "other cluster":
        changes["backup_cluster"] = "another"
    was = daemons()
    done = restore(**changes)
    said = re.sub(r"\s+", " ", done.stdout)
    assert done.returncode == 2, said
    assert sentence in said
    assert set(live_cluster.changed(done.stdout).values()) == {"0"}, said
    assert daemons() == was
    found = re.search(r"Action failed: (backup: .*?) Origin:", said)
    measure(f"refused, {case}: {found[1] if found else sentence}")


def test_a_destroyed_controller_is_restored(before):
    """With the control node's secrets lost as well. The job on gpu1 runs on meanwhile."""
    processes.passes(
        "podman", "rm", "--force", "--time=0", "--volumes", f"plumbline-{CLUSTER}-ctl1"
    )
    shutil.rmtree(SECRETS)
    up = virtual_cluster(
        CLUSTER, "up", f"--inventory={INVENTORY}", "--operator-submits",
        *os.environ.get("PLUMBLINE_NODES", "--compute=2 --gpus=2").split(),
    )  # fmt: skip
    assert up.returncode == 0, up.stdout + up.stderr
    assert on("ctl1", "command -v slurmctld mariadb munged || echo none") == "none"
    began = time.monotonic()
    done = restore()
    measure(f"playbooks/restore.yml onto a bare host: {time.monotonic() - began:.0f} s")
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr
    assert "munge.key" in {path.name for path in SECRETS.iterdir()}
    # What was decrypted is gone with the run, and on the host.
    assert not [*Path.home().glob(".ansible/tmp/ansible-local-*/*.tar")]
    assert on("ctl1", "sudo find / -xdev -name archive.tar") == ""


@pytest.mark.parametrize("question", QUESTIONS)
def test_history_associations_and_queue_are_back(before, question):
    in_service = "sinfo --noheader --Node --states=idle,mixed,allocated --format=%N | wc -l"
    eventually(lambda: on("ctl1", in_service) == "2")
    # The reason why a job waits comes with the scheduler's first round.
    with suppress(AssertionError):
        eventually(lambda: on("ctl1", QUESTIONS[question]) == before[question])
    found = on("ctl1", QUESTIONS[question]).splitlines()
    assert list(difflib.unified_diff(before[question].splitlines(), found, n=0)) == []


def test_numbers_of_jobs_go_on(before):
    assert submit("next", "hostname") == int(before["next"])


def test_a_job_that_ran_meanwhile_ends_as_it_would_have(before):
    """Its node was not asked for anything; its end comes to the restored controller."""
    job = on("ctl1", "squeue -h -t R -n running -o %A")
    assert on("gpu1", "pgrep -f 'sleep 2000[0]'")
    on("gpu1", "sudo pkill -f 'sleep 2000[0]'")
    eventually(lambda: "FAILED" in on("ctl1", f"sudo sacct -X -n -P -o state -j {job}"))
    assert on("ctl1", f"sudo sacct -X -n -P -o state,exitcode -j {job}") == "FAILED|7:0"


def test_the_rest_of_the_cluster_follows_and_then_nothing_changes(before):
    done = play("slurm-cluster.yml")
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr
    again = play("slurm-cluster.yml")
    assert again.returncode == 0, again.stdout[-20000:] + again.stderr
    assert set(live_cluster.changed(again.stdout).values()) == {"0"}, again.stdout[-20000:]
    on("ctl1", "systemctl is-active plumbline-backup.timer prometheus")
