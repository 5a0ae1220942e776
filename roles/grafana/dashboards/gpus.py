"""GPU fleet: which GPUs work, how hard, and which of them are ill?"""

from roles.grafana.dashboards.shared import (
    Column,
    Query,
    above,
    bars,
    board,
    gpu_memory,
    graph,
    number,
    per_gpu,
    rows,
    section,
    share,
)

_SEEN = 'count(group by (node, UUID) (DCGM_FI_DEV_GPU_TEMP{node=~"$node"}))'
_DECLARED = 'sum(plumbline_expected_gpus{node=~"$node"})'
_LOOKED_AT = 'up{job="dcgm"} == 1 or plumbline_exporter_last_run_timestamp_seconds{exporter="gpu"}'
_DECLARED_OF = 'sum by (node) (plumbline_expected_gpus{node=~"$node"})'
_SEEN_OF = 'count by (node) (group by (node, UUID) (DCGM_FI_DEV_GPU_TEMP{node=~"$node"}))'
_GPU = {"node": "Node", "gpu": "GPU"}


def _profiled(name: str, by: str) -> str:
    return f'avg by ({by}) (max by (node, gpu) (DCGM_FI_PROF_{name}{{node=~"$node"}}))'


def _per_second(name: str) -> str:
    counter = f'rate(DCGM_FI_DEV_{name}{{node=~"$node"}}[$__rate_interval])'
    return f"max by (node, gpu) ({counter})"


GPUS_SEEN = number("GPUs seen", "GPUs that an exporter sees.", "short", _SEEN)

GPUS_DECLARED = number("GPUs declared", "GPUs that the inventory declares.", "short", _DECLARED)

GPUS_MISSING = number(
    "GPUs missing",
    "GPUs that are declared but not seen, on nodes with an exporter.",
    "short",
    f"sum(clamp_min({_DECLARED_OF} - on (node) ({_SEEN_OF} or 0 * {_DECLARED_OF}), 0)"
    f" and on (node) ({_LOOKED_AT})) or vector(0)",
    above(1),
)

POWER = number("Power", "Power that all GPUs draw.", "watt", f"sum({per_gpu('POWER_USAGE')})")

HOTTEST = number(
    "Hottest",
    "The temperature of the hottest GPU.",
    "celsius",
    f"max({per_gpu('GPU_TEMP')})",
    above(80, 85),
)

BUSY = share(
    "Busy",
    "The mean over all boards of the time in which a kernel ran.",
    f"avg({per_gpu('GPU_UTIL')}) / 100",
)

MEMORY_USED = share(
    "Memory used",
    "Used share of the memory of all GPUs.",
    f"sum({gpu_memory('FB_USED')}) / (sum({gpu_memory('FB_USED')}) + sum({gpu_memory('FB_FREE')}))",
)

ALLOCATED = share(
    "Allocated",
    "GPUs that jobs have, as a share of the GPUs that Slurm knows.",
    'sum(max by (node) (slurm_node_gpus_alloc{node=~"$node"}))'
    ' / sum(max by (node) (slurm_node_gpus{node=~"$node"})) > 0'
    ' or 0 * sum(slurm_node_gpus{node=~"$node"})',
)

BUSY_BY_NODE = graph(
    "Busy, by node",
    "The mean over a node's boards of the time in which a kernel ran.",
    "percent",
    Query(f"avg by (node) ({per_gpu('GPU_UTIL')})", "{{node}}"),
    top=100,
)

MEMORY_USED_BY_NODE = graph(
    "Memory used, by node",
    "Used share of the memory of a node's GPUs.",
    "percentunit",
    Query(
        f"{gpu_memory('FB_USED', 'node')} / ({gpu_memory('FB_USED', 'node')}"
        f" + {gpu_memory('FB_FREE', 'node')})",
        "{{node}}",
    ),
    top=1,
)

ENGINES_AT_WORK = graph(
    "Engines at work",
    "Share of the time in which they were active, over all GPUs. Only dcgm-exporter reports it.",
    "percentunit",
    Query(f"avg({_profiled('GR_ENGINE_ACTIVE', 'node')})", "any engine"),
    Query(f"avg({_profiled('SM_ACTIVE', 'node')})", "SMs"),
    Query(f"avg({_profiled('PIPE_TENSOR_ACTIVE', 'node')})", "tensor cores"),
    Query(f"avg({_profiled('DRAM_ACTIVE', 'node')})", "memory"),
    top=1,
)

ALLOCATED_AND_IDLE = rows(
    "Allocated and idle",
    "GPUs of jobs that ran no kernel in more than 99 of 100 samples of the last half hour.",
    {**_GPU, "hpc_job": "Job"},
    Column(
        "max by (node, gpu, hpc_job) (avg_over_time("
        'DCGM_FI_DEV_GPU_UTIL{hpc_job!="",node=~"$node"}[30m])) < 1',
        "Busy",
        "percent",
    ),
)

