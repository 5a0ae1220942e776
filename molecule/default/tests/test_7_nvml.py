"""Faults that NVML tells, seen through real jobs: a stand-in for NVML answers on three nodes.

Each fault is a line of one node's description (tests/standins/nvml/description.md), or one of its
kernel log. The run must fail, name that node and that GPU and no other, and go on without the node.
Each run of the suite takes a while: those that scripts/test does not leave for --full are a healthy
one, one with a lost GPU, and one with all other faults at once, no two of one check on one node.
With --full they are seen three at a time too, one on each node.
What every run made of its fault is written to .cache/test/nvml-faults.md, the table of
docs/understand/faults.md.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.live_cluster import REPOSITORY
from validation import suites

TABLE = REPOSITORY / ".cache/test/nvml-faults.md"
NODES = ["gpu1", "gpu2", "gpu3"]
DESCRIPTION = "/etc/plumbline-fake-nvml.conf"
KERNEL_LOG = "/var/log/kern.log"
NOT_COUNTED = "NVML counts 1 GPUs, 2 declared: without /dev/nvidia1"
XID = "NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus."
XID_TOLD = "GPU 1: XID 79 (GPU has fallen off the bus)"
LOWERED = {("clocks", "gpu1"): "GPU 1: power limit 350 W, 700 W by default"}
# What the suite full has beside gpu and quick.
LONG = tuple(
    name
    for suite in ("network", "training")
    for name in suites.load(suite).checks
    if name not in (*suites.load("gpu").checks, *suites.load("quick").checks)
)
HEALTH = ("driver", "ecc", "xid", "pcie", "nvlink", "clocks", "processes", "mig")


@pytest.fixture(scope="module")
def up(operator):
    """Starts the cluster with these arguments; the nodes are those that create made."""

    def start(*arguments: str) -> None:
        size = ("--compute=3", "--gpus=2", f"--os={operator.system}")
        done = operator.virtual_cluster(
            "up", *size, f"--inventory={operator.inventory}", *arguments
        )
        assert done.returncode == 0, done.stderr

    start("--nvml")
    yield start
    start()


@pytest.fixture
def validate(operator, up, tmp_path):
    del up

    return lambda *arguments: operator.prove(tmp_path / "run", *arguments)


# Trainings whose ranks start as those of fsdp and expert_parallel do. molecule/localise has them.
ALIKE = ("tensor_parallel", "schedules", "mesh")
# What is the network's takes seconds.
TRAININGS = tuple(name for name in LONG if name not in ("pairs", "collectives"))


@pytest.mark.parametrize(
    "skipped",
    [TRAININGS, pytest.param(ALIKE, marks=pytest.mark.long)],
    ids=["all but most trainings", "all"],
)
def test_a_healthy_cluster_passes_and_no_health_check_is_skipped(validate, skipped):
    done = validate("--suite", "full", "--skip", ",".join(skipped))
    assert done.code == 0, done.output
    assert done.nodes("unproven") == NODES  # a run without some checks proves no node
    assert done.verdicts("fail", "inconclusive", "warn") == {}
    assert {(check, name) for check in HEALTH for name in NODES} <= done.verdicts("pass").keys()
    assert "a stand-in for NVML" in done.output
    of_all_nodes = {"all_reduce", "ddp", "pipeline", "fsdp", "expert_parallel", "inference"}
    for check in of_all_nodes.difference(skipped):
        assert done.hosts(check) == NODES


# Checks of all tiers: which node is at fault, who goes on, and with whom.
EACH_TIER = "slurm_state,hostname,gpus,driver,clocks,gemm,hbm,all_reduce,ddp,pipeline"


@pytest.mark.parametrize(
    "chosen",
    [("--only", EACH_TIER), pytest.param(("--skip", ",".join(LONG)), marks=pytest.mark.long)],
    ids=["each tier", "all but the long ones"],
)
def test_a_node_with_a_fault_takes_no_part_in_what_follows(validate, up, tmp_path, chosen):
    """Described in a folder, as an operator does it; all tiers.

    A warning keeps nobody out. A run without some checks proves no node.
    """
    folder = tmp_path / "described"
    folder.mkdir()
    (folder / "gpu1.conf").write_text("gpu.1.power_limit_mw = 350000\n")
    (folder / "gpu2.conf").write_text("# one board is lost\ngpu.1.error.* = GPU_IS_LOST\n")
    up("--nvml", str(folder))
    try:
        done = validate("--suite", "full", *chosen)
    finally:
        up("--nvml")
    assert done.code == 1, done.output
    assert (done.nodes("failing"), done.nodes("suspect")) == (["gpu2"], [])
    assert done.nodes("unproven") == ["gpu1", "gpu3"]
    lost = "NVML: GPU is lost (code 15)"
    accused = done.verdicts("fail", "inconclusive")
    assert accused["driver", "gpu2"] == f"GPU 1: gives no answers: {lost}"
    assert accused["gpus", "gpu2"] == f"NVML answers for 1 GPUs, 2 declared: GPU 1: {lost}"
    assert {subject for _, subject in accused} == {"gpu2"}
    assert done.verdicts("warn") == LOWERED
    for check in ("all_reduce", "ddp", "pipeline"):
        assert done.hosts(check) == ["gpu1", "gpu3"]


# Name, check, what is said of the GPU, and what the check makes of it.
FAULTS = [
    ("a lost GPU", "driver", "error.* = GPU_IS_LOST", "gives no answers"),
    (
        "no permission",
        "driver",
        "error.nvmlDeviceGetHandleByIndex_v2 = NO_PERMISSION",
        "Insufficient Permissions",
    ),
    ("a reset is asked for", "driver", "field.230 = 1", "asks for a GPU reset"),
    (
        "no answer in time",
        "driver",
        "delay_ms.nvmlDeviceGetPowerUsage = forever",
        "did not answer within 30 s",
    ),
    ("uncorrectable errors", "ecc", "ecc_volatile_uncorrected = 3", "3 uncorrectable ECC errors"),
    ("a row to be remapped", "ecc", "remapped_rows_pending = 1", "waits for a reset"),
    ("a row not remapped", "ecc", "remapped_rows_failure = 1", "remapping a memory row"),
    ("half the lanes", "pcie", "pcie_width = 8", "8 PCIe lanes of 16"),
    ("an old generation", "pcie", "pcie_generation = 3\nclock_reasons = 0", "generation 3 of 5"),
    ("a link down", "nvlink", "nvlink.7.active = 0", "NVLink 7 is down"),
    ("the fabric not joined", "nvlink", "fabric_state = 2", "in progress, not completed"),
    ("too hot", "clocks", "clock_reasons = 0x40", "hardware thermal slowdown"),
    ("a stranger's process", "processes", "process.0 = 4242 2048 python", "4242 (python)"),
    ("MIG on", "mig", "mig = 1", "MIG is on"),
]


def of_gpu(number: int, lines: str) -> str:
    """Lines of a description, of one GPU."""
    return "\n".join(f"gpu.{number}.{line}" for line in lines.split("\n"))


THREE = [FAULTS[first : first + len(NODES)] for first in range(0, len(FAULTS), len(NODES))]


@pytest.fixture
def written(node):
    """A function that writes lines below a file of a node's; afterwards the file is as before."""
    changed = []

    def write(name: str, path: str, lines: str) -> None:
        with (host := node(name)).sudo():
            kept = f"/run/healthy-{Path(path).name}"
            host.check_output(f"cp {path} {kept}")
            changed.append((host, path, kept))
            host.check_output(f"printf '%s\\n' {shlex.quote(lines)} >> {path}")

    yield write
    for host, path, kept in changed:
        with host.sudo():
            host.check_output(f"cp {kept} {path}")


