"""What came of a check."""

from __future__ import annotations

from dataclasses import dataclass

PASS, FAIL, WARN, UNKNOWN, SKIP = "pass", "fail", "warn", "unknown", "skip"


@dataclass(frozen=True)
class Outcome:
    """verdict is one of

    pass      all is well
    warn      worth a look, no reason to take the node out of service
    fail      what `on_fail` is for
    unknown   could not be found out, by no fault of the node
    skip      does not apply, by declaration
    """

    verdict: str
    text: str = ""

    @property
    def failed(self) -> bool:
        return self.verdict == FAIL
