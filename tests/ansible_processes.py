"""Runs of ansible-playbook that begin where all is loaded: a fork in place of a second of imports.

A server loads Ansible and the plugins of this checkout once, and forks for each run. What a run
reads (playbooks, roles, inventories, variables) and what it keeps (facts, files of a run) is its
own. The server's runs share its settings (ansible.cfg, ANSIBLE_*), its seed of hashes and the
modules that it packed for nodes, so what has to differ from one process to another, such as the
order of a set, is seen between a server and a process without one, not between runs of one server.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import IO, Any

from tests import cpu_limit

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ("ANSIBLE_", "COLUMNS", "HOME", "NO_COLOR")
# Output as tests read it.
PLAIN = {"ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true", "NO_COLOR": "1"}
# How a process is told of the server that it is handed.
HANDED = "PLUMBLINE_ANSIBLE_SERVER"

# --- where the tests are --------------------------------------------------------------------------


def run(
    *arguments: object,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """As processes.run("ansible-playbook", ...), for settings that are those of this checkout."""
    with TemporaryDirectory(prefix="plumbline-ansible-") as folder:
        out, err = (Path(folder) / name for name in ("out", "err"))
        words = [str(word) for word in arguments]
        code = status(words, cwd=cwd, env=env, timeout=timeout, output=(out, err))
        texts = (path.read_text(errors="replace") for path in (out, err))
        return subprocess.CompletedProcess(["ansible-playbook", *words], code, *texts)


def status(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    output: tuple[Path, Path] | None = None,
) -> int:
    """The exit status of a run, whose output goes to two files, or where this process's goes."""
    environment = dict(os.environ if env is None else env)
    order = {
        "arguments": list(arguments),
        "cwd": str(cwd),
        "environment": environment,
        "output": output and list(map(str, output)),
    }
    return _server(_settings(cwd, environment)).answer(order, timeout)


def handed_on(*, cwd: Path, env: Mapping[str, str]) -> tuple[dict[str, str], tuple[int, int]]:
    """What a process needs to use the server of this one: variables, and open files.

    It is for one process at a time.
    """
    settings = _settings(cwd, env)
    server = _server(settings)
    handed = {"settings": dict(settings), "files": server.files}
    return {HANDED: json.dumps(handed)}, server.files


class Server:
    """What answers by two pipes: to a line with an order two lines, a process and its status."""

    def __init__(self, orders: int, answers: int) -> None:
        self.files = (orders, answers)
        self._lines = os.fdopen(answers, encoding="utf-8", closefd=False)

    def answer(self, order: Mapping[str, Any], timeout: float | None) -> int:
        os.write(self.files[0], f"{json.dumps(order)}\n".encode())
        pid = int(self.line())
        try:
            return int(self.line(timeout))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self.line()
            raise

    def line(self, timeout: float | None = None) -> str:
        # Each is asked for before the next one is written, so none waits in the buffer.
        if not select.select([self._lines], [], [], timeout)[0]:
            raise TimeoutError(f"Ansible has not ended after {timeout} s")
        if not (line := self._lines.readline()):
            raise RuntimeError("the server has ended; what it said is on standard error")
        return line


