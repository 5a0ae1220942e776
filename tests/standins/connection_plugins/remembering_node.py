"""A connection to nodes that do not exist: a stand-in for a big cluster, on one machine.

It runs nothing. Ansible hands it a module with its arguments, as it hands them to SSH; it answers
by the module's name: what is asked a second time is unchanged, a file has the checksum of what was
copied there, and whoever looks finds what done_node.py says. What it remembers lies in the folder
$REMEMBERING_NODES (node_memory.py). So the control node does all that it does for real nodes,
and only the nodes' own time and the network's are left out.

What it does not know answers `changed: false` with an empty output.
"""

from __future__ import annotations

import ast
import base64
import copy
import hashlib
import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

from playbooks.plugin_utils.module_archive import QUESTIONS
from tests.standins import done_node
from tests.standins.node_memory import Memories, Memory

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
DPKG_NAMES = re.compile(r"\$\{Package\}(?: \$\{db:Status-Want\})?\\n(.*) 2>/dev/null")
TEMPORARY = re.compile(r"(ansible-tmp-[0-9.-]+)=")


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
        if self._memories().unfit(self._name()) == "off":
            raise AnsibleConnectionFailure("the node is off")
        if in_data is None:
            if "dpkg-query" in cmd:
                return 0, installed(cmd).encode(), b""
            match = TEMPORARY.search(cmd)
            output = f"{match[1]}=/nowhere/{match[1]}\n" if match else "/root\n"
            return 0, output.encode(), b""
        if zipfile.is_zipfile(io.BytesIO(in_data)):  # plugin_utils/node_reader.py
            with zipfile.ZipFile(io.BytesIO(in_data)) as archive:
                if QUESTIONS in archive.namelist():
                    questions = json.loads(archive.read(QUESTIONS))
                    return 0, json.dumps({"look": self._look(questions)}).encode(), b""
            return 0, done_node.read(in_data).encode(), b""
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
        memory.copied[out_path] = self._memories().keep(Path(in_path).read_bytes())
        self._remember(memory)

    def fetch_file(self, in_path: str, out_path: str) -> None:
        Path(out_path).write_bytes(self._content(in_path, self._remembered()))

    def _look(self, questions: dict[str, Any]) -> dict[str, Any]:
        """What the modules would say, asked in check mode: the node stays as it was."""
        before = copy.deepcopy(self._remembered())
        answers = {
            key: self._answer(name, arguments) for key, (name, arguments) in questions.items()
        }
        self._remember(before)
        return answers

    # --- answers -----------------------------------------------------------------------------

    def _answer(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        name = name.rpartition(".")[2]
        params = {key: value for key, value in arguments.items() if not key.startswith("_ansible")}
        if name == "setup":
            small = self._memories().unfit(self._name()) == "small"
            return {"changed": False, "ansible_facts": done_node.facts(self._name(), small=small)}
        if name == "ping":
            return {"changed": False, "ping": "pong"}
        memory = self._remembered()
        if name == "stat":
            return {"changed": False, "stat": self._stat(params["path"], memory)}
        if name == "slurp":
            content = base64.b64encode(self._content(params["src"], memory)).decode()
            return {"changed": False, "content": content, "encoding": "base64"}
        changed, answer = False, {}
        if name == "command":
            words = _words(params)
            known = DPKG_NAMES.search(words)
            output = installed(words) if known else done_node.say(words, self._node(memory))
            answer = {"rc": 0, "stdout": output, "stderr": "", "cmd": "", "start": ""}
            creates = params.get("creates")
            changed = creates not in memory.files
            if creates:
                memory.files.setdefault(creates, self._memories().keep(b""))
        elif name == "copy":
            key = memory.copied.pop(params["src"])
            changed = memory.files.get(params["dest"]) != key
            memory.files[params["dest"]] = key
            answer = {"dest": params["dest"], "checksum": key}
        elif name == "file" and params.get("state") == "absent":
            changed = memory.files.pop(params["path"], None) is not None
            answer = {"path": params["path"], "state": "absent"}
        elif name == "file" and params.get("state") == "file":  # what `copy` asks of an equal file
            answer = {"path": params.get("path") or params.get("dest")}
        else:
            key = hashlib.sha1(json.dumps([name, params], sort_keys=True).encode()).hexdigest()
            changed = name not in done_node.LOOKS and key not in memory.done
            memory.done[key] = True
            for path, text in _written(name, params).items():
                memory.files.setdefault(path, self._memories().keep(text))
            answer = {"state": params.get("state"), "status": {"ActiveState": "active"}}
            answer["action"] = "restart" if changed else "none"  # daemon_inputs
            if module := done_node.MODULES.get(name):
                answer |= module(params)
        self._remember(memory)
        return {"changed": changed, **answer}

    def _stat(self, path: str, memory: Memory) -> dict[str, Any]:
        key = memory.files.get(path)
        if key is None:
            return {"exists": False}
        return {
            "exists": True,
            "path": path,
            "isreg": True,
            "isdir": False,
            "islnk": False,
            "checksum": key,
            "size": self._memories().size(key),
            "mode": "0644",
            "uid": 0,
            "gid": 0,
            "pw_name": "root",
            "gr_name": "root",
            "readable": True,
            "writeable": True,
        }

    def _content(self, path: str, memory: Memory) -> bytes:
        key = memory.files.get(path)
        return self._memories().content(key) if key else b""

    # --- memory ------------------------------------------------------------------------------

    def _name(self) -> str:
        return str(self.get_option("host"))

    def _node(self, memory: Memory) -> done_node.Node:
        def text(path: str) -> str:
            return self._content(path, memory).decode()

        return done_node.Node(self._name(), self._memories().names, sorted(memory.files), text)

    def _memories(self) -> Memories:
        return Memories(Path(os.environ["REMEMBERING_NODES"]))

    def _remembered(self) -> Memory:
        return self._memories().of(self._name(), done_node.FILES)

    def _remember(self, memory: Memory) -> None:
        self._memories().remember(self._name(), memory)


def _written(name: str, params: dict[str, Any]) -> dict[str, bytes]:
    """The files that a module makes, beside those that were copied."""
    if name == "file" and params.get("path"):
        return {params["path"]: b""}
    if name == "environment_modules_tree":
        return {f"{params['folder']}/{below}": b"" for below in params["files"]}
    return {}


def installed(command: str) -> str:
    """What dpkg says to the action distribution_packages: all of them are there, and held."""
    names = DPKG_NAMES.findall(command)[0].replace("'", "").replace('"', "").split()
    return "".join(f"installed {name} hold\n" for name in names)


def _words(arguments: dict[str, Any]) -> str:
    """A command as one text, be it one or a list."""
    argv = arguments.get("argv") or [arguments.get("_raw_params") or arguments.get("cmd") or ""]
    return " ".join(map(str, argv))