TEMPERATURE_BY_NODE = graph(
    "Temperature, by node",
    "Temperature of a node's hottest GPU.",
    "celsius",
    Query(f"max by (node) ({per_gpu('GPU_TEMP')})", "{{node}}"),
)

DEGREES_LEFT_UNTIL_THE_BOARD_SLOWS_DOWN = bars(
    "Degrees left until the board slows down",
    "The GPUs closest to their slowdown temperature.",
    "celsius",
    Query(
        f"bottomk(12, {per_gpu('SLOWDOWN_TEMP')} - {per_gpu('GPU_TEMP')})",
        "{{node}} GPU {{gpu}}",
    ),
    levels=((None, "red"), (5, "orange"), (10, "green")),
)

POWER_BY_NODE = graph(
    "Power, by node",
    "Power that a node's GPUs draw together.",
    "watt",
    Query(f"sum by (node) ({per_gpu('POWER_USAGE')})", "{{node}}"),
    stacked=True,
)

CLOCK_OF_THE_SMS_BY_NODE = graph(
    "Clock of the SMs, by node",
    "Clock of a node's slowest GPU. It falls when the GPU is idle.",
    "hertz",
    Query(f"min by (node) ({per_gpu('SM_CLOCK')}) * 1e6", "{{node}}"),
)

CLOCKS_HELD_BACK = graph(
    "Clocks held back",
    "How often in five minutes a GPU's clocks were reduced for another reason than idleness.",
    "short",
    Query(
        "sum by (node, clock_event) (max by (node, gpu, clock_event)"
        ' (DCGM_EXP_CLOCK_EVENTS_COUNT{clock_event!~"gpu_idle|clocks_setting",'
        'node=~"$node"}))',
        "{{node}} {{clock_event}}",
    ),
)

ERRORS_OF_THE_BOARDS = rows(
    "Errors of the boards",
    "Uncorrectable errors of memory since the driver was loaded, rows of memory that"
    " were replaced, whether one still has to be, and whether that failed.",
    _GPU,
    Column(per_gpu("ECC_DBE_VOL_TOTAL"), "Uncorrectable errors"),
    Column(per_gpu("UNCORRECTABLE_REMAPPED_ROWS"), "Rows replaced"),
    Column(per_gpu("ROW_REMAP_PENDING"), "Replacement pending", "bool_yes_no"),
    Column(per_gpu("ROW_REMAP_FAILURE"), "Replacement failed", "bool_yes_no"),
    Column(per_gpu("PCIE_REPLAY_COUNTER"), "PCIe replays"),
)

XIDS = rows(
    "XIDs",
    "XIDs that the driver reported since the boot, with the validation's verdict.",
    {"node": "Node", "pci_bus_id": "Bus", "xid": "XID", "verdict": "Verdict"},
    Column(
        'max by (node, pci_bus_id, xid, verdict) (plumbline_kernel_xid_total{node=~"$node"})',
        "Times",
    ),
)

ERRORS_OF_NVLINK = graph(
    "Errors of NVLink",
    "Errors per second, summed over a GPU's links.",
    "ops",
    Query(
        f"sum by (node) ({_per_second('NVLINK_REPLAY_ERROR_COUNT_TOTAL')})",
        "{{node}} replays",
    ),
    Query(
        f"sum by (node) ({_per_second('NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL')})",
        "{{node}} CRC",
    ),
    Query(
        f"sum by (node) ({_per_second('NVLINK_RECOVERY_ERROR_COUNT_TOTAL')})",
        "{{node}} recoveries",
    ),
)

PCIE_LINKS = rows(
    "PCIe links",
    "Lanes and generation now, and the most that board and slot can. A generation falls"
    " while a board is idle; lanes do not.",
    _GPU,
    Column(per_gpu("PCIE_LINK_WIDTH"), "Lanes"),
    Column(per_gpu("PCIE_MAX_LINK_WIDTH"), "of"),
    Column(per_gpu("PCIE_LINK_GEN"), "Generation"),
    Column(per_gpu("PCIE_MAX_LINK_GEN"), "at most"),
)

BOARD = board(
    "gpus",
    "GPU fleet",
    "Which GPUs are busy, how busy, and which are faulty?",
    section(
        "At a glance",
        [GPUS_SEEN, GPUS_DECLARED, GPUS_MISSING, POWER, HOTTEST],
        [BUSY, MEMORY_USED, ALLOCATED],
    ),
    section("Work", [BUSY_BY_NODE, MEMORY_USED_BY_NODE], [ENGINES_AT_WORK, ALLOCATED_AND_IDLE]),
    section(
        "Heat, power and clocks",
        [TEMPERATURE_BY_NODE, DEGREES_LEFT_UNTIL_THE_BOARD_SLOWS_DOWN],
        [POWER_BY_NODE, CLOCK_OF_THE_SMS_BY_NODE, CLOCKS_HELD_BACK],
    ),
    section("Health", [ERRORS_OF_THE_BOARDS, XIDS], [ERRORS_OF_NVLINK, PCIE_LINKS]),
)
