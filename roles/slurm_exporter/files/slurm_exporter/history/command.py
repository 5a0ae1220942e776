"""node-history: what befell the nodes of this cluster.

    node-history list [--lemons]          each node: interruptions, time out of service, lemons
    node-history show NODE|GPU            what befell a node, or a GPU by its UUID or serial number
    node-history export [--csv]           all entries, as JSON lines or for a spreadsheet
    node-history add NODE TEXT            by hand, such as
                                          node-history add gpu7 "new GPU" --kind repair --gpu SERIAL
    node-history import FILE              what a validation's history.sqlite has of failing nodes

Exit status: 0 done; 1 the ledger cannot be read or written; 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import pwd
import re
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from cluster import version
from cluster.exporter import Failed
from cluster.settings_file import BadConfig
from cluster.slurm import outages
from cluster.text import printable
from roles.slurm_exporter.files.slurm_exporter import config
from roles.slurm_exporter.files.slurm_exporter.history import incidents, ledger, lemons
from roles.slurm_exporter.files.slurm_exporter.history.incidents import Entry

NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_AGO = re.compile(r"(\d{1,5})d")
# OWASP, CSV Injection: what a spreadsheet takes for the begin of a formula.
_FORMULA = ("=", "+", "-", "@")


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    try:
        path = options.ledger or config.read(options.config).ledger
        for line in options.run(path, options):
            print(line)
    except (Failed, BadConfig) as error:
        print(f"node-history: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    summary, _, rest = str(__doc__).partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="node-history",
        description=f"{summary}\n\n{rest}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, default=config.FILE, help=argparse.SUPPRESS)
    parser.add_argument(
        "--ledger", type=Path, metavar="FILE", help="another ledger than this host's"
    )
    version.add_option(parser)
    what = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = what.add_parser("list", help="each node")
    listing.add_argument("--lemons", action="store_true", help="those that fail too often alone")
    listing.set_defaults(run=_list)
    show = what.add_parser("show", help="what befell a node or a GPU")
    show.add_argument("what", metavar="NODE|GPU")
    export = what.add_parser("export", help="all entries")
    export.add_argument("--csv", action="store_true", help="for a spreadsheet")
    for parsed, run in ((show, _show), (export, _export)):
        parsed.add_argument("--since", type=_since, default=0.0, help="30d, or a date")
        parsed.set_defaults(run=run)
    add = what.add_parser("add", help="an entry by hand")
    add.add_argument("node", metavar="NODE", type=_node)
    add.add_argument("text", metavar="TEXT", type=_text)
    add.add_argument("--kind", choices=incidents.BY_HAND, default=incidents.NOTE)
    add.add_argument("--gpu", default="", metavar="UUID|SERIAL")
    add.set_defaults(run=_add)
    imported = what.add_parser("import", help="failing nodes of a validation's history")
    imported.add_argument("file", type=Path, metavar="FILE")
    imported.set_defaults(run=_import)
    return parser.parse_args(arguments)


def _node(text: str) -> str:
    if not NODE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{printable(text, 60)!r} is no name of a node")
    return text


def _text(text: str) -> str:
    line = printable(text)
    if not line:
        raise argparse.ArgumentTypeError("say what happened")
    return line


def _since(text: str) -> float:
    if match := _AGO.fullmatch(text):
        return time.time() - int(match[1]) * lemons.DAY_S
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{printable(text, 40)!r} is no time; write 30d or 2026-11-01"
        ) from None


# --- what it does --------------------------------------------------------------------------------


def _list(path: Path, options: argparse.Namespace) -> Iterator[str]:
    now = time.time()
    with ledger.opened(path, write=False) as book:
        known = list(book.known().values())
        found = lemons.records(known, list(book.entries()), now)
    shown = [record for record in found if record.lemon or not options.lemons]
    rows = [("node", "interruptions", "between", "out of service", "lemon")]
    for record in sorted(shown, key=lambda r: (-len(r.lemon), -r.interruptions, -r.out_s, r.node)):
        between = record.between_s
        signals = ", ".join(f"{name} {record.signals[name]}" for name in record.lemon)
        rows.append(
            (
                record.node,
                str(record.interruptions),
                "-" if between is None else f"{between / 86400:.1f} d",
                f"{record.out_s / 3600:.1f} h",
                signals or "-",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
    mean = lemons.between_s(found)
    days = "no interruption" if mean is None else f"{mean / 86400:.1f} days between interruptions"
    yield f"{len(found)} nodes in 28 days: {days}"


def _show(path: Path, options: argparse.Namespace) -> Iterator[str]:
    with ledger.opened(path, write=False) as book:
        found = [
            *book.entries(since=options.since, node=options.what),
            *book.entries(since=options.since, gpu=options.what),
        ]
    if not found:
        raise Failed(f"{path} has nothing of {printable(options.what, 60)}")
    for entry in found:
        when = datetime.fromtimestamp(entry.at).strftime("%Y-%m-%d %H:%M:%S")
        board = f" [GPU {entry.gpu}]" if entry.gpu else ""
        by = f" ({printable(entry.by)})" if entry.by else ""
        text = printable(entry.text)
        yield f"{when}  {entry.node}  {entry.kind:<10}{board} {text}{by}".rstrip()


def _export(path: Path, options: argparse.Namespace) -> Iterator[str]:
    with ledger.opened(path, write=False) as book:
        entries = list(book.entries(since=options.since))
    if not options.csv:
        yield from (json.dumps(_document(entry)) for entry in entries)
        return
    writer = csv.writer(sys.stdout)
    columns = ("time", "node", "kind", "gpu", "text", "by", "interruption")
    writer.writerow(columns)
    for entry in entries:
        document = _document(entry)
        writer.writerow([_cell(document[column]) for column in columns])


def _document(entry: Entry) -> dict[str, object]:
    time_of = datetime.fromtimestamp(entry.at).astimezone().isoformat(timespec="seconds")
    rest = {name: value for name, value in asdict(entry).items() if name not in ("key", "at")}
    return {"time": time_of, **rest, "interruption": entry.interruption}


def _cell(value: object) -> object:
    line = printable(value) if isinstance(value, str) else value
    return f"'{line}" if isinstance(line, str) and line.startswith(_FORMULA) else line


def _add(path: Path, options: argparse.Namespace) -> Iterator[str]:
    by = os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    entry = incidents.by_hand(
        options.node, time.time(), options.kind, options.text, options.gpu, by
    )
    with ledger.opened(path, write=True) as book:
        book.write([entry])
    yield f"{options.node}: {options.kind} is in the ledger"


# --- the validation's history ---------------------------------------------------------------------

_FAILED = (
    "SELECT runs.id, runs.suite, runs.started, subjects.name, results.check_name, results.message"
    " FROM results JOIN runs ON runs.number = results.run"
    " JOIN subjects ON subjects.number = results.subject"
    " WHERE results.verdict = 'fail' AND results.tier = 'node' ORDER BY runs.started"
)


def _import(path: Path, options: argparse.Namespace) -> Iterator[str]:
    with ledger.opened(path, write=True) as book:
        found = list(failed(options.file))
        new = book.write(found)
    yield f"{new} of {len(found)} failures are new in the ledger"


def failed(file: Path) -> Iterator[Entry]:
    """Of each run the checks that failed on a node. Raises Failed."""
    if not file.is_file():
        raise Failed(f"there is no {file}")
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as history:
            for run, suite, started, node, check, message in history.execute(_FAILED):
                text = printable(f"{check} of suite {suite}: {message}", 300)
                key = f"{node}|{outages.VALIDATION}|{run}|{check}"
                by = f"validation {run}"
                yield Entry(key, started, node, outages.VALIDATION, text, incidents.gpu(text), by)
    except sqlite3.Error as error:
        raise Failed(f"{file} is no history of a validation: {error}") from None
