"""Every query of the dashboards, executed by a real Prometheus that was fed known values."""

import re

import pytest

from cluster.prometheus import NoAnswer, Server
from roles.grafana.page import boards, expected
from roles.grafana.tests import sample

RANGE_S = 3600
BOARDS = boards.own()
ASKED = list(expected.of_panels(BOARDS, RANGE_S))
OF_GPUS = [query for query in ASKED if re.search(r"DCGM_|:dcgm_", query.expr)]


def each(*values: float) -> dict[str, float]:
    """By number of the GPU and node, of all GPUs that are seen."""
    return dict(zip(("0 gpu1", "1 gpu1", "0 gpu2", "1 gpu2", "0 gpu3"), values, strict=True))


def of_jobs(first: float, second: float, shared: float) -> dict[str, float]:
    """The two GPUs of one job, and one that two other jobs share."""
    values = {"0 4711 gpu1": first, "1 4711 gpu1": second}
    return {**values, "0 4713 gpu2": shared, "0 4714 gpu2": shared}


def spread(panel: str, *values: float) -> dict[str, dict[str, float]]:
    """Five queries of a panel: the highest, the highest tenth, the median and so on."""
    return {f"{panel}/{part}": {"": value} for part, value in zip("ABCDE", values, strict=True)}


# Of each query the values at the end, by the values of the series' labels in the order of the
# labels' names. Worked out by hand from the values in `sample.py`.
GPUS = {
    "Cluster overview/Power of the GPUs/A": {"": 600 + 500 + 100 + 300 + 200},
    "GPU fleet/GPUs seen/A": {"": 5},
    "GPU fleet/GPUs missing/A": {"": 6 - 5},
    "GPU fleet/GPUs with errors/A": {"": 1},
    "GPU fleet/Power/A": {"": 600 + 500 + 100 + 300 + 200},
    "GPU fleet/Hottest/A": {"": 70},
    "GPU fleet/Busy/A": {"": (0.9 + 0.7 + 0 + 0.4 + 0.2) / 5},
    # Of the board that is split: 2000 + 3000 used, 18000 + 17000 free.
    "GPU fleet/Memory used/A": {"": 135 / 360},
    "GPU fleet/How busy the GPUs are/A": {
        "idle": 1,
        "below 50 %": 2,
        "50 % to 90 %": 1,
        "from 90 % on": 1,
    },
    # 100 of 160, 30 of 160, 5 of 40.
    **spread("GPU fleet/Memory used, of each node", 0.625, 0.5375, 0.1875, 0.1375, 0.125),
    "GPU fleet/Engines at work/A": {
        "any engine": (0.8 + 0.2 + 0.2) / 3,
        "SMs": (0.4 + 0.1 + 0.1) / 3,
        "tensor cores": (0.2 + 0.05 + 0.05) / 3,
        "memory": (0.16 + 0.04 + 0.04) / 3,
    },
    "GPU fleet/Allocated and idle/A": {"0 4713 gpu2": 0, "0 4714 gpu2": 0},
    **spread("GPU fleet/Temperature of each node", 70, 67, 55, 51, 50),
    "GPU fleet/Hottest nodes/A": {"gpu1": 70, "gpu2": 55, "gpu3": 50},
    "GPU fleet/Degrees left until the board slows down/A": each(20, 25, 50, 35, 40),
    **spread("GPU fleet/Power of each node", 1100, 960, 400, 240, 200),
    # Of one node GPUs are busy.
    **spread("GPU fleet/Clock of the SMs", 1.9e9, 1.9e9, 1.9e9, 1.9e9, 1.9e9),
    "GPU fleet/Clocks held back/A": {"power_cap": 5},
    "GPU fleet/GPUs held back/A": {f"power_cap {gpu}": 3 for gpu in each(1, 2, 3, 4, 5)},
    "GPU fleet/Errors of the boards/A": {"0 gpu2": 0},
    "GPU fleet/Errors of the boards/B": {"0 gpu2": 2},
    "GPU fleet/Errors of the boards/C": {"0 gpu2": 1},
    "GPU fleet/Errors of the boards/D": {"0 gpu2": 0},
    "GPU fleet/PCIe replays/A": {"1 gpu1": 7},
    "GPU fleet/Errors of NVLink/A": {"gpu1": 0.5, "gpu2": 0, "gpu3": 0},
    "GPU fleet/Errors of NVLink/B": {"gpu1": 0, "gpu2": 2, "gpu3": 0},
    "GPU fleet/Errors of NVLink/C": {"gpu1": 0, "gpu2": 0, "gpu3": 0},
    "GPU fleet/PCIe links that lack lanes/A": {"1 gpu1": 8},
    "GPU fleet/PCIe links that lack lanes/B": {"1 gpu1": 16},
    "GPU fleet/PCIe links that lack lanes/C": {"1 gpu1": 5},
    "GPU fleet/PCIe links that lack lanes/D": {"1 gpu1": 5},
    "Job view/GPUs busy/A": {"": (0.9 + 0.7 + 0 + 0) / 4},
    "Job view/Jobs with GPUs/C": {"4711": 80, "4713": 0, "4714": 0},
    "Job view/Jobs with GPUs/D": {"4711": 100 / 160, "4713": 10 / 80, "4714": 10 / 80},
    "Job view/GPUs busy, by job/A": {"4711": 80, "4713": 0, "4714": 0},
    "Job view/GPU memory used, by job/A": {"4711": 100 / 160, "4713": 10 / 80, "4714": 10 / 80},
    "Job view/GPU power, by job/A": {"4711": 1100, "4713": 100, "4714": 100},
    "Job view/Tensor cores at work, by job/A": {"4711": 0.2, "4713": 0, "4714": 0},
    "Job view/Over the whole time/A": {"4711": 80, "4713": 0, "4714": 0},
    "Job view/Over the whole time/B": {"4711": 70, "4713": 0, "4714": 0},
    "Job view/Over the whole time/C": {"4711": 60000, "4713": 10000, "4714": 10000},
    # Watts for one hour.
    "Job view/Over the whole time/D": {"4711": 1100, "4713": 100, "4714": 100},
    "One job/Power/A": {"": 600 + 500 + 100 + 100},
    "One job/Energy/A": {"": 600 + 500 + 100 + 100},
    "One job/Busy/A": {"": (0.9 + 0.7 + 0 + 0) / 4},
    "One job/The least busy/A": {"": 0},
    "One job/Its least busy GPUs/A": of_jobs(90, 70, 0),
    "One job/Its least busy GPUs/B": of_jobs(1.98e9, 1.9e9, 0.345e9),
    "One job/Its least busy GPUs/C": of_jobs(70, 65, 40),
    "One job/Its least busy GPUs/D": of_jobs(600, 500, 100),
    "One job/Its least busy GPUs/E": of_jobs(60000, 40000, 10000),
    "One job/Nodes with the least busy GPUs/A": {"4711 gpu1": 70, "4713 gpu2": 0, "4714 gpu2": 0},
    # Of the worst GPU of each job on each of its nodes.
    **spread("One job/How busy its GPUs are", 70, 56, 0, 0, 0),
    **spread("One job/Memory of its GPUs", 60000, 50000, 10000, 10000, 10000),
    **spread("One job/Clock of its SMs", 1.9e9, 1.589e9, 0.345e9, 0.345e9, 0.345e9),
    **spread("One job/Temperature of its GPUs", 70, 64, 40, 40, 40),
    "Users/GPUs that do nothing/A": {"": 0.1 + 0.3 + 1 + 1},
    "Users/Busy/A": {"": (0.9 + 0.7 + 0 + 0) / 4},
    "Users/Users/C": {"ada": 80, "bob": 0, "eve": 0},
    "Users/Users whose GPUs do nothing/A": {"ada": 0.1 + 0.3, "bob": 1, "eve": 1},
    "Users/Users whose GPUs do nothing/B": {"ada": 80, "bob": 0, "eve": 0},
    "Users/Busy, by user/A": {"ada": 80, "bob": 0, "eve": 0},
    "Users/Least busy jobs/A": {"4711 ada": 80, "4713 bob": 0, "4714 eve": 0},
    "Node detail/GPUs/A": each(90, 70, 0, 40, 20),
    "Node detail/GPUs/B": each(70, 65, 40, 55, 50),
    "Node detail/GPUs/C": each(600, 500, 100, 300, 200),
    "Node detail/GPU busy/A": each(90, 70, 0, 40, 20),
    "Node detail/GPU memory used/A": each(60000, 40000, 10000, 20000, 5000),
    "Node detail/GPU temperature/A": each(70, 65, 40, 55, 50),
    "Node detail/GPU power/A": each(600, 500, 100, 300, 200),
}

