"""Every query of the dashboards, executed by a real Prometheus that was fed known values."""

import pytest

from cluster.prometheus import NoAnswer, Server
from roles.grafana.page import boards, expected
from roles.grafana.tests import sample

RANGE_S = 3600
BOARDS = boards.own()
ASKED = list(expected.of_panels(BOARDS, RANGE_S))
OF_GPUS = [query for query in ASKED if "DCGM_" in query.expr]


def each(*values: float) -> dict[str, float]:
    """By number of the GPU and node, of all GPUs that are seen."""
    return dict(zip(("0 gpu1", "1 gpu1", "0 gpu2", "1 gpu2", "0 gpu3"), values, strict=True))


# Of each query the values at the end, by the values of the series' labels in the order of the
# labels' names. Worked out by hand from the values in `sample.py`.
GPUS = {
    "Cluster overview/Power of the GPUs/A": {"gpu1": 1100, "gpu2": 400, "gpu3": 200},
    "GPU fleet/GPUs seen/A": {"": 5},
    "GPU fleet/GPUs missing/A": {"": 6 - 5},
    "GPU fleet/Power/A": {"": 600 + 500 + 100 + 300 + 200},
    "GPU fleet/Hottest/A": {"": 70},
    "GPU fleet/Busy/A": {"": (0.9 + 0.7 + 0 + 0.4 + 0.2) / 5},
    # Of the board that is split: 2000 + 3000 used, 18000 + 17000 free.
    "GPU fleet/Memory used/A": {"": 135 / 360},
    "GPU fleet/Busy, by node/A": {"gpu1": 80, "gpu2": 20, "gpu3": 20},
    "GPU fleet/Memory used, by node/A": {"gpu1": 100 / 160, "gpu2": 30 / 160, "gpu3": 5 / 40},
    "GPU fleet/Engines at work/A": {"": (0.8 + 0.2 + 0.2) / 3},
    "GPU fleet/Engines at work/B": {"": (0.4 + 0.1 + 0.1) / 3},
    "GPU fleet/Engines at work/C": {"": (0.2 + 0.05 + 0.05) / 3},
    "GPU fleet/Engines at work/D": {"": (0.16 + 0.04 + 0.04) / 3},
    "GPU fleet/Allocated and idle/A": {"0 4713 gpu2": 0, "0 4714 gpu2": 0},
    "GPU fleet/Temperature, by node/A": {"gpu1": 70, "gpu2": 55, "gpu3": 50},
    "GPU fleet/Degrees left until the board slows down/A": each(20, 25, 50, 35, 40),
    "GPU fleet/Power, by node/A": {"gpu1": 1100, "gpu2": 400, "gpu3": 200},
    "GPU fleet/Clock of the SMs, by node/A": {"gpu1": 1.9e9, "gpu2": 0.345e9, "gpu3": 1.2e9},
    "GPU fleet/Clocks held back/A": {"power_cap gpu1": 6, "power_cap gpu2": 6, "power_cap gpu3": 3},
    "GPU fleet/Errors of the boards/A": each(0, 0, 0, 0, 0),
    "GPU fleet/Errors of the boards/B": each(0, 0, 2, 0, 0),
    "GPU fleet/Errors of the boards/C": each(0, 0, 1, 0, 0),
    "GPU fleet/Errors of the boards/D": each(0, 0, 0, 0, 0),
    "GPU fleet/Errors of the boards/E": each(0, 7, 0, 0, 0),
    "GPU fleet/Errors of NVLink/A": {"gpu1": 0.5, "gpu2": 0, "gpu3": 0},
    "GPU fleet/Errors of NVLink/B": {"gpu1": 0, "gpu2": 2, "gpu3": 0},
    "GPU fleet/Errors of NVLink/C": {"gpu1": 0, "gpu2": 0, "gpu3": 0},
    "GPU fleet/PCIe links/A": each(16, 8, 16, 16, 16),
    "GPU fleet/PCIe links/B": each(16, 16, 16, 16, 16),
    "GPU fleet/PCIe links/C": each(5, 5, 1, 5, 5),
    "GPU fleet/PCIe links/D": each(5, 5, 5, 5, 5),
    "Job view/GPUs busy/A": {"": (0.9 + 0.7 + 0 + 0) / 4},
    "Job view/Jobs with GPUs/C": {"4711": 80, "4713": 0, "4714": 0},
    "Job view/Jobs with GPUs/D": {"4711": 100 / 160, "4713": 10 / 80, "4714": 10 / 80},
    "Job view/GPUs busy, by job/A": {"4711": 80, "4713": 0, "4714": 0},
    "Job view/Each GPU busy/A": {
        "0 4711 gpu1": 90, "1 4711 gpu1": 70, "0 4713 gpu2": 0, "0 4714 gpu2": 0,
    },
    "Job view/GPU memory used, by job/A": {"4711": 100 / 160, "4713": 10 / 80, "4714": 10 / 80},
    "Job view/GPU power, by job/A": {"4711": 1100, "4713": 100, "4714": 100},
    "Job view/Tensor cores at work, by job/A": {"4711": 0.2, "4713": 0, "4714": 0},
    "Job view/Over the whole time/A": {"4711": 80, "4713": 0, "4714": 0},
    "Job view/Over the whole time/B": {"4711": 70, "4713": 0, "4714": 0},
    "Job view/Over the whole time/C": {"4711": 60000, "4713": 10000, "4714": 10000},
    # Watts for one hour.
    "Job view/Over the whole time/D": {"4711": 1100, "4713": 100, "4714": 100},
    "Node detail/GPU busy/A": each(90, 70, 0, 40, 20),
    "Node detail/GPU memory used/A": each(60000, 40000, 10000, 20000, 5000),
    "Node detail/GPU temperature/A": each(70, 65, 40, 55, 50),
    "Node detail/GPU power/A": each(600, 500, 100, 300, 200),
}  # fmt: skip

# The others, where a join or a word of Slurm could be wrong.
OTHERS = {
    "Cluster overview/Nodes out of service/A": {"": 1},
    "Cluster overview/CPUs allocated/A": {"": 80 / 224},
    "Cluster overview/GPUs allocated/A": {"": 3 / 6},
    "Cluster overview/State of each node/A": {"cpu1": 4, "gpu1": 2, "gpu2": 2, "gpu3": 1},
    "Cluster overview/Alerts/A": {"": 1},
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
    "Node detail/Since the last boot/A": {"": 86400},
    "Node detail/Certificates end in/A": {"": 90 * 86400},
    "Node detail/Services/A": {"munge.service": 1, "slurmd.service": 0},
    "Node detail/Ethernet/A": dict.fromkeys(sample.HOSTS, 2e6),
    "Node detail/Load for each CPU/A": {
        "ctl1": 0.1, "gpu1": 0.3, "gpu2": 0.5, "gpu3": 0.7, "cpu1": 0.9,
    },
    "Slurm controller/Answers are old by/A": {"": 30},
    "Slurm controller/Cycles per minute/A": {"": 6},
    "Slurm controller/Questions to Slurm/A": {"nodes": 1, "jobs": 1, "rpcs": 0},
    "Validation history/Last run/A": {"": 3600},
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
    assert "/Power of the GPUs/A has data, and is listed as without (gpu): sum by (node)" in told
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
