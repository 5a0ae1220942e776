"""Which checks a run makes, and how its jobs are set up: data, one file per suite.

A suite may be made of others: it has their checks, and their jobs as they set them up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import strict
from cluster.errors import DataError, UsageError
from validation.checks.pipeline import LONGEST_CHAIN
from validation.checks.registry import CHECKS
from validation.payloads.collectives import OPERATIONS
from validation.payloads.gpu_gemm import KINDS

FOLDER = Path(__file__).parent

BACKENDS = ("gloo", "nccl")
DEVICES = ("cpu", "cuda")  # what a node's job computes on


@dataclass(frozen=True, slots=True)
class JobTemplate:
    run_limit_s: int
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    description: str
    queue_limit_s: int
    checks: tuple[str, ...]
    node: Mapping[str, Mapping[str, JobTemplate]]  # payload, then device
    cluster: Mapping[str, Mapping[str, JobTemplate]]  # payload, then backend
    largest_bytes: Mapping[str, int]  # by fabric: all_reduce between nodes goes no further


_GROUP: dict[str, strict.Reader] = {
    "run_limit_s": strict.whole(1),
    "timeout_s": strict.whole(1),
    "join_timeout_s": strict.whole(1),
}
_TRAINING: dict[str, strict.Reader] = {
    **_GROUP,
    "seed": strict.whole(),
    "steps": strict.whole(2),
    "width": strict.whole(1),
    "lr": strict.positive,
}

_ALL_REDUCE: dict[str, strict.Reader] = {
    **_GROUP,
    "sizes_bytes": strict.list_of(strict.whole(4), empty=False),
    "iterations": strict.whole(1),
    "warmup": strict.whole(1),
    "dtype": strict.one_of("float32"),
}
_TRANSFORMER: dict[str, strict.Reader] = {
    **_TRAINING,
    "tokens": strict.whole(2),
    "heads": strict.whole(1),
    "head_width": strict.whole(1),
    "hidden": strict.whole(1),
}
_SHARDED: dict[str, strict.Reader] = {
    **_TRANSFORMER,
    "batch": strict.whole(1),
    "depth": strict.whole(1),
}

# What each payload takes, beside its backend.
_CONFIGS: dict[str, dict[str, strict.Reader]] = {
    "pairs": _ALL_REDUCE,
    "all_reduce": _ALL_REDUCE,
    "collectives": {
        **_ALL_REDUCE,
        "operations": strict.list_of(strict.one_of(*OPERATIONS), empty=False),
    },
    "ddp": {**_TRAINING, "batch_per_rank": strict.whole(1), "depth": strict.whole(1)},
    "pipeline": {
        **_TRAINING,
        "microbatches": strict.whole(1),
        "microbatch_size": strict.whole(1),
        "layers_per_stage": strict.whole(1),
    },
    "fsdp": _SHARDED,
    "tensor_parallel": _SHARDED,
    "schedules": {
        **_TRANSFORMER,
        "microbatches_per_rank": strict.whole(1),
        "microbatch_size": strict.whole(1),
        "blocks": strict.whole(1),
    },
    "expert_parallel": {**_SHARDED, "experts": strict.whole(1)},
    "mesh": _SHARDED,
    "checkpoint": {
        **_TRAINING,
        "depth": strict.whole(1),
        "batch_per_slice": strict.whole(1),
        "kept": strict.whole(2),
    },
    "inference": {
        **_GROUP,
        "seed": strict.whole(),
        "vocabulary": strict.whole(2),
        "width": strict.whole(1),
        "heads": strict.whole(LONGEST_CHAIN),
        "hidden": strict.whole(LONGEST_CHAIN),
        "depth": strict.whole(1),
        "prompts": strict.whole(1),
        "prompt_tokens": strict.whole(1),
        "new_tokens": strict.whole(2),
    },
    "scaling": {
        **_GROUP,
        "seed": strict.whole(),
        "vocabulary": strict.whole(2),
        "width": strict.whole(1),
        "heads": strict.whole(1),
        "hidden": strict.whole(1),
        "depth": strict.whole(1),
        "sequence": strict.whole(1),
        "batch": strict.whole(1),
        "total": strict.whole(1),
        "microbatches": strict.whole(LONGEST_CHAIN),
        "microbatch_size": strict.whole(1),
        "stage_width": strict.whole(1),
        "stage_layers": strict.whole(1),
        "steps": strict.whole(1),
        "warmup": strict.whole(1),
        "lr": strict.positive,
    },
    "same_sums": {
        **_GROUP,
        "size_bytes": strict.whole(8),
        "seconds": strict.positive,
        "least": strict.whole(2),
        "seed": strict.whole(),
    },
}

# What goes on with what another payload began is set up as that one.
_GOES_ON = {"resume": "checkpoint"}

_LIMIT: dict[str, strict.Reader] = {"run_limit_s": strict.whole(1)}

# Payloads of the node tier; what one takes that computes depends on the device.
_NODE: dict[str, strict.Reader] = {
    "node": strict.table(_LIMIT),
    "host": strict.table({**_LIMIT, "limit_s": strict.positive}),
    "host_speed": strict.table(
        {
            **_LIMIT,
            "disk_bytes": strict.whole(1),
            "disk_s": strict.positive,
            "memory_s": strict.positive,
            "limit_s": strict.positive,
        }
    ),
    "health": strict.table({**_LIMIT, "nvml_timeout_s": strict.positive}),
    "cuda": strict.table({**_LIMIT, "start_limit_s": strict.positive}),
    "isolation": strict.table({**_LIMIT, "meet_s": strict.positive}),
    "dcgm": strict.table({**_LIMIT, "level": strict.whole(1), "limit_s": strict.positive}),
    "soak": strict.table(
        dict.fromkeys(
            DEVICES,
            strict.table(
                {
                    **_LIMIT,
                    "dtype": strict.one_of(*KINDS),
                    "size": strict.whole(16),
                    "attention": strict.list_of(strict.whole(1), empty=False),
                    "seconds": strict.positive,
                    "window_s": strict.positive,
                    "sample_s": strict.positive,
                    "seed": strict.whole(),
                    "start_limit_s": strict.positive,
                }
            ),
        )
    ),
    "compute": strict.table(
        dict.fromkeys(
            DEVICES,
            strict.table(
                {
                    **_LIMIT,
                    "dtypes": strict.list_of(strict.one_of(*KINDS), empty=False),
                    "gemm_size": strict.whole(16),
                    "gemm_s": strict.positive,
                    "sustain_s": strict.whole(),
                    "least": strict.whole(2),
                    "repeats": strict.whole(2),
                    "memory_bytes": strict.whole(1),
                    "copy_bytes": strict.whole(1),
                    "iterations": strict.whole(1),
                    "warmup": strict.whole(1),
                    "seed": strict.whole(),
                    "start_limit_s": strict.positive,
                    "limit_s": strict.positive,
                    "total_s": strict.positive,
                }
            ),
        )
    ),
}

_READ = strict.table(
    {
        "name": strict.text,
        "description": strict.text,
        # MUNGE credentials live for 300 s, and one waits in the queue with each node's job.
        "queue_limit_s": strict.whole(1),
        "checks": strict.list_of(strict.one_of(*CHECKS), empty=False),
    },
    {
        "largest_bytes": strict.map_of(strict.whole(4)),
        **_NODE,
        **{
            payload: strict.table({backend: strict.table(config) for backend in BACKENDS})
            for payload, config in _CONFIGS.items()
        },
    },
)


_MADE_OF = strict.table(
    {
        "name": strict.text,
        "description": strict.text,
        "suites": strict.list_of(strict.text, empty=False),
    }
)


def names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yml")))


def load(name: str) -> Suite:
    if name not in names():
        raise UsageError(f"unknown suite {name!r}; there is {', '.join(names())}")
    return read(FOLDER / f"{name}.yml")


def read(path: Path) -> Suite:
    """The suite in a file. Raises DataError with every problem."""
    document = strict.load_yaml(path)
    if isinstance(document, Mapping) and "suites" in document:
        return _made_of(path, document)
    problems: strict.Problems = []
    fields = _READ(document, "", problems)
    if problems:
        raise DataError(str(path), problems)
    problems += _misnamed(path, fields)
    if fields["queue_limit_s"] > 240:
        problems.append("queue_limit_s: above 240 s; MUNGE credentials could expire in the queue")
    payloads = {CHECKS[name].payload for name in fields["checks"]} - {None}
    needed = {_GOES_ON.get(payload, payload) for payload in payloads if payload}
    problems += [
        f"{payload}: a check of the suite needs it, and nothing says how it runs"
        for payload in (*_NODE, *_CONFIGS)
        if payload in needed and fields[payload] is None
    ]
    node = {
        payload: {
            device: _template(fields[payload].get(device, fields[payload])) for device in DEVICES
        }
        for payload in _NODE
        if fields[payload] is not None
    }
    cluster: dict[str, dict[str, JobTemplate]] = {}
    for payload in _CONFIGS:
        cluster[payload] = {}
        if fields[payload] is None:
            continue
        for backend in BACKENDS:
            config = dict(fields[payload][backend])
            limit = config.pop("run_limit_s")
            if limit < 2 * max(config["timeout_s"], config["join_timeout_s"]):
                problems.append(
                    f"{payload}.{backend}.run_limit_s: must be twice timeout_s and join_timeout_s "
                    "at least, so that the payload can still say what it waited for"
                )
            if config.get("microbatches", LONGEST_CHAIN) < LONGEST_CHAIN:
                problems.append(
                    f"{payload}.{backend}.microbatches: must be {LONGEST_CHAIN} at least, one for "
                    "each stage of the longest pipeline"
                )
            sizes = config.get("sizes_bytes", ())
            if list(sizes) != sorted(set(sizes)):
                problems.append(f"{payload}.{backend}.sizes_bytes: must rise")
            if config.get("kept", 0) >= config.get("steps", 1):
                problems.append(f"{payload}.{backend}.kept: must be below steps")
            cluster[payload][backend] = JobTemplate(limit, config)
    cluster |= {payload: cluster[other] for payload, other in _GOES_ON.items()}
    if problems:
        raise DataError(str(path), problems)
    return Suite(
        fields["name"],
        fields["description"],
        fields["queue_limit_s"],
        tuple(dict.fromkeys(fields["checks"])),
        node,
        cluster,
        fields["largest_bytes"] or {},
    )


def _misnamed(path: Path, document: Mapping[str, Any]) -> list[str]:
    if document["name"] == path.stem:
        return []
    return [f"name: is {document['name']!r}, the file's name says {path.stem!r}"]


def _made_of(path: Path, document: Mapping[str, Any]) -> Suite:
    """The suite that has the checks of others. One payload cannot be set up in two ways."""
    problems: strict.Problems = []
    fields = _MADE_OF(document, "", problems)
    if problems:
        raise DataError(str(path), problems)
    problems += _misnamed(path, fields)
    others = [name for name in names() if name != path.stem]
    problems += [
        f"suites: there is no other suite {name!r}"
        for name in fields["suites"]
        if name not in others
    ]
    if problems:
        raise DataError(str(path), problems)
    parts = [load(name) for name in fields["suites"]]
    node: dict[str, Mapping[str, JobTemplate]] = {}
    cluster: dict[str, Mapping[str, JobTemplate]] = {}
    for part in parts:
        for together, own in ((node, part.node), (cluster, part.cluster)):
            for payload, templates in own.items():
                if templates and together.setdefault(payload, templates) != templates:
                    problems.append(
                        f"suites: {part.name} sets up {payload} another way than before"
                    )
    if problems:
        raise DataError(str(path), problems)
    return Suite(
        fields["name"],
        fields["description"],
        max(part.queue_limit_s for part in parts),
        tuple(dict.fromkeys(check for part in parts for check in part.checks)),
        node,
        cluster,
        {fabric: size for part in parts for fabric, size in part.largest_bytes.items()},
    )


def _template(read: Mapping[str, Any]) -> JobTemplate:
    config = dict(read)
    return JobTemplate(config.pop("run_limit_s"), config)
