"""The load of a burn-in on this machine's CPU, and what is read of the node meanwhile."""

import json
import time
from typing import Any

import pytest

from cluster.errors import CannotRun
from validation.payloads import gpu_gemm, soak
from validation.payloads.config import load

CONFIG: dict[str, Any] = {
    **{"device": "cpu", "gpus": 2, "mig": False, "dtype": "fp32", "size": 64},
    **{"attention": [2, 16, 8], "seconds": 0.6, "window_s": 0.2, "sample_s": 0.1, "seed": 7},
    **{"start_limit_s": 60, "nonce": "run-7f"},
}


def put(path, **files):
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name).write_text(f"{text}\n")


@pytest.fixture
def node(tmp_path):
    """What the kernel of a node with two CPUs, a thermal zone and two network devices shows."""
    sys, proc = tmp_path / "sys", tmp_path / "proc"
    put(proc, loadavg="3.50 2.00 1.00 4/300 1234", cpuinfo="cpu MHz\t\t: 2100.5\ncpu MHz : 1900")
    for cpu, khz in ((0, 3_100_000), (1, 800_000)):
        put(sys / f"devices/system/cpu/cpu{cpu}/cpufreq", scaling_cur_freq=khz)
    put(sys / "class/thermal/thermal_zone0", temp=45_000)
    put(sys / "class/thermal/thermal_zone1", temp=71_500)
    put(sys / "class/net/ib0/statistics", rx_errors=3, tx_errors=0, rx_dropped=99)
    put(sys / "class/net/lo/statistics", rx_errors=1)
    return sys, proc


def test_what_the_kernel_shows_of_a_host(node):
    sys, proc = node
    assert soak.host(sys, proc) == {
        "load": 3.5,
        "mhz": 3100.0,
        "mhz_least": 800.0,
        "temperature_c": 71.5,
    }
    assert soak.net(sys) == {"ib0": {"rx_errors": 3, "tx_errors": 0}}


def test_a_virtual_machine_shows_less(tmp_path, node):
    empty, (_, proc) = tmp_path / "empty", node
    assert soak.host(empty, proc)["mhz"] == 2100.5  # what the kernel saw, where it sets nothing
    assert soak.host(empty, empty) == dict.fromkeys(("load", "mhz", "mhz_least", "temperature_c"))
    assert soak.net(empty) == {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"window_s": 0.5}, "window_s leaves fewer than two windows"),
        ({"dtype": "int8"}, 'dtype is "int8"'),
        ({"size": 100}, "no multiple of 16"),
        ({"attention": [2, 16]}, "not three sizes"),
        ({"device": "tpu"}, 'device is "tpu"'),
        ({"seconds": 0}, "seconds is 0"),
    ],
)
def test_what_cannot_be_done_is_refused(change, words):
    with pytest.raises(CannotRun, match=words):
        load(soak.Config, json.dumps({**CONFIG, **change}))


def test_the_cpus_work_to_the_end_and_give_the_same_bits_each_time():
    pytest.importorskip("torch")
    measured = soak.measure(load(soak.Config, json.dumps(CONFIG)))
    (worker,) = measured["gpus"]  # one process with all CPUs in the place of both GPUs
    windows = worker["soak"]["windows"]
    assert worker["soak"]["error"] is None
    assert len(windows) >= 2
    assert windows[-1]["at_s"] >= CONFIG["seconds"]
    assert all(window["products"] > 0 for window in windows)
    assert len({window["gemm"] for window in windows}) == 1
    assert len({window["attention"] for window in windows}) == 1
    assert measured["samples"]["host"]
    assert measured["counters"]["before"].keys() == {"gpus", "net"}


def test_where_the_first_window_lasts_as_long_as_the_load_a_second_one_follows(monkeypatch):
    pytest.importorskip("torch")
    from validation.payloads import gpu_device  # noqa: PLC0415 - needs torch

    bits = gpu_gemm.bits

    def late(numbers):
        time.sleep(0.1)  # as where others have the CPUs
        return bits(numbers)

    monkeypatch.setattr(gpu_gemm, "bits", late)
    device, _ = gpu_device.start("cpu")
    options = {name: CONFIG[name] for name in ("dtype", "size", "attention", "seed")}
    done = soak.work(device, **options, window_s=0.05, seconds=0.1, begin=lambda: None)
    assert len(done["windows"]) == 2
    assert done["windows"][0]["at_s"] > 0.1


def test_a_wrong_product_changes_its_hash():
    torch = pytest.importorskip("torch")
    from validation.payloads import gpu_device  # noqa: PLC0415 - needs torch

    device, _ = gpu_device.start("cpu")
    options = {name: CONFIG[name] for name in ("dtype", "size", "attention", "window_s", "seed")}
    right = soak.work(device, **options, seconds=0.2, begin=lambda: None)
    mm = torch.mm

    def flipped(a, b, *, out):
        mm(a, b, out=out)
        out.view(-1).view(torch.int32)[77] ^= 1  # the last bit of one element
        return out

    try:
        torch.mm = flipped
        wrong = soak.work(device, **options, seconds=0.2, begin=lambda: None)
    finally:
        torch.mm = mm
    assert right["data"] == wrong["data"]
    assert right["windows"][0]["gemm"] != wrong["windows"][0]["gemm"]
    assert right["windows"][0]["attention"] == wrong["windows"][0]["attention"]
