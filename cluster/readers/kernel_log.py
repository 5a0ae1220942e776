"""XIDs and SXIDs: what NVIDIA's driver wrote to the kernel's log since the node started.

The log is read where this user may: the journal, the file that a syslog daemon keeps, dmesg,
/dev/kmsg. A source that shows no line of the kernel shows nothing: many of them hide the log from
users without a right to it and end as if it were empty. A log whose first line is not the boot's
has forgotten some, so a source that has it is preferred.

The lines look like this (https://docs.nvidia.com/deploy/xid-errors/, Fabric Manager user guide):

    NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
    nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO

Any user can put words into the kernel's log: a process chooses its own name, and the kernel writes
"NAME[PID]: segfault at ..." where it crashes. Such lines are left out, and all others are matched
from the start of the message.
"""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cluster import processes

FILES = (Path("/var/log/kern.log"), Path("/var/log/messages"))
DEVICE = Path("/dev/kmsg")
STAT = Path("/proc/stat")
COMMANDS = {
    "journalctl": (
        "journalctl",
        "--dmesg",
        "--boot",
        "--no-pager",
        "--quiet",
        "--output=short-monotonic",
    ),
    "dmesg": ("dmesg",),
}
TIMEOUT_S = 10
MOST_EVENTS = 200
_FIRST_S = 5.0  # the first line of a boot comes with its first seconds
_LONGEST_TEXT = 200
_RECORD_BYTES = 8192  # the kernel's own limit for a record of /dev/kmsg

_EVENT = re.compile(
    r"(?:NVRM: (Xid)|nvidia-nvswitch\d+: (SXid))"
    r" \((?:PCI:)?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?)\): (\d+)"
    r"(?:, *(.*))?"
)
_TIME = r"\[ *(\d+\.\d+)\]"
_CALLER = r"(?:\[ *[TC]\d+\] ?)?"  # of kernels with CONFIG_PRINTK_CALLER
_LINE = re.compile(
    # The journal and dmesg begin with the time, a syslog daemon's file with the date and the host.
    rf"{_TIME} ?{_CALLER}(?:(?:[\w.-]+ )?kernel: )?(.*)"
    rf"|[\w:.+ -]+? kernel: (?:{_TIME} ?{_CALLER})?(.*)"
)
_LONGEST_NAME = 15  # bytes of a process's name: TASK_COMM_LEN without its end
_OF_A_PROCESS = re.compile(rf".{{0,{_LONGEST_NAME}}}\[\d+\]:? ")
_BOOT = "Linux version "
_BOOT_S = 1.0  # before that no process runs that could say so


@dataclass
class Event:
    """Alike lines of one board: how many, when the last one came, and what it said.

    kind       "xid" of a GPU, "sxid" of an NVSwitch
    pci        its address, in lower case, without the function: "0000:1b:00"
    seconds    since the node started, or None where the log does not say
    """

    kind: str
    code: int
    pci: str
    count: int
    seconds: float | None
    text: str


@dataclass(frozen=True)
class KernelLog:
    """source is None where no log could be read, and error says why. begins_s is the time of the
    first line since the boot; complete is "yes" where that is the boot's own first. lines are those
    that were searched for."""

    source: str | None
    error: str | None
    begins_s: float | None = None
    complete: str = "no"
    events: tuple[Event, ...] = ()
    lines: tuple[str, ...] = ()


def read() -> KernelLog:
    """The events of this boot, from the first source that shows all of it, or the most."""
    return search(())


def search(patterns: Iterable[str]) -> KernelLog:
    """The same, and the lines in whose message one of the regular expressions is found."""
    wanted = tuple(re.compile(pattern) for pattern in patterns)
    sources: list[tuple[str, Callable[[], list[str]]]] = [
        ("journalctl", lambda: _output("journalctl")),
        *((str(path), partial(_lines, path)) for path in FILES),
        ("dmesg", lambda: _output("dmesg")),
        (str(DEVICE), _records),
    ]
    refused: list[str] = []
    partly: list[KernelLog] = []
    for source, lines in sources:
        try:
            kernel_log = parse(source, lines(), wanted)
        except _Unreadable as why:
            refused.append(f"{source}: {why}")
            continue
        except processes.CommandFailed as why:
            refused.append(str(why))
            continue
        if kernel_log is None:
            refused.append(f"{source}: shows nothing of the kernel")
        elif kernel_log.complete == "yes":
            return kernel_log
        else:
            partly.append(kernel_log)
    if partly:
        return min(partly, key=lambda log: math.inf if log.begins_s is None else log.begins_s)
    return KernelLog(None, "; ".join(refused))


