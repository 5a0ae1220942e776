"""A cluster of known values, in the words of the programs that really tell them.

What exporters and validation of this project tell is told by their own code; names and labels of
DCGM are those of the exporter's counters file. So a metric that is renamed there is missing here.

ctl1 has Slurm and Prometheus. gpu1 has two GPUs of job 4711. gpu2 has one that the jobs 4713 and
4714 share, and one without a job. gpu3 has one that is split by MIG, and one that is declared and
missing. cpu1 is drained.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from cluster import exporter
from cluster.slurm import outages
from cluster.slurm.times import moment
from roles.gpu_exporter.files.gpu_exporter import xid
from roles.nccl_inspector.files.nccl_inspector import actions, hangs, totals, watcher
from roles.slurm_exporter.files.slurm_exporter import (
    diagnostics,
    outcomes,
    series,
    shares,
    usage,
)
from roles.slurm_exporter.files.slurm_exporter.cgroups import Use
from roles.slurm_exporter.files.slurm_exporter.history import collect, incidents, lemons
from roles.slurm_exporter.files.slurm_exporter.history.incidents import Entry, Known
from roles.slurm_exporter.files.slurm_exporter.jobs import QueuedJob
from roles.slurm_exporter.files.slurm_exporter.nodes import SlurmNode
from tests import fed_prometheus
from validation.report import metrics
from validation.tests import sample_reports

ROOT = Path(__file__).resolve().parents[3]
COUNTERS = ROOT / "roles/gpu_exporter/templates/etc/dcgm-exporter/plumbline-counters.csv.j2"
RULES = ROOT / "roles/prometheus/files/etc/prometheus/rules/boards.yml"
OF_ALERTS = ROOT / "roles/prometheus/tests/metrics.yml"
OF_OTHERS = Path(__file__).parent / "metrics.yml"
SDIAG = ROOT / "roles/slurm_exporter/tests/recorded/slurm-24.11/sdiag.txt"

# Sources in OF_ALERTS whose metrics are told here by their own code.
OWN = (
    *("exporter", "gpu", "kernel_log", "nccl", "slurm", "slurm_exporter"),
    *("validation", "history"),
)

END = 1_767_225_600  # 2026-01-01
SPAN_S = 4500
STEP_S = 30

HOSTS = ("ctl1", "gpu1", "gpu2", "gpu3", "cpu1")
GROUPS = {"ctl1": "controller"}


@dataclass(frozen=True)
class Series:
    """`value` at the end of the time; each second before had `growth` less.

    In the first half of the time it was `before`, where that is told.
    """

    name: str
    labels: Mapping[str, str]
    value: float
    growth: float = 0.0
    before: float | None = None

    def at(self, second: int) -> float:
        """`second` is counted from the end, so it is negative."""
        if self.before is not None and second < -SPAN_S / 2:
            return self.before
        return self.value + self.growth * second

    @property
    def seconds(self) -> range:
        """When it was told: what a rule records, once a minute, and not just at the end."""
        return range(-SPAN_S - 7, 0, 60) if ":" in self.name else range(-SPAN_S, 1, STEP_S)


@dataclass(frozen=True)
class Gpu:
    """One series has each field for each of `holders`: jobs, and instances of MIG."""

    node: str
    gpu: int
    fields: Mapping[str, float]
    holders: tuple[Mapping[str, str], ...] = ({},)
    growth: Mapping[str, float] | None = None


def _fields(
    util: float, used: float, free: float, watts: float, celsius: float, mhz: float
) -> Mapping[str, float]:
    return {
        "DCGM_FI_DEV_GPU_UTIL": util,
        "DCGM_FI_DEV_FB_USED": used,
        "DCGM_FI_DEV_FB_FREE": free,
        "DCGM_FI_DEV_POWER_USAGE": watts,
        "DCGM_FI_DEV_GPU_TEMP": celsius,
        "DCGM_FI_DEV_SLOWDOWN_TEMP": 90,
        "DCGM_FI_DEV_SM_CLOCK": mhz,
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": util / 100,
        "DCGM_FI_PROF_SM_ACTIVE": util / 200,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": util / 400,
        "DCGM_FI_PROF_DRAM_ACTIVE": util / 500,
        "DCGM_FI_DEV_PCIE_LINK_GEN": 5 if util else 1,
        "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": 5,
        "DCGM_FI_DEV_PCIE_LINK_WIDTH": 16,
        "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16,
    }


_REPLAYS = {"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": 0.5}
_CRC = {"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 2.0}
GPUS = (
    Gpu("gpu1", 0, _fields(90, 60000, 20000, 600, 70, 1980), ({"hpc_job": "4711"},), _REPLAYS),
    Gpu(
        "gpu1",
        1,
        {
            **_fields(70, 40000, 40000, 500, 65, 1900),
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 7,
            "DCGM_FI_DEV_PCIE_LINK_WIDTH": 8,
        },
        ({"hpc_job": "4711"},),
    ),
    Gpu(
        "gpu2",
        0,
        {
            **_fields(0, 10000, 70000, 100, 40, 345),
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": 2,
            "DCGM_FI_DEV_ROW_REMAP_PENDING": 1,
        },
        ({"hpc_job": "4713"}, {"hpc_job": "4714"}),
    ),
    Gpu("gpu2", 1, _fields(40, 20000, 60000, 300, 55, 1500), growth=_CRC),
    Gpu(
        "gpu3",
        0,
        _fields(20, 2000, 18000, 200, 50, 1200),
        (
            {"GPU_I_ID": "1", "GPU_I_PROFILE": "1g.20gb"},
            {"GPU_I_ID": "2", "GPU_I_PROFILE": "1g.20gb"},
        ),
    ),
)
DECLARED = {"gpu1": 2, "gpu2": 2, "gpu3": 2, "cpu1": 0}

NODES = (
    SlurmNode("gpu1", frozenset({"allocated"}), "", "", 64, 64, 64, 2, 2, ("gpu", "all")),
    SlurmNode("gpu2", frozenset({"mixed"}), "", "", 64, 64, 64, 2, 1, ("gpu", "all")),
    SlurmNode("gpu3", frozenset({"idle"}), "", "", 64, 64, 0, 2, 0, ("gpu", "all")),
    SlurmNode("cpu1", frozenset({"idle", "drain"}), "fan 3", "root", 32, 32, 0, 0, 0, ("all",)),
)
JOBS = (
    QueuedJob("4711", "RUNNING", "gpu", "physics", "ada", 64, ("gpu1",), 2, "None"),
    QueuedJob("4713", "RUNNING", "gpu", "physics", "bob", 8, ("gpu2",), 1, "None"),
    QueuedJob("4714", "RUNNING", "gpu", "biology", "eve", 8, ("gpu2",), 1, "None"),
    QueuedJob("4715", "PENDING", "gpu", "physics", "ada", 64, (), 2, "Resources"),
    QueuedJob("4716", "PENDING", "all", "biology", "eve", 1, (), 0, "JobHeldUser"),
    QueuedJob("4709", "FAILED", "all", "biology", "eve", 1, (), 0, "NonZeroExitCode"),
)
SHARES = "physics||\nphysics|ada|0.25\nphysics|bob|0.75\nbiology|eve|0.5\n"
# A day with 64 GPU-hours that served, 16 that did not and 8 that a node ended.
ENDED_JOBS = tuple(
    f"{state}|{seconds}|{moment(END - 3600)}|cpu=8,gres/gpu=8"
    for state, seconds in (("COMPLETED", 28800), ("FAILED", 7200), ("NODE_FAIL", 3600))
)


def everything() -> tuple[Series, ...]:
    result = (
        *of_gpus(),
        *of_slurm(),
        *of_collectives(),
        *of_validation(),
        *of_hosts(),
        *of_kernel(),
        *of_jobs(),
        *of_monitoring(),
        *of_rules(),
    )
    keys = [(metric.name, *sorted(metric.labels.items())) for metric in result]
    assert len(keys) == len(set(keys)), "a series is there twice"
    return result


def text(metrics: Iterable[Series] | None = None, span_s: int = SPAN_S) -> Iterator[str]:
    """Lines of OpenMetrics, as promtool makes blocks of them; the last `span_s` of the time."""
    for metric in everything() if metrics is None else metrics:
        labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in metric.labels.items())
        for second in metric.seconds:
            if second < -span_s:
                continue
            yield f"{metric.name}{{{labels}}} {metric.at(second):.17g} {END + second}"
    yield "# EOF"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _target(node: str, job: str = "node") -> dict[str, str]:
    port = {"dcgm": 9400, "prometheus": 9090, "alertmanager": 9093}.get(job, 9100)
    group = GROUPS.get(node, "compute")
    return {"job": job, "instance": f"{node}:{port}", "node": node, "group": group}


# --- GPUs ----------------------------------------------------------------------------------------


def counters() -> Mapping[str, str]:
    """DCGM's names and kinds, of the file that dcgm-exporter gets."""
    rows = re.findall(r"^(DCGM_\w+), (gauge|counter),", COUNTERS.read_text(), re.MULTILINE)
    return dict(rows)


