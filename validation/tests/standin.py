"""Answers of healthy payloads, made up, for tests to judge and to break.

Standard library only: the simulated Slurm uses it too, in processes of its own.
"""

import json
import time

GPU = "NVIDIA H100 80GB HBM3"
PYTHON = "3.13.5"


def node(host, config=None, *, cpus=2, memory_mb=2000, gpus=2, names=(), **changes):
    """`names`: of the GPUs that the driver sees; without any, NVML is missing."""
    credential = (config or {}).get("munge_credential")
    measured = {
        "hostname": host,
        "cpus": cpus,
        "cpus_allowed": 1,
        "memory_mb": memory_mb,
        "gpu_device_nodes": gpus,
        "gpus": [
            {"index": i, "name": name, "uuid": f"GPU-{host}-{i}", "memory_mb": 81559}
            for i, name in enumerate(names)
        ],
        "nvml": None if names else "pynvml cannot be imported",
        "time_ns": time.time_ns(),
        "munge_encoded": f"MUNGE:{host}:",
        "munge_encode_error": None,
        "munge_decoded": "Success (0)" if credential else None,
        "munge_decode_error": None,
    }
    return _document("node", {"host": host, "python": PYTHON}, {**measured, **changes})


def proof(hosts, ranks_per_node=1, backend="gloo"):
    real = backend == "nccl"
    ranks = [
        {
            "rank": node_number * ranks_per_node + local,
            "local_rank": local,
            "host": host,
            "device": f"cuda:{local}" if real else "cpu",
            "gpu": GPU if real else None,
            "gpu_uuid": f"GPU-{host}-{local}" if real else None,
        }
        for node_number, host in enumerate(hosts)
        for local in range(ranks_per_node)
    ]
    return {
        "world_size": len(ranks),
        "backend": backend,
        "torch": "2.6.0",
        "nccl": "2.21.5" if real else None,
        "python": PYTHON,
        "ranks": ranks,
    }


def all_reduce(hosts, config, ranks_per_node=1, *, busbw_gbs=1.2, wrong=0):
    found = proof(hosts, ranks_per_node, config["backend"])
    ranks = found["world_size"]
    factor = 2 * (ranks - 1) / ranks
    sizes = []
    for size in config["sizes_bytes"]:
        seconds = size * factor / busbw_gbs / 1e9
        sizes.append(
            {
                "bytes": size,
                "elements": size // 4,
                "time_s_median": seconds,
                "time_s_min": seconds * 0.9,
                "time_s_max": seconds * 1.1,
                "algbw_gbs": size / seconds / 1e9,
                "busbw_gbs": busbw_gbs,
                "wrong": wrong,
            }
        )
    return _document("all_reduce", found, {"sizes": sizes})


def _training(config, **changes):
    steps = config["steps"]
    losses = [2.5 * 0.9**step for step in range(steps)]
    measured = {
        "steps": steps,
        "losses": losses,
        "reference_losses": list(losses),
        "max_loss_difference": 0.0,
        "max_parameter_difference": 0.0,
        "parameters": 12480,
        "samples_per_s": 4000.0,
        "step_time_s_median": 0.004,
    }
    return {**measured, **changes}


def ddp(hosts, config, ranks_per_node=1, **changes):
    found = proof(hosts, ranks_per_node, config["backend"])
    return _document("ddp", found, _training(config, **changes))


def pipeline(hosts, config, ranks_per_node=1, **changes):
    found = proof(hosts, ranks_per_node, config["backend"])
    stages, microbatches = found["world_size"], config["microbatches"]
    schedule = {
        "stages": stages,
        "microbatches": microbatches,
        "bubble_fraction_ideal": (stages - 1) / (microbatches + stages - 1),
    }
    measured = {**_training(config), **schedule, **changes}
    return _document("pipeline", found, measured)


def _document(payload, proof, measured):
    return {"plumbline": 1, "payload": payload, "proof": proof, "measured": measured}


def line(document):
    return json.dumps(document, separators=(",", ":")) + "\n"
