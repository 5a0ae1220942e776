"""The run as data: `summary.json`, and the lines of `results.jsonl`.

`summary.json` is made for large clusters: it is written in pieces, and what repeats for each node
stands elsewhere. What a node measured beside its verdict, and the proof of it, is in
`results.jsonl`; how a job was configured is in `plan.json`.
"""

import enum
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from validation.model import (
    JobReport,
    NodeReport,
    Result,
    RunReport,
    Standing,
    Threshold,
    Tier,
    Verdict,
)
from validation.report import words

SCHEMA = 2


def plain(value: Any) -> Any:
    """Dataclasses, enums and tuples as what JSON has."""
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    return value


def line(result: Result) -> str:
    """One line of results.jsonl, with its end of line."""
    return json.dumps(plain(result), ensure_ascii=False, allow_nan=False) + "\n"


def render(report: RunReport) -> Iterator[str]:
    """The pieces of `summary.json`: one key of the document a line, or one entry of a list."""
    thresholds: dict[Threshold, int] = {}
    for result in report.results:
        if result.threshold is not None:
            thresholds.setdefault(result.threshold, len(thresholds))
    head = {
        "schema": SCHEMA,
        "run": report.run_id,
        "verdict": report.verdict.value,
        "exit_code": report.exit_code,
        "interrupted": report.interrupted,
        "resume": report.resume,
        "suite": report.suite,
        "partial": bool(report.left_out),
        "left_out": list(report.left_out),
        "cluster": report.cluster,
        "via": report.via,
        "slurm": report.slurm,
        "backend": words.backends(report),
        "started": report.started,
        "seconds": round(report.seconds, 1),
        "gpu_hours": round(report.gpu_hours, 4),
        "notes": list(report.notes),
        "counts": {
            verdict.value: sum(result.verdict is verdict for result in report.results)
            for verdict in Verdict
        },
        **{f"{which.value}_nodes": words.standing(report, which) for which in Standing},
    }
    lists = {
        "thresholds": map(plain, thresholds),
        "nodes": map(_node, report.nodes),
        "jobs": map(_job, report.jobs),
        "results": (_result(result, thresholds) for result in report.results),
    }
    return document(head, lists)


def document(head: Mapping[str, Any], lists: Mapping[str, Iterable[Any]]) -> Iterator[str]:
    """A JSON object in pieces, of which none is long: a list may have an entry for each node."""
    yield "{"
    for number, (key, value) in enumerate(head.items()):
        yield f"{',' if number else ''}\n  {json.dumps(key)}: {compact(value)}"
    for key, entries in lists.items():
        yield f",\n  {json.dumps(key)}: ["
        for number, entry in enumerate(entries):
            yield f"{',' if number else ''}\n    {compact(entry)}"
        yield "\n  ]"
    yield "\n}\n"


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _result(result: Result, thresholds: Mapping[Threshold, int]) -> dict[str, Any]:
    """`threshold` is the number of one in the document's list."""
    limit = result.threshold
    row = {
        "check": result.check,
        "tier": result.tier.value,
        "subject": plain(result.subject),
        "verdict": result.verdict.value,
        "message": result.message,
        "value": plain(result.value),
        "threshold": None if limit is None else thresholds[limit],
        "blamed": plain(result.blamed),
        "cause": result.cause or None,
    }
    if result.tier is Tier.CLUSTER:
        row |= {"metrics": plain(result.metrics), "proof": plain(result.proof)}
    return _known(row)


def _node(item: NodeReport) -> dict[str, Any]:
    return {
        "name": item.node.name,
        "verdict": item.verdict.value,
        "standing": item.standing.value,
        "state": item.state,
        "reason": item.reason,
        "declared": plain(item.node),
    }


def _job(item: JobReport) -> dict[str, Any]:
    job, reply = item.job, item.reply
    row = {
        "name": job.name,
        "payload": job.payload,
        "nodes": list(job.hosts),
        "backend": job.backend,
        "container": plain(job.container),
    }
    if reply:
        row |= {
            "outcome": reply.outcome.value,
            "exit_code": reply.exit_code,
            "slurm_job_id": reply.job_id,
            "seconds": None if reply.seconds is None else round(reply.seconds, 2),
        }
    return _known(row)


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is not known: there are many rows."""
    return {key: value for key, value in row.items() if value is not None}
