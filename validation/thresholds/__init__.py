"""The numbers that a run is judged by: data, one file per GPU model, each with its source.

A file is read strictly and never evaluated. For editors and other programs `schemas()` has the form
of the files, as their readers have it.

A site's own files (`--thresholds DIR`) have the same form: their rules are looked at before the
shipped ones, their names are added, and their `common.yml` replaces the tolerances that it gives.

The speed of a collective is looked up by what it depends on, see Collective: GPU model and form
(the file), operation, data type, nodes, ranks per node, links between the GPUs of a node, fabric
between nodes, what joined the nodes, backend, and a size of at least `min_bytes`. The first rule
that fits is used. No rule means no verdict: the measurement is reported as inconclusive, never as a
pass. What a GPU must reach by itself stands in the same files, see thresholds/gpu.py.

Links are those that were measured, not declared: NCCL looks for the way between GPUs itself and
says in its log what it found (checks/transport.py, `links`). A board that is no SXM module may or
may not have a bridge, and only a rule that names the links tells the two apart. Where the log does
not tell, such a rule does not fit. On SXM modules the form decides: their rules say `any`, so that
a node whose NVLinks are gone fails and does not merely lack a threshold.

What joined the nodes is measured as well: NVLink between nodes, or the network and how many ports
of the declared kind and rate NCCL found on the node that has most of them. A node that has fewer
than the others is so judged by what the others have. A declared fabric says neither.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from pathlib import Path
from typing import Any

from cluster import strict
from cluster.declaration import Node
from cluster.errors import DataError
from validation.model import Threshold
from validation.thresholds import gpu, host
from validation.thresholds import limits as counted
from validation.thresholds.gpu import GBS, GpuRules, Peak
from validation.thresholds.sourced import (
    CARRIED,
    ORIGIN,
    SOURCED,
    date,
    derivation_problems,
    efficiency,
    least,
    most,
    share,
    speed,
)

SHIPPED = Path(__file__).parent

# A site may widen a tolerance, not make a check blind.
MOST_CLOCK_OFFSET = 300.0
MOST_TRAINING_DIFFERENCE = 1e-3
MOST_TRAINING_SLOWNESS = 1e4

# A factor from which on nothing would be found any more, and as many seconds.
MOST_OUTLIER = 100.0
MOST_OUTLIER_S = 10.0

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "sendrecv")
DTYPES = ("float32",)
LINKS = ("pcie", "nvlink", "nvswitch")
BETWEEN = ("mnnvl", "network")


@dataclass(frozen=True, slots=True)
class Collective:
    """What a collective's speed depends on. `links`, `between` and `ports` are None where nothing
    shows them; within one node there is nothing between.
    """

    operation: str
    dtype: str
    nodes: int
    ranks_per_node: int
    links: str | None
    fabric: str
    backend: str
    bytes: int
    between: str | None = None
    ports: int | None = None


@dataclass(frozen=True, slots=True)
class CollectiveRule:
    """None stands for any, and nodes of None for more than one. `ports` are at least so many."""

    operation: str
    dtype: str
    nodes: int | None
    ranks_per_node: int | None
    links: str | None
    fabric: str | None
    backend: str
    min_bytes: int
    threshold: Threshold
    ceiling: Threshold | None = None  # more than that is no measurement
    most_nodes: int | None = None
    between: str | None = None
    ports: int | None = None

    def fits(self, collective: Collective) -> bool:
        return (
            self.operation == collective.operation
            and self.dtype == collective.dtype
            and (collective.nodes > 1 if self.nodes is None else collective.nodes == self.nodes)
            and self.ranks_per_node in (None, collective.ranks_per_node)
            and self.links in (None, collective.links)
            and (self.most_nodes is None or collective.nodes <= self.most_nodes)
            and self.fabric in (None, collective.fabric)
            and self.between in (None, collective.between)
            and (self.ports is None or (collective.ports or 0) >= self.ports)
            and self.backend == collective.backend
            and collective.bytes >= self.min_bytes
        )


@dataclass(frozen=True, slots=True)
class ModelThresholds:
    model: str
    nvml_names: tuple[str, ...]
    collectives: tuple[CollectiveRule, ...]
    gpu: GpuRules = gpu.NO_RULES
    host: Mapping[str, Threshold] = field(default_factory=dict)  # by the metric's name

    def collective(self, collective: Collective) -> CollectiveRule | None:
        return next((rule for rule in self.collectives if rule.fits(collective)), None)


# What the files call the fields of the next ones.
TOLERANCES = ("loss_difference", "first_step_difference", "parameter_difference")
SPEEDS = ("step_per_reference", "slowest_step_per_median")
OUTLIERS = ("size", "call", "rank")


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far a distributed training may be from its reference; see checks/training.py."""

    loss: Threshold
    first_step: Threshold
    parameters: Threshold


