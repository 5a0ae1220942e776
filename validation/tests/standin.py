"""Answers of healthy payloads, made up, for tests to judge and to break.

Standard library only: the simulated Slurm uses it too, in processes of its own.
"""

import copy
import json
import time

GPU = "NVIDIA H100 80GB HBM3"
PYTHON = "3.13.5"


def folder(path, **changes):
    return {"path": path, "error": None, "free_mb": 40000, **changes}


def address(host):
    return "192.0.2." + ("".join(c for c in host if c.isdigit()) or "1")


def way(host, **changes):
    there = {"name": host, "addresses": address(host), "error": None}
    return {**there, "mtu": 1500, "small": True, "large": True, **changes}


def process(**changes):
    """One that Slurm did not start."""
    idle = {"pid": 1, "user": "root", "command": "systemd", "cpus": 0.04, "asked": 0.05}
    return {**idle, **changes}


def network(host, others):
    ways = [way(other) for other in others]
    return {"addresses": f"{address(host)} fe80::1", "ways": ways} if others else None


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
        "tmp": folder("/tmp"),
        "spool": folder("/var/spool/slurmd"),
        "torch": "2.6.0",
        "torch_error": None,
        "memory_limit_mb": None,
        "outside": {"cpus": 0.04, "asked": 0.05, "seconds": 0.5, "processes": [process()]},
        "network": network(host, (config or {}).get("other_nodes", ())),
        "system": {"boot_id": f"boot-{host}", "kernel": "6.12.0", "driver": None},
    }
    return _document("node", {"host": host, "python": PYTHON}, {**measured, **changes}, config)


def look(host, config, *, ports=(), dcgmi="/usr/bin/dcgmi", shared=(), **changes):
    """What a node shows of itself; `changes` are those of its answer as `node`."""
    measured = {
        "node": node(host, **changes)["measured"],
        "infiniband": {"ports": list(ports), "error": None},
        "dcgmi": dcgmi,
        "shared": list(shared),
    }
    return _document("look", {"host": host, "python": PYTHON}, measured, config)


def cuda(host, config, *, name=GPU, errors=None):
    """What CUDA says of each GPU; `errors` by the GPU's number, in torch's words."""
    versions = {"error": None, "torch": "2.6.0", "cuda": "12.4"}
    gpus = [
        {
            **{"name": name, "uuid": f"GPU-{host}-{index}", "capability": [9, 0]},
            **{"memory_bytes": 85_000_000_000, "multiprocessors": 132, "l2_bytes": 50 << 20},
            **{"bus": f"0000:{index:02x}:00.0", "numa_cpus": 32},
        }
        for index in range(config["gpus"])
    ]
    rows = [
        {"index": index, "start": {"error": error} if error else {**versions, **gpu}}
        for index, gpu in enumerate(gpus)
        for error in [(errors or {}).get(index)]
    ]
    return of_node("cuda", host, {"gpus": rows}, config)


def of_node(payload, host, measured, config=None):
    """The answer of another payload of the node tier."""
    return _document(payload, {"host": host, "python": PYTHON}, measured, config)


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
            "torch": "2.6.0",
            "nccl": "2.21.5" if real else None,
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
        "environment": {},
    }


def nccl_log(rank, ranks, host, nodes, fabric):
    """What NCCL's log of a rank shows: payloads.nccl_log.Summary, over what is declared."""
    kind = fabric.partition("_")[0]
    routes: list[tuple[str, str, int | None, str]] = [("P2P", "CUMEM", None, "")]
    devices, interfaces = [], []
    if len(nodes) > 1 and kind == "ethernet":
        routes.append(("NET", "Socket", 0, ""))
        interfaces = ["eth0"]
    elif len(nodes) > 1:
        routes.append(("NET", "IB", 0, "GDRDMA"))
        layer = "RoCE" if kind == "roce" else "IB"
        devices = [{"index": 0, "name": "mlx5_0:1", "layer": layer, "sharp": False, "mbps": None}]
    return {
        "version": "2.21.5+cuda12.4",
        "networks": ["Socket" if interfaces else "IB"],
        "plugins": [],
        "provider": None,
        "devices": devices,
        "interfaces": interfaces,
        "bootstrap": ["eth0"],
        "communicators": [
            {
                "rank": rank,
                "ranks": ranks,
                "host": host,
                "device": 0,
                "bus_id": "81000",
                "comm_id": "0x4f7e9367046f0f0",
                "nodes": len(nodes),
            }
        ],
        "transports": [
            {
                "kind": how,
                "via": via,
                "device": device,
                "direct": direct,
                "relayed": False,
                "channels": [0, 1],
            }
            for how, via, device, direct in routes
        ],
        "channels": {"collective": 2, "collnet": 0, "nvls": 0, "p2p": 2},
        "choices": [],
        "warnings": [],
        "unread": 0,
        "ring": "NVL",
        "nvswitch": True,
        "failed_ports": 0,
        "unproven": ["algorithm"],
    }


