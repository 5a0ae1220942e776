"""What the scenarios of the role pyxis share: their nodes, the plugin on them, and broken ones.

The scenario `default` has one node that is controller, login and compute node; `faults` has three.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import testinfra

from tests.live_cluster import REPOSITORY, under_test

FOLDER = "/usr/local/lib/slurm"
LINK = f"{FOLDER}/spank_pyxis.so"
ONE = os.environ.get("MOLECULE_SCENARIO_NAME") == "default"
CONTROLLER, LOGIN, COMPUTE = ("node",) * 3 if ONE else ("ctl1", "login1", "gpu1")
NODES = sorted({CONTROLLER, LOGIN, COMPUTE})
# slurmctld's own host reads the file; other nodes fetch it from there.
PLUGSTACK = f"{'/etc/slurm' if ONE else '/run/slurm/conf'}/plugstack.conf"
JOB = "srun --immediate=60"
EPHEMERAL = Path(os.environ.get("MOLECULE_EPHEMERAL_DIRECTORY", "/nonexistent"))
COLLECTED = EPHEMERAL / "pyxis"
VERIFY = [
    {"ansible.builtin.include_role": {"name": "pyxis", "tasks_from": "verify"}},
    {"ansible.builtin.debug": {"msg": "{{ __pyxis_verified | verify_failures }}"}},
]

Node = Callable[[str], Any]


@pytest.fixture
def node() -> Node:
    """A function from a node's name to its testinfra host."""
    config = REPOSITORY / ".cache/virtual-cluster" / under_test("pyxis") / "ssh_config"
    return lambda name: testinfra.get_host(f"ssh://{name}?ssh_config={config}")


def in_place(node: Node) -> list[str]:
    """What the link of each node names, and the plugin's own hash."""
    return [node(name).check_output(f"readlink {LINK}; sha1sum < {LINK}") for name in NODES]


def runs_through_it(node: Node) -> bool:
    image = "docker://example.org#image:1"
    job = f"{JOB} --container-image={image} printenv STAND_IN_IMAGE"
    return bool(node(LOGIN).run(job).stdout.strip() == image)


def idle(node: Node, deadline: float = 120) -> bool:
    """Whether the compute node is idle within that many seconds."""
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        if node(CONTROLLER).run("sinfo -h -o %T").stdout.strip() == "idle":
            return True
        time.sleep(0.5)
    return False


def flawed(flaw: str) -> dict[str, str]:
    """The role's variables for a release that is broken in one way."""
    return {
        "pyxis_mirror": f"file:///srv/mirror/{flaw}",
        "pyxis_sha256": (EPHEMERAL / "mirror" / flaw / "v0.24.0.sha256").read_text(),
    }