# The others, where a join or a word of Slurm could be wrong.
OTHERS = {
    "Cluster overview/Nodes out of service/A": {"": 1},
    "Cluster overview/CPUs allocated/A": {"": 128 / 224},
    "Cluster overview/GPUs allocated/A": {"": 3 / 6},
    "Cluster overview/State of the worst nodes/A": {"cpu1": 4, "gpu1": 2, "gpu2": 2, "gpu3": 1},
    "Cluster overview/Nodes by state/B": {"": 1},
    "Cluster overview/Nodes by state/D": {"": 2},
    "Cluster overview/Alerts/A": {"": 2},
    "Cluster overview/Alerts that fire/A": {
        "GpuMissing critical": 1, "GpuPcieReplayHigh warning": 1,
    },
    "Cluster overview/Nodes with alerts/A": {"gpu3": 1},
    "Cluster overview/Nodes with alerts/B": {"gpu1": 1},
    "Cluster overview/Why nodes are out of service/A": {"fan 3 root": 1},
    "Cluster overview/Nodes out of service, and why/A": {"cpu1 fan 3 root": 4},
    # cpu1 is out of service in 38 of 60 minutes.
    "Fleet/Availability/A": {"": (3 + 22 / 60) / 4},
    "Fleet/GPUs given/A": {"": 3 / 6},
    "Fleet/GPUs used/A": {"": 1.6 / 6},
    "Fleet/Failures of nodes/A": {"": 1},
    "Fleet/Time between failures/A": {"": 3 * 3600 + 22 * 60},
    "Fleet/GPU-hours/A": {"given": 3, "idle": 3, "reserved": 0, "drained": 0, "down": 0},
    "Fleet/GPU-hours/C": {"": 3 - 1.6},
    "Fleet/Accounts/C": {"physics": 1 - 1.6 / 3, "biology": 1},
    "Fleet/Nodes most out of service/A": {"cpu1": 38 / 60},
    "Fleet/Nodes that failed most often/A": {"cpu1": 1},
    "Cluster overview/Jobs waiting/A": {"": 1},
    "Cluster overview/CPU busy/A": {"": 0.5},
    "GPU fleet/GPUs declared/A": {"": 6},
    "GPU fleet/Allocated/A": {"": 3 / 6},
    "GPU fleet/XIDs/A": {"gpu2 00000000:01:00.0 warn 63": 2},
    "Job view/Jobs/A": {"": 3},
    "Job view/GPUs/A": {"": 4},
    "Job view/CPU of its nodes, by job/A": {"4711": 0.3, "4713": 0.5, "4714": 0.5},
    "Job view/Memory of its nodes, by job/A": {"4711": 0.3, "4713": 0.5, "4714": 0.5},
    "Job view/CPUs of their nodes busy/A": {"": (0.3 + 0.5 + 0.5) / 3},
    "Resources of jobs/Jobs/A": {"": 3},
    "Resources of jobs/Their CPUs busy/A": {"": (16 + 8 + 2) / 80},
    "Resources of jobs/Their memory used/A": {"": (2**37 + 2**33 + 2**32) / (2**38 + 2**35)},
    "Resources of jobs/Jobs short of memory/A": {"": 1},
    "Resources of jobs/Jobs with the least busy CPUs/A": {"4711": 48, "4713": 0, "4714": 6},
    "Resources of jobs/Jobs that are close to their limit of memory/A": {
        "4711": 0.5, "4713": 0.5, "4714": 0.25,
    },
    "Resources of jobs/CPUs busy, by job/A": {"4711": 0.25, "4713": 1, "4714": 0.25},
    "Resources of jobs/Read and written, by job/A": {"4711": 1e9, "4713": 1e6, "4714": 0},
    "Resources of jobs/Network, by job/A": {"received 4711": 2e9, "sent 4711": 2e9},
    "Node detail/Since the last boot/A": {"": 86400},
    "Node detail/Certificates end in/A": {"": 90 * 86400},
    "Node detail/Services/A": {"munge.service": 1, "slurmd.service": 0},
    "Node detail/Ethernet/A": dict.fromkeys(sample.HOSTS, 2e6),
    "Node detail/Load for each CPU/A": {
        "ctl1": 0.1, "gpu1": 0.3, "gpu2": 0.5, "gpu3": 0.7, "cpu1": 0.9,
    },
    "One job/Nodes/A": {"": 2},
    "One job/Alerts on its nodes/A": {"": 1},
    "One job/CPU of its nodes/A": {"": 0.5},
    "Users/GPUs, by user/A": {"ada": 2, "bob": 1, "eve": 1},
    "Users/Fair share/A": {"physics ada": 0.25, "biology eve": 0.5, "physics bob": 0.75},
    "Slurm controller/GPUs that no job can have/A": {"gpu2": 1},
    "Slurm controller/Answers are old by/A": {"": 30},
    "Slurm controller/Cycles per minute/A": {"": 6},
    "Slurm controller/Questions to Slurm/A": {"nodes": 1, "jobs": 1, "rpcs": 0},
    "Validation history/Last run/A": {"": 3600},
    "Collectives of jobs/Jobs that hang/A": {"": 1},
    "Collectives of jobs/Jobs inspected/A": {"": 1},
    "Collectives of jobs/The 20 longest without progress/A": {"4711 gpu1": 60},
    "Collectives of jobs/Ranks that jobs hang on/A": {"4711 gpu1 gpu1 3": 1},
    "Collectives of jobs/The 20 ranks that are waited for most/A": {
        f"AllReduce 0xa 4711 gpu1 {rank}": 0.2 if rank == 3 else 1 for rank in range(4)
    },
    "Node history/Interruptions/A": {"": 5},
    "Node history/Lemons/A": {"": 1},
    # Five hours and two of four nodes; the mean of all four between five interruptions.
    "Node history/In service/A": {"": 1 - 7 / (4 * 28 * 24)},
    "Node history/Between interruptions/A": {"": (4 * 28 * 24 - 7) * 3600 / 5},
    "Node history/Nodes with the most interruptions/B": {"gpu2": 5 * 3600},
    "Node history/Why a node is a lemon/A": {"gpu2 out_count": 5, "gpu2 xid_cnt": 5},
}  # fmt: skip


