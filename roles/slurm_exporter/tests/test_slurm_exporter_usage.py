"""What jobs use, from trees of cgroups as Slurm makes them with v1 and with v2."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cluster.exporter import Collector, Exporter, Failed
from roles.slurm_exporter.files.slurm_exporter import cgroups, main
from roles.slurm_exporter.files.slurm_exporter.cgroups import Host
from roles.slurm_exporter.files.slurm_exporter.config import ExporterSettings
from roles.slurm_exporter.files.slurm_exporter.usage import Jobs

SLUID = "sEKNKTV3WPV500"  # of cgroup.conf(5)
SCOPE = "system.slice/slurmstepd.scope"
V1_NO_LIMIT = 9223372036854771712


def put(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(text), encoding="utf-8")


class Node:
    """A node's folders, in which jobs are made."""

    def __init__(self, root: Path) -> None:
        self.host = Host(root / "cgroup", root / "proc", root / "sys")
        self.host.cgroup.mkdir(parents=True)
        self.jobs = Jobs(self.host, per_job=True)
        self.file = root / "jobs.prom"

    def v2(
        self, name: str, pids: tuple[int, ...] = (11,), scope: str = SCOPE, title: str = ""
    ) -> Path:
        folder = self.host.cgroup / scope / name
        put(folder / "cgroup.controllers", "cpuset cpu memory pids")
        put(folder / "cpu.stat", "usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n")
        put(folder / "cpuset.cpus.effective", "0-3,8\n")
        put(folder / "memory.current", 1000)
        put(folder / "memory.peak", 1500)
        put(folder / "memory.max", 4000)
        put(folder / "memory.stat", "anon 500\ninactive_file 300\n")
        put(folder / "memory.events", "low 0\noom 2\noom_kill 1\n")
        put(folder / "cgroup.procs", "")
        put(folder / "step_0/user/task_0/cgroup.procs", "".join(f"{pid}\n" for pid in pids))
        if title:
            put(folder / "step_0/slurm/cgroup.procs", "99\n")
            put(self.host.proc / "99/cmdline", title)
        return folder

    def v1(self, job: str, pids: tuple[int, ...] = (11,), limit: int = 4000) -> None:
        for controller in ("freezer", "cpuacct", "memory", "cpuset"):
            folder = self.host.cgroup / controller / f"slurm/uid_1000/job_{job}"
            put(folder / "step_0/cgroup.procs", "".join(f"{pid}\n" for pid in pids))
        put(folder / "cpuset.cpus", "4-5\n")
        folder = self.host.cgroup / "cpuacct" / f"slurm/uid_1000/job_{job}"
        put(folder / "cpuacct.usage", 2_500_000_000)
        folder = self.host.cgroup / "memory" / f"slurm/uid_1000/job_{job}"
        put(folder / "memory.usage_in_bytes", 1000)
        put(folder / "memory.max_usage_in_bytes", 1500)
        put(folder / "memory.limit_in_bytes", limit)
        put(folder / "memory.stat", "inactive_file 1\ntotal_inactive_file 300\n")
        put(folder / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")

    def process(self, pid: int, read: int, written: int) -> None:
        put(self.host.proc / str(pid) / "io", f"rchar: {read}\nwchar: {written}\nsyscr: 1\n")

    def card(self, received: int, sent: int, name: str = "eth0") -> None:
        (self.host.sys / f"class/net/{name}/device").mkdir(parents=True, exist_ok=True)
        put(self.host.sys / f"class/net/{name}/statistics/rx_bytes", received)
        put(self.host.sys / f"class/net/{name}/statistics/tx_bytes", sent)

    def round(self, jobs: Jobs | None = None) -> dict[str, float]:
        """What Prometheus reads of the file of a round: NAME{LABELS} to value."""
        collector = Collector("usage", (jobs or self.jobs).collect)
        daemon = Exporter("jobs", self.file, lambda: [collector])
        daemon.round()
        assert not daemon.failing
        families = text_string_to_metric_families(self.file.read_text(encoding="utf-8"))
        samples = {}
        for sample in (sample for family in families for sample in family.samples):
            labels = ",".join(f'{name}="{sample.labels[name]}"' for name in sorted(sample.labels))
            samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return samples


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


USED = {
    "cpu_seconds_total": 2.5,
    "memory_bytes": 700,
    "memory_peak_bytes": 1500,
    "memory_limit_bytes": 4000,
    "oom_kills_total": 1,
    "processes": 2,
    "read_bytes_total": 110,
    "written_bytes_total": 220,
}


@pytest.mark.parametrize("version", ["v1", "v2", "v2 by SLUID", "v2 of several slurmds"])
def test_a_job_is_told_as_it_is_by_either_version(node: Node, version: str) -> None:
    node.process(11, 100, 200)
    node.process(12, 10, 20)
    if version == "v1":
        node.v1("7", (11, 12))
    elif version == "v2":
        node.v2("job_7", (11, 12))
    elif version == "v2 by SLUID":
        node.v2(SLUID, (11, 12), title="slurmstepd: [7.0]")
        # slurmstepd is a process of the job's cgroup, which does what the job asked for.
        assert node.round()['plumbline_job_processes{hpc_job="7"}'] == 3
        put(node.host.cgroup / SCOPE / SLUID / "step_0/slurm/cgroup.procs", "")
        put(node.host.cgroup / SCOPE / SLUID / "step_extern/slurm/cgroup.procs", "12\n")
        put(node.host.proc / "12/cmdline", "slurmstepd: [7.extern]")
    else:
        node.v2("job_7", (11, 12), "system.slice/n1_slurmstepd.scope")
    samples = node.round()
    for name, value in USED.items():
        assert samples[f'plumbline_job_{name}{{hpc_job="7"}}'] == value, name
    assert samples['plumbline_job_cpus{hpc_job="7"}'] == (2 if version == "v1" else 5)
    assert samples["plumbline_jobs_running"] == 1


def test_series_end_with_their_job(node: Node) -> None:
    folder = node.v2("job_7", (11,))
    node.process(11, 1, 1)
    assert any('"7"' in key for key in node.round())
    folder.rename(node.host.cgroup / "gone")
    samples = node.round()
    assert not any('"7"' in key for key in samples)
    assert samples["plumbline_jobs_running"] == 0


def test_a_cgroup_that_outlives_its_job_is_no_job(node: Node) -> None:
    node.v1("7")
    node.v1("8", ())
    samples = node.round()
    assert samples["plumbline_jobs_running"] == 1
    assert not any('"8"' in key for key in samples)
    for path in node.host.cgroup.glob("**/job_7/step_0/cgroup.procs"):
        path.write_text("", encoding="ascii")
    assert node.round()["plumbline_jobs_running"] == 0


def test_what_is_not_counted_is_not_told(node: Node) -> None:
    folder = node.v2("job_7")
    for name in ("memory.peak", "cpuset.cpus.effective", "memory.events"):
        (folder / name).unlink()
    put(folder / "memory.max", "max\n")
    samples = node.round()
    missing = ("memory_peak_bytes", "cpus", "oom_kills_total", "memory_limit_bytes")
    assert not [name for name in missing if f'plumbline_job_{name}{{hpc_job="7"}}' in samples]
    assert samples['plumbline_job_memory_bytes{hpc_job="7"}'] == 700


def test_no_limit_is_none_with_v1(node: Node) -> None:
    node.v1("7", limit=V1_NO_LIMIT)
    assert 'plumbline_job_memory_limit_bytes{hpc_job="7"}' not in node.round()


@pytest.mark.parametrize(
    "title",
    ["slurmstepd: [8.0]; rm", "evil slurmstepd: [8.0]", "slurmstepd: [8]", "\xff\xfe", 'a"\n{}'],
)
def test_a_title_is_a_number_or_nothing(node: Node, title: str) -> None:
    node.v2(SLUID, title=title)
    jobs = {job.job for job in cgroups.jobs(node.host)}
    assert jobs == ({"8"} if title.startswith("slurmstepd: [8.") else set())


def test_other_folders_are_no_jobs(node: Node) -> None:
    """What a user may make is below a step; what is Slurm's own is beside the jobs."""
    node.v2("job_7")
    put(node.host.cgroup / SCOPE / "system/cgroup.procs", "1\n")
    put(node.host.cgroup / SCOPE / "job_7/step_0/user/task_0/job_8/cgroup.procs", "")
    put(node.host.cgroup / SCOPE / 'job_9"} 1/cgroup.procs', "")
    assert [job.job for job in cgroups.jobs(node.host)] == ["7"]


def test_a_node_without_slurm_fails_and_one_without_jobs_does_not(node: Node) -> None:
    with pytest.raises(Failed, match="slurmd does not run, or confines no jobs"):
        cgroups.jobs(node.host)
    (node.host.cgroup / "freezer").mkdir()  # v1: the first job makes its folder
    assert cgroups.jobs(node.host) == []
    (node.host.cgroup / SCOPE).mkdir(parents=True)
    assert cgroups.jobs(node.host) == []


def test_bytes_never_fall_where_a_process_ends(node: Node) -> None:
    node.v2("job_7", (11, 12))
    node.process(11, 100, 1)
    node.process(12, 50, 1)
    assert node.round()['plumbline_job_read_bytes_total{hpc_job="7"}'] == 150
    (node.host.proc / "12/io").unlink()
    node.process(11, 120, 1)
    assert node.round()['plumbline_job_read_bytes_total{hpc_job="7"}'] == 150
    node.process(11, 160, 1)
    assert node.round()['plumbline_job_read_bytes_total{hpc_job="7"}'] == 160


def test_a_job_with_no_end_of_processes_loses_its_own_bytes_alone(node: Node) -> None:
    node.v2("job_7", (11,))
    node.v2("job_8", tuple(range(20, 40)))
    node.process(11, 5, 5)
    samples = node.round(Jobs(node.host, per_job=True, most=10))
    assert samples['plumbline_job_read_bytes_total{hpc_job="7"}'] == 5
    assert 'plumbline_job_read_bytes_total{hpc_job="8"}' not in samples
    assert samples['plumbline_job_processes{hpc_job="8"}'] == 20


def test_what_we_may_not_read_is_no_zero(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the unit lacks CAP_DAC_READ_SEARCH: /proc/PID/io is its user's alone."""
    node.v2("job_7", (11,))
    node.process(11, 5, 5)

    def refuse(path: Path, encoding: str, errors: str = "") -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(Failed, match="11/io cannot be read: Permission denied"):
        cgroups.written_and_read(node.host, (11,))


NETWORK = 'plumbline_job_network_bytes_total{{device="{}",direction="{}",hpc_job="7"}}'


def test_the_network_is_a_jobs_that_is_alone(node: Node) -> None:
    node.card(1000, 2000)
    (node.host.sys / "class/net/bond0/statistics").mkdir(parents=True)  # of the cards beside it
    counters = node.host.sys / "class/infiniband/mlx5_0/ports/1/counters"
    put(counters / "port_rcv_data", 100)
    put(counters / "port_xmit_data", 100)
    folder = node.v2("job_7")
    node.round()
    node.card(1010, 2050)
    put(counters / "port_rcv_data", 110)
    samples = node.round()
    assert samples[NETWORK.format("eth0", "received")] == 10
    assert samples[NETWORK.format("eth0", "sent")] == 50
    assert samples[NETWORK.format("mlx5_0:1", "received")] == 40
    assert not [key for key in samples if "bond0" in key]
    # Whose it is from here on, nobody knows.
    other = node.v2("job_8")
    node.card(5000, 5000)
    assert node.round()[NETWORK.format("eth0", "received")] == 10
    other.rename(node.host.cgroup / "gone")
    node.card(6000, 6000)
    assert node.round()[NETWORK.format("eth0", "received")] == 10
    node.card(6007, 6000)
    assert node.round()[NETWORK.format("eth0", "received")] == 17
    folder.rename(node.host.cgroup / "gone too")
    assert not [key for key in node.round() if "network" in key]


def test_a_card_that_counts_anew_takes_nothing_away(node: Node) -> None:
    node.v2("job_7")
    for received in (1000, 1100, 5, 25):
        node.card(received, 0)
        samples = node.round()
    assert samples[NETWORK.format("eth0", "received")] == 120


def test_a_fleet_has_sums_without_a_jobs_number(node: Node) -> None:
    jobs = Jobs(node.host, per_job=False)
    folder = node.v2("job_7")
    node.v2("job_8")
    samples = node.round(jobs)
    assert not [key for key in samples if "hpc_job" in key]
    assert samples["plumbline_jobs_memory_bytes"] == 1400
    assert samples["plumbline_jobs_cpu_seconds_total"] == 5
    put(folder / "cpu.stat", "usage_usec 3500000\n")
    assert node.round(jobs)["plumbline_jobs_cpu_seconds_total"] == 6
    folder.rename(node.host.cgroup / "gone")
    assert node.round(jobs)["plumbline_jobs_cpu_seconds_total"] == 6


def test_a_node_full_of_jobs_costs_little(node: Node) -> None:
    for number in range(200):
        node.v2(f"job_{number}", (number * 10 + 1000,))
        node.process(number * 10 + 1000, 1, 1)
    begin = time.process_time()
    assert node.round()["plumbline_jobs_running"] == 200
    assert time.process_time() - begin < 2  # 0.08 s, measured beside other work


def test_an_exporter_of_jobs_alone_is_not_the_one_that_tells_of_the_cluster(tmp_path: Path) -> None:
    """An alert takes the exporter `slurm` without a success for a controller that is gone."""
    rest = (False, True, tmp_path / "ledger.sqlite", False, "", None)
    plain = ExporterSettings(tmp_path / "x.prom", 60, 15, ("usage",), *rest)
    assert main.exporter(plain).name == "jobs"
    both = ExporterSettings(tmp_path / "x.prom", 60, 15, ("usage", "nodes"), *rest)
    assert main.exporter(both).name == "slurm"
    assert not (tmp_path / "ledger.sqlite").exists()


def test_the_series_are_those_of_the_roles_table() -> None:
    table = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    node_names = {f"plumbline_job_{name}" for name in (*USED, "cpus", "network_bytes_total")}
    assert node_names <= set(re.findall(r"plumbline_job_\w+", table))
