"""A machine with two GPUs that does not exist, for the recorder to record.

NVML is the stand-in of tests/standins/nvml. What nvidia-smi, DCGM, dpkg and the kernel say is
written after their documentation and public logs, not recorded from hardware, and each value of
PRIVATE is there to be found by a recorder that leaks.

    python -m tests.machines.standin     records it anew: tests/machines/standin-two-h100.tar.gz
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.processes import run
from tests.standins.nvml import library

ARCHIVE = Path(__file__).with_name("standin-two-h100.tar.gz")

HOST = "gx7-node042.hpc.example.edu"
# What may stand nowhere in a recording of this machine.
PRIVATE = {
    "host": HOST,
    "short host": "gx7-node042",
    "domain": "hpc.example.edu",
    "machine id": "6f1c2e0b7d9a4c35b8e2d4f60718293a",
    "serial of GPU 0": "1324022041187",
    "serial of GPU 1": "1324022041212",
    "chassis": "1820325190047",
    "UUID of GPU 0": "5f0c9d1e-7a3b-1c44-9e21-b0d9a7c4e811",
    "UUID of GPU 1": "c81e4b77-02d6-8f15-7a60-3d2e9f1b5c42",
    "PDI of GPU 0": "0x7d3c19e2ab5f0841",
    "node GUID": "a088:c203:00e1:7b5c",
    "GUID": "0xa088c20300e17b5c",
    "MAC": "a0:88:c2:e1:7b:5c",
    "address": "10.77.3.42",
    "IPv6": "fd12:3456:789a:1::2a",
    "home": "/home/jdoe42",
    "process": "train_xy7_moe",
    "mail": "jdoe42@example.edu",
}
_P, _RUNS = PRIVATE, PRIVATE["process"]

SMI = f"""
==============NVSMI LOG==============

Timestamp                                 : Sat Nov 28 01:00:00 2026
Driver Version                            : 580.82.07
CUDA Version                              : 13.0

Attached GPUs                             : 2
GPU 00000000:1B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : Enabled
    Serial Number                         : {_P["serial of GPU 0"]}
    GPU UUID                              : GPU-{_P["UUID of GPU 0"]}
    GPU PDI                               : {_P["PDI of GPU 0"]}
    VBIOS Version                         : 96.00.74.00.01
    Board ID                              : 0x1b00
    Platform Info
        Chassis Serial Number             : {_P["chassis"]}
    Inforom Version
        Image Version                     : G520.0200.00.05
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4711
            Type                          : C
            Name                          : {_P["home"]}/bin/{_RUNS}
            Used GPU Memory               : 600 MiB

GPU 00000000:2B:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Persistence Mode                      : Enabled
    Serial Number                         : {_P["serial of GPU 1"]}
    GPU UUID                              : GPU-{_P["UUID of GPU 1"]}
    GPU PDI                               : N/A
    VBIOS Version                         : 96.00.74.00.01
    Platform Info
        Chassis Serial Number             : N/A
    Processes                             : None
"""
TOPOLOGY = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tPIX\t0-55\t0
GPU1\tNV18\t X \tSYS\t56-111\t1
NIC0\tPIX\tSYS\t X
"""
LOG = f"""\
[    0.000000] {HOST} kernel: Linux version 6.8.0-71-generic ({_P["mail"]}) (gcc 13.3.0) #71-Ubuntu
[    6.120000] {HOST} kernel: mlx5_core 0000:1a:00.0: firmware version: 28.43.1014
[    6.210000] {HOST} kernel: mlx5_core 0000:1a:00.0 enp26s0: MAC {_P["MAC"]} GUID {_P["GUID"]}
[   11.500000] {HOST} kernel: NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.82.07
[  912.250000] {HOST} kernel: NVRM: GPU at PCI:0000:2b:00: GPU-{_P["UUID of GPU 1"]}
[  912.250100] {HOST} kernel: NVRM: GPU Board Serial Number: {_P["serial of GPU 1"]}
[  912.250200] {HOST} kernel: NVRM: Xid (PCI:0000:2b:00): 94, pid=4711, name={_RUNS}, Contained
[ 1800.000000] {HOST} kernel: eth0: renamed from nothing that is recorded, {_P["address"]}
"""
PACKAGES = """\
installed datacenter-gpu-manager-4-core 1:4.7.1-1
installed libcublas-12-4 12.4.5.8-1
installed libnccl2 2.27.7-1+cuda13.0
installed nvidia-container-toolkit 1.18.0-1
installed nvidia-driver-pinning-580 580.82.07-1
config-files cuda-drivers 575.57.08-1
"""
TORCH = f"""{{"torch": "2.9.0+cu130", "cuda": "13.0", "available": true, "nccl": [2, 27, 7],
 "devices": [{{"name": "NVIDIA H100 80GB HBM3", "uuid": "{_P["UUID of GPU 0"]}"}}]}}
"""
NCCL = f"""\
gx7-node042:4711:4711 [0] NCCL INFO Bootstrap: Using enp26s0:{_P["address"]}<0>
gx7-node042:4711:4711 [0] NCCL INFO NCCL version 2.27.7+cuda13.0
gx7-node042:4711:4730 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB enp26s0:{_P["IPv6"]}<0>
gx7-node042:4711:4730 [0] NCCL INFO Using network IB
"""

