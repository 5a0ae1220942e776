"""The mail of a job's end, with its report: what slurmctld starts as MailProg.

slurmctld gives it `-s SUBJECT RECIPIENT`, as the account that Slurm runs as, and two minutes. The
mail goes to the site's mailer, which reads it from standard input as sendmail does. Whatever is
wrong with the report, the mail goes all the same. Nothing here reaches a shell, and names of jobs
and addresses, which users choose, make no header.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import NoReturn

from cluster import processes
from cluster.text import printable
from roles.job_report.files.job_report import client, report, sacct
from roles.job_report.files.job_report.errors import NotKnown

FILE = Path("/etc/plumbline/job_mail.json")
REPORT_S = 60.0
MAILER_S = 15.0
TRIES, PAUSE_S = 3, 2.0  # of the mailer; all of it is less than the two minutes
ACCOUNTED_S = 20.0  # how long slurmdbd may take to know of the end
POLL_S = 1.0

# What begins a subject is slurmctld's; the name of the job, which comes next, is its user's.
SUBJECT = re.compile(r"slurm (?:array task )?job_id=(\d+(?:_\d+)?) ", re.IGNORECASE)
ENDS = ("Ended", "Failed")
REPORTED = (*ENDS, "Reached")


@dataclass(frozen=True)
class Settings:
    """mailer is a command that gets the recipient as its last argument; sender may be ""."""

    mailer: tuple[str, ...]
    sender: str


def main(arguments: Sequence[str], environ: Mapping[str, str], file: Path = FILE) -> int:
    try:
        option, subject, recipient = arguments
        assert option == "-s"
    except (AssertionError, ValueError):
        print("usage: plumbline-job-mail -s SUBJECT RECIPIENT", file=sys.stderr)
        return 2
    if not recipient or recipient.startswith("-") or printable(recipient) != recipient:
        print(f"{printable(recipient)!r} is nobody whom a mail can go to.", file=sys.stderr)
        return 2
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        settings = Settings(tuple(config["mailer"]), config["sender"])
        hand_over(
            compose(subject, recipient, settings, body(subject, environ)), recipient, settings
        )
    except (KeyError, OSError, TypeError, ValueError, processes.CommandFailed) as error:
        print(f"The mail to {recipient} was not handed over: {error}.", file=sys.stderr)
        return 1
    return 0


def body(subject: str, environ: Mapping[str, str]) -> str:
    """The subject, and the report where there is one."""
    lines = [printable(subject), ""]
    job = SUBJECT.match(subject)
    kind = environ.get("SLURM_JOB_MAIL_TYPE") or _kind(subject)
    if job is not None and kind.startswith(REPORTED):
        lines.append(_report(job[1], ended=kind in ENDS))
    return "\n".join(lines)


def _kind(subject: str) -> str:
    """As the last word of Slurm's own in a subject, of releases that do not say it otherwise."""
    found = re.findall(r" (Ended|Failed|Reached|Began|Requeued)\b", subject)
    return found[-1] if found else ""


def _report(job: str, ended: bool) -> str:
    """Why there is none, in place of one that there is not."""
    try:
        return _in_time(lambda: report.text(report.build(_accounted(job, ended), client.ask)))
    except (NotKnown, TimeoutError) as error:
        return f"There is no report of the job: {error}\n"
    except Exception as error:  # a mail without its report is better than none
        return f"There is no report of the job: {error!r}\n"


def _accounted(job: str, ended: bool) -> sacct.AccountedJob:
    until = time.monotonic() + (ACCOUNTED_S if ended else 0)
    while True:
        try:
            found = sacct.read(job)
            if found.end is not None or time.monotonic() >= until:
                return found
        except NotKnown:
            if time.monotonic() >= until:
                raise
        time.sleep(POLL_S)


def _in_time(work: Callable[[], str]) -> str:
    def over(*_: object) -> NoReturn:
        raise _Over

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, REPORT_S)
    try:
        return work()
    except _Over:
        raise TimeoutError(f"it took more than {REPORT_S:g} s.") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Over(BaseException):
    """No Exception: nothing on the way may take it for its own."""


def compose(subject: str, recipient: str, settings: Settings, text: str) -> bytes:
    # Lines as they are, for what a mailer takes ends a line as programs here do.
    message = EmailMessage(policy=SMTP.clone(linesep="\n", max_line_length=998))
    message["Subject"] = printable(subject, 500)
    with suppress(Exception):  # the mailer is told the address in any case
        message["To"] = recipient
    if settings.sender:
        message["From"] = settings.sender
    message["Auto-Submitted"] = "auto-generated"  # no answer of a holiday, RFC 3834
    message.set_content(text)
    return message.as_bytes()


def hand_over(message: bytes, recipient: str, settings: Settings) -> None:
    """Raises processes.CommandFailed."""
    for left in reversed(range(TRIES)):
        try:
            processes.run([*settings.mailer, recipient], MAILER_S, stdin=message, own_session=True)
            return
        except processes.CommandFailed:
            if not left:
                raise
            time.sleep(PAUSE_S)
