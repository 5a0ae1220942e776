"""Accounts, QOS and users as a site declares them, and what is wrong with that, as sentences.

Judged without a connection: what a declaration names, it declares. The account `root` and the QOS
`normal` are Slurm's own, and always there.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roles.slurm_associations.plugin_utils import properties
from roles.slurm_associations.plugin_utils.properties import Property, Unreadable, Value, Values

ROLE = "slurm_associations"
ROOT = "root"  # an account and a user
NORMAL = "normal"  # a QOS

Entry = Mapping[str, Any]

# Options of a partition that name QOS or accounts (slurm.conf(5)), in lower case.
OF_PARTITIONS = {
    "qos": "QOS",
    "allowqos": "QOS",
    "denyqos": "QOS",
    "allowaccounts": "account",
    "denyaccounts": "account",
}
EVERY = "all"  # AllowQos=ALL
NOWHERE: Entry = {}
MOST_NAMES = 30  # that a sentence offers


@dataclass(frozen=True, slots=True)
class Qos:
    name: str
    values: Values  # of what is declared; nobody declares the rest


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    parent: str  # empty for root itself
    about: Values  # description and organization, the same in all clusters
    values: Values
    depth: int = 0  # of accounts above it


@dataclass(frozen=True, slots=True)
class User:
    name: str
    accounts: Mapping[str, Values]  # by account, in the order of the declaration
    default: str = ""  # the default account; empty where any of them will do
    admin: Values = field(default_factory=dict)

    @property
    def first(self) -> str:
        """The account that is the default for a user who is new."""
        return self.default or next(iter(self.accounts), "")


@dataclass(frozen=True, slots=True)
class Declared:
    qos: tuple[Qos, ...] = ()
    accounts: tuple[Account, ...] = ()  # each after its parent
    users: tuple[User, ...] = ()

    def limits(self) -> Iterator[tuple[str, Value]]:
        """(word, value) of all that is declared, wherever."""
        every = [owner.values for owner in self.qos] + [owner.values for owner in self.accounts]
        every += [values for user in self.users for values in user.accounts.values()]
        for values in every:
            yield from values.items()

    def resources(self) -> set[str]:
        """The trackable resources that limits name."""
        return {name for _, value in self.limits() if isinstance(value, tuple) for name, _ in value}


def listed(names: Any) -> list[str]:
    """A list of names, or one name."""
    if names is None:
        return []
    return [str(name) for name in names] if isinstance(names, (list, tuple)) else [str(names)]


# --- reading -------------------------------------------------------------------------------------


class _Reader:
    """Reads entries, and keeps a sentence for each thing that is wrong."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def refuse(self, sentence: str) -> None:
        self.problems.append(f"{ROLE}: {sentence}")

    def values(self, where: str, entry: Entry, known: Sequence[Property]) -> Values:
        """The properties that an entry declares, by word."""
        values = {
            prop.word: self._value(f"{where}: {prop.option}", prop, entry[prop.option])
            for prop in known
            if prop.option and entry.get(prop.option) is not None
        }
        declared = entry.get("limits") or {}
        if not isinstance(declared, Mapping):
            self.refuse(f"{where}: limits is {declared!r}; make it a mapping, limit to value.")
            return values
        by_name = properties.limits(known)
        for name, value in declared.items():
            limit = by_name.get(str(name).lower())
            if limit is None:
                self._no_limit(where, str(name), known)
            elif limit.word in values:
                self.refuse(f"{where}: limits has {limit.word} under two names; leave one of them.")
            else:
                values[limit.word] = self._value(f"{where}: {name}", limit, value)
        return values

    def _value(self, where: str, prop: Property, written: Any) -> Value:
        try:
            value = prop.value(written)
        except Unreadable as wanted:
            self.refuse(f"{where} is {written!r}; set it to {wanted}.")
            return prop.default
        if isinstance(value, str) and prop.kind is properties.TEXT and set(value) & set("|\"'\n"):
            self.refuse(f"{where} is {written!r}; leave out quotes, | and line breaks.")
        if isinstance(value, frozenset) and prop.kind is properties.FLAG:
            for flag in sorted(value.difference(properties.FLAGS)):
                self.refuse(
                    f"{where} has {flag}, which is no flag of a QOS; "
                    f"{_instead(flag, properties.FLAGS)}"
                )
        return value

    def _no_limit(self, where: str, name: str, known: Sequence[Property]) -> None:
        of_qos = known is properties.QOS
        others = properties.limits(properties.ASSOCIATION if of_qos else properties.QOS)
        if name.lower() in others:
            whose = "accounts and users, not of a QOS" if of_qos else "a QOS alone"
            self.refuse(f"{where}: {name} is a limit of {whose}; set it there.")
        else:
            spelt = [word for prop in known if not prop.option for word in (prop.word, *prop.also)]
            self.refuse(f"{where}: {name} is no limit of Slurm's; {_instead(name, spelt)}")

    def name(self, where: str, name: str) -> None:
        if properties.NAME.fullmatch(name):
            return
        if properties.NAME.fullmatch(name.lower()):
            self.refuse(f"{where}: Slurm makes lower case of it; write {name.lower()}.")
        else:
            self.refuse(f"{where}: the name may have letters, digits and any of _.@$- alone.")

    def names(self, kind: str, entries: Iterable[Entry]) -> None:
        counts = Counter(str(entry.get("name", "")) for entry in entries)
        for name, times in counts.items():
            self.name(f"{kind} {name or 'without a name'}", name)
            if times > 1:
                self.refuse(f"{kind} {name} is declared {times} times; leave one of them.")

    def known(self, where: str, kind: str, name: str, names: Iterable[str]) -> None:
        """Refuses the name of something that is not declared."""
        if name not in names:
            self.refuse(
                f"{where} names the {kind} {name}, which is not declared; {_instead(name, names)}"
            )


