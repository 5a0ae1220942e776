"""What a node's NVLink fabric should be and what it is, as rows of verify. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from playbooks.filter_plugins.verify import verify_row, verify_skipped

COMPONENT = "nvidia_fabric"
MANAGER, IMEX = "nvidia-fabricmanager", "nvidia-imex"

# Boards of these generations do not tell whether they have joined the fabric
# (https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/: since Hopper).
SILENT = ("volta", "turing", "ampere")

Row = dict[str, str]
Facts = Mapping[str, Any]


def rows(state: Facts, declared: Facts, nvml: Facts) -> list[Row]:
    """The rows, at least one.

    `state` is what nvidia_fabric_look returns, `nvml` what the action nvml does with the question
    `fabric`. `declared` has model, count, generation, switches (present, none, unknown), imex,
    domain and channels.
    """
    if not declared["model"]:
        return [verify_skipped(COMPONENT, "NVLink fabric", "no NVIDIA GPU is declared")]
    result = [_switches(state, declared)]
    if there(state) or declared["imex"]:
        result.append(_loaded(state))
    if there(state):
        result += _manager(state)
        result.append(_joined(declared, nvml))
    if state["bridges"]:
        result += _nvlink5(state)
    if declared["imex"]:
        result += _imex(state, declared)
    return result


def there(state: Facts) -> bool:
    return bool(state["switches"] or state["bridges"])


def _row(what: str, actual: Any, expected: Any, advice: str) -> Row:
    return verify_row(actual, COMPONENT, what, expected, advice)


def _switches(state: Facts, declared: Facts) -> Row:
    if declared["switches"] == "unknown":
        return verify_skipped(COMPONENT, "NVSwitches", f"unknown for the model {declared['model']}")
    board = f"{declared['count']} {declared['model']}"
    advice = {
        "present": f"{board} have them: they have left the PCI bus, or node_gpus is wrong",
        "none": f"{board} have none: correct node_gpus",
    }
    is_there = "present" if there(state) else "none"
    expected = declared["switches"]
    return _row("NVSwitches", is_there, expected, advice[expected])


def _loaded(state: Facts) -> Row:
    advice = "reboot the node: the fabric's daemons run with no other driver than their own"
    return _row("loaded driver", state["loaded"], state["installed"] or "a driver", advice)


def _manager(state: Facts) -> Iterator[Row]:
    driver = state["installed"]
    yield _row(
        "Fabric Manager",
        state["versions"]["nv-fabricmanager"],
        driver or "the driver's version",
        "run the role nvidia_fabric, which installs the driver's version",
    )
    yield _row(
        f"service {MANAGER}",
        state["services"][MANAGER],
        "active",
        f"without it CUDA ends with error 802: see journalctl -u {MANAGER}",
    )


def _joined(declared: Facts, nvml: Facts) -> Row:
    what = "GPUs in the fabric"
    if declared["generation"] in SILENT:
        return verify_skipped(COMPONENT, what, f"{declared['generation']} does not tell")
    if nvml.get("error") or "gpus" not in nvml:
        count, others = f"unknown ({nvml.get('error') or 'NVML was not asked'})", []
    else:
        others = [problem for problem in map(_not_joined, nvml["gpus"]) if problem]
        count = str(len(nvml["gpus"]) - len(others))
    advice = [*others, f"see journalctl -u {MANAGER}; after its restart GPUs may need a reset"]
    return _row(what, count, declared["count"], ", ".join(advice))


def _not_joined(gpu: Facts) -> str:
    """Why a GPU does not count as joined; empty for one that has."""
    fabric = gpu["values"].get("fabric") or {}
    state, status = fabric.get("state"), fabric.get("status")
    if state == "completed" and status == 0:
        return ""
    why = f"{state}, status {status}" if state else gpu.get("error") or "does not tell"
    return f"GPU {gpu['index']}: {why}"


def _nvlink5(state: Facts) -> Iterator[Row]:
    has = "installed" if state["nvlsm"] else "not installed"
    yield _row("NVLink subnet manager", has, "installed", "install the package nvlsm")
    has = "loaded" if state["umad"] else "not loaded"
    yield _row("module ib_umad", has, "loaded", "modprobe ib_umad; the subnet manager needs it")


def _imex(state: Facts, declared: Facts) -> Iterator[Row]:
    domain = declared["domain"] or "of its NVLink domain"
    yield _row(
        "IMEX",
        state["versions"]["nvidia-imex"],
        state["installed"] or "the driver's version",
        "run the role nvidia_fabric, which installs the driver's version",
    )
    advice = f"see journalctl -u {IMEX}"
    yield _row(f"service {IMEX}", state["services"][IMEX], "active", advice)
    advice = f"it waits for other nodes {domain}: nvidia-imex-ctl -N says for which"
    yield _row("IMEX's state", state["imex"], "READY", advice)
    if declared["channels"] == "shared":
        has = "present" if state["channel"] else "absent"
        advice = "the driver makes it when it is loaded: reboot the node"
        yield _row("IMEX channel 0", has, "present", advice)
    else:
        why = "Slurm makes a channel for each job"
        yield verify_skipped(COMPONENT, "IMEX channel 0", why)
