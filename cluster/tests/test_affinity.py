"""`Cores=` of gres.conf from sysfs, as roles/slurm/files/affinity.sh reads it from trees of files.

The trees have the shape of machines that are sold: DGX H100 (`nvidia-smi topo -m` of its manual),
a server whose firmware numbers CPUs by turns over its sockets, and one EPYC in four NUMA nodes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.slurm import affinity

SCRIPT = Path(__file__).parents[2] / "roles/slurm/files/affinity.sh"


CPU0 = "devices/system/cpu/cpu0/topology"
WHOLE = f"{CPU0}/physical_package_id:0\n{CPU0}/thread_siblings_list:0"


@dataclass(frozen=True)
class Machine:
    """Cores of each socket as tuples of their threads, NUMA nodes, and CPUs near each GPU."""

    sockets: Sequence[Sequence[Sequence[int]]]
    numa: Sequence[str]
    gpus: Mapping[str, str]  # address -> local_cpulist
    minors: Mapping[str, int] | None = None


def told(folder: Path, machine: Machine) -> str:
    """What the script prints on such a machine."""
    sys, proc = folder / "sys", folder / "proc"

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="ascii")

    for socket, cores in enumerate(machine.sockets):
        for threads in cores:
            for cpu in threads:
                topology = sys / f"devices/system/cpu/cpu{cpu}/topology"
                write(topology / "physical_package_id", str(socket))
                write(topology / "thread_siblings_list", ",".join(map(str, threads)))
    write(sys / "devices/system/cpu/cpufreq/boost", "1")
    for number, cpus in enumerate(machine.numa):
        write(sys / f"devices/system/node/node{number}/cpulist", cpus)
    for address, cpus in {**machine.gpus, "0000:01:00.0": "0-1"}.items():
        device = sys / "bus/pci/devices" / address
        write(device / "vendor", "0x10de" if address in machine.gpus else "0x8086")
        write(device / "class", "0x030200")
        write(device / "local_cpulist", cpus)
    for address, minor in (machine.minors or {}).items():
        path = proc / "driver/nvidia/gpus" / address / "information"
        write(path, f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}")
    done = subprocess.run(
        ["/bin/sh", str(SCRIPT)],
        env={"SYSFS": str(sys), "PROC": str(proc), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def addresses(count: int) -> list[str]:
    return [f"0000:{16 * (number + 1):02x}:00.0" for number in range(count)]


def dgx(cpus: Callable[[int], str], minors: Mapping[str, int] | None = None) -> Machine:
    """Two sockets of 56 cores with two threads; the second threads come after all first ones."""
    sockets = [
        [(core, core + 112) for core in range(socket * 56, (socket + 1) * 56)] for socket in (0, 1)
    ]
    gpus = {address: cpus(number) for number, address in enumerate(addresses(8))}
    return Machine(sockets, ["0-55,112-167", "56-111,168-223"], gpus, minors)


def by_half(number: int) -> str:
    return "0-55,112-167" if number < 4 else "56-111,168-223"


def by_turns() -> Machine:
    """Two sockets of four cores: even CPUs are of the first, and 8 to 15 are second threads."""
    sockets = [[(core, core + 8) for core in range(socket, 8, 2)] for socket in (0, 1)]
    cpus = ["0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"]
    return Machine(sockets, cpus, dict(zip(addresses(2), cpus, strict=True)))


def quarters() -> Machine:
    """One socket of 64 cores in four NUMA nodes, a GPU near each but the third, without threads."""
    numa = ["0-15", "16-31", "32-47", "48-63"]
    gpus = dict(zip(addresses(4), ("16-31", "0-15", "48-63", "48-63"), strict=True))
    return Machine([[(core,) for core in range(64)]], numa, gpus)


def test_two_sockets_with_two_threads_of_each_core(tmp_path: Path) -> None:
    assert affinity.described(told(tmp_path, dgx(by_half)), "h100_sxm") == {
        "slurm_node_gres": [
            {"Name": "gpu", "Type": "h100_sxm", "File": "/dev/nvidia[0-3]", "Cores": "0-55"},
            {"Name": "gpu", "Type": "h100_sxm", "File": "/dev/nvidia[4-7]", "Cores": "56-111"},
        ]
    }


def test_cores_are_slurms_and_not_the_firmwares(tmp_path: Path) -> None:
    lines = affinity.described(told(tmp_path, by_turns()))["slurm_node_gres"]
    assert [(line["File"], line["Cores"]) for line in lines] == [
        ("/dev/nvidia0", "0-3"),
        ("/dev/nvidia1", "4-7"),
    ]


def test_numa_nodes_of_one_socket(tmp_path: Path) -> None:
    lines = affinity.described(told(tmp_path, quarters()))["slurm_node_gres"]
    assert [(line["File"], line["Cores"]) for line in lines] == [
        ("/dev/nvidia0", "16-31"),
        ("/dev/nvidia1", "0-15"),
        ("/dev/nvidia[2-3]", "48-63"),
    ]


def test_device_files_are_the_drivers_and_not_in_the_order_of_addresses(tmp_path: Path) -> None:
    minors = {address: (number + 4) % 8 for number, address in enumerate(addresses(8))}
    lines = affinity.described(told(tmp_path, dgx(by_half, minors)))["slurm_node_gres"]
    assert [(line["File"], line["Cores"]) for line in lines] == [
        ("/dev/nvidia[0-3]", "56-111"),
        ("/dev/nvidia[4-7]", "0-55"),
    ]


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        (dgx(lambda number: "0-223"), "says that all CPUs are near"),
        (dgx(lambda number: ""), "says that no CPUs are near"),
        (dgx(lambda number: "0-55" if number else ""), "says that no CPUs are near"),
        (dgx(lambda number: "everywhere"), "'everywhere' is no list of numbers"),
        (dgx(by_half, {addresses(8)[0]: 0}), "runs some of the GPUs and not the others"),
        (
            Machine(
                [[(core,) for core in range(8)]], ["0,2,4,6", "1,3,5,7"], {"0000:10:00.0": "0,2"}
            ),
            "do not follow one another",
        ),
    ],
)
def test_where_the_kernel_does_not_say_it_nothing_is_made_up(
    tmp_path: Path, machine: Machine, why: str
) -> None:
    text = told(tmp_path, machine)
    found = affinity.described(text)
    assert set(found) == {"slurm_node_gres_unknown"}
    assert why in found["slurm_node_gres_unknown"]
    entry = {"Name": "gpu", "File": "/dev/nvidia0", "Cores": "0-55"}
    (sentence,) = affinity.problems(text, [entry], "gpu1")
    assert why in sentence
    assert "set slurm_check_cores: false" in sentence


def test_where_all_cores_are_alike_there_is_nothing_to_say(tmp_path: Path) -> None:
    small = Machine([[(0, 2), (1, 3)]], ["0-3"], {"0000:10:00.0": "0-3"})
    assert affinity.described(told(tmp_path / "small", small)) == {}
    without = Machine([[(0,)], [(1,)]], ["0", "1"], {})
    assert affinity.described(told(tmp_path / "without", without)) == {}
    assert affinity.problems(told(tmp_path / "without", without), [{"Cores": "0"}], "gpu1") == []


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"File": "/dev/nvidia[0-3]", "Cores": "0-55"}, ""),
        ({"file": "/dev/nvidia[4-7]", "cores": [*range(56, 112)]}, ""),
        ({"File": "/dev/nvidia[0-3]"}, ""),
        ({"File": "/dev/nvidia3", "Cores": "56-111"}, "near it are 0-55; set what playbooks/desc"),
        ({"File": "/dev/nvidia0", "Cores": "0-55,112-167"}, "near it are 0-55; set what"),
        ({"File": "/dev/nvidia8", "Cores": "0-55"}, "/dev/nvidia8, a GPU that the node does not"),
        ({"File": "/dev/nvidia0", "Cores": "x"}, "'x' is no list of numbers such as 0-3,8."),
        (
            {"MultipleFiles": "/dev/nvidia5,/dev/nvidia-caps/nvidia-cap30", "Cores": "0-55"},
            "for /dev/nvidia5, and near it are 56-111",
        ),
    ],
)
def test_declared_cores_are_compared_with_the_node(
    tmp_path: Path, entry: dict[str, object], sentence: str
) -> None:
    found = affinity.problems(told(tmp_path, dgx(by_half)), [entry], "gpu1")
    assert len(found) == bool(sentence)
    assert all(one.startswith("gpu1: slurm_node_gres has Cores") for one in found)
    assert all(sentence in one for one in found)


@pytest.mark.parametrize(
    "text", ["", f"{CPU0}/physical_package_id:0", "nonsense", f"{WHOLE}\ngpu 1", f"{WHOLE}x"]
)
def test_what_is_not_understood_is_no_answer(text: str) -> None:
    assert affinity.problems(text, [{"File": "/dev/nvidia0", "Cores": "0"}], "gpu1") != []
    assert "slurm_node_gres_unknown" in affinity.described(text)


def test_cores_are_looked_for_only_where_they_are_declared() -> None:
    assert affinity.has_cores([{"Name": "gpu"}, {"Name": "gpu", "cores": "0-3"}])
    assert not affinity.has_cores([{"Name": "gpu"}])
    assert not affinity.has_cores("nonsense")
