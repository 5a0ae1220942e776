"""Node detail: what does a node do, and what of it is full, hot or broken?"""

from roles.grafana.dashboards.shared import (
    Column,
    Query,
    above,
    bars,
    below,
    board,
    gpu_memory,
    graph,
    number,
    per_gpu,
    rows,
    section,
    states,
)

UP = {0: ("no answer", "red"), 1: ("answers", "green")}
SERVICE = {0: ("stopped somewhere", "red"), 1: ("runs", "green")}


def _of_node(metric: str) -> str:
    return f'{metric}{{node=~"$node"}}'


def _rate(metric: str, where: str = "") -> str:
    return f'rate({metric}{{node=~"$node"{where}}}[$__rate_interval])'


_CPUS = 'count by (node) (node_cpu_seconds_total{mode="idle",node=~"$node"})'
_IDLE, _BUSY = ',mode="idle"', ',mode!="idle"'
_NIC = ',device!~"lo|veth.*|docker.*|br-.*"'

HOSTS_THAT_ANSWER = number(
    "Hosts that answer",
    "Hosts that Prometheus scrapes now.",
    "short",
    'sum(up{job="node",node=~"$node"})',
)

SINCE_THE_LAST_BOOT = number(
    "Since the last boot",
    "The shortest, if several nodes are chosen.",
    "s",
    f"min(time() - {_of_node('node_boot_time_seconds')})",
)

CPUS = number("CPUs", "CPUs that the system reports.", "short", f"sum({_CPUS})")

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
    Query('min by (node) (up{job="node",node=~"$node"})', "{{node}}"),
    UP,
)

SERVICES = states(
    "Services",
    "Whether a service runs on all of the nodes that have it.",
    Query(
        'min by (name) (node_systemd_unit_state{state="active",type!="oneshot",node=~"$node"})',
        "{{name}}",
    ),
    SERVICE,
)

CPU_BUSY = graph(
    "CPU busy",
    "The mean over a node's CPUs.",
    "percentunit",
    Query(
        f"1 - avg by (node) ({_rate('node_cpu_seconds_total', _IDLE)})",
        "{{node}}",
    ),
    top=1,
)

WHAT_CPUS_DO = graph(
    "What CPUs do",
    "CPUs busy in each mode, over the nodes.",
    "short",
    Query(
        f"sum by (mode) ({_rate('node_cpu_seconds_total', _BUSY)})",
        "{{mode}}",
    ),
    stacked=True,
)

LOAD_FOR_EACH_CPU = graph(
    "Load for each CPU",
    "Over 1, processes wait for a CPU or for a disk.",
    "short",
    Query(f"max by (node) ({_of_node('node_load1')}) / on (node) {_CPUS}", "{{node}}"),
)

MEMORY_USED = graph(
    "Memory used",
    "Memory that is not available to programs.",
    "percentunit",
    Query(
        f"1 - {_of_node('node_memory_MemAvailable_bytes')}"
        f" / {_of_node('node_memory_MemTotal_bytes')}",
        "{{node}}",
    ),
    top=1,
)

MEMORY_AVAILABLE = graph(
    "Memory available",
    "Memory that programs can still get without swapping.",
    "bytes",
    Query(_of_node("node_memory_MemAvailable_bytes"), "{{node}}"),
)

FILESYSTEMS = bars(
    "Filesystems",
    "The fullest filesystems.",
    "percentunit",
    Query(
        "topk(12, max by (node, mountpoint) (1 - node_filesystem_avail_bytes"
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
        f"max by (node) ({_rate('node_disk_io_time_seconds_total')})",
        "{{node}}",
    ),
    top=1,
)

DISKS = graph(
    "Disks",
    "Bytes read and written.",
    "binBps",
    Query(f"sum by (node) ({_rate('node_disk_read_bytes_total')})", "{{node}} read"),
    Query(f"sum by (node) ({_rate('node_disk_written_bytes_total')})", "{{node}} written"),
)

ETHERNET = graph(
    "Ethernet",
    "All interfaces but those of containers.",
    "Bps",
    Query(
        f"sum by (node) ({_rate('node_network_receive_bytes_total', _NIC)})",
        "{{node}} in",
    ),
    Query(
        f"sum by (node) ({_rate('node_network_transmit_bytes_total', _NIC)})",
        "{{node}} out",
    ),
)

INFINIBAND = graph(
    "InfiniBand",
    "All ports.",
    "Bps",
    Query(
        f"sum by (node) ({_rate('node_infiniband_port_data_received_bytes_total')})",
        "{{node}} in",
    ),
    Query(
        f"sum by (node) ({_rate('node_infiniband_port_data_transmitted_bytes_total')})",
        "{{node}} out",
    ),
)

INFINIBAND_PORTS = rows(
    "InfiniBand ports",
    "The negotiated rate, and how often the link went down.",
    {"node": "Node", "device": "Device", "port": "Port"},
    Column(
        f"max by (node, device, port) ({_of_node('node_infiniband_rate_bytes_per_second')}) * 8",
        "Rate",
        "bps",
    ),
    Column(
        f"max by (node, device, port) ({_of_node('node_infiniband_link_downed_total')})",
        "Times down",
    ),
)

GPU_BUSY = graph(
    "GPU busy",
    "The time in which a kernel ran.",
    "percent",
    Query(per_gpu("GPU_UTIL"), "{{node}} {{gpu}}"),
    top=100,
)

GPU_MEMORY_USED = graph(
    "GPU memory used",
    "If a GPU is split by MIG, all of its instances together.",
    "mbytes",
    Query(gpu_memory("FB_USED"), "{{node}} {{gpu}}"),
)

GPU_TEMPERATURE = graph(
    "GPU temperature",
    "Of the board.",
    "celsius",
    Query(per_gpu("GPU_TEMP"), "{{node}} {{gpu}}"),
)

GPU_POWER = graph(
    "GPU power",
    "Power that the GPU draws.",
    "watt",
    Query(per_gpu("POWER_USAGE"), "{{node}} {{gpu}}"),
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
        [HOSTS, SERVICES],
    ),
    section(
        "CPU and memory",
        [CPU_BUSY, WHAT_CPUS_DO, LOAD_FOR_EACH_CPU],
        [MEMORY_USED, MEMORY_AVAILABLE],
    ),
    section(
        "Disks and network",
        [FILESYSTEMS, DISKS_BUSY, DISKS],
        [ETHERNET, INFINIBAND, INFINIBAND_PORTS],
    ),
    section("GPUs", [GPU_BUSY, GPU_MEMORY_USED], [GPU_TEMPERATURE, GPU_POWER]),
)
