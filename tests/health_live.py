"""What the scenarios of node_health share: what Slurm says of the node, and runs of the checks."""

from __future__ import annotations

import json
import re
import time

import pytest

INTERVAL_S = 10  # node_health_interval of the scenarios
# A run may have begun just before; what it asks takes seconds, on a machine with other work more.
WITHIN_S = 2 * INTERVAL_S + 220
DESCRIPTION = "/etc/plumbline-fake-nvml.conf"
CONFIG = "/etc/plumbline/node_health.json"
PROGRAM = "/usr/local/sbin/plumbline-health"
AS_USER = "runuser -u ops --"  # root submits no jobs
COMMANDS = "scontrol squeue sinfo srun sbatch sacct sacctmgr scancel sdiag"


def node(host):
    """State and reason of the node, as Slurm has them."""
    shown = host.check_output("scontrol -o show node node")
    reason = re.search(r" Reason=(.*?) \[[^\[\]]*@", shown)
    state = re.search(r"State=(\S+)", shown)
    assert state is not None, shown
    return state[1], reason[1] if reason else ""


def wait(ask, holds, seconds=WITHIN_S):
    deadline = time.monotonic() + seconds
    while not holds(answer := ask()):
        assert time.monotonic() < deadline, f"after {seconds} s: {answer}"
        time.sleep(0.5)
    return answer


def checked(host):
    """A run of the checks now, as slurmd begins one every interval; then the node."""
    host.run(f"{PROGRAM} check")
    return node(host)


def in_service(host, look=checked):
    return wait(lambda: look(host), lambda state: "DRAIN" not in state[0])


def drained(host, reason, look=checked):
    return wait(
        lambda: look(host), lambda state: "DRAIN" in state[0] and state[1].startswith(reason)
    )


def last(host):
    """When the HealthCheckProgram ran, and the verdicts."""
    shown = host.run("cat /run/plumbline/node-health/last.json")
    if shown.rc != 0:
        return 0, {}
    document = json.loads(shown.stdout)
    return document["at"], {row["check"]: row["verdict"] for row in document["checks"]}


def next_run(host, look=checked):
    """Waits for one that begins from now on."""

    def at():
        look(host)
        return last(host)[0]

    before = last(host)[0]
    second = wait(at, lambda started: started > before)
    wait(at, lambda started: started > second)


def rpcs(host):
    """How often slurmctld was called, by kind: less what this question itself costs."""
    shown = host.check_output("sdiag")
    calls = re.findall(r"^\t([A-Z_]+) +\( *\d+\) count:(\d+)", shown, re.MULTILINE)
    own = ("REQUEST_STATS_INFO", "MESSAGE_NODE_REGISTRATION_STATUS")
    return {name: int(count) for name, count in calls if name not in own}


def prologs_in_silence(host, number):
    """So many prologs, all of which pass, do not call slurmctld.

    slurmctld counts its calls, and Slurm's commands are programs that count theirs.
    """
    host.run_expect(
        [0],
        f"mkdir -p /var/counted && for c in {COMMANDS}; do printf '#!/bin/sh\\necho $0 $*"
        " >> /var/counted/calls\\n' > /var/counted/$c && chmod +x /var/counted/$c; done",
    )
    before = rpcs(host)
    assert before, "sdiag counts nothing"
    many = (
        f"seq {number} | PATH=/var/counted:$PATH SLURM_JOB_GPUS=0 "
        f"xargs -P 4 -I N {PROGRAM} prolog && echo all passed"
    )
    assert host.check_output(many) == "all passed"
    # One call by each prolog would be `number`; a daemon's own, now and then, is not theirs.
    grown = {kind: count - before.get(kind, 0) for kind, count in rpcs(host).items()}
    often = {kind: count for kind, count in grown.items() if count >= number // 2}
    assert not often, f"slurmctld was called meanwhile: {often}"
    assert not host.file("/var/counted/calls").exists
    # Both counters count.
    before = rpcs(host)
    host.run("PATH=/var/counted:$PATH scontrol show node; scontrol show node")
    assert host.file("/var/counted/calls").exists
    assert rpcs(host) != before
    host.run_expect([0], "rm -r /var/counted")


@pytest.fixture(autouse=True)
def well(host):
    """Every test finds the node well, and leaves it so."""
    mend = "rm -f /run/broken /run/before /run/after /run/hang"
    with host.sudo():
        host.run_expect([0], mend)
        in_service(host)
        yield
        host.run_expect([0], mend)
        in_service(host)


@pytest.fixture
def nvml(host):
    """Adds lines to what the stand-in for NVML says."""
    kept = host.file(DESCRIPTION).content_string

    def say(text):
        host.run_expect([0], f"cat > {DESCRIPTION} <<'END'\n{text}END")

    yield lambda line: say(f"{kept.rstrip()}\n{line}\n")
    say(kept)
