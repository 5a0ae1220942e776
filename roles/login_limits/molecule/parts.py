"""Users of the scenarios, what they do, and what the kernel says of them."""

import os
import shlex
from pathlib import Path

import pytest

from tests.patience import until

LOGIN = "ssh -q -i /root/.ssh/users -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
SLICES = "/sys/fs/cgroup/user.slice"
UIDS = {"root": 0, "ops": 1000, "alice": 2001, "bob": 2002, "carol": 2003}
UNITS = "/etc/systemd/system"

# Where this machine has cgroup v1, limits need a node with a kernel of its own, which boots for a
# minute: left for `scripts/test --full`. molecule/default/molecule.yml says the same of the node.
HAS_CGROUP_V2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
LIMITED = HAS_CGROUP_V2 or os.environ.get("PLUMBLINE_LONG_TESTS") != "no"
kernel = pytest.mark.usefixtures() if HAS_CGROUP_V2 else pytest.mark.long


def run_as(host, user, command):
    """In a session of the user's own, as one who came through SSH has it."""
    # Of a shell that is replaced by a killed program SSH tells no exit status.
    with host.sudo():
        return host.run(f"{LOGIN} {user}@localhost {shlex.quote(f'{command}; exit $?')}")


def allocate(mebibytes):
    return f"python3 -c 'x = b\"x\" * ({mebibytes} << 20); print(len(x) >> 20)'"


def limit(host, user, file):
    with host.sudo():
        return host.check_output(f"cat {SLICES}/user-{UIDS[user]}.slice/{file}")


def events(host, user):
    return dict(line.split() for line in limit(host, user, "memory.events").splitlines())


def sleeping(host):
    """Process IDs of what alice runs."""
    return host.run("pgrep --uid alice --exact sleep").stdout.split()


@pytest.fixture
def session(host):
    """A session of alice's that stays; the process ID of what runs in it."""
    with host.sudo():
        host.check_output(
            "systemd-run --quiet --collect --unit=session-of-alice "
            f"{LOGIN} alice@localhost sleep 600"
        )
    yield until(lambda: sleeping(host))[0]
    with host.sudo():
        host.run("systemctl stop session-of-alice")
        host.run("loginctl terminate-user alice")
    until(lambda: not sleeping(host))
