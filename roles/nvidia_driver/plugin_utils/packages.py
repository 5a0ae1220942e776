"""Which packages are a driver, by source, system, branch and kind of kernel modules.

Pure functions; the table is `__nvidia_driver_table` in vars/main.yml, with its sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cluster import gpus
from playbooks.module_utils.package_version import begins

NONE, PREINSTALLED, CUDA_REPO = "none", "preinstalled", "cuda_repo"
AUTO = "auto"

Table = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a node's variables ask for; see meta/argument_specs.yml."""

    source: str
    branch: int
    version: str
    modules: str
    kernel_modules: bool
    compute_only: bool
    peermem: bool
    storage: bool
    model: str
    count: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What is installed, as far as the inventory and the system say.

    packages   the first has the driver's version; the node fills in {kernel} and {flavour}
    optional   wanted where the archive has them
    others     the other kind of kernel modules, which goes
    kernel     the kernel's own packages, held with modules that are built for one kernel only
    modules    open, proprietary, or empty where none are installed
    built      whether the modules are built on the node, and so need headers and are not signed
    version    the version, or how it begins
    problems   a sentence each; then there are no packages
    warnings   a sentence each, about what is installed all the same
    """

    packages: Sequence[str] = ()
    optional: Sequence[str] = ()
    others: Sequence[str] = ()
    kernel: Sequence[str] = ()
    modules: str = ""
    built: bool = False
    version: str = ""
    problems: Sequence[str] = field(default_factory=tuple)
    warnings: Sequence[str] = field(default_factory=tuple)


def choose(table: Table, wish: Wish, system: str) -> Choice:
    """The packages of a driver, or what is wrong with it, a sentence each.

    `system` is the distribution and its major version, such as Debian 13; empty while it is not
    known, and then what depends on it is not judged, and there are no packages.
    """
    problems = [*_declared(wish)]
    if problems or wish.source in (NONE, PREINSTALLED):
        return Choice(problems=problems, version=wish.version or _branch(wish))
    modules = ""
    if wish.kernel_modules:
        runs = gpus.gpu(wish.model).modules
        modules = runs[0] if wish.modules == AUTO else wish.modules
    problems += [*_model(wish, modules), *_storage(wish, modules)]
    version = wish.version or str(wish.branch)
    known = Choice(modules=modules, version=version, warnings=[*_warnings(wish, modules)])
    if not system:
        return replace(known, problems=problems)
    rule = _rule(table, wish, system)
    problems += _system(table, wish, system, rule)
    if problems or rule is None:
        return replace(known, problems=problems)
    names = [*rule["compute"]] if wish.compute_only else [*rule["desktop"][modules]]
    if modules:
        names += rule["modules"][modules]
    if wish.storage:
        names += rule["storage"]
    return replace(
        known,
        packages=_named(names, wish),
        optional=_named(rule.get("optional", ()), wish),
        others=_named(_of_others(rule, modules), wish),
        kernel=[*rule.get("kernel", ())] if modules else [],
        built=bool(modules and rule["built"]),
    )


def _of_others(rule: Mapping[str, Any], modules: str) -> list[str]:
    """The packages of the other kind of modules, without what both kinds need."""
    mine = rule["modules"].get(modules, ())
    kinds = rule["modules"].values() if modules else ()
    return [name for names in kinds for name in names if name not in mine]


def _named(names: Sequence[str], wish: Wish) -> list[str]:
    return [name.replace("{branch}", str(wish.branch)) for name in names]


def _branch(wish: Wish) -> str:
    return str(wish.branch) if wish.branch else ""


def _rule(table: Table, wish: Wish, system: str) -> Mapping[str, Any] | None:
    for rule in table:
        if (
            rule["source"] == wish.source
            and rule["distribution"] == system.rpartition(" ")[0]
            and rule.get("from", 0) <= wish.branch
        ):
            return rule
    return None


def _declared(wish: Wish) -> Iterator[str]:
    if wish.source == NONE and wish.count:
        yield (
            f"nvidia_driver_source is none on a node that has {wish.count} GPUs ({wish.model}); "
            "set it to preinstalled where another tool brings the driver, else leave it out."
        )
    if wish.source != NONE and not wish.count:
        yield (
            f"nvidia_driver_source is {wish.source} on a node without GPUs; set it to none, or "
            "nvidia_driver_gpu_count to the number of them."
        )
    if wish.version and not begins(wish.version, str(wish.branch)):
        yield (
            f"nvidia_driver_version is {wish.version}, which is not of the branch {wish.branch}; "
            "set nvidia_driver_branch to the number that it begins with."
        )


def _warnings(wish: Wish, modules: str) -> Iterator[str]:
    if newer := gpus.newer_branch(wish.branch):
        yield f"nvidia_driver_branch {newer}."
    # All systems that we know have Linux 5.12, which DMA-BUF needs beside the open modules:
    # https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-rdma.html.
    if wish.peermem and modules == gpus.OPEN:
        yield (
            "nvidia_driver_peermem is true on a node with the open kernel modules, which need no "
            "nvidia_peermem for RDMA to GPU memory: DMA-BUF does it; set it to false, unless a "
            "program or a network driver does not know DMA-BUF."
        )


def _model(wish: Wish, modules: str) -> Iterator[str]:
    gpu = gpus.gpu(wish.model)
    known = gpus.branches()
    if wish.branch not in known and not gpus.newer_branch(wish.branch):
        yield (
            f"nvidia_driver_branch is {wish.branch}, which is no branch that we know; set it to "
            f"one of {', '.join(map(str, known))}."
        )
    elif problem := gpu.branch_problem(wish.branch):
        yield f"nvidia_driver_branch is {wish.branch}, but {problem}; set it to a branch that does."
    if wish.modules not in (AUTO, *gpu.modules):
        yield (
            f"nvidia_driver_modules is {wish.modules}, but {wish.model} runs only with the "
            f"{gpu.modules[0]} kernel modules; set it to {gpu.modules[0]} or auto."
        )
    elif problem := gpus.modules_problem(modules, wish.branch):
        yield (
            f"nvidia_driver_branch is {wish.branch}, but {problem}; set nvidia_driver_modules to "
            "open, or an older branch."
        )
    if not wish.kernel_modules and not wish.compute_only:
        yield (
            "nvidia_driver_compute_only is false, which installs NVIDIA's whole driver, and "
            "nvidia_driver_kernel_modules is false as well; set one of them to true."
        )


def _storage(wish: Wish, modules: str) -> Iterator[str]:
    """nvidia-fs 2.17.5 and newer are for the open modules alone: https://docs.nvidia.com/datacenter/
    cloud-native/gpu-operator/latest/gpu-operator-rdma.html. NVIDIA's repository has it.
    """
    if wish.storage and modules != gpus.OPEN:
        yield (
            "nvidia_driver_gpudirect_storage is true, but GPUDirect Storage needs NVIDIA's open "
            "kernel modules; set nvidia_driver_modules to open and nvidia_driver_kernel_modules "
            "to true, or leave it out."
        )
    elif wish.storage and wish.source != CUDA_REPO:
        yield (
            f"nvidia_driver_gpudirect_storage is true, but nvidia_driver_source is {wish.source}, "
            f"whose modules are ready built; set it to {CUDA_REPO}, which builds nvidia_fs too."
        )


def _system(table: Table, wish: Wish, system: str, rule: Mapping[str, Any] | None) -> Iterator[str]:
    has = [rule for rule in table if rule["source"] == wish.source]
    there = sorted({str(rule["distribution"]) for rule in has})
    distribution = system.rpartition(" ")[0]
    if distribution not in there:
        yield (
            f"nvidia_driver_source is {wish.source}, which is a source for {' and '.join(there)}, "
            f"on {system}; set it to another one."
        )
        return
    if rule is None:
        first = min(rule.get("from", 0) for rule in has if rule["distribution"] == distribution)
        yield (
            f"nvidia_driver_branch is {wish.branch}, but nvidia_driver_source {wish.source} begins "
            f"with {first} on {distribution}; set a newer branch, or another source."
        )
