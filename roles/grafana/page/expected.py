"""Which queries may be without data, by name and with the reason; and whether that is so.

A dashboard's query is asked as Grafana asks it. An alert is asked for what it looks at, each of its
selectors: that nothing fires is no fault, that its metrics are not there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster.prometheus import Series, Server, now, over
from roles.grafana.page import boards, promql

FILE = Path(__file__).parent / "without_data.yml"
RULES = Path(__file__).parents[2] / "prometheus/files/etc/prometheus/rules"
POINTS = 200  # of a graph


@dataclass(frozen=True)
class Reason:
    """`sometimes`: whether there is data depends on the moment, and either is right."""

    name: str
    why: str
    sometimes: bool = False


@dataclass(frozen=True)
class ExpectedQuery:
    """`place` is (board, panel) or (alert, metric), `part` tells several of one place apart.

    `step_s` is 0 for what is asked for one time.
    """

    kind: str
    place: tuple[str, str]
    part: str
    expr: str
    step_s: int = 0

    @property
    def name(self) -> str:
        return "/".join((self.kind, *self.place, self.part))


Listed = Mapping[tuple[str, str, str], Reason]


def read(path: Path = FILE) -> Listed:
    """Reasons by kind, board or alert, and panel or metric. Raises ValueError for a wrong list."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    reasons = {name: Reason(name, **about) for name, about in document["reasons"].items()}
    listed: dict[tuple[str, str, str], Reason] = {}
    for kind in ("panels", "alerts"):
        for name, places in document[kind].items():
            for first, seconds in places.items():
                for second in seconds:
                    key = (kind.removesuffix("s"), first, second)
                    if name not in reasons or key in listed:
                        raise ValueError(f"{'/'.join(key)}: there twice, or without a reason")
                    listed[key] = reasons[name]
    return listed


def of_panels(dashboards: Iterable[boards.Board], range_s: int) -> Iterator[ExpectedQuery]:
    for board in dashboards:
        for panel in board.asking:
            step = max(panel.interval_s, range_s // POINTS)
            for target in panel.targets:
                expr = boards.expanded(target.expr, board.variables, range_s, step)
                at = 0 if target.instant else step
                yield ExpectedQuery("panel", (board.title, panel.title), target.ref, expr, at)


def of_alerts(folder: Path = RULES) -> Iterator[ExpectedQuery]:
    for path in sorted(folder.glob("*.yml")):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                if "alert" in rule:
                    yield from _of_alert(rule)


def _of_alert(rule: Mapping[str, Any]) -> Iterator[ExpectedQuery]:
    selectors = dict.fromkeys(selector for selector in promql.selectors(rule["expr"]))
    for number, selector in enumerate(selectors, 1):
        yield ExpectedQuery("alert", (rule["alert"], selector.metric), str(number), selector.text)


def answer(server: Server, query: ExpectedQuery, end: float, range_s: int) -> list[Series]:
    """Raises NoAnswer, also for what Prometheus cannot execute."""
    if query.step_s:
        return over(server, query.expr, end - range_s, end, query.step_s)
    return now(server, query.expr, end)


def why(listed: Listed, query: ExpectedQuery) -> Reason | None:
    """A panel is listed as a whole, or one of its queries as PANEL/REF."""
    first, second = query.place
    one_of = listed.get((query.kind, first, f"{second}/{query.part}"))
    return one_of or listed.get((query.kind, first, second))


def judge(query: ExpectedQuery, answers: bool, listed: Listed, lacking: Collection[str]) -> str:
    """One sentence where data is there and should not be, or the other way round; else nothing."""
    reason = why(listed, query)
    if reason is not None and reason.sometimes:
        return ""
    expected = reason is None or reason.name not in lacking
    if answers == expected:
        return ""
    if expected:
        return f"{query.name} has no data: {query.expr}"
    assert reason is not None
    return f"{query.name} has data, and is listed as without ({reason.name}): {query.expr}"


def stale(listed: Listed, queries: Iterable[ExpectedQuery]) -> list[str]:
    """What is listed and asked by nobody."""
    known = set()
    for query in queries:
        first, second = query.place
        known |= {(query.kind, first, second), (query.kind, first, f"{second}/{query.part}")}
    return ["/".join(key) for key in listed if key not in known]
