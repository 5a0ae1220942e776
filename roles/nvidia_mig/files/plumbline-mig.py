#!/usr/bin/python3
"""Cuts this node's GPUs into the instances of MIG that are declared, and gives those fixed names.

    plumbline-mig apply [PLAN]  cut what is cut otherwise, then name the instances
    plumbline-mig look [PLAN]   say what is there, as JSON; changes nothing
    plumbline-mig task          for Slurm's TaskProlog: show a job its own instances

PLAN is the JSON that otherwise lies in /etc/plumbline/mig.json:

    gpus       how many the node has
    layout     profile -> instances of it on every GPU; none turns MIG off
    create     what `nvidia-smi mig -cgi` gets for each GPU
    instances  {gpu, profile, devices}: X of /dev/nvidiaX, and the names of two device files

`apply` leaves GPUs alone that are cut as declared, and changes none while a process uses one, or a
job of Slurm runs on the node. What an instance is called does not say where on the GPU it lies: the
driver chooses its number, and with it the numbers of its device files. So the names are device
files of their own, and /run/plumbline-mig.json says which instance is behind them.

Exit codes of `apply`: 0 done, 1 not done (one sentence on standard error), 3 the mode changes with
the next boot. Standard library only, for the system's Python.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Plan = Mapping[str, Any]

NOT_DONE, REBOOT = 1, 3
# nvidia-smi answers with NVML's numbers: there was no instance to destroy.
NOT_FOUND = 6
LIMIT_S = 120  # for one command; a GPU's reset takes tens of seconds


class Failed(Exception):
    """What keeps the layout from being made: a sentence."""


class NeedsReboot(Failed):
    """The mode is set, and takes effect with the next boot."""


@dataclass(frozen=True)
class Instance:
    """A compute instance that fills its GPU instance; `gi` and `ci` are the driver's numbers."""

    profile: str
    uuid: str
    gi: int
    ci: int


@dataclass(frozen=True)
class MigGpu:
    """One GPU. `minor` is the X of /dev/nvidiaX, which no command takes: they take the UUID."""

    minor: int
    uuid: str
    on: bool
    pending: bool
    instances: tuple[Instance, ...]
    processes: tuple[int, ...]


@dataclass(frozen=True)
class Host:
    """Where things are on this host."""

    smi: str = "nvidia-smi"
    proc: Path = Path("/proc")
    plan: Path = Path("/etc/plumbline/mig.json")
    map: Path = Path("/run/plumbline-mig.json")
    names: Path = Path("/dev/plumbline-mig")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


# --- what the driver says ------------------------------------------------------------------------


def nvidia_smi(host: Host, *arguments: str, may: Sequence[int] = (0,)) -> str:
    """Standard output. Raises Failed when the command ends with none of the codes in `may`."""
    shown = " ".join((host.smi, *arguments))
    try:
        done = subprocess.run(
            [host.smi, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except FileNotFoundError as error:
        raise Failed("nvidia-smi is not installed; the driver comes first") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"`{shown}` did not end in {LIMIT_S} s") from error
    if done.returncode not in may:
        output = " ".join((done.stderr + " " + done.stdout).split())
        raise Failed(f"`{shown}` ended with {done.returncode}: {output or 'it said nothing'}")
    return done.stdout


def gpus(host: Host) -> list[MigGpu]:
    """All GPUs, by their device file."""
    described, listed = nvidia_smi(host, "-q", "-x"), nvidia_smi(host, "-L")
    return parsed(described, names(listed))


LISTED = re.compile(
    r"^GPU +\d+:.*\(UUID: (?P<gpu>[^)]+)\)|"
    r"^ +MIG (?P<profile>\S+) +Device +(?P<index>\d+): \(UUID: (?P<uuid>[^)]+)\)",
    re.MULTILINE,
)


def names(listed: str) -> dict[tuple[str, int], tuple[str, str]]:
    """(GPU's UUID, MIG device) -> (profile, UUID), of what `nvidia-smi -L` prints."""
    instances, gpu = {}, ""
    for match in LISTED.finditer(listed):
        if match["gpu"]:
            gpu = match["gpu"]
        else:
            instances[gpu, int(match["index"])] = match["profile"], match["uuid"]
    return instances


def parsed(described: str, listed: Mapping[tuple[str, int], tuple[str, str]]) -> list[MigGpu]:
    """The GPUs of `nvidia-smi -q -x`, which has the numbers of instances and not their names."""
    from xml.etree import ElementTree  # noqa: PLC0415 - a task of a job needs it not

    try:
        tree = ElementTree.fromstring(described)
        return sorted((_gpu(entry, listed) for entry in tree.iter("gpu")), key=lambda g: g.minor)
    except (ElementTree.ParseError, KeyError, ValueError) as error:
        raise Failed(f"nvidia-smi describes the GPUs in a way that is not understood: {error!r}")  # noqa: B904


def _gpu(entry: Any, listed: Mapping[tuple[str, int], tuple[str, str]]) -> MigGpu:
    def text(path: str) -> str:
        return (entry.findtext(path) or "").strip()

    uuid = text("uuid")
    devices = [
        {name: int(device.findtext(name)) for name in DEVICE}
        for device in entry.iterfind("mig_devices/mig_device")
    ]
    return MigGpu(
        minor=int(text("minor_number")),
        uuid=uuid,
        on=text("mig_mode/current_mig") == "Enabled",
        pending=text("mig_mode/pending_mig") == "Enabled",
        instances=tuple(
            Instance(
                *listed[uuid, device["index"]],
                device["gpu_instance_id"],
                device["compute_instance_id"],
            )
            for device in sorted(devices, key=lambda d: (d["gpu_instance_id"], d["index"]))
        ),
        processes=tuple(int(pid.text) for pid in entry.iterfind("processes/process_info/pid")),
    )


DEVICE = ("index", "gpu_instance_id", "compute_instance_id")


# --- what is there, and what should be -----------------------------------------------------------


def layout(gpu: MigGpu) -> str:
    """What a GPU is cut into, in words: "2 of 3g.20gb", or why it is not."""
    if not gpu.on:
        return "MIG off"
    return listed(Counter(instance.profile for instance in gpu.instances)) or "no instance"


def listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} of {profile}" for profile, number in sorted(counts.items()))


