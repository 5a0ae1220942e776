"""The program that cuts a node's GPUs, with a stand-in for nvidia-smi and a /proc of its own."""

import json
import os
import stat
from importlib import import_module
from pathlib import Path

import pytest

from cluster import mig as boards

ROOT = Path(__file__).resolve().parents[3]
CAPS = 511
mig = import_module("roles.nvidia_mig.files.plumbline-mig")
HALVES = {"3g.20gb": 2}


def minors(gpus=2, instances=15):
    """As the driver numbers them: all that there can be, one after another."""
    lines, number = ["config 1", "monitor 2"], 2
    for gpu in range(gpus):
        for gi in range(instances):
            for name in ("", *(f"ci{ci}/" for ci in range(8))):
                number += 1
                lines.append(f"gpu{gpu}/gi{gi}/{name}access {number}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def device_files(monkeypatch):
    """Device files that were made: path -> (major, minor). Only root may make real ones."""
    files = {}

    def mknod(path, mode, device):
        assert stat.S_ISCHR(mode)
        Path(path).write_text(f"{os.major(device)}:{os.minor(device)}")
        files[Path(path).name] = device

    monkeypatch.setattr(os, "mknod", mknod)
    monkeypatch.setattr(
        mig,
        "_is_device",
        lambda path, numbers: path.is_file() and path.read_text() == ":".join(map(str, numbers)),
    )
    return files


class Node:
    def __init__(self, tmp_path, monkeypatch, reset="none", layout=HALVES):
        self.state = tmp_path / "smi.json"
        monkeypatch.setenv("NVIDIA_SMI_STANDIN", str(self.state))
        board = boards.BOARDS["a100_sxm"][0]
        self.write(
            gpus=[
                {
                    "uuid": f"GPU-{number}",
                    "minor": 1 - number,  # not in the order in which nvidia-smi counts them
                    "on": False,
                    "pending": False,
                    "reset": reset,
                    "instances": [],
                    "processes": [],
                }
                for number in range(2)
            ],
            board={name: [list(places.starts), places.size] for name, places in board.items()},
            calls=[],
        )
        proc = tmp_path / "proc"
        self.devices, self.minors = proc / "devices", proc / "driver/nvidia-caps/mig-minors"
        self.minors.parent.mkdir(parents=True)
        self.minors.write_text(minors())
        self.devices.write_text(f"Character devices:\n  1 mem\n{CAPS} nvidia-caps\n195 nvidia\n")
        self.host = mig.Host(
            smi=str(ROOT / "tests/standins/nvidia_smi.py"),
            proc=proc,
            plan=tmp_path / "plan.json",
            map=tmp_path / "map.json",
            names=tmp_path / "dev",
        )
        self.declare(layout)

    def declare(self, layout):
        plan = boards.plan("a100_sxm", 2, layout)
        for entry in plan["instances"]:
            entry["devices"] = [str(self.host.names / Path(path).name) for path in entry["devices"]]
        self.host.plan.write_text(json.dumps(plan))
        self.plan = plan

    def read(self):
        return json.loads(self.state.read_text())

    def write(self, **changes):
        before = self.read() if self.state.exists() else {}
        self.state.write_text(json.dumps(before | changes))

    def edit(self, change):
        state = self.read()
        change(state)
        self.state.write_text(json.dumps(state))

    def apply(self):
        return mig.main(["apply"], self.host)

    def look(self):
        return mig.look(self.host, self.plan)

    @property
    def map(self):
        return json.loads(self.host.map.read_text())

    @property
    def names(self):
        return sorted(path.name for path in self.host.names.glob("*"))

    def runs(self, command):
        """A process with this command line."""
        process = self.host.proc / "4712"
        process.mkdir()
        (process / "cmdline").write_bytes(command)


@pytest.fixture
def node(tmp_path, monkeypatch, device_files):
    return Node(tmp_path, monkeypatch)


def test_gpus_are_cut_once_and_named(node):
    assert (node.look()["change"], node.look()["found"]) == (True, "2 GPUs: MIG off")
    assert node.apply() == 0
    gpu = node.read()["gpus"][0]
    assert {instance["profile"] for instance in gpu["instances"]} == {"3g.20gb"}
    assert [instance["start"] for instance in gpu["instances"]] == [0, 4]
    assert node.names == [
        f"gpu{gpu}-3g.20gb-{number}.{what}"
        for gpu in (0, 1)
        for number in (0, 1)
        for what in ("ci", "gi")
    ]
    assert node.look() == {
        "error": "",
        "expected": "2 GPUs: 2 of 3g.20gb",
        "found": "2 GPUs: 2 of 3g.20gb",
        "change": False,
        "reboot": False,
        "busy": [],
        "names": [8, 8],
    }
    calls = len(node.read()["calls"])
    before = node.read()["gpus"]
    assert node.apply() == 0
    assert (len(node.read()["calls"]), node.read()["gpus"]) == (calls, before)


def test_names_go_by_the_device_file_of_the_gpu_and_the_drivers_numbers(node):
    assert node.apply() == 0
    first = node.map[0]
    second_gpu = node.read()["gpus"][1]  # the one that is /dev/nvidia0
    known = mig.minors(minors())
    assert first == {
        "uuid": second_gpu["instances"][0]["uuid"],
        "devices": [str(node.host.names / f"gpu0-3g.20gb-0.{what}") for what in ("gi", "ci")],
        "numbers": [[CAPS, known["gpu0/gi1/access"]], [CAPS, known["gpu0/gi1/ci0/access"]]],
    }
    numbers = [tuple(pair) for entry in node.map for pair in entry["numbers"]]
    assert len(set(numbers)) == len(numbers) == 8


def test_the_order_in_which_instances_were_made_changes_no_name(node):
    assert node.apply() == 0
    before = node.map
    node.edit(lambda state: [gpu["instances"].reverse() for gpu in state["gpus"]])
    assert (node.look()["names"], node.apply(), node.map) == ([8, 8], 0, before)


def test_another_layout_replaces_the_one_that_is_there(node):
    assert node.apply() == 0
    node.declare({"1g.5gb": 3, "4g.20gb": 1})
    assert node.look()["found"] == "2 GPUs: 2 of 3g.20gb"
    assert node.look()["names"] == [16, 0]
    assert node.apply() == 0
    assert node.look()["found"] == "2 GPUs: 3 of 1g.5gb, 1 of 4g.20gb"
    assert len(node.names) == 16
    node.declare({})
    assert node.apply() == 0
    assert (node.look()["found"], node.names) == ("2 GPUs: MIG off", [])
    assert not node.host.map.exists()


def test_only_the_gpu_that_differs_is_touched(node):
    assert node.apply() == 0
    node.edit(lambda state: state["gpus"][0]["instances"].pop())
    node.write(calls=[])
    assert node.look()["found"] == "GPU 0: 2 of 3g.20gb; GPU 1: 1 of 3g.20gb"
    assert node.apply() == 0
    assert {call[call.index("-i") + 1] for call in node.read()["calls"]} == {"GPU-0"}
    assert node.look()["names"] == [8, 8]


def test_the_layout_outlives_nothing_but_the_names_come_back(node):
    """After a boot there are neither instances nor names."""
    assert node.apply() == 0
    node.edit(lambda state: [gpu.update(instances=[]) for gpu in state["gpus"]])
    mig.forget(node.host)
    assert node.apply() == 0
    assert node.look()["names"] == [8, 8]


def test_names_that_are_wrong_are_seen_and_mended(node):
    assert node.apply() == 0
    (node.host.names / "gpu0-3g.20gb-0.gi").write_text("0:0")
    (node.host.names / "other").write_text("0:0")
    assert node.look()["names"] == [8, 7]
    assert node.apply() == 0
    assert (node.look()["names"], len(node.names)) == ([8, 8], 8)
    node.host.map.write_text("[]")
    assert node.look()["names"] == [8, 0]


def test_a_name_counts_with_the_numbers_of_its_instance_alone(tmp_path):
    assert mig._is_device(Path("/dev/null"), [1, 3])
    assert not mig._is_device(Path("/dev/null"), [1, 5])
    (tmp_path / "link").symlink_to("/dev/null")
    (tmp_path / "file").touch()
    for name in ("link", "file", "none"):
        assert not mig._is_device(tmp_path / name, [1, 3])


def test_nothing_changes_while_a_process_uses_the_gpu(node, capsys):
    assert node.apply() == 0
    before = node.names, node.map
    node.declare({"7g.40gb": 1})
    node.edit(lambda state: state["gpus"][0].update(processes=[4711]))
    node.write(calls=[])
    assert node.look()["busy"] == ["process 4711 uses GPU 1"]
    assert node.apply() == mig.NOT_DONE
    assert "not cut while they are used: process 4711 uses GPU 1" in capsys.readouterr().err
    assert (node.read()["calls"], (node.names, node.map)) == ([], before)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("command", "jobs"),
    [
        (b"slurmstepd: [123.extern]\0", ["job 123 runs on the node"]),
        (b"slurmstepd: [7.0]", ["job 7 runs on the node"]),
        (b"/usr/sbin/slurmstepd\0infinity\0", []),
        (b"", []),
        (b"less slurmstepd: [1.0]", []),
    ],
)
def test_nothing_changes_while_a_job_runs(node, command, jobs):
    node.runs(command)
    assert node.look()["busy"] == jobs
    assert node.apply() == (mig.NOT_DONE if jobs else 0)
    assert bool(node.read()["calls"]) is not bool(jobs)


