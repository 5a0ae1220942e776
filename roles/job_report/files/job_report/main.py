"""job-report: what a job used of what it was given.

    job-report JOBID          after the job, or so far; JOBID is 4711, 4711_3 or 4711+1
    job-report JOBID --json   one document, for programs
    job-report --check        whether what is asked for reports answers

CPU and memory are Slurm's (sacct), the GPUs' use is Prometheus'. What cannot be known is told with
its reason. Exit status: 0 there is a report; 1 there is none; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cluster import version
from roles.job_report.files.job_report import client, mail, protocol, report, sacct, service
from roles.job_report.files.job_report.errors import NotKnown

# In place of a job: the service behind it, as its unit starts it, and Slurm's MailProg.
SERVICE, MAIL = "serve", "mail"


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == [SERVICE]:
        return service.main(os.environ)
    if list(arguments[:1]) == [MAIL]:
        return mail.main(arguments[1:], os.environ)
    options = _options(arguments)
    if options.check:
        return _check(options.socket)
    try:
        job = sacct.read(options.job)
    except NotKnown as error:
        print(error, file=sys.stderr)
        return 1
    result = report.build(job, partial(client.ask, path=options.socket))
    if options.json:
        print(json.dumps(report.document(result), indent=2))
    else:
        print(report.text(result), end="")
    return 0


def _check(path: Path) -> int:
    try:
        parts = client.check(path)
    except NotKnown as error:
        print(error, file=sys.stderr)
        return 1
    for part, why in {"service": "", **parts}.items():
        print(f"{part}: {why or 'answers'}")
    return 1 if any(parts.values()) else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    summary, _, rest = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="job-report",
        description=f"{summary}\n\n{rest}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("job", metavar="JOBID", type=_job, nargs="?")
    what.add_argument("--check", action="store_true", help="whether what is asked answers")
    parser.add_argument("--json", action="store_true", help="one document, for programs")
    parser.add_argument("--socket", type=Path, default=protocol.SOCKET, help=argparse.SUPPRESS)
    version.add_option(parser)
    return parser.parse_args(arguments)


def _job(text: str) -> str:
    if not sacct.JOB.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no job; write 4711, 4711_3 or 4711+1")
    return text
