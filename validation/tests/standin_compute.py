"""Answers of payload `compute`, made up: a healthy node's, for tests to judge and to break."""

import json

from cluster.declaration import Gpus, Node
from validation.model import Job, Outcome, Reply, Subject, Tier
from validation.payloads import gpu_links
from validation.payloads.gpu_memory import DIRECTIONS, MOVED
from validation.tests import standin, standin_health

NAMES = {"h100_sxm": standin.GPU, "l40s": "NVIDIA L40S", "t4": "Tesla T4"}
TFLOPS = {"bf16": 730.0, "fp16": 740.0, "tf32": 373.0, "fp32": 50.0, "fp8": 1300.0}
MEMORY_GBS = {"copy": 2900.0, "triad": 2970.0}
COPY_GBS = 52.0
PAIR_GBS = 400.0
WARM = 1.04  # how much faster a cold GPU is than one that has worked for a while

# A suite says no less; what it leaves out is the payload's own default.
CUDA = {"device": "cuda", "gemm_size": 8192, "seed": 1234, "nonce": "run-7f"}
CPU = {
    "device": "cpu",
    "dtypes": ["fp32", "bf16"],
    "gemm_size": 64,
    "gemm_s": 0.01,
    "sustain_s": 0,
    "least": 2,
    "repeats": 2,
    "memory_bytes": 1 << 18,
    "copy_bytes": 1 << 14,
    "iterations": 2,
    "warmup": 1,
    "nonce": "run-7f",
}


def job(model="h100_sxm", count=8, **config):
    """The job that asks one node for it; a model without real GPUs computes on its CPU."""
    gpus = Gpus(model, count)
    node = Node("gpu1", 64, 512000, gpus, "ethernet")
    settings = {**(CUDA if gpus.real else CPU), "gpus": count or 1, **config}
    return Job(
        name="compute-gpu1",
        payload="compute",
        tier=Tier.NODE,
        subject=Subject.node("gpu1"),
        nodes=(node,),
        ranks_per_node=1,
        backend=None,
        partition="gpu",
        config=settings,
        queue_limit_s=120,
        run_limit_s=720,
        checks=("gemm", "hbm", "copies", "peers", "repeatable"),
    )


def reply(of_job, document, **changes):
    text = document if isinstance(document, str) else standin.line(document)
    return Reply(of_job.name, Outcome.EXITED, 0, "17", text, **changes)


def times(seconds, iterations):
    total = seconds * iterations
    return {
        "iterations": iterations,
        "time_s_median": seconds,
        "time_s_min": seconds * 0.98,
        "time_s_max": seconds * 1.03,
        "time_s_total": total,
        "wall_s": total * 1.01,
    }


def gemm(dtype, config, tflops, first=None):
    """`first` is the speed in the first second, of the way to multiply that comes first."""
    size = config["gemm_size"]
    own = {} if first is None else {"first": speed(size, first)}
    return {
        "first": None,
        "dtype": dtype,
        "at_once": config["gpus"],
        "error": None,
        "unsupported": None,
        "in_hardware": True,
        "m": size,
        "n": size,
        "k": size,
        **speed(size, tflops),
        "checked": min(64, size) ** 2,
        "rounding_error": 0.98,
        "row": 17,
        "column": 4711 % size,
        "products": [{"hash": "00d1ce5eed00d1ce"} for _ in range(config.get("repeats", 4))],
        "data": "feedface" * 4,
        **own,
    }


def speed(size, tflops):
    return {**times(2 * size**3 / tflops / 1e12, 200), "tflops": tflops}


def _moved(size, moved, gbs, config):
    iterations = config.get("iterations", 20)
    return {
        "error": None,
        "bytes": size,
        **times(moved / gbs / 1e9, iterations),
        "gbs": gbs,
        "wrong": 0,
    }


def memory(operation, config, gbs):
    size = config.get("memory_bytes", 1 << 30)
    moved = MOVED[operation] * size
    figures = _moved(size, moved, gbs, config)
    return {"operation": operation, "at_once": config["gpus"], "moved": moved, **figures}