@dataclass(frozen=True, slots=True)
class Outlier:
    """How many times what it is compared with a time may be; by less than floor_s none differs."""

    threshold: Threshold
    floor_s: float

    def exceeded(self, seconds: float, expected_s: float) -> bool:
        far = seconds > float(self.threshold.value) * expected_s
        return far and seconds - expected_s > self.floor_s


@dataclass(frozen=True, slots=True)
class Outliers:
    """Of a collective: one size against all, one call against its size, one rank against all."""

    size: Outlier
    call: Outlier
    rank: Outlier


@dataclass(frozen=True, slots=True)
class Speeds:
    """How slow a distributed training's steps may be; see checks/training.py."""

    per_reference: Threshold
    slowest: Threshold


@dataclass(frozen=True, slots=True)
class Common:
    clock_offset: Threshold
    bus_bandwidth: Mapping[str, Threshold]  # by backend: what no hardware exceeds
    outliers: Mapping[str, Outliers]  # by backend
    training: Mapping[str, Tolerances]  # by backend
    pairs: Mapping[str, Threshold]  # by backend: which part of the others' speed a pair must reach
    training_speed: Mapping[str, Speeds]  # by backend
    scaling: Mapping[str, Threshold]  # by backend: weak efficiency with all ranks
    gpu_peak: Peak  # what no GPU known here exceeds
    limits: Mapping[str, Threshold]  # by name, see thresholds/limits.py


@dataclass(frozen=True, slots=True)
class Rules:
    """What one group of equal nodes is judged by. `model` is None where no file knows it."""

    hardware: str
    model: ModelThresholds | None
    common: Common


_COLLECTIVE = strict.table(
    {
        "operation": strict.one_of(*OPERATIONS),
        "dtype": strict.one_of(*DTYPES),
        "nodes": strict.either(strict.whole(1), ">1"),
        "ranks_per_node": strict.either(strict.whole(1), "any"),
        "links": strict.described(
            strict.one_of(*LINKS, "any"), "between the GPUs of a node, as NCCL found them"
        ),
        "fabric": strict.described(
            strict.text, "between nodes, as the inventory declares it, or any"
        ),
        "backend": strict.one_of("gloo", "nccl"),
        "min_bytes": strict.whole(1),
        "fail_below_gbs": speed,
        **SOURCED,
    },
    {
        "warn_below_gbs": speed,
        "fail_above_gbs": strict.described(speed, "more than that is a fault of the measurement"),
        "most_nodes": strict.described(strict.whole(2), "where nodes is >1: up to so many"),
        "between": strict.described(
            strict.one_of(*BETWEEN),
            "what joined the nodes, as NCCL found it: NVLink between nodes (mnnvl), or the network",
        ),
        "ports": strict.described(
            strict.whole(1),
            "at least so many of the fabric's ports, as NCCL found them on the node with most",
        ),
        **CARRIED,
        "nccl": strict.described(strict.text, "the release that it was measured with"),
    },
)

MODEL = strict.table(
    {"model": strict.text},
    {
        "description": strict.text,
        "nvml_names": strict.described(
            strict.table(
                {"names": strict.list_of(strict.text, empty=False), **ORIGIN}, {"date": date}
            ),
            "names by which the driver knows the model",
        ),
        "collectives": strict.described(
            strict.list_of(_COLLECTIVE), "bus bandwidth; the first rule that fits is used"
        ),
        **gpu.READERS,
        "host": host.READER,
    },
)

