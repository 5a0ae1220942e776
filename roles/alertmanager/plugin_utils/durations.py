"""Durations as Alertmanager writes them, such as 4h or 1d12h.

https://prometheus.io/docs/alerting/0.25/configuration/: <duration>.
"""

from __future__ import annotations

import re

_UNITS = {"y": 31_536_000, "w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 0.001}
_PARTS = re.compile("".join(rf"(?:(?P<{unit}>\d+){unit})?" for unit in _UNITS))


def seconds(duration: str) -> float:
    """Of a duration; 0 for what is none."""
    match = _PARTS.fullmatch(duration)
    found = match.groupdict() if match else {}
    return sum(int(number) * _UNITS[unit] for unit, number in found.items() if number)
