"""Fair shares, from sshare, in columns. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from roles.slurm_exporter.files.slurm_exporter.words import Nonsense

COLUMNS = ("Account", "User", "FairShare")
COMMAND = ("sshare", "--all", "--noheader", "--parsable2", "--format=" + ",".join(COLUMNS))


@dataclass(frozen=True)
class Share:
    """Of a user in an account; `user` is empty for the account's own. fairshare is 0 to 1."""

    account: str
    user: str
    fairshare: float


def parse(text: str) -> tuple[Share, ...]:
    """Rows without a factor, those of accounts under Fair Tree, are left out. Raises Nonsense.

    A user may be in an account once for each partition; the best of them is what he can have.
    """
    rows = [_row(line) for line in text.splitlines() if line.strip()]
    if not rows:
        raise Nonsense("sshare lists no association; has Slurm an accounting database?")
    best: dict[tuple[str, str], float] = {}
    for account, user, factor in rows:
        if factor is not None:
            best[account, user] = max(factor, best.get((account, user), 0.0))
    return tuple(Share(account, user, factor) for (account, user), factor in best.items())


def _row(line: str) -> tuple[str, str, float | None]:
    cells = [cell.strip() for cell in line.split("|")]
    if len(cells) != len(COLUMNS) or not cells[0]:
        raise Nonsense(f"{line[:80]!r} is no row of an association")
    account, user, factor = cells
    if not factor:
        return account, user, None
    try:
        value = float(factor)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Nonsense(f"the fair share of {account} {user} is {factor!r}")
    return account, user, value
