"""scripts/verify on the cluster as it is deployed; and, with --full, with each item broken in turn.

What an item makes of an answer is tested in tests/test_verify_security.py. Here it is asked whether
the hosts' answers are what the items read: the cluster holds all, and what is broken is found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

HOSTS = ["ctl1", "gpu1", "gpu2", "gpu3", "login1"]
# What the inventory of the demo switches off, or a container cannot have.
OFF = {
    "hidden-processes": "/proc is mounted without hidepid",
    "kernel-settings": "the node is a container",
    "locked-memory": "the node is a container",
    "private-tmp": "slurm_private_tmp is false",
    "sent-logs": "log_collection_host is empty",
}
# The operator of a test cluster submits jobs (scripts/virtual-cluster up --operator-submits).
KNOWN = {"users-without-sudo": "ops may submit jobs and is in the files of sudo"}
ABSENT = {"grafana", "known-holes", "token-key", "token-lifespan"}


def verified(operator, *arguments: str, environment: Mapping[str, str] = {}):
    """The exit status, and the verdicts by item."""
    run = operator(
        "scripts/verify", *operator.inventories, "--json", *arguments, environment=environment
    )
    assert run.stdout.startswith("["), run.stdout + run.stderr
    return run.returncode, {row["item"]: row for row in json.loads(run.stdout)}


def test_the_cluster_holds_what_it_is_verified_for(operator, node):
    code, rows = verified(operator)
    wrong = {key: row for key, row in rows.items() if row["verdict"] in {"fails", "unknown"}}
    problems = {key: [said["sentence"] for said in row["problems"]] for key, row in wrong.items()}
    assert (code, problems) == (1, {key: [sentence] for key, sentence in KNOWN.items()})
    for key, row in rows.items():
        reasons = " ".join(problem["sentence"] for problem in row["problems"])
        assert (row["verdict"] == "off") == (key in OFF | {"firewall": ""}), row
        assert OFF.get(key, "") in reasons
    assert {key for key, row in rows.items() if row["verdict"] == "absent"} == ABSENT
    assert sorted(rows["audit"]["hosts"]) == HOSTS
    # The same line in each journal: who, from where, from which commit, since when.
    said = set()
    for host in HOSTS:
        with node(host).sudo():
            lines = node(host).check_output("journalctl --output=cat --grep=plumbline-run.verify")
        said |= set(re.findall(r"plumbline-run verify-security\.yml by .*?Z:", lines))
    assert re.search(r"by \S+.* on \S+ from [0-9a-f]{12}(-dirty)? since 20", min(said))


# --- each item broken ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Break:
    """What is done to a host, what takes it back, and a word of the sentence."""

    host: str
    breaks: str
    mends: str
    words: str


SECRET = "chmod {} /etc/plumbline/tls/host.key"
SSHD = "/etc/ssh/sshd_config.d/00-test.conf"
PAM = "/etc/pam.d/sshd"
SLURM = "/etc/slurm/slurm.conf"
UNIT = "/run/systemd/system/slurmctld.service.d/zz-test.conf"
CGROUP = "/run/slurm/conf/cgroup.conf"


def slurm(edit: str) -> tuple[str, str]:
    """slurmctld reads a changed slurm.conf, and the one of before again."""
    return (
        f"cp -p {SLURM} /root/slurm.conf && sed -i '{edit}' {SLURM} && scontrol reconfigure",
        f"cp -p /root/slurm.conf {SLURM} && scontrol reconfigure",
    )


BREAKS = {
    "slurmdbd-file": Break(
        "ctl1",
        "chmod 644 /etc/slurm/slurmdbd.conf",
        "chmod 600 /etc/slurm/slurmdbd.conf",
        "slurm's with mode 0644",
    ),
    "secret-files": Break("gpu1", SECRET.format(644), SECRET.format(640), "host.key"),
    "munge-key": Break(
        "gpu2",
        "chmod 440 /etc/munge/munge.key",
        "chmod 400 /etc/munge/munge.key",
        "mode 0440",
    ),
    "munge-replay": Break(
        "gpu3",
        "mv /usr/bin/unmunge /usr/bin/unmunge.test && printf '#!/bin/sh\\n"
        'echo "STATUS: Success (0)"\\n\' >/usr/bin/unmunge && chmod 755 /usr/bin/unmunge',
        "mv /usr/bin/unmunge.test /usr/bin/unmunge",
        "accepts a credential twice",
    ),
    "munge-version": Break(
        "gpu3",
        "mv /usr/share/doc/munge/changelog.Debian.gz /root/",
        "mv /root/changelog.Debian.gz /usr/share/doc/munge/",
        "no changelog there",
    ),
    "database-accounts": Break(
        "ctl1",
        "mariadb -e \"CREATE USER eve@'%'\"",
        "mariadb -e \"DROP USER eve@'%'\"",
        "lets eve in from %",
    ),
    "root-login": Break(
        "gpu1", f"echo PermitRootLogin yes >{SSHD}", f"rm {SSHD}", "permitrootlogin yes"
    ),
    "x11-forwarding": Break(
        "login1", f"echo X11Forwarding yes >{SSHD}", f"rm {SSHD}", "x11forwarding yes"
    ),
    "ssh-passwords": Break(
        "ctl1", f"echo PermitEmptyPasswords yes >{SSHD}", f"rm {SSHD}", "permitemptypasswords yes"
    ),
    "agent-forwarding": Break(
        "gpu2", f"echo AllowAgentForwarding yes >{SSHD}", f"rm {SSHD}", "allowagentforwarding yes"
    ),
    "job-login": Break(
        "gpu1",
        f"cp -p {PAM} /root/ && sed -i /pam_slurm_adopt/d {PAM}",
        f"cp -p /root/sshd {PAM}",
        "does not ask pam_slurm_adopt",
    ),
    "administrators": Break(
        "gpu2",
        f"cp -p {PAM} /root/ && sed -i s/ingroup.ops/ingroup.nobody/ {PAM}",
        f"cp -p /root/sshd {PAM}",
        "the groups ops past",
    ),
    "private-data": Break("ctl1", *slurm("s/^PrivateData=.*/PrivateData=jobs/"), "is jobs, not"),
    "programs": Break(
        "ctl1",
        "chmod o+w /etc/slurm/slurm.conf",
        "chmod o-w /etc/slurm/slurm.conf",
        "/etc/slurm/slurm.conf is root's with mode 0646",
    ),
    "token-key": Break(
        "gpu1",
        "install -o slurm -m 400 /dev/null /etc/slurm/jwt_hs256.key",
        "rm /etc/slurm/jwt_hs256.key",
        "neither a controller nor a database host",
    ),
    "rest-daemon": Break(
        "login1",
        "cp /bin/sleep /run/slurmrestd && systemd-run --unit=test-rest /run/slurmrestd 600",
        "systemctl stop test-rest; rm /run/slurmrestd",
        "slurmrestd runs as root",
    ),
    "monitoring-servers": Break(
        "gpu3",
        "systemctl stop prometheus-node-exporter && "
        "systemd-run --unit=test-web python3 -m http.server 9100 && sleep 2",
        "systemctl stop test-web && systemctl start prometheus-node-exporter",
        "speaks no TLS",
    ),
    "package-signatures": Break(
        "login1",
        "echo 'deb [trusted=yes] http://localhost/ ./' >/etc/apt/sources.list.d/test.list",
        "rm /etc/apt/sources.list.d/test.list",
        "sources.list.d/test.list",
    ),
    "unattended-upgrades": Break(
        "gpu1",
        "mv /etc/apt/apt.conf.d/90-plumbline /root/",
        "mv /root/90-plumbline /etc/apt/apt.conf.d/",
        "may replace cuda",
    ),
    "docker-group": Break(
        "gpu2", "groupadd docker && gpasswd -a ada docker", "groupdel docker", "ada is in the group"
    ),
    "users-without-sudo": Break(
        "gpu3", "gpasswd -a ada sudo", "gpasswd -d ada sudo", "is in the group sudo"
    ),
    "core-dumps": Break(
        "gpu1",
        "echo '* soft core unlimited' >/etc/security/limits.d/95-test.conf",
        "rm /etc/security/limits.d/95-test.conf",
        "dump cores of unlimited KiB",
    ),
    "cgroups-of-nodes": Break(
        "gpu2",
        f"cp -p {CGROUP} /root/ && sed -i s/ConstrainDevices=yes/ConstrainDevices=no/ {CGROUP}",
        f"cp -p /root/cgroup.conf {CGROUP}",
        "ConstrainDevices is no",
    ),
    "sandbox": Break(
        "ctl1",
        f"printf '[Service]\\nProtectSystem=no\\n' >{UNIT} && systemctl daemon-reload",
        f"rm {UNIT} && systemctl daemon-reload",
        "slurmctld has protectsystem no",
    ),
}


@pytest.fixture(scope="module")
def broken(operator, node):
    """The verdicts while all of it is broken, and those of after."""
    try:
        for each in BREAKS.values():
            with node(each.host).sudo():
                node(each.host).check_output(
                    f"mkdir -p /run/systemd/system/slurmctld.service.d; {each.breaks}"
                )
        found = verified(operator)
    finally:
        for each in BREAKS.values():
            with node(each.host).sudo():
                node(each.host).run(each.mends)
    return found, verified(operator)


@pytest.mark.long
@pytest.mark.parametrize("key", BREAKS)
def test_what_is_broken_is_named_with_its_host(broken, key):
    (code, rows), _ = broken
    assert code == 1
    row, wanted = rows[key], BREAKS[key]
    assert row["verdict"] == "fails"
    [problem] = [one for one in row["problems"] if wanted.words in one["sentence"]]
    assert problem["hosts"] == [wanted.host]
    assert row["cure"]


@pytest.mark.long
def test_what_is_mended_holds_again(broken):
    _, (code, rows) = broken
    assert code == 1
    assert {key for key, row in rows.items() if row["verdict"] == "fails"} == set(KNOWN)


@pytest.mark.long
def test_a_host_that_is_off_is_named_and_nothing_is_green(operator):
    operator.virtual_cluster("stop", "gpu3")
    try:
        code, rows = verified(operator)
    finally:
        assert operator.virtual_cluster("start", "gpu3").returncode == 0
    assert code == 2
    for row in rows.values():
        assert row["verdict"] in {"unknown", "holds", "off", "absent", "tested", "stated"}
    [problem] = rows["secret-files"]["problems"]
    assert problem["hosts"] == ["gpu3"]
    assert problem["sentence"].startswith("it did not answer")
    assert rows["secret-files"]["verdict"] == "unknown"
    assert rows["root-jobs"]["verdict"] == "holds"  # it does not concern that host


@pytest.mark.long
def test_without_lines_in_the_journal_nobody_is_said_to_be_watched(operator):
    code, rows = verified(operator, environment={"ANSIBLE_NO_TARGET_SYSLOG": "true"})
    assert (code, rows["audit"]["verdict"]) == (1, "fails")


def test_wrong_usage_is_told(operator):
    run = operator("scripts/verify", *operator.inventories, "--no-such-option")
    assert run.returncode == 2
    assert "--no-such-option" in run.stderr
    assert operator("scripts/verify").returncode == 2
