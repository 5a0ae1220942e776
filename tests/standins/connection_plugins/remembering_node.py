"""A connection to nodes that do not exist: a stand-in for a big cluster, on one machine.

It runs nothing. Ansible hands it a module with its arguments, as it hands them to SSH; it answers
by the module's name: what is asked a second time is unchanged, a file has the checksum of what was
copied there, facts are those of a node as declared. What it remembers lies in one file for each
node in the folder $REMEMBERING_NODES. So the control node does all that it does for real nodes,
and only the nodes' own time and the network's are left out.

What it does not know answers `changed: false` with an empty output.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: remembering_node
short_description: nodes that do not exist
description: Answers for a node by the name of the module that it is asked to run.
author: The Plumbline authors
options:
  host:
    description: Name of the node.
    type: str
    vars:
      - name: inventory_hostname
"""

MODULE = re.compile(r"ansible_module=(?P<name>'[^']*')")
PARAMS = re.compile(r"params=(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
DPKG_NAMES = re.compile(r"\$\{Package\}\\n(.*) 2>/dev/null")
TEMPORARY = re.compile(r"(ansible-tmp-[0-9.-]+)=")

# What programs print that playbooks and roles ask; the first that fits. NAME is the node, NODES a
# line for each node that was asked anything.
SAID = [
    (re.compile(r"nvidia\[0-9\]"), "8 8"),  # tasks/gpus.yml
    (re.compile(r"munge\W+--no-input"), "MUNGE:of-no-node:"),
    (re.compile(r"scontrol ping"), "Slurmctld(primary) at NAME is UP"),
    (re.compile(r"scontrol show hostnames"), "node"),
    (re.compile(r"scontrol -o show node"), "NODES IDLE "),
    (re.compile(r"sacctmgr .*show cluster"), "10.0.0.1"),
]
# Modules that only look.
LOOKS = {"assert", "command", "getent", "ping", "service_facts", "setup", "slurp", "stat"}


class Connection(ConnectionBase):
    transport = "remembering_node"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def close(self) -> None:
        self._connected = False

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        if in_data is None:
            if "dpkg-query" in cmd:  # action distribution_packages: all of them are there
                names = DPKG_NAMES.findall(cmd)[0].replace("'", "").replace('"', "").split()
                return 0, "".join(f"installed {name}\n" for name in names).encode(), b""
            match = TEMPORARY.search(cmd)
            said = f"{match[1]}=/nowhere/{match[1]}\n" if match else "/root\n"
            return 0, said.encode(), b""
        # The call at the end: what it is, its arguments, and last the module itself.
        call = in_data[in_data.rfind(b"_ansiballz_main(") : in_data.rfind(b"zip_data=")]
        text = call.decode()
        name, params = MODULE.search(text), PARAMS.search(text)
        if not name or not params:
            return 1, b"", b"remembering_node: not a module"
        arguments = json.loads(ast.literal_eval(params["text"]))["ANSIBLE_MODULE_ARGS"]
        answer = self._answer(ast.literal_eval(name["name"]), arguments)
        return 0, json.dumps(answer).encode(), b""

    def put_file(self, in_path: str, out_path: str) -> None:
        memory = self._remembered()
        memory["copied"][out_path] = base64.b64encode(Path(in_path).read_bytes()).decode()
        self._remember(memory)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        content = self._remembered()["files"].get(in_path, "")
        Path(out_path).write_bytes(base64.b64decode(content))

    # --- answers -----------------------------------------------------------------------------

    def _answer(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        name = name.rpartition(".")[2]
        asked = {key: value for key, value in arguments.items() if not key.startswith("_ansible")}
        if name == "setup":
            return {"changed": False, "ansible_facts": facts(str(self.get_option("host")))}
        if name == "ping":
            return {"changed": False, "ping": "pong"}
        memory = self._remembered()
        if name == "stat":
            return {"changed": False, "stat": _stat(memory["files"].get(asked["path"]), asked)}
        if name == "slurp":
            content = memory["files"].get(asked["src"], "")
            return {"changed": False, "content": content, "encoding": "base64"}
        if name == "command":
            words = (asked.get(key) for key in ("_raw_params", "cmd", "argv"))
            said = self._said(" ".join(str(word) for word in words if word))
            return {"changed": True, "rc": 0, "stdout": said, "stderr": "", "cmd": "", "start": ""}
        if name == "copy":
            content = memory["copied"].pop(asked["src"], "")
            changed = memory["files"].get(asked["dest"]) != content
            memory["files"][asked["dest"]] = content
            answer: dict[str, Any] = {"dest": asked["dest"], "checksum": _checksum(content)}
        elif name == "file" and asked.get("state") == "absent":
            changed = memory["files"].pop(asked["path"], None) is not None
            answer = {"path": asked["path"], "state": "absent"}
        elif name == "file" and asked.get("state") == "file":  # what `copy` asks of an equal file
            changed, answer = False, {"path": asked.get("path") or asked.get("dest")}
        else:
            key = hashlib.sha1(json.dumps([name, asked], sort_keys=True).encode()).hexdigest()
            changed = name not in LOOKS and key not in memory["asked"]
            memory["asked"][key] = True
            if name == "file" and asked.get("path"):
                memory["files"].setdefault(asked["path"], "")
            answer = {"state": asked.get("state"), "status": {"ActiveState": "active"}}
            answer["action"] = "restart" if changed else "none"  # daemon_inputs
        self._remember(memory)
        return {"changed": changed, **answer}

    def _said(self, command: str) -> str:
        said = next((said for pattern, said in SAID if pattern.search(command)), "")
        if "NODES" in said:
            names = sorted(path.name for path in self._file().parent.iterdir())
            return "\n".join(said.replace("NODES", name) for name in names)
        return said.replace("NAME", str(self.get_option("host")))

    def _file(self) -> Path:
        return Path(os.environ["REMEMBERING_NODES"]) / str(self.get_option("host"))

    def _remembered(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._file().read_text()))
        except FileNotFoundError:
            return {"files": {}, "copied": {}, "asked": {}}

    def _remember(self, memory: dict[str, Any]) -> None:
        self._file().write_text(json.dumps(memory))


def _checksum(content: str) -> str:
    return hashlib.sha1(base64.b64decode(content)).hexdigest()


def _stat(content: str | None, asked: dict[str, Any]) -> dict[str, Any]:
    if content is None:
        return {"exists": False}
    return {
        "exists": True,
        "path": asked["path"],
        "isreg": True,
        "isdir": False,
        "islnk": False,
        "checksum": _checksum(content),
        "size": len(base64.b64decode(content)),
        "mode": "0644",
        "uid": 0,
        "gid": 0,
        "pw_name": "root",
        "gr_name": "root",
        "readable": True,
        "writeable": True,
    }


def facts(name: str) -> dict[str, Any]:
    """Facts of a node as scripts/bench declares it, on Debian 13."""
    return {
        "module_setup": True,
        "gather_subset": ["min", "hardware"],
        "ansible_architecture": "x86_64",
        "ansible_distribution": "Debian",
        "ansible_distribution_major_version": "13",
        "ansible_distribution_release": "trixie",
        "ansible_distribution_version": "13.1",
        "ansible_fqdn": name,
        "ansible_hostname": name,
        "ansible_nodename": name,
        "ansible_kernel": "6.12.0",
        "ansible_memtotal_mb": 2_063_000,
        "ansible_os_family": "Debian",
        "ansible_pkg_mgr": "apt",
        "ansible_processor_cores": 56,
        "ansible_processor_count": 2,
        "ansible_processor_threads_per_core": 2,
        "ansible_processor_vcpus": 224,
        "ansible_python": {"version": {"major": 3, "minor": 13}},
        "ansible_service_mgr": "systemd",
        "ansible_system": "Linux",
        "ansible_env": {},
        "ansible_local": {},
    }
