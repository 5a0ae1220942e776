"""Lock files of Python packages, as `uv pip compile --generate-hashes` and pip-compile write them.

Pure functions. Every package has one version and the hashes of its files; anything else is no lock.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_TORCH = "torch"


class NoLock(Exception):
    """Why a file is no lock: the line, and half a sentence that ends in what to do."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line} {why}")
        self.line, self.why = line, why


@dataclass(frozen=True, slots=True)
class Pin:
    """One package in one version."""

    name: str
    version: str
    rest: str  # extras and a marker
    hashes: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"{self.name}=={self.version}{self.rest} {' '.join(self.hashes)}"

    @property
    def label(self) -> str:
        """What is behind the plus of a version, such as cu126 of 2.13.0+cu126."""
        return self.version.partition("+")[2]


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock file."""

    text: str
    pins: tuple[Pin, ...]

    @property
    def fingerprint(self) -> str:
        """Of what is pinned. Comments and the order of lines make no difference."""
        lines = sorted(pin.line for pin in self.pins)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def torch_build(self) -> str:
        """The build of torch that it names, such as cu126; "" without one."""
        return next((pin.label for pin in self.pins if pin.name == _TORCH and pin.label), "")


def read(text: str) -> Lock:
    """Raises NoLock for the first line that is not one of a lock."""
    pins = tuple(_pin(number, line) for number, line in _lines(text))
    if not pins:
        raise NoLock(1, "and those after it name no package; write what is to be installed")
    return Lock(text, pins)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that say something, those that go on as one, with the number of the first."""
    begun, said = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        said += re.sub(r"(^|\s)#.*", "", line).rstrip()
        begun = begun or number
        if said.endswith("\\"):
            said = said[:-1] + " "
            continue
        if said.strip():
            yield begun, said.strip()
        begun, said = 0, ""
    if said.strip():
        yield begun, said.strip()


def _pin(number: int, line: str) -> Pin:
    words, *hashes = re.split(r"\s+--hash[= ]", line)
    words = words.strip()
    if words.startswith("-"):
        raise NoLock(
            number,
            f"has the option {words.split()[0].partition('=')[0]}; leave it out: "
            "user_libraries_index_url and user_libraries_extra_index_urls say where packages are",
        )
    if " --" in words:
        raise NoLock(number, f"has the option --{words.partition(' --')[2]}; leave it out")
    try:
        requirement = Requirement(words)
    except InvalidRequirement:
        raise NoLock(
            number, f"is no requirement ({words[:60]!r}); write NAME==VERSION and its hashes"
        ) from None
    if requirement.url:
        raise NoLock(
            number, f"names {requirement.name} by an address; write NAME==VERSION and its hashes"
        )
    parts = list(requirement.specifier)
    if len(parts) != 1 or parts[0].operator != "==" or "*" in parts[0].version:
        raise NoLock(
            number,
            f"leaves the version of {requirement.name} open; make the file with "
            "`uv pip compile --generate-hashes`, which pins all of them",
        )
    if not hashes:
        raise NoLock(
            number,
            f"has no hash of {requirement.name}; make the file with "
            "`uv pip compile --generate-hashes`",
        )
    for value in hashes:
        if not _HASH.fullmatch(value.strip()):
            raise NoLock(
                number,
                f"has the hash {value.strip()[:30]!r} of {requirement.name}, which is not sha256: "
                "and 64 hexadecimal digits; make the file anew",
            )
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return Pin(
        str(canonicalize_name(requirement.name)),
        parts[0].version,
        extras + marker,
        tuple(sorted({value.strip() for value in hashes})),
    )
