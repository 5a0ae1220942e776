"""Which releases of Slurm read which keys of its files, and which values: keys.yml, read once.

A key that a release does not know ends its daemons, and so does a value that is not of its type.
Most words of lists that it does not know, and keys of old that it still takes, it only passes over.
So what a role writes of its own accord is left out there (`read`), and what a site sets is refused,
with what to set instead (key_problems.py).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("keys.yml")

# "24.11": of fixed width, so that releases sort as words do.
Release = str
NONE = ""  # of a bound, and of a host whose release is not known
RELEASES: tuple[Release, ...] = (
    "22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05",
)  # fmt: skip

TEXT = "text"
LIST, WORD = "list", "word"
WORDS = (WORD, "words", LIST)  # kinds of keys whose words are known
KEYS = "keys"
UNITED = (LIST, "texts")  # kinds whose value is what several ask for


class File(str, enum.Enum):
    """What a key is in: a file, or the lines of nodes, partitions and others in slurm.conf."""

    def __str__(self) -> str:  # as Python 3.11's StrEnum
        return str(self.value)

    SLURM = "slurm.conf"
    NODE = "NodeName"
    PARTITION = "PartitionName"
    DOWN_NODES = "DownNodes"
    NODE_SET = "NodeSet"
    FRONTEND = "FrontendName"
    POWER_ACTION = "PowerAction"
    GRES = "gres.conf"
    TOPOLOGY = "topology.conf"
    CGROUP = "cgroup.conf"
    JOB_CONTAINER = "job_container.conf"
    ACCT_GATHER = "acct_gather.conf"
    MPI = "mpi.conf"
    OCI = "oci.conf"
    HELPERS = "helpers.conf"
    BURST_BUFFER = "burst_buffer.conf"
    KNL = "knl.conf"
    EXT_SENSORS = "ext_sensors.conf"
    TOPOLOGY_YAML = "topology.yaml"
    RESOURCES = "resources.yaml"
    NAMESPACE = "namespace.yaml"
    SLURMDBD = "slurmdbd.conf"


@dataclass(frozen=True, slots=True)
class Known:
    """What some releases read: a key, or a word of its value.

    name     as Slurm writes it; of a word without its prefix
    takes    a key's range of numbers, or what follows the = of a word; "" is none
    instead  what to do in a release that does not read it
    """

    name: str
    takes: str = ""
    since: Release = NONE  # the first release that reads it
    until: Release = NONE  # the last one
    instead: str = ""

    def read_by(self, release: Release) -> bool:
        return self.since <= release and (not self.until or release <= self.until)

    @property
    def bounded(self) -> bool:
        return bool(self.since or self.until)

    @property
    def readers(self) -> str:
        """`25.11 and newer`, `23.02 and older`, `23.11 to 25.11`."""
        if self.since == self.until:
            return self.since
        if self.since and self.until:
            return f"{self.since} to {self.until}"
        return f"{self.since} and newer" if self.since else f"{self.until} and older"


@dataclass(frozen=True, slots=True)
class Key(Known):
    """A key of a file.

    kind    its type, or one of WORDS
    words   by name in lower case
    prefix  before each word, such as `select/`
    others  whether a site may have words of its own
    gone    whether no release from 22.05 on reads it, or only as an old name of another
    inner   of KEYS: those of its line or of its entries, by name in lower case
    """

    kind: str = TEXT
    words: Mapping[str, Known] = field(default_factory=dict)
    prefix: str = ""
    others: bool = False
    gone: bool = False
    inner: Mapping[str, Key] = field(default_factory=dict)

    def word(self, entry: str) -> Known | None:
        """The word that an entry of the value begins with: `defer`, `bf_window=60`, `FORCE:4`."""
        name = re.split("[=:]", entry, maxsplit=1)[0].strip().lower()
        if self.prefix and name.startswith(self.prefix):
            return self.words.get(name.removeprefix(self.prefix))
        if self.prefix and not self._bare and name not in ("none", "default"):
            return None
        return self.words.get(name)

    @property
    def _bare(self) -> bool:
        """Whether Slurm puts the prefix before a word that has none."""
        return self.kind == LIST or self.prefix == "mpi/"


Table = Mapping[File, Mapping[str, Key]]  # by name in lower case


@cache
def table() -> Table:
    """What keys.yml says. Raises KeyError, OSError, ValueError or YAMLError; a test reads ours."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document = yaml.load(PATH.read_text(encoding="utf-8"), loader)
    return {file: dict(_keys(document[str(file)])) for file in File}


def find(file: str, name: str) -> Key | None:
    """A key of a file, however its name is written."""
    return table()[File(file)].get(name.lower())


@cache
def lists() -> frozenset[str]:
    """Names, in lower case, of the keys of slurm.conf whose value is what several ask for."""
    return frozenset(name for name, key in table()[File.SLURM].items() if key.kind in UNITED)


_TOKEN = re.compile(r"([^\s=@]+)(?:=([^@\s]*))?(?:@([\d.]*)(?:-([\d.]+))?)?")


