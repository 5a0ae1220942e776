"""A tree of modulefiles that others write to as well."""

import os
from pathlib import Path

import pytest
from ansible.module_utils.refused import Refused

from roles.environment_modules.library import environment_modules_tree as library

MARK = "-- environment_modules: "


def text(name, body=""):
    return f"-- Managed.\n{MARK}{name}\n{body}\n"


@pytest.fixture
def tree(tmp_path):
    return library.Tree(tmp_path / "root/modulefiles", MARK)


@pytest.fixture
def apply(tree, tmp_path):
    def run(*names, check_mode=False, **bodies):
        files = {name: text(name) for name in names}
        return library.apply(tree, files | bodies, tmp_path / "root/cache", check_mode)

    return run


def make_cache(tree):
    cache = tree.folder.parent / "cache/spiderT.lua"
    cache.write_text("spiderT = {}")
    return cache


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_files_are_written_once_for_all_to_read(tree, apply):
    old = os.umask(0o077)
    try:
        result = apply("gcc/1.lua", "gcc/.modulerc.lua")
    finally:
        os.umask(old)
    files = ["gcc/.modulerc.lua", "gcc/1.lua"]
    assert result == {"changed": True, "changed_files": files, "cache": "missing"}
    for path in (tree.folder, tree.folder.parent, tree.folder / "gcc"):
        assert path.stat().st_mode & 0o777 == 0o755
    assert (tree.folder / "gcc/1.lua").stat().st_mode & 0o777 == 0o644
    assert names(tree.folder / "gcc") == [".modulerc.lua", "1.lua"]
    assert not apply("gcc/1.lua", "gcc/.modulerc.lua")["changed"]


def test_check_mode_writes_nothing(tree, apply):
    assert apply("gcc/1.lua", check_mode=True)["changed_files"] == ["gcc/1.lua"]
    assert not tree.folder.parent.exists()
    apply("gcc/1.lua")
    make_cache(tree)
    files = ["gcc/1.lua", "gcc/2.lua"]
    predicted = {"changed": True, "changed_files": files, "cache": "valid"}
    assert apply("gcc/2.lua", check_mode=True) == predicted
    assert names(tree.folder / "gcc") == ["1.lua"]


def test_what_is_no_longer_wanted_goes_and_what_others_wrote_stays(tree, apply):
    apply("gcc/1.lua", "gcc/2.lua", "llvm/1.lua", "llvm/.modulerc.lua")
    (tree.folder / "gcc/site.lua").write_text("-- own\n")
    (tree.folder / "gcc/3.lua").write_text(text("gcc/2.lua"))  # a copy of ours
    (tree.folder / "gcc/tcl").write_text("#%Module\n")
    assert apply("gcc/1.lua")["changed_files"] == ["gcc/2.lua", "llvm/.modulerc.lua", "llvm/1.lua"]
    assert names(tree.folder) == ["gcc"]
    assert names(tree.folder / "gcc") == ["1.lua", "3.lua", "site.lua", "tcl"]


@pytest.mark.parametrize(
    "make", [Path.touch, lambda path: path.symlink_to("nowhere")], ids=["file", "link"]
)
def test_somebody_elses_file_is_refused_before_anything_changes(tree, apply, make):
    apply("gcc/1.lua")
    cache = make_cache(tree)
    make(tree.folder / "gcc/2.lua")
    with pytest.raises(Refused, match=r"gcc/2\.lua is somebody else's; move it away, or"):
        apply("gcc/2.lua", "llvm/1.lua")
    assert names(tree.folder / "gcc") == ["1.lua", "2.lua"]
    assert cache.exists()


def test_somebody_elses_default_is_refused_where_one_is_declared(tree, apply):
    apply("gcc/1.lua")
    (tree.folder / "gcc/default").symlink_to("1.lua")
    assert not apply("gcc/1.lua")["changed"]
    with pytest.raises(Refused, match="gcc/default of somebody else chooses the default"):
        apply("gcc/1.lua", "gcc/.modulerc.lua")


def test_a_cache_is_good_until_the_tree_changes(tree, apply):
    apply("gcc/1.lua")
    cache = make_cache(tree)
    compiled = cache.with_name("spiderT.luac_5.3")
    compiled.write_text("x")
    assert apply("gcc/1.lua")["cache"] == "valid"
    assert apply("gcc/1.lua", "gcc/2.lua")["cache"] == "missing"
    assert not compiled.exists()  # Lmod would rather read this one
    cache = make_cache(tree)
    os.utime(cache, (1, 1))
    assert apply("gcc/1.lua", "gcc/2.lua")["cache"] == "old"
    cache.write_text("")
    assert apply("gcc/1.lua", "gcc/2.lua")["cache"] == "old"


def test_a_changed_text_mode_or_owner_is_put_right(tree, apply):
    apply("gcc/1.lua")
    path = tree.folder / "gcc/1.lua"
    path.write_text(text("gcc/1.lua", "setenv('A', 'b')"))
    assert apply("gcc/1.lua")["changed_files"] == ["gcc/1.lua"]
    path.chmod(0o600)
    assert apply("gcc/1.lua")["changed_files"] == ["gcc/1.lua"]
    os.chown(path, 12345, -1)
    assert apply("gcc/1.lua")["changed_files"] == ["gcc/1.lua"]
    assert path.read_text() == text("gcc/1.lua")


def test_a_tree_without_modules_is_a_folder(tree, apply):
    assert apply()["changed"]
    assert tree.folder.is_dir()
    assert not apply()["changed"]
