"""Answers of healthy `host` and `host_speed` payloads, made up, for tests to judge and to break.

Standard library only: the simulated Slurm uses it too. What a port says is what the kernel's
drivers/infiniband/core/sysfs.c prints for a ConnectX-7 at NDR.
"""

UNLIMITED = "unlimited"
COUNTERS = {"link_downed": 1, "link_error_recovery": 0, "symbol_error": 0, "port_rcv_errors": 0}


def port(number, **changes):
    return {
        "device": f"mlx5_{number}",
        "port": 1,
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "400 Gb/sec (4X NDR)",
        "link_layer": "InfiniBand",
        "firmware": "28.39.2048",
        "board": "MT_0000000838",
        "counters": dict(COUNTERS),
        "later": dict(COUNTERS),
        "unread": {},
        **changes,
    }


def shared(path, **changes):
    mount = {
        "point": path,
        "type": "nfs4",
        "source": f"nas:/export{path}",
        "inode": 128,
        "size_mb": 10_000_000,
        "free_mb": 4_000_000,
        "written": path,
        "write_error": None,
    }
    return {"path": path, "found": {**mount, **changes}, "error": None, "seconds": 0.01}


def limits(**changes):
    values = {
        "memlock": {"soft": UNLIMITED, "hard": UNLIMITED},
        "nofile": {"soft": 1024, "hard": 524288},
        "nproc": {"soft": 4126000, "hard": 4126000},
        "stack": {"soft": 8388608, "hard": UNLIMITED},
        "shm": {
            "path": "/dev/shm",
            "error": None,
            "type": "tmpfs",
            "size_mb": 1031000,
            "free_mb": 1030990,
        },
    }
    return {**values, **changes}


def ports_of(fabric, count=2):
    """What a node of the fabric has; of one without such ports nothing."""
    kind, _, word = fabric.partition("_")
    rate = "".join(letter for letter in word if letter.isdigit()) or "100"
    layer = {"ib": "InfiniBand", "roce": "Ethernet"}.get(kind)
    numbers = range(count if layer else 0)
    return [port(number, link_layer=layer, rate=f"{rate} Gb/sec (4X)") for number in numbers]


def host(config, fabric="ethernet"):
    return {
        "limits": limits(),
        "limit_s": config["limit_s"],
        "shared_filesystems": [shared(path) for path in config.get("shared_filesystems", ())],
        "infiniband": {
            "ports": ports_of(fabric),
            "seconds": 2.0,
            "uptime_s": 864000.0,
            "error": None,
        },
    }


def host_speed(config):
    disk = {
        "folder": "/tmp",
        "type": "xfs",
        "source": "/dev/nvme0n1p2",
        "free_mb": 800000,
        "cache": "direct",
        "error": None,
        "bytes": config["disk_bytes"],
        "wrong": 0,
        "write_s": 0.128,
        "read_s": 0.064,
    }
    memory = {
        "array_bytes": 2**26,
        "cache_bytes": 2**25,
        "cores": [
            {"cpu": cpu, "copies": 200, "seconds": config["memory_s"] + 0.002, "wrong": 0}
            for cpu in range(2)
        ],
    }
    tried = {"tries": 900, "best_s": 0.0002, "wrong": 0}
    cores = {
        "bytes": 262144,
        "cores": [{"cpu": cpu, "alone": dict(tried), "together": dict(tried)} for cpu in range(4)],
    }
    return {
        "cores": {"found": cores, "error": None} if config.get("cores") else None,
        "disk": {"found": disk, "error": None} if config["disk"] else None,
        "memory": {"found": memory, "error": None} if config["memory"] else None,
    }
