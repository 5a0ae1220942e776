"""What this project's readers and checks say of a recorded machine.

    python -m tests.machines.replay FILE     prints it; beside the archive it is FILE's .yml

Who adds an archive reads what is printed, and keeps it beside the archive if it is true of the
machine: from then on a test holds the readers to it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from cluster import fixed_versions, gpus
from cluster.readers import infiniband, kernel_log, nvml, security
from cluster.recorder import archive
from playbooks.filter_plugins.gpus import product_names
from validation.payloads import nccl_log
from validation.tests import standin_health
from validation.tests.judging import judged

FOLDER = Path(__file__).parent
Files = Mapping[str, str]


def read(path: Path) -> dict[str, str]:
    return archive.unpack(path.read_bytes())


def said(files: Files) -> dict[str, Any]:
    """By reader, as plain values."""
    manifest = json.loads(files[archive.MANIFEST])
    return {
        "origin": manifest["origin"],
        "not recorded": {
            part["name"]: part["why"] for part in manifest["parts"] if not part["recorded"]
        },
        **(_gpus(files) if "nvml.json" in files else {}),
        "ports": _ports(files),
        "holes": _holes(files),
        "nccl": _nccl(files["nccl.log"]) if "nccl.log" in files else None,
    }


def _gpus(files: Files) -> dict[str, Any]:
    document = json.loads(files["nvml.json"])
    names = [gpu["values"]["name"] for gpu in document["gpus"]]
    models = sorted(model for model in gpus.known() if set(names) & set(product_names(model)))
    log = _log(files)
    found: dict[str, Any] = {
        "driver": document["nvml"]["driver"],
        "gpus": names,
        "models": models,
        "log": [f"{event.kind} {event.code} at {event.pci}" for event in log.events],
    }
    if len(models) == 1:
        found["checks"] = _checks(document, log, models[0])
    return found


def _log(files: Files) -> kernel_log.KernelLog:
    lines = files.get("kernel-log.txt", "").splitlines()
    return kernel_log.parse("recorded", lines) or kernel_log.KernelLog(None, "not recorded")


def _checks(document: Any, log: kernel_log.KernelLog, model: str) -> dict[str, str]:
    """What the health checks say of the answers, if the node declares what it has."""
    asked = [name for name in nvml.QUESTIONS if name in document["questions"]]
    boards = [
        {
            **gpu,
            "values": {name: gpu["values"][name] for name in asked},
            "unknown": [one for one in gpu["unknown"] if one["name"] in asked],
        }
        for gpu in document["gpus"]
    ]
    readings = {
        **standin_health.measured(),
        "nvml": document["nvml"],
        "questions": asked,
        "gpus": boards,
        "kernel_log": json.loads(json.dumps(asdict(log))),
    }
    job = standin_health.job_for(len(boards), model)
    results = {
        name: judged(name, job, standin_health.reply_to(job, readings))
        for name in standin_health.NAMES
    }
    return {
        name: f"{result.verdict.value}: {result.message}".rstrip(": ")
        for name, result in results.items()
    }


def _ports(files: Files) -> list[str]:
    """As the reader finds them in a folder that has the recorded files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            if name.startswith("sys/class/infiniband/") and ".." not in Path(name).parts:
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        ports = infiniband.read(Path(folder) / "sys/class/infiniband")
    return [f"{port['device']}:{port['port']} {port['state']} {port['rate']}" for port in ports]


def _holes(files: Files) -> list[str]:
    """What is installed and has a hole, without the source of that."""
    lines = (line.split() for line in files.get("dpkg.txt", "").splitlines())
    versions = {package: version for _, package, version in lines}
    told = fixed_versions.holes(versions, security.system(files["etc/os-release"]))
    return [hole.partition(" (")[0] for hole in told]


def _nccl(text: str) -> dict[str, Any]:
    summary = nccl_log.summarize(text).to_json()
    return {
        name: list(summary[name]) if name == "networks" else summary[name]
        for name in ("version", "networks")
    }


def dump(value: Mapping[str, Any]) -> str:
    """With lists as yamllint wants them."""
    return yaml.dump(value, Dumper=_Indented, sort_keys=False, explicit_start=True, width=100)


class _Indented(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


if __name__ == "__main__":
    print(dump(said(read(Path(sys.argv[1])))), end="")
