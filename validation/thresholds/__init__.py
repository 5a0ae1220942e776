"""The numbers that a run is judged by: data, one file per GPU model, each with its source.

A file is read strictly and never evaluated. A site's own files (`--thresholds DIR`) have the same
form: their rules are looked at before the shipped ones, their names are added, and their
`common.yml` replaces the tolerances that it gives.

A bandwidth is looked up by what it depends on: GPU model, nodes (one, or more than one), ranks
per node, fabric and backend, for a transfer of at least `min_bytes`. The first rule that fits is
used. No rule means no verdict: the measurement is reported as inconclusive, never as a pass. What a
GPU must reach by itself stands in the same files, see thresholds/gpu.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Literal

from validation import strict
from validation.errors import DataError
from validation.model import Threshold
from validation.thresholds import gpu
from validation.thresholds.gpu import GpuRules, Peak

SHIPPED = Path(__file__).parent

# A site may widen a tolerance, not make a check blind.
MOST_CLOCK_OFFSET = 300.0
MOST_TRAINING_DIFFERENCE = 1e-3

PROVENANCES = ("recorded", "derived", "datasheet")


@dataclass(frozen=True, slots=True)
class BandwidthRule:
    nodes: Literal["1", ">1"]
    ranks_per_node: int | None
    fabric: str | None
    backend: str
    min_bytes: int
    threshold: Threshold
    ceiling: Threshold | None = None  # more than that is no measurement

    def fits(self, nodes: int, ranks_per_node: int, fabric: str, backend: str, size: int) -> bool:
        return (
            (self.nodes == "1") == (nodes == 1)
            and self.ranks_per_node in (None, ranks_per_node)
            and self.fabric in (None, fabric)
            and self.backend == backend
            and size >= self.min_bytes
        )


@dataclass(frozen=True, slots=True)
class ModelThresholds:
    model: str
    nvml_names: tuple[str, ...]
    all_reduce: tuple[BandwidthRule, ...]
    gpu: GpuRules = gpu.NO_RULES

    def bandwidth(
        self, nodes: int, ranks_per_node: int, fabric: str, backend: str, size: int
    ) -> Threshold | None:
        rule = self._rule(nodes, ranks_per_node, fabric, backend, size)
        return None if rule is None else rule.threshold

    def ceiling(
        self, nodes: int, ranks_per_node: int, fabric: str, backend: str, size: int
    ) -> Threshold | None:
        rule = self._rule(nodes, ranks_per_node, fabric, backend, size)
        return None if rule is None else rule.ceiling

    def _rule(
        self, nodes: int, ranks_per_node: int, fabric: str, backend: str, size: int
    ) -> BandwidthRule | None:
        for rule in self.all_reduce:
            if rule.fits(nodes, ranks_per_node, fabric, backend, size):
                return rule
        return None


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far a distributed training may be from its reference; see checks/training.py."""

    loss: Threshold
    first_step: Threshold
    parameters: Threshold


@dataclass(frozen=True, slots=True)
class Common:
    clock_offset: Threshold
    bus_bandwidth: Mapping[str, Threshold]  # by backend: what no hardware exceeds
    training: Mapping[str, Tolerances]  # by backend
    gpu_peak: Peak  # what no GPU known here exceeds


@dataclass(frozen=True, slots=True)
class Rules:
    """What one group of equal nodes is judged by. `model` is None where no file knows it."""

    hardware: str
    model: ModelThresholds | None
    common: Common


_SOURCED: dict[str, strict.Reader] = {
    "provenance": strict.one_of(*PROVENANCES),
    "source": strict.text,
}

_RULE = strict.table(
    {
        "nodes": strict.one_of(1, ">1"),
        "ranks_per_node": strict.either(strict.whole(1), "any"),
        "fabric": strict.text,
        "backend": strict.one_of("gloo", "nccl"),
        "min_bytes": strict.whole(1),
        "fail_below_gbs": strict.positive,
        **_SOURCED,
    },
    {"warn_below_gbs": strict.positive, "fail_above_gbs": strict.positive},
)

_MODEL = strict.table(
    {"model": strict.text},
    {
        "description": strict.text,
        "nvml_names": strict.table({"names": strict.list_of(strict.text, empty=False), **_SOURCED}),
        "all_reduce": strict.list_of(_RULE),
        **gpu.readers(_SOURCED),
    },
)

_LIMIT = strict.table({"fail_above": strict.positive, **_SOURCED}, {"warn_above": strict.positive})
_TOLERANCES = strict.table(
    {"loss_difference": _LIMIT, "first_step_difference": _LIMIT, "parameter_difference": _LIMIT}
)

_COMMON = strict.table(
    {},
    {
        "clock_offset_s": _LIMIT,
        "bus_bandwidth_gbs": strict.table({}, {"gloo": _LIMIT, "nccl": _LIMIT}),
        "training": strict.table({}, {"gloo": _TOLERANCES, "nccl": _TOLERANCES}),
        "gpu_peak": gpu.peak_reader(_SOURCED),
    },
)