_LIMIT = strict.table({"fail_above": strict.positive, **SOURCED}, {"warn_above": strict.positive})
_SPEED_LIMIT = strict.table({"fail_above": speed, **SOURCED}, {"warn_above": speed})
_SHARE = strict.table({"fail_below_share": share, **SOURCED})
_EFFICIENCY = strict.table(
    {"fail_below_efficiency": efficiency, **SOURCED}, {"warn_below_efficiency": efficiency}
)
_TOLERANCES = strict.table(dict.fromkeys(TOLERANCES, _LIMIT))
_SPEEDS = strict.table(dict.fromkeys(SPEEDS, _LIMIT))

_OUTLIER = strict.table(
    {
        "fail_above": strict.described(strict.positive, "times what it is compared with"),
        "floor_s": strict.described(strict.positive, "by less than that no time differs"),
        **SOURCED,
    }
)
_OUTLIERS = strict.table(dict.fromkeys(OUTLIERS, _OUTLIER))

COMMON = strict.table(
    {},
    {
        "clock_offset_s": _LIMIT,
        "outliers": strict.table({}, {"gloo": _OUTLIERS, "nccl": _OUTLIERS}),
        "bus_bandwidth_gbs": strict.table({}, {"gloo": _SPEED_LIMIT, "nccl": _SPEED_LIMIT}),
        "training": strict.table({}, {"gloo": _TOLERANCES, "nccl": _TOLERANCES}),
        "pairs": strict.table({}, {"gloo": _SHARE, "nccl": _SHARE}),
        "training_speed": strict.table({}, {"gloo": _SPEEDS, "nccl": _SPEEDS}),
        "scaling": strict.table({}, {"gloo": _EFFICIENCY, "nccl": _EFFICIENCY}),
        "gpu_peak": gpu.PEAK,
        "limits": counted.READER,
    },
)


def schemas() -> dict[str, Mapping[str, Any]]:
    """The JSON Schema of a model's file (MODEL.yml) and of common.yml, by `model` and `common`."""
    titles = {
        "model": (MODEL, "thresholds of one GPU model"),
        "common": (COMMON, "thresholds that do not depend on the GPU model"),
    }
    return {
        name: {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"Plumbline: {title}",
            **reader.schema,
        }
        for name, (reader, title) in titles.items()
    }


def load(hardware: str, site: Path | None = None) -> Rules:
    """The rules for one kind of node. Raises DataError with every problem of a file."""
    return _shipped(hardware) if site is None else _load(hardware, site)


@cache
def _shipped(hardware: str) -> Rules:
    """Those of ours alone: the files are as long there as the program."""
    return _load(hardware, None)


def _load(hardware: str, site: Path | None) -> Rules:
    models = [
        model for folder in _folders(site) if (model := _load_model(folder, hardware)) is not None
    ]
    merged = None
    if models:
        merged = ModelThresholds(
            hardware,
            tuple(dict.fromkeys(name for model in models for name in model.nvml_names)),
            tuple(rule for model in models for rule in model.collectives),
            reduce(GpuRules.over, (model.gpu for model in models)),
            {name: limit for model in reversed(models) for name, limit in model.host.items()},
        )
    return Rules(hardware, merged, load_common(site))


def of_node(node: Node, site: Path | None = None) -> Rules:
    """The rules for a node. An instance of MIG has its GPU's names, and none of its speeds."""
    rules = load(node.hardware, site)
    if not node.gpus.mig:
        return rules
    board = load(node.gpus.model, site).model
    own = rules.model or ModelThresholds(node.hardware, (), ())
    return replace(rules, model=replace(own, nvml_names=board.nvml_names if board else ()))


