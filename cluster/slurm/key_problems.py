"""What is wrong with keys and values of Slurm's files, before a Slurm is there to ask.

One function for a cluster whose release is known, and for one whose release is not: then each key
and each value must be good for one release of those that we support.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cluster.slurm.keys import (
    KEYS,
    RELEASES,
    WORDS,
    File,
    Key,
    Known,
    Release,
    entries,
    find,
    table,
)
from cluster.slurm.settings import NAME, text

# What sets the keys of a file, and what its keys are called for people.
SET_BY = {
    File.SLURM: "slurm_settings",
    File.NODE: "slurm_node_options",
    File.PARTITION: "slurm_partitions[].settings",
    File.CGROUP: "slurm_cgroup_settings",
    File.JOB_CONTAINER: "slurm_private_tmp_settings",
    File.OCI: "slurm_oci_settings",
    **dict.fromkeys((File.ACCT_GATHER, File.MPI, File.HELPERS), "slurm_other_files"),
    File.SLURMDBD: "slurm_database_settings",
}
LINES = (
    File.NODE,
    File.PARTITION,
    File.DOWN_NODES,
    File.NODE_SET,
    File.FRONTEND,
    File.POWER_ACTION,
)
# What Slurm takes and this cluster cannot have: key, value -> why, and what instead.
_ANYBODY = "lets whoever reaches a daemon be any user; remove it, the role sets"
UNFIT = {
    ("AuthType", "auth/none"): f"{_ANYBODY} auth/munge",
    ("CredType", "cred/none"): f"{_ANYBODY} cred/munge",
    ("AuthAltTypes", "auth/none"): "lets whoever reaches a daemon be any user; remove it",
}
# Keys whose value belongs to the accounts, folders and units that the roles make.
FIXED = {"SlurmUser": "slurm", "SlurmdUser": "root"}
# Newer releases read it as NamespaceType, with a warning: a role leaves it out, a site may have it.
STILL_READ = "job_container/tmpfs"
OR_OWN = "or say in slurm_settings.PluginDir where a plugin of your own lies."
FEW = 12  # words that a sentence names

Place = Callable[[object], str]  # ` (set in FILE:LINE)` of a value, or nothing


def nowhere(_: object) -> str:
    return ""


def refused(
    settings: Mapping[str, Any],
    file: str,
    release: Release,
    where: str,
    host: str = "",
    place: Place = nowhere,
    own_plugins: bool = False,
) -> list[str]:
    """A sentence for each key and value that the release does not read; each once.

    release      that of `host`, or that will be there; "" where it is not known
    own_plugins  whether a site says where plugins of its own lie
    """
    own_plugins = own_plugins or has_plugins(settings)
    sentences = [
        sentence
        for name, value in settings.items()
        if NAME.fullmatch(str(name)) and _plain(value) and entries(value)
        for sentence in _of_one(File(file), str(name), value, release, host, f"{where}.", place)
        if not (own_plugins and sentence.endswith(OR_OWN))
    ]
    return list(dict.fromkeys(sentences))


def has_plugins(settings: Mapping[str, Any]) -> bool:
    """Whether settings say where plugins lie: a site's own then lie there too."""
    return any(str(name).lower() == "plugindir" and entries(settings[name]) for name in settings)


def refused_file(
    value: Any,
    file: File,
    release: Release,
    where: str,
    host: str = "",
    place: Place = nowhere,
) -> list[str]:
    """As refused, of a file with lines or entries that have keys of their own."""

    def judged(keys: Mapping[str, Key], written: Any, at: str) -> Iterator[str]:
        if isinstance(written, (list, tuple)):
            for number, entry in enumerate(written):
                yield from judged(keys, entry, f"{at}[{number}]")
        elif not isinstance(written, Mapping):
            yield f"{at}{place(written)} is {text(written)}; it must be a mapping, name to value."
        elif line := leading(file, written):
            first, *rest = written
            yield from own({line.name.lower(): line}, str(first), "", at)
            for name in rest:
                yield from own(line.inner, str(name), written[name], at)
        else:
            for name, inner in written.items():
                yield from own(keys, str(name), inner, at)

    def own(keys: Mapping[str, Key], name: str, written: Any, at: str) -> Iterator[str]:
        key = keys.get(name.lower())
        deep = key is not None and key.kind == KEYS
        plain = "" if deep or isinstance(written, Mapping) else written
        wrong = list(_of_one(file, name, plain, release, host, f"{at}.", place, keys))
        yield from wrong
        if wrong or key is None:
            return
        if deep and written:
            yield from judged(key.inner, written, f"{at}.{name}")
        elif isinstance(written, Mapping):
            yield f"{at}.{name} is a mapping; give one value, or a list."

    return list(dict.fromkeys(judged(table()[file], value, where)))


def leading(file: File, entry: Mapping[str, Any]) -> Key | None:
    """The key that begins a line with keys of its own: `NodeName=gpu1 Feature=nps1`."""
    if str(file).endswith(".yaml") or not entry:
        return None
    key = find(file, str(next(iter(entry))))
    return key if key and key.kind == KEYS else None


