"""Gives a refusal its place: file and line of the first thing in it that the site wrote.

Refusals of values bring their place. Those of roles, and of rules on names, groups and addresses,
only name a variable, a host or a group: that is looked up in the site's files here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.inventory import detect_range, expand_hostname_range

from cluster.hostlist import HostlistError, expand
from playbooks.plugin_utils.origin import comes_from, lines, shown, where_set
from playbooks.plugin_utils.site import Site, source_paths
from playbooks.plugin_utils.values import value_reads
from playbooks.plugin_utils.variable_files import inventory_files

_VARIABLE = re.compile(r"\b([a-z][a-z0-9_]*_[a-z0-9_]+|fabric)((?:\[\d+\]|\.[A-Za-z][\w-]*)*)")
_STEP = re.compile(r"\[(\d+)\]|\.([\w-]+)")
_WORD = re.compile(r"[^\s,;:()'\"]+(?:\[[^\]\s]*\][^\s,;:()'\"]*)*")
_KEY = re.compile(r"[^\s{}'\"#,=]*[^\s{}'\"#,:=]")  # of YAML and INI, as far as names of hosts go


def placed(sentences: Sequence[str], site: Site, ours: Path) -> list[str]:
    """The sentences, each with a place; `ours` is the folder of the values that we ship."""
    folders = [str(path if path.is_dir() else path.parent) for path in source_paths(site.sources)]
    known = [*folders, *map(shown, folders)]
    return [
        sentence
        if any(f"{folder}/" in sentence for folder in known)
        else _placed(sentence, site, ours)
        for sentence in sentences
    ]


def _placed(sentence: str, site: Site, ours: Path) -> str:
    named = list(_named(sentence, site))
    for match in _VARIABLE.finditer(sentence):
        if where := _where(site, match[1], match[2], named, ours):
            return f"{where}: {sentence}"
    if where := _of_role(sentence, site, ours):
        return f"{where}: {sentence}"
    wanted = [*named, *(word for word in _WORD.findall(sentence) if word in site.groups)]
    written = [path for source in source_paths(site.sources) for path in _files(source)]
    for name in wanted:
        for path in written:
            if line := _line(path, name):
                return f"{shown(str(path))}:{line}: {sentence}"
    return f"{shown(str(written[0]))}: {sentence}" if written else sentence


def _of_role(sentence: str, site: Site, ours: Path) -> str:
    """Of `ROLE: …`, where the first of the role's variables is set that has a word of the rest."""
    role, colon, rest = sentence.partition(": ")
    if not colon or not role.isidentifier():
        return ""
    words = {word for word in _WORD.findall(rest) if len(word) > 2}
    for host in site.names[:1]:
        raw = site.values.hosts[host]
        for name in sorted(name for name in raw if name.startswith(f"{role}_")):
            names = value_reads(raw[name]).names if comes_from(raw[name], ours) else {name}
            for inner in sorted(names):
                if inner in raw and not comes_from(raw[inner], ours):
                    text = {word.strip("[]{}") for word in _WORD.findall(str(raw[inner]))}
                    if words & text:
                        return _where(site, inner, "", [host], ours)
    return ""


def _files(source: Path) -> list[Path]:
    return list(inventory_files(source)) or [source]


def _named(sentence: str, site: Site) -> Iterator[str]:
    """Hosts that a sentence names, the first of each range."""
    known = site.manager.hosts
    for word in _WORD.findall(sentence):
        if word in known:
            yield word
        elif "[" in word:
            try:
                yield from (name for name in expand(word)[:1] if name in known)
            except HostlistError:
                continue


def _where(site: Site, name: str, path: str, named: Sequence[str], ours: Path) -> str:
    """Where a variable of the site, or what lies inside of it, is written."""
    for host in dict.fromkeys([*named, *site.names]):
        raw: Mapping[str, Any] = site.values.hosts.get(host, {})
        if name not in raw:
            continue
        if comes_from(raw[name], ours):  # and may hand on what a site says
            for inner in sorted(value_reads(raw[name]).names):
                if inner in raw and not comes_from(raw[inner], ours):
                    return _where(site, inner, path, [host], ours)
            continue
        found = value = raw[name]
        for number, key in _STEP.findall(path):
            try:
                value = value[int(number)] if number else value[key]
            except (LookupError, TypeError, ValueError):
                break
            found = value if value not in (None, True, False) else found
        where = where_set(name, found, site.sources, site.owners(host))
        return where.removeprefix(" (set in ").removesuffix(")")
    return ""


def _line(path: Path, name: str) -> int:
    """The line that names a host or a group, alone or in a range; 0 for none."""
    for number, line in enumerate(lines(str(path)), start=1):
        for word in _KEY.findall(line.partition(" #")[0]):
            if word == name:
                return number
            if detect_range(word) and word.partition("[")[0] == name[: word.index("[")]:
                try:
                    if name in expand_hostname_range(word):
                        return number
                except AnsibleError:
                    continue
    return 0
