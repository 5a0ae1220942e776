"""molecule/shared/image/zip_code.py: what a node's Python keeps of Ansible's archives."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.processes import passes

IMAGE = REPOSITORY / "molecule/shared/image"
PROGRAM = """
import sys, zipfile
import zip_code
zip_code.FOLDER, archive, text = sys.argv[1:]
with zipfile.ZipFile(archive, "w") as file:
    file.writestr("module.py", text)
sys.path.insert(0, archive)
import module
print(module.answer(), module.answer.__code__.co_filename)
"""


def answer(number: int) -> str:
    return f"def answer():\n    return {number}\n"


def run(kept: Path, archive: Path, text: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(IMAGE)}
    return passes(sys.executable, "-c", PROGRAM, kept, archive, text, env=environment).strip()


def test_what_runs_is_what_was_brought(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    for name, number in (("first", 1), ("again", 1), ("other", 2)):
        archive = tmp_path / f"{name}.zip"
        assert run(kept, archive, answer(number)) == f"{number} {archive}/module.py"
    assert len(list(kept.iterdir())) == 2
    # It was read: what lies there for this source is what runs.
    first, second = sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    first.write_bytes(second.read_bytes())
    assert run(kept, tmp_path / "kept.zip", answer(1)).startswith("2 ")


@pytest.mark.parametrize("spoilt", [b"", b"spoilt", b"\xe3" * 9])
def test_what_cannot_be_read_is_compiled_anew(tmp_path, spoilt):
    kept = tmp_path / "kept"
    kept.mkdir()
    run(kept, tmp_path / "a.zip", answer(1))
    (file,) = kept.iterdir()
    file.write_bytes(spoilt)
    assert run(kept, tmp_path / "b.zip", answer(1)).startswith("1 ")
    assert file.read_bytes() != spoilt


def test_without_its_folder_nothing_is_kept(tmp_path):
    assert run(tmp_path / "none", tmp_path / "a.zip", answer(3)).startswith("3 ")
