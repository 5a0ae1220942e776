"""Whether slurmctld holds jobs to what is declared, and whom it would lock out once it does.

`config` is what `scontrol show config` prints; nothing is said of a slurmctld that is silent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from roles.slurm_associations.plugin_utils import properties
from roles.slurm_associations.plugin_utils.declared import ROLE, Declared, Entry, read

# slurm.conf(5), AccountingStorageEnforce: what each word brings along.
BRINGS = {
    "associations": {"associations"},
    "limits": {"associations", "limits"},
    "qos": {"associations", "qos"},
    "safe": {"associations", "limits", "safe"},
    "wckeys": {"associations", "wckeys"},
    "all": {"associations", "limits", "qos", "safe"},
}
DATABASE = "accounting_storage/slurmdbd"
MOST_USERS = 10  # that a sentence names


def _setting(config: str, name: str) -> str | None:
    match = re.search(rf"^{name}\s*=\s*(\S*)", config, re.MULTILINE | re.IGNORECASE)
    return match[1] if match else None


def _enforced(setting: str) -> set[str]:
    words = [word for word in setting.lower().split(",") if word in BRINGS]
    return set().union(*(BRINGS[word] for word in words))


def _needed(declared: Declared) -> list[str]:
    limits = {
        prop.word
        for known in (properties.QOS, properties.ASSOCIATION)
        for prop in known
        if not prop.option
    }
    needed = ["associations"] if declared.accounts or declared.users else []
    if any(word in limits and value is not None for word, value in declared.limits()):
        needed.append("limits")
    if declared.qos:
        needed.append("qos")
    return needed


def unenforced(
    config: str,
    accounts: Sequence[Entry],
    qos: Sequence[Entry],
    users: Sequence[Entry],
    *,
    enforce: bool = True,
) -> str:
    """What slurmctld does not hold jobs to, and what has no weight, in a sentence each.

    A site that does not want its declaration enforced is not told that it is not.
    """
    declared, _ = read(accounts, qos, users)
    sentences = [_unheld(config, declared)] if enforce else []
    sentences += _weightless(config, accounts, qos, users)
    return " ".join(filter(None, sentences))


def _unheld(config: str, declared: Declared) -> str:
    setting = _setting(config, "AccountingStorageEnforce")
    if setting is None:
        return ""
    missing = [word for word in _needed(declared) if word not in _enforced(setting)]
    if not missing:
        return ""
    return (
        f"Declared and not enforced: AccountingStorageEnforce is {setting or 'none'}, without "
        f"{' and '.join(missing)}; set it to associations,limits,qos,safe in slurm_settings."
    )


def _weightless(
    config: str, accounts: Sequence[Entry], qos: Sequence[Entry], users: Sequence[Entry]
) -> list[str]:
    """Shares and priorities that Slurm keeps, and whose weight in a job's priority is none."""
    kind = _setting(config, "PriorityType")
    if kind is None:
        return []
    of_associations = [
        *accounts,
        *users,
        *(association for user in users for association in _of(user)),
    ]
    reasons = []
    for what, setting, entries in (
        ("fairshare", "PriorityWeightFairshare", of_associations),
        ("priority", "PriorityWeightAssoc", of_associations),
        ("priority", "PriorityWeightQOS", qos),
    ):
        if not any(entry.get(what) not in (None, -1, "-1") for entry in entries):
            continue
        if kind != "priority/multifactor":
            reasons.append(
                f"{what} counts nothing: PriorityType is {kind}, not priority/multifactor"
            )
        elif _setting(config, setting) == "0":
            reasons.append(f"{what} counts nothing: {setting} is 0")
    if not reasons:
        return []
    clauses = ", ".join(dict.fromkeys(reasons))
    return [f"Declared and without effect: {clauses}; set what it is to count in slurm_settings."]


def _of(user: Entry) -> list[Entry]:
    """What a user has otherwise in some accounts."""
    return list((user.get("per_account") or {}).values())


def not_asked(config: str) -> bool:
    """Whether slurmctld is in use, has accounting, and does not ask for associations yet."""
    setting = _setting(config, "AccountingStorageEnforce")
    kind = _setting(config, "AccountingStorageType")
    return setting is not None and kind == DATABASE and not _enforced(setting)


def locked_out(answer: str, users: Sequence[Entry]) -> str:
    """Who has jobs and would be let in no more, in one sentence; empty for nobody.

    `answer` has a line `job USER` for each user with jobs, `user USER` for each who is known.
    """
    lines = [line.partition(" ")[::2] for line in answer.splitlines()]
    known = {name for kind, name in lines if kind == "user"}
    known |= {str(user.get("name")) for user in users}  # in check mode they are not there yet
    left = sorted({name for kind, name in lines if kind == "job" and name} - known)
    if not left:
        return ""
    more = f" and {len(left) - MOST_USERS} more" if len(left) > MOST_USERS else ""
    return (
        f"{ROLE}: users who have jobs have no association ({', '.join(left[:MOST_USERS])}{more}), "
        "and would be locked out once Slurm asks for one; declare them in slurm_users, add them "
        "with sacctmgr, or set slurm_associations_enforce to false until that is done."
    )