def note(name: str, line: str, check: str, message: str) -> None:
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    with TABLE.open("a") as table:
        shown = "<br>".join(f"`{part}`" for part in line.split("\n"))
        table.write(f"| {name} | {shown} | {check} | {message} |\n")


# On which GPU of which node each fault is, when all but the lost GPU of the run above are there at
# once. Of a GPU that does not answer, or is not counted as GPU 1 of gpu3, nothing else can be told,
# and of one with MIG nothing of processes.
TOGETHER = {
    "gpu1": {
        "no permission": 1,
        "uncorrectable errors": 0,
        "half the lanes": 0,
        "a link down": 0,
        "too hot": 0,
        "a stranger's process": 0,
    },
    "gpu2": {
        "no answer in time": 1,
        "a row to be remapped": 0,
        "an old generation": 0,
        "the fabric not joined": 0,
    },
    "gpu3": {
        "a reset is asked for": 0,
        "a row not remapped": 0,
        "MIG on": 0,
    },
}


def test_all_faults_at_once_are_told_each_of_its_gpu(validate, written):
    by_name = {fault[0]: fault for fault in FAULTS}
    put = [(node, gpu, by_name[name]) for node, of in TOGETHER.items() for name, gpu in of.items()]
    assert len(put) == len(FAULTS) - 1
    described = {"gpu1": [], "gpu2": [], "gpu3": ["count = 1"]}
    for node, gpu, (_, _, lines, _) in put:
        described[node].append(of_gpu(gpu, lines))
    for node, several in described.items():
        written(node, DESCRIPTION, "\n".join(several))
    written("gpu2", KERNEL_LOG, f"gpu2 kernel: [ 4711.500000] {XID.replace('2b', '1b')}")
    done = validate("--suite", "full", "--only", ",".join(HEALTH))
    assert done.code == 1, done.output
    accused = done.verdicts("fail", "inconclusive", "warn")
    assert accused.pop(("xid", "gpu2")) == XID_TOLD.replace("GPU 1", "GPU 0")
    assert NOT_COUNTED in accused["driver", "gpu3"]
    assert accused.keys() == {(check, node) for node, _, (_, check, _, _) in put}
    for node, gpu, (fault, check, lines, sentence) in put:
        message = accused[check, node]
        note(fault, of_gpu(gpu, lines), check, message)
        assert sentence in message
        assert re.findall(r"GPU (\d+): ", message) == [str(gpu)]
    assert (done.nodes("failing"), done.nodes("suspect")) == (NODES, [])