def of_gpus(gpus: Iterable[Gpu] = GPUS, only: Collection[str] | None = None) -> Iterator[Series]:
    """`only` these fields, where not all are asked for."""
    names = [name for name in counters() if only is None or name in only]
    for gpu in gpus:
        for number, holder in enumerate(gpu.holders):
            labels = {
                **_target(gpu.node, "dcgm"),
                "gpu": str(gpu.gpu),
                "UUID": f"GPU-{gpu.node}-{gpu.gpu}",
                "pci_bus_id": f"00000000:{gpu.gpu + 1:02}:00.0",
                "device": f"nvidia{gpu.gpu}",
                "modelName": "NVIDIA H100 80GB HBM3",
                **holder,
            }
            yield from _of_gpu(names, gpu, number, labels)


def _of_gpu(
    names: Iterable[str], gpu: Gpu, number: int, labels: Mapping[str, str]
) -> Iterator[Series]:
    for name in names:
        if name.startswith("DCGM_EXP"):
            continue
        value = gpu.fields.get(name, 0.0)
        if name.startswith("DCGM_FI_DEV_FB") and "GPU_I_ID" in labels:
            value += 1000 * number * (-1 if name.endswith("FREE") else 1)
        growth = (gpu.growth or {}).get(name, 0.0)
        if name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":
            growth = 1000 * gpu.fields["DCGM_FI_DEV_POWER_USAGE"]
        yield Series(name, labels, value + SPAN_S * growth, growth)
    window = {"window_size_in_ms": "300000"}
    for event, times in (("gpu_idle", 7), ("power_cap", 3)):
        events = {**labels, **window, "clock_event": event}
        yield Series("DCGM_EXP_CLOCK_EVENTS_COUNT", events, times)
    yield Series("DCGM_EXP_XID_ERRORS_COUNT", {**labels, **window, "xid": "63"}, 1)


