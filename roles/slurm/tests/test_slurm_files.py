"""The module that puts Slurm's files in place, on a folder of the test's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from roles.slurm.library import slurm_files as m

SCRIPT = "#!/bin/sh\ntrue\n"


def apply(
    folder: Path, files: Mapping[str, str], scripts: Mapping[str, Mapping[str, str]]
) -> list[str]:
    changed = []
    for path, content, mode in m.wanted(folder, files, scripts):
        if m.differs(path, content, mode):
            changed.append(path.name)
            m.put(path, content, mode)
    return changed


def test_files_are_put_once_and_an_empty_one_is_removed(tmp_path: Path) -> None:
    files = {"slurm.conf": "ClusterName=x\n", "plugstack.conf": ""}
    assert apply(tmp_path, files, {}) == ["slurm.conf"]
    assert (tmp_path / "slurm.conf").stat().st_mode & 0o777 == 0o644
    assert apply(tmp_path, files, {}) == []
    assert apply(tmp_path, dict.fromkeys(files, ""), {}) == ["slurm.conf"]
    assert list(tmp_path.iterdir()) == []


def test_a_link_or_a_wrong_mode_is_mended(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.write_text("a\n")
    (tmp_path / "slurm.conf").symlink_to(other)
    assert apply(tmp_path, {"slurm.conf": "b\n"}, {}) == ["slurm.conf"]
    assert (other.read_text(), (tmp_path / "slurm.conf").is_symlink()) == ("a\n", False)
    (tmp_path / "slurm.conf").chmod(0o666)
    assert apply(tmp_path, {"slurm.conf": "b\n"}, {}) == ["slurm.conf"]


def test_scripts_can_run_and_go_with_their_component_but_not_those_of_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "prolog.d").mkdir()
    theirs = tmp_path / "prolog.d/theirs"
    theirs.write_text(SCRIPT)
    assert apply(tmp_path, {}, {"prolog.d": {"ours": SCRIPT}}) == ["ours"]
    ours = tmp_path / "prolog.d/ours"
    assert ours.stat().st_mode & 0o777 == 0o755
    assert ours.read_text().splitlines()[0] == "#!/bin/sh"
    assert apply(tmp_path, {}, {"prolog.d": {"ours": SCRIPT}}) == []
    assert apply(tmp_path, {}, {"prolog.d": {}}) == ["ours"]
    assert list((tmp_path / "prolog.d").iterdir()) == [theirs]
