"""The cluster under test: its nodes through testinfra, the operator's programs as processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import testinfra

from tests.live_cluster import PLAIN, REPOSITORY


@dataclass(frozen=True)
class Operator:
    """Runs what an operator runs on the control node, against the cluster under test."""

    inventory: Path
    cluster: str = os.environ.get("PLUMBLINE_ON", "test-cluster-default")
    system: str = os.environ.get("PLUMBLINE_OS", "debian13")

    def __call__(self, *argv: str | Path, timeout: int = 600) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(a) for a in argv],
            cwd=REPOSITORY,
            env=os.environ | PLAIN,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    @property
    def inventories(self) -> tuple[str, ...]:
        """As molecule's converge has them: the secrets lie beside the first."""
        return ("-i", str(self.inventory), "-i", str(REPOSITORY / "inventory/demo/groups.yml"))

    def playbook(
        self, name: str, *arguments: str, timeout: int = 600
    ) -> subprocess.CompletedProcess[str]:
        command = ("ansible-playbook", *self.inventories, f"playbooks/{name}", *arguments)
        return self(*command, timeout=timeout)

    def validate(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self(sys.executable, "-m", "validation.run", *self.inventories, *arguments)

    def virtual_cluster(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self("scripts/virtual-cluster", verb, f"--name={self.cluster}", *arguments)


@pytest.fixture(scope="session")
def operator() -> Operator:
    return Operator(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory")


@pytest.fixture(scope="session")
def node(operator):
    """A function from a node's name to its testinfra host, by SSH over one connection for all."""
    config = REPOSITORY / ".cache/virtual-cluster" / operator.cluster / "ssh_config"

    def connect(name: str):
        return testinfra.get_host(f"ssh://{name}?ssh_config={config}")

    return connect
