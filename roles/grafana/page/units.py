"""Numbers as Grafana writes them, by its names of units.

https://github.com/grafana/grafana/blob/main/packages/grafana-data/src/valueFormats/categories.ts
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Steps = Sequence[tuple[float, str]]


def _by_1000(unit: str, words: str = " kMGTP") -> Steps:
    return tuple((1000.0**number, f" {word.strip()}{unit}") for number, word in enumerate(words))


def _by_1024(unit: str, first: int = 0) -> Steps:
    words = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
    return tuple((1024.0 ** (n - first), f" {word}{unit}") for n, word in enumerate(words))


_SECONDS: Steps = (
    (1e-9, " ns"),
    (1e-6, " µs"),
    (1e-3, " ms"),
    (1, " s"),
    (60, " min"),
    (3600, " h"),
    (86400, " days"),
    (604800, " weeks"),
    (31536000, " years"),
)

# What a unit is written as, from which value on.
_STEPS: dict[str, Steps] = {
    "none": ((1, ""),),
    "short": ((1, ""), (1e3, " K"), (1e6, " Mil"), (1e9, " Bil")),
    "percent": ((1, "%"),),
    "percentunit": ((0.01, "%"),),
    "celsius": ((1, " °C"),),
    "bytes": _by_1024("B"),
    "mbytes": _by_1024("B", first=2),
    "binBps": _by_1024("B/s"),
    "Bps": _by_1000("B/s"),
    "bps": _by_1000("b/s"),
    "hertz": _by_1000("Hz"),
    "watt": _by_1000("W"),
    "watth": _by_1000("Wh"),
    "ops": ((1, " ops/s"), (1e3, "K ops/s")),
    "reqps": ((1, " req/s"), (1e3, "K req/s")),
    "s": _SECONDS,
}
_PLURALS = (" days", " weeks", " years")
_WORDS = {"bool_yes_no": ("No", "Yes")}


def known(unit: str) -> bool:
    return unit in _STEPS or unit in _WORDS


def scale(unit: str, largest: float) -> tuple[float, str]:
    """What values up to `largest` are divided by, and the suffix. One that is unknown is a suffix.

    >>> scale("bytes", 3 * 2**30)
    (1073741824.0, ' GiB')
    """
    steps = _STEPS.get(unit, ((1, f" {unit}"),))
    if not largest:
        return next((step for step in steps if step[0] == 1), steps[0])
    # Rounding must not turn a whole step into 0.99 of it.
    fitting = [step for step in steps if step[0] <= abs(largest) * (1 + 1e-9)]
    return fitting[-1] if fitting else steps[0]


def written(value: float, unit: str) -> str:
    """
    >>> written(0.375, "percentunit")
    '37.5%'
    """
    if unit in _WORDS:
        return _WORDS[unit][bool(value)]
    factor, suffix = scale(unit, value)
    text = digits(value / factor)
    return text + (suffix[:-1] if text == "1" and suffix in _PLURALS else suffix)


def digits(number: float) -> str:
    """Three digits that count, and no zeros behind the point.

    >>> [digits(one) for one in (0, 12345.6, 3.14159, 0.00021)]
    ['0', '12346', '3.14', '0.00021']
    """
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    places = max(0, 2 - math.floor(math.log10(abs(number))))
    text = f"{number:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
