"""Settings of Slurm's files, name to value, as a site writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
NOWHERE: Mapping[str, str] = {}


def text(value: Any) -> str:
    """A value as slurm.conf has it; nothing is empty."""
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ",".join(map(text, value))
    return str(value)


def merged(own: Mapping[str, Any], site: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a file: a role's and a site's, which wins and removes with an empty value."""
    replaced = {name.lower() for name in site}
    kept = {name: value for name, value in own.items() if name.lower() not in replaced}
    return {name: text(value) for name, value in {**kept, **site}.items() if text(value)}


def added(components: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What roles that come later add to a file, by name; what is no component adds nothing."""
    return {
        name: value
        for component in components.values()
        if isinstance(component, Mapping)
        for name, value in (component.get("settings") or {}).items()
    }


# --- what is wrong, as sentences -----------------------------------------------------------------


def value_problems(where: str, value: Any) -> Iterator[str]:
    """A value that YAML has read as something else than was meant, or that breaks the file."""
    if isinstance(value, bool):
        yield (
            f"{where} is {str(value).lower()}, which YAML made of yes, no, on, off, true or false; "
            "put the word that Slurm wants in quotes."
        )
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from value_problems(where, entry)
    elif isinstance(value, Mapping):
        yield f"{where} is a mapping; give one value, or a list."
    elif re.search(r"[\n#]", text(value)):
        yield f"{where} has a line break or a # in it, which ends a line of Slurm's; remove it."


def mapping_problems(
    where: str, settings: Any, elsewhere: Mapping[str, str] = NOWHERE
) -> Iterator[str]:
    """Keys and values of a mapping that becomes words `Key=value`."""
    if not isinstance(settings, Mapping):
        yield f"{where} is {settings!r}; it must be a mapping, name to value."
        return
    for name, value in settings.items():
        if not NAME.fullmatch(str(name)):
            yield f"{where} has the key {name!r}, which is no name; write it as Slurm does."
        elif (instead := elsewhere.get(str(name).lower())) is not None:
            yield f"{where}.{name} is not for this place; set {instead}."
        else:
            yield from value_problems(f"{where}.{name}", value)
    for twice in _same_but_for_case(settings):
        yield f"{where} has {twice}, which Slurm takes for one setting; leave one of them."


def _same_but_for_case(names: Mapping[str, Any]) -> Iterator[str]:
    spelt: dict[str, list[str]] = {}
    for name in names:
        spelt.setdefault(str(name).lower(), []).append(str(name))
    return (" and ".join(same) for same in spelt.values() if len(same) > 1)


def component_problems(
    components: Mapping[str, Any],
    role: str,
    own: Mapping[str, Any],
    site: Mapping[str, Any],
    elsewhere: Mapping[str, str] = NOWHERE,
) -> list[str]:
    """What is wrong with what roles add to the file of `role`.

    The last word is the site's, so what it sets is no disagreement.
    """
    problems = []
    values = {name.lower(): (f"the role {role}", text(value)) for name, value in own.items()}
    decided = {str(name).lower() for name in site} if isinstance(site, Mapping) else set()
    for part, component in components.items():
        who = f"{role}_component_{part}"
        if not isinstance(component, Mapping) or set(component) - {"settings", "files"}:
            problems.append(f"{who} must be a mapping with settings and files, and nothing else.")
            continue
        settings = component.get("settings") or {}
        if wrong := list(mapping_problems(f"{who}.settings", settings, elsewhere)):
            problems += wrong
            continue
        for name, value in settings.items():
            first, before = values.setdefault(name.lower(), (who, text(value)))
            if before != text(value) and name.lower() not in decided:
                problems.append(
                    f"{first} sets {name} to {before}, and {who} sets it to {text(value)}; "
                    f"decide with {name} in {role}_settings."
                )
    return problems
