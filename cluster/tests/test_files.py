"""Files that are replaced whole."""

import os
import stat
from pathlib import Path

import pytest

from cluster.files import write_whole


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o640), (0o604, 0o604), (0o755, 0o755)])
def test_a_file_has_its_content_and_mode(tmp_path: Path, mode: int | None, expected: int) -> None:
    file = tmp_path / "file"
    before = os.umask(0o027)
    try:
        write_whole(file, "old and long")
        write_whole(file, "nöw" if mode is None else "nöw".encode(), mode, sync=True)
    finally:
        os.umask(before)
    assert (file.read_text("utf-8"), stat.S_IMODE(file.stat().st_mode)) == ("nöw", expected)
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_that_cannot_be_replaced_stays_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    write_whole(file, "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, "new", sync=True)
    assert (file.read_text(), os.listdir(tmp_path)) == ("old", ["file"])