# --- Slurm, validation: by their own code --------------------------------------------------------


def of_slurm(
    nodes: Sequence[SlurmNode] = NODES, jobs: Sequence[QueuedJob] = JOBS, shared: str = SHARES
) -> Iterator[Series]:
    native = series.Native(False, False)
    statistics = diagnostics.from_text(SDIAG.read_text(encoding="utf-8"))
    collected = (
        exporter.Outcome("nodes", 0.02, ""),
        exporter.Outcome("jobs", 0.05, ""),
        exporter.Outcome("rpcs", 0.03, "no answer"),
    )
    families = (
        *series.nodes(nodes, native),
        *series.partitions(nodes, native),
        *series.jobs(jobs, native, True),
        *series.fairshare(shares.parse(shared)),
        *series.scheduler(statistics),
        *series.rpcs(statistics),
        *collect.families(*of_history()),
        *outcomes.families("\n".join(ENDED_JOBS), END),
        *exporter.own("slurm", collected, END - 30),
    )
    return _of_families(families, "ctl1")


def of_history() -> tuple[Mapping[tuple[str, str], int], tuple[lemons.NodeRecord, ...]]:
    """Of 28 days: gpu2 had five XIDs and was an hour out of service each time; cpu1 is drained."""
    entries = [Entry("fan", END - 7200, "cpu1", outages.DRAIN, "fan 3", outage=True)]
    for number in range(5):
        at = END - (20 - number) * lemons.DAY_S
        entries.append(Entry(f"{number}", at, "gpu2", outages.XID, "XID 79", outage=True))
        entries.append(Entry(f"r{number}", at + 3600, "gpu2", incidents.RETURN, ""))
    known = [Known(node.name, 0, out=node.name == "cpu1") for node in NODES]
    counts = Counter((entry.node, entry.kind) for entry in entries)
    return counts, lemons.records(known, sorted(entries, key=lambda e: e.at), END)


