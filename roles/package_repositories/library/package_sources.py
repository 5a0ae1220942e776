#!/usr/bin/python
"""Has APT read from these repositories: each one is tried before it counts.

A repository whose key is another one than pinned, or that APT cannot read with that key, changes
nothing: source, key and package lists stay as they were, and so do all other repositories. What is
in place already is not asked for again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ansible.module_utils.apt_sources import USUAL, sources_folder
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.download import NoFile, download, other_hash, replacing
from ansible.module_utils.refused import Refused

DOCUMENTATION = r"""
module: package_sources
short_description: Have APT read from these repositories, and from no other of ours
description:
  - Owns C(plumbline-*) in sources.list.d, keyrings and preferences.d of /etc/apt. What is there and
    not in O(repositories) is removed.
  - A repository that is new or changed is read by APT, it alone, before its files are put in place.
options:
  repositories:
    description: The repositories; the role's argument specs describe an entry.
    type: list
    elements: dict
    required: true
  download:
    description: Whether keys may be asked for; without, a key that is not in place is a difference.
    type: bool
    default: true
  timeout:
    description: Seconds of silence after which a mirror counts as unreachable.
    type: int
    default: 30
author: The Plumbline authors
"""

RETURN = r"""
states:
  description: >-
    For each repository, one of C(in place), C(absent), C(different) and C(never read), before the run, or the sentence
    why it cannot be one of ours.
  type: dict
  returned: always
"""  # noqa: E501 - YAML

HEADER = "# Managed by Ansible; changes made here are lost.\n"
PREFIX = "plumbline-"
FOLDERS = ("sources.list.d", "keyrings", "preferences.d")
IN_PLACE, ABSENT, DIFFERENT, NEVER_READ = "in place", "absent", "different", "never read"

# Whoever else reads the lists now is done in minutes.
LOCK_S = 600


@dataclass(frozen=True)
class Apt:
    """Where things are on this node."""

    etc: Path = Path("/etc/apt")
    staging: Path = Path("/run")
    # Where APT reads sources, if that is not the usual folder.
    parts: Path | None = None

    @property
    def sources(self) -> Path:
        return self.parts or self.etc / "sources.list.d"

    def source(self, name: str) -> Path:
        return self.sources / f"{PREFIX}{name}.sources"

    def keys(self, name: str) -> list[Path]:
        """The key's two possible places: APT tells the format by the ending."""
        return [self.etc / "keyrings" / f"{PREFIX}{name}.{kind}" for kind in ("asc", "gpg")]

    def preferences(self, name: str) -> Path:
        return self.etc / "preferences.d" / f"{PREFIX}{name}.pref"


# --- keys -----------------------------------------------------------------------------------------


def fingerprints(data: bytes) -> list[str]:
    """The fingerprints of the primary keys in a file, armoured or not.

    Nodes have no program that tells them: APT comes with gpgv or, on Debian 13, sqv, and gpg would
    be a new package everywhere. A pinned hash of the file ends when its owner renews the key.

    Version 4 keys only (RFC 4880, 12.2): SHA-1 of 0x99, the length and the packet's body. Raises
    ValueError for anything else.
    """
    result, rest = [], dearmoured(data)
    while rest:
        tag, body, rest = packet(rest)
        if tag == 6:
            if body[:1] != b"\x04":
                raise ValueError("a key of another version than 4")
            head = b"\x99" + len(body).to_bytes(2, "big")
            result.append(hashlib.sha1(head + body, usedforsecurity=False).hexdigest().upper())
    if not result:
        raise ValueError("no public key in it")
    return result


def dearmoured(data: bytes) -> bytes:
    """The packets of all blocks; the checksum of a block, which is optional, is not looked at."""
    if not data.lstrip().startswith(b"-----BEGIN"):
        return data
    blocks = re.findall(
        rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(.*?)-----END PGP PUBLIC KEY BLOCK-----",
        data,
        re.DOTALL,
    )
    packets = b""
    for block in blocks:
        # Headers such as Version: end with an empty line; the checksum's line begins with `=`.
        body = re.split(rb"\r?\n\r?\n", b"\n" + block, maxsplit=1)[-1]
        lines = [line for line in body.split() if not line.startswith(b"=")]
        try:
            packets += base64.b64decode(b"".join(lines), validate=True)
        except binascii.Error as error:
            raise ValueError(f"not armoured as it should be ({error})") from None
    return packets


