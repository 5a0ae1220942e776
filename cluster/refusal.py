"""One thing that preflight refuses: a sentence, and the word by which a site silences it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

FIRM = ""  # the kind of what cannot be silenced: nothing works without it


@dataclass(frozen=True, slots=True)
class Refusal:
    """`sentence` says what is wrong, where, and what to set instead."""

    sentence: str
    kind: str = FIRM
    subject: str = ""

    @property
    def word(self) -> str:
        """What silences it, such as `unknown-variable:node_gpu`."""
        return f"{self.kind}:{self.subject}" if self.subject else self.kind

    def __str__(self) -> str:
        return f"{self.sentence} [{self.word}]" if self.kind else self.sentence


def standing(refusals: Iterable[Refusal], silenced: Collection[str]) -> list[str]:
    """The sentences that count, each once."""
    return list(
        dict.fromkeys(
            str(refusal)
            for refusal in refusals
            if refusal.kind == FIRM or not {refusal.kind, refusal.word} & set(silenced)
        )
    )
