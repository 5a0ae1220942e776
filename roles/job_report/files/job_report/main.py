"""job-report: what a job used of what it was given.

    job-report JOBID          after the job, or so far; JOBID is 4711, 4711_3 or 4711+1
    job-report JOBID --json   one document, for programs
    job-report --month 2026-10 [--html FILE] [--csv FILE]
                              what accounts and users were given in a month, and what came of it
    job-report --accounts 2026-10
                              what jobs asked for in a month, by account, and used of it
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
from cluster.files import write_whole
from roles.job_report.files.job_report import (
    client,
    efficiency,
    efficiency_ask,
    mail,
    month,
    month_ask,
    month_page,
    protocol,
    report,
    sacct,
    service,
)
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
    if options.month or options.accounts:
        return _month(options) if options.month else _accounts(options)
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


def _month(options: argparse.Namespace) -> int:
    try:
        found = month_ask.read(options.month)
        for path, made in ((options.html, month_page.page), (options.csv, month_page.rows)):
            if path is not None:
                write_whole(path, made(found))
    except NotKnown as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename} cannot be written: {error.strerror}.", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(month_page.document(found), indent=2))
    else:
        print(month_page.text(found), end="")
    return 0


def _accounts(options: argparse.Namespace) -> int:
    ask = partial(client.gpu_hours, path=options.socket)
    try:
        found = efficiency_ask.read(options.accounts, ask)
    except NotKnown as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(efficiency.document(found), indent=2))
    else:
        print(efficiency.text(found), end="")
    return 0


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
    what.add_argument("--month", type=_name_of_month, help="a month, such as 2026-10")
    what.add_argument(
        "--accounts", type=_name_of_month, metavar="MONTH", help="use of a month, by account"
    )
    for name in ("html", "csv"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"the month as {name}")
    parser.add_argument("--json", action="store_true", help="one document, for programs")
    parser.add_argument("--socket", type=Path, default=protocol.SOCKET, help=argparse.SUPPRESS)
    version.add_option(parser)
    options = parser.parse_args(arguments)
    if not options.month and (options.html or options.csv):
        parser.error("--html and --csv are for --month")
    return options


def _name_of_month(text: str) -> str:
    if not month.MONTH.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no month; write 2026-10")
    return text


def _job(text: str) -> str:
    if not sacct.JOB.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no job; write 4711, 4711_3 or 4711+1")
    return text
