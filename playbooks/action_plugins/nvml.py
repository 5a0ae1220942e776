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

from collections.abc import Mapping
from typing import Any, ClassVar

from cluster.readers import nvml
from playbooks.plugin_utils import node_reader

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


class ActionModule(node_reader.ReaderAction):
    """`nvml: {questions: [name, uuid], timeout: 20}`."""

    reader = READER
    arguments: ClassVar = {
        "questions": {
            "type": "list",
            "elements": "str",
            "default": ["name", "uuid"],
            "choices": list(nvml.QUESTIONS),
        },
        "timeout": {"type": "float", "default": 20.0},
    }

    def question(
        self, given: Mapping[str, Any], variables: Mapping[str, Any], told: dict[str, Any]
    ) -> list[str]:
        return [node_reader.seconds(given), *given["questions"]]
