"""The login node is a host of the inventory, reached through ansible-runner.

Ansible knows how to reach the host (addresses, users, keys, jump hosts, vault): the run needs only
the inventory that built the cluster. Each script is one module call. Scripts and their input travel
as base64: Ansible never sees text in them that it could take for a template.
"""

import base64
import configparser
import importlib
import json
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from cluster.errors import EnvironmentProblem
from cluster.processes import Completed, utf8_locale
from cluster.text import printable
from validation.errors import TransportError, Unreachable

log = logging.getLogger(__name__)

ROOT = Path(__file__).parent.parent.parent
DECLARE = ROOT / "playbooks" / "declaration.yml"
CONFIG = ROOT / "ansible.cfg"


# Of sudo, su and Ansible itself.
_NOT_BECOME = ("sudo", "become", "unknown user", "does not exist")


class Inventory:
    """Runs scripts on the first of the hosts that answers, and from then on only there."""

    def __init__(
        self, inventory: Sequence[str], hosts: Sequence[str], user: str | None = None
    ) -> None:
        """`user` is who submits the jobs; None is the account that Ansible comes as."""
        self._inventory = list(inventory)
        self._hosts = list(hosts)
        self._user = user
        self._settled = False
        self.notes: tuple[str, ...] = ()

    @property
    def via(self) -> str:
        by = f" as {self._user}" if self._user else ""
        return f"{self._hosts[0]} (through the inventory{by})"

    def run(self, script: str, stdin: bytes = b"", timeout_s: float = 60) -> Completed:
        failures = []
        for _ in range(len(self._hosts)):
            try:
                completed = self._run_on(self._hosts[0], script, stdin, timeout_s)
            except Unreachable as error:
                if self._settled:
                    raise
                log.warning("%s", error)
                failures.append(str(error))
                self._hosts.append(self._hosts.pop(0))
            else:
                if not self._settled and failures:
                    self.notes += (f"{'; '.join(failures)}; used {self._hosts[0]} instead",)
                self._settled = True
                return completed
        raise Unreachable(f"no host to submit jobs from: {'; '.join(failures)}")

    def elsewhere(self) -> "Inventory | None":
        rest = self._hosts[1:]
        return Inventory(self._inventory, rest, self._user) if rest else None

    def _advised(self, why: str) -> str:
        """With what to do where Ansible could not become the user."""
        if self._user is None or not any(word in why.lower() for word in _NOT_BECOME):
            return why
        return (
            f"{why}; the run is to submit jobs as {self._user}: deploy that account with "
            "validation-runtime.yml, give Ansible the password of sudo (ansible_become_password), "
            "or set validation_user to an empty name to submit as the account that Ansible comes as"
        )

    def _run_on(self, host: str, script: str, stdin: bytes, timeout_s: float) -> Completed:
        task = {
            "name": "Run a script of the validation",
            "ansible.builtin.shell": {
                "cmd": f'base64 -d | sh -c "$(echo {_base64(script.encode())} | base64 -d)"',
                "stdin": _base64(stdin),
            },
            "changed_when": False,
            "failed_when": False,
        }
        play = {
            "name": "Validation",
            "hosts": host,
            "gather_facts": False,
            # Never as root: become is for an account that may do less than the one that comes.
            "vars": {"ansible_become": True, "ansible_become_user": self._user}
            if self._user
            else {"ansible_become": False},
            "tasks": [task],
        }
        for event in _play([play], self._inventory, {}, timeout_s):
            match event:
                case {"event": "runner_on_ok" | "runner_on_failed", "event_data": {"res": res}}:
                    # A module that could not run has a return code too, but no output.
                    if isinstance(res.get("rc"), int) and "stdout" in res:
                        return Completed(res["rc"], res["stdout"], res["stderr"])
                    raise TransportError(f"{host}: {self._advised(_why(res))}")
                case {"event": "runner_on_unreachable", "event_data": {"res": res}}:
                    raise Unreachable(f"{host} is unreachable: {_why(res)}")
        raise Unreachable(f"{host} is not in the inventory {', '.join(self._inventory)}")


def default_inventory() -> list[str]:
    """The inventory that Ansible itself would take: the environment's, else ansible.cfg's."""
    if inventory := os.environ.get("ANSIBLE_INVENTORY"):
        return [inventory]
    config = configparser.ConfigParser(interpolation=None)
    config.read(CONFIG)
    setting = config.get("defaults", "inventory", fallback="").strip()
    return [str(CONFIG.parent / part.strip()) for part in setting.split(",") if part.strip()]


