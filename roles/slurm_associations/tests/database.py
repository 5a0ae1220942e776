"""A small database of Slurm's that knows what sacctmgr's commands do, and what it refuses.

It prints what the real one prints (test_database_state.py holds recordings of that), keeps texts
unchanged, and refuses what names something that is not there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from roles.slurm_associations.plugin_utils import properties
from roles.slurm_associations.plugin_utils.properties import Property

CLEARED = {"-1": "", "": ""}
DEFAULT = {"Fairshare": "1", "Priority": "0", "UsageFactor": "1.000000", "PreemptMode": "cluster"}


class SacctmgrError(Exception):
    """What sacctmgr would not do."""


@dataclass
class Database:
    cluster: str = "site"
    qos: dict[str, dict[str, str]] = field(default_factory=lambda: {"normal": {}})
    accounts: dict[str, dict[str, str]] = field(default_factory=lambda: {"root": {}})
    users: dict[str, dict[str, str]] = field(
        default_factory=lambda: {"root": {"DefaultAccount": "root", "AdminLevel": "Administrator"}}
    )
    # (account, user, partition) to what it has; "Parent" among it.
    associations: dict[tuple[str, str, str], dict[str, str]] = field(
        default_factory=lambda: {("root", "", ""): {"QOS": "normal"}, ("root", "root", ""): {}}
    )
    calls: list[Sequence[str]] = field(default_factory=list)

    # --- questions -------------------------------------------------------------------------------

    def answer(self, call: Sequence[str]) -> str:
        kind = call[call.index("show") + 1]
        columns = call[-1].removeprefix("format=").split(",")
        lines = {
            "qos": [{"Name": name, **had} for name, had in self.qos.items()],
            "account": [{"Account": name, **had} for name, had in self.accounts.items()],
            "user": [{"User": name, **had} for name, had in self.users.items()],
            "associations": [
                {
                    **{"Cluster": self.cluster, "Account": account, "User": user},
                    **{"Partition": partition, "ParentName": had.get("Parent", "")},
                    **had,
                }
                for (account, user, partition), had in self.associations.items()
            ],
            "tres": [{"Type": "cpu"}, {"Type": "mem"}, {"Type": "gres", "Name": "gpu"}],
        }[kind]
        default = {**DEFAULT, **({"Priority": ""} if kind == "associations" else {})}
        return "".join(
            "|".join(line.get(column) or default.get(column, "") for column in columns) + "\n"
            for line in lines
        )

    # --- commands --------------------------------------------------------------------------------

    def run(self, call: Sequence[str]) -> None:
        self.calls.append(call)
        program, immediate, verb, kind, *words = call
        assert (program, immediate) == ("sacctmgr", "--immediate")
        where: dict[str, str] = {}
        settings: dict[str, str] = {}
        place = where
        for word in words:
            if word in ("where", "set"):
                place = settings if word == "set" else where
                continue
            key, separator, value = word.partition("=")
            assert separator, word
            assert key not in place, word
            place[key] = value
        names = where.pop("name").split(",")
        if verb == "add":
            settings, where = where, {}
            for key in ("account", "cluster"):
                if key in settings:
                    where[key] = settings.pop(key)
        assert where.pop("cluster", self.cluster) == self.cluster
        getattr(self, f"{verb}_{kind}")(names, where, settings)
        self._consistent()

    def _consistent(self) -> None:
        for (account, user, _), had in self.associations.items():
            for name in filter(None, [*had.get("QOS", "").split(","), had.get("DefaultQOS", "")]):
                if name not in self.qos:
                    raise SacctmgrError(f"no QOS {name}")
            default = had.get("DefaultQOS")
            if default and default not in self.allowed(account, user):
                raise SacctmgrError(f"{user} in {account} may not use the default {default}")
            if user and not had and account not in self.accounts:
                raise SacctmgrError(f"no account {account}")
        for qos in self.qos.values():
            for name in filter(None, qos.get("Preempt", "").split(",")):
                if name not in self.qos:
                    raise SacctmgrError(f"no QOS {name} to preempt")

    def allowed(self, account: str, user: str = "") -> list[str]:
        if own := self.associations[account, user, ""].get("QOS"):
            return own.split(",")
        return self.allowed(account if user else self.associations[account, "", ""]["Parent"])

    def _set(
        self, had: dict[str, str], settings: dict[str, str], known: Sequence[Property]
    ) -> None:
        by_word = {prop.word: prop for prop in known}
        for word, value in settings.items():
            if by_word[word].kind is properties.RESOURCES:
                amounts = dict(entry.split("=") for entry in had.get(word, "").split(",") if entry)
                amounts |= dict(entry.split("=") for entry in value.split(","))
                had[word] = ",".join(f"{k}={v}" for k, v in amounts.items() if v != "-1")
            else:
                had[word] = CLEARED.get(value, value)

    def add_qos(self, names, where, settings):
        for name in names:
            assert name not in self.qos
            self.qos[name] = {}
        self.modify_qos(names, where, settings)

    def modify_qos(self, names, where, settings):
        assert not where
        for name in names:
            self._set(self.qos[name], settings, properties.QOS)

    def delete_qos(self, names, where, settings):
        for name in names:
            del self.qos[name]
            for had in self.associations.values():
                rest = [other for other in had.get("QOS", "").split(",") if other and other != name]
                had["QOS"] = ",".join(rest)

    def add_account(self, names, where, settings):
        parent = settings.pop("parent")
        if (parent, "", "") not in self.associations:
            raise SacctmgrError(f"no account {parent}")
        for name in names:
            assert (name, "", "") not in self.associations
            self.accounts.setdefault(name, {"Description": name, "Organization": parent})
            self.associations[name, "", ""] = {"Parent": parent}
        self.modify_account(names, where, settings)

    def modify_account(self, names, where, settings):
        about = [prop.word for prop in properties.ACCOUNT]
        for name in names:
            if "Parent" in settings:
                parent = settings["Parent"]
                while parent != "root":
                    if parent == name:
                        raise SacctmgrError(f"{name} below itself")
                    parent = self.associations[parent, "", ""]["Parent"]
                self.associations[name, "", ""]["Parent"] = settings["Parent"]
            own = {word: value for word, value in settings.items() if word in about}
            rest = {w: v for w, v in settings.items() if w not in about and w != "Parent"}
            self._set(self.accounts[name], own, properties.ACCOUNT)
            self._set(self.associations[name, "", ""], rest, properties.ASSOCIATION)

    def delete_account(self, names, where, settings):
        assert "root" not in names
        for name in names:
            if any(key[0] == name and key[1] for key in self.associations):
                raise SacctmgrError(f"{name} has users")
            del self.accounts[name]
            self.associations.pop((name, "", ""), None)
        for (account, user, _), had in self.associations.items():
            if not user and account != "root" and had["Parent"] not in self.accounts:
                raise SacctmgrError(f"{account} lost its parent")

    def add_user(self, names, where, settings):
        account = where["account"]
        if (account, "", "") not in self.associations:
            raise SacctmgrError(f"no account {account}")
        admin = settings.pop("AdminLevel", "None")
        default = settings.pop("DefaultAccount", "")
        for name in names:
            assert (account, name, "") not in self.associations
            if name not in self.users:
                assert default == account
                self.users[name] = {"DefaultAccount": default, "AdminLevel": admin}
            elif default:
                self.users[name]["DefaultAccount"] = default
            self.associations[account, name, ""] = {}
        self.modify_user(names, where, settings)

    def modify_user(self, names, where, settings):
        for name in names:
            own = {w: settings[w] for w in ("DefaultAccount", "AdminLevel") if w in settings}
            if (
                "DefaultAccount" in own
                and (own["DefaultAccount"], name, "") not in self.associations
            ):
                raise SacctmgrError(f"{name} is not in {own['DefaultAccount']}")
            self.users[name] |= own
            rest = {word: value for word, value in settings.items() if word not in own}
            if rest:
                had = self.associations[where["account"], name, ""]
                self._set(had, rest, properties.ASSOCIATION)

    def delete_user(self, names, where, settings):
        for name in names:
            gone = [
                key
                for key in self.associations
                if key[1] == name
                and where.get("account", key[0]) == key[0]
                and where.get("partition", key[2]) == key[2]
            ]
            for key in gone:
                del self.associations[key]
            if not where:
                del self.users[name]
            elif (self.users[name]["DefaultAccount"], name, "") not in self.associations:
                raise SacctmgrError(f"{name} lost the default account")
