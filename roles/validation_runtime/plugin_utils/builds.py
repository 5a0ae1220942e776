"""Which build of torch runs on a node, or why none does.

A build is what PyTorch writes behind the plus of a version: cu126 is made with CUDA 12.6, cpu with
none. Pure functions; the table is `__validation_runtime_builds` in vars/main.yml, with its sources;
what depends on the GPU alone is in cluster/gpus.yml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster import gpus
from roles.validation_runtime.plugin_utils import requirements

AUTO = "auto"  # the table chooses
ANY = "any"  # pip chooses, from what its indexes have
CPU = "cpu"

Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Machine:
    """What matters of a node. `machine` is as `uname -m` says; empty while it is not known."""

    gpu_model: str  # of its real GPUs; empty without any
    driver_branch: int  # of NVIDIA's driver, such as 580; 0 when nobody said it
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A build, empty where pip chooses; or one sentence that says why there is none."""

    build: str = ""
    problem: str = ""


def choose(
    lines: Sequence[str], requested: str, node: Machine, table: Table, *, hashed: bool = False
) -> Choice:
    """The build of torch for a node, of the version that the requirements name.

    `requested` is auto, any, or a build. `hashed`: the requirements come from a file with
    hashes, in which nothing can be added to a version.
    """
    try:
        return Choice(_build(lines, requested, node, table, hashed=hashed))
    except NoBuild as reason:
        return Choice(problem=str(reason))


class NoBuild(Exception):
    """Why there is no build, in one sentence."""


def _build(
    lines: Sequence[str], requested: str, node: Machine, table: Table, *, hashed: bool
) -> str:
    if problem := requirements.problem(lines):
        raise NoBuild(problem)
    entry = requirements.torch_entry(lines)
    if not entry or requested == ANY:
        return ""
    held = requirements.pin(entry)
    if held is None:
        raise NoBuild(
            f"{entry!r} leaves the version of torch open, and with it the build; write it as "
            "torch==2.13.0, or set validation_runtime_torch_build to any."
        )
    if held.label and requested not in (AUTO, held.label):
        raise NoBuild(
            f"{entry!r} and validation_runtime_torch_build, which is {requested}, are two builds; "
            "leave one of them out."
        )
    requested = held.label or requested
    if hashed and not held.label:
        if node.gpu_model:
            raise NoBuild(
                f"{entry!r} in a file with hashes does not name its build; write it as "
                f"{entry}+cu126, with the hashes of that build."
            )
        return ""
    if node.gpu_model:
        return _with_gpus(held.version, requested, node, table)
    return _without_gpus(CPU if requested == AUTO else requested, node, table)


def _without_gpus(build: str, node: Machine, table: Table) -> str:
    machines = table["builds"].get(build, table["builds"][CPU])
    if node.machine and node.machine not in machines:
        raise NoBuild(
            f"There is no build {build} of torch for {node.machine}, only for "
            f"{' and '.join(machines)}; set validation_runtime_source to none, or "
            "validation_runtime_torch_build to any where an index of yours has one."
        )
    return build


def _with_gpus(version: str, requested: str, node: Machine, table: Table) -> str:
    _check_driver(node)
    minor = ".".join(version.split(".")[:2])
    known: Sequence[str] = table["torch"].get(minor, ())
    if requested == AUTO and not known:
        raise NoBuild(
            f"Which builds torch {version} has is not known, only of {', '.join(table['torch'])}; "
            "take one of these, or name the build in validation_runtime_torch_build."
        )
    if requested != AUTO and known and requested not in (CPU, *known):
        raise NoBuild(
            f"There is no build {requested} of torch {version}, only {', '.join(known)} and {CPU}; "
            "set validation_runtime_torch_build to auto, or to one of these."
        )
    obstacles = {
        build: _obstacle(build, node, table)
        for build in (known if requested == AUTO else [requested])
    }
    for build, obstacle in obstacles.items():
        if not obstacle:
            return build
    why = ", ".join(f"{build} {obstacle}" for build, obstacle in obstacles.items())
    if requested == AUTO:
        what = f"No build of torch {version} runs"
        instead = (
            "install a newer driver and declare it (nvidia_driver_branch), or take another torch "
            "(validation_runtime_packages)"
        )
    else:
        what = f"torch {version}+{requested} does not run"
        instead = (
            "set validation_runtime_torch_build to auto and leave the build out of the version, or "
            "declare the driver that the nodes have (nvidia_driver_branch)"
        )
    raise NoBuild(
        f"{what} on {node.gpu_model} with driver branch {node.driver_branch}: {why}; {instead}."
    )


def _check_driver(node: Machine) -> None:
    """Raises NoBuild when the declared branch itself is wrong."""
    branch, known = node.driver_branch, gpus.branches()
    example = "as nvidia-smi shows it: 580 of 580.95.05"
    if not branch:
        raise NoBuild(
            f"A node with GPUs ({node.gpu_model}) declares no driver, so which build of torch runs "
            f"there is not known; set nvidia_driver_branch of its group, {example}."
        )
    if branch not in known and not gpus.newer_branch(branch):
        raise NoBuild(
            f"nvidia_driver_branch is {branch}, which is no branch that we know; set it to one of "
            f"{', '.join(map(str, known))}, {example}. With another one set "
            "validation_runtime_torch_build to any."
        )
    if problem := gpus.gpu(node.gpu_model).branch_problem(branch):
        raise NoBuild(
            f"nvidia_driver_branch is {branch}, but {problem}; declare the driver that the nodes "
            "have."
        )


def _obstacle(build: str, node: Machine, table: Table) -> str:
    """Why a build does not run on a node; empty when it does."""
    return _driver_obstacle(build, node, table) or _code_obstacle(build, node, table)


def _driver_obstacle(build: str, node: Machine, table: Table) -> str:
    version = re.fullmatch(r"cu(\d+)\d", build)
    if not version:
        return "has no CUDA"
    oldest = table["oldest_branch"].get(int(version[1]))
    if oldest is None:
        return "is of a CUDA of which the drivers are not known"
    return f"needs {oldest} or newer" if node.driver_branch < oldest else ""


def _code_obstacle(build: str, node: Machine, table: Table) -> str:
    machines = table["builds"].get(build)
    if machines is None:
        return ""  # asked for by name; its driver is all that is known
    if node.machine and node.machine not in machines:
        return f"is not built for {node.machine}"
    generation = gpus.gpu(node.gpu_model).generation
    codes = [machines[node.machine]] if node.machine else machines.values()
    if not generation or any(generation in code for code in codes):
        return ""
    return f"has no code for {generation}" + (f" on {node.machine}" if node.machine else "")
