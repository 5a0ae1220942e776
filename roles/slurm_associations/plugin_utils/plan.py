"""From what is declared and what Slurm has to the fewest commands of sacctmgr, in their order.

What is declared comes to be before what names it, and goes after. Equal changes of several are one
command.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto

from roles.slurm_associations.plugin_utils import properties
from roles.slurm_associations.plugin_utils.database_state import Call, DatabaseState, Key
from roles.slurm_associations.plugin_utils.declared import (
    NORMAL,
    ROLE,
    ROOT,
    Account,
    Declared,
    Qos,
    User,
)
from roles.slurm_associations.plugin_utils.properties import Property, Value, Values

# Names of one command: its arguments stay far below what a kernel takes.
PER_CALL = 500

JOBS: Call = ("squeue", "--noheader", "--all", "--format=%i|%u|%a|%q")


class Step(IntEnum):
    QOS_ADD = auto()
    QOS_MODIFY = auto()  # preemption names other QOS
    ACCOUNT_ADD = auto()
    ACCOUNT_MODIFY = auto()
    USER_ADD = auto()  # with their default account
    ASSOCIATION_ADD = auto()
    USER_MODIFY = auto()
    USER_DEFAULT = auto()
    QOS_NARROW = auto()  # users may have had as default what an account loses
    USER_DELETE = auto()
    ACCOUNT_DELETE = auto()
    QOS_DELETE = auto()


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that sacctmgr does, with the lines by which people see it."""

    order: tuple[Step, int]
    verb: str
    kind: str
    name: str
    where: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    changes: tuple[Change, ...]
    kept: tuple[str, ...] = ()  # what is there and nobody declares
    problems: tuple[str, ...] = ()

    @property
    def removals(self) -> list[Change]:
        return [change for change in self.changes if change.verb == "delete"]

    @property
    def commands(self) -> list[Call]:
        return commands(self.changes)

    @property
    def before(self) -> str:
        return _text(line for change in self.changes for line in change.before)

    @property
    def after(self) -> str:
        return _text(line for change in self.changes for line in change.after)


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def commands(changes: Iterable[Change]) -> list[Call]:
    """Equal changes of several names in one; `-i` asks nobody."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for change in sorted(changes, key=lambda change: change.order):
        key = (change.order, change.verb, change.kind, change.where, change.settings)
        groups.setdefault(key, []).append(change.name)
    calls: list[Call] = []
    for (_, verb, kind, where, settings), several in groups.items():
        for start in range(0, len(several), PER_CALL):
            name = f"name={','.join(dict.fromkeys(several[start : start + PER_CALL]))}"
            words = {
                "add": (name, *_words(where), *_words(settings)),
                "modify": ("where", name, *_words(where), "set", *_words(settings)),
                "delete": ("where", name, *_words(where)),
            }[str(verb)]
            calls.append(("sacctmgr", "--immediate", str(verb), str(kind), *words))
    return calls


def _words(value: object) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


# --- differences ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    prop: Property
    wanted: Value
    had: Value

    @property
    def setting(self) -> str:
        return self.prop.setting(self.wanted, self.had)


def _differences(known: Sequence[Property], declared: Values, had: Values) -> list[Difference]:
    """What is declared and is not so."""
    return [
        Difference(prop, declared[prop.word], had.get(prop.word, prop.default))
        for prop in known
        if prop.word in declared and declared[prop.word] != had.get(prop.word, prop.default)
    ]


def _undeclared(known: Sequence[Property], declared: Values, had: Values) -> list[Difference]:
    """What is set and nobody declares, with what takes it away. Free text stays."""
    return [
        Difference(prop, prop.default, had[prop.word])
        for prop in known
        if prop.word not in declared
        and prop.kind is not properties.TEXT
        and had.get(prop.word, prop.default) != prop.default
    ]


def _new(known: Sequence[Property], declared: Values) -> list[Difference]:
    """What something new gets, less what it has by itself."""
    return _differences(known, declared, {})


class _Planner:
    """Collects changes; `remove` is whether what nobody declares goes."""

    def __init__(
        self, declared: Declared, current: DatabaseState, cluster: str, *, remove: bool
    ) -> None:
        self.declared, self.current, self.remove = declared, current, remove
        self.cluster = f"cluster={cluster}"
        self.changes: list[Change] = []
        self.kept: list[str] = []
        self.problems: list[str] = []

    def plan(self) -> Plan:
        for qos in self.declared.qos:
            self._qos(qos)
        for account in self.declared.accounts:
            self._account(account)
        for user in self.declared.users:
            self._user(user)
        self._users_that_go()
        self._accounts_that_go()
        self._qos_that_go()
        return Plan(tuple(self.changes), tuple(self.kept), tuple(self.problems))

    # --- one property, one thing -----------------------------------------------------------------

    def _changes(
        self, subject: str, known: Sequence[Property], declared: Values, had: Values, *, own: bool
    ) -> list[Difference]:
        """What is set, or taken away; `own` is Slurm's own, of which nothing is taken away."""
        wanted = _differences(known, declared, had)
        if own:
            return wanted
        undeclared = _undeclared(known, declared, had)
        if self.remove:
            return wanted + undeclared
        self.kept += [
            f"{subject}: {difference.prop.shown(difference.had)}" for difference in undeclared
        ]
        return wanted

    def _add(
        self,
        order: tuple[Step, int],
        kind: str,
        name: str,
        where: tuple[str, ...],
        subject: str,
        differences: Sequence[Difference],
        *more: str,
    ) -> None:
        settings = (*more, *(difference.setting for difference in differences))
        shown = [*more, *(difference.prop.shown(difference.wanted) for difference in differences)]
        line = f"{subject}: {', '.join(shown)}" if shown else subject
        self.changes.append(Change(order, "add", kind, name, where, settings, (), (line,)))

    def _modify(
        self,
        order: tuple[Step, int],
        kind: str,
        name: str,
        where: tuple[str, ...],
        subject: str,
        differences: Sequence[Difference],
    ) -> None:
        if differences:
            self.changes.append(
                Change(
                    order,
                    "modify",
                    kind,
                    name,
                    where,
                    tuple(difference.setting for difference in differences),
                    tuple(
                        f"{subject}: {difference.prop.shown(difference.had)}"
                        for difference in differences
                    ),
                    tuple(
                        f"{subject}: {difference.prop.shown(difference.wanted)}"
                        for difference in differences
                    ),
                )
            )

    def _gone(self, step: Step, kind: str, name: str, where: tuple[str, ...], subject: str) -> None:
        if self.remove:
            self.changes.append(Change((step, 0), "delete", kind, name, where, (), (subject,)))
        else:
            self.kept.append(subject)

    # --- QOS -------------------------------------------------------------------------------------

    def _qos(self, qos: Qos) -> None:
        subject = f"QOS {qos.name}"
        modify = (Step.QOS_MODIFY, 0)
        if (had := self.current.qos.get(qos.name)) is None:
            wanted = _new(properties.QOS, qos.values)
            names = [difference for difference in wanted if difference.prop.word == "Preempt"]
            rest = [difference for difference in wanted if difference not in names]
            self._add((Step.QOS_ADD, 0), "qos", qos.name, (), subject, rest)
        else:
            own = qos.name == NORMAL
            names = self._changes(subject, properties.QOS, qos.values, had, own=own)
        self._modify(modify, "qos", qos.name, (), subject, names)

    def _qos_that_go(self) -> None:
        """A QOS belongs to all clusters of the database, so another cluster keeps them all."""
        if not self.declared.qos:
            return
        declared = {NORMAL, *(qos.name for qos in self.declared.qos)}
        for name in self.current.qos:
            if name in declared:
                continue
            if self.current.other_clusters:
                self.kept.append(f"QOS {name}")
            else:
                self._gone(Step.QOS_DELETE, "qos", name, (), f"QOS {name}")

    # --- accounts --------------------------------------------------------------------------------

    def _account(self, account: Account) -> None:
        name, subject = account.name, f"account {account.name}"
        add, modify, narrow = (
            (step, account.depth)
            for step in (Step.ACCOUNT_ADD, Step.ACCOUNT_MODIFY, Step.QOS_NARROW)
        )
        here = (self.cluster,)
        had = self.current.associations.get(Key(name))
        about = self.current.accounts.get(name)
        if about is not None and account.about:
            wanted = _differences(properties.ACCOUNT, account.about, about)
            self._modify(modify, "account", name, (), subject, wanted)
        if had is None:
            wanted = _new(properties.ASSOCIATION, account.values)
            if about is None:
                wanted = [*_new(properties.ACCOUNT, account.about), *wanted]
            parent = f"parent={account.parent}"
            self._add(add, "account", name, here, subject, wanted, parent)
            return
        wanted = self._changes(
            subject, properties.ASSOCIATION, account.values, had.values, own=name == ROOT
        )
        if account.parent and account.parent != had.parent:
            wanted = [Difference(PARENT, account.parent, had.parent), *wanted]
        early, late = self._widened(name, wanted)
        self._modify(modify, "account", name, here, subject, early)
        self._modify(narrow, "account", name, here, subject, late)

    def _widened(
        self, name: str, differences: Sequence[Difference]
    ) -> tuple[list[Difference], list[Difference]]:
        """What is set before the users' changes, and what after.

        Slurm refuses to take a QOS from an account while a user below has it as default, and to
        make one a default that may not be used. So an account gets QOS first and loses them last.
        """
        early = [difference for difference in differences if difference.prop.word != "QOS"]
        for difference in differences:
            if difference.prop.word == "QOS":
                new = difference.wanted if isinstance(difference.wanted, frozenset) else frozenset()
                both = new | self.current.effective_qos(name)
                if both == new:
                    return list(differences), []
                if new and both != difference.had:
                    early.append(Difference(difference.prop, both, difference.had))
                return early, [difference]
        return early, []

    def _accounts_that_go(self) -> None:
        if not self.declared.accounts:
            return
        declared = {ROOT, *(account.name for account in self.declared.accounts)}
        here = {key.account for key in self.current.associations}
        elsewhere = {key.account for key in self.current.elsewhere}
        for name in sorted({*here, *self.current.accounts} - declared):
            if name not in here and name in elsewhere:
                continue  # another cluster's
            stays = self._users_staying(name)
            if self.remove and stays:
                self.problems.append(
                    f"{ROLE}: account {name} is not declared and would be removed, but users are "
                    f"in it ({_few(stays)}), and no users are declared; declare the account, or "
                    "the users."
                )
            where = (self.cluster,) if name in elsewhere else ()
            self._gone(Step.ACCOUNT_DELETE, "account", name, where, f"account {name}")

    def _users_staying(self, account: str) -> list[str]:
        """Without declared users all of them stay where they are."""
        if self.declared.users:
            return []
        return sorted(
            {key.user for key in self.current.associations if key.account == account and key.user}
        )

    # --- users -----------------------------------------------------------------------------------

    def _user(self, user: User) -> None:
        had = self.current.users.get(user.name)
        there = {
            key.account
            for key in self.current.associations
            if key.user == user.name and not key.partition
        }
        subject = f"user {user.name}"
        first = user.first if not there else ""
        for account, values in sorted(user.accounts.items(), key=lambda item: item[0] != first):
            inside = f"{subject} in {account}"
            where = (f"account={account}", self.cluster)
            if account in there:
                association = self.current.associations[Key(account, user.name)]
                wanted = self._changes(
                    inside, properties.ASSOCIATION, values, association.values, own=False
                )
                self._modify((Step.USER_MODIFY, 0), "user", user.name, where, inside, wanted)
                continue
            wanted = _new(properties.ASSOCIATION, values)
            more = []
            if account == first:
                more.append(f"DefaultAccount={first}")
                if had is None:
                    more += [
                        difference.setting
                        for difference in _new([properties.ADMIN_LEVEL], user.admin)
                    ]
            step = Step.USER_ADD if account == first else Step.ASSOCIATION_ADD
            self._add((step, 0), "user", user.name, where, inside, wanted, *more)
        if had is not None:
            wanted = self._changes(
                subject, [properties.ADMIN_LEVEL], user.admin, {"AdminLevel": had.admin}, own=False
            )
            self._modify((Step.USER_MODIFY, 0), "user", user.name, (), subject, wanted)
            if there:
                self._default(user, had.default, subject)
        self._associations_that_go(user)

    def _default(self, user: User, had: str, subject: str) -> None:
        """One that is declared is enforced; else the user's own choice stays, while it can."""
        goes = self.remove and had not in user.accounts
        if (user.default and user.default != had) or goes or not had:
            wanted = [Difference(DEFAULT_ACCOUNT, user.first, had or None)]
            order = (Step.USER_DEFAULT, 0)
            self._modify(order, "user", user.name, (self.cluster,), subject, wanted)

    def _associations_that_go(self, user: User) -> None:
        """Those of a declared user that the declaration has not."""
        for key in sorted(key for key in self.current.associations if key.user == user.name):
            if key.account in user.accounts and not key.partition:
                continue
            if key.partition and (
                key.account not in user.accounts
                and Key(key.account, key.user) in self.current.associations
            ):
                continue  # goes, or stays, with the other
            where = [f"account={key.account}", self.cluster]
            subject = f"user {key.user} in {key.account}"
            if key.partition:
                where.append(f"partition={key.partition}")
                subject += f", partition {key.partition}"
            self._gone(Step.USER_DELETE, "user", key.user, tuple(where), subject)

    def _users_that_go(self) -> None:
        if not self.declared.users:
            return
        declared = {ROOT, *(user.name for user in self.declared.users)}
        here = {key.user for key in self.current.associations if key.user}
        elsewhere = {key.user for key in self.current.elsewhere if key.user}
        for name in sorted({*here, *self.current.users} - declared):
            if name not in here and name in elsewhere:
                continue  # another cluster's
            where = (self.cluster,) if name in elsewhere else ()
            self._gone(Step.USER_DELETE, "user", name, where, f"user {name}")


