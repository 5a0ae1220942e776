"""What jobs need for RDMA and what a node has, as rows of verify. Pure functions.

The ports are judged as the validation's check `infiniband` does it: there is one judgement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from playbooks.filter_plugins.verify import verify_row, verify_skipped
from validation.checks import infiniband
from validation.checks.document import Fields, Unusable

COMPONENT = "rdma"
DMA_BUF = (5, 12)

Row = dict[str, str]


def rows(answer: Mapping[str, Any], output: str, declared: Mapping[str, Any]) -> list[Row]:
    """`answer` is what the action infiniband returns, `output` the lines of tasks/verify.yml;
    `declared` has fabric, ports, hcas, gpus, peermem, memlock, packages and doca_version."""
    fabric = infiniband.declared(declared["fabric"])
    if fabric is None:
        why = f"the declared fabric {declared['fabric']} has no ports of InfiniBand or RoCE"
        return [verify_skipped(COMPONENT, "RDMA", why)]
    lines = [line.split() for line in output.splitlines() if line.strip()]
    return [
        *_packages(lines, declared),
        *_limits(lines, declared),
        _devices(lines),
        *_gpu_memory(lines, declared),
        _ports(answer, fabric, declared),
    ]


def _row(what: str, actual: Any, expected: Any, advice: str) -> Row:
    return verify_row(actual, COMPONENT, what, expected, advice)


def _packages(lines: list[list[str]], declared: Mapping[str, Any]) -> Iterator[Row]:
    there = {line[2]: line[3] for line in lines if line[:2] == ["package", "installed"]}
    lacking = [name for name in declared["packages"] if name not in there]
    if not declared["packages"]:
        yield verify_skipped(COMPONENT, "packages", "rdma_source is none: a site's own")
    else:
        state = f"without {', '.join(lacking)}" if lacking else "installed"
        yield _row("packages", state, "installed", "run the role rdma")
    if declared["doca_version"]:
        wanted, version = declared["doca_version"], there.get("doca-ofed", "")
        same = f"{version}.".startswith((f"{wanted}.", f"{wanted}-")) or version == wanted
        advice = "its repository has another version: change its address, or rdma_doca_version"
        yield _row("DOCA-OFED", wanted if same else version, wanted, advice)


def _limits(lines: list[list[str]], declared: Mapping[str, Any]) -> Iterator[Row]:
    """What a login may lock, and slurmd where it is installed; jobs inherit slurmd's."""
    login = " ".join(word for line in lines if line[0] == "login" for word in line[1:])
    advice = "memlock in node_base_limits sets it: RDMA locks what it sends and receives"
    yield _row("locked memory of a login", login, declared["memlock"], advice)
    slurmd = dict(line[1].split("=", 1) for line in lines if line[0] == "slurmd")
    if slurmd.get("LoadState") == "loaded":
        limit = slurmd.get("LimitMEMLOCK", "")
        advice = "its unit needs LimitMEMLOCK=infinity: https://slurm.schedmd.com/faq.html#memlock"
        yield _row("locked memory of slurmd", limit, "infinity", advice)


def _devices(lines: list[list[str]]) -> Row:
    has = "present" if any(line[0] == "device" for line in lines) else "absent"
    advice = "the kernel's module ib_uverbs makes them: dmesg says why a card's driver did not load"
    return _row("devices for jobs (uverbs)", has, "present", advice)


def _gpu_memory(lines: list[list[str]], declared: Mapping[str, Any]) -> Iterator[Row]:
    """By which interface of the kernel cards reach the GPUs' memory. NCCL takes the first it finds.

    DMA-BUF needs the open kernel modules and Linux 5.12: https://docs.nvidia.com/datacenter/
    cloud-native/gpu-operator/latest/gpu-operator-rdma.html, November 2026.
    """
    says = {line[1] for line in lines if line[0] == "nvidia"}
    if not declared["gpus"] or "loaded" not in says:  # the role nvidia_driver says what is missing
        return
    what = "RDMA to GPU memory"
    kernel = next((line[1] for line in lines if line[0] == "kernel"), "")
    if "open" in says and _release(kernel) >= DMA_BUF:
        yield _row(what, "DMA-BUF", "DMA-BUF", "")
    elif "peermem" in says or declared["peermem"]:
        loaded = "nvidia_peermem" if "peermem" in says else "not loaded"
        advice = "modprobe nvidia_peermem says why: it needs the network driver of DOCA-OFED"
        yield _row(what, loaded, "nvidia_peermem", advice)
    else:
        why = "neither DMA-BUF, which needs the open modules, nor nvidia_driver_peermem"
        yield verify_skipped(COMPONENT, what, why)


def _release(kernel: str) -> tuple[int, ...]:
    """Linux's version: (6, 12) of 6.12.41+deb13-amd64; empty where there is none."""
    match = re.match(r"(\d+)\.(\d+)", kernel)
    return (int(match[1]), int(match[2])) if match else ()


def _ports(
    answer: Mapping[str, Any], fabric: infiniband.Fabric, declared: Mapping[str, Any]
) -> Row:
    """How many are in order of those that must be; the advice is what is wrong with the others."""
    what = f"ports of {declared['fabric']} in order"
    least, hcas = declared["ports"], declared["hcas"] or None
    if answer.get("error") or answer.get("ports") is None:
        return _row(what, "unknown", least, f"the kernel does not tell: {answer.get('error')}")
    try:
        state = infiniband.state(Fields({"ports": answer["ports"]}).items("ports"), fabric, hcas)
    except Unusable as problem:
        return _row(what, "unknown", least, str(problem))
    advice = state.message or "the kernel shows no more: lspci shows the cards, dmesg their driver"
    if infiniband.every_port(fabric, hcas):
        return _row(what, state.good, max(least, state.used), advice)
    return _row(what, min(state.good, least), least, advice)
