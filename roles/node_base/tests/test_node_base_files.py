"""Files that a role owns as a whole, and lines in files of others."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from roles.node_base.library import node_base_files

HOSTS = "127.0.0.1 localhost\n127.0.1.1 node\n"
BLOCK = f"{node_base_files.BEGIN}\n192.0.2.1 ctl1\n{node_base_files.END}\n"
POOLS = "# Use these.\npool a iburst\n#pool b\nserver c\ndriftfile /d\n"


def desired_text(text, **entry):
    empty = {"content": None, "block": None, "lines": None, "commented": None}
    return node_base_files.desired_text(text, empty | entry)


@pytest.mark.parametrize("before", [None, "old\n"])
def test_a_whole_file_is_its_content_and_an_empty_one_is_none(before):
    assert desired_text(before, content="new\n") == "new\n"
    assert desired_text(before, content="") is None


def test_a_block_comes_at_the_end_stays_in_its_place_and_goes():
    with_block = desired_text(HOSTS, block="192.0.2.1 ctl1")
    assert with_block == HOSTS + BLOCK
    assert desired_text(with_block, block="192.0.2.1 ctl1\n") == with_block
    amended = with_block + "192.0.2.9 a-sites-own\n"
    changed = desired_text(amended, block=r"192.0.2.2 \1")
    assert changed == amended.replace("192.0.2.1 ctl1", r"192.0.2.2 \1")
    assert desired_text(changed, block="") == HOSTS + "192.0.2.9 a-sites-own\n"
    assert desired_text(HOSTS, block="") == HOSTS


def test_a_block_goes_into_a_file_without_a_last_newline_or_without_anything():
    assert desired_text("a", block="192.0.2.1 ctl1") == "a\n" + BLOCK
    assert desired_text(None, block="192.0.2.1 ctl1") == BLOCK
    assert desired_text(None, block="") is None


def test_lines_are_commented_out_once_and_come_back():
    off = desired_text(POOLS, lines="(?:pool|server) ", commented=True)
    assert off == "# Use these.\n# pool a iburst\n#pool b\n# server c\ndriftfile /d\n"
    assert desired_text(off, lines="(?:pool|server) ", commented=True) == off
    assert desired_text(off, lines="(?:pool|server) ", commented=False) == POOLS
    assert desired_text(POOLS, lines="(?:pool|server) ", commented=False) == POOLS


def test_lines_and_a_block_of_one_file():
    both = desired_text(HOSTS, lines=r"127\.0\.1\.1\s", commented=True, block="192.0.2.1 ctl1")
    assert both == HOSTS.replace("127.0.1.1", "# 127.0.1.1") + BLOCK
    assert desired_text(both, lines=r"127\.0\.1\.1\s", commented=False, block="") == HOSTS
    assert desired_text(None, lines="x", commented=True) is None


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_file_is_written_where_what_it_needs_is(tmp_path, check_mode, monkeypatch):
    monkeypatch.setattr(os, "chown", lambda *_: None)
    empty = {"block": None, "lines": None, "commented": None, "without": None}
    path = tmp_path / "folder/file"
    entry = empty | {"path": str(path), "needs": str(tmp_path / "need"), "content": "x\n"}
    module: Any = SimpleNamespace(
        tmpdir=str(tmp_path), check_mode=check_mode, atomic_move=os.replace
    )
    assert node_base_files.apply(module, entry) is None
    (tmp_path / "need").touch()
    difference = node_base_files.apply(module, entry)
    assert difference
    assert (difference["before"], difference["after"]) == ("", "x\n")
    assert path.exists() is not check_mode
    if not check_mode:
        assert path.stat().st_mode & 0o777 == 0o644
        gone = node_base_files.apply(module, entry | {"content": ""})
        assert gone
        assert gone["after"] == ""
        assert not path.exists()


def test_a_file_is_not_written_where_what_forbids_it_is(tmp_path):
    """A container's kernel is its host's."""
    module: Any = SimpleNamespace(check_mode=True)
    empty = {"block": None, "lines": None, "commented": None, "needs": None}
    entry = empty | {"path": str(tmp_path / "file"), "without": str(tmp_path / "x"), "content": "y"}
    assert node_base_files.apply(module, entry)
    (tmp_path / "x").touch()
    assert node_base_files.apply(module, entry) is None


def test_what_a_file_outdates_is_old_before_it_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "chown", lambda *_: None)
    lists = tmp_path / "lists"
    lists.mkdir()
    empty = {"block": None, "lines": None, "commented": None, "without": None, "needs": None}
    outdates = [str(lists), str(tmp_path / "none")]
    entry = empty | {"path": str(tmp_path / "file"), "outdates": outdates, "content": "x\n"}

    def killed(*_: str) -> None:
        raise KeyboardInterrupt

    module: Any = SimpleNamespace(tmpdir=str(tmp_path), check_mode=False, atomic_move=killed)
    with pytest.raises(KeyboardInterrupt):
        node_base_files.apply(module, entry)
    assert lists.stat().st_mtime == 0
    module.atomic_move = os.replace
    assert node_base_files.apply(module, entry)
    lists.touch()
    assert node_base_files.apply(module, entry) is None
    assert lists.stat().st_mtime > 0
