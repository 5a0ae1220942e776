"""Numbers, as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """
    >>> duration(93784)
    '1-02:03:04'
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hours:02d}:{minutes:02d}:{rest:02d}"


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def percent(share: float | None) -> str:
    return "?" if share is None else f"{100 * share:.0f}%"


def energy(kilowatt_hours: float) -> str:
    if kilowatt_hours >= 1:
        return f"{kilowatt_hours:.2f} kWh"
    return f"{1000 * kilowatt_hours:.1f} Wh"
