"""Readers of a node, run there for an action plugin (`ReaderAction`).

A reader and what it imports travel as one archive on the standard input of the node's python3 and
run from memory: the node keeps no file. It prints one line of JSON, the mark before the answer.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.text.converters import to_text
from ansible.plugins.action import ActionBase

from playbooks.plugin_utils import packed

BOOTSTRAP = """\
import os, runpy, sys
archive = os.fdopen(os.memfd_create("reader"), "w+b")
archive.write(sys.stdin.buffer.read())
archive.flush()
runpy.run_path("/proc/self/fd/%d" % archive.fileno(), run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Reader:
    """does       what it does, for the sentence when it cannot: "asks NVML"
    mark       key of the answer in the line that is printed
    main       program that prints it, out of the archive
    packages   pure Python packages of the control node that it imports
    """

    does: str
    mark: str
    main: str
    packages: tuple[str, ...] = ()

    def archive(self) -> bytes:
        """The reader as one file. Raises NotPackable where the control node lacks a part."""
        return packed.pack(self.main, packed.own(self.main), packed.installed(self.packages))

    def answer(self, output: str) -> dict[str, Any] | None:
        """What the reader printed, whatever else a login may print before it; None without any."""
        for line in reversed(output.splitlines()):
            if line.startswith(f'{{"{self.mark}"'):
                try:
                    document: dict[str, Any] = json.loads(line)[self.mark]
                except ValueError:
                    return None
                return document
        return None


@cache
def archive(reader: Reader) -> bytes:
    """Packed once for all hosts and tasks of a process."""
    return reader.archive()


def command(arguments: Iterable[str], environment: str = "") -> str:
    """What runs on the node, with the archive on its standard input."""
    return f"{environment} {shlex.join(['python3', '-I', '-c', BOOTSTRAP, *arguments])}".strip()


def ask(action: Any, reader: Reader, program: bytes, arguments: Iterable[str]) -> dict[str, Any]:
    """The reader's answer from the plugin's node. Raises AnsibleActionFail without one."""
    command_line = command(arguments, action._compute_environment_string())
    ran = action._low_level_execute_command(command_line, in_data=program)
    answer = reader.answer(to_text(ran["stdout"]))
    if answer is None:
        why = to_text(ran["stderr"]).strip().splitlines() or ["it printed nothing"]
        raise AnsibleActionFail(
            f"the program that {reader.does} did not run on this node (it needs python3, 3.10 "
            f"or newer): {why[-1]}"
        )
    return answer


class ReaderAction(ActionBase):
    """An action that is a question to its reader. It only reads, so it runs in check mode too."""

    _requires_connection = True
    _supports_check_mode = True

    reader: ClassVar[Reader]
    arguments: ClassVar[Mapping[str, Any]]  # as validate_argument_spec has them

    def question(
        self, given: Mapping[str, Any], variables: Mapping[str, Any], told: dict[str, Any]
    ) -> list[str]:
        """The reader's command line; what else the task returns goes into `told`."""
        raise NotImplementedError

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        told: dict[str, Any] = super().run(tmp, task_vars) | {"changed": False}
        ansible: Any = self  # whose methods have no types
        _, given = ansible.validate_argument_spec(argument_spec=self.arguments)
        options = self.question(given, task_vars or {}, told)
        try:
            program = archive(self.reader)
        except packed.NotPackable as problem:
            raise AnsibleActionFail(
                f"the program that {self.reader.does} cannot be sent: {problem}"
            ) from None
        return told | ask(self, self.reader, program, options)


def seconds(given: Mapping[str, Any]) -> str:
    """The argument `timeout`, on a command line."""
    if given["timeout"] <= 0:
        raise AnsibleActionFail(f"timeout is {given['timeout']:g}; give it some seconds")
    return f"{given['timeout']:g}"