def _of_families(families: Iterable[exporter.Family], host: str) -> Iterator[Series]:
    for family in families:
        growing = family.kind == "counter" or family.name.endswith(("_cycle_cnt", "rpc_count"))
        for values, value in family.samples.items():
            labels = {**_target(host), **dict(zip(family.labels, values, strict=True))}
            growth = 0.1 if growing else 0.0
            yield Series(family.name, labels, value + SPAN_S * growth, growth)


def of_collectives() -> Iterator[Series]:
    """Four ranks of the job 4711, of which the last is waited for, and hangs."""
    sums = totals.JobSums(places={(0, 0): totals.Place()})
    for rank in range(4):
        sums.sums["0xa", rank, "AllReduce"] = totals.Sum(
            1000, 1.0 if rank == 3 else 5.0, 10**6, 10**12
        )
    looked = watcher.Watcher((), 1, actions.Action("observe", ""), print, lambda: 60.0)
    odd = (hangs.Odd(3, "gpu1", "does not answer"),)
    watched = watcher.Watched("nccl", hangs.Course({}, 0.0, 1, odd))
    families = (
        *totals.families_of({"4711": sums}, 8),
        *looked.told({"4711": watched}),
    )
    for one in _of_families(families, "gpu1"):
        # All grow alike, and so would the times.
        slower = one.name.endswith("seconds_total") and one.labels["rank"] == "3"
        yield replace(one, growth=one.growth / 5) if slower else one


def of_validation() -> Iterator[Series]:
    """One of each verdict, and one measured value with its limit at least and at most."""
    report = sample_reports.mixed_bag()
    rename = {"gpu4": "cpu1", "gpu5": "ctl1"}
    for sample in metrics.parse(metrics.render(report)):
        labels = {**_target("ctl1"), **sample.labels}
        if "node" in sample.labels:
            labels["node"] = rename.get(sample.labels["node"], sample.labels["node"])
        value = END - 3600.0 if sample.family.endswith("timestamp_seconds") else sample.value
        # An empty label is none.
        yield Series(
            f"{metrics.PREFIX}{sample.family}", {key: text for key, text in labels.items() if text},
            value,
        )  # fmt: skip
    for operator, metric, value, limit in (("≥", "busbw", 410, 400), ("≤", "spread", 0.5, 2)):
        what = {"suite": "full", "check": metric, "subject": "gpu1", "metric": metric, "unit": "x"}
        labels = {**_target("gpu1"), **what}
        yield Series("plumbline_validation_value", labels, value)
        yield Series("plumbline_validation_threshold", {**labels, "op": operator}, limit)
        margin = {**_target("ctl1"), "suite": "full", "partial": "false", "check": metric}
        margin |= {"metric": metric, "op": operator}
        for statistic in ("min", "median", "max"):
            labels = {**margin, "statistic": statistic}
            yield Series("plumbline_validation_margin", labels, value / limit)


# --- hosts, and the monitoring itself ------------------------------------------------------------


def of_hosts(hosts: Iterable[str] = HOSTS) -> Iterator[Series]:
    for number, host in enumerate(hosts):
        yield from _of_host(_target(host), number % 5)


