"""What is recorded of a machine: a part for each source, each of which may be missing.

A part is files by their name in the recording. What the readers of this project read is kept as
they read it: NVML's answers as cluster/readers/nvml.py gives them, the kernel's files below `sys`
and `proc` at their own paths, lines of the kernel's log as the log has them.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster import processes
from cluster.readers import kernel_log, nvml
from cluster.recorder import anonymous
from cluster.recorder.anonymous import Identity

COMMAND_S = 30.0
TORCH_S = 120.0  # the first import of torch reads gigabytes
NCCL_S = 300.0
LONGEST = 2 * 2**20  # characters of a file; the rest is left out, and the manifest says so

# The lines of the kernel's log that are about GPUs and cards, and the one that begins a boot.
LINES = (
    r"^NVRM: ",
    r"^nvidia",
    r"S?Xid \(",
    r"^mlx[45]_",
    r"^infiniband ",
    r"^pcieport .*(?:AER|error)",
    r"^Linux version ",
)
PACKAGES = (
    *("*nvidia*", "libcuda*", "cuda-*", "*nccl*", "datacenter-gpu-manager*", "*fabricmanager*"),
    *("nvlsm", "libnvsdm*", "*mlnx*", "doca-*", "rdma-core", "libibverbs*", "*mft*", "enroot*"),
    *("linux-image-*", "linux-modules-nvidia-*", "slurm*", "docker*", "containerd*", "runc"),
)
# Vendors of PCI devices: NVIDIA, Mellanox.
VENDORS = ("0x10de", "0x15b3")
_DEVICE = (
    *("vendor", "device", "subsystem_vendor", "subsystem_device", "class", "revision"),
    *("numa_node", "local_cpulist", "current_link_speed", "current_link_width"),
    *("max_link_speed", "max_link_width"),
)
_PORT = (
    *("state", "phys_state", "rate", "link_layer", "lid", "counters/link_downed"),
    *("counters/link_error_recovery", "counters/symbol_error", "counters/port_rcv_errors"),
)
_CARD = ("fw_ver", "board_id", "hca_type", "node_guid", "node_type")

TORCH = """
import json, torch
found = {"torch": torch.__version__, "cuda": torch.version.cuda, "git": torch.version.git_version}
found["available"] = torch.cuda.is_available()
if found["available"]:
    found["nccl"] = list(torch.cuda.nccl.version())
    found["cudnn"] = torch.backends.cudnn.version()
    found["architectures"] = torch.cuda.get_arch_list()
    found["devices"] = []
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        names = [name for name in dir(device) if not name.startswith("_")]
        plain = {name: getattr(device, name) for name in names}
        found["devices"].append({name: value if isinstance(value, (int, float)) else str(value)
                                 for name, value in plain.items() if not callable(value)})
