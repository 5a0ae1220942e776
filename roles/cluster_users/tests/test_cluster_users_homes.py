"""Homes that are not there, and limits on the filesystem that they are on."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils.cluster_users_module import Failed, Refused

from roles.cluster_users.library import cluster_users_homes as homes

UID, GID = os.getuid(), os.getgid()
MOUNTINFO = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 8:1 / /srv rw,relatime shared:1 - xfs /dev/sda1 rw,attr2,usrquota
41 40 8:2 / /srv/no rw,relatime - xfs /dev/sda2 rw,uqnoenforce,usrquota
42 27 8:3 / /with\\040space rw - ext4 /dev/sda3 rw,quota,usrquota
43 27 8:4 / /old rw - ext4 /dev/sda4 rw,usrjquota=aquota.user,jqfmt=vfsv1
44 27 0:50 / /nfs rw - nfs4 storage1:/home rw,vers=4.2
"""
MOUNTS = homes.mounts_of(MOUNTINFO)
# As repquota of quota 4.06 writes it.
REPORT = """\
User,BlockStatus,FileStatus,BlockUsed,BlockSoftLimit,BlockHardLimit,BlockGrace,FileUsed,FileSoftLimit,FileHardLimit,FileGrace
#0,ok,ok,20,0,0,,2,0,0,
#2001,ok,ok,12,1024,2048,,4,0,100,
#2002,soft,ok,3000,1024,2048,7days,4,0,0,

"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "skel/folder").mkdir(parents=True)
    (tmp_path / "skel/.profile").write_text("umask 077\n")
    (tmp_path / "skel/link").symlink_to(".profile")
    return tmp_path


def user(root, name="ada", **more):
    return homes.User(**{"name": name, "uid": UID, "gid": GID, "home": root / "home" / name} | more)


def run(root, *users, check_mode=False, mounts=MOUNTS, ask=None, mode=0o700):
    return homes.run(users, mode, root / "skel", check_mode, mounts, ask or never)


def never(command, stdin=""):
    raise AssertionError(command)


# --- homes ---------------------------------------------------------------------------------------


def test_a_home_is_made_with_the_skeletons_files(root):
    result = run(root, user(root), mode=0o750)
    home = root / "home/ada"
    assert result["changed"]
    assert home.stat().st_mode & 0o7777 == 0o750
    assert (home / ".profile").read_text() == "umask 077\n"
    assert (home / "link").is_symlink()
    assert {path.lstat().st_uid for path in home.rglob("*")} == {UID}
    assert not run(root, user(root))["changed"]
    assert [path.name for path in (root / "home").iterdir()] == ["ada"]


def test_a_home_that_is_there_is_not_touched(root):
    home = root / "home/ada"
    home.mkdir(mode=0o755)
    (home / "thesis").write_text("x")
    assert not run(root, user(root))["changed"]
    assert home.stat().st_mode & 0o777 == 0o755
    assert [path.name for path in home.iterdir()] == ["thesis"]


def test_a_home_of_somebody_else_is_refused_and_nobody_gets_one(root):
    (root / "home/bob").mkdir()
    with pytest.raises(Refused) as refused:
        run(root, user(root), user(root, "bob", uid=2002))
    [sentence] = refused.value.sentences
    assert sentence.startswith(f"{root}/home/bob is uid {UID}'s here and should be the home of bob")
    assert not (root / "home/ada").exists()
    (root / "home/carol").write_text("")
    with pytest.raises(Refused, match="the home of carol, is no folder here"):
        run(root, user(root, "carol"), check_mode=True)


def test_a_folder_that_is_not_mounted_yet_is_not_made(root):
    away = [user(root, name, home=root / "away" / name) for name in ("ada", "bob", "carol")]
    with pytest.raises(Refused) as refused:
        run(root, *away)
    [sentence] = refused.value.sentences
    assert sentence.startswith(f"{root}/away is not there, where the home of ada and 2 more ")
    assert not (root / "away").exists()
    # A layer of the same run may mount it.
    assert run(root, *away, check_mode=True)["warnings"] == [f"{sentence}."]


def test_an_interrupted_home_is_made_anew(root, monkeypatch):
    def power_cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "lchown", power_cut)
    with pytest.raises(KeyboardInterrupt):
        run(root, user(root))
    assert not (root / "home/ada").exists()
    monkeypatch.undo()
    run(root, user(root))
    assert [path.name for path in (root / "home").iterdir()] == ["ada"]


def test_who_is_locked_or_absent_gets_no_home_and_keeps_what_is_there(root):
    (root / "home/ada").mkdir()
    result = run(root, user(root, state="absent"), user(root, "bob", state="locked"))
    assert (result["changed"], result["kept"]) == (False, [f"{root}/home/ada"])
    assert [path.name for path in (root / "home").iterdir()] == ["ada"]


# --- quota ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "point", "enforces"),
    [
        ("/home", "/", False),
        ("/srv/home", "/srv", True),
        ("/srv/no/home", "/srv/no", False),
        ("/with space/x", "/with space", True),
        ("/old/home", "/old", True),
        ("/nfs", "/nfs", False),
        ("/srvx", "/", False),
    ],
)
def test_a_homes_filesystem_and_whether_it_holds_users_to_limits(path, point, enforces):
    mount = homes.mount_of(Path(path), MOUNTS)
    assert (mount.point, mount.enforces) == (point, enforces)


def test_a_quota_where_there_is_none_is_refused(root):
    bare = [homes.Mount("/", "ext4", frozenset({"rw"}))]
    limited = user(root, limits=(0, 1024, 0, 0))
    with pytest.raises(Refused) as refused:
        run(root, limited, mounts=bare)
    [sentence] = refused.value.sentences
    assert sentence.startswith("a quota is declared, and /, where homes are, is ext4 that holds ")
    assert not (root / "home/ada").exists()
    assert run(root, limited, mounts=bare, check_mode=True)["warnings"] == [f"{sentence}."]
    assert run(root, user(root), mounts=bare)["changed"]


def test_only_limits_that_differ_are_set_and_all_at_once(root):
    quota = [homes.Mount("/", "xfs", frozenset({"rw", "usrquota"}))]
    calls = []

    def ask(command, stdin):
        calls.append((command[0], command[-1], stdin))
        return REPORT if command[0] == "repquota" else ""

    users = [
        user(root, "ada", uid=2001, home=root / "x", limits=(1024, 2048, 0, 100), state="locked"),
        user(root, "bob", uid=2002, home=root / "y", limits=(1024, 4096, 0, 0), state="locked"),
        user(root, "carol", uid=2003, home=root / "z", limits=(0, 512, 0, 0), state="locked"),
        user(root, "dan", uid=2004, home=root / "d", limits=(0, 0, 0, 0), state="locked"),
    ]
    result = run(root, *users, mounts=quota, ask=ask)
    assert calls == [
        ("repquota", "/", ""),
        ("setquota", "/", "2002 1024 4096 0 0\n2003 0 512 0 0\n"),
    ]
    assert result["diff"]["before"] == ("bob: 1024 to 2048 KiB, 0 to 0 files\ncarol: no limit\n")
    calls.clear()
    assert not run(root, users[0], users[3], mounts=quota, ask=ask)["changed"]
    assert [command for command, _, _ in calls] == ["repquota"]
    # No declared limit: nobody is asked, and what an admin set stays.
    assert not run(root, replace(users[1], limits=()), mounts=quota)["changed"]


def test_check_mode_asks_nobody_who_is_not_there_yet(root, monkeypatch):
    quota = [homes.Mount("/", "xfs", frozenset({"usrquota"}))]
    monkeypatch.setattr(shutil, "which", lambda _: None)
    limited = user(root, state="locked", limits=(0, 1024, 0, 0))
    assert run(root, limited, mounts=quota, check_mode=True)["changed"]


def test_a_report_with_statistics_is_read():
    limits = homes.limits_of(f"*** Report\n{REPORT}Statistics:\nTotal blocks: 7\n")
    assert limits == {0: (0, 0, 0, 0), 2001: (1024, 2048, 0, 100), 2002: (1024, 2048, 0, 0)}


def test_a_program_that_fails_is_one_sentence():
    with pytest.raises(Failed, match="cannot be started: No such file"):
        homes.ask(["/no/such"])
    with pytest.raises(Failed, match=r"ls /no/such failed: .*No such file"):
        homes.ask(["ls", "/no/such"])
    assert homes.ask(["cat"], "x") == "x"
