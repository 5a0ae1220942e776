"""Files of a folder that are ours, beside those of others."""

from __future__ import annotations

import os

import pytest
from ansible.module_utils.whole_file import Access, NoPlace

from playbooks.library import owned_files
from playbooks.library.owned_files import Owned

SCRIPT = "#!/bin/sh\ntrue\n"
MARK = "# Ours."


def apply(folder, files, *owned, mark="", mode=0o644, check_mode=False):
    access = Access(mode, os.geteuid(), os.getegid())
    result = owned_files.run(Owned(folder, owned, mark, access), files, check_mode)
    assert result["changed"] is bool(result["changed_files"])
    assert len(result["diff"]) == len(result["changed_files"])
    return result["changed_files"]


def test_files_are_written_once_and_an_empty_one_is_removed(tmp_path):
    files = {"slurm.conf": "ClusterName=x\n", "plugstack.conf": ""}
    assert apply(tmp_path, files) == ["slurm.conf"]
    assert (tmp_path / "slurm.conf").stat().st_mode & 0o777 == 0o644
    assert apply(tmp_path, files) == []
    assert apply(tmp_path, dict.fromkeys(files, "")) == ["slurm.conf"]
    assert list(tmp_path.iterdir()) == []


def test_a_link_or_a_wrong_mode_is_mended(tmp_path):
    other = tmp_path / "elsewhere"
    other.write_text("a\n")
    path = tmp_path / "slurm.conf"
    path.symlink_to(other)
    assert apply(tmp_path, {"slurm.conf": "a\n"}) == ["slurm.conf"]
    assert (other.read_text(), path.read_text(), path.is_symlink()) == ("a\n", "a\n", False)
    path.chmod(0o666)
    assert apply(tmp_path, {"slurm.conf": "a\n"}) == ["slurm.conf"]
    path.write_bytes(b"\xff")
    assert apply(tmp_path, {"slurm.conf": "a\n"}) == ["slurm.conf"]
    path.unlink()
    path.symlink_to("/nowhere")
    assert apply(tmp_path, {}, "*.conf") == ["slurm.conf"]
    assert not path.is_symlink()


def test_scripts_can_run_and_go_with_their_component_but_not_those_of_others(tmp_path):
    def write(files):
        return apply(tmp_path, files, "prolog.d/*", "bin/*", mark=MARK, mode=0o755)

    (tmp_path / "prolog.d").mkdir()
    theirs = tmp_path / "prolog.d/theirs"
    theirs.write_text(SCRIPT)
    assert write({"prolog.d/ours": SCRIPT}) == ["prolog.d/ours"]
    ours = tmp_path / "prolog.d/ours"
    assert ours.stat().st_mode & 0o777 == 0o755
    assert ours.read_text().splitlines()[:2] == ["#!/bin/sh", MARK]
    assert write({"prolog.d/ours": SCRIPT}) == []
    assert write({}) == ["prolog.d/ours"]
    assert list((tmp_path / "prolog.d").iterdir()) == [theirs]


def test_files_come_and_go_with_their_folders(tmp_path):
    every, single = "user-.slice.d/50.conf", "user-7.slice.d/50.conf"
    pattern = "user-*.slice.d/50.conf"
    wanted = {every: "[Slice]\n", single: "# free\n"}
    assert apply(tmp_path, wanted, pattern, check_mode=True) == sorted(wanted)
    assert list(tmp_path.iterdir()) == []
    old = os.umask(0o077)
    try:
        assert apply(tmp_path, wanted, pattern) == sorted(wanted)
    finally:
        os.umask(old)
    assert (tmp_path / every).parent.stat().st_mode & 0o777 == 0o755
    assert apply(tmp_path, wanted, pattern) == []

    del wanted[single]
    assert apply(tmp_path, wanted, pattern, check_mode=True) == [single]
    assert (tmp_path / single).exists()
    assert apply(tmp_path, wanted, pattern) == [single]
    assert not (tmp_path / single).parent.exists()


def test_a_folder_with_somebody_elses_file_stays(tmp_path):
    ours, theirs = tmp_path / "user-7.slice.d/50.conf", tmp_path / "user-7.slice.d/60.conf"
    apply(tmp_path, {"user-7.slice.d/50.conf": "a\n"})
    theirs.touch()
    apply(tmp_path, {}, "user-*.slice.d/50.conf")
    assert (ours.exists(), theirs.exists()) == (False, True)


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "rules/../../a", ""])
def test_nothing_is_written_or_removed_elsewhere(tmp_path, name):
    for text in ("text", ""):
        with pytest.raises(NoPlace):
            apply(tmp_path, {name: text})
    with pytest.raises(NoPlace):
        apply(tmp_path, {}, name)


def test_of_files_that_a_site_may_have_written_by_hand_only_ours_go(tmp_path):
    (tmp_path / "theirs.conf").write_text("PMIxDebug=1\n")
    (tmp_path / "ours.conf").write_text("# Managed by Ansible; changes made here are lost.\na=1\n")
    owned = Owned(tmp_path, managed=["theirs.conf", "ours.conf", "absent.conf"])
    unwanted = {"theirs.conf": "", "ours.conf": ""}
    assert owned_files.run(owned, unwanted, check_mode=False)["changed_files"] == ["ours.conf"]
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.conf"]
