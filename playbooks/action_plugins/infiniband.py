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

from collections.abc import Mapping
from typing import Any, ClassVar

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


class ActionModule(node_reader.ReaderAction):
    """`infiniband: {root: /sys/class/infiniband, timeout: 10}`."""

    reader = READER
    arguments: ClassVar = {
        "root": {"type": "path", "default": str(infiniband.ROOT)},
        "timeout": {"type": "float", "default": 10.0},
    }

    def question(
        self, given: Mapping[str, Any], variables: Mapping[str, Any], told: dict[str, Any]
    ) -> list[str]:
        return [given["root"], node_reader.seconds(given)]
