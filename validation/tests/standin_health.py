"""Answers of a healthy `health` payload, made up, for tests to judge and to break.

The values are those that the stand-in for NVML gives for an H100 SXM (tests/standins/nvml), which a
test of the payload holds against these.
"""

import copy
from dataclasses import replace

from validation.model import Outcome, Reply
from validation.tests import standin
from validation.tests.conftest import make_plan

NAMES = ("driver", "ecc", "xid", "pcie", "nvlink", "clocks", "processes", "mig")

COUNTED = ("replay", "recovery", "crc_flit", "crc_data")
NO_ERRORS = {
    **dict.fromkeys(COUNTED, 0),
    **dict.fromkeys(("recovery_failed", "recovery_successful")),
}
LINK = {"state": "up", "version": 6, "errors": NO_ERRORS}

VALUES = {
    "name": "NVIDIA H100 80GB HBM3",
    "serial": "1654922000000",
    "vbios": "96.00.74.00.01",
    "inforom": "G520.0200.00.05",
    "gsp_firmware": "580.82.07",
    "recovery_action": "none",
    "memory_total_mb": 81559,
    "memory_used_mb": 600,
    "bar1_total_mb": 131072,
    "ecc": "on",
    "ecc_pending": "on",
    "ecc_default": "on",
    "ecc_volatile_uncorrected": 0,
    "ecc_volatile_corrected": 0,
    "ecc_aggregate_uncorrected": 0,
    "ecc_aggregate_corrected": 0,
    "ecc_volatile_corrected_sram": 0,
    "ecc_aggregate_corrected_sram": 0,
    "remapped_rows": {"correctable": 0, "uncorrectable": 0, "pending": "no", "failure": "no"},
    "retired_pages": None,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_generation_gpu": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "pcie_replays": 0,
    "nvlinks": [{"link": link, **LINK} for link in range(18)],
    "fabric": {"state": "completed", "status": 0, "clique": 0, "health": 0},
    "clock_sm_mhz": 345,
    "clock_sm_max_mhz": 1980,
    "clock_sm_app_mhz": 1980,
    "clock_sm_app_default_mhz": 1980,
    "clock_memory_mhz": 2619,
    "clock_memory_max_mhz": 2619,
    "clock_reasons": {"always": 1, "sometimes": 1, "reasons": "idle"},
    "temperature_c": 34,
    "temperature_slowdown_c": 87,
    "temperature_shutdown_c": 92,
    "power_mw": 71000,
    "power_limit_mw": 700000,
    "power_limit_default_mw": 700000,
    "power_limit_max_mw": 700000,
    "persistence": "on",
    "mig": "off",
    "mig_pending": "off",
    "mig_instances": [],
    "processes": [],
}


def unsupported(name):
    return {"name": name, "kind": "unsupported", "why": "NVML: Not Supported (code 3)"}


def error(name, why="NVML: Unknown Error (code 999)"):
    return {"name": name, "kind": "error", "why": why}


def gpu(index):
    values = {
        **VALUES,
        "uuid": f"GPU-gpu1-{index}",
        "minor": index,
        "pci": f"00000000:{0x1B + 16 * index:02X}:00.0",
    }
    unknown = [unsupported("retired_pages")]
    return copy.deepcopy(
        {"index": index, "error": None, "seconds": 0.6, "values": values, "unknown": unknown}
    )


def event(code, text="", pci="0000:2b:00", kind="xid", count=1):
    return {
        "kind": kind,
        "code": code,
        "pci": pci,
        "count": count,
        "seconds": 4711.5,
        "text": text,
    }


def measured(count=2):
    gpus = [gpu(index) for index in range(count)]
    return {
        "nvml": {
            "error": None,
            "driver": "580.82.07",
            "nvml": "13.580.82.07",
            "cuda": 13000,
            "count": count,
            "seconds": 0.1,
        },
        "nvml_timeout_s": 30.0,
        "questions": list(gpus[0]["values"]),
        "gpus": gpus,
        "kernel_log": {
            "source": "journalctl",
            "error": None,
            "begins_s": 0.0,
            "complete": "yes",
            "events": [],
            "lines": [],
        },
        "software": {"kernel": "6.8.0-71-generic", "torch": "2.9.0+cu130"},
    }


def job_for(count=2, model="h100_sxm"):
    """A job of one node with GPUs, as the plan will make it."""
    plan = make_plan(("gpu1", model, count))
    job = next(job for job in plan.jobs if job.name == "node-gpu1")
    config = {"nonce": job.config["nonce"], "nvml_timeout_s": 30.0}
    return replace(job, name="health-gpu1", payload="health", config=config, checks=NAMES)


def reply_to(job, readings, **changes):
    document = {
        "plumbline": 1,
        "payload": "health",
        "nonce": job.config["nonce"],
        "proof": {"host": "gpu1", "python": standin.PYTHON},
        "measured": readings,
    }
    text = standin.line(document)
    return replace(Reply(job.name, Outcome.EXITED, 0, "17", text), **changes)
