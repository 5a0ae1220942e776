"""What a GPU node that is deployed as scripts/bench declares it answers to those who look at it.

Facts, modules that look, readers on the standard input of python3, and programs: each table says
what one of them finds, in the words that the real one uses and about as many of them, because the
control node reads them. Nothing here knows Ansible.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

GPUS = 8
DRIVER = "580.95.05"
SLURM, SLURM_NUMBER = "24.11.5", "0x180b05"  # Debian 13's, and as its headers have it
ENROOT = "4.2.1"
NCCL = "2.32.3-cuda13"
VERSION = "1.20.1-1"  # of any package; nvidia_container_toolkit wants this one
# Where a node makes temporary folders: one is enough. A pyxis that is built lies there.
TEMPORARY = "/tmp/made"
FILES = {f"{TEMPORARY}/out/lib/slurm/spank_pyxis.so": b"a plugin", f"/opt/nccl/{NCCL}": b""}

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """A node, the names of all nodes that were asked anything, and the files that it was given."""

    name: str
    names: Callable[[], list[str]]
    files: list[str]
    text: Callable[[str], str]


# --- facts ---------------------------------------------------------------------------------------


def facts(name: str, *, small: bool = False) -> Answer:
    """On Debian 13; a small node has half of the memory that is declared."""
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
        "ansible_memtotal_mb": 2_063_000 // (2 if small else 1),
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


# --- modules -------------------------------------------------------------------------------------


def _driver(arguments: Mapping[str, Any]) -> Answer:
    packages = [*arguments["packages"], *arguments["optional"]]
    versions = dict.fromkeys(packages, f"{DRIVER}-1")
    state = {
        "kernel": "6.12.0",
        "packages": packages,
        "installed": versions,
        "candidates": versions,
        "missing": [],
        "change": [],
        "others": [],
        "hold": [],
        "loaded": DRIVER,
        "loaded_modules": "open",
        "module": DRIVER,
        "stale": False,
        "nouveau": False,
        "storage": False,
        "secure_boot": False,
        "key_enrolled": False,
        "lists": True,
        "archives": [],
    }
    return {"state": state}


def _fabric(arguments: Mapping[str, Any]) -> Answer:
    return {
        "installed": DRIVER,
        "loaded": DRIVER,
        "switches": 4,
        "bridges": 0,
        "umad": True,
        "channel": False,
        "versions": {"nv-fabricmanager": DRIVER, "nvidia-imex": ""},
        "services": {"nvidia-fabricmanager": "active", "nvidia-imex": "inactive"},
        "imex": "",
        "nvlsm": False,
    }


def _enroot(arguments: Mapping[str, Any]) -> Answer:
    return {
        "packages": {"enroot": f"{ENROOT}-1", "enroot+caps": f"{ENROOT}-1"},
        "version": ENROOT,
        "sysctls": {
            "user.max_user_namespaces": "65536",
            "user.max_mnt_namespaces": "65536",
            "kernel.unprivileged_userns_clone": "1",
        },
        "apparmor": {"enabled": True, "abi": True, "restricted": False, "loaded": True},
        "user_namespaces": "yes",
        "disk": {
            "path": arguments["scratch"],
            "filesystem": "ext4",
            "free_gib": 6500.0,
            "size_gib": 7000.0,
        },
        "overridden": [],
    }


CPUS, MEMORY, PAGE, TASKS = 224, 2_063_000 << 20, 4096, 4_194_304


def _login(arguments: Mapping[str, Any]) -> Answer:
    """A login node with the limits that are login_limits' defaults; nobody is logged in."""
    limits = {
        "cpu.max": f"{CPUS // 2 * 100_000} 100000",
        "memory.max": str(MEMORY // 4 // PAGE * PAGE),
        "memory.swap.max": "0",
        "pids.max": "4096",
    }
    names = arguments.get("users", [])
    users = {name: number for number, name in enumerate(names)}
    node = {
        "cgroup": "v2",
        "controllers": ["cpuset", "cpu", "io", "memory", "pids"],
        "cpus": CPUS,
        "memory": MEMORY,
        "swap": 0,
        "page": PAGE,
        "tasks": TASKS,
        "operator": "root",
        "users": users,
        "free": sorted(users),
        "slices": {},
        "probe": limits if arguments.get("probe") else {},
        "probe_error": "",
        "reload": [],
        "logind": {"RemoveIPC": "no", "KillUserProcesses": "no"},
        "linger": [],
    }
    return {"node": node}


def _sacctmgr(arguments: Mapping[str, Any]) -> Answer:
    return {"results": [{"rc": 0, "stdout": "", "stderr": ""} for _ in arguments["calls"]]}


def _uri(arguments: Mapping[str, Any]) -> Answer:
    """What the listeners of the monitoring say, all of it to everybody who gives a password."""
    if not arguments.get("url_username"):
        return {"status": 401, "content": ""}
    lines = [f"{name}_config_last_reload_successful 1" for name in ("prometheus", "alertmanager")]
    lines += [f'DCGM_FI_DEV_GPU_TEMP{{gpu="{number}"}} 40' for number in range(GPUS)]
    return {"status": 200, "content": "\n".join(lines)}


# What they return beside `changed`. Those in LOOKS never change anything; of the others the second
# time is unchanged.
MODULES: dict[str, Callable[[Mapping[str, Any]], Answer]] = {
    "nvidia_driver_state": _driver,
    "nvidia_fabric_look": _fabric,
    "enroot_host": _enroot,
    "login_limits_node": _login,
    "sacctmgr_calls": _sacctmgr,
    "cluster_users": lambda arguments: {"refused": []},
    "cluster_users_homes": lambda arguments: {"refused": []},
    "environment_modules_tree": lambda arguments: {"changed_files": [], "cache": "valid"},
    "exact_packages": lambda arguments: {"version": VERSION, "removed": []},
    "package_sources": lambda arguments: {
        "states": {entry["name"]: "in place" for entry in arguments["repositories"]}
    },
    "tempfile": lambda arguments: {"path": TEMPORARY},
    "find": lambda arguments: {"files": [], "matched": 0},
    "uri": _uri,
}
LOOKS = frozenset(
    {
        "assert",
        "command",
        "enroot_host",
        "find",
        "getent",
        "login_limits_node",
        "nvidia_driver_state",
        "nvidia_fabric_look",
        "ping",
        "pyxis_trial",
        "sacctmgr_calls",
        "service_facts",
        "setup",
        "slurp",
        "stat",
        "tempfile",
        "uri",
    }
)

# --- readers (playbooks/plugin_utils/node_reader.py) ---------------------------------------------

READERS: dict[str, Answer] = {
    "plumbline_nvml": {
        "error": None,
        "driver": DRIVER,
        "nvml": f"13.{DRIVER}",
        "cuda": 13000,
        "count": GPUS,
        "gpus": [
            {
                "index": number,
                "error": None,
                "seconds": 0.1,
                "values": {
                    "name": "NVIDIA H100 80GB HBM3",
                    "uuid": f"GPU-00000000-0000-0000-0000-{number:012}",
                    "persistence": "on",
                    "fabric": {"state": "completed", "status": 0},
                    "processes": [],
                },
                "unknown": {},
            }
            for number in range(GPUS)
        ],
    },
    "plumbline_infiniband": {
        "error": None,
        "ports": [
            {
                "device": f"mlx5_{number}",
                "port": 1,
                "state": "4: ACTIVE",
                "phys_state": "5: LinkUp",
                "rate": "400 Gb/sec (4X NDR)",
                "link_layer": "InfiniBand",
                "firmware": "28.43.2026",
                "board": "MT_0000000838",
                "counters": {"link_downed": 0, "symbol_error": 0, "port_rcv_errors": 0},
                "unread": {},
            }
            for number in range(GPUS)
        ],
    },
}


def read(archive: bytes) -> str:
    """What a reader prints. Raises BadZipFile for what is none, StopIteration for one unknown."""
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        main = packed.read("__main__.py").decode()
    mark = next(mark for mark in READERS if mark in main)
    return json.dumps({mark: READERS[mark]}) + "\n"


# --- programs ------------------------------------------------------------------------------------


def _packages(command: str) -> list[str]:
    """The names after dpkg-query's format."""
    names = re.search(r"\\n['\"] ([^|>]+?)\s*(?:\||2>)", command)
    return re.sub(r"['\"]", "", names[1]).split() if names else []


def _rdma(command: str, node: Node) -> str:
    packages = [f"package installed {name} {VERSION}" for name in _packages(command)]
    limits = ["login unlimited", "slurmd LoadState=loaded", "slurmd LimitMEMLOCK=infinity"]
    devices = [f"device /dev/infiniband/uverbs{number}" for number in range(GPUS)]
    memory = ["kernel 6.12.0", "nvidia open", "nvidia loaded"]
    return "\n".join([*packages, *limits, *devices, *memory])


def _packages_held(command: str, node: Node) -> str:
    names = _packages(command)
    packages = [f"package:{name} {VERSION}" for name in names]
    running = ["path active", "service active", f"engine {GPUS}"]
    return "\n".join([*packages, f"held {len(names)}", *running])


def _cdi(command: str, node: Node) -> str:
    """A CDI specification: NVIDIA's has each GPU by two names, and some tens of mounts."""
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{number}"}]}}
        for number in range(GPUS)
        for name in (str(number), f"GPU-00000000-0000-0000-0000-{number:012}")
    ]
    mounts = [
        {
            "hostPath": f"/usr/lib/x86_64-linux-gnu/{name}.so.{DRIVER}",
            "containerPath": f"/usr/lib/x86_64-linux-gnu/{name}.so.{DRIVER}",
            "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
        }
        for name in ("libcuda", *(f"libnvidia-{number}" for number in range(39)))
    ]
    # JSON is YAML.
    return json.dumps(
        {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": devices,
            "containerEdits": {"mounts": mounts},
        }
    )