def must_be(file: File, name: str, value: Any) -> str:
    """What a value of a key in our own variables must be that it is not; nothing where it is."""
    return _value(table()[file][name.lower()], text(value))


def _plain(value: Any) -> bool:
    """Whether it is what mapping_problems takes."""
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return not isinstance(value, (bool, Mapping))


def _of_one(
    file: File,
    name: str,
    value: Any,
    release: Release,
    host: str,
    where: str,
    place: Place,
    keys: Mapping[str, Key] | None = None,
) -> Iterator[str]:
    """What is wrong with one key; `keys` are those of its place, if not of the whole file."""
    releases = (release,) if release else RELEASES
    at = f"{where}{name}{place(value)}"
    keys = table()[file] if keys is None else keys
    key = keys.get(name.lower())
    if key is None:
        yield f"{at}: {_unknown(file, name, keys)}"
    elif key.gone:
        yield f"{at} is {text(value)}; Slurm does not read it any more: {key.instead}."
    elif not any(map(key.read_by, releases)):
        yield f"{at}: {_too_early_or_late(key, key.name, release, host)}"
    elif not entries(value):
        return
    elif key.kind == "line":
        yield from _line(name, text(value), release, host, at)
    elif fixed := FIXED.get(key.name):
        if text(value) != fixed:
            yield f"{at} is {text(value)}; remove it, the role needs {fixed}."
    elif key.kind in WORDS:
        for entry in [text(value)] if key.kind == "word" else entries(value):
            if problem := _entry(key, entry, release, host, releases):
                yield f"{at}{problem}"
    elif must := _value(key, text(value)):
        yield f"{at} is {text(value)}; set {must}."


def _unknown(file: File, name: str, keys: Mapping[str, Key]) -> str:
    of = f"a line {file}= of slurm.conf" if file in LINES else str(file)
    no = f"no Slurm from {RELEASES[0]} to {RELEASES[-1]} has a key {name} in {of}"
    if near := _near(name, (key.name for key in keys.values() if not key.gone)):
        return f"{no}; did you mean {near}?"
    for other, variable in SET_BY.items():
        if key := find(other, name):
            return f"{no}; set {key.name} in {variable}."
    return f"{no}; correct or remove it."


def _near(name: str, names: Iterable[str], cutoff: float = 0.75) -> str:
    spelt = {one.lower(): one for one in names}
    near = difflib.get_close_matches(name.lower(), spelt, n=1, cutoff=cutoff)
    return spelt[near[0]] if near else ""


def _too_early_or_late(known: Known, name: str, release: Release, host: str) -> str:
    has = f"{host} has Slurm {release}" if host else f"Slurm {release} is to be installed"
    age = "older" if known.since and release < known.since else "newer"
    what = known.instead or f"remove it, {age} releases have nothing like it"
    return f"{has}, and only {known.readers} read {name}; {what}."


def _line(name: str, value: str, release: Release, host: str, at: str) -> Iterator[str]:
    """A line with keys of its own: `NodeSet: big Nodes=gpu[1-4]`."""
    if name.lower() not in {str(line).lower() for line in LINES}:
        return
    file = next(line for line in LINES if line.lower() == name.lower())
    for inner, quoted, plain in re.findall(r'\s([A-Za-z_]+)=(?:"([^"]*)"|(\S*))', value):
        yield from _of_one(file, inner, quoted or plain, release, host, f"{at}: ", nowhere)


# --- words ---------------------------------------------------------------------------------------


def _entry(
    key: Key, entry: str, release: Release, host: str, releases: tuple[Release, ...]
) -> str | None:
    """What is wrong with one word of a value."""
    if why := UNFIT.get((key.name, entry.lower())):
        return f" is {entry}, which {why}."
    word = key.word(entry)
    if word is None:
        return _no_word(key, entry, releases)
    if not any(map(word.read_by, releases)) and entry != STILL_READ:
        full = f"{key.name}={key.prefix}{word.name}"
        return f": {_too_early_or_late(word, full, release, host)}"
    match = re.search("[=:]", entry)
    if not word.takes:
        return f" has {entry}, and {word.name} takes no value; set {word.name}." if match else None
    argument = entry[match.end() :] if match else ""
    if not any(_takes(one, argument) for one in word.takes.split("|")):
        return f" has {entry}; {word.name} takes {_wanted(word.takes)}."
    return None


def _no_word(key: Key, entry: str, releases: tuple[Release, ...]) -> str | None:
    readable = [word for word in key.words.values() if any(map(word.read_by, releases))]
    known = [f"{key.prefix}{word.name}" for word in readable]
    name = re.split("[=:]", entry, maxsplit=1)[0]
    full = name if not key.prefix or name.startswith(key.prefix) else f"{key.prefix}{name}"
    near = _near(full, known, cutoff=0.85 if key.others else 0.75)
    own = key.others and (not near or near == full)
    if own and not key.prefix:
        return None
    of = f" has {entry}, which is no word of {key.name}"
    if near:
        return f"{of}; did you mean {near}?"
    if own:
        return f"{of}; correct it, {OR_OWN}"
    if len(known) <= FEW:
        return f"{of}; set {' or '.join(filter(None, (', '.join(known[:-1]), known[-1])))}."
    return f"{of} in slurm.conf(5); correct or remove it."


