"""Whether slurmctld holds jobs to what is declared."""

from __future__ import annotations

import re
from collections.abc import Sequence

from roles.slurm_associations.plugin_utils import properties
from roles.slurm_associations.plugin_utils.declared import Declared, Entry, read

# slurm.conf(5), AccountingStorageEnforce: what each word brings along.
BRINGS = {
    "associations": {"associations"},
    "limits": {"associations", "limits"},
    "qos": {"associations", "qos"},
    "safe": {"associations", "limits", "safe"},
    "wckeys": {"associations", "wckeys"},
    "all": {"associations", "limits", "qos", "safe"},
}
SETTING = re.compile(r"^AccountingStorageEnforce\s*=\s*(\S*)", re.MULTILINE)


def _needed(declared: Declared) -> list[str]:
    limits = {
        one.word
        for known in (properties.QOS, properties.ASSOCIATION)
        for one in known
        if not one.option
    }
    needed = ["associations"] if declared.accounts or declared.users else []
    if any(word in limits and value is not None for word, value in declared.limits()):
        needed.append("limits")
    if declared.qos:
        needed.append("qos")
    return needed


def unenforced(
    config: str, accounts: Sequence[Entry], qos: Sequence[Entry], users: Sequence[Entry]
) -> str:
    """What slurmctld does not hold jobs to, in one sentence; empty where it does all of it.

    `config` is what `scontrol show config` prints; nothing is said of a slurmctld that is silent.
    """
    match = SETTING.search(config)
    if not match:
        return ""
    words = [word for word in match[1].lower().split(",") if word in BRINGS]
    has: set[str] = set().union(*(BRINGS[word] for word in words))
    declared, _ = read(accounts, qos, users)
    missing = [word for word in _needed(declared) if word not in has]
    if not missing:
        return ""
    return (
        f"Declared and not enforced: AccountingStorageEnforce is {match[1] or 'none'}, without "
        f"{' and '.join(missing)}; set it to associations,limits,qos,safe in slurm_settings."
    )
