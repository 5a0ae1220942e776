"""Slurm's node list expressions: `gpu[01-03,07],login1` and back.

The grammar is the one `scontrol show hostnames` reads: names separated by commas, each with any
number of bracketed lists of numbers and ranges. The width of a range's first number is its zero
padding: `[08-10]` is 08, 09, 10. Pure Python, because `scontrol` is often missing where it is
needed: inside a container, or on the machine that reads a report.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

MAX_NODES = 65_536  # Slurm's own MAX_RANGE; keeps a mistyped range from filling the memory
SHOWN, SHOWN_LENGTH = 3, 120  # of `listed`: names, and characters of their ranges

_NUMBERED = re.compile(r"(?P<prefix>.*?)(?P<number>[0-9]+)")
_RANGE = re.compile(r"(?P<low>[0-9]+)(?:-(?P<high>[0-9]+))?")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_PLACEHOLDERS = ("(null)", "None", "None assigned")  # what Slurm prints when there is no node


class HostlistError(ValueError):
    """The expression is not a node list; the message is one sentence."""


def expand(expression: str) -> list[str]:
    """Names in the order of the expression, repeated where it repeats them.

    Raises HostlistError when the expression is empty, malformed, or longer than MAX_NODES.
    """
    text = expression.strip()
    if not text or text in _PLACEHOLDERS:
        raise HostlistError(f"the node list {expression!r} names no node")
    names: list[str] = []
    for word in _split_outside_brackets(text):
        names.extend(itertools.islice(_expand_word(word), MAX_NODES + 1))
        if len(names) > MAX_NODES:
            raise HostlistError(f"the node list {expression!r} names more than {MAX_NODES} nodes")
    return names


def compress(names: Iterable[str], ordered: bool = False) -> str:
    """The expression for some names; nothing gives "".

    Each name once, in natural order, so that `expand(compress(names))` gives back the same set.
    With `ordered` every name stays where it is, so that two lists (NodeName and NodeAddr) still
    belong together name by name.
    """
    wanted = [str(name) for name in names]
    if not ordered:
        wanted = sorted(set(wanted), key=_natural)
    return ",".join(_words(wanted))


def listed(names: Iterable[str]) -> str:
    """Names for a sentence: as ranges, or the first of many that make none."""
    every = [str(name) for name in names]
    text = compress(every)
    if len(text) <= SHOWN_LENGTH:
        return text
    return f"{', '.join(every[:SHOWN])} and {len(every) - SHOWN} more"


def _split_outside_brackets(text: str) -> list[str]:
    words, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth not in (0, 1):
            raise HostlistError(f"the node list {text!r} has unbalanced brackets")
        if character == "," and depth == 0:
            words.append(text[start:position])
            start = position + 1
    if depth:
        raise HostlistError(f"the node list {text!r} has unbalanced brackets")
    return [*words, text[start:]]


def _expand_word(word: str) -> Iterator[str]:
    """Every name of one word; with several brackets the last one turns fastest."""
    # re.split with one group alternates: text, inside of a bracket, text, …, text
    parts = re.split(r"\[([^\]]*)\]", word.strip())
    choices = [
        _expand_ranges(part, word) if index % 2 else [part] for index, part in enumerate(parts)
    ]
    for pieces in itertools.product(*choices):
        name = "".join(pieces)
        if not _NAME.fullmatch(name):
            raise HostlistError(f"{name!r} in the node list is not a node name")
        yield name


def _expand_ranges(text: str, word: str) -> list[str]:
    numbers: list[str] = []
    for item in text.split(","):
        match = _RANGE.fullmatch(item.strip())
        if not match:
            raise HostlistError(f"{item!r} in {word!r} is neither a number nor a range")
        low, high = match["low"], match["high"] or match["low"]
        if int(high) < int(low):
            raise HostlistError(f"the range {item!r} in {word!r} runs backwards")
        if int(high) - int(low) >= MAX_NODES:
            raise HostlistError(f"the range {item!r} in {word!r} has more than {MAX_NODES} nodes")
        numbers.extend(f"{n:0{len(low)}d}" for n in range(int(low), int(high) + 1))
    return numbers


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