def all_reduce(
    hosts, config, ranks_per_node=1, *, busbw_gbs=1.2, wrong=0, fabric="ethernet", **changes
):
    evidence = proof(hosts, ranks_per_node, config["backend"])
    ranks = evidence["world_size"]
    factor = 2 * (ranks - 1) / ranks
    sizes = []
    for size in config["sizes_bytes"]:
        seconds = size * (factor or 1) / busbw_gbs / 1e9
        sizes.append(
            {
                "bytes": size,
                "elements": size // 4,
                "dtype": "float32",
                "calls_checked": config["warmup"] + config["iterations"],
                "calls_s": calls(seconds, config["iterations"]),
                "time_s_median": seconds,
                "time_s_min": seconds * 0.9,
                "time_s_max": seconds * 1.1,
                "algbw_gbs": size / seconds / 1e9,
                "busbw_gbs": busbw_gbs if ranks > 1 else 0.0,
                "wrong_by_rank": [wrong] * ranks,
                "work_s_by_rank": [0.001 + size / 1e11] * ranks,
            }
        )
    way = {"transport": transport(evidence, hosts, fabric), "boards": boards(evidence)}
    measured = {"sizes": sizes, **way, **changes}
    return _document("all_reduce", evidence, measured, config)


def pairs(hosts, config, ranks_per_node=1, **changes):
    """Two nodes' answer: what they measure is an all_reduce."""
    segments = [{"sent": 5000, "again": 70, "needless": 67}] * (len(hosts) * ranks_per_node)
    answer = all_reduce(hosts, config, ranks_per_node, **{"tcp": segments, **changes})
    del answer["measured"]["boards"]  # of pairs NVML is not asked
    return {**answer, "payload": "pairs"}


def calls(median_s, count):
    """Seconds of so many calls, an odd number or not, with this median."""
    return [median_s * factor for factor in (0.9, *[1.0] * (count - 2), 1.1)][:count]


# Of nccl-tests: how often each byte goes over a link, but for the share that a rank keeps.
TRIPS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
IN_PLACE = {"all_reduce": [True], "broadcast": [True], "all_to_all": [False], "sendrecv": [False]}