def _settings(cwd: Path, environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """What Ansible reads once, as it is loaded."""
    settings = {key: environment[key] for key in environment if key.startswith(SETTINGS)}
    configuration = cwd / settings.get("ANSIBLE_CONFIG", "ansible.cfg")
    settings["ANSIBLE_CONFIG"] = str(configuration.resolve())
    assert settings["ANSIBLE_CONFIG"] == str(ROOT / "ansible.cfg"), configuration
    return frozenset(settings.items())


@functools.cache
def _server(settings: frozenset[tuple[str, str]]) -> Server:
    """The one that this process was handed, if it is of these settings; else one of its own."""
    handed = json.loads(os.environ.get(HANDED, "{}"))
    if handed and handed["settings"] == dict(settings):
        for file in handed["files"]:
            os.set_inheritable(file, False)
        return Server(*handed["files"])
    return _started(settings)


def _started(settings: frozenset[tuple[str, str]]) -> Server:
    """Ends with the process that asked for it, which waits for it and is charged for its work.

    What it takes until it has loaded all is no test's own: whichever came first would pay for it.
    """
    asked, orders = os.pipe()
    answers, answered = os.pipe()
    others = {key: os.environ[key] for key in os.environ if not key.startswith(SETTINGS)}
    # -P: the folder that it begins in has no modules for it, as with ansible-playbook.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.ansible_processes", str(asked), str(answered)],
        cwd=ROOT,
        env=others | dict(settings),
        stdin=subprocess.DEVNULL,
        pass_fds=(asked, answered),
    )
    os.close(asked)
    os.close(answered)

    def end() -> None:
        # Not by closing the pipe, which a process that was handed it may hold open.
        with suppress(BrokenPipeError):
            os.write(orders, b"null\n")
        process.wait()

    atexit.register(end)
    server = Server(orders, answers)
    cpu_limit.share(float(server.line()))
    return server


# --- the server -----------------------------------------------------------------------------------


def load() -> Callable[[], int | None]:
    """ansible-playbook, with what each run would load before its first task."""
    from ansible import constants  # noqa: PLC0415 - not where the tests are
    from ansible.cli import playbook  # noqa: PLC0415
    from ansible.plugins import loader  # noqa: PLC0415

    from playbooks.callback_plugins import load_once  # noqa: PLC0415

    loader.init_plugin_loader()
    load_once.name_roles_folders()
    load_once.load_plugins()
    list(loader.callback_loader.all(class_only=True))
    ansibles: Any = constants  # which makes its names as it is loaded
    for name in ansibles.INVENTORY_ENABLED:
        loader.inventory_loader.get(name)
    gc.collect()
    gc.freeze()
    main: Callable[[], int | None] = playbook.main
    return main


def serve(orders: IO[str], answers: IO[str]) -> list[str] | None:
    """Answers until it is told to end, or nobody is left who could. Returns a second time in each
    process that it starts, with the arguments of its run.
    """
    print(time.process_time(), file=answers, flush=True)
    for line in orders:
        if (order := json.loads(line)) is None:
            break
        if (pid := os.fork()) == 0:
            orders.close()
            answers.close()
            _become(order["cwd"], order["environment"], order["output"])
            return list(order["arguments"])
        print(pid, file=answers, flush=True)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(code, file=answers, flush=True)
    return None


def _become(cwd: str, environment: Mapping[str, str], output: Sequence[str] | None) -> None:
    for descriptor, path in enumerate(output or (), start=1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    # The server's own: the folder that it removes when it ends is still needed.
    atexit._clear()
    _take_a_folder()
    # Ansible configures it in each run, and would tell that it found it done.
    warnings.filterwarnings("ignore", message="AnsibleCollectionFinder has already been configured")


def _take_a_folder() -> None:
    """In Ansible's folder on this machine a run notes what it knows. All share packed modules."""
    from ansible import constants  # noqa: PLC0415

    ansibles: Any = constants  # which makes its names as it is loaded
    servers = Path(ansibles.DEFAULT_LOCAL_TMP)
    packed = servers / "ansiballz_cache"
    packed.mkdir(exist_ok=True)
    own = mkdtemp(prefix="ansible-local-", dir=servers.parent)
    (Path(own) / packed.name).symlink_to(packed)
    ansibles.DEFAULT_LOCAL_TMP = own
    atexit.register(shutil.rmtree, own, ignore_errors=True)


def main() -> int:
    asked, answered = map(int, sys.argv[1:])
    # What a run leaves behind, such as a connection that stays open, must not hold them.
    os.set_inheritable(asked, False)
    os.set_inheritable(answered, False)
    ansible_playbook = load()
    with open(asked, encoding="utf-8") as orders, open(answered, "w", encoding="utf-8") as answers:
        if (arguments := serve(orders, answers)) is None:
            return 0
    sys.argv[:] = [str(Path(sys.executable).with_name("ansible-playbook")), *arguments]
    return ansible_playbook() or 0


if __name__ == "__main__":
    sys.exit(main())
