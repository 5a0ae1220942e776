"""A fixture of roles' scenarios: logins from the control node, as users do it, through the node's
own sshd. Users' private keys lie in the scenario's folder of secrets, by name."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import processes


@pytest.fixture(scope="session")
def login():
    """A function that runs a command as a user with a key; no connection is shared."""
    scenario = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
    _, _, text = (scenario / "inventory/nodes.yml").read_text().partition("---\n")
    config = json.loads(text)["all"]["vars"]["ansible_ssh_common_args"].split()

    def run(name: str, command: str = "true", key: str = "") -> subprocess.CompletedProcess[str]:
        argv = ["ssh", *config, "-i", str(scenario / ".secrets" / (key or name)), "-l", name]
        argv += ["-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o", "ControlPath=none"]
        return processes.run(*argv, "node", command, timeout=60)

    return run
