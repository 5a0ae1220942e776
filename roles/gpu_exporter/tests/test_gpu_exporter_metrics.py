"""The GPU exporter under the real nvidia-ml-py, over a stand-in for the driver's library."""

import os
import re
import signal
import subprocess
import sys
import time
from unittest.mock import Mock

import pytest

from cluster.readers import nvml
from cluster.readers.nvml import NvmlGpu, System, Unknown
from roles.gpu_exporter.files.gpu_exporter import jobs, main, metrics, textfile, xid
from tests.patience import until
from tests.standins.nvml import library

LINE = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
# Metrics (DCGM_FI_DEV_…) of a described H100 with 18 links, and what of it is not as usual.
H100: dict[str, tuple[float, str]] = {
    "SM_CLOCK": (345, ""),
    "MEMORY_TEMP": (41, ""),
    "GPU_TEMP": (34, ""),
    "SLOWDOWN_TEMP": (87, ""),
    "MEM_MAX_OP_TEMP": (95, ""),
    "POWER_USAGE": (71.5, "power_mw = 71500"),
    "TOTAL_ENERGY_CONSUMPTION": (1234567890123, "energy_mj = 1234567890123"),
    "PCIE_REPLAY_COUNTER": (3, "pcie_replays = 3"),
    "PCIE_LINK_GEN": (5, ""),
    "PCIE_LINK_WIDTH": (8, "pcie_width = 8"),
    "PCIE_MAX_LINK_GEN": (5, ""),
    "PCIE_MAX_LINK_WIDTH": (16, ""),
    "GPU_UTIL": (97, "utilization_gpu = 97"),
    "ECC_DBE_VOL_TOTAL": (12, "ecc_volatile_uncorrected = 12"),
    "UNCORRECTABLE_REMAPPED_ROWS": (2, "remapped_rows_uncorrectable = 2"),
    "CORRECTABLE_REMAPPED_ROWS": (4, "remapped_rows_correctable = 4"),
    "ROW_REMAP_FAILURE": (0, ""),
    "ROW_REMAP_PENDING": (1, "remapped_rows_pending = 1"),
    "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": (18, "nvlink.*.crc_flit = 1"),
    "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": (36, "nvlink.*.crc_data = 2"),
    "NVLINK_REPLAY_ERROR_COUNT_TOTAL": (54, "nvlink.*.replay = 3"),
    "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": (72, "nvlink.*.recovery = 4"),
    "FB_FREE": (80559, ""),
    "FB_USED": (500, "memory_used_mb = 1000"),
}


def parsed(text):
    """Value by name and labels."""
    values = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        assert match, line
        labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match["labels"] or ""))
        key = match["name"], frozenset(labels.items())
        assert key not in values, f"twice: {line}"
        values[key] = int(match["value"]) if match["value"].isdigit() else float(match["value"])
    return values


def of(series, name, **labels):
    """Values of a metric's series that have these labels."""
    return [
        value
        for (other, have), value in series.items()
        if other == name and set(labels.items()) <= have
    ]


def success(series):
    return {
        dict(labels)["collector"]: value
        for (name, labels), value in series.items()
        if name == "plumbline_exporter_collector_success"
    }


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    return library.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def node(fake, tmp_path, monkeypatch):
    """The metrics of a node that is described by these lines below healthy ones."""

    def measure(*lines, count=2, board="h100_sxm", limit_s=20.0):
        description = tmp_path / "description"
        description.write_text(library.describe(count, board, *lines))
        for key, value in library.environment(fake, description).items():
            monkeypatch.setenv(key, value)
        return parsed(main.collected([main.Gpus(tmp_path / "jobs", limit_s)])[0])

    return measure


# --- with the stand-in for the driver ------------------------------------------------------------


def test_every_value_has_dcgms_name_and_unit(node, tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "0").write_text("4711\n")
    values = node(*(f"gpu.0.{line}" for _, line in H100.values() if line))
    labels = {
        "gpu": "0",
        "UUID": "GPU-00000000-0000-4000-8000-000000000000",
        "pci_bus_id": "00000000:1B:00.0",
        "device": "nvidia0",
        "modelName": "NVIDIA H100 80GB HBM3",
        "hpc_job": "4711",
    }
    assert {
        name: value
        for (name, have), value in values.items()
        if have == frozenset(labels.items()) and name.startswith("DCGM_FI")
    } == {f"DCGM_FI_DEV_{name}": value for name, (value, _) in H100.items()}
    # The other GPU has no job, and so no such label.
    (other,) = (
        have for (name, have) in values if name == "DCGM_FI_DEV_GPU_UTIL" and ("gpu", "1") in have
    )
    assert "hpc_job" not in dict(other)
    assert success(values) == {"nvml": 1, "gpu0": 1, "gpu1": 1, "jobs": 1}
    assert of(values, "DCGM_EXP_CLOCK_EVENTS_COUNT", gpu="1", clock_event="gpu_idle") == [1]


