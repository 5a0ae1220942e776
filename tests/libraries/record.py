"""What NVIDIA's libraries answer on a machine without a GPU, asked of the real ones.

    python -m tests.libraries.record --nvml FILE --cuda FILE --nccl FILE [--write]

The files are libnvidia-ml.so.1, libcuda.so.1 and libnccl.so.2 of packages that were unpacked into a
folder; README.md tells how to get them. None of it is a test of a GPU: it is what the libraries say
where there is no driver, their words for errors, and how NCCL reads its environment. `--write`
keeps it in recorded.yml; without it the answers are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import REPOSITORY
from tests.processes import run

RECORDED = Path(__file__).with_name("recorded.yml")
HEAD = """---
# yamllint disable rule:line-length
# Made by tests/libraries/record.py. Lines of logs are as long as they are.
"""

NVML = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
library.nvmlErrorString.restype = ctypes.c_char_p
codes = [*range(28), 999]
strings = {code: library.nvmlErrorString(code).decode() for code in codes}
print(json.dumps({"init": library.nvmlInit_v2(), "strings": strings}))
"""
READER = """
import json
from cluster.readers import nvml
print(json.dumps(nvml.ask(10)[0].error))
"""
# cudaError_t and CUresult share these numbers; those that this project has words about.
CUDA = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
version, name, text, errors = ctypes.c_int(), ctypes.c_char_p(), ctypes.c_char_p(), {}
for code in (2, 3, 100, 101, 214, 802, 803, 804, 999):
    library.cuGetErrorName(code, ctypes.byref(name))
    library.cuGetErrorString(code, ctypes.byref(text))
    errors[code] = {"name": name.value.decode(), "text": text.value.decode()}
library.cuDriverGetVersion(ctypes.byref(version))
print(json.dumps({"init": library.cuInit(0), "version": version.value, "errors": errors}))
"""
NCCL = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
library.ncclGetErrorString.restype = ctypes.c_char_p
version = ctypes.c_int()
library.ncclGetVersion(ctypes.byref(version))
strings = {code: library.ncclGetErrorString(code).decode() for code in range(9)}
print(json.dumps({"version": version.value, "strings": strings}))
"""
COMMUNICATOR = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
identifier, handle = (ctypes.c_char * 128)(), ctypes.c_void_p()
if library.ncclGetUniqueId(identifier) == 0:
    library.ncclCommInitAll(ctypes.byref(handle), 1, (ctypes.c_int * 1)(0))
"""
# How NCCL is asked for a communicator, by the name of the log.
ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {
    "no driver": {"NCCL_SOCKET_IFNAME": "lo"},
    "no such interface": {"NCCL_SOCKET_IFNAME": "nosuch0"},
}


def _json(program: str, file: Path) -> Any:
    answer = run(sys.executable, "-c", program, file, cwd=REPOSITORY)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def _numbered(table: Mapping[str, Any]) -> dict[int, Any]:
    return {int(code): value for code, value in table.items()}


def nvml(file: Path) -> dict[str, Any]:
    answer = _json(NVML, file)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(file.parent)}
    said = run(sys.executable, "-c", READER, cwd=REPOSITORY, env=environment)
    return {
        "init": answer["init"],
        "reader": json.loads(said.stdout),
        "strings": _numbered(answer["strings"]),
    }


def cuda(file: Path) -> dict[str, Any]:
    answer = _json(CUDA, file)
    return {**answer, "errors": _numbered(answer["errors"])}


def nccl(file: Path) -> dict[str, Any]:
    answer = _json(NCCL, file)
    logs = {}
    for name, settings in ENVIRONMENTS.items():
        environment = {"PATH": os.environ["PATH"], "NCCL_DEBUG": "INFO", **settings}
        logs[name] = same(run(sys.executable, "-c", COMMUNICATOR, file, env=environment).stdout)
    return {"version": answer["version"], "strings": _numbered(answer["strings"]), "logs": logs}


def same(log: str) -> str:
    """The log without what differs from one run to the next: host, processes, time, a random."""
    host = re.escape(socket.gethostname().split(".")[0])
    log = re.sub(rf"(?m)^((?:\[.*?\] )?){host}:\d+:\d+ ", r"\g<1>node1:1:1 ", log)
    log = re.sub(r"(?m)^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ", "[2026-01-01 00:00:00] ", log)
    lines = [line for line in log.splitlines() if line and "handshake magic" not in line]
    return "".join(f"{line}\n" for line in lines)


class Dumper(yaml.SafeDumper):
    """Logs line by line, as people read them, and lists as yamllint wants them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="record", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("nvml", "cuda", "nccl"):
        parser.add_argument(f"--{name}", type=Path, required=True, help="the library's file")
        parser.add_argument(f"--{name}-from", required=True, help="package and version, in words")
    parser.add_argument("--write", action="store_true", help="keep it in recorded.yml")
    options = parser.parse_args()
    document = {
        "recorded": datetime.now(UTC).date().isoformat(),
        "machine": "no GPU and no driver",
        "nvml": {"from": options.nvml_from, **nvml(options.nvml.resolve())},
        "cuda": {"from": options.cuda_from, **cuda(options.cuda.resolve())},
        "nccl": {"from": options.nccl_from, **nccl(options.nccl.resolve())},
    }
    text = yaml.dump(document, Dumper=Dumper, sort_keys=False, width=1000)
    if options.write:
        RECORDED.write_text(f"{HEAD}{text}", encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
