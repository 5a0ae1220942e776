"""A cluster that is in use begins to ask for accounts: nobody who has jobs is locked out.

On the cluster that test_interruptions.py leaves.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.live_cluster import operate, sources, under_test, virtual_cluster

SCRATCH = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
CLUSTER = under_test()


def controllers(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ("ansible-playbook", *sources(SCRATCH / "inventory"), "playbooks/slurm.yml")
    limits = ("--limit=ctl1", "--tags=slurm,slurm_associations")
    return operate(*command, *limits, *arguments)


def root(node: str, command: str) -> subprocess.CompletedProcess[str]:
    return virtual_cluster(CLUSTER, "ssh", node, f"sudo sh -c '{command}'")


def submit(user: str) -> subprocess.CompletedProcess[str]:
    batch = "sbatch --parsable --begin=now+1hour --output=/dev/null --wrap=true"
    return root("login1", f"cd /tmp && runuser -u {user} -- {batch}")


def test_users_with_jobs_have_accounts_before_slurm_asks_for_them():
    run = controllers("-e", "slurm_associations_enforce=false")
    assert run.returncode == 0, run.stdout[-3000:]
    gone = root("ctl1", "sacctmgr -i delete user where name=ada account=research")
    assert gone.returncode == 0, gone.stdout + gone.stderr
    ada, nobody = submit("ada"), submit("nobody")
    assert (ada.returncode, nobody.returncode) == (0, 0), ada.stderr + nobody.stderr
    try:
        run = controllers()
        assert run.returncode != 0
        output = " ".join(run.stdout.split())
        assert "users who have jobs have no association (nobody)" in output, run.stdout[-3000:]
        assert submit("nobody").returncode == 0  # Slurm does not ask yet
        root("ctl1", "scancel --user=nobody")

        run = controllers()
        assert run.returncode == 0, run.stdout[-3000:]
        assert "Invalid account" in submit("nobody").stderr
        waiting = root("ctl1", f"squeue --noheader --format=%r --jobs={ada.stdout.strip()}")
        assert waiting.stdout.strip() == "BeginTime"
    finally:
        root("ctl1", "scancel --user=ada; scancel --user=nobody")