def collectives(
    hosts, config, ranks_per_node=1, *, busbw_gbs=1.2, fabric="ethernet", latency_s=2e-5, **changes
):
    evidence = proof(hosts, ranks_per_node, config["backend"])
    ranks = evidence["world_size"]
    ways = []
    for operation in config["operations"]:
        blocks = ranks if operation in ("all_gather", "reduce_scatter", "all_to_all") else 1
        factor = TRIPS[operation] * (ranks - 1) / ranks if operation in TRIPS else 1
        for in_place in IN_PLACE.get(operation, [False, True]):
            sizes = []
            for asked in config["sizes_bytes"]:
                size = max(1, asked // 4 // blocks) * blocks * 4
                seconds = latency_s + size * (factor or 1) / busbw_gbs / 1e9
                sizes.append(
                    {
                        "bytes": size,
                        "calls_s": calls(seconds, config["iterations"]),
                        "calls_checked": config["warmup"] + config["iterations"],
                        "wrong": [],
                    }
                )
            work = [0.001 + config["sizes_bytes"][-1] / 1e11] * ranks
            ways.append({**way_of(operation, in_place), "sizes": sizes, "work_s_by_rank": work})
    real = config["backend"] == "nccl"
    shown = {
        "memory_bytes": 85_000_000_000 if real else None,
        "nccl_tests": [] if real else None,
        "transport": transport(evidence, hosts, fabric),
        "boards": boards(evidence),
    }
    measured = {"ways": ways, **shown, **changes}
    return _document("collectives", evidence, measured, config)


def way_of(operation, in_place):
    return {"operation": operation, "in_place": in_place}


def transport(proof, hosts, fabric):
    """Every rank's log of NCCL, None with Gloo."""
    if proof["backend"] != "nccl":
        return None
    ranks = proof["ranks"]
    return [nccl_log(rank["rank"], len(ranks), rank["host"], hosts, fabric) for rank in ranks]


_BOARD = {
    "pcie_replays": 0,
    "nvlinks": [],
    "temperature_slowdown_c": 87,
    "ecc_volatile_uncorrected": 0,
    "ecc_volatile_corrected": 0,
    "remapped_rows": {"correctable": 0, "uncorrectable": 0, "pending": "no", "failure": "no"},
    "retired_pages": None,
}


def boards(proof):
    """What NVML says of every node's boards while ranks communicate, None with Gloo."""
    if proof["backend"] != "nccl":
        return None
    unknown = [{"name": "retired_pages", "kind": "unsupported", "why": "Not Supported"}]
    figures = {"samples": 20, "sm_mhz": 1755, "power_w": 420, "temperature_c": 55, "held_by": []}
    driver = {"error": None, "driver": "580.82.07", "nvml": "13.580.82.07", "cuda": 13000}
    nodes: dict[str, list[dict[str, object]]] = {}
    for rank in proof["ranks"]:
        index = rank["local_rank"]
        values = {"uuid": rank["gpu_uuid"], "pci": f"00000000:{27 + index:02X}:00.0", **_BOARD}
        told = {"index": index, "error": None, "seconds": 0.1, "values": values}
        nodes.setdefault(rank["host"], []).append(
            {
                "rank": rank["rank"],
                "index": index,
                "before": copy.deepcopy({**told, "unknown": unknown}),
                "after": copy.deepcopy({**told, "unknown": unknown}),
                "loads": [{"load": "communication", **copy.deepcopy(figures)}],
            }
        )
    return [
        {
            "host": host,
            "nvml": {**driver, "count": len(rows), "seconds": 0.1},
            **{"seconds": 30.0, "work_s": 2.0, "boards": rows},
        }
        for host, rows in nodes.items()
    ]


def _training(config, ranks, first_step, together, *, gathers=False, **changes):
    """`together`: how many ranks train each model; `first_step`: the names of its figures.

    ranks    how many, or the rank of each row
    gathers  whether weights are gathered for each step
    """
    order = range(ranks) if isinstance(ranks, int) else ranks
    steps = config["steps"]
    losses = [2.5 * 0.9**step for step in range(steps)]
    measured = {
        "steps": steps,
        "curves": [
            {"ranks": count, "steps": [{"loss": loss, "reference": loss} for loss in losses]}
            for count in together
        ],
        "ranks": [
            {
                "rank": rank,
                "first_step": dict.fromkeys(first_step, 3e-7),
                "steps": [
                    {"parameters": 2e-6, **(_gathered(rank) if gathers else {})}
                    for _ in range(steps)
                ],
                "movement": 0.1,
            }
            for rank in order
        ],
        "parameters": 12480,
        "samples_per_s": 4000.0,
        "step_time_s_median": 0.004,
        "step_times_s": [0.2, *(0.004 for _ in range(steps - 1))],
        "reference_step_s": 0.002,
    }
    return {**measured, **changes}


def ddp(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    evidence = proof(hosts, ranks_per_node, config["backend"])
    ranks = evidence["world_size"]
    way = {"transport": transport(evidence, hosts, fabric), "boards": boards(evidence)}
    shown = {**way, **changes}
    measured = _training(config, ranks, ("computed", "exchanged"), [ranks], **shown)
    return _document("ddp", evidence, measured, config)


def pipeline(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    evidence = proof(hosts, ranks_per_node, config["backend"])
    ranks, microbatches = evidence["world_size"], config["microbatches"]
    count = -(-ranks // 16)
    together = [len(range(chain, ranks, count)) for chain in range(count)]
    names = ("received", "computed", "exchanged")
    schedule = {
        "transport": transport(evidence, hosts, fabric),
        "boards": boards(evidence),
        "microbatches": microbatches,
        "bubble_fraction_ideal": (together[0] - 1) / (microbatches + together[0] - 1),
    }
    measured = {**_training(config, ranks, names, together, **schedule), **changes}
    return _document("pipeline", evidence, measured, config)


def _gathered(rank):
    return {"weights": 1e-6, "owner": rank, "own": 1e-6}


def _chains(ranks, longest=8):
    count = -(-ranks // longest)
    return [len(range(chain, ranks, count)) for chain in range(count)]


def _sharded(payload, models, hosts, config, ranks_per_node, fabric, changes):
    """models: of so many ranks, rows and columns of ranks."""
    evidence = proof(hosts, ranks_per_node, config["backend"])
    ranks = evidence["world_size"]
    together = [rows * columns for rows, columns in models(ranks)]
    stood = {
        "rows": [rows for rows, _ in models(ranks)],
        "columns": [columns for _, columns in models(ranks)],
    }
    shown = {"transport": transport(evidence, hosts, fabric), **stood, **changes}
    names = ("computed", "received", "exchanged")
    measured = _training(config, ranks, names, together, gathers=True, **shown)
    return _document(payload, evidence, measured, config)


def fsdp(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    def models(ranks):
        return [(ranks, 1)]

    return _sharded("fsdp", models, hosts, config, ranks_per_node, fabric, changes)


def tensor_parallel(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    def models(ranks):
        return [(1, row) for row in _chains(ranks)]

    return _sharded("tensor_parallel", models, hosts, config, ranks_per_node, fabric, changes)


def mesh(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    def models(ranks):
        evenly = ranks if ranks_per_node == 1 else ranks_per_node
        fits = [n for n in range(1, 9) if n * n <= ranks and not evenly % n and not ranks % n]
        return [(ranks // fits[-1], fits[-1])]

    return _sharded("mesh", models, hosts, config, ranks_per_node, fabric, changes)


def schedules(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    evidence = proof(hosts, ranks_per_node, config["backend"])
    ranks, names = evidence["world_size"], ("received", "computed", "exchanged")
    parts = []
    for schedule, stages in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2)):
        if ranks == 1 < stages:
            continue
        order, first = [], 0
        for count in _chains(ranks):
            order += list(range(first, first + count)) * stages
            first += count
        part = _training(config, order, names, _chains(ranks))
        parts.append({"schedule": schedule, **part})
    measured = {"schedules": parts, "transport": transport(evidence, hosts, fabric), **changes}
    return _document("schedules", evidence, measured, config)


def expert_parallel(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    evidence = proof(hosts, ranks_per_node, config["backend"])
    ranks = evidence["world_size"]
    names = ("computed", "received", "returned", "exchanged", "experts")
    shown = {"transport": transport(evidence, hosts, fabric), **changes}
    measured = _training(config, ranks, names, _chains(ranks), **shown)
    for rank, row in enumerate(measured["ranks"]):
        row["first_step"] |= {"received_from": rank, "returned_from": rank}
    return _document("expert_parallel", evidence, measured, config)


DIGEST = "5d" * 32


def _restart(config, evidence, hosts, fabric, first, last):
    """What both jobs of a killed training say of its steps from `first` to `last`."""
    losses = [2.5 * 0.9**step for step in range(config["steps"])]
    return {
        "steps": config["steps"],
        "first": first,
        "losses": losses[first:last],
        "reference": losses[first:last],
        "range": losses[0] - losses[-1],
        "ranks": [
            {"rank": rank, "reference": DIGEST, "equal": True, "difference": 0.0, "movement": 0.3}
            for rank in range(evidence["world_size"])
        ],
        "parameters": 16640,
        "references_before": [DIGEST] if first else [],
        "transport": transport(evidence, hosts, fabric),
    }


def checkpoint(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    evidence = proof(hosts, ranks_per_node, config["backend"])
    files = [
        {
            "rank": rank["rank"],
            "host": rank["host"],
            "name": f"__{rank['rank']}_0.distcp",
            "bytes": 70421,
            "sha256": DIGEST,
            "before": DIGEST[::-1],
        }
        for rank in evidence["ranks"]
    ]
    measured = {
        **_restart(config, evidence, hosts, fabric, 0, config["kept"]),
        "folder": f"{config['filesystem']}/plumbline-checkpoint-1000/{config['stamp']}",
        "free_bytes": 1 << 40,
        "files": files,
        "save_s": 0.05,
        "ended_by": "SIGKILL",
        **changes,
    }
    return _document("checkpoint", evidence, measured, config)


def resume(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    evidence = proof(hosts, ranks_per_node, config["backend"])
    measured = {
        **_restart(config, evidence, hosts, fabric, config["kept"], config["steps"]),
        "missing": [],
        "folder": f"{config['filesystem']}/plumbline-checkpoint-1000/{config['stamp']}",
        "step": config["kept"],
        "written_by": evidence["world_size"],
        "problems": [],
        "problems_in_all": 0,
        "files_checked": 3,
        "bytes": 144274,
        "wrong_state": [],
        "load_s": 0.03,
        **changes,
    }
    return _document("resume", evidence, measured, config)


def inference(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    evidence = proof(hosts, ranks_per_node, config["backend"])
    ranks, new = evidence["world_size"], config["new_tokens"]
    count = -(-ranks // 16)
    rows = [len(range(row, ranks, count)) for row in range(count)]

    def tokens():
        return [[prompt + number for number in range(new)] for prompt in range(config["prompts"])]

    places = config["prompt_tokens"] + new - 1
    measured = {
        "rows": rows,
        "tokens": [tokens() for _ in rows],
        "expected": tokens(),
        "margin": 0.0123,
        "ranks": [
            {
                "rank": rank,
                "computed": 3e-7,
                "first_cache": [3e-7] * places,
                "cache": [3e-7] * places,
                "logits": [2e-7] * new,
                "wrong_tokens": 0,
                "first_wrong": 0,
            }
            for rank in range(ranks)
        ],
        "parameters": 131072,
        "prefill_s": 0.01,
        "prefill_tokens_per_s": 6400.0,
        "decode_s": 0.3,
        "decode_tokens_per_s": 200.0,
        "transport": transport(evidence, hosts, fabric),
        **changes,
    }
    return _document("inference", evidence, measured, config)


def scaling(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    evidence = proof(hosts, ranks_per_node, config["backend"])
    ranks = evidence["world_size"]
    powers = [2**power for power in range(12) if 2**power < len(hosts)]
    counts = sorted({1, ranks, *(ranks_per_node * count for count in powers)})
    measured = {
        "nodes": len(hosts),
        "sizes": [
            {
                "ranks": count,
                "took_part": count,
                "summed": [count * (count + 1) // 2] * count,
                "in_step": True,
                "losses_finite": True,
                "weak_s": 0.5 * (1 + 0.02 * (count > 1) + 0.01 * (count > 8)),
                "strong_s": 0.9 / count * 1.05 if count <= config["total"] else None,
                "pipeline_s": 0.1 * (1 + 1.1 * (count - 1) / config["microbatches"])
                if count <= 16
                else None,
            }
            for count in counts
        ],
        "parameters": 134217728,
        "parameters_multiplied": 117440512,
        "dtype": "bf16" if config["backend"] == "nccl" else "fp32",
        "transport": transport(evidence, hosts, fabric),
        **changes,
    }
    return _document("scaling", evidence, measured, config)


def soak(
    hosts,
    config,
    ranks_per_node=1,
    *,
    fabric="ethernet",
    rates=(100.0,),
    hashes=("0123456789abcdef",),
    began_ns=10**18,
    samples=None,
    after=None,
    error=None,
    **changes,
):
    """A node under load. `rates` of its GPUs in turn, `hashes` of the windows in turn."""
    device = config["device"]
    count = config["gpus"] if device == "cuda" else 1
    ends = [config["window_s"] * (number + 1) for number in range(64)]
    ends = [end for end in ends if end < config["seconds"]] + [config["seconds"] + 0.1]

    def worked(index):
        rate = rates[index % len(rates)]
        windows, before = [], 0.0
        for number, end in enumerate(ends):
            busy = end - before
            digest = hashes[number % len(hashes)]
            windows.append(
                {
                    **{"at_s": end, "products": max(1, round(rate * busy)), "busy_s": busy},
                    **{"gemm": digest, "attention": "fedcba9876543210"},
                }
            )
            before = end
        shape = {name: config[name] for name in ("dtype", "size")}
        cpu = None if device == "cuda" else "a CPU, 2 threads"
        return {"error": error, **shape, "cpu": cpu, "data": "0" * 32, "windows": windows}

    start = {"error": None, "torch": "2.6.0", "cuda": "12.4" if device == "cuda" else None}
    board = {"name": GPU, "multiprocessors": 132, "bus": None, "capability": [9, 0]}
    gpus = [
        {
            "index": index,
            "start": {**start, **board, "uuid": f"GPU-{hosts[0]}-{index}"},
            "soak": worked(index),
        }
        for index in range(count)
    ]
    counters = {
        "gpus": [nvml_counters(index) for index in range(count)] if device == "cuda" else [],
        "net": {"eth0": {"rx_errors": 0, "tx_errors": 0}},
    }
    seen = [nvml_sample(hosts[0], index) for index in range(count)] if device == "cuda" else []
    host = {"load": 2.0, "mhz": 2600.0, "mhz_least": 2500.0, "temperature_c": None}
    measured = {
        "device": device,
        "began_ns": began_ns,
        "gpus": gpus,
        "samples": samples or {"gpus": seen, "host": [{"at_s": 4.0, **host}]},
        "counters": {
            "before": counters,
            "after": after or copy.deepcopy(counters),
        },
    }
    return of_node("soak", hosts[0], {**measured, **changes}, config)


def nvml_counters(index, **values):
    """What NVML counted of a GPU."""
    known: dict[str, object] = {
        **{"ecc_volatile_uncorrected": 0, "ecc_volatile_corrected": 0, "pcie_replays": 0},
        **{"remapped_rows": None, "nvlinks": None},
        **values,
    }
    unknown = [
        {"name": name, "kind": "unsupported", "why": "Not Supported"}
        for name, value in known.items()
        if value is None
    ]
    return {"index": index, "error": None, "seconds": 0.1, "values": known, "unknown": unknown}


def nvml_sample(host, index, **values):
    """What NVML says of a GPU under load."""
    known = {
        **{"uuid": f"GPU-{host}-{index}", "clock_sm_mhz": 1755, "clock_memory_mhz": 2619},
        **{"temperature_c": 61, "power_mw": 690_000, "temperature_slowdown_c": 87},
        **{"power_limit_mw": 700_000, "power_limit_default_mw": 700_000},
        "clock_reasons": {"always": 4, "sometimes": 4, "reasons": "software power cap"},
        **values,
    }
    gpu = {"index": index, "error": None, "seconds": 0.1, "values": known, "unknown": []}
    return {"at_s": 10.0, **gpu}


def same_sums(
    hosts, config, ranks_per_node=1, *, fabric="ethernet", odd=None, digest="0123456789abcdef"
):
    """`odd`: the rank whose last call of all_reduce gave something else."""
    evidence = proof(hosts, ranks_per_node, config["backend"])
    ranks = evidence["world_size"]
    calls = 2 * config["least"]
    rows = []
    for operation in ("all_reduce", "all_gather", "broadcast"):
        hashes = [{digest: calls} for _ in range(ranks)]
        if odd is not None and operation == "all_reduce":
            hashes[odd] = {digest: calls - 1, "f" * 16: 1}
        rows.append({"operation": operation, "calls": calls, "hashes": hashes})
    measured = {"operations": rows, "transport": transport(evidence, hosts, fabric)}
    if dict(config).get("backend") == "nccl":
        evidence["environment"] = {"NCCL_ALGO": "Ring"}
    return _document("same_sums", evidence, measured, config)


def contained(document, system="Ubuntu 24.04.2 LTS", without=()):
    """The same answer out of a container, but of the hosts that have none."""

    def in_container(proof):
        return {**proof, "container": None if proof["host"] in without else system}

    proof = document["proof"]
    if "ranks" not in proof:
        return {**document, "proof": in_container(proof)}
    return {
        **document,
        "proof": {**proof, "ranks": [in_container(rank) for rank in proof["ranks"]]},
    }


def _document(payload, proof, measured, config):
    return {
        "plumbline": 1,
        "payload": payload,
        "nonce": (config or {}).get("nonce", ""),
        "proof": proof,
        "measured": measured,
    }


def line(document):
    return json.dumps(document, separators=(",", ":")) + "\n"
