"""Faults that NVML tells, seen through real jobs: a stand-in for NVML answers on three nodes.

Each fault is a line of one node's description (tests/standins/nvml/description.md), or one of its
kernel log. The run must fail, name that node and that GPU and no other, and go on without the node.
Faults that one GPU tells by itself are seen three at a time, one on each node.
What every run made of its fault is written to .cache/test/nvml-faults.md; docs/faults.md has it.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.live_cluster import REPOSITORY

TABLE = REPOSITORY / ".cache/test/nvml-faults.md"
NODES = ["gpu1", "gpu2", "gpu3"]
DESCRIPTION = "/etc/plumbline-fake-nvml.conf"
KERNEL_LOG = "/var/log/kern.log"
HEALTH = ("driver", "ecc", "xid", "pcie", "nvlink", "clocks", "processes", "mig")


@dataclass(frozen=True)
class Run:
    code: int
    output: str
    folder: Path

    @property
    def results(self) -> list[dict]:
        lines = (self.folder / "results.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def verdicts(self, *verdicts: str) -> dict[tuple[str, str], str]:
        """The messages of all results that have one of these verdicts."""
        return {
            (result["check"], result["subject"]["name"]): result["message"]
            for result in self.results
            if result["verdict"] in verdicts
        }

    def hosts(self, check: str) -> list[str]:
        """The nodes whose ranks a check of the cluster tier was proven with."""
        (result,) = [result for result in self.results if result["check"] == check]
        assert result["verdict"] == "pass", result["message"]
        return sorted({rank["host"] for rank in result["proof"]["ranks"]})

    def nodes(self, standing: str) -> list[str]:
        return (self.folder / f"{standing}_nodes.txt").read_text().split()


@pytest.fixture(scope="module")
def up(operator):
    """Starts the cluster with these arguments; three compute nodes, as test_5 left them."""

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

    def run(*arguments: str) -> Run:
        folder = tmp_path / "run"
        done = operator.validate("--output", folder, *arguments)
        return Run(done.returncode, done.stdout + done.stderr, folder)

    return run


def test_a_healthy_cluster_passes_and_no_health_check_is_skipped(validate):
    done = validate("--suite", "full")
    assert done.code == 0, done.output
    assert done.nodes("passing") == NODES
    assert done.verdicts("fail", "inconclusive", "warn") == {}
    assert {(check, name) for check in HEALTH for name in NODES} <= done.verdicts("pass").keys()
    assert "a stand-in for NVML" in done.output
    for check in ("all_reduce", "ddp", "pipeline"):
        assert done.hosts(check) == NODES


def test_a_node_with_a_fault_takes_no_part_in_what_follows(validate, up, tmp_path):
    """Described in a folder, as an operator does it; all checks, all tiers."""
    folder = tmp_path / "described"
    folder.mkdir()
    (folder / "gpu2.conf").write_text("# one board is lost\ngpu.1.error.* = GPU_IS_LOST\n")
    up("--nvml", str(folder))
    try:
        done = validate("--suite", "full")
    finally:
        up("--nvml")
    assert done.code == 1, done.output
    assert (done.nodes("failing"), done.nodes("suspect")) == (["gpu2"], [])
    assert done.nodes("passing") == ["gpu1", "gpu3"]
    lost = "NVML: GPU is lost (code 15)"
    accused = done.verdicts("fail", "inconclusive", "warn")
    assert accused["driver", "gpu2"] == f"GPU 1: gives no answers: {lost}"
    assert accused["gpus", "gpu2"] == f"NVML answers for 1 GPUs, 2 declared: GPU 1: {lost}"
    assert {subject for _, subject in accused} == {"gpu2"}
    for check in ("all_reduce", "ddp", "pipeline"):
        assert done.hosts(check) == ["gpu1", "gpu3"]


FAULTS = [
    ("a lost GPU", "driver", "gpu.1.error.* = GPU_IS_LOST", "gives no answers"),
    (
        "no permission",
        "driver",
        "gpu.1.error.nvmlDeviceGetHandleByIndex_v2 = NO_PERMISSION",
        "Insufficient Permissions",
    ),
    ("a reset is asked for", "driver", "gpu.1.field.230 = 1", "asks for a GPU reset"),
    (
        "no answer in time",
        "driver",
        "gpu.1.delay_ms.nvmlDeviceGetPowerUsage = forever",
        "did not answer within 30 s",
    ),
    (
        "uncorrectable errors",
        "ecc",
        "gpu.1.ecc_volatile_uncorrected = 3",
        "3 uncorrectable ECC errors",
    ),
    ("a row to be remapped", "ecc", "gpu.1.remapped_rows_pending = 1", "waits for a reset"),
    ("a row not remapped", "ecc", "gpu.1.remapped_rows_failure = 1", "remapping a memory row"),
    ("half the lanes", "pcie", "gpu.1.pcie_width = 8", "8 PCIe lanes of 16"),
    (
        "an old generation",
        "pcie",
        "gpu.1.pcie_generation = 3\ngpu.1.clock_reasons = 0",
        "generation 3 of 5",
    ),
    ("a link down", "nvlink", "gpu.1.nvlink.7.active = 0", "NVLink 7 is down"),
    ("the fabric not joined", "nvlink", "gpu.1.fabric_state = 2", "in progress, not completed"),
    ("too hot", "clocks", "gpu.1.clock_reasons = 0x40", "hardware thermal slowdown"),
    ("a stranger's process", "processes", "gpu.1.process.0 = 4242 2048 python", "4242 (python)"),
    ("MIG on", "mig", "gpu.1.mig = 1", "MIG is on"),
]


THREE = [FAULTS[first : first + len(NODES)] for first in range(0, len(FAULTS), len(NODES))]


@pytest.fixture
def written(node):
    """A function that writes lines below a file of a node's; afterwards the file is as before."""
    changed = []

    def write(name: str, path: str, lines: str) -> None:
        with (host := node(name)).sudo():
            host.check_output(f"cp {path} /run/healthy")
            changed.append((host, path))
            host.check_output(f"printf '%s\\n' {shlex.quote(lines)} >> {path}")

    yield write
    for host, path in changed:
        with host.sudo():
            host.check_output(f"cp /run/healthy {path}")