@pytest.fixture
def server(prometheus) -> Server:
    return Server(prometheus)


def at_the_end(server: Server, query: expected.ExpectedQuery) -> dict[str, float]:
    answer = expected.answer(server, query, sample.END, RANGE_S)
    for series in answer:
        assert series.points[-1][0] == sample.END
    values = {
        " ".join(text for _, text in sorted(series.labels.items())): series.last
        for series in answer
    }
    assert len(values) == len(answer)
    return values


def test_every_query_of_a_gpu_has_its_value_here():
    assert {query.name.removeprefix("panel/") for query in OF_GPUS} == GPUS.keys()


def test_queries_give_the_values_that_were_fed(server):
    known = {query.name.removeprefix("panel/"): query for query in ASKED}
    wrong = []
    for name, values in (GPUS | OTHERS).items():
        result = at_the_end(server, known[name])
        if result != pytest.approx(values, rel=1e-6, abs=1e-9):
            wrong.append(f"{name}: {result}, expected {values}")
    assert not wrong


def test_every_query_has_data_where_everything_is_there(server):
    """Also those that are listed as being without, elsewhere."""
    empty = [
        query.name for query in ASKED if not expected.answer(server, query, sample.END, RANGE_S)
    ]
    assert not empty


def test_the_program_says_what_has_no_data_and_what_should_have_none(prometheus, program):
    ask = ("ask", "--prometheus", prometheus, "--end", str(sample.END))
    done = program(*ask, "--lacking", "gpu,native")
    assert done.returncode == 1
    assert "    1  panel/Cluster overview/Nodes/A\n" in done.stdout
    assert "    0  alert/SlurmctldDown/up/2  (native)\n" in done.stdout
    lines = done.stderr.splitlines()
    # The sample has GPUs; of what Prometheus tells of itself it has nothing.
    (told,) = (line for line in lines if line.startswith("dashboards: panel/Cluster overview"))
    assert (
        "/Power of the GPUs/A has data, and is listed as without (gpu): sum(max by (node) " in told
    )
    assert 'dashboards: alert/TargetMissing/up/2 has no data: up{job="prometheus"}' in lines
    done = program(*ask, "--lacking", "gpus")
    assert done.returncode == 1
    assert done.stderr == "dashboards: --lacking gpus: no such reason in without_data.yml.\n"


@pytest.mark.parametrize(
    ("expr", "why"),
    [("sum(up", "answers with 400: .*parse error"), ("up * on (job) up", "many-to-many")],
)
def test_a_query_that_is_wrong_is_no_empty_answer(server, expr, why):
    query = expected.ExpectedQuery("panel", ("a", "b"), "A", expr)
    with pytest.raises(NoAnswer, match=why):
        expected.answer(server, query, sample.END, 60)