def summary(layouts: Sequence[str]) -> str:
    """ "8 GPUs: 2 of 3g.20gb", or each kind by the GPUs that have it."""
    kinds: dict[str, list[int]] = {}
    for number, kind in enumerate(layouts):
        kinds.setdefault(kind, []).append(number)
    if len(kinds) == 1:
        return f"{len(layouts)} GPUs: {layouts[0]}"
    parts = (f"GPU {', '.join(map(str, gpus_))}: {kind}" for kind, gpus_ in kinds.items())
    return "; ".join(parts) or "no GPU"


def planned_layout(plan: Plan) -> str:
    return listed(plan["layout"]) or "MIG off"


def cut_otherwise(plan: Plan, all_gpus: Iterable[MigGpu]) -> list[MigGpu]:
    """The GPUs that are not as declared, now or after the next boot."""
    mode = bool(plan["layout"])
    return [gpu for gpu in all_gpus if layout(gpu) != planned_layout(plan) or gpu.pending != mode]


def in_use(host: Host, changing: Iterable[MigGpu]) -> list[str]:
    """Why GPUs cannot be changed now: their processes by NVML, and jobs by their slurmstepd.

    A job may hold a GPU that none of its processes has opened yet. A slurmstepd calls itself
    `slurmstepd: [JOB.STEP]`; that of cgroup/v2, which is there without jobs, `slurmstepd infinity`.
    """
    busy = [
        f"process {pid} uses GPU {gpu.minor}" for gpu in changing for pid in sorted(gpu.processes)
    ]
    jobs = set()
    for line in host.proc.glob("[0-9]*/cmdline"):
        try:
            command = line.read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if match := re.match(rb"slurmstepd: \[(\d+)", command):
            jobs.add(int(match[1]))
    return [*busy, *(f"job {job} runs on the node" for job in sorted(jobs))]


# --- names of the instances ----------------------------------------------------------------------


def minors(text: str) -> dict[str, int]:
    """Minor numbers by capability, "gpu0/gi1/ci0/access", of /proc/driver/nvidia-caps/mig-minors.

    The X of gpuX is that of /dev/nvidiaX:
    https://docs.nvidia.com/datacenter/tesla/mig-user-guide/device-nodes-and-capabilities.html
    """
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def major(text: str) -> int:
    """The major number of nvidia-caps, of /proc/devices."""
    match = re.search(r"^ *(\d+) nvidia-caps$", text, re.MULTILINE)
    if not match:
        raise Failed("the kernel has no device nvidia-caps; the driver is not loaded, or too old")
    return int(match[1])


