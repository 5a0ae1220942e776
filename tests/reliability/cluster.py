"""A live cluster under test: commands as root, power, network, playbooks."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import testinfra

from tests import processes
from tests.live_cluster import (
    PLAIN,
    REPOSITORY,
    changed,
    operate,
    sources,
    under_test,
    virtual_cluster,
    words,
)
from tests.web_listener import Listener

CONTROLLER, LOGIN = "ctl1", "login1"
COMPUTE = ("gpu1", "gpu2", "gpu3")
NODES = (CONTROLLER, LOGIN, *COMPUTE)
RUN_SECONDS = 900
SETTINGS = REPOSITORY / "molecule/reliability/inventory/hosts.yml"


@dataclass(frozen=True)
class Ran:
    """What a playbook came to: exit status, its output as one line, changed tasks by host."""

    code: int
    output: str
    changed: dict[str, str]


@dataclass(frozen=True)
class Cluster:
    name: str
    inventory: Path

    # --- nodes ---

    def on(self, node: str, command: str) -> str:
        """What a command of root's prints.

        Raises:
            AssertionError: the command failed.
        """
        done = self.tried(node, command)
        assert done.returncode == 0, f"{node}: {command}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def tried(self, node: str, command: str) -> subprocess.CompletedProcess[str]:
        """A command of root's that may fail, also because the node is off."""
        return virtual_cluster(self.name, "ssh", node, f"sudo bash -c {shlex.quote(command)}")

    def asks(self, command: str, seconds: int = 20) -> str:
        """What a command of the user of the login node prints, who has jobs; empty if it fails."""
        limited = f"timeout {seconds} bash -c {shlex.quote(command)}"
        done = virtual_cluster(self.name, "ssh", LOGIN, limited)
        return done.stdout.strip() if done.returncode == 0 else ""

    def power(self, verb: str, node: str) -> None:
        done = virtual_cluster(self.name, verb, node)
        assert done.returncode == 0, done.stdout + done.stderr

    def of_network(self, node: str, *command: str) -> None:
        """Runs a command of this machine's in the network of a node."""
        container = f"plumbline-{self.name}-{node}"
        shown = ["podman", "inspect", "--format={{.State.Pid}}", container]
        pid = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.strip()
        enter = ["nsenter", f"--target={pid}", "--net", *command]
        subprocess.run(enter, capture_output=True, text=True, check=True)

    @contextmanager
    def cut_off(self, node: str, *others: str) -> Iterator[None]:
        """Nothing passes between a node and these others, in either direction.

        This machine still reaches the node, as an operator does through a network of its own.
        """
        addresses = ",".join(self.address(other) for other in others)
        self.of_network(node, "nft", "add", "table", "inet", "fault")
        try:
            for hook, field in (("input", "saddr"), ("output", "daddr")):
                chain = f"{{ type filter hook {hook} priority 0; }}"
                self.of_network(node, "nft", f"add chain inet fault {hook} {chain}")
                rule = f"ip {field} {{ {addresses} }} drop"
                self.of_network(node, "nft", f"add rule inet fault {hook} {rule}")
            yield
        finally:
            self.of_network(node, "nft", "delete", "table", "inet", "fault")

    def address(self, node: str) -> str:
        return self.on(node, "hostname -I").split()[0]

    # --- Slurm and alerts ---

    def states(self) -> dict[str, str]:
        """Of each compute node, as sinfo says it; nothing while no controller answers."""
        shown = self.asks("sinfo -h -N -o '%N %T'")
        return dict(line.split() for line in shown.splitlines())

    def is_quiet(self) -> bool:
        """All nodes are idle and nobody has a job."""
        return (
            self.states() == dict.fromkeys(COMPUTE, "idle")
            and not self.tried(CONTROLLER, "squeue -h | head").stdout.strip()
        )

    @cached_property
    def prometheus(self) -> Listener:
        config = REPOSITORY / ".cache/virtual-cluster" / self.name / "ssh_config"
        host = testinfra.get_host(f"ssh://{CONTROLLER}?ssh_config={config}")
        return Listener(host, 9090, CONTROLLER)

    def alerts(self) -> list[dict[str, Any]]:
        """Labels of every alert that is pending or firing."""
        return [sample["metric"] for sample in self.prometheus.query("ALERTS")]

    # --- the operator ---

    def command(self, name: str, *arguments: str) -> list[str]:
        inventories = (*sources(self.inventory), "-i", str(SETTINGS))
        return ["ansible-playbook", *inventories, f"playbooks/{name}", *arguments]

    def playbook(self, name: str, *arguments: str) -> Ran:
        done = operate(*self.command(name, *arguments), timeout=RUN_SECONDS)
        return Ran(done.returncode, words(done) + done.stderr, changed(done.stdout))

    def ad_hoc(self, node: str, module: str, arguments: str) -> Ran:
        """One module as root on one node."""
        inventories = (*sources(self.inventory), "-i", str(SETTINGS))
        done = operate("ansible", node, *inventories, "--become", "-m", module, "-a", arguments)
        return Ran(done.returncode, words(done) + done.stderr, {})

    @contextmanager
    def playbook_beside(
        self, log: Path, name: str, *arguments: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A playbook that runs meanwhile; what is left of it at the end is killed."""
        environment = os.environ | PLAIN | {"PYTHONUNBUFFERED": "1"}
        with log.open("wb") as output:
            run = subprocess.Popen(
                self.command(name, *arguments),
                cwd=REPOSITORY,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield run
        finally:
            kill_all(run)


def kill_all(run: subprocess.Popen[bytes]) -> None:
    """As the death of the control node: no process of a run is told that it ends."""
    processes.kill(processes.descendants(run.pid))
    run.wait()


def live() -> Cluster:
    """The cluster of the scenario that runs."""
    return Cluster(under_test(), Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory")