def load_common(site: Path | None = None) -> Common:
    clock: Threshold | None = None
    bandwidth: dict[str, Threshold] = {}
    training: dict[str, Tolerances] = {}
    shares: dict[str, Threshold] = {}
    outliers: dict[str, Outliers] = {}
    speeds: dict[str, Speeds] = {}
    scaling: dict[str, Threshold] = {}
    peak: Peak | None = None
    named: dict[str, Threshold] = {}
    for place, read in _commons(site):

        def limit(
            values: Mapping[str, Any], key: str, unit: str = "", place: str = place
        ) -> Threshold:
            where = f"{place} {key}"
            return most(values["fail_above"], unit, values, where, values["warn_above"])

        if read["clock_offset_s"]:
            clock = limit(read["clock_offset_s"], "clock_offset_s", "s")

        def limits_of(
            key: str, names: Sequence[str], values: Mapping[str, Any], limit: Any = limit
        ) -> list[Threshold]:
            return [limit(values[name], f"{key}.{name}") for name in names]

        for backend, ceiling in _by_backend(read["bus_bandwidth_gbs"]):
            bandwidth[backend] = limit(ceiling, f"bus_bandwidth_gbs.{backend}", GBS)
        for backend, values in _by_backend(read["training"]):
            limits = limits_of(f"training.{backend}", TOLERANCES, values)
            training[backend] = Tolerances(*limits)
        for backend, values in _by_backend(read["training_speed"]):
            limits = limits_of(f"training_speed.{backend}", SPEEDS, values)
            speeds[backend] = Speeds(*limits)
        for backend, kinds in _by_backend(read["outliers"]):
            outliers[backend] = _outliers(kinds, f"{place} outliers.{backend}")
        shares |= _floors(read, "pairs", "share", place)
        scaling |= _floors(read, "scaling", "efficiency", place)
        if read["gpu_peak"]:
            peak = gpu.peak(read["gpu_peak"], f"{place} gpu_peak")
        named |= counted.thresholds(read["limits"], place)
    by_backend = (bandwidth, outliers, training, shares, speeds, scaling)
    if clock is None or any(limits.keys() != {"gloo", "nccl"} for limits in by_backend):
        wanted = (
            "clock_offset_s, bus_bandwidth_gbs, outliers, training, training_speed, pairs and "
            "scaling are needed, for gloo and nccl"
        )
        raise DataError(str(SHIPPED / "common.yml"), [wanted])
    if peak is None or not _whole(peak):
        wanted = "gpu_peak is needed, for every dtype, memory, copies and peers"
        raise DataError(str(SHIPPED / "common.yml"), [wanted])
    return Common(
        clock, bandwidth, outliers, training, shares, speeds, scaling, peak, _all_limits(named)
    )


