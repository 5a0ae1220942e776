"""A recording as one file: a packed archive of texts with a manifest.

    manifest.json   what was recorded, what was not and why, versions, the day
    PART's files    as cluster/recorder/parts.py names them

All texts are made anonymous together, and no archive is made of which one still has an identity.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from cluster.recorder import anonymous, parts
from cluster.recorder.anonymous import Identity
from cluster.recorder.parts import Machine, NotThere, Part

SCHEMA = 1
MANIFEST = "manifest.json"
# Where the texts are from: a machine with GPUs, or the stand-ins of this project's tests.
HARDWARE, STAND_IN = "hardware", "stand-in"
_LARGEST = 32 * 2**20  # bytes of an archive's file that is read; somebody sent it


class Leaks(Exception):
    """An identity is still there. Nobody gets the archive."""


class NotARecording(Exception):
    """Why a file cannot be read as one."""


@dataclass(frozen=True)
class Recorded:
    """One part: its files as they were read, or why there are none."""

    name: str
    files: Mapping[str, str]
    why: str = ""
    addresses: bool = True
    cut: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """origin is HARDWARE or STAND_IN; says is what the sender wants to say; day is ISO 8601."""

    origin: str
    says: str
    day: str
    recorder: str


def record(machine: Machine, wanted: Iterable[Part]) -> list[Recorded]:
    """Reads each part; one that fails is a part without files."""
    return [_recorded(machine, part) for part in wanted]


def _recorded(machine: Machine, part: Part) -> Recorded:
    try:
        files = part.read(machine)
    except NotThere as why:
        return Recorded(part.name, {}, str(why), part.addresses)
    cut = tuple(sorted(name for name, text in files.items() if len(text) > parts.LONGEST))
    kept = {name: text[: parts.LONGEST] for name, text in files.items()}
    return Recorded(part.name, kept, "", part.addresses, cut)


def identities(recorded: Iterable[Recorded], own: Iterable[Identity]) -> list[Identity]:
    """All that tells the machine: what it says itself, and what stands in its texts."""
    found = set(own)
    for part in recorded:
        for text in (part.why, *part.files, *part.files.values()):
            found |= {*anonymous.labelled(text), *anonymous.formed(text, part.addresses)}
    return sorted(found)


def contents(recorded: list[Recorded], own: Iterable[Identity], source: Source) -> dict[str, str]:
    """The archive's files by name, anonymous. Raises Leaks."""
    known = identities(recorded, own)
    named = [one for one in known if one.kind not in anonymous.FORMS]
    texts = [text for part in recorded for text in (part.why, *part.files.values())]
    mask = anonymous.Mask(named, texts)
    files: dict[str, str] = {}
    entries = []
    for part in recorded:
        for name, text in part.files.items():
            files[mask(name, part.addresses)] = mask(text, part.addresses)
        entries.append(
            {
                "name": part.name,
                "recorded": not part.why,
                "why": mask(part.why, part.addresses),
                "files": sorted(mask(name, part.addresses) for name in part.files),
                "cut": list(part.cut),
            }
        )
    manifest = {"schema": SCHEMA, **asdict(source), "says": mask(source.says), "parts": entries}
    files[MANIFEST] = json.dumps(manifest, indent=1) + "\n"
    _refuse_leaks(recorded, files, known, mask)
    return files


def _refuse_leaks(
    recorded: list[Recorded], files: Mapping[str, str], known: list[Identity], mask: anonymous.Mask
) -> None:
    versions = {
        mask(name, part.addresses) for part in recorded if not part.addresses for name in part.files
    }
    for name, text in files.items():
        looked = [
            one for one in known if not (name in versions and one.kind in anonymous.ADDRESSES)
        ]
        if found := anonymous.left(f"{name}\n{text}", looked):
            raise Leaks(
                f"{name} still has a value of the kind {found[0].kind}; nothing is written. Tell "
                "the project the line without the value"
            )


def pack(files: Mapping[str, str]) -> bytes:
    """The archive. Equal files give equal bytes: no owner, no time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in sorted(files):
            content = files[name].encode()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


def unpack(content: bytes) -> dict[str, str]:
    """The files by name. Raises NotARecording; nothing is written anywhere."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            files = {}
            for entry in archive:
                member = archive.extractfile(entry) if entry.isreg() else None
                if member is None or entry.size > _LARGEST:
                    raise NotARecording(f"{entry.name} is no file, or larger than a recording's")
                files[entry.name] = member.read().decode()
    except (tarfile.TarError, OSError, EOFError, UnicodeDecodeError) as problem:
        raise NotARecording(f"it is no packed archive of texts: {problem}") from None
    try:
        schema = json.loads(files[MANIFEST])["schema"]
    except (KeyError, ValueError, TypeError):
        raise NotARecording(f"it has no {MANIFEST} of a recording") from None
    if schema != SCHEMA:
        raise NotARecording(f"its schema is {schema}; this program reads {SCHEMA}")
    return files
