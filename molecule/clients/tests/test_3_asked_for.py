"""Mail of jobs, and X11 of jobs, once a site has asked for them: vars/asked_for.yml.

The mailer is a stand-in that keeps what Slurm gives it. The X server is a real one without a
screen (Xvfb), and so is the program that asks it (xdpyinfo).
"""

from __future__ import annotations

import re
import shlex
import time

import pytest

from tests.live_cluster import REPOSITORY

# The second keeps what the tests of the auditor had a site add.
ASKED_FOR = [REPOSITORY / f"molecule/clients/vars/{name}.yml" for name in ("asked_for", "options")]
KEPT = "/var/spool/stand-in-mail"
MAILER = f"""#!/bin/sh
# As mail(1) is called: -s SUBJECT ADDRESS
printf '%s\\n' "$@" >>{KEPT}/all
"""


@pytest.fixture(scope="module")
def shell(operator, node):
    """A function that runs a script as the user on the login node of a cluster with these."""
    with node("ctl1").sudo():
        node("ctl1").check_output(
            f"mkdir -p {KEPT} && chown slurm {KEPT} && printf %s {shlex.quote(MAILER)}"
            " >/usr/local/bin/stand-in-mailer && chmod 755 /usr/local/bin/stand-in-mailer"
        )
    variables = [f"--extra-vars=@{path}" for path in ASKED_FOR]
    deployed = operator.playbook("slurm-cluster.yml", *variables)
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr

    def run(script: str) -> str:
        ssh = ("ssh", "ada@login1", f"bash -c {shlex.quote(script)}")
        done = operator.virtual_cluster(*ssh)
        return str(done.stdout + done.stderr)

    return run


def test_the_end_of_a_job_is_mailed(shell, node):
    job = shell("sbatch --parsable --mail-type=END --time=1 --output=/dev/null --wrap true").strip()
    until, kept = time.monotonic() + 120, ""
    while time.monotonic() < until and f"Job_id={job} " not in kept:
        time.sleep(2)
        with node("ctl1").sudo():
            kept = node("ctl1").run(f"cat {KEPT}/all").stdout
    assert re.search(rf"^-s\nSlurm Job_id={job} .*Ended.*COMPLETED.*\nada$", kept, re.MULTILINE), (
        kept
    )


XSERVER = """
export XAUTHORITY=~/.Xauthority-of-the-test
rm -f $XAUTHORITY; touch $XAUTHORITY; xauth -q add :7 . $(mcookie)
Xvfb :7 -screen 0 1234x567x24 -nolisten tcp -auth $XAUTHORITY >/dev/null 2>&1 &
server=$!
for _ in {1..50}; do [ -S /tmp/.X11-unix/X7 ] && break; sleep 0.2; done
DISPLAY=:7 timeout 60 srun --time=1 --x11 bash -c 'hostname; echo $DISPLAY; xdpyinfo' 2>&1
kill $server
"""


def test_a_window_of_a_job_is_on_the_users_display(shell):
    said = shell(XSERVER)
    assert re.search(r"^gpu\d$", said, re.MULTILINE), said
    assert re.search(r"^localhost:\d+(\.0)?$", said, re.MULTILINE), said
    assert re.search(r"dimensions: +1234x567 pixels", said), said


def test_without_a_display_srun_says_so(shell):
    assert "DISPLAY" in shell("unset DISPLAY; srun --time=1 --x11 hostname")
