"""A number in a thresholds file, and what has to stand beside it: its kind, its source, its date.

provenance  datasheet  the vendor's figure for healthy hardware, or its limit
            gate       what others fail a machine for
            recorded   measured, here or elsewhere
            derived    worked out from any of these; the source says how
source      where it stands, with its address where it is public
date        when the source said so: published, measured, or read where it is not dated itself

A speed says in `derivation` what a healthy board reaches and how the rule follows from it, so that
both can be recalculated: a rule fails at `factor` of `healthy`.

basis       measured   a public measurement of this hardware, or of the same part in another board
            reckoned   `share` of the vendor's `datasheet` figure, as a sibling reaches: there is no
                       public measurement
            gate       no healthy figure is public: what others fail a machine for takes its place
            floor      a speed below which nothing works, far from what is healthy
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from cluster import strict
from validation.model import Threshold

PROVENANCES = ("datasheet", "gate", "recorded", "derived")

DATE = r"[0-9]{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?)?"


def _date(value: Any, where: str, problems: strict.Problems) -> str | None:
    if isinstance(value, str) and re.fullmatch(DATE, value):
        return value
    problems.append(
        f'{where}: expected a date as "2026", "2026-05" or "2026-05-31", found {value!r}'
    )
    return None


date = strict.Form(
    _date,
    {
        "type": "string",
        "pattern": f"^{DATE}$",
        "description": "when the source said so: published, measured, or read",
    },
)

ORIGIN: dict[str, strict.Reader] = {
    "provenance": strict.described(
        strict.one_of(*PROVENANCES),
        "datasheet: the vendor's figure or limit; gate: what others fail a machine for; "
        "recorded: measured; derived: worked out from any of these",
    ),
    "source": strict.described(
        strict.text, "where the number stands, with its address where it is public"
    ),
}
SOURCED: dict[str, strict.Reader] = {**ORIGIN, "date": date}


BASES = ("measured", "reckoned", "gate", "floor")

# In GB/s or TFLOPS: less is none, and no device of today reaches the upper.
LEAST_SPEED, MOST_SPEED = 1e-6, 1e6


def _speed(value: Any, where: str, problems: strict.Problems) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and LEAST_SPEED <= value <= MOST_SPEED:
        return float(value)
    problems.append(
        f"{where}: expected a number from {LEAST_SPEED:g} to {MOST_SPEED:g}, found {value!r}"
    )
    return None


speed = strict.Form(_speed, {"type": "number", "minimum": LEAST_SPEED, "maximum": MOST_SPEED})


# Of what others reach: below the lower a check sees nothing, above the upper nobody passes.
LEAST_SHARE, MOST_SHARE = 0.05, 0.95


def _share(value: Any, where: str, problems: strict.Problems) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and LEAST_SHARE <= value <= MOST_SHARE:
        return float(value)
    problems.append(
        f"{where}: expected a number from {LEAST_SHARE} to {MOST_SHARE}, found {value!r}"
    )
    return None


share = strict.Form(_share, {"type": "number", "minimum": LEAST_SHARE, "maximum": MOST_SHARE})


# Of n ranks: the part of what n times one of them would do. Above the upper nobody passes.
LEAST_EFFICIENCY, MOST_EFFICIENCY = 1e-4, 0.95


def _efficiency(value: Any, where: str, problems: strict.Problems) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and LEAST_EFFICIENCY <= value <= MOST_EFFICIENCY:
        return float(value)
    problems.append(
        f"{where}: expected a number from {LEAST_EFFICIENCY} to {MOST_EFFICIENCY}, found {value!r}"
    )
    return None


efficiency = strict.Form(
    _efficiency, {"type": "number", "minimum": LEAST_EFFICIENCY, "maximum": MOST_EFFICIENCY}
)


_DERIVATION = strict.table(
    {
        "healthy": strict.described(speed, "what a healthy board reaches, in the rule's unit"),
        "basis": strict.described(
            strict.one_of(*BASES),
            "measured: publicly; reckoned: a share of the datasheet's figure; gate: others fail a "
            "machine for it; floor: below it nothing works",
        ),
        "factor": strict.described(strict.positive, "of healthy, at which the rule fails"),
    },
    {"datasheet": speed, "share": strict.positive},
)
# What may stand beside any speed, and beside one that goes over a link.
DERIVED: dict[str, strict.Reader] = {
    "derivation": strict.described(_DERIVATION, "how the number follows from its source")
}
CARRIED: dict[str, strict.Reader] = {
    **DERIVED,
    "transport": strict.described(strict.text, "what carried the bytes where it was measured"),
}

# How far a number may be from what it is derived from: they are rounded.
_ROUNDED = 0.01


def derivation_problems(
    rule: Mapping[str, Any], fail: float, warn: float | None, where: str
) -> Iterator[str]:
    """What in a rule does not follow from its derivation."""
    if (own := rule["derivation"]) is None:
        return
    healthy, expected = own["healthy"], own["healthy"] * own["factor"]
    if not math.isclose(fail, expected, rel_tol=_ROUNDED):
        yield f"{where}.derivation: {own['factor']:g} of {healthy:g} is {expected:g}, not {fail:g}"
    if warn is not None and warn > healthy:
        yield f"{where}.derivation: a healthy board ({healthy:g}) is warned of"
    if (own["basis"] == "reckoned") != (own["datasheet"] is not None and own["share"] is not None):
        yield f"{where}.derivation: datasheet and share belong to what is reckoned, and only there"
    elif own["basis"] == "reckoned":
        reckoned = own["datasheet"] * own["share"]
        if not math.isclose(healthy, reckoned, rel_tol=_ROUNDED):
            yield (
                f"{where}.derivation: {own['share']:g} of {own['datasheet']:g} is {reckoned:g}, "
                f"not {healthy:g}"
            )


def least(rule: Mapping[str, Any], key: str, unit: str, place: str) -> Threshold:
    """fail_below_KEY and, where it is given, warn_below_KEY of a rule."""
    warn = rule[f"warn_below_{key}"]
    return _threshold("≥", rule[f"fail_below_{key}"], unit, rule, place, warn)


def most(
    value: float, unit: str, rule: Mapping[str, Any], place: str, warn: float | None = None
) -> Threshold:
    """A limit that the rule gives."""
    return _threshold("≤", value, unit, rule, place, warn)


def _threshold(
    op: str, value: float, unit: str, rule: Mapping[str, Any], place: str, warn: float | None
) -> Threshold:
    return Threshold(op, value, unit, rule["provenance"], rule["source"], warn, rule["date"], place)
