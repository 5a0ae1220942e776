"""Values of the variables of many hosts, each distinct one worked out once.

A template is rendered again only where something that it reads differs: 1,000 nodes of one group
share nearly all of their values. What a template reads is found in its syntax, through every
variable that it names. Two values with the same token are equal.

Hosts that differ in nothing but what is each host's own, such as its name and its address, are kin:
what reads nothing of that has one token for all of them, looked for once.
"""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import jinja2
from jinja2 import nodes

Variables = MutableMapping[str, Any]
Render = Callable[[Variables, Any], Any]  # renders a raw value; raises what the engine raises

FACTS: Final = "ansible_facts"
NAME: Final = "inventory_hostname"
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
OWN: Final = (
    "ansible_",
    NAME,
    "node_address",
    "node_rack",
    "node_switch",
    "__preflight_",
    "__gpus",
)
# This lookup makes the secret that it does not find; preflight writes nothing.
WRITES: Final = frozenset({"password", "ansible.builtin.password"})
# Lookups that do no more than read what is known here; others may be slow, or ask somebody.
HARMLESS: Final = frozenset(
    {"declared_cluster", *READ_ANY}
    | {"env", "ansible.builtin.env", "config", "ansible.builtin.config"}
)
MARKS = ("{{", "{%", "{#")

_PARSER = jinja2.Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"])
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Reads:
    """What a template reads by its own syntax."""

    names: frozenset[str] = frozenset()
    compared: frozenset[str] = frozenset()  # what the host's name is held against, and no more
    writes: bool = False
    asks: bool = False  # has a lookup that is to run only where it is wanted
    alias: str = ""  # the variable that it is another name of

    def __or__(self, other: Reads) -> Reads:
        return Reads(
            self.names | other.names,
            self.compared | other.compared,
            self.writes or other.writes,
            self.asks or other.asks,
        )


@dataclass(frozen=True, slots=True)
class Reach:
    """What a value depends on in the end."""

    facts: bool = False  # of the host, which preflight does not know yet
    writes: bool = False  # rendering it would write a file
    missing: frozenset[str] = frozenset()  # names of variables that are not there
    asks: bool = False  # rendering it may be slow, or never end
    own: bool = False  # something that its kin may have otherwise

    def __or__(self, other: Reach) -> Reach:
        if other is NOWHERE:
            return self
        return Reach(
            self.facts or other.facts,
            self.writes or other.writes,
            self.missing | other.missing,
            self.asks or other.asks,
            self.own or other.own,
        )

    @property
    def known(self) -> bool:
        return not (self.facts or self.writes or self.missing)


NOWHERE: Final = Reach()


@cache
def template_reads(text: str) -> Reads:
    """What a text reads; one that is no template, or a broken one, reads nothing."""
    try:
        tree = _PARSER.parse(text)
    except jinja2.TemplateError:
        return Reads()
    loads: set[str] = set()
    stores: set[str] = set()
    times: Counter[str] = Counter()
    for name in tree.find_all(nodes.Name):
        (loads if name.ctx == "load" else stores).add(name.name)
        times[name.name] += 1
    compared = list(_compared(tree))
    if times[NAME] > len(compared) or stores & {NAME, *compared}:
        compared = []
    else:
        loads.discard(NAME)
    facts = list(_facts(tree))
    if times[FACTS] == len(facts):
        loads.discard(FACTS)
        loads.update(f"{FACTS}.{key}" for key in facts)
    lookups = {
        call.args[0].value if isinstance(call.args[0], nodes.Const) else None
        for call in tree.find_all(nodes.Call)
        if isinstance(call.node, nodes.Name)
        and call.node.name in {"lookup", "query", "q"}
        and call.args
    }
    if lookups & READ_ANY:
        loads.add(ANY)
    return Reads(
        frozenset(loads - stores - FUNCTIONS),
        frozenset(compared),
        writes=bool(lookups & {*WRITES, None}),
        # What is left out is another thing within a value than by itself.
        asks=bool(lookups - HARMLESS) or "omit" in loads,
        alias=_alias(tree) if text.endswith("}}") else "",
    )


def _facts(tree: nodes.Template) -> Iterator[str]:
    """The facts that are read by their names, as in `ansible_facts['distribution']`."""
    for attribute in tree.find_all(nodes.Getattr):
        if isinstance(attribute.node, nodes.Name) and attribute.node.name == FACTS:
            yield attribute.attr
    for item in tree.find_all(nodes.Getitem):
        if isinstance(item.node, nodes.Name) and item.node.name == FACTS:
            key = item.arg.value if isinstance(item.arg, nodes.Const) else None
            if isinstance(key, str):
                yield key


