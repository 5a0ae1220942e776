"""Who is slower than its equals, whatever the absolute thresholds say.

The centre is the median, and the spread the median absolute deviation (MAD), because neither moves
with the outlier that is looked for. Under five values neither says anything.
"""

import statistics
from collections.abc import Collection

from validation.model import Threshold

FEWEST = 5
_SHARE = 0.05  # GPUs of one node differ by that much without a fault
_DEVIATIONS = 4


def limit(values: Collection[float], unit: str) -> Threshold | None:
    """What none of these values should lie below; None for fewer than five.

    The median less 5 % of it or four MADs, whichever is more.
    """
    if len(values) < FEWEST:
        return None
    median = statistics.median(values)
    spread = statistics.median(abs(value - median) for value in values)
    least = median - max(_SHARE * median, _DEVIATIONS * spread)
    source = f"the median of {len(values)} ({median:.4g}) less 5 % or four MADs, what is more"
    return Threshold("≥", round(least, 4), unit, "derived", source)
