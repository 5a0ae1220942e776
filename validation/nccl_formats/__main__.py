"""Compares an NCCL library with the log formats that are recorded.

    python -m validation.nccl_formats LIBRARY [--release VERSION] [--write]

LIBRARY is a libnccl.so.2, or a wheel of nvidia-nccl-cu12 or nvidia-nccl-cu13 that is here already.
Prints each recorded line that the library prints in other words, with the texts that resemble it.
With --write the release is added to recorded.yml, and each changed line for which one text alone
can be meant; the tests of payloads/nccl_log.py then show whether it is still read.

Exit status: 0 nothing changed, 1 something did, 2 the library cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cluster import version
from cluster.errors import PlumblineError, UsageError
from validation import nccl_formats
from validation.nccl_formats import library
from validation.nccl_formats.changes import Change, changes, replacement


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return _compare(options.library, options.release, write=options.write)
    except PlumblineError as error:
        print(f"python -m validation.nccl_formats: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m validation.nccl_formats",
        description="Compares an NCCL library with the log formats that are recorded.",
    )
    parser.add_argument("library", type=Path, help="libnccl.so.2, or a wheel that holds it")
    parser.add_argument("--release", help="which release it is, where the library does not say")
    parser.add_argument("--write", action="store_true", help="record the release")
    version.add_option(parser)
    return parser


def _compare(path: Path, release: str | None, *, write: bool) -> int:
    known = nccl_formats.recorded()
    texts = library.texts(path)
    release = release or library.release(texts)
    if release is None or not nccl_formats.number(release):
        raise UsageError(f"{path} does not say which release it is: give --release VERSION")
    found = list(changes(known, texts))
    for line in _told(release, known.newest, found):
        print(line)
    if write:
        new = {change.name: strings for change in found if (strings := replacement(change))}
        text = nccl_formats.render(known.with_release(release, new))
        nccl_formats.RECORDED.write_text(text, encoding="utf-8")
        print(f"recorded {release}, with {len(new)} of {len(found)} changed lines")
    return 1 if found else 0


def _told(release: str, newest: str, found: Sequence[Change]) -> Iterator[str]:
    if not found:
        yield f"NCCL {release} prints all recorded lines as {newest} does"
        return
    lines = "1 line" if len(found) == 1 else f"{len(found)} lines"
    yield f"NCCL {release} prints {lines} otherwise than {newest}:"
    for change in found:
        yield f"{change.name}"
        yield from (f"  - {text!r}" for text in change.before)
        yield from (f"  + {text!r}" for text in change.like)
        if not change.like:
            yield "  + nothing that resembles it"


if __name__ == "__main__":
    sys.exit(main())
