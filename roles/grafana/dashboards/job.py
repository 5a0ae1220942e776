"""One job: does it use its GPUs, and which of its nodes or GPUs holds it up?

A job on many nodes is as fast as its slowest GPU: what is worst of it is shown, and what lies
between.
"""

from roles.grafana.dashboards import of_jobs
from roles.grafana.dashboards.of_jobs import JOB, field
from roles.grafana.dashboards.shared import (
    FEW,
    WORST,
    Column,
    Query,
    above,
    board,
    choice,
    graph,
    number,
    rows,
    section,
    share,
    spread,
    worst,
)

_GPU = {"node": "Node", "gpu": "GPU", "hpc_job": "Job"}
_LEAST_BUSY = f"bottomk({WORST}, {field('GPU_UTIL')})"
_EACH_NODE = f"max by (node) (slurm_job_gpu_info{{{JOB}}})"


def _each_node(name: str) -> str:
    """Of the job's worst GPU on each of its nodes, as rules/boards.yml records it."""
    return f"max by (hpc_job, node) (job_node:{name}{{{JOB}}})"


def _of_least_busy(value: str) -> str:
    return f"{value} and on (hpc_job, node, gpu) {_LEAST_BUSY}"


def _on_nodes(value: str) -> str:
    """What is so for each node, of the nodes that the job has."""
    return f"({value}) and on (node) {_EACH_NODE}"


def _port(direction: str) -> str:
    metric = f"node_infiniband_port_data_{direction}_bytes_total"
    return _on_nodes(f'sum by (node) (rate({metric}{{node=~"$node"}}[$__rate_interval]))')


NODES = number("Nodes", "Nodes that the job has.", "locale", f"count({_EACH_NODE}) or vector(0)")

GPUS = number(
    "GPUs",
    "GPUs that Slurm gave it.",
    "locale",
    f"sum({of_jobs.GPUS}) or vector(0)",
)

BUSY = share(
    "Busy",
    "The mean over its GPUs of the time in which a kernel ran.",
    f"avg({field('GPU_UTIL')}) / 100",
)

LEAST_BUSY = share(
    "The least busy",
    "How busy its least busy GPU is. If it is far below the mean, the others wait for it.",
    f"min({field('GPU_UTIL')}) / 100",
)

POWER = number("Power", "Power that its GPUs draw.", "watt", f"sum({field('POWER_USAGE')})")

ENERGY = number(
    "Energy",
    "What its GPUs used in the displayed time.",
    "watth",
    f"sum({of_jobs.ENERGY})",
)

ALERTS = number(
    "Alerts on its nodes",
    "Alerts that fire for its nodes.",
    "locale",
    f'count(ALERTS{{alertstate="firing",node=~"$node"}} and on (node) {_EACH_NODE}) or vector(0)',
    above(1),
)

WHOSE = rows(
    "Whose it is",
    f"Jobs that are chosen; {WORST} of them.",
    {"hpc_job": "Job", "user": "User", "account": "Account", "partition": "Partition"},
    Column(
        f"topk({WORST}, count by (hpc_job, user, account, partition)"
        f" (max by (hpc_job, user, account, partition, node) (slurm_job_gpu_info{{{JOB}}})))",
        "Nodes",
    ),
    none="Such a job does not run now.",
)

ALERTS_ON_ITS_NODES = rows(
    "What is wrong with its nodes",
    f"Alerts that fire for them; {FEW} of each severity.",
    {"severity": "Severity", "alertname": "Alert", "node": "Node"},
    Column(
        f"topk by (severity) ({FEW}, max by (severity, alertname, node)"
        f' (ALERTS{{alertstate="firing",node=~"$node"}} and on (node) {_EACH_NODE}))'
    ),
    none="No alert fires for its nodes.",
)

GPUS_TABLE = rows(
    "Its least busy GPUs",
    f"The {WORST} least busy, and how they are.",
    _GPU,
    Column(_LEAST_BUSY, "Busy", "percent"),
    Column(_of_least_busy(f"{field('SM_CLOCK')} * 1e6"), "Clock", "hertz"),
    Column(_of_least_busy(field("GPU_TEMP")), "Temperature", "celsius"),
    Column(_of_least_busy(field("POWER_USAGE")), "Power", "watt"),
    Column(_of_least_busy(field("FB_USED")), "Memory", "mbytes"),
)

LEAST_BUSY_NODES = graph(
    "Nodes with the least busy GPUs",
    f"A node's least busy GPU, of the {WORST} nodes where that is least busy at the end. One that"
    " is less busy than the others may delay the job.",
    "percent",
    Query(worst(_each_node("dcgm_gpu_util:min"), least=True), "{{node}} {{hpc_job}}"),
    top=100,
)

HOW_BUSY = graph(
    "How busy its GPUs are",
    "Of each node the least busy: the highest, the lowest, and those between.",
    "percent",
    *spread(_each_node("dcgm_gpu_util:min")),
    top=100,
)

MEMORY = graph(
    "Memory of its GPUs",
    "Of each node the fullest: what is used at the most, at the least, and between.",
    "mbytes",
    *spread(_each_node("dcgm_fb_used:max")),
)

CLOCKS = graph(
    "Clock of its SMs",
    "Of each node the slowest: the highest, the lowest, and those between.",
    "hertz",
    *spread(f"{_each_node('dcgm_sm_clock:min')} * 1e6"),
)

TEMPERATURES = graph(
    "Temperature of its GPUs",
    "Of each node the hottest: the highest, the lowest, and those between.",
    "celsius",
    *spread(_each_node("dcgm_gpu_temp:max")),
)

CPU_OF_ITS_NODES = graph(
    "CPU of its nodes",
    "Busy share, whoever uses it: the most, the least, and what lies between.",
    "percentunit",
    *spread(_on_nodes(of_jobs.NODES_CPU)),
    top=1,
)

MEMORY_OF_ITS_NODES = graph(
    "Memory of its nodes",
    "Used share, whoever uses it: the most, the least, and what lies between.",
    "percentunit",
    *spread(_on_nodes(of_jobs.NODES_MEMORY)),
    top=1,
)

INFINIBAND_OF_ITS_NODES = graph(
    "InfiniBand of its nodes",
    f"All ports, whoever uses them; of each direction the {FEW} nodes with the least.",
    "Bps",
    Query(worst(_port("received"), FEW, least=True), "{{node}} in"),
    Query(worst(_port("transmitted"), FEW, least=True), "{{node}} out"),
)

BOARD = board(
    "job",
    "One job",
    "Does a job use its GPUs, and which of its nodes or GPUs holds it up? Choose it.",
    section(
        "At a glance",
        [NODES, GPUS, POWER, ENERGY, ALERTS],
        [BUSY, LEAST_BUSY],
        [WHOSE, ALERTS_ON_ITS_NODES],
    ),
    section("GPUs", [GPUS_TABLE, LEAST_BUSY_NODES], [HOW_BUSY, MEMORY], [CLOCKS, TEMPERATURES]),
    section("Nodes", [CPU_OF_ITS_NODES, MEMORY_OF_ITS_NODES, INFINIBAND_OF_ITS_NODES]),
    variables=[choice("hpc_job", "Job", "slurm_job_gpu_info", everything=".+", one=True)],
    since="now-1h",
)
