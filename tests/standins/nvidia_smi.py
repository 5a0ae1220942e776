#!/usr/bin/python3
"""A stand-in for nvidia-smi, as far as MIG goes: its GPUs are a JSON file.

The file is $NVIDIA_SMI_STANDIN, or /var/lib/nvidia-smi.json:

    gpus   [{uuid, minor, on, pending, reset, instances, processes}]
           reset: what a change of the mode needs, one of none, told (--gpu-reset), boot
           instances: [{profile, start, gi, uuid}]
    board  profile -> [[starts], size], what a GPU can be cut into
    calls  arguments of every call so far that changes something

What it prints, and that it ends with 6 where there is nothing to destroy, is as NVIDIA's does, as
far as https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ shows it.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

STATE = Path(os.environ.get("NVIDIA_SMI_STANDIN", "/var/lib/nvidia-smi.json"))
BASES = {8: 0, 4: 1, 2: 3, 1: 7}


def describe(state: dict[str, Any]) -> None:
    print('<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">')
    print("<nvidia_smi_log><driver_version>580.95.05</driver_version>")
    for number, gpu in enumerate(state["gpus"]):
        words = {False: "Disabled", True: "Enabled"}
        print(f'<gpu id="00000000:{number + 1:02X}:00.0"><product_name>Stand-in</product_name>')
        print(f"<mig_mode><current_mig>{words[gpu['on']]}</current_mig>")
        print(f"<pending_mig>{words[gpu['pending']]}</pending_mig></mig_mode><mig_devices>")
        for index, instance in enumerate(gpu["instances"]):
            print(f"<mig_device><index>{index}</index>")
            print(f"<gpu_instance_id>{instance['gi']}</gpu_instance_id>")
            print("<compute_instance_id>0</compute_instance_id></mig_device>")
        print("" if gpu["instances"] else "None")
        print(
            f"</mig_devices><uuid>{gpu['uuid']}</uuid><minor_number>{gpu['minor']}</minor_number>"
        )
        print("<processes>")
        for pid in gpu["processes"]:
            print(f"<process_info><pid>{pid}</pid><type>C</type></process_info>")
        print("</processes></gpu>")
    print("</nvidia_smi_log>")


def listing(state: dict[str, Any]) -> None:
    for number, gpu in enumerate(state["gpus"]):
        print(f"GPU {number}: Stand-in (UUID: {gpu['uuid']})")
        for index, instance in enumerate(gpu["instances"]):
            print(f"  MIG {instance['profile']:<15} Device {index:>2}: (UUID: {instance['uuid']})")


def mode(gpu: dict[str, Any], on: bool) -> int:
    gpu["pending"] = on
    if gpu["reset"] == "none":
        gpu["on"] = on
    else:
        print("Warning: MIG mode is in pending enable state for GPU: In use by another client")
    return 0


def reset(gpu: dict[str, Any]) -> int:
    if gpu["reset"] == "boot":
        print("GPU could not be reset: in use by another client", file=sys.stderr)
        return 255
    gpu["on"] = gpu["pending"]
    return 0


def destroy(gpu: dict[str, Any], everything: bool) -> int:
    """`-dci` leaves the GPU instances, which nothing here counts: they go with the next call."""
    if not gpu["instances"]:
        print("No GPU instances found: Not Found")
        return 6
    if everything:
        gpu["instances"] = []
    return 0


def create(gpu: dict[str, Any], board: dict[str, Any], profiles: str) -> int:
    if not gpu["on"]:
        print("Unable to create a GPU instance: Not Supported")
        return 3
    for word in profiles.split(","):
        profile, _, place = word.partition(":")
        starts, size = board[profile]
        taken = {
            used
            for instance in gpu["instances"]
            for used in range(instance["start"], instance["start"] + board[instance["profile"]][1])
        }
        wanted = [int(place)] if place else starts
        free = [at for at in wanted if at in starts and not taken & {*range(at, at + size)}]
        if not free:
            print(
                f"Unable to create a GPU instance using profile {profile}: Insufficient Resources"
            )
            return 19
        start = free[-1]
        new = {"profile": profile, "start": start, "gi": BASES[size] + start // size}
        gpu["instances"].append({**new, "uuid": f"MIG-{uuid.uuid4()}"})
    return 0


def main(arguments: list[str]) -> int:
    state = json.loads(STATE.read_text())
    chosen = [arguments[at + 1] for at, word in enumerate(arguments) if word == "-i"]
    gpus = [gpu for gpu in state["gpus"] if not chosen or gpu["uuid"] in chosen]
    if arguments == ["-q", "-x"]:
        describe(state)
        return 0
    if arguments == ["-L"]:
        listing(state)
        return 0
    state["calls"].append(arguments)
    code = 0
    for gpu in gpus:
        match arguments:
            case ["mig", "-i", _, "-dci" | "-dgi" as what]:
                code = destroy(gpu, everything=what == "-dgi")
            case ["mig", "-i", _, "-cgi", profiles, "-C"]:
                code = create(gpu, state["board"], profiles)
            case ["-i", _, "-mig", on]:
                code = mode(gpu, on == "1")
            case ["-i", _, "--gpu-reset"]:
                code = reset(gpu)
            case _:
                raise SystemExit(f"the stand-in does not know {arguments}")
    STATE.write_text(json.dumps(state))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
