"""The limit that keeps one user from filling slurmctld's queue for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roles.slurm_associations.plugin_utils.declared import ROOT

WORD = "MaxSubmitJobs"
WORDS = (WORD.lower(), "maxsubmit")


def limited(accounts: Sequence[Any], limit: int) -> list[Any]:
    """The accounts, with a limit of each user's jobs where a site set none; 0 adds none.

    Accounts at the top have it, and those below inherit it, their users too.
    """
    return [
        {**account, "limits": {**(account.get("limits") or {}), WORD: limit}}
        if limit and _at_the_top(account)
        else account
        for account in accounts
    ]


def _at_the_top(account: Any) -> bool:
    """What is no account, or has no sound limits, is told by others."""
    if not isinstance(account, Mapping) or account.get("name") == ROOT:
        return False
    limits = account.get("limits") or {}
    if account.get("parent") not in (None, "", ROOT) or not isinstance(limits, Mapping):
        return False
    return not any(str(word).lower() in WORDS for word in limits)