def devices(host: Host, plan: Plan, all_gpus: Sequence[MigGpu]) -> list[dict[str, Any]]:
    """The declared instances with what is behind them, in their order: uuid, devices, numbers.

    Those of one profile on one GPU go by the driver's number of the GPU instance. Raises Failed
    when an instance is not there.
    """
    if not plan["instances"]:
        return []
    number = major(_read(host.proc / "devices"))
    known = minors(_read(host.proc / "driver/nvidia-caps/mig-minors"))
    free: dict[tuple[int, str], list[Instance]] = {}
    for gpu in all_gpus:
        for instance in gpu.instances:
            free.setdefault((gpu.minor, instance.profile), []).append(instance)
    result = []
    for entry in plan["instances"]:
        gpu_, profile = int(entry["gpu"]), str(entry["profile"])
        if not free.get((gpu_, profile)):
            raise Failed(f"GPU {gpu_} has no {profile} for {entry['devices'][0]}")
        instance = free[gpu_, profile].pop(0)
        capabilities = (
            f"gpu{gpu_}/gi{instance.gi}/access",
            f"gpu{gpu_}/gi{instance.gi}/ci{instance.ci}/access",
        )
        if missing := [name for name in capabilities if name not in known]:
            raise Failed(f"mig-minors has no {missing[0]}")
        result.append(
            {
                "uuid": instance.uuid,
                "devices": list(entry["devices"]),
                "numbers": [[number, known[name]] for name in capabilities],
            }
        )
    return result


def named(host: Host, instances: Sequence[Mapping[str, Any]]) -> int:
    """How many of the names are there, each with the instance that the map says, and no others."""
    try:
        if json.loads(_read(host.map)) != instances:
            return 0
    except (Failed, ValueError):
        return 0
    return sum(
        _is_device(Path(path), numbers) for entry in instances for path, numbers in _files(entry)
    )


def name(host: Host, instances: Sequence[Mapping[str, Any]]) -> None:
    """Make the names and the map; those that are right stay, others go.

    Everybody may read: whose instance it is, cgroups decide, as with the files of the driver.
    """
    host.names.mkdir(mode=0o755, exist_ok=True)
    kept = {Path(path): numbers for entry in instances for path, numbers in _files(entry)}
    for path in set(host.names.iterdir()) - set(kept):
        path.unlink()
    for path, numbers in kept.items():
        if not _is_device(path, numbers):
            new = path.with_name(f".{path.name}.new")
            os.mknod(new, stat.S_IFCHR | 0o444, os.makedev(*numbers))
            new.chmod(0o444)
            new.replace(path)
    if named(host, instances) != len(kept):
        new = host.map.with_name(f".{host.map.name}.new")
        new.write_text(json.dumps(instances), encoding="utf-8")
        new.chmod(0o644)
        new.replace(host.map)


def forget(host: Host) -> None:
    """Without names slurmd does not start: no job meets an instance that is not declared."""
    host.map.unlink(missing_ok=True)
    for path in host.names.glob("*"):
        path.unlink()


def _files(instance: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[int]]]:
    yield from zip(instance["devices"], instance["numbers"], strict=True)


def _is_device(path: Path, numbers: Sequence[int]) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(*numbers)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise Failed(f"{path} cannot be read: {error.strerror}") from error


# --- the three commands --------------------------------------------------------------------------


def look(host: Host, plan: Plan) -> dict[str, Any]:
    """What is there.

    error     why nothing is known, or ""
    expected  the declared layout of all GPUs in words
    found     that of the node
    change    some GPU is to be cut otherwise
    reboot    a mode waits for the next boot
    busy      why it cannot be changed now
    names     files that the instances need, and how many of them are right
    """
    answer: dict[str, Any] = {
        "error": "",
        "expected": summary([planned_layout(plan)] * plan["gpus"]),
        "found": "",
        "change": bool(plan["layout"]),
        "reboot": False,
        "busy": [],
        "names": [2 * len(plan["instances"]), 0],
    }
    try:
        current = gpus(host)
        answer["found"] = summary([layout(gpu) for gpu in current])
        changing = cut_otherwise(plan, current)
        answer["change"] = bool(changing)
        answer["reboot"] = any(gpu.on != gpu.pending for gpu in current)
        answer["busy"] = in_use(host, changing)
        if not changing and len(current) == plan["gpus"]:
            answer["names"][1] = named(host, devices(host, plan, current))
    except Failed as error:
        answer["error"] = str(error)
    return answer