def _instead(name: str, names: Iterable[str]) -> str:
    """The end of a sentence: the one that was probably meant, or all."""
    spelt = {other.lower(): other for other in names}
    if near := difflib.get_close_matches(name.lower(), spelt, n=1):
        return f"did you mean {spelt[near[0]]}?"
    if len(spelt) > MOST_NAMES:
        return "declare it, or use one that is."
    return f"declare it, or use one of {', '.join(sorted(spelt.values()))}."


def read(
    accounts: Sequence[Entry], qos: Sequence[Entry], users: Sequence[Entry]
) -> tuple[Declared, list[str]]:
    """What is declared, and what is wrong with it; with problems the first is not to be used."""
    reader = _Reader()
    for kind, entries in (("account", accounts), ("QOS", qos), ("user", users)):
        reader.names(kind, entries)
    known_qos = {NORMAL, *(str(entry.get("name")) for entry in qos)}
    declared = Declared(
        _qos(reader, qos, known_qos),
        _accounts(reader, accounts, known_qos),
        _users(reader, users, {str(entry.get("name")) for entry in accounts}, known_qos),
    )
    if not reader.problems:
        _default_qos(reader, declared)
    return declared, list(dict.fromkeys(reader.problems))


def _names(value: Value) -> Iterable[str]:
    return sorted(value) if isinstance(value, frozenset) else ()


def _qos(reader: _Reader, entries: Sequence[Entry], known: set[str]) -> tuple[Qos, ...]:
    qos = []
    for entry in entries:
        name = str(entry.get("name"))
        values = reader.values(f"QOS {name}", entry, properties.QOS)
        for other in _names(values.get("Preempt")):
            if other == name:
                reader.refuse(f"QOS {name} preempts itself; take it out of preempt.")
            else:
                reader.known(f"QOS {name}: preempt", "QOS", other, known)
        qos.append(Qos(name, values))
    return tuple(qos)


