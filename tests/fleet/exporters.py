"""Exporters of a fleet that does not exist: one process serves the metrics of every node.

Names and counts of node_exporter's series are those of its collectors (node_exporter 1.5 to 1.9,
https://github.com/prometheus/node_exporter/tree/master/collector) on a node with two sockets, 8
InfiniBand cards and as many threads as are asked for. DCGM's names are those of the file that the
role gpu_exporter writes; Slurm's are told by the role's own code.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from roles.slurm_exporter.files.slurm_exporter import diagnostics, series, shares
from roles.slurm_exporter.files.slurm_exporter.jobs import QueuedJob
from roles.slurm_exporter.files.slurm_exporter.nodes import SlurmNode

ROOT = Path(__file__).resolve().parents[2]
COUNTERS = ROOT / "roles/gpu_exporter/templates/etc/dcgm-exporter/plumbline-counters.csv.j2"
SDIAG = ROOT / "roles/slurm_exporter/tests/recorded/slurm-24.11/sdiag.txt"

MODES = ("idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")
# Collectors with a series for each thread, and how many each has.
OF_THREADS: Mapping[str, tuple[str, ...]] = {
    "cpu.guest": (
        'node_cpu_guest_seconds_total{cpu="N",mode="nice"}',
        'node_cpu_guest_seconds_total{cpu="N",mode="user"}',
    ),
    "cpufreq": tuple(
        f'node_cpu_{name}_hertz{{cpu="N"}}'
        for name in (
            *("frequency_max", "frequency_min"),
            *("scaling_frequency", "scaling_frequency_max", "scaling_frequency_min"),
        )
    ),
    "schedstat": tuple(
        f'node_schedstat_{name}_total{{cpu="N"}}'
        for name in ("running_seconds", "timeslices", "waiting_seconds")
    ),
    "softnet": tuple(
        f'node_softnet_{name}_total{{cpu="N"}}'
        for name in (
            *("processed", "dropped", "times_squeezed"),
            *("cpu_collision", "flow_limit_count", "received_rps"),
        )
    ),
}
INFINIBAND = (
    *("link_downed_total", "link_error_recovery_total", "port_constraint_errors_received_total"),
    *("port_constraint_errors_transmitted_total", "port_data_received_bytes_total"),
    *("port_data_transmitted_bytes_total", "port_discards_received_total"),
    *("port_discards_transmitted_total", "port_errors_received_total"),
    *("port_packets_received_total", "port_packets_transmitted_total", "port_transmit_wait_total"),
    *("local_link_integrity_errors_total", "excessive_buffer_overrun_errors_total"),
    *("multicast_packets_received_total", "multicast_packets_transmitted_total"),
    *("symbol_error_total", "unicast_packets_received_total", "vl15_dropped_total"),
    *("unicast_packets_transmitted_total", "physical_state_id", "state_id"),
    "rate_bytes_per_second",
)
# The other collectors that are on by default, by how many series they have on such a node: names
# alone, since nothing here asks for these one by one.
OTHERS = (
    *(("meminfo", 55), ("vmstat", 9), ("netstat", 45), ("sockstat", 20), ("hwmon", 520)),
    *(("netclass", 230), ("nfs", 90), ("timex", 17), ("pressure", 6), ("edac", 40)),
    *(("thermal_zone", 4), ("go", 60), ("scrape_collector", 90), ("systemd_socket", 30)),
)


@dataclass(frozen=True)
class Sample:
    """`name` has the labels; each second adds `growth`."""

    name: str
    value: float
    growth: float = 0.0


def node_samples(threads: int, off: frozenset[str] = frozenset()) -> Iterator[Sample]:
    """What node_exporter says without the collectors in `off`."""
    for cpu in range(threads):
        for mode in MODES:
            growth = 0.6 if mode == "user" else 0.35 if mode == "idle" else 0.01
            yield Sample(
                f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}}', 1e5 * growth, growth
            )
        for collector, names in OF_THREADS.items():
            if collector not in off:
                for name in names:
                    yield Sample(name.replace('"N"', f'"{cpu}"'), 100, 3.0)
    yield from _hardware()
    for collector, count in OTHERS:
        for number in range(count):
            yield Sample(f'node_{collector}_x{{number="{number}"}}', 100 + number, number % 3)


def _hardware() -> Iterator[Sample]:
    for name in INFINIBAND:
        for card in range(8):
            fixed = {"state_id": 4.0, "physical_state_id": 5.0, "rate_bytes_per_second": 5e10}
            bytes_s = 4e9 if "bytes_total" in name else 0.0
            labels = f'device="mlx5_{card}",port="1"'
            yield Sample(f"node_infiniband_{name}{{{labels}}}", fixed.get(name, 0), bytes_s)
    for disk in range(8):
        for name in ("io_time_seconds_total", "read_bytes_total", "written_bytes_total"):
            yield Sample(f'node_disk_{name}{{device="nvme{disk}n1"}}', 0, 1000.0)
        for number in range(14):
            yield Sample(f'node_disk_x{number}{{device="nvme{disk}n1"}}', 0, 10.0)
    for device in ("lo", "eth0", *(f"ib{card}" for card in range(8))):
        for way in ("receive", "transmit"):
            for what in ("bytes", "packets", "errs", "drop", "fifo", "multicast", "compressed"):
                yield Sample(f'node_network_{way}_{what}_total{{device="{device}"}}', 0, 100.0)
    yield from _state()


def _state() -> Iterator[Sample]:
    for mount in ("/", "/boot", "/tmp", "/scratch"):
        labels = f'device="/dev{mount}",fstype="ext4",mountpoint="{mount}"'
        for name, value in (
            *(("size_bytes", 1e12), ("avail_bytes", 6e11), ("free_bytes", 6e11), ("files", 1e8)),
            *(("files_free", 9e7), ("readonly", 0.0), ("device_error", 0.0)),
        ):
            yield Sample(f"node_filesystem_{name}{{{labels}}}", value)
    for unit in ("slurmd", "munge", "chrony", "rsyslog", "ssh", "nvidia-persistenced"):
        for state in ("active", "activating", "deactivating", "failed", "inactive"):
            labels = f'name="{unit}.service",state="{state}",type="simple"'
            yield Sample(f"node_systemd_unit_state{{{labels}}}", float(state == "active"))
    for name, value in (
        *(("load1", 90), ("memory_MemTotal_bytes", 2e12), ("memory_MemAvailable_bytes", 1.2e12)),
        *(("boot_time_seconds", 1.7e9), ("timex_offset_seconds", 2e-4), ("timex_sync_status", 1)),
        *(("timex_maxerror_seconds", 0.01), ("textfile_scrape_error", 0)),
    ):
        yield Sample(f"node_{name}", float(value))
    path = "/etc/plumbline/tls/host.crt"
    name = "plumbline_certificate_expiry_timestamp_seconds"
    yield Sample(f'{name}{{path="{path}"}}', 4e9)


def gpu_samples(node: str, job: str, gpus: int) -> Iterator[Sample]:
    """All of DCGM's fields that the role asks for, of GPUs that one job has."""
    rows = re.findall(r"^(DCGM_FI\w+), (gauge|counter),", COUNTERS.read_text(), re.MULTILINE)
    for gpu in range(gpus):
        labels = (
            f'gpu="{gpu}",UUID="GPU-{node}-{gpu}",pci_bus_id="00000000:{gpu + 1:02}:00.0",'
            f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="{node}",'
            f'hpc_job="{job}"'
        )
        for name, kind in rows:
            quiet = "ERROR" in name or "REMAP" in name or "ECC" in name
            energy = name.endswith("ENERGY_CONSUMPTION")
            growth = 0.0 if quiet or kind == "gauge" else 6e5 if energy else 1.0
            value = 0.0 if quiet else 40.0 + gpu
            yield Sample(f"{name}{{{labels}}}", value, growth)


