"""Versions of Slurm: which is asked for, which is older, which reads what another wrote."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import urlsplit

# 24, 11, 5
Version = tuple[int, int, int]

# SchedMD's tarballs have packaging of their own from here on.
FIRST_PACKED = "23.11"

# A release reads the state and the messages of the two before it, from 24.11 on of three.
RELEASES = (
    "20.11",
    "21.08",
    "22.05",
    "23.02",
    "23.11",
    "24.05",
    "24.11",
    "25.05",
    "25.11",
    "26.05",
)
READS_THREE_FROM = "24.11"

_NUMBERS = re.compile(r"(?<!\d)(\d\d)[.-](\d\d)[.-](\d+)(?!\d)")


def parsed(version: str) -> Version | None:
    """The numbers of `24.11.5`, `1:24.11.5-1` or `slurm-24-11-5-1`."""
    match = _NUMBERS.search(version)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def in_url(url: str) -> str:
    """The version in the name of a tarball, as `24.11.5`; "" if it has none."""
    return short(PurePosixPath(urlsplit(url).path).name)


def short(version: str) -> str:
    """`24.11.5` of `24.11.5-4+deb13u1`; "" of what is no version."""
    numbers = parsed(version)
    return f"{numbers[0]:02d}.{numbers[1]:02d}.{numbers[2]}" if numbers else ""


def release(version: str) -> str:
    """`24.11` of `24.11.5-1`; "" of what is no version."""
    numbers = parsed(version)
    return f"{numbers[0]:02d}.{numbers[1]:02d}" if numbers else ""


def too_far(old: str, new: str) -> str:
    """A release to stop at between two, where the new one does not read what the old one wrote."""
    before, after = release(old), release(new)
    if before not in RELEASES or after not in RELEASES:
        return ""
    first, last = RELEASES.index(before), RELEASES.index(after)
    reads = 3 if after >= READS_THREE_FROM else 2
    return "" if last - first <= reads else RELEASES[first + 2]
