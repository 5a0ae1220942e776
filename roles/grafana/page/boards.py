"""Dashboards as Grafana reads them, and their queries as Grafana asks them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roles.grafana import dashboards

SCRAPE_S = 15  # prometheus_scrape_interval, the data source's timeInterval


@dataclass(frozen=True)
class Target:
    """A query. `legend` has {{label}} for a label's value; `table` is one with rows."""

    ref: str
    expr: str
    legend: str
    instant: bool
    table: bool


@dataclass(frozen=True)
class Panel:
    """`settings` is what the JSON has beside that."""

    id: int
    title: str
    description: str
    kind: str
    x: int
    y: int
    width: int
    height: int
    targets: tuple[Target, ...]
    settings: Mapping[str, Any]

    @property
    def defaults(self) -> Mapping[str, Any]:
        """What holds for all fields, such as the unit."""
        return dict(self.settings.get("fieldConfig", {}).get("defaults", {}))

    @property
    def interval_s(self) -> int:
        """The least step of its queries."""
        text = str(self.settings.get("interval", f"{SCRAPE_S}s"))
        return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


@dataclass(frozen=True)
class Board:
    """`variables` are those that a person may choose, each with what stands for everything."""

    uid: str
    title: str
    description: str
    variables: Mapping[str, str]
    panels: tuple[Panel, ...]
    document: Mapping[str, Any]

    @property
    def asking(self) -> tuple[Panel, ...]:
        """Without rows, which only have a title."""
        return tuple(panel for panel in self.panels if panel.kind != "row")


def own() -> tuple[Board, ...]:
    """All that the role installs, by name."""
    return tuple(board(json.loads(text)) for _, text in sorted(dashboards.files().items()))


def board(document: Mapping[str, Any]) -> Board:
    variables = {
        variable["name"]: variable["allValue"]
        for variable in document["templating"]["list"]
        if variable["type"] == "query"
    }
    return Board(
        document["uid"],
        document["title"],
        document["description"],
        variables,
        tuple(_panel(panel) for panel in document["panels"]),
        document,
    )


def _panel(panel: Mapping[str, Any]) -> Panel:
    place = panel["gridPos"]
    return Panel(
        id=panel["id"],
        title=panel["title"],
        description=panel.get("description", ""),
        kind=panel["type"],
        x=place["x"],
        y=place["y"],
        width=place["w"],
        height=place["h"],
        targets=tuple(
            Target(
                target["refId"],
                target["expr"],
                target.get("legendFormat", ""),
                bool(target.get("instant")),
                target.get("format") == "table",
            )
            for target in panel.get("targets", ())
        ),
        settings=panel,
    )


def expanded(expr: str, variables: Mapping[str, str], range_s: int, step_s: int = SCRAPE_S) -> str:
    """With values for all that begins with `$`. Raises KeyError for a variable that is not there.

    https://grafana.com/docs/grafana/latest/datasources/prometheus/template-variables/ has the rule
    for __rate_interval.
    """
    values = {
        "__rate_interval": f"{max(step_s + SCRAPE_S, 4 * SCRAPE_S)}s",
        "__interval": f"{step_s}s",
        "__range": f"{range_s}s",
        **variables,
    }
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], expr)
