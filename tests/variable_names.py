"""The names of all variables that a site may set, as tests/variable_names.txt remembers them.

    python -m tests.variable_names     adds those of now; nothing leaves the file

A name that is there and no variable any more has to be in cluster/removed_variables.yml, so that
no variable goes without a word.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from cluster import contract
from playbooks.plugin_utils.variables import read_specs

REPOSITORY = Path(__file__).resolve().parent.parent
REMEMBERED = Path(__file__).with_suffix(".txt")


def of_now() -> set[str]:
    """Options of roles, variables of the contract, and what group_vars set for sites."""
    names = {name for options in read_specs(REPOSITORY / "roles").values() for name in options}
    names |= set(contract.load().variables)
    for path in (REPOSITORY / "group_vars").rglob("*.yml"):
        names |= set(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    return {name for name in names if not name.startswith("__")} - contract.load().derived


def remembered() -> set[str]:
    return set(REMEMBERED.read_text(encoding="utf-8").split())


def main() -> None:
    names = sorted(of_now() | remembered())
    REMEMBERED.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


if __name__ == "__main__":
    main()
