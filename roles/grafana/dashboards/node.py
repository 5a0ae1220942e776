"""Node detail: what does a node do, and what of it is full, hot or broken?

Of many nodes each panel shows those that are worst at its end.
"""

from roles.grafana.dashboards.shared import (
    FEW,
    WORST,
    Column,
    Query,
    above,
    bars,
    below,
    board,
    choice,
    gpu_memory,
    graph,
    number,
    of_node,
    per_gpu,
    rows,
    section,
    states,
    worst,
)

UP = {0: ("no answer", "red"), 1: ("answers", "green")}
SERVICE = {0: ("stopped somewhere", "red"), 1: ("runs", "green")}


def _of_node(metric: str) -> str:
    return f'{metric}{{node=~"$node"}}'


def _rate(metric: str, where: str = "") -> str:
    return f'rate({metric}{{node=~"$node"{where}}}[$__rate_interval])'


_CPUS = of_node("node_cpu:count")
_DOWN = (
    f"topk({WORST}, max by (node, device, port) ({_of_node('node_infiniband_link_downed_total')}))"
)
_GPUS = 'node=~"$node",gpu=~"$gpu"'
_NIC = ',device!~"lo|veth.*|docker.*|br-.*"'

_HOTTEST = f"topk({WORST}, {per_gpu('GPU_TEMP', where=_GPUS)})"

HOSTS_THAT_ANSWER = number(
    "Hosts that answer",
    "Hosts that Prometheus scrapes now.",
    "locale",
    'sum(up{job="node",node=~"$node"})',
)

SINCE_THE_LAST_BOOT = number(
    "Since the last boot",
    "The shortest, if several nodes are chosen.",
    "s",
    f"min(time() - {_of_node('node_boot_time_seconds')})",
)

CPUS = number("CPUs", "CPUs that the system reports.", "locale", f"sum({_CPUS})")

MEMORY = number(
    "Memory",
    "Total memory.",
    "bytes",
    f"sum({_of_node('node_memory_MemTotal_bytes')})",
)

CERTIFICATES_END_IN = number(
    "Certificates end in",
    "Time until the first certificate expires. The playbook renews them.",
    "s",
    f"min({_of_node('plumbline_certificate_expiry_timestamp_seconds')}) - time()",
    below(3 * 86400, 21 * 86400),
)

CLOCK_IS_OFF_BY = number(
    "Clock is off by",
    "The largest offset that the time services report.",
    "s",
    f"max(abs({_of_node('node_timex_offset_seconds')}))",
    above(0.1, 0.5),
)

HOSTS = states(
    "Hosts",
    "Whether Prometheus can scrape the host.",
    Query(worst('min by (node) (up{job="node",node=~"$node"})', least=True), "{{node}}"),
    UP,
)

SERVICES = states(
    "Services",
    "Whether a service runs on all of the nodes that have it.",
    Query(
        worst(
            'min by (name) (node_systemd_unit_state{state="active",type!="oneshot",node=~"$node"})',
            least=True,
        ),
        "{{name}}",
    ),
    SERVICE,
)

CPU_BUSY = graph(
    "CPU busy",
    "The mean over a node's CPUs.",
    "percentunit",
    Query(
        worst(of_node("node_cpu:busy")),
        "{{node}}",
    ),
    top=1,
)

PROCESSES_THAT_WAIT = graph(
    "Processes that wait",
    "Processes that wait for a disk or a filesystem and can do nothing else.",
    "short",
    Query(worst(f"max by (node) ({_of_node('node_procs_blocked')})"), "{{node}}"),
)

LOAD_FOR_EACH_CPU = graph(
    "Load for each CPU",
    "Over 1, processes wait for a CPU or for a disk.",
    "short",
    Query(worst(f"max by (node) ({_of_node('node_load1')}) / on (node) {_CPUS}"), "{{node}}"),
)

MEMORY_USED = graph(
    "Memory used",
    "Memory that is not available to programs.",
    "percentunit",
    Query(
        worst(
            f"1 - {_of_node('node_memory_MemAvailable_bytes')}"
            f" / {_of_node('node_memory_MemTotal_bytes')}"
        ),
        "{{node}}",
    ),
    top=1,
)

MEMORY_AVAILABLE = graph(
    "Memory available",
    "Memory that programs can still get without swapping.",
    "bytes",
    Query(worst(_of_node("node_memory_MemAvailable_bytes"), least=True), "{{node}}"),
)

FILESYSTEMS = bars(
    "Filesystems",
    "The fullest filesystems.",
    "percentunit",
    Query(
        f"topk({WORST}, max by (node, mountpoint) (1 - node_filesystem_avail_bytes"
        '{node=~"$node"} / (node_filesystem_size_bytes > 0)))',
        "{{node}} {{mountpoint}}",
    ),
    levels=above(0.8, 0.9),
    top=1,
)

DISKS_BUSY = graph(
    "Disks busy",
    "The share of the time in which a disk had something to do; the busiest of a node.",
    "percentunit",
    Query(
        worst(f"max by (node) ({_rate('node_disk_io_time_seconds_total')})"),
        "{{node}}",
    ),
    top=1,
)