PARENT = Property("Parent", properties.A_NAME)
DEFAULT_ACCOUNT = Property("DefaultAccount", properties.A_NAME)


def plan(declared: Declared, current: DatabaseState, cluster: str, *, remove: bool) -> Plan:
    """What makes of what the database has what is declared."""
    return _Planner(declared, current, cluster, remove=remove).plan()


# --- what stands in the way ----------------------------------------------------------------------


def untracked(declared: Declared, current: DatabaseState) -> list[str]:
    """Resources that limits name and Slurm does not count."""
    if current.resources is None:
        return []
    missing = sorted(declared.resources() - current.resources)
    if not missing:
        return []
    return [
        f"{ROLE}: limits name {', '.join(missing)}, which Slurm does not account; add it to "
        "AccountingStorageTRES in slurm_settings, or take it out of the limits."
    ]


def busy(removals: Iterable[Change], jobs: str) -> list[str]:
    """What would be removed and has jobs, by the answer to JOBS."""
    listed = [line.split("|") for line in jobs.splitlines() if line.count("|") == 3]
    problems = []
    for change in removals:
        inside = next(
            (word.removeprefix("account=") for word in change.where if "account=" in word), ""
        )
        numbers = [
            number
            for number, user, account, qos in listed
            if {
                "user": user == change.name and inside in ("", account),
                "account": account == change.name,
                "qos": qos == change.name,
            }[change.kind]
        ]
        if numbers:
            problems.append(
                f"{ROLE}: {change.before[0]} is not declared and would be removed, but has jobs "
                f"({_few(numbers)}); declare it, let them end, or cancel them."
            )
    return problems


def _few(several: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(several[:most])
    return f"{shown} and {len(several) - most} more" if len(several) > most else shown


def sentence(kept: Sequence[str]) -> str:
    """What is kept although nobody declares it, in one sentence; empty for nothing."""
    return f"Kept, though nobody declares it: {_few(kept, 10)}." if kept else ""


__all__ = ["JOBS", "Change", "Plan", "Step", "busy", "commands", "plan", "sentence", "untracked"]
