"""What QOS, accounts and users have in Slurm, each in one form, however it is written.

A site writes `MaxWall: "24:00:00"`, and sacctmgr prints `1-00:00:00`; both are 1440. None is what
is not set. A property has one word, which sacctmgr knows in `format=` as well as in `set`, from
21.08 on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Value = int | float | str | frozenset[str] | tuple[tuple[str, int], ...] | None
Values = Mapping[str, Value]  # by the property's word

# What takes a limit away again; sacctmgr says so too.
CLEAR = "-1"
NOTHING = (None, "", -1, CLEAR)

NAME = re.compile(r"[a-z0-9_][a-z0-9_.@$-]*")
# Trackable resources: those that Slurm always has, and those with a name (slurm.conf(5),
# AccountingStorageTRES).
TRES = re.compile(
    r"cpu|mem|energy|node|billing|vmem|pages|(gres|license|bb|fs|ic|interconnect)/[\w.:@+-]+"
)
UNITS = "kmgtpe"
MEBI = UNITS.index("m")

# sacctmgr(1), QOS: Flags.
FLAGS = (
    "DenyOnLimit",
    "EnforceUsageThreshold",
    "NoDecay",
    "NoReserve",
    "OverPartQOS",
    "PartitionMaxNodes",
    "PartitionMinNodes",
    "PartitionTimeLimit",
    "Relative",
    "RequiresReservation",
    "UsageFactorSafe",
)


class Unreadable(ValueError):
    """What the value must be instead."""


# --- reading: what a site wrote, or what sacctmgr printed ----------------------------------------


def _word(written: Any) -> str:
    if isinstance(written, (bool, Mapping, list, tuple)):
        raise Unreadable("one word or number")
    return str(written).strip()


def count(written: Any) -> int | None:
    if written in NOTHING:
        return None
    if not _word(written).isdecimal():
        raise Unreadable("a whole number, or -1 for no limit")
    return int(_word(written))


def decimal(written: Any) -> float | None:
    if written in NOTHING:
        return None
    try:
        number = float(_word(written))
    except ValueError:
        raise Unreadable("a number, or -1 for none") from None
    return None if number < 0 else number


def shares(written: Any) -> int | str | None:
    return "parent" if str(written).lower() == "parent" else count(written)


def seconds(written: Any) -> int | None:
    """Of a time as Slurm writes it: MM, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS."""
    if written in NOTHING or str(written).lower() in ("unlimited", "infinite"):
        return None
    if not isinstance(written, str):
        # 24:00:00 without quotes is 86400 to YAML, and would be 60 days to Slurm.
        raise Unreadable('a time in quotes, such as "1-00:00:00" or "60" for minutes')
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", written.strip())
    if not match:
        raise Unreadable('a time such as "1-00:00:00" or "60" for minutes, or -1 for no limit')
    days, *rest = match.groups()
    parts = [int(part) for part in rest if part is not None]
    if days is None and len(parts) < 3:
        hours, minutes, secs = 0, parts[0], (parts[1:] or [0])[0]
    else:
        hours, minutes, secs = (*parts, 0, 0)[:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs


def minutes(written: Any) -> int | None:
    duration = seconds(written)
    return None if duration is None else -(-duration // 60)


def grace(written: Any) -> int | None:
    """A number of seconds, which sacctmgr prints as a time."""
    return seconds(written) if isinstance(written, str) and ":" in written else count(written)


def resources(written: Any) -> tuple[tuple[str, int], ...] | None:
    """`cpu=10,gres/gpu=4`, or the same as a mapping; memory in MiB."""
    if written in NOTHING:
        return None
    if isinstance(written, Mapping):
        pairs = [(str(name), value) for name, value in written.items()]
    else:
        pairs = []
        for entry in filter(None, _word(written).split(",")):
            name, separator, value = entry.partition("=")
            if not separator:
                raise Unreadable("resources such as {cpu: 64, gres/gpu: 8, mem: 500G}")
            pairs.append((name, value))
    by_kind: dict[str, int] = {}
    for name, value in pairs:
        kind = name.strip().lower()
        if not TRES.fullmatch(kind):
            raise Unreadable(
                f"resources such as {{cpu: 64, gres/gpu: 8, mem: 500G}}, and {name} is none of "
                "cpu, mem, node, energy, billing, vmem, pages, gres/NAME, license/NAME, bb/NAME, "
                "fs/NAME, ic/NAME"
            )
        amount = _amount(kind, value)
        if amount is not None:
            by_kind[kind] = amount
    return tuple(sorted(by_kind.items())) or None


def _amount(kind: str, written: Any) -> int | None:
    """`500G` of memory is 512000 MiB; of anything else 500 * 2^30."""
    if written in NOTHING:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtpe]?)b?", _word(written).lower())
    if not match:
        raise Unreadable(
            f"resources with numbers such as 64 or 500G, or -1 for no limit, in {kind}"
        )
    in_mebi = kind == "mem" or kind.startswith("bb/")
    exponent = UNITS.index(match[2]) + 1 if match[2] else (MEBI + 1 if in_mebi else 0)
    return int(float(match[1]) * 1024 ** (exponent - (MEBI + 1 if in_mebi else 0)))


def names(written: Any) -> frozenset[str] | None:
    """A list, or words with commas between them."""
    if written in NOTHING:
        return None
    listed = written if isinstance(written, (list, tuple)) else _word(written).split(",")
    return frozenset(_word(name).lower() for name in listed if _word(name)) or None


def flags(written: Any) -> frozenset[str] | None:
    words = names(written)
    known = {flag.lower(): flag for flag in FLAGS}
    return None if words is None else frozenset(known.get(flag, flag) for flag in words)


def word(written: Any) -> str | None:
    return None if written in NOTHING else _word(written).lower()


def text(written: Any) -> str | None:
    """Free text: Slurm makes lower case of it."""
    return word(written)


# --- writing, for sacctmgr -----------------------------------------------------------------------


def plain(wanted: Any, had: Value = None) -> str:
    del had
    return CLEAR if wanted is None else str(wanted)


def time(wanted: Any, had: Value = None) -> str:
    """Minutes as a time."""
    return clock(None if wanted is None else wanted * 60, had)


def clock(wanted: Any, had: Value = None) -> str:
    """Seconds as a time, all of its parts: a plain number means minutes in one place, seconds in
    another."""
    del had
    if wanted is None:
        return CLEAR
    minute, second = divmod(wanted, 60)
    hour, minute = divmod(minute, 60)
    day, hour = divmod(hour, 24)
    return f"{day}-{hour:02}:{minute:02}:{second:02}"


def amounts(wanted: Any, had: Any = None) -> str:
    """Every resource, and -1 for those that go: Slurm leaves what is not named."""
    entries = dict(wanted or ())
    gone = {name: CLEAR for name, _ in (had or ()) if name not in entries}
    return ",".join(f"{name}={amount}" for name, amount in sorted({**gone, **entries}.items()))


def joined(wanted: Any, had: Value = None) -> str:
    """Nothing behind the `=` empties a list."""
    del had
    return ",".join(sorted(wanted or ()))


def flagged(wanted: Any, had: Value = None) -> str:
    return joined(wanted, had) or CLEAR


# --- the properties ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    read: Callable[[Any], Value]
    write: Callable[[Any, Value], str]


COUNT = Kind(count, plain)
DECIMAL = Kind(decimal, plain)
SHARES = Kind(shares, plain)
MINUTES = Kind(minutes, time)
SECONDS = Kind(seconds, clock)
GRACE = Kind(grace, plain)
RESOURCES = Kind(resources, amounts)
NAMES = Kind(names, joined)
A_NAME = Kind(word, plain)
FLAG = Kind(flags, flagged)
TEXT = Kind(text, plain)


@dataclass(frozen=True, slots=True)
class Property:
    """`option` is where a site writes it; a limit has none, and stands below `limits`."""

    word: str
    kind: Kind
    option: str = ""
    default: Value = None  # what Slurm has where nothing was set
    also: tuple[str, ...] = ()  # further names of a limit in sacctmgr(1)
    since: str = ""  # older releases do not know it at all

    def value(self, written: Any) -> Value:
        """The normal form. Raises Unreadable."""
        value = self.kind.read(written)
        return self.default if value is None else value

    def printed_value(self, printed: str) -> Value:
        """The same of what sacctmgr printed; what we do not understand differs from everything."""
        try:
            return self.value(printed)
        except Unreadable:
            return printed

    def setting(self, wanted: Value, had: Value = None) -> str:
        return f"{self.word}={self.kind.write(wanted, had)}"

    def shown(self, value: Value) -> str:
        """For people."""
        if value is None or value == frozenset():
            return f"{self.word}=none"
        return self.setting(value)


ASSOCIATION = (
    Property("Fairshare", SHARES, option="fairshare", default=1),
    Property("Priority", COUNT, option="priority"),
    Property("QOS", NAMES, option="qos"),
    Property("DefaultQOS", A_NAME, option="default_qos"),
    Property("GrpJobs", COUNT),
    Property("GrpJobsAccrue", COUNT),
    Property("GrpSubmitJobs", COUNT, also=("GrpSubmit",)),
    Property("GrpTRES", RESOURCES),
    Property("GrpTRESMins", RESOURCES),
    Property("GrpTRESRunMins", RESOURCES),
    Property("GrpWall", MINUTES),
    Property("MaxJobs", COUNT),
    Property("MaxJobsAccrue", COUNT),
    Property("MaxSubmitJobs", COUNT, also=("MaxSubmit",)),
    Property("MaxTRES", RESOURCES, also=("MaxTRESPerJob", "MaxTRESPJ")),
    Property("MaxTRESPerNode", RESOURCES, also=("MaxTRESPN",)),
    Property("MaxTRESMins", RESOURCES, also=("MaxTRESMinsPerJob", "MaxTRESMinsPJ")),
    Property("MaxTRESRunMins", RESOURCES),
    Property("MaxWall", MINUTES, also=("MaxWallDurationPerJob",)),
    Property("MinPrioThresh", COUNT, also=("MinPrioThreshold",)),
)

QOS = (
    Property("Description", TEXT, option="description"),
    Property("Priority", COUNT, option="priority", default=0),
    Property("Preempt", NAMES, option="preempt"),
    Property("PreemptMode", A_NAME, option="preempt_mode", default="cluster"),
    Property("PreemptExemptTime", SECONDS, option="preempt_exempt_time"),
    Property("GraceTime", GRACE, option="grace_time", default=0),
    Property("Flags", FLAG, option="flags"),
    Property("UsageFactor", DECIMAL, option="usage_factor", default=1.0),
    Property("UsageThreshold", DECIMAL, option="usage_threshold"),
    Property("LimitFactor", DECIMAL, option="limit_factor"),
    Property("GrpJobs", COUNT),
    Property("GrpJobsAccrue", COUNT),
    Property("GrpSubmitJobs", COUNT, also=("GrpSubmit",)),
    Property("GrpTRES", RESOURCES),
    Property("GrpTRESMins", RESOURCES),
    Property("GrpTRESRunMins", RESOURCES),
    Property("GrpWall", MINUTES),
    Property("MaxJobsPU", COUNT, also=("MaxJobs", "MaxJobsPerUser")),
    Property("MaxJobsPA", COUNT, also=("MaxJobsPerAccount",)),
    Property("MaxJobsAccruePU", COUNT, also=("MaxJobsAccruePerUser",)),
    Property("MaxJobsAccruePA", COUNT, also=("MaxJobsAccruePerAccount",)),
    Property("MaxSubmitJobsPU", COUNT, also=("MaxSubmitJobs", "MaxSubmitJobsPerUser")),
    Property("MaxSubmitJobsPA", COUNT, also=("MaxSubmitJobsPerAccount",)),
    Property("MaxTRES", RESOURCES, also=("MaxTRESPerJob", "MaxTRESPJ")),
    Property("MaxTRESPerNode", RESOURCES, also=("MaxTRESPN",)),
    Property("MaxTRESPU", RESOURCES, also=("MaxTRESPerUser",)),
    Property("MaxTRESPA", RESOURCES, also=("MaxTRESPerAccount",)),
    Property("MaxTRESMins", RESOURCES, also=("MaxTRESMinsPerJob", "MaxTRESMinsPJ")),
    Property("MaxTRESRunMinsPU", RESOURCES, also=("MaxTRESRunMinsPerUser",), since="24.05"),
    Property("MaxTRESRunMinsPA", RESOURCES, also=("MaxTRESRunMinsPerAccount",), since="24.05"),
    Property("MaxWall", MINUTES, also=("MaxWallDurationPerJob",)),
    Property("MinPrioThresh", COUNT, also=("MinPrioThreshold",)),
    Property("MinTRESPerJob", RESOURCES, also=("MinTRES",)),
)

# Of an account itself, whatever the cluster.
ACCOUNT = (
    Property("Description", TEXT, option="description"),
    Property("Organization", TEXT, option="organization"),
)

ADMIN_LEVEL = Property("AdminLevel", A_NAME, option="admin_level", default="none")


def limits(properties: Iterable[Property]) -> dict[str, Property]:
    """Limits by each of their names, in lower case."""
    return {
        name.lower(): prop
        for prop in properties
        if not prop.option
        for name in (prop.word, *prop.also)
    }


def by_word(properties: Iterable[Property]) -> dict[str, Property]:
    return {prop.word: prop for prop in properties}