class _Unreadable(Exception):
    """Why a source cannot be read."""


def parse(
    source: str, lines: Iterable[str], patterns: Sequence[re.Pattern[str]] = ()
) -> KernelLog | None:
    """The events among lines of one source; None where not one of them is the kernel's.

    A file holds more than one boot: what counts begins with the last one's first line.
    """
    kept = [(line, *split) for line in lines if (split := _split(line))]
    boots = [number for number, (_, time, message) in enumerate(kept) if _begins(time, message)]
    if boots:
        kept = kept[boots[-1] :]
    if not kept:
        return None
    begins = next((time for _, time, _ in kept if time is not None), None)
    complete = bool(boots) or (begins is not None and begins < _FIRST_S)
    kept = [record for record in kept if not _OF_A_PROCESS.match(record[2])]
    events: dict[tuple[str, int, str, str], Event] = {}
    for _, time, message in kept:
        if match := _EVENT.match(message):
            kind, pci, code = (match[1] or match[2]).lower(), _pci(match[3]), int(match[4])
            text = (match[5] or "").strip()[:_LONGEST_TEXT]
            # Whether an event is fatal can stand in its text, so only alike ones are put together.
            key = (kind, code, pci, _severity(text))
            event = events.setdefault(key, Event(kind, code, pci, 0, None, text))
            event.count, event.text, event.seconds = event.count + 1, text, time
    whole = "yes" if complete else "no"
    found_lines = [
        line for line, _, message in kept if any(pattern.search(message) for pattern in patterns)
    ]
    latest = tuple(events.values())[-MOST_EVENTS:]
    return KernelLog(source, None, begins, whole, latest, tuple(found_lines[-MOST_EVENTS:]))


def message(line: str) -> str:
    """What the kernel said in a line of KernelLog, without the time and the host.

    >>> message("[  100.500000] gpu1 kernel: Oops: 0002 [#1] SMP")
    'Oops: 0002 [#1] SMP'
    """
    split = _split(line)
    return split[1] if split else ""


def _split(line: str) -> tuple[float | None, str] | None:
    """The time since the boot, where the line has one, and the message."""
    match = _LINE.fullmatch(line)
    if match is None:  # the rest of a message with more than one line
        return None
    time = match[1] or match[3]
    return float(time) if time else None, match[4] if match[2] is None else match[2]


def _begins(time: float | None, message: str) -> bool:
    return (
        message.startswith(_BOOT)
        and (time is None or time < _BOOT_S)
        and not _OF_A_PROCESS.match(message)
    )


def _severity(text: str) -> str:
    word = re.search(r"\b(Non-?fatal|Fatal)\b", text)
    return word[1].lower() if word else ""


def _pci(address: str) -> str:
    return address.lower().split(".")[0]


def _output(source: str) -> list[str]:
    answer = processes.run(COMMANDS[source], TIMEOUT_S)
    # By the newline alone: splitlines() also splits at characters that a process's name can have.
    return [line for line in answer.stdout.split("\n") if re.match(_TIME, line)]


def _records() -> list[str]:
    """The kernel's ring buffer: one record for each read, "priority,number,microseconds,-;text"."""
    try:
        descriptor = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise _Unreadable(error.strerror) from None
    lines = []
    try:
        while True:
            try:
                record = os.read(descriptor, _RECORD_BYTES).decode(errors="replace")
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten while we read: the next one follows
                    continue
                if error.errno == errno.EAGAIN:
                    break
                raise _Unreadable(error.strerror) from None
            if not record:  # a file in its place, as containers have it
                break
            head, _, text = record.partition(";")
            parts = head.split(",")
            if len(parts) >= 3 and parts[2].isdigit():
                lines.append(f"[{int(parts[2]) / 1e6:.6f}] {text.splitlines()[0] if text else ''}")
    finally:
        os.close(descriptor)
    return lines


def _lines(path: Path) -> list[str]:
    try:
        if path.stat().st_mtime < _boot_time():
            raise _Unreadable("was last written to before this boot")
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise _Unreadable(error.strerror) from None
    return [line for line in lines if " kernel: " in line]


def _boot_time() -> int:
    """Seconds since the epoch."""
    match = re.search(r"^btime (\d+)$", STAT.read_text(encoding="ascii"), re.MULTILINE)
    if match is None:
        raise _Unreadable(f"{STAT} does not say when this node was started")
    return int(match[1])