def packet(data: bytes) -> tuple[int, bytes, bytes]:
    """The first packet's tag and body, and the rest (RFC 4880, 4.2)."""
    first = data[0]
    if not first & 0x80 or len(data) < 6:  # no shorter packet is a key
        raise ValueError("not a key")
    if first & 0x40:  # the new format
        tag, length, start = first & 0x3F, data[1], 2
        if 192 <= length < 224:
            length, start = ((length - 192) << 8) + data[2] + 192, 3
        elif length == 255:
            length, start = int.from_bytes(data[2:6], "big"), 6
        elif length >= 224:
            raise ValueError("a packet of unknown length")
    else:
        tag, size = (first & 0x3C) >> 2, 1 << (first & 0x03)
        if size == 8:
            raise ValueError("a packet of unknown length")
        length, start = int.from_bytes(data[1 : 1 + size], "big"), 1 + size
    if len(data) < start + length:
        raise ValueError("it ends too early")
    return tag, data[start : start + length], data[start + length :]


def key_problem(data: bytes, entry: Mapping[str, Any]) -> str:
    """Why this is not the key that the entry pins; "" if it is."""
    pinned = entry.get("key_sha256")
    if pinned and (problem := other_hash(hashlib.sha256(data).hexdigest(), pinned)):
        return f"{problem} in key_sha256"
    if pinned := "".join((entry.get("key_fingerprint") or "").split()).upper():
        try:
            found_keys = fingerprints(data)
        except ValueError as error:
            return f"is no key that can be read: {error}"
        if strangers := [key for key in found_keys if key != pinned]:
            return f"has the fingerprint {strangers[0]}, and {pinned} is pinned in key_fingerprint"
    return ""


# --- what the files say ---------------------------------------------------------------------------


def source_text(entry: Mapping[str, Any], key: Path) -> str:
    """The deb822 text of a source; a flat repository has the suite `/` and no components."""
    lines = {
        "Types": "deb",
        "URIs": " ".join(entry["uris"]),
        "Suites": " ".join(entry["suites"]),
        "Components": " ".join(entry.get("components") or []),
        "Architectures": " ".join(entry.get("architectures") or []),
        "Signed-By": str(key),
    }
    return HEADER + "".join(f"{name}: {value}\n" for name, value in lines.items() if value)


def preferences_text(entry: Mapping[str, Any]) -> str:
    """APT's preferences: the packages of this repository, or a version of them; "" without."""
    origin = f'origin "{urlsplit(entry["uris"][0]).hostname or ""}"'
    paragraphs = []
    for pin in entry.get("pins") or []:
        which = f"version {pin['version']}" if pin.get("version") else origin
        packages = " ".join(pin["packages"])
        paragraphs.append(f"Package: {packages}\nPin: {which}\nPin-Priority: {pin['priority']}\n")
    return HEADER + "\n".join(paragraphs) if paragraphs else ""


def read(path: Path) -> bytes:
    """A file's bytes; none where there is no file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def put(files: Mapping[Path, bytes]) -> None:
    """Files for everybody to read, all or, with NoFile, none; an empty one is removed."""
    with ExitStack() as stack:
        # Opened from the last to the first, so that they get their names, and APT sees them, from
        # the first to the last: a key before the source that needs it.
        for path, data in reversed(list(files.items())):
            if data:
                path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                file = stack.enter_context(replacing(path))
                file.write(data)
                file.flush()  # a full disk shows here, before any file has its name
    for path, data in files.items():
        if not data:
            path.unlink(missing_ok=True)


# --- asking APT -----------------------------------------------------------------------------------


def run(argv: Iterable[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(argv), capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"}
    )


def only(source: Path) -> list[str]:
    """APT's options with which it knows this source and no other."""
    return ["-o", f"Dir::Etc::sourcelist={source}", "-o", "Dir::Etc::sourceparts=-"]


def was_read(source: Path) -> bool:
    """Whether APT has package lists of this source."""
    result = run(["apt-get", "indextargets", *only(source), "--format=$(FILENAME)"])
    names = [Path(line) for line in result.stdout.splitlines() if "Packages" in line]
    return any(list(name.parent.glob(f"{name.name}*")) for name in names)


def releases(entry: Mapping[str, Any]) -> dict[str, str]:
    """The address of each suite's release file, with the address that the entry has for it."""
    by_address = {}
    for uri in entry["uris"]:
        for suite in entry["suites"]:
            folder = suite.removeprefix("/") if suite.endswith("/") else f"dists/{suite}/"
            by_address[f"{uri.rstrip('/')}/{folder}InRelease"] = uri
    return by_address