def test_a_job_does_not_matter_where_nothing_is_to_change(node):
    assert node.apply() == 0
    node.runs(b"slurmstepd: [123.0]")
    mig.forget(node.host)
    assert node.apply() == 0
    assert node.look()["names"] == [8, 8]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("reset", "code"), [("none", 0), ("told", 0), ("boot", 3)])
def test_the_mode_is_changed_for_all_before_a_boot_is_asked_for(
    tmp_path, monkeypatch, device_files, capsys, reset, code
):
    node = Node(tmp_path, monkeypatch, reset=reset)
    assert node.apply() == code
    assert [gpu["pending"] for gpu in node.read()["gpus"]] == [True, True]
    assert node.look()["reboot"] is bool(code)
    errors = capsys.readouterr().err
    assert ("MIG of GPU 1 is on only after the next boot" in errors) is bool(code)
    if code:
        assert (node.names, node.host.map.exists()) == ([], False)
        node.edit(lambda state: [gpu.update(on=True) for gpu in state["gpus"]])  # the boot
        assert node.apply() == 0
    assert node.look()["names"] == [8, 8]


def test_a_layout_that_cannot_be_made_leaves_no_names(node, capsys):
    assert node.apply() == 0
    node.declare({"1g.5gb": 2})
    node.edit(lambda state: state["board"].update({"1g.5gb": [[0], 1]}))
    assert node.apply() == mig.NOT_DONE
    assert "Insufficient Resources" in capsys.readouterr().err
    assert (node.names, node.host.map.exists()) == ([], False)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda node: node.edit(lambda s: s["gpus"].pop()), "has 1 GPUs, 2 are declared"),
        (lambda node: node.devices.write_text("195 nvidia\n"), "has no device nvidia-caps"),
        (lambda node: node.minors.write_text("config 1"), "mig-minors has no gpu0/gi1/access"),
        (lambda node: node.minors.unlink(), "mig-minors cannot be read: No such file"),
    ],
)
def test_what_is_not_there_is_told_and_leaves_no_names(node, capsys, spoil, sentence):
    assert node.apply() == 0
    spoil(node)
    looked = node.look()
    assert looked["names"][1] == 0
    assert node.apply() == mig.NOT_DONE
    assert sentence in capsys.readouterr().err
    assert (node.names, node.host.map.exists()) == ([], False)


