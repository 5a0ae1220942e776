"""What a GPU of a model must reach by itself: products, its memory, the host, the other GPUs.

A speed is looked up by what it depends on: the way to multiply and the shape, the operation or the
direction, how many GPUs the node has, and, where boards of one model differ, the name by which the
driver knows the board. The first rule that fits is used. `peak` is what the hardware cannot exceed:
a measurement above it is a fault of the measurement.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cluster import strict
from validation.model import Threshold
from validation.thresholds.sourced import (
    CARRIED,
    DERIVED,
    SOURCED,
    derivation_problems,
    least,
    most,
    speed,
)

DTYPES = ("bf16", "fp16", "tf32", "fp32", "fp8")
OPERATIONS = ("copy", "triad")
DIRECTIONS = ("h2d", "d2h")

TFLOPS, GBS = "TFLOPS", "GB/s"


@dataclass(frozen=True, slots=True)
class GemmRule:
    dtype: str
    shape: tuple[int, ...]  # m, n, k
    names: tuple[str, ...]  # of the boards it holds for; none: all of the model
    threshold: Threshold


@dataclass(frozen=True, slots=True)
class MemoryRule:
    operation: str
    names: tuple[str, ...]
    threshold: Threshold


@dataclass(frozen=True, slots=True)
class CopyRule:
    direction: str | None  # None: both
    names: tuple[str, ...]
    threshold: Threshold


@dataclass(frozen=True, slots=True)
class PeerRule:
    gpus: int | None  # of the node; None: any number
    names: tuple[str, ...]
    threshold: Threshold


@dataclass(frozen=True, slots=True)
class Peak:
    """What cannot be exceeded; None where nothing is known."""

    gemm: Mapping[str, Threshold]  # by dtype
    memory: Threshold | None
    copies: Threshold | None  # one way
    peers: Threshold | None  # one way


@dataclass(frozen=True, slots=True)
class GpuRules:
    """All rules for the GPUs of one model, those of the site before the shipped ones."""

    gemm: tuple[GemmRule, ...] = ()
    memory: tuple[MemoryRule, ...] = ()
    copies: tuple[CopyRule, ...] = ()
    peers: tuple[PeerRule, ...] = ()
    peaks: tuple[Peak, ...] = ()

    def gemm_speed(self, dtype: str, shape: Sequence[int], name: str) -> Threshold | None:
        """For a product of matrices of this shape (m, n, k)."""
        return _first(
            rule
            for rule in self.gemm
            if rule.dtype == dtype and rule.shape == tuple(shape) and _holds(rule, name)
        )

    def gemm_dtypes(self, name: str) -> tuple[str, ...]:
        """The ways to multiply that a GPU of this name must have, in the order of DTYPES."""
        needed = {rule.dtype for rule in self.gemm if _holds(rule, name)}
        return tuple(dtype for dtype in DTYPES if dtype in needed)

    def memory_speed(self, operation: str, name: str) -> Threshold | None:
        return _first(
            rule for rule in self.memory if rule.operation == operation and _holds(rule, name)
        )

    def copy_speed(self, direction: str, name: str) -> Threshold | None:
        return _first(
            rule
            for rule in self.copies
            if rule.direction in (None, direction) and _holds(rule, name)
        )

    def peer_speed(self, gpus: int, name: str) -> Threshold | None:
        """Between two GPUs of a node that has so many."""
        return _first(
            rule for rule in self.peers if rule.gpus in (None, gpus) and _holds(rule, name)
        )

    def gemm_peak(self, dtype: str) -> Threshold | None:
        return next((peak.gemm[dtype] for peak in self.peaks if dtype in peak.gemm), None)

    def memory_peak(self) -> Threshold | None:
        return next((peak.memory for peak in self.peaks if peak.memory), None)

    def copies_peak(self) -> Threshold | None:
        return next((peak.copies for peak in self.peaks if peak.copies), None)

    def peers_peak(self) -> Threshold | None:
        return next((peak.peers for peak in self.peaks if peak.peers), None)

    def over(self, other: "GpuRules") -> "GpuRules":
        """These rules, and the other ones where none of these fits."""
        return GpuRules(
            self.gemm + other.gemm,
            self.memory + other.memory,
            self.copies + other.copies,
            self.peers + other.peers,
            self.peaks + other.peaks,
        )


class _Rule(Protocol):
    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def threshold(self) -> Threshold: ...


def _holds(rule: _Rule, name: str) -> bool:
    return not rule.names or name in rule.names


def _first(rules: Iterable[_Rule]) -> Threshold | None:
    return next((rule.threshold for rule in rules), None)


# --- files -----------------------------------------------------------------------------------


def _shape(value: Any, where: str, problems: strict.Problems) -> tuple[int, ...] | None:
    shape: tuple[int, ...] | None = strict.list_of(strict.whole(1))(value, where, problems)
    if shape is not None and len(shape) != 3:
        problems.append(f"{where}: expected m, n and k, found {value!r}")
    return shape


_SHAPE = strict.Form(
    _shape,
    {
        "type": "array",
        "items": strict.schema(strict.whole(1)),
        "minItems": 3,
        "maxItems": 3,
        "description": "m, n, k",
    },
)
_NAMES = strict.described(
    strict.list_of(strict.text, empty=False),
    "of the boards it holds for, as NVML has them; without, all of the model",
)


def _rule(
    keys: Mapping[str, strict.Reader], unit: str, also: Mapping[str, strict.Reader] = DERIVED
) -> strict.Reader:
    return strict.table(
        {**keys, f"fail_below_{unit}": speed, **SOURCED},
        {f"warn_below_{unit}": speed, "names": _NAMES, **also},
    )


_LIMITS = dict.fromkeys(("memory_gbs", "copies_gbs", "peers_gbs"), speed)

# Also the form of `gpu_peak` in common.yml.
PEAK = strict.described(
    strict.table(
        SOURCED,
        {"gemm_tflops": strict.table({}, dict.fromkeys(DTYPES, speed)), **_LIMITS},
    ),
    "what no measurement can exceed; copies and peers one way",
)

# The keys of a model's file that this module understands.
READERS: dict[str, strict.Reader] = {
    "gemm": strict.described(
        strict.list_of(_rule({"dtype": strict.one_of(*DTYPES), "shape": _SHAPE}, "tflops")),
        "products of matrices",
    ),
    "memory": strict.described(
        strict.list_of(_rule({"operation": strict.one_of(*OPERATIONS)}, "gbs")),
        "a GPU's own memory, bytes read and written",
    ),
    "copies": strict.described(
        strict.list_of(_rule({"direction": strict.one_of(*DIRECTIONS, "any")}, "gbs", CARRIED)),
        "between the host's memory and a GPU, one way",
    ),
    "peers": strict.described(
        strict.list_of(_rule({"gpus": strict.either(strict.whole(2), "any")}, "gbs", CARRIED)),
        "between two GPUs of a node, one way; gpus is how many the node has",
    ),
    "peak": PEAK,
}


def problems(read: Mapping[str, Any]) -> list[str]:
    """What is wrong with the numbers of a file that has the right form."""
    peak = read["peak"] or {}
    products = peak.get("gemm_tflops") or {}
    sentences = []
    for table in ("gemm", "memory", "copies", "peers"):
        unit = "tflops" if table == "gemm" else "gbs"
        for index, rule in enumerate(read[table] or ()):
            where = f"{table}[{index}]"
            fail, warn = rule[f"fail_below_{unit}"], rule[f"warn_below_{unit}"]
            if warn is not None and warn < fail:
                sentences.append(f"{where}.warn_below_{unit}: lies below fail_below_{unit}")
            sentences += derivation_problems(rule, fail, warn, where)
            most = products.get(rule["dtype"]) if table == "gemm" else peak.get(f"{table}_gbs")
            if most is not None and max(fail, warn or 0) >= most:
                sentences.append(f"{where}: nothing could pass, the peak is {most:g}")
    return sentences


def rules(read: Mapping[str, Any], place: str) -> GpuRules:
    """The rules of one file, after READERS and `problems` found nothing wrong."""

    def each(table: str, unit: str = "gbs") -> Iterator[tuple[Any, tuple[str, ...], Threshold]]:
        for index, rule in enumerate(read[table] or ()):
            where = f"{place} {table}[{index}]"
            limit = least(rule, unit, TFLOPS if unit == "tflops" else GBS, where)
            yield rule, rule["names"] or (), limit

    return GpuRules(
        tuple(
            GemmRule(rule["dtype"], rule["shape"], names, limit)
            for rule, names, limit in each("gemm", "tflops")
        ),
        tuple(MemoryRule(rule["operation"], names, limit) for rule, names, limit in each("memory")),
        tuple(
            CopyRule(_any(rule["direction"]), names, limit) for rule, names, limit in each("copies")
        ),
        tuple(PeerRule(_any(rule["gpus"]), names, limit) for rule, names, limit in each("peers")),
        (peak(read["peak"], f"{place} peak"),) if read["peak"] else (),
    )


def peak(read: Mapping[str, Any], place: str) -> Peak:
    def limit(value: float | None, unit: str) -> Threshold | None:
        return None if value is None else most(value, unit, read, place)

    return Peak(
        {
            dtype: most(value, TFLOPS, read, place)
            for dtype, value in (read["gemm_tflops"] or {}).items()
            if value is not None
        },
        limit(read["memory_gbs"], GBS),
        limit(read["copies_gbs"], GBS),
        limit(read["peers_gbs"], GBS),
    )


_Value = TypeVar("_Value")


def _any(value: _Value) -> _Value | None:
    return None if value == "any" else value


NO_RULES = GpuRules()
