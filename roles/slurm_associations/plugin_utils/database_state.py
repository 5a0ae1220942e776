"""What Slurm's database has, out of what sacctmgr prints.

Columns are asked for by name: what sacctmgr prints by itself differs between releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from roles.slurm_associations.plugin_utils import properties
from roles.slurm_associations.plugin_utils.declared import Declared
from roles.slurm_associations.plugin_utils.properties import Property, Value, Values

SACCTMGR = ("sacctmgr", "--noheader", "--parsable2")

Call = tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """An association of one cluster: of an account itself, where it has no user."""

    account: str
    user: str = ""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Association:
    parent: str
    values: Values


@dataclass(frozen=True, slots=True)
class User:
    default: str  # the default account
    admin: Value


@dataclass(frozen=True, slots=True)
class DatabaseState:
    qos: Mapping[str, Values] = field(default_factory=dict)
    accounts: Mapping[str, Values] = field(default_factory=dict)
    users: Mapping[str, User] = field(default_factory=dict)
    associations: Mapping[Key, Association] = field(default_factory=dict)
    elsewhere: frozenset[Key] = frozenset()  # associations of other clusters
    other_clusters: frozenset[str] = frozenset()
    resources: frozenset[str] | None = None  # trackable; None where nobody asked

    def effective_qos(self, account: str) -> frozenset[str]:
        """What an account may use: its own list, or that of the nearest account above it, with
        what `qos+=` added to that and `qos-=` took away."""
        association = self.associations.get(Key(account))
        if association is None:
            return frozenset()
        listed = association.values.get("QOS")
        names = listed if isinstance(listed, frozenset) else frozenset()
        if own := frozenset(name for name in names if name[0] not in "+-"):
            return own
        more = {name[1:] for name in names if name[0] == "+"}
        less = {name[1:] for name in names if name[0] == "-"}
        return (self.effective_qos(association.parent) | more) - less


# --- questions -----------------------------------------------------------------------------------


def _queried(known: Sequence[Property], declared: Iterable[str]) -> list[Property]:
    """Less what old releases end with, as long as nobody declares it."""
    named = set(declared)
    return [prop for prop in known if not prop.since or prop.word in named]


def _columns(declared: Declared) -> dict[str, list[Property]]:
    return {
        "qos": _queried(properties.QOS, (word for qos in declared.qos for word in qos.values)),
        "associations": list(properties.ASSOCIATION),
    }


def _format(*names: str) -> str:
    return f"format={','.join(names)}"


def questions(declared: Declared) -> dict[str, Call]:
    """What sacctmgr is asked, each a command. Free text comes last: it may have a | in it."""
    columns = _columns(declared)
    qos = [prop.word for prop in columns["qos"] if prop.kind is not properties.TEXT]
    associations = [prop.word for prop in columns["associations"]]
    calls = {
        "qos": ("show", "qos", _format("Name", *qos, "Description")),
        "accounts": ("show", "account", _format("Account", "Organization", "Description")),
        "users": ("show", "user", _format("User", "DefaultAccount", "AdminLevel")),
        # Without what an association has from those above it, and with the + of `qos+=`.
        "associations": (
            *("show", "associations", "WOPLimits", "WithRawQOSLevel"),
            _format("Cluster", "Account", "User", "Partition", "ParentName", *associations),
        ),
    }
    if any("/" in name for name in declared.resources()):
        calls["resources"] = ("show", "tres", _format("Type", "Name"))
    return {name: (*SACCTMGR, "--readonly", *words) for name, words in calls.items()}


# Where a database has several clusters, `show user` may tell the default account of another one.
DEFAULTS: Call = (
    *SACCTMGR,
    "--readonly",
    *("show", "associations", "OnlyDefaults", _format("Cluster", "Account", "User")),
)


# --- answers -------------------------------------------------------------------------------------


def rows(printed: str, columns: int) -> Iterator[list[str]]:
    for line in printed.splitlines():
        if line.strip():
            cells = line.split("|", columns - 1)
            yield cells + [""] * (columns - len(cells))


def _values(known: Iterable[Property], cells: Iterable[str]) -> Values:
    return {prop.word: prop.printed_value(cell) for prop, cell in zip(known, cells, strict=True)}


def parse(printed: Mapping[str, str], declared: Declared, cluster: str) -> DatabaseState:
    """`printed` has the answer to each of `questions`, by its name."""
    columns = _columns(declared)
    about = {prop.word: prop for prop in properties.ACCOUNT}
    qos = [prop for prop in columns["qos"] if prop.kind is not properties.TEXT]
    qos += [prop for prop in columns["qos"] if prop.kind is properties.TEXT]
    here: dict[Key, Association] = {}
    elsewhere: set[Key] = set()
    others: set[str] = set()
    width = 5 + len(columns["associations"])
    for where, account, user, partition, parent, *cells in rows(printed["associations"], width):
        key = Key(account, user, partition)
        if where.lower() != cluster.lower():
            elsewhere.add(key)
            others.add(where)
        else:
            here[key] = Association(parent, _values(columns["associations"], cells))
    resources = printed.get("resources")
    return DatabaseState(
        qos={name: _values(qos, cells) for name, *cells in rows(printed["qos"], 1 + len(qos))},
        accounts={
            name: {
                "Organization": about["Organization"].printed_value(organization),
                "Description": about["Description"].printed_value(description),
            }
            for name, organization, description in rows(printed["accounts"], 3)
        },
        users={
            name: User(default, properties.ADMIN_LEVEL.printed_value(admin))
            for name, default, admin in rows(printed["users"], 3)
        },
        associations=here,
        elsewhere=frozenset(elsewhere),
        other_clusters=frozenset(others),
        resources=None
        if resources is None
        else frozenset(
            (f"{kind}/{name}" if name else kind).lower() for kind, name in rows(resources, 2)
        ),
    )


def defaults(printed: str, cluster: str) -> dict[str, str]:
    """Users' default accounts in a cluster, from the answer to DEFAULTS."""
    return {
        user: account
        for where, account, user in rows(printed, 3)
        if user and where.lower() == cluster.lower()
    }


def with_defaults(there: DatabaseState, by_user: Mapping[str, str]) -> DatabaseState:
    """The same, with the default accounts of this cluster."""
    users = {name: User(by_user.get(name, ""), user.admin) for name, user in there.users.items()}
    return replace(there, users=users)
