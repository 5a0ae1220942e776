"""slurm.conf's settings, put together from the role, from components and from the site.

A component is a role that comes later, or a site's own addition. It contributes

    settings     slurm.conf(5): name -> value
    settings_where_known  the same, left out for a Slurm whose release does not read them
    plugstack    lines of plugstack.conf
    prolog       scripts, each {name, content}; they run on compute nodes
    epilog       the same
    task_prolog  the same, run by each task's user; they print `export NAME=value` for the task
    gres         lines of gres.conf, each a mapping such as {Name: gpu, File: /dev/nvidia0}
    slurmctld_files  what slurmctld reads at its start because of these settings, such as a key

Lists (PrologFlags, SlurmctldParameters …) are the union of what all ask for, the site included
(but see ALTERNATIVES and SITES_ALONE). Two values for anything else are a conflict, which only the
site can decide: what it sets wins over everybody. In a list `bf_window=60` of the site's takes the
place of anybody's bf_window, `-defer` takes defer away, and an empty value removes the setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.slurm.keys import (
    NONE,
    File,
    Release,
    additions,
    entries,
    lists,
    read,
    taken_away,
)
from cluster.slurm.settings import mapping_problems, text

Settings = Mapping[str, Any]
Components = Mapping[str, Mapping[str, Any]]

ROLE = "the role slurm"

# What is made from something else, and from what.
ELSEWHERE = {
    "accountingstoragebackuphost": "slurm_accounting_backup_host",
    "accountingstoragehost": "slurm_accounting_host",
    "accountingstorageport": "slurm_accounting_port",
    "backupaddr": "slurm_controllers",
    "backupcontroller": "slurm_controllers",
    "clustername": "slurm_cluster_name",
    "controladdr": "slurm_controllers",
    "controlmachine": "slurm_controllers",
    "include": "slurm_settings for settings",
    "nodename": "slurm_nodes",
    "partitionname": "slurm_partitions",
    "slurmctldhost": "slurm_controllers",
    "statesavelocation": "slurm_state_save_location",
    "topologyplugin": "slurm_topology",
}

SCRIPTS = ("prolog", "epilog", "task_prolog")
SETTINGS = ("settings", "settings_where_known")
PARTS = (*SETTINGS, "plugstack", *SCRIPTS, "gres", "slurmctld_files")
SCRIPT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

# Lists that say how strict Slurm is: a site that sets one may want less than anybody asks for.
SITES_ALONE = frozenset({"accountingstorageenforce"})
# Lists whose words stand for each other (CR_CPU for CR_Core): a site's replaces the role's.
ALTERNATIVES = frozenset(
    {
        "propagateresourcelimits",
        "propagateresourcelimitsexcept",
        "selecttypeparameters",
        "taskplugin",
    }
)


def union(values: Sequence[Any]) -> str:
    """Every entry once, in the order in which they came; case does not tell two apart."""
    united: dict[str, str] = {}
    for value in values:
        for entry in entries(value):
            united.setdefault(entry.lower(), entry)
    return ",".join(united.values())


def contributed(own: Settings, components: Components) -> Iterator[tuple[str, str, Any]]:
    """(who, name, value) of each setting that the role or a component asks for."""
    for name, value in own.items():
        yield ROLE, name, value
    for who, component in components.items():
        for part in SETTINGS:
            for name, value in (component.get(part) or {}).items():
                yield f"slurm_component_{who}", name, value


def composed(
    own: Settings, components: Components, site: Settings, installed: Release = NONE
) -> dict[str, str]:
    """The settings by name, sorted; what ends up empty is left out.

    What the role and its components can do without is left out where the release that was found
    does not read it. Where two disagree, the last one stands; `setting_problems` tells of it.
    """
    spelling: dict[str, str] = {}
    values: dict[str, list[Any]] = {}
    known = {
        who: {**part, "settings_where_known": _read(part.get("settings_where_known"), installed)}
        for who, part in components.items()
        if isinstance(part, Mapping)  # what is none is told by others
    }
    for _, name, value in contributed(_read(own, installed), known):
        key = name.lower()
        spelling.setdefault(key, name)
        values.setdefault(key, []).append(value)
    result = {
        key: union(all_) if key in lists() else text(all_[-1]) for key, all_ in values.items()
    }
    for name, value in site.items():
        key = name.lower()
        spelling[key] = name
        result[key] = (
            _united(value, _asked(key, own, known, installed)) if key in lists() else text(value)
        )
    return {spelling[key]: value for key, value in sorted(result.items()) if value}


def _asked(key: str, own: Settings, components: Components, installed: Release | None) -> list[str]:
    """What others ask for of a list that the site sets; without a release, all of them."""
    if key in SITES_ALONE:
        return []
    role = {} if key in ALTERNATIVES else own if installed is None else _read(own, installed)
    return [
        entry
        for _, name, value in contributed(role, components)
        if name.lower() == key
        for entry in entries(value)
    ]


def _united(value: Any, asked: Sequence[str]) -> str:
    """A site's list with what others ask for; an option that it names is the site's."""
    if not entries(value):
        return ""
    decided = _options(value)
    return union([additions(value), *(entry for entry in asked if not _options(entry) & decided)])


def _options(value: Any) -> set[str]:
    """What a list decides: the options that it has, and those that it takes away."""
    return {entry.partition("=")[0].lower() for entry in (*additions(value), *taken_away(value))}


def _read(settings: Settings | None, installed: Release) -> Settings:
    return read(settings or {}, File.SLURM, installed)


def is_set(components: Components, site: Settings, name: str) -> bool:
    """Whether a component or the site gives a setting a value; what is no mapping asks nothing."""
    values = {}
    for settings in (*(_settings_of(part) for part in components.values()), site):
        if isinstance(settings, Mapping):
            values.update({str(key).lower(): value for key, value in settings.items()})
    return bool(text(values.get(name.lower())))


def _settings_of(component: Any) -> Any:
    return component.get("settings") if isinstance(component, Mapping) else None


def plugstack(components: Components) -> list[str]:
    """The lines of plugstack.conf, each once."""
    lines = [line for part in components.values() for line in part.get("plugstack") or []]
    return list(dict.fromkeys(str(line).strip() for line in lines))


def scripts(components: Components, kind: str) -> dict[str, str]:
    """Name -> content of the scripts of one kind, one of SCRIPTS."""
    return {
        script["name"]: script["content"]
        for part in components.values()
        for script in part.get(kind) or []
    }


def script_files(components: Components, task_prolog: str) -> dict[str, str]:
    """Path below /etc/slurm -> content of all scripts; `task_prolog` runs those of its kind."""
    files = {
        f"{kind}.d/{name}": content
        for kind in SCRIPTS
        for name, content in scripts(components, kind).items()
    }
    return files | ({"bin/task_prolog": task_prolog} if scripts(components, "task_prolog") else {})


# --- what is wrong, as sentences -----------------------------------------------------------------


def setting_problems(own: Settings, components: Components, site: Settings) -> list[str]:
    """Everything that is wrong with settings and components."""
    problems = [*mapping_problems("slurm_settings", site, ELSEWHERE)]
    for name, component in components.items():
        problems += component_problems(name, component)
    if not problems:
        problems += conflicts(own, components, site)
        problems += taken_from_nobody(own, components, site)
        problems += script_conflicts(components)
    return problems


def component_problems(name: str, component: Any) -> Iterator[str]:
    where = f"slurm_component_{name}"
    if not isinstance(component, Mapping):
        yield f"{where} is {component!r}; it must be a mapping with some of {', '.join(PARTS)}."
        return
    for key in component:
        if key not in PARTS:
            yield f"{where} has the key {key!r}; it may have {', '.join(PARTS)}."
    for part in SETTINGS:
        yield from mapping_problems(f"{where}.{part}", component.get(part) or {}, ELSEWHERE)
    for line in component.get("plugstack") or []:
        if not isinstance(line, str) or "\n" in line:
            yield f"{where}.plugstack has {line!r}; it must be a list of lines."
    for kind in SCRIPTS:
        for script in component.get(kind) or []:
            yield from _script_problems(f"{where}.{kind}", script)
    for entry in component.get("gres") or []:
        yield from mapping_problems(f"{where}.gres", entry)


def _script_problems(where: str, script: Any) -> Iterator[str]:
    if not isinstance(script, Mapping) or set(script) != {"name", "content"}:
        yield f"{where} has {script!r}; each script is {{name: …, content: …}}."
    elif not SCRIPT.fullmatch(str(script["name"])):
        yield f"{where} has a script named {script['name']!r}; take letters, digits and dashes."
    elif not str(script["content"]).startswith("#!"):
        yield f"{where}: the script {script['name']} does not begin with #!; name its interpreter."


def conflicts(own: Settings, components: Components, site: Settings) -> Iterator[str]:
    """Settings that two ask for with different values, and that the site did not decide."""
    decided = {name.lower(): _options(value) for name, value in site.items()}
    claims: dict[str, tuple[str, str, str]] = {}
    for who, name, value in contributed(own, components):
        listed = name.lower() in lists()
        options = decided.get(name.lower())
        if options is not None and not (listed and options):
            continue
        for word, wanted in _claims(name, value, listed):
            if options and word.rpartition(" ")[2] in options:
                continue
            before = claims.setdefault(word, (who, name, wanted))
            if before[2] != wanted and before[0] != who:
                yield (
                    f"{before[0]} sets {before[1]} to {before[2]}, and {who} sets it to {wanted}; "
                    f"decide with {before[1]} in slurm_settings."
                )


def taken_from_nobody(own: Settings, components: Components, site: Settings) -> Iterator[str]:
    """Words that a site takes away and that nobody asks for: they are misspelt, or of the past."""
    for name, value in site.items():
        taken = taken_away(value) if name.lower() in lists() else []
        asked = union(_asked(name.lower(), own, components, None)) if taken else ""
        for word in taken:
            if not _options(word) & _options(asked):
                yield (
                    f"slurm_settings.{name} takes {word} away, and the list without it is "
                    f"{asked or 'empty'}; remove -{word}."
                )


def _claims(name: str, value: Any, listed: bool) -> Iterator[tuple[str, str]]:
    """(what is claimed, value): a setting, or in a list each `option=value` of it."""
    if not listed:
        yield name.lower(), text(value)
        return
    for entry in entries(value):
        option, separator, _ = entry.partition("=")
        if separator:
            yield f"{name.lower()} {option.lower()}", entry


def script_conflicts(components: Components) -> Iterator[str]:
    """Scripts of one name from two components: one would replace the other."""
    for kind in SCRIPTS:
        owner: dict[str, str] = {}
        for who, part in components.items():
            for script in part.get(kind) or []:
                first = owner.setdefault(script["name"], who)
                if first != who:
                    yield (
                        f"slurm_component_{first} and slurm_component_{who} both bring a {kind} "
                        f"script named {script['name']}; rename one."
                    )
