"""Readers of a node, run there for an action plugin.

A reader and what it imports travel as one archive on the standard input of the node's python3 and
run from memory: the node keeps no file. It prints one line of JSON, the mark before the answer.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.text.converters import to_text

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


def command(arguments: Iterable[str], environment: str = "") -> str:
    """What runs on the node, with the archive on its standard input."""
    return f"{environment} {shlex.join(['python3', '-I', '-c', BOOTSTRAP, *arguments])}".strip()


def ask(action: Any, reader: Reader, archive: bytes, arguments: Iterable[str]) -> dict[str, Any]:
    """The reader's answer from the plugin's node. Raises AnsibleActionFail without one."""
    command_line = command(arguments, action._compute_environment_string())
    ran = action._low_level_execute_command(command_line, in_data=archive)
    answer = reader.answer(to_text(ran["stdout"]))
    if answer is None:
        why = to_text(ran["stderr"]).strip().splitlines() or ["it printed nothing"]
        raise AnsibleActionFail(
            f"the program that {reader.does} did not run on this node (it needs python3, 3.10 "
            f"or newer): {why[-1]}"
        )
    return answer
