"""Names of hosts as Slurm's host lists: `gpu[001-100,105],login1`.

Slurm reads them wherever it reads names, and 1,000 nodes are then one word. The other way round is
`scontrol show hostnames`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

_NUMBERED = re.compile(r"(?P<prefix>.*?)(?P<number>[0-9]+)")


def compressed_hostlist(names: Iterable[str], ordered: bool = False) -> str:
    """The host list of some names; nothing gives "".

    Each name once, in natural order. With `ordered` every name stays where it is, so that two lists
    (NodeName and NodeAddr) still belong together name by name.
    """
    wanted = [str(name) for name in names]
    if not ordered:
        wanted = sorted(set(wanted), key=_natural)
    return ",".join(_words(wanted))


def _split(name: str) -> tuple[str, str]:
    """Name without its last number, and that number; `gpu1a` has none."""
    match = _NUMBERED.fullmatch(name)
    return (match["prefix"], match["number"]) if match else (name, "")


def _natural(name: str) -> tuple[str, int, int]:
    prefix, number = _split(name)
    return prefix, int(number or -1), len(number)


def _words(names: Iterable[str]) -> Iterator[str]:
    """Neighbours with one prefix share a bracket."""
    prefix, numbers = "", list[str]()
    for name in names:
        before, number = _split(name)
        if numbers and (before != prefix or not number):
            yield _word(prefix, numbers)
            numbers = []
        if number:
            prefix = before
            numbers.append(number)
        else:
            yield name
    if numbers:
        yield _word(prefix, numbers)


def _word(prefix: str, numbers: list[str]) -> str:
    if len(numbers) == 1:
        return prefix + numbers[0]
    return f"{prefix}[{','.join(_ranges(numbers))}]"


def _ranges(numbers: Iterable[str]) -> Iterator[str]:
    """9 and 10 join to 9-10, 09 and 10 to 09-10; 9 and 010 do not join, nor 2 and 1."""
    first = last = ""
    for number in numbers:
        if first and number == f"{int(last) + 1:0{len(first)}d}":
            last = number
            continue
        if first:
            yield first if first == last else f"{first}-{last}"
        first = last = number
    if first:
        yield first if first == last else f"{first}-{last}"


class FilterModule:
    """Registers the filter with Ansible."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"compressed_hostlist": compressed_hostlist}
