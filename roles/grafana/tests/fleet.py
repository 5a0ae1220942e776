"""A fleet on its worst day: of all that there may be many of, all are ill, and names are hostile.

Each node is drained or down, fails checks and has alerts of its own; each of its GPUs has errors;
each job belongs to another user, and each user to another account. So a panel that has a line or a
row for each of anything has as many as there are nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from roles.gpu_exporter.files.gpu_exporter import xid
from roles.grafana.tests import sample
from roles.grafana.tests.sample import Gpu, Series
from roles.slurm_exporter.files.slurm_exporter.jobs import QueuedJob
from roles.slurm_exporter.files.slurm_exporter.nodes import SlurmNode

END = sample.END
SPAN_S = 180  # enough for a rate, and for one of what is recorded
# What people and programs may be called, and what Slurm's reasons may hold.
HOSTILE = (
    "<script>document.title='hacked'</script>",
    "<img src=x onerror=document.title='hacked'>",
    "'\"><b>&amp;",
    "two\nlines",
    "\x1b[31mred\x1b[0m",
    "\u202eturned round",
    "${__value.raw} $node {{node}} {% x %}",
    "long " * 200,
)


def nodes_of(nodes: int) -> list[str]:
    return [f"gpu{number:04}" for number in range(nodes)]


def everything(nodes: int, gpus: int, only: Collection[str]) -> Iterator[Series]:
    """`only` these of DCGM's fields."""
    names = nodes_of(nodes)
    yield from sample.of_gpus(_gpus(names, gpus), only)
    yield from sample.of_hosts(names)
    of_slurm = list(sample.of_slurm(_slurm_nodes(names, gpus), _jobs(names, gpus), _shares(names)))
    yield from of_slurm
    of_one = [
        *(one for one in of_slurm if one.name.startswith("plumbline_node_")),
        *sample.of_collectives(),
        *sample.of_jobs(),
    ]
    yield from sample.of_validation()
    for number, node in enumerate(names):
        target = sample._target(node)
        yield from _of_node(number, node, gpus, target)
        yield from _verdicts(number, node, target)
        yield from (_like(one, node, str(1000 + number)) for one in of_one if _is_pattern(one))
    yield from _of_cluster(names, gpus)


def _is_pattern(one: Series) -> bool:
    """Of what the small cluster has, the node with the most faults, and one job."""
    return one.labels.get("hpc_job", "4711") == "4711" and one.labels["node"] in ("gpu1", "gpu2")


def _like(one: Series, node: str, job: str) -> Series:
    labels = {**one.labels, "node": f"{node}-{one.labels['node']}"}
    if "hpc_job" in labels:
        labels |= {"node": node, "hpc_job": job}
    return replace(one, labels=labels)


def hostile(number: int) -> str:
    return f"{HOSTILE[number % len(HOSTILE)]} {number}"


def _gpus(names: list[str], gpus: int) -> Iterator[Gpu]:
    for number, node in enumerate(names):
        for gpu in range(gpus):
            each = number * gpus + gpu
            fields = {
                **sample._fields(each % 101, 60000, 20000, 600, 70 + each % 20, 1980 - each % 500),
                "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": each % 7,
                "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 1,
                "DCGM_FI_DEV_ROW_REMAP_PENDING": each % 2,
                "DCGM_FI_DEV_ROW_REMAP_FAILURE": each % 3 % 2,
                "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": each + 1,
                "DCGM_FI_DEV_PCIE_LINK_WIDTH": 8,
            }
            if gpu:  # one without anything to do, of each job
                fields["DCGM_FI_DEV_GPU_UTIL"] = 0
            growth = {
                f"DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL": 1.0 + each % 9
                for kind in ("REPLAY", "CRC_FLIT", "RECOVERY")
            }
            yield Gpu(node, gpu, fields, ({"hpc_job": str(1000 + number)},), growth)


def _slurm_nodes(names: list[str], gpus: int) -> list[SlurmNode]:
    return [
        SlurmNode(
            node, frozenset({"mixed", "drain"} if number % 2 else {"down", "drain"}),
            hostile(number), hostile(number), 64, 64, 64, gpus, gpus - 1,
            ("all", f"part{number % 30}"),
        )
        for number, node in enumerate(names)
    ]  # fmt: skip


def _jobs(names: list[str], gpus: int) -> list[QueuedJob]:
    running = (
        QueuedJob(
            str(1000 + number), "RUNNING", "all", f"account {number} {hostile(number)}",
            hostile(number), 64, (node,), gpus, "None",
        )
        for number, node in enumerate(names)
    )  # fmt: skip
    waiting = (
        QueuedJob(str(9000 + number), "PENDING", "all", "a", "u", 1, (), 1, f"Reason{number}")
        for number in range(40)
    )
    return [*running, *waiting]


def _shares(names: list[str]) -> str:
    return "".join(f"account{number}|user{number}|0.5\n" for number in range(len(names)))


def _of_node(number: int, node: str, gpus: int, target: dict[str, str]) -> Iterator[Series]:
    yield Series("up", sample._target(node, "dcgm"), 1)
    for severity in ("critical", "warning", "info"):
        labels = {"alertname": f"Alert{number}", "alertstate": "firing", "severity": severity}
        yield Series("ALERTS", {**labels, "node": node}, 1)
    labels = dict(zip(xid.LABELS, ("00000000:01:00.0", "xid", "63", "warn"), strict=True))
    yield Series(xid.NAME, {**target, **labels}, 1 + number)
    unit = {"name": f"site{number}.service", "state": "active", "type": "notify"}
    yield Series("node_systemd_unit_state", {**target, **unit}, 0)
    labels = {**sample._target("ctl1"), "node": node, "model": "h100_sxm"}
    yield Series("plumbline_expected_gpus", labels, gpus + 1)
    yield Series("node:slurm_node_state:worst", {"node": node}, 4 + number % 2)
    yield Series("node:slurm_node_serves:bool", {"node": node}, 0)
    # Less each time: as many failures.
    yield Series("node:slurm_node_works:bool", {"node": node}, 0, growth=-0.001)


def _verdicts(number: int, node: str, target: dict[str, str]) -> Iterator[Series]:
    verdict = ("fail", "warn", "inconclusive")[number % 3]
    for check in ("busbw", f"check {hostile(number)}"):
        what = {"suite": "full", "check": check, "subject": node}
        yield Series("plumbline_validation_verdict", {**target, **what, "verdict": verdict}, 1)
    for operator, metric in (("≥", "busbw"), ("≤", "spread")):
        what = {"suite": "full", "check": metric, "subject": node, "metric": metric, "unit": "x"}
        yield Series("plumbline_validation_value", {**target, **what}, 100 + number)
        yield Series("plumbline_validation_threshold", {**target, **what, "op": operator}, 400)


def _of_cluster(names: list[str], gpus: int) -> Iterator[Series]:
    for use in ("given", "idle", "reserved", "drained", "down"):
        yield Series("cluster:slurm_gpus:use", {"use": use}, len(names) * gpus / 5)
    yield Series("cluster:slurm_gpus:busy", {}, len(names))
    for number in range(len(names)):
        account = {"account": f"account {number} {hostile(number)}"}
        yield Series("account:slurm_gpus:given", account, gpus)
        yield Series("account:slurm_gpus:busy", account, 1)
