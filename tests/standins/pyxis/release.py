"""Release tarballs of a stand-in for pyxis, laid out and named as GitHub's are.

What is in them is our own (source/): it has pyxis' options, and no containers.
"""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "source"

# What can be wrong with a release: a macro of source/spank_pyxis.c.
FLAWS = ("UNLOADABLE", "VERSION", "CRASH", "INIT", "JOB")


def make(folder: Path, version: str, flaw: str = "") -> str:
    """Writes vVERSION.tar.gz into the folder; its SHA-256, the same whenever it is made."""
    if flaw and flaw not in FLAWS:
        raise ValueError(f"no such flaw: {flaw}; there are {', '.join(FLAWS)}")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=9) as archive:
        for source in sorted(SOURCE.iterdir()):
            content = source.read_bytes()
            if source.name == "Makefile" and flaw:
                content = content.replace(b"FLAW :=", f"FLAW := -DFLAW_{flaw}".encode())
            entry = tarfile.TarInfo(f"pyxis-{version}/{source.name}")
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content))
    # The fifth to eighth byte of a gzip file are the time.
    content = packed.getvalue()
    content = content[:4] + bytes(4) + content[8:]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"v{version}.tar.gz").write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def main(folder: Path) -> None:
    """One release that is well, and one for each flaw in a folder of its name; and FOLDER.tar."""
    for flaw in ("", *FLAWS):
        place = folder / flaw.lower()
        (place / "v0.24.0.sha256").write_text(make(place, "0.24.0", flaw))
    with tarfile.open(folder.with_suffix(".tar"), "w") as archive:
        archive.add(folder, arcname=".")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