def _token(text: str) -> Known:
    match = _TOKEN.fullmatch(text)
    if not match:
        raise ValueError(f"keys.yml: {text!r} is no NAME=TAKES@SINCE-UNTIL")
    name, takes, since, until = match.groups("")
    return Known(name, takes, since, until)


def _keys(section: Mapping[str, Any]) -> Iterator[tuple[str, Key]]:
    """(name in lower case, key) of what a file has."""
    instead: Mapping[str, str] = section.get("instead", {})
    for kind, keys in section.items():
        if kind in ("instead", "gone"):
            continue
        for token, what in keys.items() if kind in (*WORDS, KEYS) else _bare(keys):
            known = _token(token)
            words = [] if kind == KEYS else str(what).split()
            key = _with_words(known, kind, words, instead)
            inner = dict(_keys(what)) if isinstance(what, Mapping) else {}
            yield key.name.lower(), replace(key, instead=instead.get(key.name, ""), inner=inner)
    for name, what in section.get("gone", {}).items():
        yield name.lower(), Key(name, instead=what, gone=True)


def _bare(keys: str) -> Iterator[tuple[str, str]]:
    return ((token, "") for token in keys.split())


def _with_words(known: Known, kind: str, tokens: Sequence[str], instead: Mapping[str, str]) -> Key:
    prefix = next((token for token in tokens if token.endswith("/")), "")
    words = [_token(token) for token in tokens if token not in (prefix, "*")]
    return Key(
        known.name,
        known.takes,
        known.since,
        known.until,
        kind=kind,
        words={
            word.name.lower(): replace(
                word, instead=instead.get(f"{known.name}={prefix}{word.name}", "")
            )
            for word in words
        },
        prefix=prefix,
        others="*" in tokens,
    )


# --- releases ------------------------------------------------------------------------------------


def of_version(version: str) -> Release:
    """The release of a version such as 25.11.2; NONE of what is none."""
    match = re.match(r"(?:\d+:)?(\d+)\.(\d+)", version.strip())
    return f"{int(match[1]):02d}.{int(match[2]):02d}" if match else NONE


def wanted_release(version: str, method: str, url: str) -> Release:
    """The release that a site wants: of its version, else of the tarball that Slurm is built from.

    NONE where that is what the hosts' repositories have.
    """
    if method == "distro":  # whose version nobody chooses
        return NONE
    tarball = re.search(r"slurm-(\d+\.\d+)[^/]*$", url) if method == "build" else None
    return of_version(version) or (of_version(tarball[1]) if tarball else NONE)


def release(policy: str) -> Release:
    """Slurm's release from `apt-cache policy`: installed, else what would be; NONE if neither."""
    for kind in ("Installed", "Candidate"):
        match = re.search(rf"^\s*{kind}: (\S+)", policy, re.MULTILINE)
        if match and (version := of_version(match[1])):
            return version
    return NONE


def oldest_release(look: str) -> Release:
    """The oldest of the package's release and of those in lines `slurmd 24.11.5`, from sinfo.

    While a cluster is upgraded the nodes' slurmd are older, and read the controller's files.
    """
    running = re.findall(r"^slurmd (\d+\.\d+)", look, re.MULTILINE)
    return min(filter(None, [release(look), *map(of_version, running)]), default=NONE)


# --- what a release reads ------------------------------------------------------------------------


def read(settings: Mapping[str, Any], file: str, installed: Release) -> dict[str, Any]:
    """The settings without what the release does not read; of a list without such entries.

    Where the release is not known, what only some releases read is left out. What is not in the
    table stays: a site's is refused.
    """
    kept = {}
    for name, value in settings.items():
        all_ = entries(value)
        left = [entry for entry in all_ if not unread(find(file, name), entry, installed)]
        if len(left) == len(all_):
            kept[name] = value
        elif left:
            kept[name] = ",".join(left)
    return kept


def unread(key: Key | None, entry: str, installed: Release) -> Known | None:
    """The key, or the word of its value, that the release does not read."""
    bounds = filter(None, (key, key.word(entry) if key else None))
    return next(
        (
            known
            for known in bounds
            if (known.bounded if not installed else not known.read_by(installed))
        ),
        None,
    )


def entries(value: Any) -> list[str]:
    """The entries of a list, or the one value; none for what removes a setting, an empty one."""
    if isinstance(value, (list, tuple)):
        return [entry for item in value for entry in entries(item)]
    return [word.strip() for word in str("" if value is None else value).split(",") if word.strip()]


def additions(value: Any) -> list[str]:
    """The entries that a site's list adds: all but those that take one of ours away."""
    return [entry for entry in entries(value) if not entry.startswith("-")]


def taken_away(value: Any) -> list[str]:
    """What a site's list takes away: `nohold` of `-nohold`. No word of Slurm's has a dash there."""
    return [entry[1:] for entry in entries(value) if entry.startswith("-")]
