"""What PromQL asks for, told from its text. That it is PromQL at all, Prometheus says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORDS = {"and", "or", "unless", "on", "ignoring", "group_left", "group_right", "by", "without"}
_WORDS |= {"bool", "offset", "inf", "nan"}
_LABELS = re.compile(r"\b(by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_STRING = r'"(?:[^"\\]|\\.)*"'
_SELECTOR = re.compile(rf"\b([A-Za-z_:][\w:]*)\b(\s*\()?(\{{(?:{_STRING}|[^}}\"])*\}})?")


@dataclass(frozen=True)
class Selector:
    """`text` is the metric with its matchers, `labels` are those that are matched."""

    metric: str
    labels: frozenset[str]
    text: str


def selectors(expression: str) -> Iterator[Selector]:
    """
    >>> [one.text for one in selectors('max by (node) (rate(x_total{xid=~"1|}"}[5m])) > 0 or up')]
    ['x_total{xid=~"1|}"}', 'up']
    """
    for match in _SELECTOR.finditer(_LABELS.sub(" ", re.sub(r"\[[^]]*\]", "", expression))):
        metric, call, matchers = match.groups()
        if not call and metric not in _WORDS:
            names = re.findall(rf"(\w+)\s*(?:=~|!~|!=|=)\s*{_STRING}", matchers or "")
            yield Selector(metric, frozenset(names), metric + (matchers or ""))


def grouped(expression: str) -> set[str]:
    """Labels by which it groups, joins or keeps."""
    groups = (names for _, names in _LABELS.findall(expression))
    return {name for names in groups for name in re.findall(r"\w+", names)}
