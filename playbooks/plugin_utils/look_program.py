"""Runs on a node: many modules, each in a child of this process, and prints their results.

It is the `__main__.py` of the archive that module_archive.py makes, beside the modules, all that
they import and `questions.json`. A module that takes too long, or prints no result, has none: the
task asks it by itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
import types
import zipfile
from types import CodeType
from typing import Any

from ansible.module_utils import basic

# A question that takes longer is asked by its task.
LIMIT_S = 30


def run(code: CodeType, name: str, arguments: dict[str, Any], out: int) -> None:
    """In the child: the module as Ansible starts it, its output to `out`."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for source, target in ((null, 0), (out, 1), (null, 2)):
        os.dup2(source, target)
    sys.argv = [name]
    basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode()
    basic._ANSIBLE_PROFILE = "legacy"
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__file__=name, _module_fqn="ansible.modules." + name, _modlib_path="")
    try:
        exec(code, main.__dict__)  # as a program
    except SystemExit:
        pass
    finally:
        sys.stdout.flush()


def answer(code: CodeType, name: str, arguments: dict[str, Any]) -> Any:
    """What the module printed, as a dictionary; None without any in time."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            run(code, name, arguments, writing)
        finally:
            os._exit(0)
    os.close(writing)
    chunks: list[bytes] = []
    end = time.monotonic() + LIMIT_S
    while select.select([reading], [], [], max(0, end - time.monotonic()))[0]:
        some = os.read(reading, 1 << 16)
        if not some:
            break
        chunks.append(some)
    else:
        os.killpg(child, signal.SIGKILL)
        chunks = []
    os.close(reading)
    os.waitpid(child, 0)
    for line in b"".join(chunks).decode(errors="replace").splitlines():
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                return None
    return None


def load(names: list[str]) -> None:
    """Imports, once before all forks, what modules import."""
    for name in names:
        if name.startswith("ansible/module_utils/") and name.endswith(".py"):
            module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            # What this node's Python has no library for is for the module that needs it to say.
            with contextlib.suppress(Exception):
                importlib.import_module(module)
    gc.freeze()


def main() -> None:
    with zipfile.ZipFile(sys.path[0]) as archive:
        load(archive.namelist())
        questions = json.loads(archive.read("questions.json"))
        names = {name for name, _ in questions.values()}
        codes = {
            name: compile(archive.read(f"ansible/modules/{name}.py"), name, "exec")
            for name in names
        }
    answers = {
        key: answer(codes[name], name, arguments) for key, (name, arguments) in questions.items()
    }
    print()
    print(json.dumps({"look": {key: value for key, value in answers.items() if value is not None}}))


main()
