"""The one JSON document that a payload answers with."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

VERSION = 1


def encode(
    payload: str, proof: Mapping[str, Any], measured: Mapping[str, Any], nonce: str = ""
) -> str:
    """The document on one line, without its newline.

    The nonce came with the configuration: an answer of another run has another one.
    JSON has no word for a float that is not finite, so those become the texts "nan", "inf" and
    "-inf": whoever expects a number there finds none, instead of a plausible zero.
    """
    document = {
        "plumbline": VERSION,
        "payload": payload,
        "nonce": nonce,
        "proof": proof,
        "measured": measured,
    }
    return json.dumps(_spell_out(document), allow_nan=False, separators=(",", ":"))


def with_end(line: str, signal: str) -> str:
    """The document of a process that was killed, and by which signal."""
    document = json.loads(line)
    document["measured"]["ended_by"] = signal
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def claim_stdout() -> int:
    """A file descriptor for the document; standard output itself becomes standard error.

    Libraries print to standard output, from Python and from C alike (NCCL writes its version
    there), so file descriptor 1 is moved, not only `sys.stdout`.
    """
    kept = os.dup(1)
    os.dup2(2, 1)
    return kept


def write_line(descriptor: int, line: str) -> None:
    """Writes the line and a newline, whole."""
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(line + "\n")


def _spell_out(value: Any) -> Any:
    """The same value with every float that is not finite as a text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # "nan", "inf", "-inf"
    if isinstance(value, Mapping):
        return {key: _spell_out(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_spell_out(item) for item in value]
    return value