def _takes(wanted: str, argument: str) -> bool:
    """Whether what follows a word's = is one of its alternatives."""
    if wanted == "range":
        return _port_range(argument)
    if wanted in FOLLOWS:
        return bool(FOLLOWS[wanted][0].fullmatch(argument))
    if ".." in wanted:
        return bool(INT.fullmatch(argument)) and _within(int(argument), wanted)
    return argument.lower() == wanted


def _wanted(takes: str) -> str:
    names = {name: words for name, (_, words) in FOLLOWS.items()}
    names |= {"range": "a range such as 60001-60100", "": "nothing"}
    return " or ".join(names.get(one, _bounds(one)) for one in takes.split("|"))


def _bounds(range_: str) -> str:
    low, dots, high = range_.partition("..")
    if not dots:
        return range_
    return f"a whole number from {low} to {high}" if high else f"a whole number, {low} or more"


def _within(number: int, range_: str) -> bool:
    low, _, high = range_.partition("..")
    return int(low) <= number and (not high or number <= int(high))


# --- types ---------------------------------------------------------------------------------------

TIME = re.compile(r"-1|\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|UNLIMITED|INFINITE", re.IGNORECASE)
FLOAT = re.compile(r"\d+(\.\d*)?|\.\d+|UNLIMITED|INFINITE", re.IGNORECASE)
INT = re.compile(r"-?\d+")
# What follows a word's =, and that in words.
FOLLOWS = {
    "text": (re.compile(".+"), "a value"),
    "int": (INT, "a whole number"),
    "float": (FLOAT, "a number"),
    "time": (TIME, "a time"),
}
ENDLESS = ("unlimited", "infinite")
BITS = {"uint16": 16, "uint32": 32, "uint64": 64}

# kind -> (what it must be, and that in words)
SHAPES: Mapping[str, tuple[re.Pattern[str], str]] = {
    kind: (re.compile(pattern, re.IGNORECASE), words)
    for kind, pattern, words in (
        ("boolean", "yes|up|true|1|no|down|false|0", "YES or NO"),
        ("float", FLOAT.pattern, "a number"),
        ("time", TIME.pattern, "a time such as 30 (minutes), 12:00:00, 7-00:00:00 or UNLIMITED"),
        ("minutes", r"\d+|UNLIMITED|INFINITE", "a number of minutes, or UNLIMITED"),
        ("seconds", r"-1|\d+|NONE|UNLIMITED|INFINITE", "a number of seconds, or NONE"),
        ("count", r"\d+[KMGTP]?", "a number, with K, M, G, T or P behind it or nothing"),
        ("program", r"/[^,]*", "the absolute path of one program"),
        ("numbers", r"\d+(,\d+)*", "a list of whole numbers"),
        ("purge", r"\d+\s*([hdm][a-z]*)?", "a time such as 12months, 30days or 24hours"),
    )
}


def _value(key: Key, value: str) -> str:
    """What a value must be that it is not; nothing where it is."""
    if key.kind in BITS:
        most = 2 ** BITS[key.kind] - 1
        low, _, high = (key.takes or "0..").partition("..")
        range_ = f"{low}..{high or most}"
        if value.lower() in ENDLESS and not key.takes:
            return ""
        number = _whole(value, suffix=key.kind != "uint16")
        return "" if number is not None and _within(number, range_) else _number(key, range_)
    if key.kind in ("port", "ports"):
        single = key.kind == "port" or "-" not in value
        good = _port(value) if single else _port_range(value)
        more = "" if key.kind == "port" else ", or a range of ports such as 6817-6820"
        return "" if good else f"a port from 1 to 65535{more}"
    if key.kind == "port_range":
        return "" if _port_range(value) else "a range of ports such as 60001-63000"
    if key.kind in SHAPES:
        pattern, words = SHAPES[key.kind]
        return "" if pattern.fullmatch(value) else words
    return ""


def _number(key: Key, range_: str) -> str:
    if not key.takes and key.kind != "uint16":
        return "a whole number, or UNLIMITED"
    return _bounds(range_ if key.kind == "uint16" else key.takes)


def _whole(value: str, *, suffix: bool) -> int | None:
    """A number as Slurm's parser reads it: 0x10, 010, and of larger types 16k."""
    match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([kK]?)", value)
    if not match or (match[2] and not suffix):
        return None
    octal = re.fullmatch("0[0-7]+", match[1])
    if not octal and re.fullmatch(r"0\d+", match[1]):
        return None
    return int(match[1], 8 if octal else 0) * (1024 if match[2] else 1)


def _port(value: str) -> bool:
    return value.isdigit() and 1 <= int(value) <= 65535


def _port_range(value: str) -> bool:
    first, dash, last = value.partition("-")
    return bool(dash) and _port(first) and _port(last) and int(first) < int(last)
