"""GPU fleet: which GPUs work, how hard, and which of them are ill?"""

from roles.grafana.dashboards.shared import (
    WORST,
    Column,
    Query,
    above,
    bars,
    board,
    gpu_memory,
    graph,
    number,
    of_node,
    per_gpu,
    rows,
    section,
    share,
    spread,
    worst,
)

_SEEN = 'count(group by (node, UUID) (DCGM_FI_DEV_GPU_TEMP{node=~"$node"}))'
# With two monitoring hosts it is told twice.
_DECLARED = 'sum(max by (node, model) (plumbline_expected_gpus{node=~"$node"}))'
_LOOKED_AT = 'up{job="dcgm"} == 1 or plumbline_exporter_last_run_timestamp_seconds{exporter="gpu"}'
_DECLARED_OF = 'sum by (node) (max by (node, model) (plumbline_expected_gpus{node=~"$node"}))'
_SEEN_OF = 'count by (node) (group by (node, UUID) (DCGM_FI_DEV_GPU_TEMP{node=~"$node"}))'
_GPU = {"node": "Node", "gpu": "GPU"}


def _per_second(name: str) -> str:
    counter = f'rate(DCGM_FI_DEV_{name}{{node=~"$node"}}[$__rate_interval])'
    return f"max by (node, gpu) ({counter})"


# What a board has that a healthy one has not, the worst of it the greatest.
_ILL = " + ".join(
    f"{weight} * clamp_max({per_gpu(name)}, 1)"
    for name, weight in (
        ("ROW_REMAP_FAILURE", 1000),
        ("ECC_DBE_VOL_TOTAL", 100),
        ("ROW_REMAP_PENDING", 10),
        ("UNCORRECTABLE_REMAPPED_ROWS", 1),
    )
)
_LANES_MISSING = f"{per_gpu('PCIE_MAX_LINK_WIDTH')} - {per_gpu('PCIE_LINK_WIDTH')} > 0"
_HELD_BACK = (
    "max by (node, gpu, clock_event) (DCGM_EXP_CLOCK_EVENTS_COUNT{"
    'clock_event!~"gpu_idle|clocks_setting",node=~"$node"})'
)


def _of_ill(field: str) -> str:
    return f"{per_gpu(field)} and on (node, gpu) topk({WORST}, {_ILL} > 0)"


def _of_narrow(field: str) -> str:
    return f"{per_gpu(field)} and on (node, gpu) topk({WORST}, {_LANES_MISSING})"


GPUS_SEEN = number("GPUs seen", "GPUs that an exporter sees.", "locale", _SEEN)

GPUS_DECLARED = number("GPUs declared", "GPUs that the inventory declares.", "locale", _DECLARED)