def fill(config, **changes):
    """All memory of an H100 but what CUDA needs; of a CPU's place a little."""
    real = config["device"] == "cuda"
    total = 85_000_000_000 if real else 8 << 20
    filled = (300 << 28) if real else 4 << 20
    free = total - (600 << 20) if real else total
    sizes = {"total": total, "free": free, "filled": filled, "passes": 2}
    return {"error": None, **sizes, "wrong": 0, "first": None, "seconds": 1.1, **changes}


def copy(direction, config, gbs=COPY_GBS):
    size = config.get("copy_bytes", 1 << 28)
    return {"direction": direction, **_moved(size, size, gbs, config)}


def pair(source, target, config, gbs=PAIR_GBS):
    size = config.get("copy_bytes", 1 << 28)
    way = "direct" if config["device"] == "cuda" else "host"
    figures = _moved(size, size, gbs, config)
    return {"source": source, "target": target, "way": way, **figures}


def start(index, config, name):
    versions = {"error": None, "torch": "2.9.0+cu130", "cuda": "13.0"}
    if config["device"] == "cpu":
        return {**versions, "cuda": None, "name": "CPU", "uuid": None, "capability": None}
    return {
        **versions,
        "name": name,
        "uuid": f"GPU-gpu1-{index}",
        "capability": [9, 0],
        "memory_bytes": 85_000_000_000,
        "multiprocessors": 132,
        "l2_bytes": 50 << 20,
        "bus": f"0000:{index:02x}:00.0",
        "numa_cpus": 32,
    }


def load(name, **changes):
    """What NVML says of an H100 under load: products bring it to its limit of power."""
    held_by = [{"reason": "software power cap", "share": 0.9}] if name == "products" else []
    figures = {"samples": 150, "sm_mhz": 1500, "power_w": 690, "temperature_c": 62}
    return {"load": name, **figures, "held_by": held_by, **changes}


def links(count):
    names = gpu_links.ASKED

    def gpu_readings(index):
        values = json.loads(json.dumps(standin_health.gpu(index)["values"]))  # nothing is shared
        return {
            "index": index,
            "error": None,
            "seconds": 0.1,
            "values": {name: values[name] for name in names},
            "unknown": [standin_health.unsupported("retired_pages")],
        }

    return {
        "nvml": dict(standin_health.measured(count)["nvml"]),
        "seconds": 60.0,
        "gpus": [
            {
                "index": index,
                "before": gpu_readings(index),
                "after": gpu_readings(index),
                "samples": 9,
                "generation": 5,
                "width": 16,
                "sm_mhz": 1980,
                "held_by": "",
                "loads": [load(name) for name in gpu_links.LOADS],
            }
            for index in range(count)
        ],
    }


def document(of_job, tflops=None):
    """A healthy node's answer to a job. The figures are an H100's unless others are given."""
    config = json.loads(json.dumps(dict(of_job.config)))
    dtypes = config.get("dtypes", list(TFLOPS))
    speeds = {**TFLOPS, **(tflops or {})}
    count = config["gpus"]
    name = NAMES.get(of_job.nodes[0].gpus.model, "NVIDIA Unknown")
    measured = {
        "device": config["device"],
        "gpus": [
            {
                "index": index,
                "start": start(index, config, name),
                "gemm": [
                    gemm(dtype, config, speeds[dtype], WARM * speeds[dtype] if sustained else None)
                    for dtype in dtypes
                    for sustained in [dtype == dtypes[0] and config.get("sustain_s", 8.0) > 0]
                ],
                "memory": [memory(name, config, gbs) for name, gbs in MEMORY_GBS.items()],
                "fill": fill(config),
                "copies": [copy(direction, config) for direction in DIRECTIONS],
            }
            for index in range(count)
        ],
        "pairs": [
            pair(source, target, config)
            for source in range(count)
            for target in range(count)
            if source != target
        ],
        "links": links(count) if config["device"] == "cuda" else None,
    }
    return {
        "plumbline": 1,
        "payload": "compute",
        "nonce": config["nonce"],
        "proof": {"host": "gpu1", "python": standin.PYTHON},
        "measured": measured,
    }
