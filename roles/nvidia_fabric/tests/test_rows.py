"""Each row, as it passes and as it fails."""

import pytest

from roles.nvidia_fabric.plugin_utils import rows

UP = {"nvidia-fabricmanager": "active", "nvidia-imex": "active"}
FOUND = {
    "installed": "580.95.05",
    "loaded": "580.95.05",
    "switches": 4,
    "bridges": 0,
    "umad": True,
    "channel": True,
    "versions": {"nv-fabricmanager": "580.95.05", "nvidia-imex": "580.95.05"},
    "services": UP,
    "imex": "READY",
    "nvlsm": True,
}
DECLARED = {
    "model": "h100_sxm",
    "count": 2,
    "generation": "hopper",
    "switches": "present",
    "imex": False,
    "domain": "rack1",
    "channels": "shared",
}
B200 = {"model": "b200", "generation": "blackwell"}
GB200 = {"model": "gb200", "generation": "blackwell", "switches": "none", "imex": True}
NONE = {"switches": 0, "bridges": 0}


def nvml(*states):
    values = [{"fabric": {"state": state, "status": 0}} for state in states]
    return {"error": None, "gpus": [{"index": i, "values": v} for i, v in enumerate(values)]}


JOINED = nvml("completed", "completed")


def verdicts(state, declared, answer):
    return {row["what"]: row["verdict"] for row in rows.rows(state, declared, answer)}


def failed(state=(), declared=(), answer=JOINED):
    judged = rows.rows(FOUND | dict(state), DECLARED | dict(declared), answer)
    return [row["what"] for row in judged if row["verdict"] == "FAIL"]


@pytest.mark.parametrize(
    ("state", "declared"),
    [
        ({}, {}),
        ({"switches": 0, "bridges": 2}, B200),
        (NONE, GB200),
        (NONE, {"model": "h100_pcie", "switches": "none"}),
        ({}, {"model": "h800", "switches": "unknown"}),
    ],
)
def test_what_is_in_order_passes(state, declared):
    judged = verdicts(FOUND | state, DECLARED | declared, JOINED)
    assert set(judged.values()) <= {"PASS", "SKIP"}
    assert "PASS" in judged.values()


@pytest.mark.parametrize(
    ("state", "declared", "what"),
    [
        (NONE, {}, "NVSwitches"),
        ({}, {"switches": "none"}, "NVSwitches"),
        ({"loaded": ""}, {}, "loaded driver"),
        ({"loaded": "580.126.20"}, {}, "loaded driver"),
        ({"versions": {"nv-fabricmanager": "580.126.20"}}, {}, "Fabric Manager"),
        ({"versions": {"nv-fabricmanager": ""}}, {}, "Fabric Manager"),
        ({"services": {"nvidia-fabricmanager": "failed"}}, {}, "service nvidia-fabricmanager"),
        ({"services": {"nvidia-fabricmanager": ""}}, {}, "service nvidia-fabricmanager"),
        ({"bridges": 2, "nvlsm": False}, B200, "NVLink subnet manager"),
        ({"bridges": 2, "umad": False}, B200, "module ib_umad"),
        (NONE | {"versions": {"nvidia-imex": "570.1.1"}}, GB200, "IMEX"),
        (NONE | {"services": UP | {"nvidia-imex": "inactive"}}, GB200, "service nvidia-imex"),
        (NONE | {"imex": "UNAVAILABLE"}, GB200, "IMEX's state"),
        (NONE | {"imex": ""}, GB200, "IMEX's state"),
        (NONE | {"channel": False}, GB200, "IMEX channel 0"),
    ],
)
def test_what_is_not_fails_by_its_name(state, declared, what):
    assert failed(state, declared) == [what]


@pytest.mark.parametrize(
    "answer",
    [
        nvml("completed", "in progress"),
        nvml("completed"),
        {"error": "Driver Not Loaded", "gpus": []},
        {"skipped": True},
    ],
)
def test_gpus_that_have_not_joined_the_fabric(answer):
    assert failed(answer=answer) == ["GPUs in the fabric"]


def test_a_gpu_whose_joining_went_wrong_has_not_joined():
    answer = nvml("completed", "completed")
    answer["gpus"][1]["values"]["fabric"]["status"] = 8
    assert failed(answer=answer) == ["GPUs in the fabric"]


def test_gpus_that_have_not_are_named():
    answer = nvml("completed", "in progress")
    answer["gpus"].append({"index": 2, "error": "no answer within 60 s", "values": {}})
    advice = rows.rows(FOUND, DECLARED, answer)[-1]["advice"]
    assert advice.startswith("GPU 1: in progress, status 0, GPU 2: no answer within 60 s, see ")


def test_without_a_driver_nothing_passes_for_its_version():
    nothing = {"installed": "", "loaded": "", "versions": {"nv-fabricmanager": ""}}
    assert failed(nothing) == ["loaded driver", "Fabric Manager"]


def test_skipped_is_what_is_declared_not_to_apply():
    assert verdicts({}, DECLARED | {"model": ""}, {}) == {"NVLink fabric": "SKIP"}
    ampere = verdicts(FOUND, DECLARED | {"generation": "ampere"}, {"error": "x", "gpus": []})
    assert ampere["GPUs in the fabric"] == "SKIP"
    job = verdicts(FOUND | NONE | {"channel": False}, DECLARED | GB200 | {"channels": "job"}, {})
    assert job["IMEX channel 0"] == "SKIP"
