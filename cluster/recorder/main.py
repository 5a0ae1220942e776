"""Records what this machine says of its GPUs into one file, without saying which machine it is.

NVML, nvidia-smi, DCGM, torch, NVIDIA's packages, the kernel's log and files about GPUs and RDMA
cards. No right is needed that an ordinary user lacks; the manifest names what may not be read.
Serial numbers, UUIDs, GUIDs, host and user names and addresses are replaced, the same by the same.
Nothing is sent anywhere: read the file, then decide.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from cluster import version
from cluster.files import write_whole
from cluster.recorder import archive, parts
from cluster.recorder.archive import HARDWARE, STAND_IN, Leaks, Source
from cluster.recorder.parts import Machine

NAME = "plumbline-record"
OUTPUT = "plumbline-machine.tar.gz"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    wanted = [part for part in parts.PARTS if part.asked or (options.nccl and part.name == "nccl")]
    recorded = archive.record(Machine(options.root, options.python), wanted)
    day = datetime.now(timezone.utc).date().isoformat()
    origin = STAND_IN if options.stand_in else HARDWARE
    source = Source(origin, options.says, day, version.line())
    if not any(part.files for part in recorded if part.name in ("nvml", "nvidia-smi", "pci")):
        why = next(part.why for part in recorded if part.name == "nvml")
        return _ended(f"neither NVML, nvidia-smi nor sysfs shows a GPU of NVIDIA here: {why}")
    try:
        files = archive.contents(recorded, parts.own_identities(options.root), source)
    except Leaks as leaks:
        return _ended(str(leaks))
    content = archive.pack(files)
    try:
        write_whole(options.output, content, 0o600)
    except OSError as error:
        return _ended(f"{options.output} cannot be written: {error.strerror}")
    for part in recorded:
        said = f"{len(part.files)} files" if part.files else f"not recorded: {part.why}"
        print(f"{part.name:<12} {said}")
    print(f"{NAME}: {options.output} ({len(content) / 1e3:.0f} kB). Read it before you send it:")
    print(f"    tar --extract --to-stdout --file {options.output} | less")
    return 0


def _ended(why: str) -> int:
    print(f"{NAME}: {why}.", file=sys.stderr)
    return 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=NAME, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path(OUTPUT), help=f"default: {OUTPUT}")
    parser.add_argument("--python", default="python3", help="the Python whose torch is asked")
    parser.add_argument(
        "--nccl", action="store_true", help="also the log of NCCL on GPU 0, which must be free"
    )
    parser.add_argument("--says", default="", help="a sentence of yours for the manifest")
    parser.add_argument(
        "--stand-in", action="store_true", help="the GPUs are simulated; the manifest says so"
    )
    parser.add_argument(
        "--root", type=Path, default=Path("/"), help="folder with sys, proc and etc; for tests"
    )
    version.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