def load(hardware: str, site: Path | None = None) -> Rules:
    """The rules for one kind of node. Raises DataError with every problem of a file."""
    found = [
        model for folder in _folders(site) if (model := _load_model(folder, hardware)) is not None
    ]
    merged = None
    if found:
        merged = ModelThresholds(
            hardware,
            tuple(dict.fromkeys(name for model in found for name in model.nvml_names)),
            tuple(rule for model in found for rule in model.all_reduce),
            reduce(GpuRules.over, (model.gpu for model in found)),
        )
    return Rules(hardware, merged, load_common(site))


def load_common(site: Path | None = None) -> Common:
    clock: Threshold | None = None
    bandwidth: dict[str, Threshold] = {}
    training: dict[str, Tolerances] = {}
    peak: Peak | None = None
    for folder in reversed(_folders(site)):  # the site's word is the last
        path = folder / "common.yml"
        if not path.is_file():
            continue
        read = _read(path, _COMMON)
        _refuse_blind(path, read)
        if read["clock_offset_s"]:
            clock = _at_most(read["clock_offset_s"], "s")
        for backend, limit in (read["bus_bandwidth_gbs"] or {}).items():
            if limit:
                bandwidth[backend] = _at_most(limit, "GB/s")
        for backend, limits in (read["training"] or {}).items():
            if limits:
                training[backend] = Tolerances(
                    _at_most(limits["loss_difference"], ""),
                    _at_most(limits["first_step_difference"], ""),
                    _at_most(limits["parameter_difference"], ""),
                )
        if read["gpu_peak"]:
            peak = gpu.peak(read["gpu_peak"])
    if clock is None or any(found.keys() != {"gloo", "nccl"} for found in (bandwidth, training)):
        wanted = "clock_offset_s, bus_bandwidth_gbs and training are needed, for gloo and for nccl"
        raise DataError(str(SHIPPED / "common.yml"), [wanted])
    if peak is None or not _whole(peak):
        wanted = "gpu_peak is needed, for every dtype, memory, copies and peers"
        raise DataError(str(SHIPPED / "common.yml"), [wanted])
    return Common(clock, bandwidth, training, peak)


def _whole(peak: Peak) -> bool:
    return set(peak.gemm) == set(gpu.DTYPES) and None not in (peak.memory, peak.copies, peak.peers)


def _refuse_blind(path: Path, read: Mapping[str, Any]) -> None:
    """Raises DataError for tolerances under which a fault would pass."""
    limits = [("clock_offset_s", read["clock_offset_s"], MOST_CLOCK_OFFSET, "MUNGE stops working")]
    for backend, tolerances in (read["training"] or {}).items():
        for name, limit in (tolerances or {}).items():
            why = "one rank's lost gradients no longer show"
            limits.append((f"training.{backend}.{name}", limit, MOST_TRAINING_DIFFERENCE, why))
    problems = [
        f"{where}.fail_above: {limit['fail_above']:g} is too much, from {most:g} on {why}"
        for where, limit, most, why in limits
        if limit and limit["fail_above"] >= most
    ]
    if problems:
        raise DataError(str(path), problems)


def shipped_models() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.yml") if path.stem != "common"))


def _folders(site: Path | None) -> tuple[Path, ...]:
    return (SHIPPED,) if site is None else (site, SHIPPED)


def _load_model(folder: Path, hardware: str) -> ModelThresholds | None:
    path = folder / f"{hardware}.yml"
    if hardware == "common" or not path.is_file():
        return None
    read = _read(path, _MODEL)
    problems = []
    if read["model"] != hardware:
        problems.append(f"model: is {read['model']!r}, the file's name says {hardware!r}")
    for index, rule in enumerate(read["all_reduce"] or ()):
        warn = rule["warn_below_gbs"]
        if warn is not None and warn < rule["fail_below_gbs"]:
            problems.append(f"all_reduce[{index}].warn_below_gbs: lies below fail_below_gbs")
        most, least = rule["fail_above_gbs"], max(rule["fail_below_gbs"], warn or 0)
        if most is not None and most <= least:
            problems.append(f"all_reduce[{index}].fail_above_gbs: nothing could pass")
    problems += gpu.problems(read)
    if problems:
        raise DataError(str(path), problems)
    return ModelThresholds(
        hardware,
        tuple(read["nvml_names"]["names"]) if read["nvml_names"] else (),
        tuple(
            BandwidthRule(
                "1" if rule["nodes"] == 1 else ">1",
                None if rule["ranks_per_node"] == "any" else rule["ranks_per_node"],
                None if rule["fabric"] == "any" else rule["fabric"],
                rule["backend"],
                rule["min_bytes"],
                Threshold(
                    "≥",
                    rule["fail_below_gbs"],
                    "GB/s",
                    rule["provenance"],
                    rule["source"],
                    rule["warn_below_gbs"],
                ),
                rule["fail_above_gbs"]
                and Threshold(
                    "≤", rule["fail_above_gbs"], "GB/s", rule["provenance"], rule["source"]
                ),
            )
            for rule in read["all_reduce"] or ()
        ),
        gpu.rules(read),
    )


def _read(path: Path, reader: strict.Reader) -> Any:
    problems: strict.Problems = []
    read = reader(strict.load_yaml(path), "", problems)
    if problems:
        raise DataError(str(path), problems)
    return read


def _at_most(limit: Mapping[str, Any], unit: str) -> Threshold:
    return Threshold(
        "≤", limit["fail_above"], unit, limit["provenance"], limit["source"], limit["warn_above"]
    )