DISKS = graph(
    "Disks",
    "Bytes read and written.",
    "binBps",
    Query(worst(f"sum by (node) ({_rate('node_disk_read_bytes_total')})", FEW), "{{node}} read"),
    Query(
        worst(f"sum by (node) ({_rate('node_disk_written_bytes_total')})", FEW), "{{node}} written"
    ),
)

ETHERNET = graph(
    "Ethernet",
    "All interfaces but those of containers.",
    "Bps",
    Query(
        worst(f"sum by (node) ({_rate('node_network_receive_bytes_total', _NIC)})", FEW),
        "{{node}} in",
    ),
    Query(
        worst(f"sum by (node) ({_rate('node_network_transmit_bytes_total', _NIC)})", FEW),
        "{{node}} out",
    ),
)

INFINIBAND = graph(
    "InfiniBand",
    "All ports.",
    "Bps",
    Query(
        worst(f"sum by (node) ({_rate('node_infiniband_port_data_received_bytes_total')})", FEW),
        "{{node}} in",
    ),
    Query(
        worst(f"sum by (node) ({_rate('node_infiniband_port_data_transmitted_bytes_total')})", FEW),
        "{{node}} out",
    ),
)

INFINIBAND_PORTS = rows(
    "InfiniBand ports",
    f"The negotiated rate, and how often the link went down; the {WORST} that did most often.",
    {"node": "Node", "device": "Device", "port": "Port"},
    Column(
        f"max by (node, device, port) ({_of_node('node_infiniband_rate_bytes_per_second')}) * 8"
        f" and on (node, device, port) {_DOWN}",
        "Rate",
        "bps",
    ),
    Column(_DOWN, "Times down"),
    first="Times down",
)

GPU_BUSY = graph(
    "GPU busy",
    "The time in which a kernel ran; the least busy.",
    "percent",
    Query(worst(per_gpu("GPU_UTIL", where=_GPUS), least=True), "{{node}} {{gpu}}"),
    top=100,
)

GPU_MEMORY_USED = graph(
    "GPU memory used",
    "If a GPU is split by MIG, all of its instances together.",
    "mbytes",
    Query(worst(gpu_memory("FB_USED", where=_GPUS)), "{{node}} {{gpu}}"),
)

GPU_TEMPERATURE = graph(
    "GPU temperature",
    "Of the board.",
    "celsius",
    Query(worst(per_gpu("GPU_TEMP", where=_GPUS)), "{{node}} {{gpu}}"),
)

GPU_POWER = graph(
    "GPU power",
    "Power that the GPU draws.",
    "watt",
    Query(worst(per_gpu("POWER_USAGE", where=_GPUS)), "{{node}} {{gpu}}"),
)

GPUS = rows(
    "GPUs",
    f"What each has, and its job; the {WORST} hottest.",
    {"node": "Node", "gpu": "GPU"},
    Column(f"{per_gpu('GPU_UTIL', where=_GPUS)} and on (node, gpu) {_HOTTEST}", "Busy", "percent"),
    Column(_HOTTEST, "Temperature", "celsius"),
    Column(f"{per_gpu('POWER_USAGE', where=_GPUS)} and on (node, gpu) {_HOTTEST}", "Power", "watt"),
    first="Temperature",
)

JOBS_ON_THE_GPUS = rows(
    "Jobs on the GPUs",
    f"Jobs that have them now; {WORST} of them.",
    {"hpc_job": "Job", "user": "User", "account": "Account", "partition": "Partition"},
    Column(
        f"topk({WORST}, count by (hpc_job, user, account, partition)"
        " (max by (hpc_job, user, account, partition, node)"
        ' (slurm_job_gpu_info{node=~"$node"})))',
        "Nodes",
    ),
    none="No job has a GPU here.",
)

ALERTS_OF_THE_NODES = rows(
    "Alerts",
    f"Alerts that fire here; {FEW} of each severity.",
    {"severity": "Severity", "alertname": "Alert", "node": "Node"},
    Column(
        f"topk by (severity) ({FEW}, max by (severity, alertname, node)"
        ' (ALERTS{alertstate="firing",node=~"$node",node!=""}))'
    ),
    none="No alert fires.",
)

BOARD = board(
    "node",
    "Node detail",
    "What does a node do, and which of its parts is full, hot or broken? Choose a few nodes.",
    section(
        "At a glance",
        [
            HOSTS_THAT_ANSWER,
            SINCE_THE_LAST_BOOT,
            CPUS,
            MEMORY,
            CERTIFICATES_END_IN,
            CLOCK_IS_OFF_BY,
        ],
        [ALERTS_OF_THE_NODES, JOBS_ON_THE_GPUS],
        [HOSTS, SERVICES],
    ),
    section("GPUs", [GPUS, GPU_BUSY], [GPU_MEMORY_USED, GPU_TEMPERATURE, GPU_POWER]),
    section(
        "CPU and memory",
        [CPU_BUSY, PROCESSES_THAT_WAIT, LOAD_FOR_EACH_CPU],
        [MEMORY_USED, MEMORY_AVAILABLE],
    ),
    section(
        "Disks and network",
        [FILESYSTEMS, DISKS_BUSY, DISKS],
        [ETHERNET, INFINIBAND, INFINIBAND_PORTS],
    ),
    variables=[choice("gpu", "GPU", 'DCGM_FI_DEV_GPU_TEMP{node=~"$node"}')],
)