@pytest.mark.long
@pytest.mark.parametrize("faults", THREE, ids=[", ".join(f[0] for f in each) for each in THREE])
def test_a_fault_of_one_gpu_is_told_of_that_gpu(validate, written, faults):
    at = dict(zip(NODES, faults, strict=False))
    for name, (_, _, lines, _) in at.items():
        written(name, DESCRIPTION, of_gpu(1, lines))
    done = validate("--suite", "full", "--only", ",".join(HEALTH))
    assert done.code == 1, done.output
    accused = done.verdicts("fail", "inconclusive", "warn")
    assert accused.keys() == {(check, name) for name, (_, check, _, _) in at.items()}
    assert (done.nodes("failing"), done.nodes("suspect")) == (list(at), [])
    for name, (fault, check, lines, sentence) in at.items():
        message = accused[check, name]
        note(fault, of_gpu(1, lines), check, message)
        assert message.startswith("GPU 1: ")
        assert sentence in message
        assert "GPU 0" not in message


@pytest.mark.long
def test_what_is_no_fault_of_the_board_is_told_too(validate, written):
    """A GPU that is not counted, an XID in the kernel's log, a power limit that was lowered."""
    written("gpu1", DESCRIPTION, "gpu.1.power_limit_mw = 350000")
    written("gpu2", DESCRIPTION, "count = 1")
    written("gpu3", KERNEL_LOG, f"gpu3 kernel: [ 4711.500000] {XID}")
    done = validate("--suite", "full", "--only", ",".join(HEALTH))
    assert done.code == 1, done.output
    accused = done.verdicts("fail", "inconclusive")
    assert accused == {("driver", "gpu2"): NOT_COUNTED, ("xid", "gpu3"): XID_TOLD}
    note("a GPU not counted", "count = 1", "driver", accused["driver", "gpu2"])
    note("an XID", XID, "xid", accused["xid", "gpu3"])
    assert done.verdicts("warn") == LOWERED  # and accuses nobody
    assert (done.nodes("failing"), done.nodes("suspect")) == (["gpu2", "gpu3"], [])


def test_the_stand_in_goes_as_it_came(node, up):
    """Before anybody has it, test_3 shows that nobody is asked."""
    ask = f"ls {DESCRIPTION} && /sbin/ldconfig -p | grep -q nvidia-ml"
    assert node("gpu2").run(ask).rc == 0
    up()
    try:
        assert {node(name).run(f"ls {DESCRIPTION}").rc for name in NODES} == {2}
        assert node("gpu2").run("/sbin/ldconfig -p | grep nvidia-ml").rc == 1
    finally:
        up("--nvml")


@pytest.mark.long
def test_without_the_stand_in_nobody_is_asked(validate, up):
    up()
    try:
        done = validate("--suite", "gpu", "--only", "gpus,driver")
    finally:
        up("--nvml")
    assert done.code == 0, done.output
    assert {subject for check, subject in done.verdicts("skip") if check == "driver"} == set(NODES)
    assert {subject for check, subject in done.verdicts("pass") if check == "gpus"} == set(NODES)
