"""Upstream's release, built by the role: it runs jobs, and accounts them."""

import json
import os
import re
from pathlib import Path

RELEASE = json.loads(
    (Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "slurm/release.json").read_text()
)
VERSION = re.search(r"\d+\.\d+\.\d+", RELEASE["name"])[0]


def test_it_is_upstreams(host):
    assert host.check_output("sinfo --version") == f"slurm {VERSION}"
    for package in ("slurm-smd-slurmctld", "slurm-smd-slurmd", "slurm-smd-slurmdbd"):
        assert host.package(package).version.startswith(VERSION)
    assert not host.package("slurm-wlm-basic-plugins").is_installed


def test_the_daemons_are_slurms_own(host):
    for daemon, user in {"slurmctld": "slurm", "slurmdbd": "slurm", "slurmd": "root"}.items():
        assert host.service(daemon).is_running
        assert host.process.filter(comm=daemon, user=user)


def test_a_job_runs_and_is_accounted(host):
    with host.sudo("nobody"):
        job = host.check_output("cd /tmp && srun --gres=gpu:1 sh -c 'echo $SLURM_JOB_ID'")
    assert job.isdigit()
    for _ in range(10):
        state = host.check_output(f"sacct --allusers --noheader --parsable2 -X -j {job} -o state")
        if state == "COMPLETED":
            break
        host.check_output("sleep 1")
    assert state == "COMPLETED"


def test_an_upgrade_of_the_system_leaves_it(host):
    with host.sudo():
        output = host.check_output("LC_ALL=C apt-get --simulate upgrade")
    assert not re.search(r"^(Inst|Remv) slurm", output, re.MULTILINE)


def test_what_roles_load_is_there(host):
    """PAM finds the module by its name, and pyxis its headers."""
    with host.sudo():
        host.check_output("apt-get --quiet=2 --yes install slurm-smd-libpam-slurm-adopt")
    files = host.check_output("dpkg -L slurm-smd-libpam-slurm-adopt")
    assert "security/pam_slurm_adopt.so" in files
    with host.sudo():
        host.check_output("cd /tmp && apt-get --quiet=2 download slurm-smd-dev")
    assert "slurm/spank.h" in host.check_output("dpkg-deb -c /tmp/slurm-smd-dev_*.deb")
