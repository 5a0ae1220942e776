"""plumbline-backup: encrypted archives of what a cluster cannot make again.

    plumbline-backup make                           on a host: makes an archive (a timer does)
    plumbline-backup put database|state TAR NAME    on a host: puts a part back, daemons stopped
    keep, unpack, secrets                           on the control node, for the playbooks

docs/operate/backup.md says how to restore. Exit status: 0 done; 1 refused, with one sentence; 2
wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from cluster import version
from roles.backup.files.backup import make, put, settings, unpack
from roles.backup.files.backup.errors import Refused


def main(arguments: Sequence[str]) -> int:
    given = _parser().parse_args(arguments)
    try:
        print(_do(given))
    except Refused as refused:
        print(f"{refused}.", file=sys.stderr)
        return 1
    return 0


def _do(given: argparse.Namespace) -> str:
    """Raises Refused."""
    if given.verb == "make":
        return make.make(settings.read(given.settings)).text()
    if given.verb == "put":
        if given.part == "database":
            return put.database(given.tar, given.name)
        return put.state(given.tar, Path(given.name))
    if given.verb == "keep":
        return unpack.keep(given.folder, given.name, given.number)
    if given.verb == "secrets":
        return json.dumps(unpack.secrets(given.tars, given.into))
    wanted = unpack.Wanted(
        given.cluster, tuple(given.need), given.release, timedelta(days=given.max_age_days)
    )
    opened = unpack.unpack(
        unpack.archives(given.archives), given.identity, given.into, wanted, given.age, unpack.now()
    )
    return unpack.told(opened)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="plumbline-backup",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version.add_option(parser)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    verb = verbs.add_parser("make", help="make an archive of this host")
    verb.add_argument("--settings", type=Path, default=settings.FILE)

    verb = verbs.add_parser("put", help="put a part of a decrypted archive back on this host")
    verb.add_argument("part", choices=("database", "state"))
    verb.add_argument("tar", type=Path)
    verb.add_argument("name", help="of the database, or the folder of the state")

    verb = verbs.add_parser("keep", help="check a fetched archive, and let old ones of its host go")
    verb.add_argument("folder", type=Path)
    verb.add_argument("name")
    verb.add_argument("number", type=int)

    verb = verbs.add_parser("unpack", help="decrypt archives, check and judge them")
    verb.add_argument("archives", type=Path, help="a file, or a folder")
    verb.add_argument("--identity", type=Path, required=True, help="file of the private key")
    verb.add_argument("--into", type=Path, required=True, help="folder of the decrypted tars")
    verb.add_argument("--cluster", required=True, help="whose archives they must be")
    verb.add_argument("--need", nargs="*", default=[], help="parts that must be there")
    verb.add_argument("--release", default="", help="release of Slurm that reads them")
    verb.add_argument("--max-age-days", type=int, default=7)
    verb.add_argument("--age", default="age", help="the program age")

    verb = verbs.add_parser("secrets", help="write the secrets that the control node lacks")
    verb.add_argument("tars", type=Path, nargs="+")
    verb.add_argument("--into", type=Path, required=True)
    return parser