def _accounts(reader: _Reader, entries: Sequence[Entry], qos: set[str]) -> tuple[Account, ...]:
    parents = {
        str(entry.get("name")): str(entry.get("parent") or ROOT)
        for entry in entries
        if entry.get("name") != ROOT
    }
    cycle = _cycle(parents)
    if cycle:
        who = f"accounts {', '.join(cycle)} are each other's parents; give one of them"
        alone = f"account {cycle[0]} is its own parent; give it"
        reader.refuse(f"{who if len(cycle) > 1 else alone} another one.")
    accounts = {}
    for entry in entries:
        name = str(entry.get("name"))
        where = f"account {name}"
        about = reader.values(where, {**entry, "limits": {}}, properties.ACCOUNT)
        values = reader.values(where, entry, properties.ASSOCIATION)
        if name == ROOT and (entry.get("parent") or about):
            reader.refuse(
                "account root is the top of the tree; it may have limits and QOS, and no parent, "
                "description or organization."
            )
        elif name != ROOT:
            reader.known(f"{where}: parent", "account", parents[name], {ROOT, *parents})
        _known_qos(reader, where, values, qos)
        depth = 0 if cycle else len(list(_ancestors(name, parents)))
        accounts[name] = Account(name, parents.get(name, ""), about, values, depth)
    return tuple(sorted(accounts.values(), key=lambda account: account.depth))


def _ancestors(name: str, parents: Mapping[str, str]) -> Iterator[str]:
    while (name := parents.get(name, "")) != "":
        yield name


def _cycle(parents: Mapping[str, str]) -> list[str]:
    for start in parents:
        seen = [start]
        while (above := parents.get(seen[-1], "")) and above not in seen:
            seen.append(above)
        if above:
            return sorted(seen[seen.index(above) :])
    return []


def _known_qos(reader: _Reader, where: str, values: Values, known: set[str]) -> None:
    listed = values.get("QOS")
    for name in _names(listed):
        reader.known(f"{where}: qos", "QOS", name, known)
    default = values.get("DefaultQOS")
    if isinstance(default, str):
        reader.known(f"{where}: default_qos", "QOS", default, known)


def _users(
    reader: _Reader, entries: Sequence[Entry], accounts: set[str], qos: set[str]
) -> tuple[User, ...]:
    users = []
    for entry in entries:
        name = str(entry.get("name"))
        where = f"user {name}"
        if name == ROOT:
            reader.refuse("user root is Slurm's own administrator; take it out.")
            continue
        own = listed(entry.get("accounts"))
        if entry.get("account") is not None:
            own = [
                str(entry["account"]),
                *(other for other in own if other != str(entry["account"])),
            ]
        if not own:
            reader.refuse(f"{where} has no account; set account, or accounts.")
            continue
        for account, times in Counter(own).items():
            reader.known(where, "account", account, {ROOT, *accounts})
            if times > 1:
                reader.refuse(f"{where} is in the account {account} {times} times; leave one.")
        default = str(entry.get("default_account") or "")
        if default and default not in own:
            reader.refuse(
                f"{where}: default_account is {default}, which is none of the user's accounts "
                f"({', '.join(own)}); set it to one of them, or add it."
            )
        users.append(
            User(
                name=name,
                accounts=_by_account(reader, entry, own, qos),
                default=default,
                admin=reader.values(where, {**entry, "limits": {}}, [properties.ADMIN_LEVEL]),
            )
        )
    return tuple(users)


def _by_account(
    reader: _Reader, entry: Entry, own: Sequence[str], qos: set[str]
) -> dict[str, Values]:
    """What a user has in each account: what is said for all, and above it what is said for one."""
    where = f"user {entry.get('name')}"
    common = reader.values(where, entry, properties.ASSOCIATION)
    _known_qos(reader, where, common, qos)
    by_account: dict[str, Values] = dict.fromkeys(own, common)
    per_account = entry.get("per_account") or {}
    if not isinstance(per_account, Mapping):
        reader.refuse(f"{where}: per_account is {per_account!r}; make it a mapping by account.")
        return by_account
    for account, more in per_account.items():
        there = f"{where} in {account}"
        if account not in own:
            reader.refuse(
                f"{there}: per_account names an account that the user is not in; add it to "
                f"accounts, or name one of {', '.join(own)}."
            )
        elif not isinstance(more, Mapping):
            reader.refuse(
                f"{there}: per_account has {more!r}; make it a mapping, as {{fairshare: 5}}."
            )
        else:
            for option in more:
                if option not in PER_ACCOUNT:
                    reader.refuse(
                        f"{there}: {option} is not for here; use {', '.join(PER_ACCOUNT)}."
                    )
            values = reader.values(there, more, properties.ASSOCIATION)
            _known_qos(reader, there, values, qos)
            by_account[account] = {**common, **values}
    return by_account


