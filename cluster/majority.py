"""Which of several values is taken for the right one, where nobody declared it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

FEWEST = 3  # that have to agree


def most(values: Sequence[str]) -> str | None:
    """The value that more than half of them have, if these are three at least.

    >>> most(["1.2", "1.2", "1.1", "1.2"])
    '1.2'
    >>> most(["1.2", "1.1"]) is None
    True
    """
    if not values:
        return None
    ((value, count),) = Counter(values).most_common(1)
    return value if count >= FEWEST and 2 * count > len(values) else None
