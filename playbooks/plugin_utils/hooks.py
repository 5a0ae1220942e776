"""A site's own playbooks before and after layers: which there are, and between which plays.

`inventory/site.hooks/before-slurm.yml` belongs to `-i inventory/site` and the layer slurm.yml. They
lie beside the inventory, not in it: Ansible would read them as an inventory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

SUFFIX = ".hooks"
NAME = re.compile(r"(before|after)-(.+)\.ya?ml")
# Of slurm-cluster.yml, what is no layer: it refuses, or drains what another part left.
NO_LAYERS = frozenset({"preflight", "hold", "unfit-nodes", "return-nodes"})

Files = Mapping[str, Path]  # "before-slurm" -> its playbook


class HookError(ValueError):
    """What cannot be a hook, in one sentence."""


def layers(imported: Iterable[str]) -> list[str]:
    """The names of layers, from the files that slurm-cluster.yml imports."""
    names = (Path(name).stem for name in imported)
    return list(dict.fromkeys(name for name in names if name not in NO_LAYERS))


def folder(sources: Sequence[str]) -> Path | None:
    """The folder of hooks beside the inventories of a run. Raises HookError for several."""
    paths = [Path(source) for source in sources if "," not in source]
    places = (path.with_name(f"{path.name}{SUFFIX}") for path in paths if path.name)
    found = [place for place in dict.fromkeys(places) if place.is_dir()]
    if len(found) > 1:
        raise HookError(
            f"{' and '.join(map(str, found))} both have playbooks of the site; leave one of them."
        )
    return found[0] if found else None


def files(place: Path, known: Sequence[str]) -> Files:
    """The playbooks in the folder. Raises HookError for one that no layer would run."""
    found: dict[str, Path] = {}
    for path in sorted(place.iterdir()):
        if path.suffix not in (".yml", ".yaml") or not path.is_file():
            continue
        match = NAME.fullmatch(path.name)
        if not match or match[2] not in known:
            raise HookError(
                f"{path} would never run; name it before-LAYER.yml or after-LAYER.yml, with one "
                f"of the layers {', '.join(known)}, or put it into a folder there."
            )
        if found.setdefault(path.stem, path) != path:
            raise HookError(f"{found[path.stem]} and {path} are for one place; leave one of them.")
    return found


def places(layer_of_plays: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(place, hook) for each run of plays of one layer: the index before which its plays go.

    layer_of_plays: the layer of each play of a run, "" for a play of none
    """
    for index, layer in enumerate([*layer_of_plays, ""]):
        before = layer_of_plays[index - 1] if index else ""
        if layer != before:
            if before:
                yield index, f"after-{before}"
            if layer:
                yield index, f"before-{layer}"
