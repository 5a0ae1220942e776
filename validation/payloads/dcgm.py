"""DCGM's own diagnostic on the GPUs of a node, which takes minutes and needs them idle.

`dcgmi` asks the node's host engine, which runs the tests with its own rights: the job is there so
that nobody else has the GPUs meanwhile.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from validation.payloads import dcgm_diag
from validation.payloads.config import require, require_positive


@dataclass(frozen=True, kw_only=True)
class Config:
    """What is asked for.

    gpus      how many GPUs the node declares
    level     of the diagnostic, 1 to 4: seconds, minutes, a quarter of an hour, hours
    limit_s   how long it may take, in seconds
    nonce     whose answer this is: it comes back in the document
    """

    gpus: int
    level: int = 3
    limit_s: float = 1500
    nonce: str = ""

    def __post_init__(self) -> None:
        require_positive(self, "gpus", "limit_s")
        require(1 <= self.level <= 4, f"level is {self.level}, not 1 to 4")


def measure(config: Config, program: str = "dcgmi") -> dict[str, Any]:
    """level, and the verdict on it: see dcgm_diag.Verdict."""
    verdict = dcgm_diag.verdict(program, config.level, config.limit_s, config.gpus)
    return {"level": config.level, **asdict(verdict)}