def _alias(tree: nodes.Template) -> str:
    """The variable that is all of a template, as in `{{ name }}`."""
    match tree.body:
        case [nodes.Output(nodes=[nodes.Name(name=name)])]:
            return str(name)
    return ""


def _compared(tree: nodes.Template) -> Iterator[str]:
    """The variables that the host's name is held against, as in `inventory_hostname == other`."""
    for comparison in tree.find_all(nodes.Compare):
        sides = [comparison.expr, *(operand.expr for operand in comparison.ops)]
        names = [side.name for side in sides if isinstance(side, nodes.Name)]
        if len(sides) == len(names) == 2 and comparison.ops[0].op in {"eq", "ne"}:
            names.sort(key=NAME.__ne__)
            if names[0] == NAME != names[1]:
                yield names[1]


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
    if isinstance(value, str):
        return template_reads(str(value))
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


@dataclass(slots=True)
class Known:
    """What has been found out of values, whichever host or role they are of."""

    numbers: dict[Hashable, int] = field(default_factory=dict)
    reach: dict[int, Reach] = field(default_factory=dict)
    results: dict[int, tuple[Any, Exception | None]] = field(default_factory=dict)
    # By id: one object is shared by all hosts of a group.
    raw: dict[int, Raw] = field(default_factory=dict)
    kin: dict[str, int] = field(default_factory=dict)

    def number(self, key: Hashable) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def look(self, raw: Any) -> Raw:
        entry = self.raw.get(id(raw))
        if entry is None:
            template = any(mark in text for text in _texts(raw) for mark in MARKS)
            reads = value_reads(raw) if template else Reads()
            entry = self.raw[id(raw)] = Raw(raw, reads, repr(raw), template)
        return entry


