"""What comes true a little later than it is asked for."""

from __future__ import annotations

import time
from typing import Any


def until(question: Any, seconds: float = 60) -> Any:
    """What a question answers once it is true; fails when that takes longer."""
    end = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < end, f"it did not come true within {seconds} s"
        time.sleep(0.5)
    return answer