def declaration(inventory: Sequence[str], timeout_s: float = 300) -> Any:
    """The cluster's declaration, as playbooks/declaration.yml writes it from the inventory."""
    if not DECLARE.is_file():
        raise EnvironmentProblem(
            f"{DECLARE} is missing: it turns the inventory into a declaration; "
            "run it from a checkout of Plumbline, or give --declaration FILE"
        )
    with _folder() as folder:
        path = Path(folder) / "cluster.json"
        problem = ""
        for event in _play(str(DECLARE), inventory, {"declaration_file": str(path)}, timeout_s):
            match event:
                case {
                    "event": "runner_on_failed" | "runner_on_unreachable",
                    "event_data": {"res": res, **data},
                } if not data.get("ignore_errors"):
                    problem = f"task {data.get('task', '?')!r}: {_why(res)}"
        if problem or not path.is_file():
            raise EnvironmentProblem(
                f"the inventory {', '.join(inventory)} gives no declaration: "
                f"{problem or f'{DECLARE.name} wrote no file'}"
            )
        return json.loads(path.read_text(encoding="utf-8"))


def _play(
    playbook: str | list[dict[str, Any]],
    inventory: Sequence[str],
    variables: Mapping[str, str],
    timeout_s: float,
) -> list[dict[str, Any]]:
    """Events of one ansible-playbook. Raises TransportError when Ansible itself failed."""
    try:
        # Not imported above: a run with --here needs no Ansible.
        runner_module = importlib.import_module("ansible_runner")
    except ImportError as error:
        raise EnvironmentProblem("ansible-runner is not installed: see requirements.txt") from error
    with _folder() as folder:
        stopped = threading.Event()
        outcomes: list[Any] = []

        def work() -> None:
            # Not in the main thread: there ansible-runner would take over Ctrl-C.
            try:
                outcomes.append(
                    runner_module.run(
                        private_data_dir=folder,
                        playbook=playbook,
                        inventory=list(inventory),
                        extravars=dict(variables),
                        envvars=_environment(),
                        settings={"suppress_ansible_output": True, "job_timeout": int(timeout_s)},
                        quiet=True,
                        ignore_logging=True,
                        cancel_callback=stopped.is_set,
                    )
                )
            except Exception as error:
                outcomes.append(error)

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        try:
            worker.join(timeout_s + 30)
        finally:
            stopped.set()
            worker.join(10)
        if not outcomes:
            raise TransportError(f"ansible-playbook gave no answer in {timeout_s:g} s")
        if isinstance(outcomes[0], Exception):
            raise TransportError(f"ansible-runner: {printable(str(outcomes[0]), 300)}")
        runner = outcomes[0]
        events = list(runner.events)
        if runner.status == "timeout":
            raise Unreachable(f"ansible-playbook did not end in {timeout_s:g} s")
        names = [str(event.get("event", "")) for event in events]
        if not any(name.startswith(("runner_on_", "playbook_on_no_hosts")) for name in names):
            # No task ran: a broken inventory, a missing key, a syntax error.
            raise TransportError(f"ansible-playbook: {_complaint(events)}")
        return events


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder of this process. Those of processes that were killed go meanwhile."""
    mine = f"plumbline-control-{os.getuid()}-"
    for path in Path(tempfile.gettempdir()).glob(f"{mine}*"):
        owner = path.name.removeprefix(mine).partition("-")[0]
        if not Path("/proc", owner).exists():
            shutil.rmtree(path, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{mine}{os.getpid()}-")


def _environment() -> dict[str, str]:
    # ansible-playbook lies beside this Python in a virtual environment that is not activated.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    plain = {"ANSIBLE_NOCOLOR": "true", "ANSIBLE_FORCE_COLOR": "false"}
    environment = {"PATH": path, **plain, **utf8_locale()}
    if CONFIG.is_file():
        environment["ANSIBLE_CONFIG"] = str(CONFIG)
    return environment


def _complaint(events: Sequence[Mapping[str, Any]]) -> str:
    lines = [line for event in events for line in str(event.get("stdout", "")).splitlines()]
    if not lines:
        return "it said nothing"
    first = next((n for n, line in enumerate(lines) if "error" in line.lower()), 0)
    # Of our own plugins, the reason is below: file, line, and what to write.
    reasons = takewhile(lambda line: line.startswith("  "), lines[first + 1 :])
    return printable(" ".join([lines[first], *map(str.strip, reasons)]), 600)


def _why(result: Mapping[str, Any]) -> str:
    names = ("msg", "module_stderr", "stderr", "stdout")
    texts = [str(result[name]) for name in names if str(result.get(name) or "").strip()]
    return printable(": ".join(texts[:2]), 300) or "no reason given"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