def apply(host: Host, plan: Plan) -> None:
    """Raises Failed when the node is not as declared afterwards; it has no names then."""
    try:
        current = gpus(host)
        if len(current) != plan["gpus"]:
            raise Failed(f"the node has {len(current)} GPUs, {plan['gpus']} are declared")
        changing = cut_otherwise(plan, current)
    except Failed:
        forget(host)
        raise
    if changing and (busy := in_use(host, changing)):
        raise Failed(f"GPUs are not cut while they are used: {'; '.join(busy)}")
    try:
        if changing:
            forget(host)
            cut(host, plan, changing)
            current = gpus(host)
            if left := cut_otherwise(plan, current):
                raise Failed(
                    f"GPU {left[0].minor} has {layout(left[0])} afterwards, "
                    f"{planned_layout(plan)} is declared"
                )
        if plan["instances"]:
            name(host, devices(host, plan, current))
        else:
            forget(host)
    except BaseException:
        forget(host)
        raise


def cut(host: Host, plan: Plan, changing: Sequence[MigGpu]) -> None:
    """The mode of all of them first: where that takes a boot, one is enough for all."""
    for gpu in changing:
        for thing in ("-dci", "-dgi") if gpu.on else ():
            nvidia_smi(host, "mig", "-i", gpu.uuid, thing, may=(0, NOT_FOUND))
    mode = bool(plan["layout"])
    if waiting := [why for gpu in changing if (why := set_mode(host, gpu, mode))]:
        raise NeedsReboot("; ".join(waiting))
    for gpu in changing if plan["create"] else ():
        nvidia_smi(host, "mig", "-i", gpu.uuid, "-cgi", ",".join(plan["create"]), "-C")


def set_mode(host: Host, gpu: MigGpu, on: bool) -> str:
    """Why the mode takes effect with the next boot only; empty when it has.

    Ampere's boards are reset for it: by nvidia-smi itself, or when they are told, or, where
    something holds them open, by a boot, which the mode outlasts there. Hopper needs no reset, and
    forgets the mode with a boot (https://docs.nvidia.com/datacenter/tesla/mig-user-guide/getting-started-with-mig.html).
    """
    if gpu.on == gpu.pending == on:
        return ""
    nvidia_smi(host, "-i", gpu.uuid, "-mig", str(int(on)))
    if _mode(host, gpu.uuid) == on:
        return ""
    try:
        nvidia_smi(host, "-i", gpu.uuid, "--gpu-reset")
        why = "a reset did not change it"
    except Failed as error:
        why = str(error)
    if _mode(host, gpu.uuid) == on:
        return ""
    return f"MIG of GPU {gpu.minor} is {'on' if on else 'off'} only after the next boot: {why}"


def _mode(host: Host, uuid: str) -> bool:
    return next((gpu.on for gpu in gpus(host) if gpu.uuid == uuid), False)


def task(host: Host) -> Iterator[str]:
    """Lines for TaskProlog: the instances that Slurm gave this task, by their UUIDs.

    Slurm without NVML counts them 0, 1, … as if they were GPUs, and CUDA needs the UUIDs. Which
    ones they are the kernel says, for Slurm lets a task open no others; a task of several that each
    have their own is told 0 whichever it has (seen with 24.11). Where jobs are not confined, or not
    task by task, Slurm's numbers count: places in gres.conf, which has the order of the map.
    """
    text = host.environ.get("SLURM_STEP_GPUS") or host.environ.get("SLURM_JOB_GPUS") or ""
    places = [int(word) for word in text.split(",") if word.isdigit()]
    entries = json.loads(_read(host.map))
    allowed = [
        number for number, entry in enumerate(entries) if all(map(_may_open, entry["devices"]))
    ]
    if not places or not allowed:  # the step has none, whatever it inherited from its job
        return
    own = allowed if len(allowed) == len(places) else places
    if not set(own) <= set(allowed):
        raise Failed(
            f"Slurm gave this task the instances {text}, and it can open "
            f"{','.join(map(str, allowed))}; gres.conf is not that of this node's instances"
        )
    yield f"export CUDA_VISIBLE_DEVICES={','.join(entries[number]['uuid'] for number in own)}"


def _may_open(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.EPERM, errno.EACCES, errno.ENOENT)
    return True


def main(arguments: Sequence[str], host: Host | None = None) -> int:
    host = host or Host()
    try:
        match list(arguments):
            case ["task"]:
                sys.stdout.writelines(f"{line}\n" for line in task(host))
            case ["look" | "apply" as verb, *given] if len(given) < 2:
                plan = json.loads(given[0] if given else _read(host.plan))
                if verb == "apply":
                    apply(host, plan)
                else:
                    print(json.dumps(look(host, plan)))
            case _:
                print("usage: plumbline-mig apply [PLAN] | look [PLAN] | task", file=sys.stderr)
                return 2
    except Failed as error:
        print(f"plumbline-mig: {error}.", file=sys.stderr)
        return REBOOT if isinstance(error, NeedsReboot) else NOT_DONE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
