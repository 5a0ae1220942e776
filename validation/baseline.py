"""A site's own thresholds, out of a run that measured something and had nothing to judge it by.

Equal figures are put together: the same measurement on all GPUs and nodes of one model. Their
median is what this hardware reaches; FAIL and WARN of it become the bands, as in the shipped rules
that stand on measured figures. It is recorded only where nothing speaks against it: a baseline that
was taken from a fault would let the fault pass for good.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from cluster.declaration import Node
from cluster.errors import PlumblineError, UsageError
from cluster.hostlist import compress
from validation.model import Result, RunReport, Sample, Verdict

FAIL, WARN = 0.85, 0.92  # of the median
REPETITIONS = 10  # that a figure is the median of, at least

_TABLES = ("collectives", "gemm", "memory", "copies", "peers")


class NoBaseline(PlumblineError):
    """Why no baseline can be taken from a run."""


@dataclass(frozen=True, slots=True)
class _Found:
    sample: Sample
    result: Result


def check(folder: Path, nodes: Iterable[Node]) -> None:
    """Before a run: whether it could be recorded at all. Raises UsageError."""
    models = sorted({node.hardware for node in nodes if node.gpus.real})
    if not models:
        raise UsageError(
            "--record-baseline: no node of this run has a real GPU, and figures of a CPU in its "
            "place are no baseline"
        )
    for model in models:
        if (path := folder / f"{model}.yml").exists():
            raise UsageError(
                f"--record-baseline: {path} exists and is never overwritten; name an empty folder, "
                "and merge the two files by hand"
            )


def record(report: RunReport, folder: Path) -> str:
    """Write a file for each model that had something without a threshold; what was done, said in a
    sentence. Never raises: a run does not lose its verdict over this.
    """
    try:
        written = _write(documents(report), folder)
    except NoBaseline as refusal:
        return f"no baseline is recorded: {refusal}"
    except OSError as error:
        return f"no baseline is recorded: {error.filename}: {error.strerror}"
    return (
        f"recorded {', '.join(map(str, written))}: look at the figures, then judge by them with "
        f"--thresholds {folder}"
    )


def documents(report: RunReport) -> Mapping[str, Mapping[str, Any]]:
    """The thresholds files, by model. Raises Refused where anything speaks against them."""
    if report.interrupted:
        raise NoBaseline("the run was interrupted")
    for result in report.results:
        if result.verdict is Verdict.FAIL:
            raise NoBaseline(f"{_named(result)} failed: {result.message}")
    nodes = {item.node.name: item.node for item in report.nodes}
    by_model: dict[str, list[_Found]] = {}
    for result in report.results:
        for sample in result.unjudged:
            node = nodes[result.subject.nodes[0]]
            if not node.gpus.real:
                raise NoBaseline(f"{_named(result)} ran on CPUs, which proves nothing about GPUs")
            by_model.setdefault(node.hardware, []).append(_Found(sample, result))
    if not any(item.sample.table in _TABLES for items in by_model.values() for item in items):
        raise NoBaseline("every measurement had a threshold")
    involved = {
        name for items in by_model.values() for item in items for name in item.result.subject.nodes
    }
    for result in report.results:
        open_ = not (result.verdict.green or result.verdict is Verdict.SKIP or result.unjudged)
        if open_ and involved & set(result.subject.nodes):
            raise NoBaseline(f"{_named(result)} could not be judged: {result.message}")
    return {model: _document(model, items, report) for model, items in sorted(by_model.items())}


def _named(result: Result) -> str:
    return f"{result.check} on {result.subject.name}"


def _document(model: str, figures: list[_Found], report: RunReport) -> dict[str, Any]:
    versions = _versions(figures, report)
    nodes = compress(dict.fromkeys(name for item in figures for name in item.result.subject.nodes))
    document: dict[str, Any] = {
        "model": model,
        "description": f"Recorded by run {report.run_id}, suite {report.suite}, on {nodes}",
    }
    origin = {"provenance": "recorded", "date": report.started[:10]}
    names = [item.sample for item in figures if item.sample.table == "nvml_names"]
    if names:
        known = sorted({str(dict(sample.keys)["name"]) for sample in names})
        source = f"what NVML said in run {report.run_id} on {nodes}"
        document["nvml_names"] = {"names": known, **origin, "source": source}
    for table in _TABLES:
        if rules := list(_rules(table, figures, f"run {report.run_id}, {versions}", origin)):
            document[table] = rules
    return document


def _rules(
    table: str, figures: list[_Found], source: str, origin: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    alike: dict[tuple[tuple[str, Any], ...], list[_Found]] = {}
    for item in figures:
        if item.sample.table == table:
            alike.setdefault(item.sample.keys, []).append(item)
    for keys, items in alike.items():
        samples = [item.sample for item in items]
        for item in items:
            if item.sample.repetitions < REPETITIONS:
                raise NoBaseline(
                    f"{_named(item.result)} has figures of {item.sample.repetitions} repetitions, "
                    f"{REPETITIONS} are needed"
                )
        middle = median(sample.value for sample in samples)
        unit = samples[0].unit
        fail, warn = (float(f"{part * middle:.4g}") for part in (FAIL, WARN))
        lowest = min(items, key=lambda item: item.sample.value)
        if lowest.sample.value < warn:
            raise NoBaseline(
                f"{_named(lowest.result)} measured {lowest.sample.value:g} {unit} where the median "
                f"is {middle:g}: find out why, or leave it out with --exclude"
            )
        nodes = compress(
            dict.fromkeys(name for item in items for name in item.result.subject.nodes)
        )
        measured = f"measured on {nodes}"
        if len(items) > 1:
            lowest_too = f"the lowest is {lowest.sample.value:g}"
            measured = f"the median of {len(items)} {measured}; {lowest_too}"
        key = unit.replace("/", "").lower()
        yield {
            **{name: list(word) if isinstance(word, tuple) else word for name, word in keys},
            f"fail_below_{key}": fail,
            f"warn_below_{key}": warn,
            **origin,
            "derivation": {"healthy": middle, "basis": "measured", "factor": FAIL},
            "source": f"{FAIL} and {WARN} of {middle:g} {unit}, {measured}; {source}",
        }


def _versions(figures: list[_Found], report: RunReport) -> str:
    """Of the software that was measured with, as far as the run shows it."""
    mine = {name for item in figures for name in item.result.subject.nodes}
    results = [result for result in report.results if mine & set(result.subject.nodes)]
    proofs = [result.proof for result in results if result.proof is not None]
    imported = [result.value for result in results if result.check == "torch"]
    metrics = [metric for result in results for metric in result.metrics]
    shown: dict[str, list[object]] = {
        "torch": [*(proof.torch for proof in proofs), *(item.value for item in imported if item)],
        "NCCL": [proof.nccl for proof in proofs],
        "driver": [metric.value for metric in metrics if metric.name == "driver version"],
    }
    phrases = []
    for name, values in shown.items():
        known = dict.fromkeys(str(value) for value in values if value)
        phrases.append(f"{name} {' and '.join(known) or 'unknown'}")
    return ", ".join(phrases)


def _write(by_model: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    yaml = importlib.import_module("yaml")  # there already: the suite is YAML
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for model, document in by_model.items():
        path = folder / f"{model}.yml"
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)
        with open(path, "x", encoding="utf-8") as file:
            file.write(f"---\n{text}")
        written.append(path)
    return written