def of_others(apt: Apt) -> dict[str, Path]:
    """Which file of somebody else's has a release file's address.

    Each file is asked for alone: what two files say together may be an error of all of APT. Nothing
    is downloaded. Raises Refused for a file that APT cannot read.
    """
    by_address = {}
    parts = apt.sources
    usual = [] if apt.parts else [apt.etc / "sources.list"]
    files = [*usual, *parts.glob("*.list"), *parts.glob("*.sources")]
    for path in sorted(files):
        if path.name.startswith(PREFIX) or not path.exists():
            continue
        result = run(["apt-get", "update", "--print-uris", *only(path)])
        if result.returncode:
            why = " ".join(result.stderr.split())
            raise Refused(f"{path} on the node cannot be read by APT ({why}); mend or remove it")
        for address in re.findall(r"^'([^']+/InRelease)'", result.stdout, re.MULTILINE):
            by_address[unquote(address)] = path
    return by_address


def shared(entry: Mapping[str, Any], others: Mapping[str, Path]) -> str:
    """What is wrong if somebody else's file has an address and suite of this entry; "" without.

    One address with two keys is an error of all of APT, whatever it is asked to do.
    """
    for release, uri in releases(entry).items():
        if theirs := others.get(unquote(release)):
            return (
                f"{theirs} on the node has its address {uri} already, and APT reads nothing at all "
                "when one address has two keys; remove that file"
            )
    return ""


def update(source: Path, timeout: int) -> str:
    """Has APT read this source, and this one only; what APT says if it cannot, else ""."""
    argv = ["apt-get", "update", *only(source)]
    for option in (
        "APT::Get::List-Cleanup=0",  # the lists of all others stay
        "APT::Update::Error-Mode=any",  # no old lists instead of an error
        f"Acquire::http::Timeout={timeout}",
        f"Acquire::https::Timeout={timeout}",
        "Acquire::Retries=1",
    ):
        argv += ["-o", option]
    deadline = time.monotonic() + LOCK_S
    while True:
        result = run(argv)
        # A component that there is not is but a warning of APT's.
        if not result.returncode and NO_COMPONENT not in result.stdout + result.stderr:
            return ""
        if "Could not get lock" not in result.stderr or time.monotonic() > deadline:
            return result.stdout + result.stderr
        time.sleep(2)


NO_COMPONENT = "doesn't have the component"

# What APT says, in the order in which it counts, and what it means. {0} is the pattern's group.
MEANINGS = (
    (
        r"(Could not (?:connect|resolve)[^\n]*|Connection failed[^\n]*|Temporary failure[^\n]*"
        r"|[^\n]*timed out[^\n]*|Unable to connect[^\n]*|Connection refused[^\n]*)",
        "cannot be reached ({0}); see the network, or set its address to a mirror that nodes reach",
    ),
    (r"does not have a Release file", "has no suite {suites}; see uris and suites"),
    (
        r"(?:NO_PUBKEY |Missing key )([0-9A-F]+)",
        "is signed with another key ({0}) than the one at {key_url}; see key_url and its pin",
    ),
    (rf"{NO_COMPONENT} '([^']+)'", "has no component {0}; see components"),
    (
        r"Unable to find expected entry '([^']+)'",
        "has no {0}, which its components and architectures lead to; see components",
    ),
    (
        r"(Hash Sum mismatch|File has unexpected size|Clearsigned file isn't valid)",
        "is damaged or just being renewed ({0}); run again, or use another mirror",
    ),
    (
        r"is not signed",
        "is not signed, and what is not signed is not installed from; use a signed mirror",
    ),
)


def meaning(output: str, entry: Mapping[str, Any]) -> str:
    """One sentence of what APT said, without its end."""
    where = " ".join(entry["uris"])
    for pattern, sentence in MEANINGS:
        if match := re.search(pattern, output):
            words = [group.strip().rstrip(".") for group in match.groups()]
            said_so = sentence.format(
                *words, suites=" ".join(entry["suites"]), key_url=entry["key_url"]
            )
            return f"{where} {said_so}"
    lines = [line for line in output.splitlines() if line.startswith(("E:", "W:"))]
    return f"{where} cannot be read: {' '.join(lines[0].split()[1:]) if lines else output.strip()}"


# --- one repository, and all of them --------------------------------------------------------------


@dataclass
class Outcome:
    """What there was, and what is wrong."""

    states: dict[str, str] = field(default_factory=dict)
    changed: bool = False
    problems: list[str] = field(default_factory=list)


