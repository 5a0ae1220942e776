"""job-report: what a job used of what it was given.

    job-report JOBID          after the job, or so far; JOBID is 4711, 4711_3 or 4711+1
    job-report JOBID --json   one document, for programs

CPU and memory are Slurm's (sacct), the GPUs' use is Prometheus'. What cannot be known is told with
its reason. Exit status: 0 there is a report; 1 there is none; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from cluster import prometheus, version
from roles.job_report.files.job_report import report, sacct, site, usage
from roles.job_report.files.job_report.errors import NotKnown

T = TypeVar("T")


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    try:
        job = sacct.read(options.job)
    except NotKnown as error:
        print(error, file=sys.stderr)
        return 1
    result = build_report(job, options.config, time.time())
    if options.json:
        print(json.dumps(report.document(result), indent=2))
    else:
        print(report.text(result), end="")
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    summary, _, rest = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="job-report",
        description=f"{summary}\n\n{rest}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", metavar="JOBID", type=_job)
    parser.add_argument("--json", action="store_true", help="one document, for programs")
    parser.add_argument("--config", type=Path, default=site.FILE, help=argparse.SUPPRESS)
    version.add_option(parser)
    return parser.parse_args(arguments)


def _job(text: str) -> str:
    if not sacct.JOB.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no job; write 4711, 4711_3 or 4711+1")
    return text


def build_report(job: sacct.AccountedJob, config: Path, now: float) -> report.Report:
    """Everything that can be known; each part on its own."""
    missing: list[str] = []

    def known(question: Callable[[], T]) -> T | None:
        try:
            return question()
        except (NotKnown, prometheus.NoAnswer) as error:
            if str(error) not in missing:
                missing.append(str(error))
            return None

    def asking() -> usage.Ask:
        where = site.server(config)
        start, end = usage.span(job, now)
        step = usage.step_s(job, now)
        return partial(prometheus.over, where, start=start, end=end, step_s=step)

    cpus_busy = job.cpu_s / job.elapsed_s if job.cpu_s is not None and job.elapsed_s else None
    gpus = None
    if job.gpus or cpus_busy is None:
        ask = known(asking)
        if ask is not None:
            gpus = known(partial(usage.gpus, job, ask))
            if cpus_busy is None:
                cpus_busy = known(partial(usage.node_cpu, job, ask))
    return report.Report(job, cpus_busy, gpus, report.sentences(job, gpus, missing))