def _of_host(target: Mapping[str, str], number: int) -> Iterator[Series]:
    def gauge(metric: str, value: float, /, **labels: str) -> Series:
        return Series(metric, {**target, **labels}, value)

    def counter(metric: str, per_second: float, /, **labels: str) -> Series:
        return Series(metric, {**target, **labels}, per_second * SPAN_S, per_second)

    yield gauge("up", 1)
    busy = 0.1 + 0.2 * number
    for cpu in ("0", "1"):
        yield counter("node_cpu_seconds_total", busy, cpu=cpu, mode="user")
        yield counter("node_cpu_seconds_total", 1 - busy, cpu=cpu, mode="idle")
    yield gauge("node_load1", 2 * busy)
    yield gauge("node_procs_blocked", number)
    yield gauge("node_memory_MemTotal_bytes", 256 * 2**30)
    yield gauge("node_memory_MemAvailable_bytes", (1 - busy) * 256 * 2**30)
    yield gauge("node_boot_time_seconds", END - 86400 * (number + 1))
    yield gauge("node_timex_offset_seconds", 0.0002)
    yield counter("node_disk_io_time_seconds_total", 0.3, device="sda")
    yield counter("node_disk_read_bytes_total", 3e6, device="sda")
    yield counter("node_disk_written_bytes_total", 5e6, device="sda")
    for device, factor in (("lo", 100), ("eth0", 1)):
        yield counter("node_network_receive_bytes_total", 2e6 * factor, device=device)
        yield counter("node_network_transmit_bytes_total", 1e6 * factor, device=device)
    port = {"device": "mlx5_0", "port": "1"}
    yield counter("node_infiniband_port_data_received_bytes_total", 4e9, **port)
    yield counter("node_infiniband_port_data_transmitted_bytes_total", 3e9, **port)
    yield gauge("node_infiniband_rate_bytes_per_second", 5e10, **port)
    yield gauge("node_infiniband_link_downed_total", number, **port)
    for mount, free in (("/", 0.5), ("/var", 0.12)):
        where = {"device": f"/dev/{mount}", "fstype": "ext4", "mountpoint": mount}
        yield gauge("node_filesystem_size_bytes", 1e12, **where)
        yield gauge("node_filesystem_avail_bytes", free * 1e12, **where)
    for unit in ("slurmd.service", "munge.service"):
        runs = float(target["node"] != "cpu1" or unit == "munge.service")
        for state, value in (("active", runs), ("failed", 1 - runs)):
            yield gauge("node_systemd_unit_state", value, name=unit, state=state, type="notify")
    path = "/etc/plumbline/tls/host.crt"
    yield gauge("plumbline_certificate_expiry_timestamp_seconds", END + 90 * 86400, path=path)


def of_jobs() -> Iterator[Series]:
    """4711 has gpu1 for itself and 16 of its CPUs busy; 4713 was short of memory once."""
    alone = {("mlx5_0:1", "received"): 0, ("mlx5_0:1", "sent"): 0}
    jobs = {
        "gpu1": {"4711": usage.JobUse(Use(0, 64, 2**37, 2**37, 2**38, 0), 9, (0, 0), alone)},
        "gpu2": {
            "4713": usage.JobUse(Use(0, 8, 2**33, 2**34, 2**34, 1), 3, (0, 0), {}),
            "4714": usage.JobUse(Use(0, 8, 2**32, 2**33, 2**34, 0), 2, (0, 0), {}),
        },
    }
    growths: Mapping[str, Mapping[str, float]] = {
        "plumbline_job_cpu_seconds_total": {"4711": 16, "4713": 8, "4714": 2},
        "plumbline_job_read_bytes_total": {"4711": 1e9, "4713": 1e6},
        "plumbline_job_network_bytes_total": {"4711": 2e9},
    }
    for node, each in jobs.items():
        for family in usage.told(each):
            for values, value in family.samples.items():
                labels = {**_target(node), **dict(zip(family.labels, values, strict=True))}
                growth = growths.get(family.name, {}).get(labels["hpc_job"], 0.0)
                yield Series(family.name, labels, value + SPAN_S * growth, growth)


