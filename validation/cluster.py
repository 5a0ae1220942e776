"""Which cluster a command line means: the options for that, and what they lead to."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster import declaration
from cluster.declaration import Declaration
from cluster.errors import UsageError
from validation import local
from validation.transport import inventory

SITE_THRESHOLDS = Path("/etc/plumbline/thresholds")

# The virtual cluster on this machine; the file with its nodes is there while it is up.
DEMO = inventory.ROOT / "inventory" / "demo"
DEMO_NODES = "nodes.yml"


def add_place(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Options that say where the cluster is; a program may add another to the group."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-i",
        "--inventory",
        action="append",
        metavar="INVENTORY",
        help="reach the login node through this Ansible inventory (default: ansible.cfg's)",
    )
    where.add_argument("--here", action="store_true", help="this machine is the login node")
    return where


def add_data(parser: argparse.ArgumentParser) -> None:
    """Options that put other data in the place of the cluster's."""
    parser.add_argument(
        "--declaration",
        metavar="FILE",
        type=Path,
        help=f"declaration of the cluster (default with --here: {declaration.INSTALLED})",
    )
    parser.add_argument(
        "--thresholds",
        metavar="DIR",
        type=Path,
        help="thresholds of your own (default: INVENTORY.thresholds/; with --here "
        f"{SITE_THRESHOLDS})",
    )


def inventories(options: argparse.Namespace) -> list[str]:
    """The Ansible inventories; none for this machine. Raises UsageError."""
    if options.here or options.local:
        return []
    sources = options.inventory or inventory.default_inventory()
    if not sources:
        raise UsageError(
            "which cluster? give -i INVENTORY, or --here on a login node "
            "(ansible.cfg sets no inventory)"
        )
    absolute = []
    for text in sources:
        if "," not in text and not Path(text).exists():
            raise UsageError(f"-i: there is no inventory {text}")
        # Ansible reads "host1,host2" as a list of hosts, everything else as a path.
        absolute.append(text if "," in text else str(Path(text).resolve()))
    if absolute == [str(DEMO.resolve())] and not (DEMO / DEMO_NODES).is_file():
        raise UsageError(
            f"-i: the demo cluster is not up, so {sources[0]} has no nodes; start it with "
            "scripts/demo, or give the inventory of your own cluster"
        )
    return absolute


def declared(options: argparse.Namespace, named: Sequence[str]) -> Declaration:
    """What the cluster must be. Raises PlumblineError where that cannot be read."""
    if options.declaration is not None:
        return declaration.load(options.declaration)
    if options.local:
        return local.declaration(sys.executable)
    if options.here:
        return declaration.load(declaration.INSTALLED)
    document = inventory.declaration(named)
    return declaration.parse(document, f"declaration of {', '.join(named)}")


def site_thresholds(options: argparse.Namespace, named: Sequence[str]) -> Path | None:
    """The folder of the site's own thresholds, if there is one. Raises UsageError."""
    if options.thresholds is not None:
        if not options.thresholds.is_dir():
            raise UsageError(f"--thresholds: there is no folder {options.thresholds}")
        return Path(options.thresholds)
    if options.here or options.local:
        return SITE_THRESHOLDS if SITE_THRESHOLDS.is_dir() else None
    paths = [Path(text) for text in named if "," not in text]
    # Beside the inventory, not in it: Ansible would read the files as an inventory. And with its
    # name: others lie beside it too.
    places = [path.with_name(f"{path.name}.thresholds") for path in paths]
    for path, place in zip(paths, places, strict=True):
        if (unnamed := path.with_name("thresholds")).is_dir():
            raise UsageError(
                f"{unnamed} would hold for every inventory beside it: rename it to {place.name}, "
                "or name it with --thresholds"
            )
    folders = [place for place in dict.fromkeys(places) if place.is_dir()]
    if len(folders) > 1:
        raise UsageError(
            f"which thresholds, {' or '.join(map(str, folders))}? name one with --thresholds"
        )
    return folders[0] if folders else None