GPUS_MISSING = number(
    "GPUs missing",
    "GPUs that are declared but not seen, on nodes with an exporter.",
    "locale",
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

HOW_BUSY_THE_GPUS_ARE = graph(
    "How busy the GPUs are",
    "GPUs by the time in which a kernel ran.",
    "short",
    Query('sum by (busy) (max by (node, busy) (node:dcgm_gpus:busy{node=~"$node"}))', "{{busy}}"),
    stacked=True,
)

MEMORY_USED_OF_EACH_NODE = graph(
    "Memory used, of each node",
    "Used share of the memory of a node's GPUs: the highest, the lowest, and those between.",
    "percentunit",
    *spread(of_node("dcgm_fb_used:ratio")),
    top=1,
)

ENGINES_AT_WORK = graph(
    "Engines at work",
    "Share of the time in which they were active, the mean over the nodes. Only dcgm-exporter"
    " reports it.",
    "percentunit",
    Query(
        'avg by (engine) (max by (node, engine) (node:dcgm_engines:avg{node=~"$node"}))',
        "{{engine}}",
    ),
    top=1,
)

ALLOCATED_AND_IDLE = rows(
    "Allocated and idle",
    "GPUs of jobs that ran no kernel in more than 99 of 100 samples of the last half hour;"
    f" {WORST} of them.",
    {**_GPU, "hpc_job": "Job"},
    Column(
        f"bottomk({WORST}, max by (node, gpu, hpc_job) (avg_over_time("
        'DCGM_FI_DEV_GPU_UTIL{hpc_job!="",node=~"$node"}[30m])) < 1)',
        "Busy",
        "percent",
    ),
    none="Jobs use all of their GPUs.",
)

TEMPERATURE_OF_EACH_NODE = graph(
    "Temperature of each node",
    "Of its hottest GPU: the highest, the lowest, and those between.",
    "celsius",
    *spread(of_node("dcgm_gpu_temp:max")),
)

HOTTEST_NODES = graph(
    "Hottest nodes",
    f"Temperature of a node's hottest GPU, of the {WORST} nodes that are hottest at the end.",
    "celsius",
    Query(worst(of_node("dcgm_gpu_temp:max")), "{{node}}"),
)

DEGREES_LEFT_UNTIL_THE_BOARD_SLOWS_DOWN = bars(
    "Degrees left until the board slows down",
    f"The {WORST} GPUs closest to their slowdown temperature.",
    "celsius",
    Query(
        f"bottomk({WORST}, {per_gpu('SLOWDOWN_TEMP')} - {per_gpu('GPU_TEMP')})",
        "{{node}} GPU {{gpu}}",
    ),
    levels=((None, "red"), (5, "orange"), (10, "green")),
)

POWER_OF_EACH_NODE = graph(
    "Power of each node",
    "Power that a node's GPUs draw together: the most, the least, and those between.",
    "watt",
    *spread(of_node("dcgm_power_usage:sum")),
)

CLOCK_OF_THE_SMS = graph(
    "Clock of the SMs",
    "Of each node's slowest GPU that is busy: the highest, the lowest, and those between.",
    "hertz",
    *spread(f"{of_node('dcgm_sm_clock:min')} * 1e6"),
)

CLOCKS_HELD_BACK = graph(
    "Clocks held back",
    "GPUs whose clocks were reduced in five minutes for another reason than idleness, by reason.",
    "short",
    Query(
        "sum by (clock_event) (max by (node, clock_event)"
        ' (node:dcgm_gpus:held_back{node=~"$node"}))',
        "{{clock_event}}",
    ),
)

GPUS_HELD_BACK = rows(
    "GPUs held back",
    f"The {WORST} GPUs whose clocks were reduced most often in the last five minutes.",
    {**_GPU, "clock_event": "Why"},
    Column(f"topk({WORST}, {_HELD_BACK} > 0)", "Times"),
    none="No clock is held back.",
)

GPUS_WITH_ERRORS = number(
    "GPUs with errors",
    "GPUs with uncorrectable errors of memory since the driver was loaded, or with rows of memory"
    " that were replaced, must be, or cannot be.",
    "locale",
    f"count({_ILL} > 0) or 0 * count({per_gpu('ECC_DBE_VOL_TOTAL')})",
    above(1),
)

ERRORS_OF_THE_BOARDS = rows(
    "Errors of the boards",
    "Uncorrectable errors of memory since the driver was loaded, rows of memory that"
    " were replaced, whether one still has to be, and whether that failed;"
    f" the {WORST} worst of those that have any.",
    _GPU,
    Column(_of_ill("ECC_DBE_VOL_TOTAL"), "Uncorrectable errors"),
    Column(_of_ill("UNCORRECTABLE_REMAPPED_ROWS"), "Rows replaced"),
    Column(_of_ill("ROW_REMAP_PENDING"), "Replacement pending", "bool_yes_no"),
    Column(_of_ill("ROW_REMAP_FAILURE"), "Replacement failed", "bool_yes_no"),
    none="No GPU has an error of its memory.",
    first="Uncorrectable errors",
)

PCIE_REPLAYS = rows(
    "PCIe replays",
    f"Transfers that were repeated since the boot, of the {WORST} GPUs with the most.",
    _GPU,
    Column(f"topk({WORST}, {per_gpu('PCIE_REPLAY_COUNTER')} > 0)", "Replays"),
    none="No transfer was repeated.",
)

XIDS = rows(
    "XIDs",
    "XIDs that the driver reported since the boot, with the validation's verdict;"
    f" the {WORST} most frequent.",
    {"node": "Node", "pci_bus_id": "Bus", "xid": "XID", "verdict": "Verdict"},
    Column(
        f"topk({WORST}, max by (node, pci_bus_id, xid, verdict)"
        ' (plumbline_kernel_xid_total{node=~"$node"} > 0))',
        "Times",
    ),
    none="The driver reported no XID.",
)

# The second are those of NVLink 5.
_RECOVERIES = (
    f"{_per_second('NVLINK_RECOVERY_ERROR_COUNT_TOTAL')}"
    f" or {_per_second('NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS')}"
)
ERRORS_OF_NVLINK = graph(
    "Errors of NVLink",
    "Errors per second on a node's links, of the nodes with the most at the end.",
    "ops",
    Query(
        worst(f"sum by (node) ({_per_second('NVLINK_REPLAY_ERROR_COUNT_TOTAL')})", 7),
        "{{node}} replays",
    ),
    Query(
        worst(f"sum by (node) ({_per_second('NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL')})", 7),
        "{{node}} CRC",
    ),
    Query(worst(f"sum by (node) ({_RECOVERIES})", 7), "{{node}} recoveries"),
)

PCIE_LINKS = rows(
    "PCIe links that lack lanes",
    "Lanes and generation now, and the most that board and slot can have;"
    f" the {WORST} links that lack most. A generation falls while a board is idle; lanes do not.",
    _GPU,
    Column(_of_narrow("PCIE_LINK_WIDTH"), "Lanes"),
    Column(_of_narrow("PCIE_MAX_LINK_WIDTH"), "of"),
    Column(_of_narrow("PCIE_LINK_GEN"), "Generation"),
    Column(_of_narrow("PCIE_MAX_LINK_GEN"), "at most"),
    none="All links have all of their lanes.",
)

BOARD = board(
    "gpus",
    "GPU fleet",
    "Which GPUs are busy, how busy, and which are faulty?",
    section(
        "At a glance",
        [GPUS_SEEN, GPUS_DECLARED, GPUS_MISSING, GPUS_WITH_ERRORS, POWER, HOTTEST],
        [BUSY, MEMORY_USED, ALLOCATED],
    ),
    section(
        "What is wrong",
        [ERRORS_OF_THE_BOARDS, XIDS],
        [ERRORS_OF_NVLINK, PCIE_REPLAYS, PCIE_LINKS],
        [GPUS_HELD_BACK, DEGREES_LEFT_UNTIL_THE_BOARD_SLOWS_DOWN],
    ),
    section(
        "Work",
        [HOW_BUSY_THE_GPUS_ARE, ALLOCATED_AND_IDLE],
        [MEMORY_USED_OF_EACH_NODE, ENGINES_AT_WORK],
    ),
    section(
        "Heat, power and clocks",
        [TEMPERATURE_OF_EACH_NODE, HOTTEST_NODES],
        [POWER_OF_EACH_NODE, CLOCK_OF_THE_SMS, CLOCKS_HELD_BACK],
    ),
)