print(json.dumps(found, indent=1))
"""
NCCL = """
import torch, torch.distributed as dist
torch.cuda.set_device(0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
data = torch.ones(1 << 20, device="cuda")
dist.all_reduce(data)
torch.cuda.synchronize()
dist.destroy_process_group()
"""
NCCL_SETTINGS = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,ENV,GRAPH,NET,TUNING",
}


class NotThere(Exception):
    """Why a part cannot be recorded, in one sentence without its end."""


def _run(command: Sequence[str], limit_s: float, more: Mapping[str, str]) -> str:
    environment = {**os.environ, "LC_ALL": "C", **more}
    try:
        done = processes.run(command, limit_s, environment=environment, own_session=True)
    except processes.CommandFailed as why:
        raise NotThere(str(why)) from None
    return done.stdout


@dataclass(frozen=True)
class Machine:
    """Where a recording looks.

    root    the folder that has /sys, /proc and /etc; another one is for tests
    python  the Python whose torch is asked
    run     runs a command for so many seconds with additions to the environment
    """

    root: Path = Path("/")
    python: str = "python3"
    run: Callable[[Sequence[str], float, Mapping[str, str]], str] = _run


@dataclass(frozen=True)
class Part:
    """`read` gives the files by name, or raises NotThere.

    addresses  False where four numbers with points are a version and no address
    asked      False for what is recorded only if an option says so
    """

    name: str
    read: Callable[[Machine], Mapping[str, str]]
    addresses: bool = True
    asked: bool = True


def _command(name: str, *command: str) -> Callable[[Machine], Mapping[str, str]]:
    return lambda machine: {name: machine.run(command, COMMAND_S, {})}


def _nvml(machine: Machine) -> Mapping[str, str]:
    system, gpus = nvml.ask(COMMAND_S, [*nvml.QUESTIONS, *nvml.MEASURES])
    if system.error:
        raise NotThere(system.error)
    for gpu in gpus:
        # What runs there is its user's matter; how many there are is the check's.
        gpu.values["processes"] = [
            {**process, "name": "a process"} for process in gpu.values.get("processes") or []
        ]
    document = {
        "questions": [*nvml.QUESTIONS, *nvml.MEASURES],
        "nvml": asdict(system),
        "gpus": [asdict(gpu) for gpu in gpus],
    }
    return {"nvml.json": json.dumps(document, indent=1) + "\n"}


# Of nvidia-smi, and of a line with an XID: pid=4711, name=python, …
_PROCESS_NAME = re.compile(r"(?m)^( +Name +: ).*$")
_XID_NAME = re.compile(r"(\bname=)(?!<)[^,\n]*")


def _nvidia_smi(machine: Machine) -> Mapping[str, str]:
    text = machine.run(("nvidia-smi", "-q"), COMMAND_S, {})
    return {"nvidia-smi-q.txt": _PROCESS_NAME.sub(r"\g<1>a process", text)}


def _kernel_log(machine: Machine) -> Mapping[str, str]:
    log = kernel_log.search(LINES)
    if log.source is None:
        raise NotThere(log.error or "no log shows a line of the kernel")
    return {
        "kernel-log.txt": "".join(
            _XID_NAME.sub(r"\g<1>process", f"{line}\n") for line in log.lines
        ),
        "kernel-log.source": f"{log.source}\n",
    }


def _dpkg(machine: Machine) -> Mapping[str, str]:
    form = "${db:Status-Status} ${Package} ${Version}\\n"
    # Of a pattern that no package has dpkg says so, and ends with 1.
    command = f"dpkg-query --show --showformat='{form}' \"$@\" 2>/dev/null || [ $? = 1 ]"
    text = machine.run(("sh", "-c", command, "sh", *PACKAGES), COMMAND_S, {})
    installed = [line for line in text.splitlines() if line.startswith("installed ")]
    if not installed:
        raise NotThere("dpkg lists no package of NVIDIA's, of CUDA or of RDMA")
    return {"dpkg.txt": "".join(f"{line}\n" for line in sorted(set(installed)))}


def _dcgm(machine: Machine) -> Mapping[str, str]:
    return {
        "dcgmi-discovery.txt": machine.run(("dcgmi", "discovery", "--list"), COMMAND_S, {}),
        "dcgmi-version.txt": machine.run(("dcgmi", "--version"), COMMAND_S, {}),
    }


def _torch(machine: Machine) -> Mapping[str, str]:
    return {"torch.json": machine.run((machine.python, "-c", TORCH), TORCH_S, {})}


def _nccl(machine: Machine) -> Mapping[str, str]:
    return {"nccl.log": machine.run((machine.python, "-c", NCCL), NCCL_S, NCCL_SETTINGS)}


# --- files of the kernel -------------------------------------------------------------------------


def _texts(root: Path, paths: Iterator[Path]) -> Mapping[str, str]:
    """The files that are there and can be read, by their path below the root."""
    files = {}
    for path in paths:
        with suppress(OSError):
            files[path.relative_to(root).as_posix()] = path.read_text(errors="replace")
    return files


def _pci_paths(root: Path) -> Iterator[Path]:
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        with suppress(OSError):
            if (device / "vendor").read_text().strip() in VENDORS:
                yield from (device / name for name in _DEVICE)


def _numa_paths(root: Path) -> Iterator[Path]:
    for node in sorted((root / "sys/devices/system/node").glob("node[0-9]*")):
        yield from (node / "cpulist", node / "distance")


def _rdma_paths(root: Path) -> Iterator[Path]:
    for card in sorted((root / "sys/class/infiniband").glob("*")):
        yield from (card / name for name in _CARD)
        for port in sorted((card / "ports").glob("*")):
            yield from (port / name for name in _PORT)


def _pci(machine: Machine) -> Mapping[str, str]:
    if not (files := _texts(machine.root, _pci_paths(machine.root))):
        raise NotThere("sysfs shows no PCI device of NVIDIA or Mellanox")
    return files


def _numa(machine: Machine) -> Mapping[str, str]:
    if not (files := _texts(machine.root, _numa_paths(machine.root))):
        raise NotThere("sysfs shows no NUMA node")
    return files


def _infiniband(machine: Machine) -> Mapping[str, str]:
    if not (files := _texts(machine.root, _rdma_paths(machine.root))):
        raise NotThere("sysfs shows no RDMA device")
    return files


def _system(machine: Machine) -> Mapping[str, str]:
    root = machine.root
    names = ("etc/os-release", "proc/driver/nvidia/version", "proc/driver/nvidia/params")
    boards = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    files = dict(_texts(root, iter([*(root / name for name in names), *boards])))
    software = {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }
    return {**files, "system.json": json.dumps(software, indent=1) + "\n"}


PARTS = (
    Part("system", _system, addresses=False),
    Part("nvml", _nvml),
    Part("nvidia-smi", _nvidia_smi),
    Part("topology", _command("nvidia-smi-topo.txt", "nvidia-smi", "topo", "-m")),
    Part("pci", _pci),
    Part("numa", _numa),
    Part("infiniband", _infiniband),
    Part("kernel-log", _kernel_log),
    Part("packages", _dpkg, addresses=False),
    Part("dcgm", _dcgm),
    Part("torch", _torch),
    Part("nccl", _nccl, asked=False),
)


def own_identities(root: Path = Path("/")) -> list[Identity]:
    """What the machine is called, and who records it: no form tells these."""
    names = {socket.gethostname()}
    with suppress(OSError):
        names.add((root / "etc/hostname").read_text(encoding="utf-8").strip())
    found = [one for name in sorted(names) for one in anonymous.hosts(name)]
    with suppress(OSError):
        machine_id = (root / "etc/machine-id").read_text(encoding="ascii").strip()
        found.append(Identity("serial", machine_id))
    # Of a user without an entry in the list of users there is no name.
    with suppress(KeyError, OSError):
        found.append(Identity("user", getpass.getuser()))
    return [one for one in found if one.value and one.value not in _EVERYBODYS]


# Names that half of all machines have: they tell nothing, and stand in sentences.
_EVERYBODYS = frozenset({"root", "localhost", "ubuntu", "debian", "localhost.localdomain"})
