"""Dashboards as files: the role's own, and those of a site; each in a folder of Grafana.

Grafana takes one dashboard for each `uid`, and one for each title in a folder; of any further one
it writes a line into its log and shows what it had.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

FOLDER = "Plumbline"  # of the role's own dashboards

_UID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_FOLDER = re.compile(r"\w[\w .-]*")


@dataclass(frozen=True)
class Dashboard:
    """A file, the folder that it is shown in, and what is in it: no document if it is no JSON."""

    path: PurePath
    folder: str
    text: str
    document: Any = None
    wrong: str = ""

    @property
    def uid(self) -> str:
        return str(self._value("uid"))

    @property
    def title(self) -> str:
        return str(self._value("title"))

    def _value(self, key: str) -> Any:
        return (self.document.get(key) if isinstance(self.document, dict) else None) or ""


def own(texts: Mapping[str, str]) -> list[Dashboard]:
    """The role's own, by the name of the file of each."""
    return [_parsed(PurePath(name), FOLDER, text) for name, text in sorted(texts.items())]


def read(folders: Mapping[str, Path]) -> list[Dashboard]:
    """Every *.json of a site's folders, in order. Raises OSError."""
    return [
        _parsed(path, name, path.read_text(encoding="utf-8", errors="replace"))
        for name, folder in folders.items()
        for path in sorted(folder.glob("*.json"))
    ]


def _parsed(path: PurePath, folder: str, text: str) -> Dashboard:
    try:
        return Dashboard(path, folder, text, json.loads(text))
    except ValueError as error:
        return Dashboard(path, folder, text, wrong=f"is no JSON: {error}")


def files(dashboards: list[Dashboard]) -> dict[str, str]:
    """Text of each file, by its path below the provider's folder."""
    return {f"{dashboard.folder}/{dashboard.path.name}": dashboard.text for dashboard in dashboards}


def folder_problems(folders: Mapping[str, str]) -> Iterator[str]:
    """Clauses with their subject: folders of a site that are none."""
    for name, path in folders.items():
        if not _FOLDER.fullmatch(name):
            yield f"{name!r} is no name of a folder; give it letters, digits, spaces, - and _"
        elif name == FOLDER:
            yield f"{name} is the folder of Plumbline's own dashboards; give yours another name"
        elif not Path(path).is_absolute() or not Path(path).is_dir():
            yield f"{path} is no folder on the control node; give its absolute path"
        elif not any(Path(path).glob("*.json")):
            yield f"{path} has no *.json"


def problems(dashboards: list[Dashboard]) -> Iterator[str]:
    """Clauses with their subject: dashboards that Grafana would not show as they are."""
    uids, titles = defaultdict(list), defaultdict(list)
    for dashboard in dashboards:
        if wrong := _wrong(dashboard):
            yield f"{dashboard.path} {wrong}"
        else:
            uids[dashboard.uid].append(dashboard.path)
            titles[dashboard.folder, dashboard.title].append(dashboard.path)
    for uid, paths in uids.items():
        if len(paths) > 1:
            yield f"{' and '.join(map(str, paths))} have the same uid {uid}"
    for (_, title), paths in titles.items():
        if len(paths) > 1:
            yield f"{' and '.join(map(str, paths))} have the same title {title!r}"


def _wrong(dashboard: Dashboard) -> str:
    if dashboard.wrong:
        return dashboard.wrong
    if not isinstance(dashboard.document, dict) or not dashboard.title:
        return "is no dashboard: it has no title"
    if "__inputs" in dashboard.document:
        return "was exported to be shared (__inputs); export it without that"
    if not _UID.fullmatch(dashboard.uid):
        return f"has the uid {dashboard.uid!r}; give it up to 40 letters, digits, - and _"
    return ""
