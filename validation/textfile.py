"""The results of a run where node_exporter finds them, on the host that submits its jobs.

That host is reached as for the jobs, by the same user and with no more rights; a run with `--here`
is on it already.
"""

import shlex
from dataclasses import replace
from pathlib import PurePosixPath

from cluster.errors import UsageError
from cluster.text import printable
from validation.errors import TransportError
from validation.model import RunReport
from validation.report import metrics
from validation.transport import Transport

_CHECK = """\
no() {{ echo "$1"; exit 1; }}
cd {folder} 2>/dev/null || no "is no folder there; name node_exporter's textfile folder"
[ -w . ] || no "may not be written by $(id -un) there; see node_exporter_validation_group"
"""
# In a file of its own first, so that node_exporter sees all of it or nothing.
_WRITE = """\
umask 022
new=$(mktemp {folder}/.plumbline_validation.XXXXXX) || exit 1
trap 'rm -f "$new"' EXIT
cat > "$new" && chmod 0644 "$new" && mv "$new" {path}
"""


def check(folder: PurePosixPath, transport: Transport) -> None:
    """Before a run: whether its metrics can be put there. Raises UsageError, TransportError."""
    done = transport.run(_CHECK.format(folder=shlex.quote(str(folder))))
    if done.status != 0:
        raise UsageError(
            f"--metrics: {folder} on {transport.via} {printable(done.stdout or done.stderr)}"
        )


def publish(report: RunReport, folder: PurePosixPath, transport: Transport) -> RunReport:
    """Put the metrics there, one file for each suite.

    Never fails: returns the report, with a note where it could not be done. The file of before
    then stays, and its age tells.
    """
    if report.interrupted:
        return _noted(report, "interrupted: the metrics are still those of the previous run")
    path = folder / f"{metrics.PREFIX}{report.suite}.prom"
    quoted = shlex.quote(str(path))
    try:
        former = transport.run(f"[ ! -e {quoted} ] || cat {quoted}")
        if former.status != 0:
            return _noted(report, f"{path} was not updated: {printable(former.stderr)}")
        text = metrics.render(report, former.stdout)
        script = _WRITE.format(folder=shlex.quote(str(folder)), path=quoted)
        written = transport.run(script, stdin=text.encode("utf-8", "replace"))
    except (TransportError, ValueError, OverflowError) as error:
        return _noted(report, f"{path} was not updated: {error}")
    if written.status != 0:
        return _noted(report, f"{path} was not updated: {printable(written.stderr)}")
    return report


def _noted(report: RunReport, note: str) -> RunReport:
    return replace(report, notes=(*report.notes, note))
