"""Answers of healthy payloads, made up, for tests to judge and to break.

Standard library only: the simulated Slurm uses it too, in processes of its own.
"""

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
    }
    return _document("node", {"host": host, "python": PYTHON}, {**measured, **changes}, config)


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
                "time_s_median": seconds,
                "time_s_min": seconds * 0.9,
                "time_s_max": seconds * 1.1,
                "algbw_gbs": size / seconds / 1e9,
                "busbw_gbs": busbw_gbs if ranks > 1 else 0.0,
                "wrong_by_rank": [wrong] * ranks,
            }
        )
    measured = {"sizes": sizes, "transport": transport(evidence, hosts, fabric), **changes}
    return _document("all_reduce", evidence, measured, config)


def pairs(hosts, config, ranks_per_node=1, **changes):
    """Two nodes' answer: what they measure is an all_reduce."""
    return {**all_reduce(hosts, config, ranks_per_node, **changes), "payload": "pairs"}


def transport(proof, hosts, fabric):
    """Every rank's log of NCCL, None with Gloo."""
    if proof["backend"] != "nccl":
        return None
    ranks = proof["ranks"]
    return [nccl_log(rank["rank"], len(ranks), rank["host"], hosts, fabric) for rank in ranks]


def _training(config, ranks, first_step, together, **changes):
    """`together`: how many ranks train each model; `first_step`: the names of its figures."""
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
                "steps": [{"parameters": 2e-6} for _ in range(steps)],
                "movement": 0.1,
            }
            for rank in range(ranks)
        ],
        "parameters": 12480,
        "samples_per_s": 4000.0,
        "step_time_s_median": 0.004,
    }
    return {**measured, **changes}


def ddp(hosts, config, ranks_per_node=1, *, fabric="ethernet", **changes):
    evidence = proof(hosts, ranks_per_node, config["backend"])
    ranks = evidence["world_size"]
    shown = {"transport": transport(evidence, hosts, fabric), **changes}
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
        "microbatches": microbatches,
        "bubble_fraction_ideal": (together[0] - 1) / (microbatches + together[0] - 1),
    }
    measured = {**_training(config, ranks, names, together, **schedule), **changes}
    return _document("pipeline", evidence, measured, config)


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