def of_kernel() -> Iterator[Series]:
    labels = dict(zip(xid.LABELS, ("00000000:01:00.0", "xid", "63", "warn"), strict=True))
    yield Series(xid.NAME, {**_target("gpu2"), **labels}, 2)


def of_monitoring() -> Iterator[Series]:
    for node, count in DECLARED.items():
        labels = {**_target("ctl1"), "node": node, "model": "h100_sxm" if count else "none"}
        yield Series("plumbline_expected_gpus", labels, count)
    for node in ("gpu1", "gpu2", "gpu3"):
        yield Series("up", _target(node, "dcgm"), 1)
    for name, severity, node in (
        ("Watchdog", "none", ""),
        ("GpuMissing", "critical", "gpu3"),
        ("GpuPcieReplayHigh", "warning", "gpu1"),
    ):
        labels = {"alertname": name, "alertstate": "firing", "severity": severity}
        yield Series("ALERTS", {**labels, "node": node} if node else labels, 1)


# --- what rules record ---------------------------------------------------------------------------


def of_rules() -> Iterator[Series]:
    """rules/boards.yml's, by hand; it has cpu1 go down half way, and drained at the end."""

    def recorded(name: str, value: float, /, **labels: str) -> Series:
        return Series(name, labels, value)

    for node, grade in {"gpu1": 2, "gpu2": 2, "gpu3": 1, "cpu1": 4}.items():
        yield recorded("node:slurm_node_state:worst", grade, node=node)
        for name in ("node:slurm_node_serves:bool", "node:slurm_node_works:bool"):
            yield Series(name, {"node": node}, float(grade < 4), before=1)
    for use, gpus in {"given": 3, "idle": 3, "reserved": 0, "drained": 0, "down": 0}.items():
        yield recorded("cluster:slurm_gpus:use", gpus, use=use)
    yield recorded("cluster:slurm_gpus:busy", 1.6)
    for account, given, busy in (("physics", 3, 1.6), ("biology", 1, 0)):
        yield recorded("account:slurm_gpus:given", given, account=account)
        yield recorded("account:slurm_gpus:busy", busy, account=account)


def rules() -> Sequence[Mapping[str, Any]]:
    """Those of rules/boards.yml that need nothing that is recorded: of GPUs and of hosts' CPUs."""
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for rule in group["rules"] if re.search(":dcgm_|:node_", rule["record"])]


def recorded(span_s: int = SPAN_S) -> fed_prometheus.Recorded:
    return fed_prometheus.Recorded(rules(), END - span_s // 60 * 60, END)


def of_recorded() -> Mapping[str, set[str]]:
    """Labels of what is recorded: those that it is grouped by, and its own."""
    result: dict[str, set[str]] = {}
    for rule in rules():
        grouped = re.search(r"\bby \(([^)]*)\)", rule["expr"])
        assert grouped, rule["expr"]
        labels = {*grouped[1].split(", "), *rule.get("labels", {})}
        result.setdefault(rule["record"], set()).update(labels)
    return result


# --- the catalogue -------------------------------------------------------------------------------


def items(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load(path.read_text(encoding="utf-8"))["metrics"])


def catalogue() -> Mapping[str, set[str]]:
    """Each metric that somebody tells, and its labels."""
    labels_of: dict[str, set[str]] = {}
    for item in (*items(OF_ALERTS), *items(OF_OTHERS)):
        if item.get("source") not in OWN:
            labels_of[item["name"]] = {*item["labels"]}
    for metric in (
        *of_gpus(),
        *of_slurm(),
        *of_validation(),
        *of_kernel(),
        *of_jobs(),
        *of_collectives(),
        *of_rules(),
    ):
        labels_of.setdefault(metric.name, set()).update(metric.labels)
    labels_of.update(of_recorded())
    targets = yaml.safe_load(OF_ALERTS.read_text(encoding="utf-8"))["target_labels"]
    return {name: labels | {*targets} for name, labels in labels_of.items()}