def note(name: str, line: str, check: str, message: str) -> None:
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    with TABLE.open("a") as table:
        shown = "<br>".join(f"`{part}`" for part in line.split("\n"))
        table.write(f"| {name} | {shown} | {check} | {message} |\n")


# Each is a run of the suite, so only the first of them are looked at each time.
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(
            each,
            id=", ".join(name for name, *_ in each),
            marks=[pytest.mark.long] if each not in THREE[:2] else [],
        )
        for each in THREE
    ],
)
def test_a_fault_of_one_gpu_is_told_of_that_gpu(validate, written, faults):
    at = dict(zip(NODES, faults, strict=False))
    for name, (_, _, line, _) in at.items():
        written(name, DESCRIPTION, line)
    done = validate("--suite", "full", "--only", ",".join(HEALTH))
    assert done.code == 1, done.output
    accused = done.verdicts("fail", "inconclusive", "warn")
    assert accused.keys() == {(check, name) for name, (_, check, _, _) in at.items()}
    assert (done.nodes("failing"), done.nodes("suspect")) == (list(at), [])
    for name, (fault, check, line, said) in at.items():
        message = accused[check, name]
        note(fault, line, check, message)
        assert message.startswith("GPU 1: ")
        assert said in message
        assert "GPU 0" not in message


def test_what_is_no_fault_of_the_board_is_told_too(validate, written):
    """A GPU that is not counted, an XID in the kernel's log, a power limit that was lowered."""
    xid = "NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus."
    written("gpu1", DESCRIPTION, "gpu.1.power_limit_mw = 350000")
    written("gpu2", DESCRIPTION, "count = 1")
    written("gpu3", KERNEL_LOG, f"gpu3 kernel: [ 4711.500000] {xid}")
    done = validate("--suite", "full", "--only", ",".join(HEALTH))
    assert done.code == 1, done.output
    accused = done.verdicts("fail", "inconclusive")
    assert accused == {
        ("driver", "gpu2"): "NVML counts 1 GPUs, 2 declared: without /dev/nvidia1",
        ("xid", "gpu3"): "GPU 1: XID 79 (GPU has fallen off the bus)",
    }
    note("a GPU not counted", "count = 1", "driver", accused["driver", "gpu2"])
    note("an XID", xid, "xid", accused["xid", "gpu3"])
    warned = {("clocks", "gpu1"): "GPU 1: power limit 350 W, 700 W by default"}
    assert done.verdicts("warn") == warned  # and accuses nobody
    assert (done.nodes("failing"), done.nodes("suspect")) == (["gpu2", "gpu3"], [])


def test_without_the_stand_in_nobody_is_asked(validate, up):
    up()
    try:
        done = validate("--suite", "gpu", "--only", "gpus,driver")
    finally:
        up("--nvml")
    assert done.code == 0, done.output
    assert {subject for check, subject in done.verdicts("skip") if check == "driver"} == set(NODES)
    assert {subject for check, subject in done.verdicts("pass") if check == "gpus"} == set(NODES)