def test_what_a_board_does_not_have_is_absent_and_no_failure(node):
    values = node(board="v100_sxm", count=1)
    assert of(values, "DCGM_FI_DEV_MEMORY_TEMP") == []
    assert of(values, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS") == []
    assert of(values, "DCGM_FI_DEV_RETIRED_PENDING") == [0]
    assert success(values)["gpu0"] == 1


def test_a_gpu_that_does_not_answer_takes_its_own_series_alone(node):
    values = node("gpu.1.error.* = GPU_IS_LOST")
    assert of(values, "DCGM_FI_DEV_GPU_TEMP") == [34]
    assert {dict(labels)["gpu"] for name, labels in values if name.startswith("DCGM")} == {"0"}
    assert success(values) == {"nvml": 1, "gpu0": 1, "gpu1": 0, "jobs": 1}


def test_a_gpu_that_hangs_keeps_what_it_had_said(node):
    values = node("gpu.1.delay_ms.nvmlDeviceGetPowerUsage = forever", limit_s=6)
    assert of(values, "DCGM_FI_DEV_GPU_TEMP", gpu="1") == [34]
    assert of(values, "DCGM_FI_DEV_POWER_USAGE", gpu="1") == []
    assert of(values, "DCGM_FI_DEV_POWER_USAGE", gpu="0") == [71]
    assert (success(values)["gpu0"], success(values)["gpu1"]) == (1, 0)


def test_a_value_that_fails_is_absent_and_told(node):
    values = node("gpu.0.power_mw = UNKNOWN", count=1)
    assert of(values, "DCGM_FI_DEV_POWER_USAGE") == []
    assert of(values, "DCGM_FI_DEV_GPU_TEMP") == [34]
    assert success(values)["gpu0"] == 0


def test_without_a_driver_the_exporter_says_so(node):
    values = node("error.nvmlInit = DRIVER_NOT_LOADED")
    assert not [name for name, _ in values if name.startswith("DCGM")]
    assert success(values) == {"nvml": 0, "jobs": 1}
    (at,) = of(values, "plumbline_exporter_last_run_timestamp_seconds", exporter="gpu")
    assert abs(at - time.time()) < 60


def test_memory_of_instances_is_told_for_each_with_its_own_job(node, tmp_path):
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "0.9").write_text("42\n")
    lines = ["gpu.0.mig = 1"]
    for index, instance, used in ((0, 7, 10), (1, 9, 20)):
        lines += [
            f"gpu.0.mig.{index}.name = NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            f"gpu.0.mig.{index}.instance = {instance}",
            f"gpu.0.mig.{index}.memory_total_mb = 9984",
            f"gpu.0.mig.{index}.memory_used_mb = {used}",
        ]
    values = node(*lines, count=1)
    memory = {
        (dict(have)["GPU_I_ID"], dict(have)["GPU_I_PROFILE"], dict(have).get("hpc_job")): value
        for (name, have), value in values.items()
        if name == "DCGM_FI_DEV_FB_USED"
    }
    assert memory == {("7", "1g.10gb", None): 10, ("9", "1g.10gb", "42"): 20}
    assert len(of(values, "DCGM_FI_DEV_GPU_TEMP")) == 1
    assert success(values)["gpu0"] == 1


def test_the_daemon_writes_for_everybody_to_read_and_leaves_nothing(fake, tmp_path):
    description, file = tmp_path / "description", tmp_path / "gpu.prom"
    description.write_text(library.describe(1))
    command = [sys.executable, "-m", "roles.gpu_exporter.files.gpu_exporter"]
    daemon = subprocess.Popen(
        [*command, "--textfile", file, "--collect", "nvml", "--interval", "600"],
        env={**os.environ, **library.environment(fake, description)},
    )
    try:
        until(lambda: file.exists() or daemon.poll() is not None)
        assert file.stat().st_mode & 0o777 == 0o644
        assert success(parsed(file.read_text()))["gpu0"] == 1
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(30) == 0
    finally:
        daemon.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["description"]


# --- without it ------------------------------------------------------------------------------


def test_xids_are_told_without_nvml_and_of_one_counter():
    log = main.Log(Mock(side_effect=[{("1B", "xid", "79", "fail"): count} for count in (1, 2)]))
    for count in (1, 2):
        values = parsed(main.collected([log])[0])
        labels = {"pci_bus_id": "1B", "kind": "xid", "xid": "79", "verdict": "fail"}
        assert of(values, "plumbline_kernel_xid_total", **labels) == [count]
        assert success(values) == {"xid": 1}


def test_a_log_that_cannot_be_read_takes_its_own_series_alone():
    def gpus():
        family = textfile.Family("m", textfile.GAUGE, "", (textfile.Sample({}, 1),))
        return [family], [metrics.Collected("nvml", 0.1)]

    log = main.Log(Mock(side_effect=[xid.Unreadable("dmesg: no"), KeyError(), {}]))
    text, errors = main.collected([log, gpus])
    assert errors == {"xid": "dmesg: no"}
    assert success(parsed(text)) == {"nvml": 1, "xid": 0}
    assert of(parsed(text), "m") == [1]
    assert main.collected([log])[1] == {"xid": "KeyError"}
    assert main.collected([log])[1] == {}