class Values:
    """Values of variables by host and name. `hosts` holds the raw variables of each host."""

    def __init__(
        self,
        hosts: Mapping[str, Variables],
        render: Render,
        *,
        facts: bool = False,
        known: Known | None = None,
        own: Collection[str] = (),
    ) -> None:
        self.hosts = hosts
        self._own_names = frozenset(own)
        self._constant = CONSTANT - {FACTS} if facts else CONSTANT
        self._render = render
        self._known = known or Known()
        self._own: dict[str, dict[str, int]] = defaultdict(dict)  # tokens by host
        self._shared: dict[int, dict[str, int]] = defaultdict(dict)  # tokens by kin

    def within(
        self,
        hosts: Iterable[str],
        low: Variables,
        high: Variables,
        *,
        facts: bool = False,
        answers: Mapping[str, Variables] | None = None,
        own: Collection[str] = (),
    ) -> Values:
        """The variables as a role sees them: `low` loses to the site's, `high` wins.

        Both are the same for all hosts, so kin stay kin, and what is equal is worked out no more.
        `answers` is what each host told, in variables with the names `own`; it wins over all.
        """
        answers = answers or {}
        raw = {host: ChainMap(answers.get(host, {}), high, self.hosts[host], low) for host in hosts}
        for host in raw:
            self._kin(host)
        return Values(raw, self._render, facts=facts, known=self._known, own=own)

    def define(self, name: str, value: Any) -> None:
        """Gives all hosts a variable that they did not have."""
        for raw in self.hosts.values():
            raw[name] = value
        self._own.clear()
        self._shared.clear()

    def defined(self, host: str, name: str) -> bool:
        return name in self.hosts[host]

    def token(self, host: str, name: str) -> int:
        """A number that stands for the value: the same number, the same value."""
        shared = self._shared[self._kin(host)]
        token = shared.get(name)
        if token is not None:
            return token
        own = self._own[host]
        if name not in own:
            own[name] = self._cycle(name)  # until the real one is known
            own[name] = self._token(host, name)
            if not (self.reach(own[name]).own or self._is_own(name)):
                shared[name] = own.pop(name)
                return shared[name]
        return own[name]

    def _token(self, host: str, name: str) -> int:
        known = self._known
        name, _, fact = name.partition(".")
        if name in self._constant:
            token = known.number(("constant", name))
            known.reach.setdefault(token, Reach(facts=name == FACTS))
        elif fact and name in self.hosts[host]:
            # Most hosts have the same distribution, and each an address of its own.
            facts = self.hosts[host][name]
            token = known.number(("fact", fact, fact in facts, repr(facts.get(fact))))
            known.reach.setdefault(token, Reach(own=True))
        elif name == ANY:
            token = known.number(("any", self._all(host)))
            known.reach.setdefault(token, NOWHERE)
        elif (raw := self.hosts[host].get(name, _MISSING)) is _MISSING:
            own = self._is_own(name)
            token = known.number(("missing", name, own))
            known.reach.setdefault(token, Reach(missing=frozenset({name}), own=own))
        else:
            look = known.look(raw)
            own = self._is_own(name)
            token = self.depending(host, ("value", look.key, own), look.reads, own=own)
        return token

    def _is_own(self, name: str) -> bool:
        return name in self._own_names or name.startswith(OWN)

    def _cycle(self, name: str) -> int:
        token = self._known.number(("cycle", name))
        self._known.reach.setdefault(token, Reach(asks=True, own=True))
        return token

    def depending(self, host: str, key: Hashable, reads: Reads, *, own: bool = False) -> int:
        """The token of something that reads variables of a host."""
        inner = tuple(self.token(host, name) for name in sorted(reads.names))
        held = tuple(self._held(host, name) for name in sorted(reads.compared))
        token = self._known.number((key, inner, held))
        if token not in self._known.reach:
            reach = Reach(writes=reads.writes, asks=reads.asks, own=own or bool(held))
            for part in inner:
                reach |= self.reach(part)
            self._known.reach[token] = reach
        return token

    def _held(self, host: str, name: str) -> Hashable:
        """Whether a variable is the host's name; where that cannot be said, the name itself."""
        reach = self.reach(self.token(host, name))
        if reach.known and not reach.asks and self.defined(host, NAME):
            try:
                return bool(self.value(host, name) == self.hosts[host][NAME])
            except Exception:  # whoever wants the value is told
                return self.token(host, NAME), False
        return self.token(host, NAME), False

    def same(self, hosts: Iterable[str], name: str) -> dict[int, list[str]]:
        """The hosts by their values of a variable, which each may lack."""
        hosts_of: dict[int, list[str]] = defaultdict(list)
        for host in hosts:
            hosts_of[self.token(host, name)].append(host)
        return hosts_of

    def alike(self, hosts: Iterable[str], key: Hashable, reads: Reads) -> dict[int, list[str]]:
        """The hosts by the token of something that reads variables of theirs."""
        hosts_of: dict[int, list[str]] = defaultdict(list)
        of_kin: dict[int, int] = {}
        for host in hosts:
            kin = self._kin(host)
            token = of_kin.get(kin)
            if token is None:
                token = self.depending(host, key, reads)
                if not self.reach(token).own:
                    of_kin[kin] = token
            hosts_of[token].append(host)
        return hosts_of

    def reach(self, token: int) -> Reach:
        return self._known.reach.get(token, NOWHERE)

    def reads(self, host: str, name: str) -> frozenset[str]:
        """The variables that a value itself names."""
        reads = self._known.look(self.hosts[host][name]).reads
        return reads.names | ({NAME} if reads.compared else frozenset())

    def value(self, host: str, name: str) -> Any:
        """The value of a variable. Raises KeyError, or what the rendering raised."""
        raw = self.hosts[host][name]
        look = self._known.look(raw)
        if look.reads.alias == NAME:  # of as many values as hosts
            return self.hosts[host][NAME]
        return self._rendered(host, name, look) if look.template else raw

    def _rendered(self, host: str, name: str, look: Raw) -> Any:
        results, token = self._known.results, self.token(host, name)
        if token not in results:
            try:
                results[token] = (self._render(self.variables(host, look.reads), look.value), None)
            except Exception as error:
                results[token] = (None, error)
        value, raised = results[token]
        if raised is not None:
            raise raised
        return value

    def variables(self, host: str, reads: Reads) -> Variables:
        """A host's variables to render something with, those that it reads as what they are.

        One that cannot be known, or only at a price, is left as it is written: what is rendered
        may do without it, and says what is wrong where it does not. It may read any other, so then
        all are there; else only what is read: Ansible wraps each one, for each rendering.
        """
        raw = self.hosts[host]
        values: dict[str, Any] = {}
        some = not reads.asks and ANY not in reads.names
        # Lookups take what is the same for every host by themselves.
        for read in {*reads.names, *reads.compared, NAME, *CONSTANT}:
            name = read.partition(".")[0]  # of a fact
            if name not in raw:
                continue
            if name in CONSTANT or not self._known.look(raw[name]).template:
                values[name] = raw[name]
                continue
            try:
                reach = self.reach(self.token(host, name))
                if reach.known and not reach.asks:
                    values[name] = self.value(host, name)
            except Exception:  # told by what cannot do without it
                some = False
            some = some and name in values
        return values if some else ChainMap(values, raw)

    def _kin(self, host: str) -> int:
        """A number that is the same for hosts whose variables are, less each host's own."""
        kin = self._known.kin.get(host)
        if kin is None:
            kin = self._known.kin[host] = self._known.number(("kin", self._all(host)))
        return kin

    def _all(self, host: str) -> Hashable:
        """The host's variables as they are written, less those that are its own."""
        return frozenset(
            (name, self._known.look(raw).key)
            for name, raw in self.hosts[host].items()
            if not name.startswith(OWN) and name not in CONSTANT
        )
