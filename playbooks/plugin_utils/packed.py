"""One file out of this checkout's Python, for machines that have nothing but an interpreter.

The validation's own modules and the pure Python packages of the control node go into one archive
that `python3 FILE` starts. Nothing is downloaded for it, every machine gets the versions that
requirements.txt has locked here, and the same checkout gives the same bytes: who compares hashes
sees whether there is anything new.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OWN = (".py", ".yml", ".j2", ".css", ".js", ".json")
FOREIGN = ("_yaml/", "example.py")  # what these packages install and nobody imports
SHEBANG = b"#!/usr/bin/env python3\n"


class NotPackable(Exception):
    """One sentence: what is missing here."""


def everything(place: Path) -> bool:
    return True


def own(folder: str, wanted: Callable[[Path], bool] = everything) -> dict[str, bytes]:
    """Files below a folder of the checkout, by their path from its root; never those of tests.

    `wanted` is asked with that path. Raises NotPackable where nothing is left.
    """
    found = {}
    for path in sorted((ROOT / folder).rglob("*")):
        place = path.relative_to(ROOT)
        if path.suffix in OWN and "tests" not in place.parts and wanted(place):
            found[place.as_posix()] = path.read_bytes()
    if not found:
        raise NotPackable(f"there is nothing to pack in {folder} of this checkout")
    return found


def installed(packages: Iterable[str]) -> dict[str, bytes]:
    """Python files and licences of packages that are installed here, by their path when imported.

    Raises NotPackable for a package that is missing.
    """
    found = {}
    for name in packages:
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            raise NotPackable(f"{name} is not installed here; run scripts/setup") from None
        for file in sorted(files):
            licence = "licenses" in file.parts or file.name == "METADATA"
            if licence or (file.suffix == ".py" and not str(file).startswith(FOREIGN)):
                found[str(file)] = Path(str(file.locate())).read_bytes()
    return found


def pack(main: str, *files: Mapping[str, bytes]) -> bytes:
    """The archive; `main` is the text of its `__main__.py`.

    Its times are ZipInfo's default, so that equal files give equal bytes.
    """
    contents = {"__main__.py": main.encode(), "LICENSE": (ROOT / "LICENSE").read_bytes()}
    for some in files:
        contents.update(some)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return SHEBANG + buffer.getvalue()
