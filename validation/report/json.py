"""The run as data: `summary.json`, and the lines of `results.jsonl`."""

import enum
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from validation.model import JobReport, NodeReport, Result, RunReport, Standing, Verdict
from validation.report import words

SCHEMA = 1


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


def render(report: RunReport) -> str:
    document = {
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
        "nodes": [_node(item) for item in report.nodes],
        "jobs": [_job(item) for item in report.jobs],
        "results": [plain(result) for result in report.results],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


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
    return {
        "name": job.name,
        "payload": job.payload,
        "nodes": list(job.hosts),
        "ranks": job.ranks,
        "ranks_per_node": job.ranks_per_node,
        "backend": job.backend,
        "partition": job.partition,
        "container": plain(job.container),
        "config": plain(job.config),
        "queue_limit_s": job.queue_limit_s,
        "run_limit_s": job.run_limit_s,
        "outcome": reply.outcome.value if reply else None,
        "exit_code": reply.exit_code if reply else None,
        "slurm_job_id": reply.job_id if reply else None,
        "seconds": round(reply.seconds, 2) if reply and reply.seconds is not None else None,
    }
