"""Takes out of texts what tells one machine from another, and keeps their form.

The same value gets the same replacement in all texts of a recording, two values never the same one,
and a replacement looks like what it replaces: who reads the texts meets a UUID where a UUID was.

Two ways lead to a value. Some are known by what stands before them ("Serial Number", the host in a
line of a log), or because the machine itself says them (its name, its user). Others are known by
their form: UUIDs, GUIDs, addresses. What is known either way is replaced wherever it stands.
Pure functions over texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Identity:
    """A value that tells a machine; its kind is host, domain, user, serial or a key of FORMS."""

    kind: str
    value: str


@dataclass(frozen=True)
class _Form:
    """How values of one kind look, and how the n-th replacement does."""

    pattern: re.Pattern[str]
    replacement: Callable[[str, int], str]
    meant: Callable[[str], bool] = lambda value: True


def _alike(value: str, number: int) -> str:
    """A digit for each hexadecimal digit, the number at their end; what stands between stays."""
    digits = iter(f"{number:x}".rjust(sum(c in _HEX for c in value), "a"))
    return "".join(next(digits) if c in _HEX else c for c in value)


_HEX = frozenset("0123456789abcdefABCDEF")


def _guid(value: str, number: int) -> str:
    prefix = "0x" if value[:2].lower() == "0x" else ""
    return prefix + _alike(value[len(prefix) :], number)


# Not within a word or a longer one of its kind, but after the name of a device: `eth0:fd00::1`.
_BEGINS = r"(?:(?<![\w:.])|(?<=\w:))"

# In this order, the longer form first: a MAC address is the beginning of an InfiniBand one.
FORMS: Mapping[str, _Form] = {
    "uuid": _Form(
        re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"),
        _alike,
    ),
    "account": _Form(
        re.compile(r"[\w.+-]+@[\w.-]*\w"), lambda value, number: f"user{number}@example.org"
    ),
    "home": _Form(
        re.compile(r"(?<=/home/)[^/\s\"':;,]+|(?<=/Users/)[^/\s\"':;,]+"),
        lambda value, number: f"anybody{number}",
    ),
    # 8 groups, or fewer with `::`; a PCI address has two colons, a time of day, too.
    "ipv6": _Form(
        re.compile(
            _BEGINS + r"(?:(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}"
            r"|(?:[0-9A-Fa-f]{1,4}:){1,6}(?::[0-9A-Fa-f]{1,4}){1,6}|::(?:[0-9A-Fa-f]{1,4}:?){1,7})"
            r"(?![\w:])"
        ),
        lambda value, number: f"2001:db8::{number:x}",
        lambda value: value.lower() not in ("::1", "::"),
    ),
    # Ethernet's six bytes, InfiniBand's twenty.
    "mac": _Form(
        re.compile(
            _BEGINS + r"(?:[0-9A-Fa-f]{2}[:-]){5,19}[0-9A-Fa-f]{2}(?![\w:])|(?<=enx)[0-9A-Fa-f]{12}"
        ),
        _alike,
    ),
    "guid": _Form(
        re.compile(
            _BEGINS + r"(?:(?:[0-9A-Fa-f]{4}:){3}[0-9A-Fa-f]{4}"
            r"|0[xX][0-9A-Fa-f]{16}|(?=\d*[A-Fa-f])[0-9A-Fa-f]{16}|(?=\d*[A-Fa-f])[0-9A-Fa-f]{32})"
            r"(?![\w:])"
        ),
        _guid,
    ),
    # No number of an address begins with 0 unless it is 0: versions of a VBIOS do.
    "ipv4": _Form(
        re.compile(
            r"(?<![\w.])(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}"
            r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?![\w.]*\d)"
        ),
        lambda value, number: f"198.18.{number // 256}.{number % 256}",
        lambda value: value not in ("127.0.0.1", "0.0.0.0", "255.255.255.255"),
    ),
}
# Of texts in which four numbers with points are a version: dpkg's list.
ADDRESSES = ("ipv4", "ipv6")

_LABELLED = (
    # nvidia-smi: "Serial Number : 132…", "Chassis Serial Number : …"; JSON: "serial": "132…"
    ("serial", re.compile(r"(?i)\bserial(?:[ _-]?number)?\"?[ \t]*[:=][ \t]*\"?([^\s\",]+)")),
    # the journal and dmesg: "[  100.500000] gpu1 kernel: "; NCCL: "gpu1:4711:4712 [0] NCCL "
    ("host", re.compile(r"(?m)^\[ *\d+\.\d+\] ([\w.-]+) kernel: ")),
    ("host", re.compile(r"(?m)^(?:\[[-\d: ]+\] )?([\w.-]+):\d+:\d+ (?:\[\d+\] )?(?:\S+ )*NCCL ")),
)
# What stands in the place of a serial number that is not there.
_NONE = frozenset({"n/a", "[n/a]", "none", "null", "unknown", "0", "not"})
_REPLACED: Mapping[str, Callable[[str, int], str]] = {
    "host": lambda value, number: f"host{number}",
    "domain": lambda value, number: f"domain{number}.example",
    "user": lambda value, number: f"anybody{number}",
    "serial": lambda value, number: f"{9 * 10 ** max(len(value) - 1, 6) + number}",
}


def hosts(name: str) -> list[Identity]:
    """What the name of a machine tells: the whole, its first label, and its domain.

    >>> [one.value for one in hosts("gpu1.cluster.example.edu")]
    ['gpu1.cluster.example.edu', 'gpu1', 'cluster.example.edu']
    """
    first, _, domain = name.partition(".")
    found = [Identity("host", name)] if name else []
    if domain:
        found += [Identity("host", first), Identity("domain", domain)]
    return found


def labelled(text: str) -> Iterator[Identity]:
    """The values that a text calls serial numbers or hosts."""
    for kind, pattern in _LABELLED:
        for match in pattern.finditer(text):
            value = match[1]
            if kind == "host":
                yield from hosts(value)
            elif value.lower() not in _NONE and any(c.isdigit() for c in value):
                yield Identity(kind, value)


def formed(text: str, addresses: bool = True) -> Iterator[Identity]:
    """The values that a text has by their form."""
    for kind, form in FORMS.items():
        if addresses or kind not in ADDRESSES:
            for match in form.pattern.finditer(text):
                if form.meant(match[0]):
                    yield Identity(kind, match[0])


class Mask:
    """Replaces identities; it knows from the beginning those that no form tells."""

    def __init__(self, known: Iterable[Identity], texts: Iterable[str] = ()) -> None:
        """`texts` are all that will be masked: no replacement is a word that stands in them."""
        self._taken = {word.lower() for text in texts for word in re.findall(r"[\w.:-]+", text)}
        self._given: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}
        named = {one.value.lower(): one for one in sorted(known, reverse=True) if one.value}
        self._named = named
        # The longest first: a host's whole name before its first label.
        words = "|".join(re.escape(word) for word in sorted(named, key=lambda w: (-len(w), w)))
        self._words = re.compile(
            rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])" if words else r"(?!)", re.IGNORECASE
        )

    def __call__(self, text: str, addresses: bool = True) -> str:
        """The text without any identity."""
        for kind, form in FORMS.items():
            if addresses or kind not in ADDRESSES:
                text = form.pattern.sub(self._by_form(kind, form), text)
        return self._words.sub(self._by_name, text)

    def _by_form(self, kind: str, form: _Form) -> Callable[[re.Match[str]], str]:
        def replaced(match: re.Match[str]) -> str:
            value = match[0]
            done = value in self._given.values() or not form.meant(value)
            return value if done else self._replacement(kind, value, form.replacement)

        return replaced

    def _by_name(self, match: re.Match[str]) -> str:
        one = self._named[match[0].lower()]
        return self._replacement(one.kind, one.value, _REPLACED[one.kind])

    def _replacement(self, kind: str, value: str, make: Callable[[str, int], str]) -> str:
        key = (kind, value.lower())
        while key not in self._given:
            self._numbers[kind] = self._numbers.get(kind, 0) + 1
            new = make(value, self._numbers[kind])
            if new.lower() not in self._taken and new not in self._given.values():
                self._given[key] = new
        return self._given[key]


def left(text: str, identities: Iterable[Identity]) -> list[Identity]:
    """Those whose value still stands in a text, in any case of its letters."""
    low = text.lower()
    return sorted(
        one
        for one in set(identities)
        if one.value.lower() in low
        and re.search(rf"(?<![a-z0-9]){re.escape(one.value.lower())}(?![a-z0-9])", low)
    )