def slurm_text(names: list[str], gpus: int) -> str:
    """What the exporter on the first controller says of all nodes, jobs of 8 nodes on them."""
    native = series.Native(False, False)
    nodes = [
        SlurmNode(name, frozenset({"allocated"}), "", "", 224, 224, 224, gpus, gpus, ("gpu",))
        for name in names
    ]
    jobs = [
        QueuedJob(
            str(1000 + first // 8),
            "RUNNING",
            "gpu",
            f"account{first % 20}",
            f"user{first % 200}",
            8 * 224,
            tuple(names[first : first + 8]),
            8 * gpus,
            "None",
        )
        for first in range(0, len(names), 8)
    ]
    statistics = diagnostics.from_text(SDIAG.read_text(encoding="utf-8"))
    families = (
        *series.nodes(nodes, native),
        *series.partitions(nodes, native),
        *series.jobs(jobs, native, True),
        *series.fairshare(shares.parse("account0||\naccount0|user0|0.5\n")),
        *series.scheduler(statistics),
        *series.rpcs(statistics),
    )
    lines = []
    for family in families:
        for values, value in family.samples.items():
            labels = ",".join(
                f'{key}="{text}"' for key, text in zip(family.labels, values, strict=True)
            )
            lines.append(f"{family.name}{{{labels}}} {value:g}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Fleet:
    """Nodes gpu1 and so on, and ctl1, whose node_exporter tells what Slurm says."""

    nodes: int
    gpus: int
    threads: int
    off: frozenset[str] = frozenset()

    @cached_property
    def names(self) -> list[str]:
        return [f"gpu{number}" for number in range(1, self.nodes + 1)]

    @cached_property
    def _host(self) -> tuple[str, list[float], list[float]]:
        return _template(list(node_samples(self.threads, self.off)))

    @cached_property
    def _gpus(self) -> tuple[str, list[float], list[float]]:
        return _template(list(gpu_samples("<NODE>", "<JOB>", self.gpus)))

    @cached_property
    def _slurm(self) -> str:
        return slurm_text(self.names, self.gpus)

    def page(self, name: str, job: str, second: float) -> str:
        number = int(name.removeprefix("gpu")) if name.startswith("gpu") else 0
        if job == "dcgm":
            text = _filled(self._gpus, second, number)
            return text.replace("<NODE>", name).replace("<JOB>", str(1000 + number // 8))
        text = _filled(self._host, second, number)
        return text if number else text + self._slurm


def _template(samples: list[Sample]) -> tuple[str, list[float], list[float]]:
    text = "".join(f"{sample.name.replace('%', '%%')} %.10g\n" for sample in samples)
    return text, [sample.value for sample in samples], [sample.growth for sample in samples]


def _filled(template: tuple[str, list[float], list[float]], second: float, seed: int) -> str:
    """Counters grow with the time, and every third gauge moves a little."""
    text, values, growths = template
    moved = 0.1 * ((int(second) // 15 + seed) % 7)
    return text % tuple(
        value + growth * (second + seed) if growth else value + (moved if value == 42 else 0)
        for value, growth in zip(values, growths, strict=True)
    )


async def serve(fleet: Fleet, port: int) -> None:
    """/NODE/JOB, one connection after the other may ask for all of them."""
    begin = time.monotonic()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                _, name, job = line.split()[1].decode().split("/")
                while await reader.readline() not in (b"\r\n", b""):
                    pass
                body = fleet.page(name, job, time.monotonic() - begin).encode()
                head = (
                    "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        except (ConnectionError, IndexError, ValueError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=4096)
    async with server:
        await server.serve_forever()
