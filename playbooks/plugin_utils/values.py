"""Values of the variables of many hosts, each distinct one worked out once.

A template is rendered again only where something that it reads differs: 1,000 nodes of one group
share nearly all of their values. What a template reads is found in its syntax, through every
variable that it names. Two values with the same token are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import jinja2
from jinja2 import nodes

Variables = MutableMapping[str, Any]
Render = Callable[[Variables, Any], Any]  # renders a raw value; raises what the engine raises

FACTS: Final = "ansible_facts"
# The same for every host, and large: neither looked into nor compared.
CONSTANT: Final = frozenset({"groups", "hostvars", FACTS})
# Ansible's and Jinja's own functions.
FUNCTIONS: Final = frozenset(
    {"lookup", "query", "q", "now", "range", "dict", "lipsum", "cycler", "joiner", "namespace"}
    | {"omit", "undef", "loop", "self", "super", "true", "false", "none"}
)
# These lookups read variables by names that are worked out: any of the host's, less those that are
# each host's own.
READ_ANY: Final = frozenset(
    {"vars", "varnames", "ansible.builtin.vars", "ansible.builtin.varnames"}
)
ANY: Final = "*"
OWN: Final = ("ansible_", "inventory_hostname", "node_address", "node_rack", "node_switch")
# This lookup makes the secret that it does not find; preflight writes nothing.
WRITES: Final = frozenset({"password", "ansible.builtin.password"})
MARKS = ("{{", "{%", "{#")

_PARSER = jinja2.Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"])
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Reads:
    """What a template reads by its own syntax."""

    names: frozenset[str] = frozenset()
    writes: bool = False

    def __or__(self, other: Reads) -> Reads:
        return Reads(self.names | other.names, self.writes or other.writes)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a value depends on in the end."""

    facts: bool = False  # of the host, which preflight does not know yet
    writes: bool = False  # rendering it would write a file
    missing: frozenset[str] = frozenset()  # names of variables that are not there

    def __or__(self, other: Reach) -> Reach:
        return Reach(
            self.facts or other.facts, self.writes or other.writes, self.missing | other.missing
        )

    @property
    def known(self) -> bool:
        return not (self.facts or self.writes or self.missing)


@cache
def template_reads(text: str) -> Reads:
    """What a text reads; one that is no template, or a broken one, reads nothing."""
    try:
        tree = _PARSER.parse(text)
    except jinja2.TemplateError:
        return Reads()
    loads: set[str] = set()
    stores: set[str] = set()
    for name in tree.find_all(nodes.Name):
        (loads if name.ctx == "load" else stores).add(name.name)
    lookups = {
        call.args[0].value if isinstance(call.args[0], nodes.Const) else None
        for call in tree.find_all(nodes.Call)
        if isinstance(call.node, nodes.Name)
        and call.node.name in {"lookup", "query", "q"}
        and call.args
    }
    if lookups & READ_ANY:
        loads.add(ANY)
    return Reads(frozenset(loads - stores - FUNCTIONS), bool(lookups & {*WRITES, None}))


def expression_reads(text: str) -> Reads:
    """What a bare expression reads, such as a `when`."""
    return template_reads("{{ " + text + " }}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def value_reads(value: Any) -> Reads:
    """What a raw value reads, wherever in it."""
    reads = Reads()
    for text in _texts(value):
        if any(mark in text for mark in MARKS):
            reads |= template_reads(str(text))
    return reads


@dataclass(frozen=True, slots=True)
class Raw:
    """What is known of a raw value; it is kept, so that its id stays its own."""

    value: Any
    reads: Reads
    key: str
    template: bool


class Values:
    """Values of variables by host and name. `hosts` holds the raw variables of each host."""

    def __init__(
        self, hosts: Mapping[str, Variables], render: Render, *, facts: bool = False
    ) -> None:
        self.hosts = hosts
        self._constant = CONSTANT - {FACTS} if facts else CONSTANT
        self._render = render
        self._numbers: dict[Hashable, int] = {}
        self._tokens: dict[str, dict[str, int]] = {host: {} for host in hosts}
        self._reach: dict[int, Reach] = {}
        self._results: dict[int, tuple[Any, Exception | None]] = {}
        # By id: one object is shared by all hosts of a group.
        self._raw: dict[int, Raw] = {}

    def defined(self, host: str, name: str) -> bool:
        return name in self.hosts[host]

    def token(self, host: str, name: str) -> int:
        """A number that stands for the value: the same number, the same value."""
        tokens = self._tokens[host]
        if name in tokens:
            return tokens[name]
        tokens[name] = self._number(("cycle", name))  # until the real one is known
        if name in self._constant:
            token = self._number(("constant", name))
            self._reach.setdefault(token, Reach(facts=name == FACTS))
        elif name == ANY:
            token = self._number(("any", self._all(host)))
        elif (raw := self.hosts[host].get(name, _MISSING)) is _MISSING:
            token = self._number(("missing", name))
            self._reach.setdefault(token, Reach(missing=frozenset({name})))
        else:
            look = self._look(raw)
            token = self.depending(host, ("value", look.key), look.reads)
        tokens[name] = token
        return token

    def depending(self, host: str, key: Hashable, reads: Reads) -> int:
        """The token of something that reads variables of a host."""
        inner = sorted(reads.names)
        inner_tokens = tuple(self.token(host, name) for name in inner)
        token = self._number((key, inner_tokens))
        if token not in self._reach:
            reach = Reach(writes=reads.writes)
            for one in inner_tokens:
                reach |= self._reach.get(one, Reach())
            self._reach[token] = reach
        return token

    def reach(self, token: int) -> Reach:
        return self._reach.get(token, Reach())

    def reads(self, host: str, name: str) -> frozenset[str]:
        """The variables that a value itself names."""
        return self._look(self.hosts[host][name]).reads.names

    def value(self, host: str, name: str) -> Any:
        """The value of a variable. Raises KeyError, or what the rendering raised."""
        raw = self.hosts[host][name]
        return self._rendered(host, name, raw) if self._look(raw).template else raw

    def _rendered(self, host: str, name: str, raw: Any) -> Any:
        token = self.token(host, name)
        if token not in self._results:
            try:
                self._results[token] = (self._render(self.hosts[host], raw), None)
            except Exception as error:
                self._results[token] = (None, error)
        value, raised = self._results[token]
        if raised is not None:
            raise raised
        return value

    def _all(self, host: str) -> Hashable:
        """The host's variables as they are written, less those that are its own."""
        return tuple(
            (name, self._look(raw).key)
            for name, raw in sorted(self.hosts[host].items())
            if not name.startswith(OWN) and name not in CONSTANT
        )

    def _look(self, raw: Any) -> Raw:
        found = self._raw.get(id(raw))
        if found is None:
            template = any(mark in text for text in _texts(raw) for mark in MARKS)
            reads = value_reads(raw) if template else Reads()
            found = self._raw[id(raw)] = Raw(raw, reads, repr(raw), template)
        return found

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))