def _mig(command: str, node: Node) -> str:
    whole = f"{GPUS} GPUs: MIG off"
    answer = {"error": "", "expected": whole, "found": whole, "change": False, "reboot": False}
    return json.dumps({**answer, "busy": [], "names": [0, 0]})


def _health(command: str, node: Node) -> str:
    names = (
        "gpu_driver gpu_ecc gpu_xid gpu_pcie gpu_nvlink gpu_clocks gpu_persistence gpu_mig "
        "filesystems memory memory_errors munge mounted mounts_answer infiniband rdma_path clock "
        "kernel_log"
    )
    checks = [
        {"check": name, "verdict": "pass", "text": "", "on_fail": "drain"} for name in names.split()
    ]
    return json.dumps({"checks": checks})


def _pyxis(command: str, node: Node) -> str:
    """What tasks/look.yml prints: the plugin is what was brought, and its stamp says."""
    stamps = [path for path in node.files if path.endswith("/stamp.json")]
    stamp = node.text(stamps[0]).strip() if stamps else "{}"
    brought = " ".join(f"{PurePosixPath(path).parent.name}/" for path in stamps)
    return (
        f"slurm=slurm {SLURM}\nlibrary={json.loads(stamp).get('library', '')}\nstamp={stamp}\n"
        f"brought={brought}\noffered={'yes' if stamps else 'no'}"
    )


