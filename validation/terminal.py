"""Says things to a person, and never fails at it: a run must not be lost over a terminal.

A terminal may not know `≥`, may be gone (`| head`, a closed window), or its disk may be full.
"""

import codecs
import os
import sys
from typing import TextIO

_ERRORS = "plumbline-plain"
_PLAIN = {"≥": ">=", "≤": "<=", "×": "x", "·": "-", "–": "-", "…": "..."}


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """Other characters for what an encoding does not have."""
    assert isinstance(error, UnicodeEncodeError)  # it is used for writing only
    text = error.object[error.start : error.end]
    return "".join(_PLAIN.get(character, "?") for character in text), error.end


codecs.register_error(_ERRORS, _plainly)


def prepare() -> None:
    """From here on no character is too much for this process's output."""
    for stream in (sys.stdout, sys.stderr):
        # pytest and others put something else there.
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors=_ERRORS)


def say(text: str, stream: TextIO | None = None) -> None:
    """Print the text as it is. Where nobody can read it any more, nothing happens."""
    stream = sys.stdout if stream is None else stream
    try:
        try:
            stream.write(text)
        except UnicodeEncodeError:
            encoding = stream.encoding or "ascii"
            stream.write(text.encode(encoding, _ERRORS).decode(encoding))
        stream.flush()
    except (OSError, ValueError):  # ValueError: it is closed
        silence(stream)


def silence(stream: TextIO) -> None:
    """Nobody reads this stream any more: Python's own flush at the exit must not fail over it."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # it is no file