def test_no_driver_is_an_answer_and_not_a_layout(node):
    host = mig.Host(smi="/nowhere/nvidia-smi", map=node.host.map, names=node.host.names)
    looked = mig.look(host, node.plan)
    assert looked["error"] == "nvidia-smi is not installed; the driver comes first"
    assert (looked["found"], looked["change"]) == ("", True)
    assert mig.look(host, boards.plan("a100_sxm", 2, {}))["change"] is False


def test_what_nvidia_smi_prints_is_read_as_it_prints_it():
    """As NVIDIA's MIG user guide has it of an A100; older drivers give longer UUIDs."""
    listed = (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)\n"
        "  MIG 1g.5gb      Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)\n"
        "  MIG 3g.20gb     Device  1: (UUID: MIG-GPU-5d5ba0d6/1/0)\n"
        "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-2)\n"
    )
    gpu = "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77"
    assert mig.names(listed) == {
        (gpu, 0): ("1g.5gb", "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"),
        (gpu, 1): ("3g.20gb", "MIG-GPU-5d5ba0d6/1/0"),
    }
    with pytest.raises(mig.Failed, match="not understood"):
        mig.parsed("<nvidia_smi_log><gpu><uuid>x</uuid></gpu></nvidia_smi_log>", {})


# --- a job's own instances -----------------------------------------------------------------------


