"""A deployed cluster, through Ansible: its hosts are looked at and changed, the playbook is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import processes
from tests.drift import changed_tasks
from tests.live_cluster import PLAIN, REPOSITORY

HERE = Path(__file__).parent


class Unusable(Exception):
    """The cluster cannot be worked with; the text says why."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a playbook did."""

    code: int
    output: str
    changes: list[changed_tasks.ChangedTask]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The hosts of `slurm_cluster` in these inventories, and a checkout whose playbooks are run."""

    inventories: tuple[Path, ...]
    checkout: Path = REPOSITORY

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(word for path in self.inventories for word in ("-i", str(path.resolve())))

    @property
    def programs(self) -> Path:
        """The checkout's own: what it packs for nodes comes out of its environment."""
        own = self.checkout / ".venv/bin"
        return own if own.is_dir() else Path(sys.executable).parent

    def groups(self) -> dict[str, list[str]]:
        """Hosts by group; groups in groups are followed."""
        listed = self._run("ansible-inventory", *self.sources, "--list")
        if listed.returncode:
            raise Unusable(listed.stderr.strip())
        return members(json.loads(listed.stdout))

    def ask(self, questions: Mapping[str, Any]) -> dict[str, Any]:
        """By host, what node.py answers; `questions` has a document per host, or one as `all`."""
        with tempfile.TemporaryDirectory(prefix="plumbline-drift-") as scratch:
            variables = Path(scratch) / "asked.json"
            variables.write_text(json.dumps({"drift_asked": questions}), encoding="utf-8")
            run = self._playbook(HERE / "node.yml", "-e", f"@{variables}", everything=True)
        if run.code:
            raise Unusable(f"the nodes could not be asked:\n{run.output[-3000:]}")
        return {
            entry.host: answer(json.loads(entry.words)["stdout"])
            for entry in run.changes
            if entry.task == "Ask the node"
        }

    def deploy(self) -> Run:
        return self._playbook(self.checkout / "playbooks/slurm-cluster.yml")

    def _playbook(self, playbook: Path, *arguments: str, everything: bool = False) -> Run:
        """Runs a playbook; what its tasks said, of those that changed a host, or of all."""
        with tempfile.TemporaryDirectory(prefix="plumbline-drift-") as scratch:
            path = Path(scratch) / "task_results.jsonl"
            plugins = (self.checkout / "playbooks/callback_plugins", HERE / "callback_plugins")
            done = self._run(
                "ansible-playbook",
                *self.sources,
                str(playbook),
                *arguments,
                ANSIBLE_CALLBACK_PLUGINS=":".join(map(str, plugins)),
                PLUMBLINE_DRIFT_RESULTS=str(path),
                PLUMBLINE_DRIFT_ALL="1" if everything else "",
            )
            return Run(done.returncode, done.stdout + done.stderr, changed_tasks.read(path))

    def _run(self, program: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        settings = PLAIN | {"ANSIBLE_CONFIG": str(self.checkout / "ansible.cfg")} | more
        command = (self.programs / program, *arguments)
        return processes.run(*command, cwd=self.checkout, env=os.environ | settings)


def members(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Of what `ansible-inventory --list` prints, the hosts of each group and the groups in it."""

    def hosts(group: str) -> list[str]:
        of: Mapping[str, Sequence[str]] = document.get(group, {})
        inside = [host for child in of.get("children", ()) for host in hosts(child)]
        return sorted({*of.get("hosts", ()), *inside})

    return {group: hosts(group) for group in document if group != "_meta"}


def answer(output: str) -> Any:
    """What node.py printed last; before it may be words of sudo, which has the same terminal."""
    return json.loads(output.strip().splitlines()[-1])
