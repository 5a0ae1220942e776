"""What two golden files of Slurm differ in, setting by setting."""

from __future__ import annotations

from cluster.slurm.keys import File, Known, Release, find


def entries(text: str) -> set[str]:
    """`Name=entry` of each setting, and of each word of a NodeName or PartitionName line.

    A list is one for each of its entries: it may differ in one of them.
    """
    settings = set()
    for line in text.splitlines():
        if line.startswith("#") or "=" not in line:
            continue
        first, *rest = line.split()
        for word in rest or [line]:
            name, _, value = word.partition("=")
            settings |= {f"{first if rest else ''} {name}={entry}" for entry in value.split(",")}
        if rest:
            settings.add(first)
    return settings


def unexplained(older: str, newer: str, file: File, releases: tuple[Release, Release]) -> set[str]:
    """What differs, and should not by the table."""
    return {
        entry for entry in entries(older) ^ entries(newer) if not _explained(entry, file, *releases)
    }


def _explained(entry: str, file: File, older: Release, newer: Release) -> bool:
    name, _, value = entry.rpartition(" ")[2].partition("=")
    key = find(file, name)
    known: list[Known] = [one for one in (key, key.word(value) if key else None) if one]
    return any(one.read_by(older) != one.read_by(newer) for one in known)
