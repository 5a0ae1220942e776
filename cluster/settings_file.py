"""A file of JSON that a role writes for a program: read strictly, refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class BadConfig(Exception):
    """One sentence: why the file cannot be used."""


def read(path: Path, parse: Callable[[Any], T]) -> T:
    """What `parse` makes of the document in the file.

    `parse` raises AttributeError, KeyError, TypeError or ValueError for anything else than the
    role writes. Raises BadConfig for that, and for a file that is not there or is no JSON.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadConfig(f"{path} is no JSON: {error}") from None
    try:
        return parse(document)
    except KeyError as error:
        raise BadConfig(f"{path} has no {error.args[0]}") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise BadConfig(f"{path}: {error}") from None
