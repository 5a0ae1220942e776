"""The RDMA ports of a node, InfiniBand and RoCE, by the one reader that the validation has too.

    - name: Look at the ports
      infiniband:
        root: /sys/class/infiniband
        timeout: 10
      register: __answer

The reader (cluster/readers/infiniband.py) runs on the node from memory, see
plugin_utils/node_reader.py. It only reads, so it runs in check mode too. A kernel that does not
answer in time is an answer and no failed task. Returned are

    error   why the ports could not be read, or None
    ports   one for each port, see infiniband.read; None with an error
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from cluster.readers import infiniband
from playbooks.plugin_utils import node_reader

# On the node. A driver that hangs takes a process of its own with it.
MAIN = """\
import json, sys
from functools import partial
from pathlib import Path
from cluster import apart
from cluster.readers import infiniband

(ended,) = apart.run([partial(infiniband.read, Path(sys.argv[1]))], float(sys.argv[2]))
print(json.dumps({"plumbline_infiniband": {"error": ended.error, "ports": ended.answer}}))
"""

READER = node_reader.Reader(
    does="reads the RDMA ports",
    mark="plumbline_infiniband",
    main=MAIN,
)


@cache
def archive() -> bytes:
    return READER.archive()


class ActionModule(ActionBase):
    """`infiniband: {root: /sys/class/infiniband, timeout: 10}`."""

    _requires_connection = True
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        ansible: Any = self  # whose methods have no types
        _, arguments = ansible.validate_argument_spec(
            argument_spec={
                "root": {"type": "path", "default": str(infiniband.ROOT)},
                "timeout": {"type": "float", "default": 10.0},
            }
        )
        if arguments["timeout"] <= 0:
            raise AnsibleActionFail(f"timeout is {arguments['timeout']:g}; give it some seconds")
        options = [arguments["root"], f"{arguments['timeout']:g}"]
        return {**result, "changed": False, **node_reader.ask(self, READER, archive(), options)}
