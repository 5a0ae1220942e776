"""What NVML says of a node's GPUs, read by the one reader that the validation has too.

    - name: Ask the driver
      nvml:
        questions: [name, mig]
        timeout: 20
      register: __answer

The reader (cluster/readers/nvml.py) and the control node's pynvml travel to the node on its
standard input and run from memory: the node needs python3 and keeps no file. It only reads, so it
runs in check mode too. Ask as root: with MIG, NVML hides some values from others.

A driver that is absent, or does not answer in time, is an answer and no failed task. Returned are

    error               why NVML could not be asked, or None; no other value is known then
    driver, nvml, cuda  versions, such as 580.95.05, 13.580.95.05 and 13000
    count               how many GPUs NVML counts
    gpus                one for each: index, error, seconds, values by question, unknown (and why)
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from cluster.readers import nvml
from playbooks.plugin_utils import node_reader, packed

# On the node, out of the archive: what the asking processes of the reader import lies there too.
MAIN = """\
import json, sys
from dataclasses import asdict
from cluster.readers import nvml

system, gpus = nvml.ask(float(sys.argv[1]), sys.argv[2:])
answer = {**asdict(system), "gpus": [asdict(gpu) for gpu in gpus]}
print(json.dumps({"plumbline_nvml": answer}))
"""

READER = node_reader.Reader(
    does="asks NVML",
    mark="plumbline_nvml",
    main=MAIN,
    packages=("nvidia-ml-py",),
)


@cache
def archive() -> bytes:
    """The reader as one file. Raises NotPackable where the control node lacks pynvml."""
    return READER.archive()


class ActionModule(ActionBase):
    """`nvml: {questions: [name, uuid], timeout: 20}`."""

    _requires_connection = True
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        ansible: Any = self  # whose methods have no types
        _, arguments = ansible.validate_argument_spec(
            argument_spec={
                "questions": {
                    "type": "list",
                    "elements": "str",
                    "default": ["name", "uuid"],
                    "choices": list(nvml.QUESTIONS),
                },
                "timeout": {"type": "float", "default": 20.0},
            }
        )
        if arguments["timeout"] <= 0:
            raise AnsibleActionFail(f"timeout is {arguments['timeout']:g}; give it some seconds")
        try:
            program = archive()
        except packed.NotPackable as problem:
            raise AnsibleActionFail(f"NVML cannot be asked: {problem}") from None
        options = [f"{arguments['timeout']:g}", *arguments["questions"]]
        return {**result, "changed": False, **node_reader.ask(self, READER, program, options)}