_CARD = "sys/class/infiniband/mlx5_0"
FILES = {
    "etc/hostname": f"{HOST}\n",
    "etc/machine-id": f"{_P['machine id']}\n",
    "etc/os-release": 'NAME="Ubuntu"\nVERSION_ID="24.04"\n',
    "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module  580.82.07\n",
    "proc/driver/nvidia/gpus/0000:1b:00.0/information": f"""\
Model:           NVIDIA H100 80GB HBM3
GPU UUID:        GPU-{_P["UUID of GPU 0"]}
""",
    f"{_CARD}/fw_ver": "28.43.1014\n",
    f"{_CARD}/board_id": "MT_0000000838\n",
    f"{_CARD}/node_guid": f"{_P['node GUID']}\n",
    f"{_CARD}/ports/1/state": "4: ACTIVE\n",
    f"{_CARD}/ports/1/phys_state": "5: LinkUp\n",
    f"{_CARD}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
    f"{_CARD}/ports/1/link_layer": "InfiniBand\n",
    f"{_CARD}/ports/1/counters/symbol_error": "0\n",
    "sys/devices/system/node/node0/cpulist": "0-55\n",
    "sys/devices/system/node/node0/distance": "10 21\n",
    "sys/devices/system/node/node1/cpulist": "56-111\n",
    **{
        f"sys/bus/pci/devices/{address}/{name}": f"{value}\n"
        for address, vendor, kind, node in (
            ("0000:1a:00.0", "0x15b3", "0x020700", "0"),
            ("0000:1b:00.0", "0x10de", "0x030200", "0"),
            ("0000:2b:00.0", "0x10de", "0x030200", "1"),
            ("0000:00:1f.0", "0x8086", "0x060100", "0"),
        )
        for name, value in (("vendor", vendor), ("class", kind), ("numa_node", node))
    },
}
PROGRAMS = {
    "nvidia-smi": f"case $1 in topo) cat <<'E'\n{TOPOLOGY}E\n;; *) cat <<'E'\n{SMI}E\n;; esac",
    "dcgmi": "case $1 in discovery) echo '2 GPUs found.';; *) echo 'version : 4.7.1';; esac",
    "dpkg-query": f"cat <<'E'\n{PACKAGES}E\nexit 1",
    "journalctl": f"cat <<'E'\n{LOG}E",
    "python3-of-torch": (
        f"if [ $NCCL_DEBUG ]; then cat <<'E'\n{NCCL}E\nelse cat <<'E'\n{TORCH}E\nfi"
    ),
}


def make(folder: Path) -> Mapping[str, str]:
    """Lays the machine out in a folder, and returns the environment of who records it."""
    for name, text in FILES.items():
        (folder / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "root" / name).write_text(text, encoding="utf-8")
    (folder / "bin").mkdir()
    for name, script in PROGRAMS.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
    lines = [
        line
        for number in (0, 1)
        for line in (
            f"gpu.{number}.uuid = GPU-{_P[f'UUID of GPU {number}']}",
            f"gpu.{number}.serial = {_P[f'serial of GPU {number}']}",
        )
    ]
    process = f"gpu.0.process.0 = 4711 600 {_P['home']}/bin/{_RUNS}"
    (folder / "description").write_text(library.describe(2, "h100_sxm", *lines, process))
    fake = library.build(folder)
    return {
        **os.environ,
        **library.environment(fake, folder / "description"),
        "PATH": f"{folder}/bin:/usr/bin:/bin",
        "LOGNAME": "jdoe42",
    }


def record(folder: Path, output: Path, *program: str | Path) -> str:
    """Records the machine with a program, by default this checkout's; returns what it printed."""
    command = program or (sys.executable, "-m", "cluster.recorder.main")
    says = f"two GPUs of {HOST}, asked by {_P['mail']}"
    options = ["--stand-in", "--nccl", "--says", says, "--python", "python3-of-torch"]
    answer = run(
        *(*command, *options, "--root", folder / "root", "--output", output),
        cwd=REPOSITORY if not program else folder,
        env=make(folder),
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(record(Path(scratch), ARCHIVE))
