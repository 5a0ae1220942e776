"""What depends on a GPU's model: the table in cluster/gpus.yml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("gpus.yml")

OPEN, PROPRIETARY = "open", "proprietary"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A model. Of one that is a site's own nothing is known, and so nothing is excluded.

    modules        NVIDIA's kernel modules that run it, the better ones first
    first_branch   of the driver that runs it; 0 where any does that we know
    last_branch    the same; 0 where no end is known
    nvswitch       how many GPUs a board has that has NVSwitches too
    """

    model: str
    generation: str = ""
    modules: tuple[str, ...] = (OPEN, PROPRIETARY)
    first_branch: int = 0
    last_branch: int = 0
    grace: bool = False
    nvlink5: bool = False
    nvswitch: tuple[int, ...] = ()

    def branch_problem(self, branch: int) -> str:
        """Why no driver of a branch runs it, as the end of a sentence; empty where one does."""
        if branch < self.first_branch:
            limit = f"{self.first_branch} is the first"
        elif self.last_branch and branch > self.last_branch:
            limit = f"{self.last_branch} is the last"
        else:
            return ""
        return f"no such driver runs {self.model} ({self.generation}), for which {limit}"


@cache
def _document() -> dict[str, Any]:
    import yaml

    document: dict[str, Any] = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return document


@cache
def known() -> dict[str, Gpu]:
    """All models of the table."""
    table = _document()
    models = {}
    for generation, of in table["generations"].items():
        for model in of["models"]:
            grace = model in table["grace"]
            models[model] = Gpu(
                model=model,
                generation=generation,
                modules=(OPEN,) if grace else tuple(of["modules"]),
                first_branch=of.get("first_branch", 0),
                last_branch=of.get("last_branch", 0),
                grace=grace,
                nvlink5=model in table["nvlink5"],
                nvswitch=tuple(table["nvswitch"].get(model, ())),
            )
    return models


def gpu(model: str) -> Gpu:
    return known().get(model, Gpu(model))


def branches() -> tuple[int, ...]:
    """The branches of the driver that we know, oldest first."""
    return tuple(_document()["branches"])


def newer_branch(branch: int) -> str:
    """What to say of a branch that came after those that we know; empty for any other."""
    last = branches()[-1]
    if branch <= last:
        return ""
    return f"{branch} is newer than {last}, the last that we know; it is taken to be like that one"


def modules_problem(modules: str, branch: int) -> str:
    """Why a branch has no such kernel modules, as the end of a sentence; empty where it has."""
    last = int(_document()["proprietary_last_branch"])
    if modules != PROPRIETARY or branch <= last:
        return ""
    return f"NVIDIA's proprietary kernel modules end with branch {last}"