def _by_backend(
    values: Mapping[str, Mapping[str, Any] | None] | None,
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What a file gives; it may leave out a backend, or all."""
    yield from ((backend, given) for backend, given in (values or {}).items() if given)


def _floors(read: Mapping[str, Any], name: str, key: str, place: str) -> dict[str, Threshold]:
    """What a file gives by backend."""
    warns = {f"warn_below_{key}": None}
    return {
        backend: least({**warns, **floor}, key, "", f"{place} {name}.{backend}")
        for backend, floor in _by_backend(read[name])
    }


def _outliers(kinds: Mapping[str, Any], place: str) -> Outliers:
    return Outliers(*(_outlier(kinds[kind], f"{place}.{kind}") for kind in OUTLIERS))


def _outlier(read: Mapping[str, Any], place: str) -> Outlier:
    return Outlier(most(read["fail_above"], "×", read, place), read["floor_s"])


def _commons(site: Path | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each common.yml and where it stands; the site's word is the last."""
    for folder in reversed(_folders(site)):
        path = folder / "common.yml"
        if path.is_file():
            read = _read(path, COMMON)
            _refuse_blind(path, read)
            yield place_of(path), read


def _all_limits(named: Mapping[str, Threshold]) -> Mapping[str, Threshold]:
    """The limits, none of which may be missing."""
    if missing := [name for name in counted.KINDS if name not in named]:
        raise DataError(str(SHIPPED / "common.yml"), [f"limits: {', '.join(missing)} missing"])
    return named


def _whole(peak: Peak) -> bool:
    return set(peak.gemm) == set(gpu.DTYPES) and None not in (peak.memory, peak.copies, peak.peers)


def _refuse_blind(path: Path, read: Mapping[str, Any]) -> None:
    """Raises DataError for tolerances under which a fault would pass."""
    bounds = [("clock_offset_s", read["clock_offset_s"], MOST_CLOCK_OFFSET, "MUNGE stops working")]
    for backend, tolerances in (read["training"] or {}).items():
        for name, limit in (tolerances or {}).items():
            why = "one rank's lost gradients no longer show"
            bounds.append((f"training.{backend}.{name}", limit, MOST_TRAINING_DIFFERENCE, why))
    kinds = [
        (f"outliers.{backend}.{kind}", outlier)
        for backend, outliers in (read["outliers"] or {}).items()
        for kind, outlier in (outliers or {}).items()
    ]
    lost = "a size, a call or a rank that stalls no longer shows"
    bounds += [(where, outlier, MOST_OUTLIER, lost) for where, outlier in kinds]
    for backend, speeds in (read["training_speed"] or {}).items():
        for name, limit in (speeds or {}).items():
            why = "a training ten thousand times slower no longer shows"
            bounds.append((f"training_speed.{backend}.{name}", limit, MOST_TRAINING_SLOWNESS, why))
    problems = [
        f"{where}.fail_above: {limit['fail_above']:g} is too much, from {most:g} on {why}"
        for where, limit, most, why in bounds
        if limit and limit["fail_above"] >= most
    ]
    problems += [
        f"{where}.floor_s: {outlier['floor_s']:g} is too much, from {MOST_OUTLIER_S:g} on {lost}"
        for where, outlier in kinds
        if outlier["floor_s"] >= MOST_OUTLIER_S
    ]
    problems += counted.problems(read["limits"])
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
    read = _read(path, MODEL)
    problems = []
    if read["model"] != hardware:
        problems.append(f"model: is {read['model']!r}, the file's name says {hardware!r}")
    for index, rule in enumerate(read["collectives"] or ()):
        warn = rule["warn_below_gbs"]
        if warn is not None and warn < rule["fail_below_gbs"]:
            problems.append(f"collectives[{index}].warn_below_gbs: lies below fail_below_gbs")
        ceiling, lowest = rule["fail_above_gbs"], max(rule["fail_below_gbs"], warn or 0)
        if ceiling is not None and ceiling <= lowest:
            problems.append(f"collectives[{index}].fail_above_gbs: nothing could pass")
        where = f"collectives[{index}]"
        problems += _between_problems(rule, where)
        problems += derivation_problems(rule, rule["fail_below_gbs"], warn, where)
    problems += gpu.problems(read) + host.problems(read["host"])
    if problems:
        raise DataError(str(path), problems)
    place = place_of(path)
    return ModelThresholds(
        hardware,
        tuple(read["nvml_names"]["names"]) if read["nvml_names"] else (),
        tuple(
            _collective(rule, f"{place} collectives[{index}]")
            for index, rule in enumerate(read["collectives"] or ())
        ),
        gpu.rules(read, place),
        host.thresholds(read["host"], place),
    )


def _between_problems(rule: Mapping[str, Any], where: str) -> Iterator[str]:
    if rule["most_nodes"] is not None and rule["nodes"] != ">1":
        yield f'{where}.most_nodes: nodes is {rule["nodes"]}, not ">1"'
    for key in ("between", "ports"):
        if rule[key] is not None and rule["nodes"] == 1:
            yield f"{where}.{key}: nothing lies between the nodes of one node"
    if rule["ports"] is not None and rule["between"] != "network":
        yield f"{where}.ports: only a network has ports, and between does not say network"


def _collective(rule: Mapping[str, Any], place: str) -> CollectiveRule:
    def unless(word: str, key: str) -> Any:
        return None if rule[key] == word else rule[key]

    ceiling = rule["fail_above_gbs"]
    return CollectiveRule(
        rule["operation"],
        rule["dtype"],
        unless(">1", "nodes"),
        unless("any", "ranks_per_node"),
        unless("any", "links"),
        unless("any", "fabric"),
        rule["backend"],
        rule["min_bytes"],
        least(rule, "gbs", GBS, place),
        None if ceiling is None else most(ceiling, GBS, rule, place),
        rule["most_nodes"],
        rule["between"],
        rule["ports"],
    )


def place_of(path: Path) -> str:
    """A file as people find it: one of ours by its path in the checkout."""
    return f"validation/thresholds/{path.name}" if path.parent == SHIPPED else str(path)


def _read(path: Path, reader: strict.Reader) -> Any:
    problems: strict.Problems = []
    read = reader(strict.load_yaml(path), "", problems)
    if problems:
        raise DataError(str(path), problems)
    return read