PER_ACCOUNT = (*(prop.option for prop in properties.ASSOCIATION if prop.option), "limits")


def _default_qos(reader: _Reader, declared: Declared) -> None:
    """Refuses a default QOS that its owner may not use. Where no list is declared, neither for it
    nor above it, Slurm's own counts, and nothing is known."""
    accounts = {owner.name: owner for owner in declared.accounts}

    def allowed(values: Values, account: str) -> Value:
        if values.get("QOS") is not None:
            return values["QOS"]
        while (above := accounts.get(account)) is not None:
            if above.values.get("QOS") is not None:
                return above.values["QOS"]
            account = above.parent
        above = accounts.get(ROOT)
        return above.values.get("QOS") if above else None

    def judge(where: str, values: Values, account: str) -> None:
        default, names = values.get("DefaultQOS"), allowed(values, account)
        if isinstance(default, str) and isinstance(names, frozenset) and default not in names:
            reader.refuse(
                f"{where}: default_qos is {default}, which is not in its qos "
                f"({', '.join(sorted(names))}); add it there, or take one of these."
            )

    for owner in declared.accounts:
        judge(f"account {owner.name}", owner.values, owner.parent)
    for user in declared.users:
        for account, values in user.accounts.items():
            judge(f"user {user.name} in {account}", values, account)


# --- partitions ----------------------------------------------------------------------------------


def partition_problems(
    partitions: Sequence[Entry], accounts: Sequence[Entry], qos: Sequence[Entry]
) -> list[str]:
    """QOS and accounts that partitions name and nobody declares.

    Where no QOS is declared, or no account, the site keeps them by hand, and nothing is known.
    """
    known = _known(accounts, qos)
    reader = _Reader()
    for partition in partitions:
        for option, value in (partition.get("settings") or {}).items():
            kind = OF_PARTITIONS.get(str(option).lower(), "")
            names = known.get(kind)
            if names is None:
                continue
            for word in listed(value):
                for name in filter(None, word.lower().replace(" ", "").split(",")):
                    if name != EVERY:
                        where = f"partition {partition.get('name')}: {option}"
                        reader.known(where, kind, name, names)
    return list(dict.fromkeys(reader.problems))


def submission_problems(
    submission: Entry,
    accounts: Sequence[Entry],
    qos: Sequence[Entry],
    background_qos: str = "",
) -> list[str]:
    """The account and the QOS that the validation's jobs name, in the same way.

    background_qos  of its tests in the background; empty where there are none
    """
    known = _known(accounts, qos)
    reader = _Reader()
    for option, kind in (("account", "account"), ("qos", "QOS")):
        name, names = submission.get(option), known[kind]
        if name and names is not None:
            reader.known(f"validation_submission: {option}", kind, str(name).lower(), names)
    if background_qos and (names := known["QOS"]) is not None:
        reader.known("validation_background_qos", "QOS", str(background_qos).lower(), names)
    return reader.problems


def _known(accounts: Sequence[Entry], qos: Sequence[Entry]) -> Mapping[str, set[str] | None]:
    """The names that may be used; None where the site keeps them by hand."""
    return {
        "QOS": {NORMAL, *(str(entry.get("name")) for entry in qos)} if qos else None,
        "account": {ROOT, *(str(entry.get("name")) for entry in accounts)} if accounts else None,
    }


def problems(
    accounts: Sequence[Entry],
    qos: Sequence[Entry],
    users: Sequence[Entry],
    partitions: Sequence[Entry] = (),
    submission: Entry = NOWHERE,
    background_qos: str = "",
) -> list[str]:
    """All that is wrong, told at once."""
    return [
        *read(accounts, qos, users)[1],
        *partition_problems(partitions, accounts, qos),
        *submission_problems(submission, accounts, qos, background_qos),
    ]
