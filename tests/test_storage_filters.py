"""Where homes are, by what a site declares of its storage."""

import pytest

from playbooks.filter_plugins.storage import on_shared_filesystem, shared_home

FOLDERS = [{"path": "/lustre/scratch", "tier": "scratch"}, {"path": "/lustre/home", "tier": "home"}]
EXPORTS = [
    {"server": "store1", "path": "/srv/scratch", "tier": "scratch"},
    {"server": "store1", "path": "/srv/home", "tier": "home"},
]
MOUNTS = [
    {"path": "/scratch", "kind": "nfs", "source": "store1:/srv/scratch"},
    {"path": "/shared/home", "kind": "nfs", "source": "store1:/srv/home"},
    {"path": "/lustre", "kind": "external", "type": "lustre"},
]


@pytest.mark.parametrize(
    ("folders", "exports", "mounts", "home"),
    [
        ([], [], [], ""),
        (FOLDERS, [], MOUNTS[2:], "/lustre/home"),
        ([], EXPORTS, MOUNTS, "/shared/home"),
        ([], EXPORTS, MOUNTS[:1], ""),
        ([], [], MOUNTS, ""),
    ],
    ids=["nothing shared", "a folder", "an export", "an export nobody mounts", "other mounts"],
)
def test_homes_are_where_the_tier_is(folders, exports, mounts, home):
    assert shared_home(folders, exports, mounts) == home


@pytest.mark.parametrize(
    ("folder", "shared"),
    [("/lustre", True), ("/lustre/scratch", True), ("/lustre2", False), ("/local", False)],
)
def test_a_folder_is_shared_below_a_mount(folder, shared):
    assert on_shared_filesystem(folder, MOUNTS) == shared
