"""One file out of this checkout's Python, for machines that have nothing but an interpreter.

The checkout's modules that a program imports and the pure Python packages of the control node go
into one archive that `python3 FILE` starts. Nothing is downloaded for it, every machine gets the
versions that requirements.txt has locked here, and the same checkout gives the same bytes: who
compares hashes sees whether there is anything new.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from cluster import closure

ROOT = Path(__file__).resolve().parents[2]
DATA = (".yml", ".j2", ".css", ".js", ".json")
FOREIGN = ("_yaml/", "example.py")  # what these packages install and nobody imports
SHEBANG = b"#!/usr/bin/env python3\n"


class NotPackable(Exception):
    """One sentence: what is missing here."""


def own(*programs: str, data: Iterable[str] = ()) -> dict[str, bytes]:
    """All modules of the checkout that these programs (their texts) import, and files of data, by
    path from its root.

    `data` are paths of files, and of folders whose files of data come along, never those of tests.
    Raises NotPackable where a part is missing.
    """
    try:
        files = closure.files_of(*programs)
        for place in data:
            files |= {
                path.relative_to(ROOT).as_posix(): path.read_bytes() for path in _data(ROOT / place)
            }
    except (ModuleNotFoundError, OSError) as problem:
        raise NotPackable(f"this checkout is not whole: {problem}") from None
    return files


def _data(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    return [
        path
        for path in sorted(place.rglob("*"))
        if path.suffix in DATA and "tests" not in path.relative_to(ROOT).parts
    ]


def installed(packages: Iterable[str]) -> dict[str, bytes]:
    """Python files and licences of packages that are installed here, by their path when imported.

    Raises NotPackable for a package that is missing.
    """
    contents = {}
    for name in packages:
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            raise NotPackable(f"{name} is not installed here; run scripts/setup") from None
        for file in sorted(files):
            licence = "licenses" in file.parts or file.name == "METADATA"
            if licence or (file.suffix == ".py" and not str(file).startswith(FOREIGN)):
                contents[str(file)] = Path(str(file.locate())).read_bytes()
    return contents


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