@pytest.fixture
def shown(node, monkeypatch, capsys):
    """What a task is told when it may open some instances, by number, and Slurm names some."""
    assert node.apply() == 0
    uuids = [entry["uuid"] for entry in node.map]

    def ask(allowed, **environ):
        paths = {path for number in allowed for path in node.map[number]["devices"]}
        monkeypatch.setattr(mig, "_may_open", lambda path: path in paths)
        host = mig.Host(map=node.host.map, environ=environ)
        code = mig.main(["task"], host)
        output = capsys.readouterr()
        for number, uuid in enumerate(uuids):
            output = output._replace(out=output.out.replace(uuid, f"#{number}"))
        return code, output.out, output.err

    return ask


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("allowed", "environ", "line"),
    [
        ([2], {"SLURM_STEP_GPUS": "2"}, "export CUDA_VISIBLE_DEVICES=#2\n"),
        ([1, 3], {"SLURM_STEP_GPUS": "1,3"}, "export CUDA_VISIBLE_DEVICES=#1,#3\n"),
        ([1, 3], {"SLURM_STEP_GPUS": "3"}, "export CUDA_VISIBLE_DEVICES=#3\n"),  # one task of two
        ([1], {"SLURM_STEP_GPUS": "0"}, "export CUDA_VISIBLE_DEVICES=#1\n"),  # the same, in 24.11
        ([0], {"SLURM_JOB_GPUS": "0"}, "export CUDA_VISIBLE_DEVICES=#0\n"),  # the batch script
        ([], {"SLURM_JOB_GPUS": "0"}, ""),  # a step without GPUs of a job that has some
        ([0, 1, 2, 3], {}, ""),  # not confined, and nothing asked for
        ([0, 1, 2, 3], {"SLURM_STEP_GPUS": "1"}, "export CUDA_VISIBLE_DEVICES=#1\n"),
    ],
)
def test_a_task_is_shown_what_slurm_gave_it(shown, allowed, environ, line):
    assert shown(allowed, **environ) == (0, line, "")


@pytest.mark.sample(1)
@pytest.mark.parametrize(("allowed", "instances"), [([1], "0,1"), ([1, 3], "0"), ([0, 1, 2], "3")])
def test_a_task_that_cannot_open_what_slurm_gave_it_does_not_start(shown, allowed, instances):
    code, out, err = shown(allowed, SLURM_STEP_GPUS=instances)
    assert (code, out) == (mig.NOT_DONE, "")
    assert f"gave this task the instances {instances}, and it can open" in err


def test_a_command_that_there_is_not(capsys):
    assert mig.main(["look", "{}", "{}"]) == 2
    assert "usage" in capsys.readouterr().err
