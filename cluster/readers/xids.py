"""What an XID or SXID of the kernel's log is worth, by the severities in cluster/readers/xids.yml.

The check `xid`, the health checks of a node and the exporter of GPUs read it here, so that an
alert, a drained node and a failed validation agree.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from cluster import strict
from cluster.errors import DataError
from cluster.text import printable

TABLE = "xids.yml"
SEVERITIES = ("fatal", "reset", "text", "recovery", "watch", "application", "informational")

FAIL, WARN = "fail", "warn"
_WORTH = {
    "fatal": FAIL,
    "reset": FAIL,
    "watch": WARN,
    "application": None,
    "informational": None,
}
_FATAL = re.compile(r"\b(Fatal|Non-?fatal)\b")
_RECOVERY = re.compile(r"\bto 0x[0-9a-fA-F]+ \(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Xid:
    """action is the catalog's word for what to do at once; severity follows from it."""

    code: int
    severity: str
    action: str
    name: str


@dataclass(frozen=True, slots=True)
class Xids:
    """source names the catalog, its address, when it was read, and the version of our file."""

    source: str
    by_code: Mapping[int, Xid]

    def of(self, code: int) -> Xid | None:
        return self.by_code.get(code)


_READER = strict.table(
    {
        "version": strict.whole(1),
        "source": strict.text,
        "url": strict.text,
        "read": strict.text,
        "xids": strict.list_of(
            strict.table(
                {
                    "xid": strict.whole(1),
                    "severity": strict.one_of(*SEVERITIES),
                    "action": strict.text,
                    "name": strict.text,
                }
            ),
            empty=False,
        ),
    }
)


@cache
def load(path: Path | None = None) -> Xids:
    """The table in a file, else ours, which may lie in an archive.

    Raises DataError with every problem of the file.
    """
    if path is None:
        with resources.as_file(resources.files(__package__) / TABLE) as ours:
            return load(ours)
    problems: strict.Problems = []
    read = _READER(strict.load_yaml(path), "", problems)
    if not problems:
        codes = [item["xid"] for item in read["xids"]]
        twice = sorted({code for code in codes if codes.count(code) > 1})
        problems = [f"xids: {code} is given twice" for code in twice]
    if problems:
        raise DataError(str(path), problems)
    source = f"{read['source']} ({read['url']}, read {read['read']}), version {read['version']}"
    return Xids(
        source,
        {
            item["xid"]: Xid(item["xid"], item["severity"], item["action"], item["name"])
            for item in read["xids"]
        },
    )


def judge(kind: str, code: int, text: str, known: Xids) -> tuple[str | None, str]:
    """What a line of the driver's is worth (FAIL or WARN), and its name.

    None is a fault of nobody's, or of a program.
    """
    return _sxid(text) if kind == "sxid" else _xid(code, text, known)


def _xid(code: int, text: str, known: Xids) -> tuple[str | None, str]:
    xid = known.of(code)
    if xid is None:
        return WARN, f"not in the table of severities: {printable(text, 60)}"
    if xid.severity == "text":
        return _said_fatal(text), xid.name
    if xid.severity == "recovery":
        match = _RECOVERY.search(text)
        needed = match[1] if match else "not understood"
        none = needed == "None"
        return (None if none else FAIL), f"{xid.name}: {printable(needed, 40)}"
    return _WORTH[xid.severity], xid.name


def _sxid(text: str) -> tuple[str | None, str]:
    return _said_fatal(text), printable(text, 60)


def _said_fatal(text: str) -> str:
    """A line that says neither is taken for fatal."""
    match = _FATAL.search(text)
    return WARN if match and match[1] != "Fatal" else FAIL
