"""A thresholds file that has every key once, and a rule to begin others with."""

RULE = {"provenance": "gate", "source": "test", "date": "2026-05"}
ORIGIN = {"provenance": "recorded", "source": "test", "date": "2026-05-01"}
COLLECTIVE = {
    "operation": "all_reduce",
    "dtype": "float32",
    "nodes": 1,
    "ranks_per_node": 8,
    "links": "any",
    "fabric": "any",
    "backend": "nccl",
    "min_bytes": 1024,
    "fail_below_gbs": 10.0,
    **ORIGIN,
}
DERIVATION = {"healthy": 2, "basis": "measured", "factor": 0.5}
WHOLE = {
    "model": "x",
    "description": "all of it",
    "nvml_names": {"names": ["X"], **RULE},
    "collectives": [
        {
            **{**COLLECTIVE, **RULE, "nodes": nodes, "ranks_per_node": ranks, "links": "nvlink"},
            **{"min_bytes": 1, "fail_below_gbs": 1, "warn_below_gbs": 1.5, "fail_above_gbs": 2},
            **{"transport": "NVLS", "nccl": "2.18.5", "derivation": DERIVATION},
        }
        for nodes, ranks in ((1, "any"), (2, 8))
    ]
    + [
        {**COLLECTIVE, "nodes": ">1", "most_nodes": 8, "between": "network", "ports": 8},
        {**COLLECTIVE, "nodes": ">1", "between": "mnnvl"},
    ],
    "gemm": [
        {
            "dtype": "bf16",
            "shape": [1, 2, 3],
            "fail_below_tflops": 1,
            "warn_below_tflops": 2,
            "names": ["X"],
            **RULE,
        }
    ],
    "memory": [
        {
            "operation": "copy",
            "fail_below_gbs": 1,
            "derivation": {**DERIVATION, "basis": "reckoned", "datasheet": 4, "share": 0.5},
            **RULE,
        }
    ],
    "copies": [{"direction": "any", "fail_below_gbs": 1, "transport": "PCIe", **RULE}],
    "peers": [{"gpus": gpus, "fail_below_gbs": 1, **RULE} for gpus in ("any", 2)],
    "host": {
        name: {"fail_below_gbs": 1, "warn_below_gbs": 2, **RULE}
        for name in ("disk_write_gbs", "disk_read_gbs", "memory_copy_gbs")
    },
    "peak": {"gemm_tflops": {"bf16": 3}, "memory_gbs": 2, **RULE},
}
