"""The contract as data: cluster/contract.yml, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("contract.yml")

ROOT = "slurm_cluster"
CONTROLLER = "slurm_controller"
DATABASE = "slurm_database"
LOGIN = "slurm_login"
COMPUTE = "slurm_compute"

Option = Mapping[str, Any]  # as in a role's argument spec


@dataclass(frozen=True, slots=True)
class Group:
    meaning: str
    needed: bool
    within: str = ROOT  # the group that all of its hosts are in


@dataclass(frozen=True, slots=True)
class Contract:
    groups: Mapping[str, Group]
    variables: Mapping[str, Option]  # what a site may set
    derived: frozenset[str]  # variables that we work out
    one_value: frozenset[str]  # names of variables with one value in the whole cluster
    switches: frozenset[str]  # bools that may come as text, from a command line
    hardware: tuple[str, ...]
    words: tuple[str, ...]
    gpu_models: tuple[str, ...]
    fabrics: tuple[str, ...]
    silenceable: Mapping[str, str]
    peers: Mapping[str, tuple[str, ...]]  # groups, by the word for their hosts


def load(path: Path = PATH) -> Contract:
    """The contract in a file. Raises KeyError, OSError or YAMLError; a test reads ours."""
    import yaml

    document = yaml.load(
        path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.Loader)
    )
    variables = document["variables"]
    return Contract(
        groups={name: Group(**entry) for name, entry in document["inventory_groups"].items()},
        variables={
            name: {key: value for key, value in entry.items() if key != "scope"}
            for name, entry in variables.items()
            if not entry.get("made")
        },
        derived=frozenset(name for name, entry in variables.items() if entry.get("made")),
        one_value=frozenset(document["one_value"])
        | {
            name
            for name, entry in variables.items()
            if entry["scope"] == "cluster" and not entry.get("made")
        },
        switches=frozenset(document["switches"]),
        hardware=tuple(document["hardware"]),
        words=tuple(document["words"]),
        gpu_models=tuple(document["gpu_models"]),
        fabrics=tuple(document["fabrics"]),
        silenceable=document["silenceable"],
        peers={word: tuple(entry["groups"]) for word, entry in document["peers"].items()},
    )
