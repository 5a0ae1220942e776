"""This scenario's mirror: stand-ins with the names and files of DCGM's packages, and nothing of it.

Their dcgmi says what DCGM 4 says of two healthy GPUs, or what lies in /etc/fake-dcgm.json: written
after DCGM's own tests, not recorded from a GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.standins.mirror import Deb, Mirror

NAME = "datacenter-gpu-manager-4"

DCGMI = """#!/usr/bin/python3
# Stand-in for dcgmi, made by a test.
import json, os, subprocess, sys, time
if subprocess.call(["systemctl", "is-active", "--quiet", "nvidia-dcgm"]):
    sys.exit("Error: unable to establish a connection to the specified host: localhost")
if sys.argv[1] == "discovery":
    print("2 GPUs found.")
elif sys.argv[1] == "diag":
    if os.path.exists("/etc/fake-dcgm.json"):
        print(open("/etc/fake-dcgm.json").read())
        sys.exit(226)
    results = [{"entity_group": "GPU", "entity_id": gpu, "status": "Pass"} for gpu in range(2)]
    test = {"name": "software", "results": results, "test_summary": {"status": "Pass"}}
    category = {"category": "Deployment", "tests": [test]}
    print(json.dumps({"DCGM Diagnostic": {"test_categories": [category]}}))
"""

ENGINE = """#!/bin/sh
# Stand-in for nv-hostengine VERSION, made by a test.
exec sleep infinity
"""

UNIT = """[Unit]
Description=Stand-in for the NVIDIA DCGM service
[Service]
ExecStart=/usr/bin/nv-hostengine
[Install]
WantedBy=multi-user.target
"""


def programs(version: str) -> dict[str, str]:
    return {
        "/usr/bin/dcgmi": DCGMI,
        "/usr/bin/nv-hostengine": ENGINE.replace("VERSION", version),
        "/usr/lib/systemd/system/nvidia-dcgm.service": UNIT,
    }


def dcgm_4(version: str) -> list[Deb]:
    core = Deb(
        f"{NAME}-core",
        version,
        conflicts=("datacenter-gpu-manager",),
        files=programs(version),
    )
    needs = (f"{NAME}-core (= {version})",)
    return [
        core,
        Deb(f"{NAME}-proprietary", version, depends=needs),
        *(
            Deb(f"{NAME}-{kind}{cuda}", version, depends=needs)
            for cuda in (12, 13)
            for kind in ("cuda", "proprietary-cuda")
        ),
    ]


def fill(folder: Path) -> None:
    mirror = Mirror(folder)
    old = Deb("datacenter-gpu-manager", "1:3.3.9", files=programs("3.3.9"))
    mirror.apt("cuda", [old, *dcgm_4("1:4.5.2-1"), *dcgm_4("1:4.7.0-1")])
    mirror.file("fingerprint", mirror.key.fingerprint)


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
