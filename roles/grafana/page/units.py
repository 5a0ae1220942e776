"""Numbers as Grafana writes them, for the units of the numbers that the page shows."""

from __future__ import annotations

import math

# What a unit is written as, from which value on.
_STEPS: dict[str, tuple[tuple[float, str], ...]] = {
    "percentunit": ((0.01, "%"),),
    "celsius": ((1, " °C"),),
    "s": ((1e-3, " ms"), (1, " s"), (60, " min"), (3600, " h"), (86400, " days")),
}


def written(value: float, unit: str) -> str:
    """
    >>> written(0.375, "percentunit")
    '37.5%'
    """
    if unit == "locale":  # a count
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    steps = _STEPS[unit]
    # Rounding must not turn a whole step into 0.99 of it.
    fitting = [step for step in steps if step[0] <= abs(value) * (1 + 1e-9)]
    factor, suffix = fitting[-1] if fitting else steps[0]
    if not value:
        factor, suffix = next((step for step in steps if step[0] == 1), steps[0])
    text = digits(value / factor)
    return text + (" day" if (text, suffix) == ("1", " days") else suffix)


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