def gpu(index=0, error=None, unknown=(), **values):
    known = {**dict.fromkeys(metrics.QUESTIONS), "uuid": "GPU-0", "pci": "00", "name": "H100"}
    return NvmlGpu(index, error, 0.5, {**known, **values}, list(unknown))


def rendered(*gpus, jobs_of_gpus=None, events=None, now=0.0):
    events = events or metrics.ClockEvents()
    return parsed(textfile.text(metrics.of_gpus(gpus, jobs_of_gpus or {}, events, now)))


def test_jobs_that_share_a_gpu_have_a_series_each():
    values = rendered(gpu(temperature_c=40), jobs_of_gpus={"0": ("1", "2")})
    assert of(values, "DCGM_FI_DEV_GPU_TEMP", hpc_job="1") == [40]
    assert of(values, "DCGM_FI_DEV_GPU_TEMP", hpc_job="2") == [40]
    assert len(of(values, "DCGM_FI_DEV_GPU_TEMP")) == 2


def test_a_gpu_that_did_not_say_who_it_is_has_no_series():
    without_uuid = gpu(temperature_c=40, uuid=None)
    assert rendered(without_uuid) == {}
    assert metrics.amiss(without_uuid) == "it does not say its uuid"


def test_links_that_count_nothing_give_no_sum():
    nothing = dict.fromkeys(
        ("crc_flit", "crc_data", "replay", "recovery", "recovery_failed", "recovery_successful")
    )
    link = {"errors": {**nothing, "crc_data": 1, "replay": 2}}
    values = rendered(gpu(nvlinks=[link, link]))
    assert of(values, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL") == [4]
    assert of(values, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL") == []
    assert rendered(gpu(nvlinks=[])) == {}
    fifth = {"errors": {**nothing, "recovery_failed": 1, "recovery_successful": 3}}
    values = rendered(gpu(nvlinks=[fifth, fifth]))
    name = "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY"
    assert of(values, f"{name}_FAILED_EVENTS") == [2]
    assert of(values, f"{name}_SUCCESSFUL_EVENTS") == [6]
    assert len(values) == 2


def test_clock_events_are_those_of_the_last_five_minutes():
    events = metrics.ClockEvents()
    slowed = {"always": 0x48, "sometimes": 0x48, "reasons": ""}
    free = {"always": 0, "sometimes": 8, "reasons": ""}
    rendered(gpu(clock_reasons=slowed), events=events, now=0)
    values = rendered(gpu(clock_reasons=slowed), events=events, now=30)
    name = "DCGM_EXP_CLOCK_EVENTS_COUNT"
    window = {"window_size_in_ms": "300000"}
    assert of(values, name, clock_event="hw_slowdown", **window) == [2]
    assert of(values, name, clock_event="hw_thermal") == [2]
    values = rendered(gpu(clock_reasons=free), events=events, now=300)
    assert of(values, name, clock_event="hw_slowdown") == [1]
    assert rendered(gpu(clock_reasons=free), events=events, now=330) == {}


def test_only_an_error_is_a_failure():
    assert metrics.amiss(gpu(unknown=[Unknown("energy_mj", "unsupported", "")])) == ""
    assert metrics.amiss(gpu(unknown=[Unknown("energy_mj", "error", "no")])) == "energy_mj: no"
    assert metrics.amiss(gpu(error="NVML: GPU is lost (code 15)")).startswith("NVML: GPU is lost")
    ends = metrics.of_nvml(System("no", seconds=2.0), [])
    assert ends == [metrics.Collected("nvml", 2.0, "no")]


def test_the_journal_has_beginning_and_end_of_what_fails():
    assert main.changes({}, {"gpu1": "lost"}) == ["gpu1: lost"]
    assert main.changes({"gpu1": "lost"}, {"gpu1": "lost"}) == []
    assert main.changes({"gpu1": "lost"}, {}) == ["gpu1: well again"]


def test_every_question_is_one_of_the_reader():
    assert set(metrics.QUESTIONS) <= {*nvml.QUESTIONS, *nvml.MEASURES}
    assert metrics.QUESTIONS[:3] == ("uuid", "pci", "name")


def test_the_text_is_prometheus():
    sample = textfile.Sample({"name": 'a "b"\\\n'}, 0.25)
    family = textfile.Family("m", textfile.COUNTER, "what it is", (sample,))
    assert textfile.text([family, textfile.Family("none", "gauge", "", ())]) == (
        '# HELP m what it is\n# TYPE m counter\nm{name="a \\"b\\"\\\\\\n"} 0.25\n'
    )


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    file = tmp_path / "gpu.prom"
    main._keep(file, "old 1\n")

    def fail(path, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    main._keep(file, "new 1\n")
    assert list(tmp_path.iterdir()) == []
    assert "No space left on device" in capsys.readouterr().err


def test_files_of_jobs_are_those_that_dcgm_exporter_reads(tmp_path):
    for name, text in (("0", "1\n2\n"), ("1.9", "3\n"), ("2", ""), (".lock", "x"), ("x", "y")):
        (tmp_path / name).write_text(text)
    assert jobs.read(tmp_path) == {"0": ("1", "2"), "1.9": ("3",), "2": ()}
    assert jobs.read(tmp_path / "none") == {}