def _modules(command: str, node: Node) -> str:
    """What Lmod lists of the files below the tree, and no defaults."""
    tree = "/opt/modules/modulefiles"
    names = [path.removeprefix(f"{tree}/") for path in node.files if path.endswith(".lua")]
    return "\n".join(
        [f"{tree}:", *(name.removesuffix(".lua") for name in names), "----", f"{tree}:"]
    )


def _pip(command: str, node: Node) -> str:
    """The virtual environment has what its requirements say."""
    lines = node.text("/opt/plumbline/requirements.txt").split()
    pins = (line.partition("==") for line in lines)
    return json.dumps([{"name": name, "version": version} for name, _, version in pins])


def _jobs(command: str, node: Node) -> str:
    """roles/node_reboot: the nodes, when their slurmd started, and no jobs."""
    started = [f"{name} 2026-11-01T06:00:00" for name in node.names()]
    return "\n".join(["answers", _idle(command, node), "-- slurmd --", *started, "-- jobs --"])


def _leaving(command: str, node: Node) -> str:
    """roles/slurm: compute nodes are what Slurm knows, nothing is bound to them."""
    nodes = [f"{name} IDLE " for name in node.names() if name.startswith("gpu")]
    return "\n".join(["answers", *nodes, "-- jobs --", "-- reservations --"])