def key_of(entry: Mapping[str, Any], apt: Apt, may_ask: bool, timeout: int) -> bytes:
    """The key: the one in place if it is the one that is pinned. None there and none asked: b""."""
    for path in apt.keys(entry["name"]):
        there = read(path)
        if there and not key_problem(there, entry):
            return there
    if not may_ask:
        return b""
    answer = io.BytesIO()
    try:
        download(entry["key_url"], answer, timeout, "key_url")
    except NoFile as error:
        raise Refused(f"its key {error}") from None
    data = answer.getvalue()
    if problem := key_problem(data, entry):
        raise Refused(
            f"its key {entry['key_url']} {problem}; find out which is right before you change it"
        )
    return data


def state(apt: Apt, name: str, files: Mapping[Path, bytes]) -> str:
    source = apt.source(name)
    if not source.exists():
        return ABSENT
    if any(read(path) != data for path, data in files.items()):
        return DIFFERENT
    return IN_PLACE if was_read(source) else NEVER_READ


def bring(entry: Mapping[str, Any], apt: Apt, may_ask: bool, check_mode: bool, timeout: int) -> str:
    """Brings one repository up to date; its state before.

    Raises Refused or NoFile, with nothing changed.
    """
    name = entry["name"]
    key = key_of(entry, apt, may_ask, timeout)
    armoured, binary = apt.keys(name)
    ours, other = (armoured, binary) if key.startswith(b"-----") else (binary, armoured)
    files = {
        ours: key,
        other: b"",
        apt.source(name): source_text(entry, ours).encode(),
        apt.preferences(name): preferences_text(entry).encode(),
    }
    before = state(apt, name, files)
    if before == IN_PLACE or check_mode:
        return before
    with tempfile.TemporaryDirectory(prefix="plumbline-apt-", dir=apt.staging) as scratch:
        staged = Path(scratch)
        staged.chmod(0o755)  # APT reads it as a user of its own
        source = staged / apt.source(name).name
        staged_key = staged / ours.name
        put({staged_key: key, source: source_text(entry, staged_key).encode()})
        if message := update(source, timeout):
            raise Refused(meaning(message, entry))
        if not was_read(source):
            raise Refused(f"{' '.join(entry['uris'])} has no packages for this node's architecture")
    put(files)
    return before


def strangers(apt: Apt, names: Iterable[str]) -> list[Path]:
    """Files of ours that belong to none of these repositories."""
    wanted = set()
    for name in names:
        wanted |= {apt.source(name), apt.preferences(name), *apt.keys(name)}
    folders = {apt.sources, *(apt.etc / folder for folder in FOLDERS)}
    paths = (path for folder in folders for path in folder.glob(f"{PREFIX}*"))
    return sorted(path for path in paths if path not in wanted)


def bring_all(
    entries: list[Mapping[str, Any]], apt: Apt, may_ask: bool, check_mode: bool, timeout: int
) -> Outcome:
    """All repositories; what is wrong with one does not keep the others from their turn."""
    outcome = Outcome()
    for path in strangers(apt, (entry["name"] for entry in entries)):
        outcome.changed = True
        if not check_mode:
            path.unlink()
    try:
        others = of_others(apt) if entries else {}
    except Refused as problem:
        outcome.problems.append(f"{problem}.")
        outcome.states = {entry["name"]: str(problem) for entry in entries}
        return outcome
    for entry in entries:
        try:
            if problem_of_two := shared(entry, others):
                raise Refused(problem_of_two)
            before = bring(entry, apt, may_ask, check_mode, timeout)
        except (Refused, NoFile) as problem:
            outcome.problems.append(f"{entry['name']}: {problem}.")
            outcome.states[entry["name"]] = str(problem)
            continue
        outcome.states[entry["name"]] = before
        outcome.changed |= before != IN_PLACE
    return outcome


def other_folder() -> Path | None:
    """The folder that APT reads in place of the usual one, as with a mirror; None without."""
    folder = sources_folder()
    return None if folder == USUAL else folder


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "repositories": {"type": "list", "elements": "dict", "required": True},
            "download": {"type": "bool", "default": True},
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    params = module.params
    outcome = bring_all(
        params["repositories"],
        Apt(parts=other_folder()),
        params["download"],
        module.check_mode,
        params["timeout"],
    )
    if outcome.problems:
        message = " ".join(outcome.problems)
        module.fail_json(msg=message, changed=outcome.changed, states=outcome.states)
    module.exit_json(changed=outcome.changed, states=outcome.states)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
