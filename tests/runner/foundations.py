"""Which of the roles below a role are to be applied to a node where others were tested before it.

A role takes its variables from those with its own prefix. What was applied with the same ones, and
was not tested since, is as it would be after another run: tests leave what they did not make.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Variables = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Applied:
    """What is on the node that a folder of secrets and inventories is for; it ends with them."""

    folder: Path

    @property
    def _file(self) -> Path:
        return self.folder / "applied.json"

    def _read(self) -> dict[str, Any]:
        return dict(json.loads(self._file.read_text())) if self._file.exists() else {}

    def again(self, role: str, variables: Variables) -> list[str]:
        """Those below a role that are to be applied, in their order.

        From here on nobody knows how they are, until `note`: the run may die.
        """
        known = self._read()
        below = list(variables.get("scenario_builds_on", ()))
        again = [name for name in below if known.get(name) != _read_by(name, role, variables)]
        kept = {name: known[name] for name in known if name not in {role, *again}}
        self._file.write_text(json.dumps(kept))
        return again

    def note(self, role: str, variables: Variables) -> None:
        """They are applied. The role itself is not among them: its tests try other variables."""
        below = variables.get("scenario_builds_on", ())
        applied = {name: _read_by(name, role, variables) for name in below}
        self._file.write_text(json.dumps(self._read() | applied))


def _read_by(name: str, role: str, variables: Variables) -> dict[str, Any]:
    """The variables in the molecule.yml of `role` that the role `name` reads.

    Of `slurm` also those of `slurm_database` and the like, whose names begin in the same way. What
    a template makes may differ from scenario to scenario, so it is this scenario's alone.
    """
    read = {key: value for key, value in variables.items() if key.startswith(f"{name}_")}
    return read | {"scenario": role} if "{{" in json.dumps(read) else read
