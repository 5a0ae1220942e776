"""The compute payload: its timing by the order of calls, its figures, and its processes."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from cluster.errors import CannotRun
from validation.checks import gemm
from validation.model import Verdict
from validation.payloads import (
    compute,
    config,
    gpu_device,
    gpu_gemm,
    gpu_links,
    gpu_memory,
    gpu_process,
    gpu_timing,
    gpu_worker,
)
from validation.slurm.job import bundle
from validation.tests import standin_compute as standin
from validation.tests.judging import judged
from validation.tests.processes import runs, wait_for

ROOT = Path(__file__).parents[2]
CPU = gpu_device.Device(torch.device("cpu"), None, gpu_timing.cpu_stopwatch())


def small(**changes):
    defaults = {key: value for key, value in standin.CPU.items() if key != "nonce"}
    return compute.Config(**{**defaults, "dtypes": ("fp32", "bf16"), **changes})


# --- timing ----------------------------------------------------------------------------------


class Recorded:
    """A device whose events, waits and clock note when they are used."""

    def __init__(self, milliseconds):
        self.calls = []
        self.milliseconds = list(milliseconds)
        self.now = 0.0

    def event(self):
        number = sum(call.startswith("event") for call in self.calls)
        self.calls.append(f"event {number}")
        return SimpleNamespace(
            record=lambda: self.calls.append(f"record {number}"),
            elapsed_time=lambda end: self.elapsed(number),
        )

    def elapsed(self, number):
        self.calls.append(f"elapsed {number}")
        return self.milliseconds[number // 2]

    def synchronize(self):
        self.calls.append("synchronize")

    def clock(self):
        self.calls.append("clock")
        self.now += 0.5
        return self.now

    def work(self):
        self.calls.append("work")

    @property
    def watch(self):
        return gpu_timing.Stopwatch(self.event, self.synchronize, self.clock)


def test_events_stand_around_each_repetition_and_the_host_waits_once_at_the_end():
    device = Recorded([4.0, 1.0, 2.0])
    times = gpu_timing.time_each(device.work, 3, device.watch)
    assert device.calls == [
        *("event 0", "event 1", "event 2", "event 3", "event 4", "event 5"),
        *("synchronize", "clock"),
        *("record 0", "work", "record 1"),
        *("record 2", "work", "record 3"),
        *("record 4", "work", "record 5"),
        *("synchronize", "clock"),
        *("elapsed 0", "elapsed 2", "elapsed 4"),
    ]
    assert times == gpu_timing.Times(3, 0.002, 0.001, 0.004, 0.007, 0.5)


@pytest.mark.parametrize(("warm_s", "works"), [(0.0, 2), (0.1, 2 + 25)])
def test_a_device_is_warm_when_it_has_worked_for_some_time(warm_s, works):
    device = Recorded([4.0] * 30)
    watch = gpu_timing.Stopwatch(device.event, device.synchronize, device.clock, warm_s)
    assert gpu_timing.warmed_up(device.work, 2, watch) == 0.004
    assert device.calls.count("work") == works


def test_of_a_warm_device_the_warm_time_counts():
    device = Recorded([4.0] * 2 + [2.0] * 25)
    watch = gpu_timing.Stopwatch(device.event, device.synchronize, device.clock, 0.1)
    assert gpu_timing.warmed_up(device.work, 2, watch) == 0.002


def test_a_cpu_is_timed_by_its_clock():
    clock = iter([10.0, 10.25])
    start, end = (gpu_timing.ClockEvent(lambda: next(clock)) for _ in range(2))
    start.record()
    end.record()
    assert start.elapsed_time(end) == 250


@pytest.mark.parametrize(
    ("seconds", "repetition_s", "least", "count"),
    [(1.0, 0.1, 3, 10), (1.0, 0.3, 3, 4), (1.0, 5.0, 3, 3), (1.0, 1e-9, 3, 5000), (1, 0, 3, 5000)],
)
def test_as_many_repetitions_as_fill_the_time(seconds, repetition_s, least, count):
    assert gpu_timing.enough(seconds, repetition_s, least) == count


def test_what_is_timed_comes_after_all_gpus_are_ready():
    device = Recorded([1.0] * 50)
    order = device.calls
    operands = gpu_gemm.draw(CPU, 16, 1)
    watched = gpu_device.Device(CPU.torch, None, device.watch)
    gpu_gemm.measure(
        "fp32",
        watched,
        operands,
        seconds=0.003,
        sustain_s=0.0,
        least=2,
        warmup=2,
        repeats=2,
        begin=partial(order.append, "begin"),
    )
    before, after = order[: order.index("begin")], order[order.index("begin") :]
    assert not any(call.startswith("record") for call in before)
    assert sum(call.startswith("record") for call in after) == 2 * (2 + 3)


def test_the_memory_begins_when_all_gpus_are_ready():
    device = Recorded([1.0] * 50)
    watched = gpu_device.Device(CPU.torch, None, device.watch)
    gpu_memory.within(
        "copy", watched, 1 << 18, **OFTEN, begin=partial(device.calls.append, "begin")
    )
    before = device.calls[: device.calls.index("begin")]
    assert before == ["synchronize"]
    assert sum(call.startswith("record") for call in device.calls) == 2 * (1 + 2)


# --- products --------------------------------------------------------------------------------


def product(kind="fp32", size=64):
    """Operands and their product, computed once."""
    operands = gpu_gemm.draw(CPU, size, 5)
    multiply, result = gpu_gemm.prepare(kind, CPU, operands)
    multiply()
    return operands, result


@pytest.mark.parametrize("kind", ["bf16", "fp16", "fp32", "fp8"])
@pytest.mark.parametrize("size", [32, 256])
def test_a_right_product_differs_by_rounding_alone(kind, size):
    operands, result = product(kind, size)
    error, _, _ = gpu_gemm.difference(gpu_gemm.KINDS[kind], operands, result)
    assert 0 < error < 3  # 2.3 in fp32 on an Intel Xeon, below 2 on an AMD EPYC


@pytest.mark.parametrize("kind", ["bf16", "fp16", "fp32", "fp8"])
def test_a_wrong_element_is_found_where_it_is(kind):
    operands, result = product(kind)
    row, column = int(operands.rows[3]), int(operands.columns[40])
    result[row, column] = -result[row, column] + 3
    error, *place = gpu_gemm.difference(gpu_gemm.KINDS[kind], operands, result)
    assert error > 4 * float(gemm.ROUNDING.value)
    assert place == [row, column]


def test_what_is_not_a_number_is_found():
    operands, result = product()
    result[int(operands.rows[7]), int(operands.columns[9])] = math.nan
    error, row, column = gpu_gemm.difference(gpu_gemm.KINDS["fp32"], operands, result)
    assert math.isnan(error)
    assert (row, column) == (int(operands.rows[7]), int(operands.columns[9]))


def test_every_tile_has_a_sampled_element():
    operands = gpu_gemm.draw(CPU, 256, 1)
    for numbers in (operands.rows, operands.columns):
        assert (numbers // 4).tolist() == list(range(64))


def test_the_operands_are_the_same_for_a_seed():
    first, second, other = (gpu_gemm.draw(CPU, 32, seed) for seed in (1, 1, 2))
    assert first.data == second.data != other.data
    assert torch.equal(first.a, second.a)
    assert torch.equal(first.b, second.b)
    assert not torch.equal(first.a, first.b)
    assert abs(float(first.a.mean())) < 0.2
    assert 0.9 < float(first.a.std()) < 1.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_hash_changes_with_any_bit_and_with_the_order(dtype):
    numbers = torch.randn(16, 16, generator=torch.Generator().manual_seed(1)).to(dtype)
    before = gpu_gemm.bits(numbers)
    assert gpu_gemm.bits(numbers.clone()) == before
    raw = numbers.view(-1).view(torch.uint8)
    for place in range(0, raw.numel(), 7):
        for bit in range(8):
            raw[place] ^= 1 << bit
            assert gpu_gemm.bits(numbers) != before
            raw[place] ^= 1 << bit
    swapped = numbers.clone()
    swapped[[0, 1]] = numbers[[1, 0]]
    assert gpu_gemm.bits(swapped) != before


def test_the_hash_does_not_depend_on_how_it_is_cut(monkeypatch):
    numbers = torch.randn(32, 32)
    before = gpu_gemm.bits(numbers)
    monkeypatch.setattr(gpu_gemm, "_WORDS_AT_ONCE", 7)
    assert gpu_gemm.bits(numbers) == before


@pytest.mark.parametrize(
    ("capability", "has"),
    [
        ((7, 0), {"fp16", "fp32"}),
        ((7, 5), {"fp16", "fp32"}),
        ((8, 0), {"bf16", "fp16", "tf32", "fp32"}),
        ((8, 9), set(gpu_gemm.KINDS)),
        ((9, 0), set(gpu_gemm.KINDS)),
        ((10, 0), set(gpu_gemm.KINDS)),
    ],
)
def test_what_a_gpu_has_depends_on_its_capability(monkeypatch, capability, has):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    device = gpu_device.Device(torch.device("cpu"), capability, CPU.watch)
    kinds = {kind for kind in gpu_gemm.KINDS if gpu_gemm.unsupported(kind, device) is None}
    assert kinds == has


@pytest.mark.parametrize(
    ("version", "has"), [("2.4.1+cu121", False), ("2.5.0", True), ("?", False)]
)
def test_fp8_is_that_of_torch_2_5_and_newer(monkeypatch, version, has):
    monkeypatch.setattr(torch, "__version__", version)
    assert (gpu_gemm.unsupported("fp8", CPU) is None) == has


def test_an_older_torch_has_no_fp8(monkeypatch):
    monkeypatch.delattr(torch, "_scaled_mm")
    assert gpu_gemm.unsupported("fp8", CPU) == f"torch {torch.__version__} has no fp8"
    assert gpu_gemm.unsupported("bf16", CPU) is None
    assert gpu_gemm.unsupported("tf32", CPU) == "a CPU has no TF32"


# --- memory ----------------------------------------------------------------------------------

OFTEN = {"iterations": 2, "warmup": 1}
NEVER = gpu_timing.Times(2, 0.5, 0.5, 0.5, 1.0, 1.0)


@pytest.mark.parametrize(("operation", "moved"), [("copy", 2), ("triad", 3)])
def test_bytes_read_and_written_count(operation, moved):
    size = 1 << 19
    row = gpu_memory.within(operation, CPU, size, **OFTEN, begin=lambda: None)
    assert (row["bytes"], row["moved"], row["wrong"]) == (size, moved * size, 0)
    assert row["gbs"] == pytest.approx(row["moved"] / row["time_s_median"] / 1e9)


@pytest.mark.parametrize("operation", ["copy", "triad"])
def test_a_result_that_was_not_written_is_wrong(monkeypatch, operation):
    monkeypatch.setattr(gpu_timing, "time_each", lambda *_: NEVER)
    row = gpu_memory.within(operation, CPU, 1 << 18, **OFTEN, begin=lambda: None)
    assert row["wrong"] == 1 << 16


def test_one_wrong_element_counts(monkeypatch):
    real = gpu_timing.time_each

    def flip(work, iterations, watch):
        times = real(work, iterations, watch)
        result = work()
        result[0, 77] += 1
        return times

    monkeypatch.setattr(gpu_timing, "time_each", flip)
    assert gpu_memory.within("triad", CPU, 1 << 18, **OFTEN, begin=lambda: None)["wrong"] == 1


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_bytes_that_did_not_arrive_are_wrong(monkeypatch, direction):
    size = 1000
    assert gpu_memory.with_host(direction, CPU, size, 1, **OFTEN)["wrong"] == 0
    monkeypatch.setattr(gpu_timing, "time_each", lambda *_: NEVER)
    lost = gpu_memory.with_host(direction, CPU, size, 1, **OFTEN)
    assert lost["wrong"] > 0.9 * size
    assert lost["gbs"] == pytest.approx(size / 0.5 / 1e9)


def test_bytes_lost_between_two_gpus_are_wrong(monkeypatch):
    def pair(size):
        return gpu_memory.between(CPU.torch, CPU.torch, CPU.watch, size, 1, **OFTEN)

    assert (pair(4096)["wrong"], pair(4096)["way"]) == (0, "host")
    monkeypatch.setattr(gpu_timing, "time_each", lambda *_: NEVER)
    assert pair(4096)["wrong"] > 4000


# --- device ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "number", "visible"),
    [
        (None, 3, "3"),
        ("", 3, "3"),
        ("4,5", 1, "5"),
        ("GPU-a, GPU-b", 1, "GPU-b"),
        ("MIG-1,MIG-2", 0, "MIG-1"),
    ],
)
def test_a_process_sees_one_of_the_gpus_that_the_task_was_given(devices, number, visible):
    environ = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
    assert gpu_device.visible(environ, number) == visible


def test_a_gpu_that_the_task_was_not_given_is_refused():
    with pytest.raises(CannotRun, match="CUDA_VISIBLE_DEVICES names 2 GPUs"):
        gpu_device.visible({"CUDA_VISIBLE_DEVICES": "4,5"}, 2)


def test_a_process_stays_near_its_gpu(tmp_path, monkeypatch):
    bound = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 3, 70})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: bound.append(cpus))
    (tmp_path / "near").mkdir()
    (tmp_path / "near" / "local_cpulist").write_text("2-5,64,70-71\n")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "local_cpulist").write_text("128\n")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "local_cpulist").write_text("\n")
    stay = gpu_device._stay_near
    assert stay("near", tmp_path) == 3
    assert bound == [{2, 3, 70}]
    assert [stay(bus, tmp_path) for bus in ("far", "odd", "none", None)] == [0, 0, 0, 0]
    assert len(bound) == 1


@pytest.mark.parametrize(
    ("known", "uuid", "bus"),
    [
        ({"pci_domain_id": 0, "pci_bus_id": 0x1B, "pci_device_id": 0}, "GPU-1", "0000:1b:00.0"),
        ({}, "GPU-1", "0008:ab:00.0"),  # a torch that does not tell: NVML does
        ({}, "GPU-2", None),
    ],
)
def test_the_place_of_a_gpu_is_torchs_or_else_nvmls(monkeypatch, known, uuid, bus):
    near = []

    def stay(place):
        near.append(place)
        return 16

    properties = SimpleNamespace(
        **{"name": "NVIDIA H200", "uuid": uuid, "total_memory": 1, "multi_processor_count": 132},
        **known,
    )
    monkeypatch.setattr(gpu_device, "_cuda_init", lambda: None)
    monkeypatch.setattr(gpu_device, "_first_kernel", lambda device: None)
    monkeypatch.setattr(gpu_device, "_stay_near", stay)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    grad = torch.is_grad_enabled()
    try:
        _, told = gpu_device.start("cuda", {"GPU-1": "00000008:AB:00.0"})
    finally:
        torch.set_grad_enabled(grad)
    assert (told["bus"], told["numa_cpus"], near) == (bus, 16, [bus])


def test_without_cuda_torchs_own_text_comes_through():
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        gpu_device.start("cuda")
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        gpu_device.count()


# --- configuration ---------------------------------------------------------------------------


def test_a_configuration_arrives_whole():
    loaded = config.load(compute.Config, json.dumps(standin.CPU))
    assert loaded.dtypes == ("fp32", "bf16")
    assert (loaded.device, loaded.gpus, loaded.memory_bytes) == ("cpu", None, 1 << 18)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"device": "gpu"}, 'device is "gpu", not cuda or cpu'),
        ({"gpus": 0}, "gpus is 0, not above zero"),
        ({"dtypes": []}, "not a list of texts"),
        ({"dtypes": ["bf16", 8]}, "dtypes is 8, not a text"),
        ({"dtypes": ["int4"]}, 'dtypes has "int4", not one of bf16'),
        ({"dtypes": ["bf16", "bf16"]}, "dtypes has one twice"),
        ({"gemm_size": 100}, "gemm_size is 100, no multiple of 16"),
        ({"gemm_s": 0}, "gemm_s is 0.0, not above zero"),
        ({"sustain_s": -1}, "sustain_s is -1.0, below zero"),
        ({"repeats": 1}, "repeats is 1: nothing to compare with"),
        ({"memory_bytes": 1000}, "memory_bytes is 1000, no multiple of"),
        ({"limit_s": -1}, "limit_s is -1.0"),
        ({"colour": 1}, 'unknown key "colour"'),
    ],
)
def test_a_wrong_configuration_is_refused(changes, complaint):
    with pytest.raises(CannotRun, match=complaint):
        config.load(compute.Config, json.dumps(changes))


# --- the worker ------------------------------------------------------------------------------

START = {"do": "start", "device": "cpu"}
GEMM = {
    "do": "gemm",
    "size": 16,
    "seed": 1,
    "seconds": 0.001,
    "sustain_s": 0.01,
    "least": 2,
    "warmup": 1,
}


def served(*messages):
    answers: list[dict[str, object]] = []
    waited: list[int] = []
    worker = gpu_worker.Worker(lambda: waited.append(len(answers)))
    gpu_worker.serve(worker, iter([json.dumps(item) for item in messages]), answers.append)
    return answers, waited


def test_a_worker_answers_each_message_and_waits_where_all_begin_together():
    often = {"size": 1 << 18, "iterations": 2, "warmup": 1, "seed": 1}
    answers, waited = served(
        START,
        {**GEMM, "dtype": "fp32", "repeats": 2},
        {**GEMM, "dtype": "tf32", "repeats": 2},
        {"do": "memory", "operation": "triad", **often},
        {"do": "copies", "direction": "d2h", **often},
        {"do": "pair", "source": 0, "target": 0, **often},
    )
    assert [answer["error"] for answer in answers] == [None] * 6
    assert answers[2]["unsupported"] == "a CPU has no TF32"
    first, own = answers[1]["first"], answers[1]
    assert first["tflops"] == pytest.approx(2 * 16**3 / first["time_s_median"] / 1e12)
    assert 0.01 <= own["ended"] - own["began"] < 10
    assert waited == [1, 2, 3]


def test_what_is_multiplied_later_meets_a_gpu_that_is_warm():
    answers, _ = served(
        START,
        {**GEMM, "dtype": "tf32", "repeats": 2},  # a CPU has none
        *({**GEMM, "dtype": kind, "repeats": 2} for kind in ("fp32", "bf16")),
    )
    assert [bool(answer.get("first")) for answer in answers] == [False, False, True, False]


def test_a_load_goes_on_until_its_time_is_over():
    device = Recorded([])
    gpu_timing.kept_busy(device.work, 2.0, 0.1, device.watch)
    # By the clock, half a second passes between two looks; 0.25 s of work are 3 repetitions.
    rounds = ["work", "work", "work", "synchronize", "clock"]
    assert device.calls == ["clock", "clock", *rounds * 3]


def test_a_worker_ends_with_the_first_error():
    answers, _ = served(START, {"do": "gemm", "dtype": "bf16"}, START)
    assert answers[1] == {"error": "KeyError: 'size'"}
    assert len(answers) == 2


def test_an_error_is_one_line(monkeypatch):
    def fail(device, places):
        raise RuntimeError("CUDA error: ECC\nCUDA kernel errors might be reported later\n")

    monkeypatch.setattr(gpu_device, "start", fail)
    assert served(START)[0] == [{"error": "RuntimeError: CUDA error: ECC"}]


# --- real processes --------------------------------------------------------------------------

# Speaks the worker's protocol without torch; FAULTS says what happens where: {"gpu:what": how}.
STAND_IN = """
import json, os, signal, subprocess, sys, time
faults = json.loads(sys.argv[1])
gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
def say(answer):
    print(json.dumps(answer), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    what = message["do"]
    place = gpu + ":" + what + message.get("dtype", message.get("operation", ""))
    fault = faults.get(place)
    if fault == "hang":
        child = subprocess.Popen(["sleep", "600"])
        with open(sys.argv[2], "a") as file:
            file.write("%d %d\\n" % (os.getpid(), child.pid))
        time.sleep(600)
    elif fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "exit":
        sys.stderr.write("first\\nCUDA initialization: gone\\n")
        sys.exit(3)
    elif fault == "garbage":
        print("no JSON", flush=True)
    elif fault == "odd":
        say({"hello": 1})
    elif fault == "error":
        say({"error": "RuntimeError: CUDA error"})
        sys.exit()
    else:
        if what in ("gemm", "memory"):
            say({"ready": True})
            if not sys.stdin.readline():
                sys.exit()
        order = os.environ["CUDA_DEVICE_ORDER"]
        say({"error": None, "count": 2, "pid": os.getpid(), "order": order})
"""


@pytest.fixture
def run(tmp_path):
    """Measures two GPUs with stand-ins for the workers."""

    def measure(faults=None, **changes):
        settings = {"gpus": 2, "limit_s": 1.0, "dtypes": ("fp32", "bf16"), **changes}
        command = [sys.executable, "-I", "-c", STAND_IN, json.dumps(faults or {})]
        return compute.measure(
            small(**settings), {"PATH": os.environ["PATH"]}, [*command, str(tmp_path / "pids")]
        )

    return measure


def errors(measured, gpu):
    """What could not be measured on one GPU, by kind."""
    rows = measured["gpus"][gpu]
    return {
        "start": rows["start"]["error"],
        **{row["dtype"]: row["error"] for row in rows["gemm"]},
        **{row["operation"]: row["error"] for row in rows["memory"]},
        **{row["direction"]: row["error"] for row in rows["copies"]},
    }


NOTHING = dict.fromkeys(("start", "fp32", "bf16", "copy", "triad", "h2d", "d2h"))


def test_each_gpu_has_a_process_of_its_own(run):
    measured = run()
    assert errors(measured, 0) == errors(measured, 1) == NOTHING
    assert [(row["source"], row["target"], row["error"]) for row in measured["pairs"]] == [
        (0, 1, None),
        (1, 0, None),
    ]
    first, second = (
        {row["pid"] for row in (*gpu["gemm"], *gpu["memory"], *gpu["copies"])}
        for gpu in measured["gpus"]
    )
    assert len(first) == len(second) == 1
    assert first != second
    assert measured["gpus"][0]["start"]["order"] == "PCI_BUS_ID"
    assert all(row["at_once"] == 2 for gpu in measured["gpus"] for row in gpu["gemm"])


def test_a_process_that_hangs_is_killed_with_all_it_started_and_costs_one_figure(run, tmp_path):
    began = time.monotonic()
    measured = run({"1:gemmfp32": "hang"})
    assert time.monotonic() - began < 10
    assert errors(measured, 0) == NOTHING
    message = "the process did not end in 1 s and was killed"
    assert errors(measured, 1) == {**NOTHING, "fp32": message}
    assert measured["gpus"][0]["gemm"][0]["at_once"] == 1
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    wait_for(lambda: not any(map(runs, pids)), seconds=5)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("kill", "the process was ended by SIGKILL"),
        ("exit", "the process ended with exit status 3: CUDA initialization: gone"),
        ("garbage", "the process answered with something that is no JSON object"),
        ("odd", "the process answered something else than it was asked"),
        ("error", "RuntimeError: CUDA error"),
    ],
)
def test_a_process_that_dies_costs_one_figure(run, fault, words):
    measured = run({"0:memorycopy": fault})
    assert errors(measured, 1) == NOTHING
    assert errors(measured, 0) == {**NOTHING, "copy": words}
    assert [row["error"] for row in measured["pairs"]] == [None, None]


def test_a_gpu_has_two_processes_and_no_third(run):
    measured = run({"0:gemmfp32": "kill", "0:memorycopy": "exit"})
    later = "not measured after an earlier failure (the process was ended by SIGKILL)"
    assert errors(measured, 0) == {
        **NOTHING,
        "fp32": "the process was ended by SIGKILL",
        "copy": "the process ended with exit status 3: CUDA initialization: gone",
        **dict.fromkeys(("triad", "h2d", "d2h"), later),
    }
    assert errors(measured, 1) == NOTHING
    assert {row["error"] for row in measured["pairs"]} == {"GPU 0 is not usable"}


@pytest.mark.parametrize("fault", ["kill", "hang", "error"])
def test_a_gpu_that_does_not_start_is_not_tried_again(run, fault):
    measured = run({"1:start": fault}, start_limit_s=1.0)
    assert errors(measured, 0) == NOTHING
    first, *others = errors(measured, 1).values()
    assert first is not None
    assert set(others) == {f"not measured after an earlier failure ({first})"}


def test_a_pair_that_hangs_costs_itself(run):
    measured = run({"0,1:pair": "hang"}, limit_s=0.5)
    assert errors(measured, 0) == NOTHING
    assert [row["error"] for row in measured["pairs"]] == [
        "the process did not end in 0.5 s and was killed"
    ] * 2


def test_what_does_not_begin_in_time_is_told(run):
    measured = run({"1:gemmfp32": "hang", "0:gemmfp32": "hang"}, limit_s=1.0, total_s=0.8)
    for gpu in (0, 1):
        messages = list(errors(measured, gpu).values())
        assert "was killed" in messages[1]
        assert set(messages[2:]) == {"not measured: the 0.8 s for the node were over"}


def test_a_worker_that_cannot_be_started():
    measured = compute.measure(small(gpus=1), {}, ["/nowhere/python"])
    assert measured["gpus"][0]["start"]["error"] == (
        "the process could not be started: No such file or directory"
    )


def test_the_gpus_are_counted_where_nobody_says_how_many(run):
    assert len(run(gpus=None, device="cuda")["gpus"]) == 2
    for fault, message in {
        "kill": "the GPUs cannot be counted: the process was ended by SIGKILL",
        "error": "CUDA does not start: RuntimeError: CUDA error",
    }.items():
        with pytest.raises(CannotRun) as caught:
            run({"all:count": fault}, gpus=None, device="cuda")
        assert str(caught.value) == message


def test_the_links_are_looked_at_where_there_are_gpus(run):
    assert run()["links"] is None
    links = run(device="cuda")["links"]
    assert links["nvml"]["error"]  # there is no driver here
    assert [gpu["index"] for gpu in links["gpus"]] == [None, None]


def test_nvml_has_as_long_for_the_links_as_for_the_health_of_a_node():
    """Eight processes ask eight questions of 18 links each, at the same time."""
    suite = yaml.safe_load((ROOT / "validation/suites/gpu.yml").read_text(encoding="utf-8"))
    assert gpu_links.LIMIT_S >= suite["health"]["nvml_timeout_s"] == 30


def test_a_machine_without_cuda_says_so():
    with pytest.raises(CannotRun, match=r"CUDA does not start: .*not compiled with CUDA"):
        compute.measure(compute.Config())


def test_a_declared_gpu_without_cuda_is_an_answer_and_not_an_error():
    measured = compute.measure(small(device="cuda", gpus=1))
    assert "not compiled with CUDA" in measured["gpus"][0]["start"]["error"]
    document = standin.document(standin.job(count=1))
    document["measured"] = measured
    job = standin.job(count=1)
    result = judged("gemm", job, standin.reply(job, document))
    assert result.verdict is Verdict.FAIL
    assert result.message == "GPU 0: no CUDA there, see cuda"


def test_an_interrupt_ends_the_workers(tmp_path):
    """Ctrl-C does not reach them: each is in a process group of its own."""
    script = textwrap.dedent(
        """
        import json, os, sys
        from validation.payloads import compute
        asked = compute.Config(device="cpu", gpus=1, limit_s=60, dtypes=("fp32",))
        command = [sys.executable, "-I", "-c", sys.argv[1], '{"0:gemmfp32": "hang"}', sys.argv[2]]
        compute.measure(asked, {"PATH": os.environ["PATH"]}, command)
        """
    )
    pids = tmp_path / "pids"
    process = subprocess.Popen(
        [sys.executable, "-c", script, STAND_IN, str(pids)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    wait_for(pids.exists, seconds=20)
    process.send_signal(signal.SIGINT)
    assert process.wait(15) != 0
    workers = [int(pid) for pid in pids.read_text().split()]
    wait_for(lambda: not any(map(runs, workers)), seconds=5)


def test_this_machine_measures_its_cpu_and_passes_every_check():
    job = standin.job("virtual", count=2, least=2, gemm_s=0.005)
    measured = compute.measure(config.load(compute.Config, json.dumps(job.config)))
    assert measured["device"] == "cpu"
    document = {**standin.document(job), "measured": measured}
    for check in ("gemm", "hbm", "copies", "peers", "repeatable"):
        result = judged(check, job, standin.reply(job, document))
        assert (result.verdict, result.message) == (Verdict.PASS, "")


def test_the_payload_runs_from_an_archive_in_memory():
    """The way it reaches a node: the workers find it there too."""
    script = textwrap.dedent(
        """
        import os, sys
        file = os.fdopen(os.memfd_create("plumbline"), "w+b")
        file.write(sys.stdin.buffer.read())
        file.flush()
        sys.path.insert(0, "/proc/self/fd/%d" % file.fileno())
        from validation.payloads import compute
        assert compute.__file__.startswith("/proc/self")
        asked = compute.Config(device="cpu", dtypes=("fp32",), gemm_size=32, gemm_s=0.001, least=2,
                               repeats=2, memory_bytes=1 << 18, copy_bytes=1024, iterations=2,
                               warmup=1, sustain_s=0)
        found = compute.measure(asked)
        assert found["gpus"][0]["copies"][1]["wrong"] == 0, found
        """
    )
    subprocess.run([sys.executable, "-I", "-c", script], input=bundle(), check=True, cwd="/tmp")


def test_the_archive_of_a_worker_is_passed_on():
    assert gpu_process.command()[-1] == str(ROOT)


def test_a_worker_that_is_ended_twice_closes_nothing_of_another():
    """Else a thread that starts its own worker meanwhile loses the pipe that it reads from."""
    process = gpu_process.Process(["true"], {})
    process.end()
    others = [os.memfd_create("other") for _ in range(4)]
    process.end()
    for other in others:
        os.close(other)
