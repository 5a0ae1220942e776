"""The cluster under test: its nodes through testinfra, the operator's programs as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import testinfra

from tests.live_cluster import REPOSITORY, operate, sources, under_test

# Where node_exporter finds what a run of the validation says.
TEXTFILES = "/var/lib/prometheus/node-exporter-validation"


@dataclass(frozen=True)
class Proof:
    """What a run of the validation left in its folder."""

    code: int
    output: str
    folder: Path

    @property
    def summary(self) -> dict:
        return json.loads((self.folder / "summary.json").read_text())

    @property
    def results(self) -> list[dict]:
        lines = (self.folder / "results.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def verdicts(self, *verdicts: str) -> dict[tuple[str, str], str]:
        """The messages of all results that have one of these verdicts."""
        return {
            (result["check"], result["subject"]["name"]): result["message"]
            for result in self.results
            if result["verdict"] in verdicts
        }

    def hosts(self, check: str) -> list[str]:
        """The nodes whose ranks a check of the cluster tier was proven with."""
        (result,) = [result for result in self.results if result["check"] == check]
        assert result["verdict"] == "pass", result["message"]
        return sorted({rank["host"] for rank in result["proof"]["ranks"]})

    def nodes(self, standing: str) -> list[str]:
        return (self.folder / f"{standing}_nodes.txt").read_text().split()


@dataclass(frozen=True)
class Operator:
    """Runs what an operator runs on the control node, against the cluster under test."""

    inventory: Path
    cluster: str = under_test()
    system: str = os.environ.get("PLUMBLINE_OS", "debian13")

    def __call__(
        self, *argv: str | Path, timeout: int = 600, environment: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        return operate(*argv, timeout=timeout, environment=environment)

    @property
    def inventories(self) -> tuple[str, ...]:
        return sources(self.inventory)

    def playbook(
        self,
        name: str,
        *arguments: str,
        timeout: int = 600,
        environment: Mapping[str, str] = {},
    ) -> subprocess.CompletedProcess[str]:
        command = ("ansible-playbook", *self.inventories, f"playbooks/{name}", *arguments)
        return self(*command, timeout=timeout, environment=environment)

    def validate(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self(sys.executable, "-m", "validation.run", *self.inventories, *arguments)

    def prove(self, folder: Path, *arguments: str | Path) -> Proof:
        done = self.validate("--output", folder, *arguments)
        return Proof(done.returncode, done.stdout + done.stderr, folder)

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


@pytest.fixture(scope="session")
def proven(operator, tmp_path_factory) -> Proof:
    """One run of the quick suite on the cluster as it is deployed, for all tests that only read it.

    Its verdicts go to Prometheus, as a site's do.
    """
    folder = tmp_path_factory.mktemp("proven") / "run"
    return operator.prove(folder, "--suite", "quick", "--metrics", TEXTFILES)