# /etc/pam.d/sshd as the role job_login leaves it on a compute node, and as it finds it elsewhere.
ADOPTED = """# BEGIN plumbline job_login
account [success=1 default=ignore] pam_succeed_if.so quiet user ingroup sudo
account required pam_slurm_adopt.so action_no_jobs=deny action_adopt_failure=deny \
action_generic_failure=deny action_unknown=newest disable_x11=1
# END plumbline job_login
"""


def _pam(command: str, node: Node) -> str:
    own = ADOPTED if node.name.startswith("gpu") else ""
    return f"== sshd\n@include common-account\n{own}== usepam\nusepam yes\n"


def _idle(command: str, node: Node) -> str:
    return "\n".join(f"{name} IDLE " for name in node.names())


# Of every host: a key and names that are the same everywhere let nodes be made like one another.
REQUEST = """-----BEGIN CERTIFICATE REQUEST-----
MIHKMHECAQAwDzENMAsGA1UEAwwEaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABA1gpZEwjqqCadlO+5ISwvv4hTmgLiq+u7HB8pCNGYS2+KLpR8DSPmiiBrVC
mwhUjyCvRbovweB5vsPKhD+T/kmgADAKBggqhkjOPQQDAgNJADBGAiEApXHuu9TV
SjOWhLujz5TDKtPLPBP/9NQroZIhGH44tOUCIQC5sP9Q7L/r1/1+JyhCR3RJkBDC
QQTpZ9US71YYyOmL+g==
-----END CERTIFICATE REQUEST-----
"""


def _exporters(command: str, node: Node) -> str:
    return f"own active\nlog 1\ngpus {GPUS}"


def _words(output: str) -> Callable[[str, Node], str]:
    return lambda command, node: output


# By what the command has in it, the first that fits; all else says nothing.
PROGRAMS = [
    (r"nvidia\[0-9\]", _words(f"{GPUS} {GPUS}")),  # tasks/gpus.yml
    (r"munge\W+--no-input", _words("MUNGE:of-no-node:")),
    (r"scontrol ping", lambda command, node: f"Slurmctld(primary) at {node.name} is UP"),
    (r"scontrol show hostnames", _words("node")),
    (r"-- reservations --", _leaving),
    (r"-- jobs --", _jobs),
    (r"scontrol -o show node", _idle),
    (r"scontrol show config", _words("PrologFlags = Contain\nProctrackType = proctrack/cgroup\n")),
    (r"id --groups", _words("root")),
    (r"/etc/pam\.d", _pam),
    (r"my_print_defaults", _words("--socket=/run/mysqld/mysqld.sock\n")),
    (r"sacctmgr .*show cluster", _words("10.0.0.1")),
    (r"no-package", _rdma),
    (r"apt-mark showhold", _packages_held),
    (r"/run/cdi/|nvidia-ctk cdi generate", _cdi),
    (r"python3 - look", _mig),
    (r"plumbline-health check", _health),
    (r"SLURM_VERSION_NUMBER", _words(SLURM_NUMBER)),
    (r"srun --version", _pyxis),
    (r"-m pip list", _pip),
    (r"openssl\W+req", _words(REQUEST)),
    (r"plumbline_exporter_collector_success\\{", _exporters),
    (r"datacenter-gpu-manager-4-core", _words("4.6.1")),
    (r"datacenter-gpu-manager-exporter", _packages_held),
    (r"module --terse avail", _modules),
    (r"job-report --check", _words("service: answers")),
    (r"job-report --help", _words("usage: job-report")),
]


def say(command: str, node: Node) -> str:
    answers = (answer for pattern, answer in PROGRAMS if re.search(pattern, command))
    return next(answers, _words(""))(command, node)
