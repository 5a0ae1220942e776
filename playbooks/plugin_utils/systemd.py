"""Words for systemd's units."""

from __future__ import annotations

from collections.abc import Iterable


def command(words: Iterable[object]) -> str:
    """A command line of a unit that starts exactly these words.

    systemd.service(5), COMMAND LINES: in quotes, `\\` and `"` are escaped; `%` and `$` mean nothing
    when doubled. Raises ValueError for a word of more than one line.
    """
    return " ".join(_quoted(str(word)) for word in words)


def _quoted(word: str) -> str:
    if "\n" in word:
        raise ValueError(f"{word!r} is more than one line")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = escaped == word and not set(word) & set(" \t';") and word
    return word if plain else f'"{escaped}"'
