"""Folders of daemons: made, given to their owner, and no link followed that root did not make."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.refused import Refused

from playbooks.library import folders
from tests.live_cluster import REPOSITORY

NOBODY = 65534


def wanted(path: Path, mode: int = 0o755, user: int | None = None) -> folders.Wanted:
    return folders.Wanted(path, os.geteuid() if user is None else user, os.getegid(), mode)


@pytest.fixture
def place(tmp_path):
    tmp_path.chmod(0o755)
    return tmp_path.resolve()


def test_a_missing_folder_is_made_once(place):
    first = folders.run([wanted(place / "a"), wanted(place / "a/b", 0o750)], check_mode=False)
    assert first["changed"]
    assert [Path(item["after_header"]).name for item in first["diff"]] == ["a", "b"]
    assert (place / "a/b").stat().st_mode & 0o7777 == 0o750
    again = folders.run([wanted(place / "a"), wanted(place / "a/b", 0o750)], check_mode=False)
    assert again == {"changed": False, "diff": []}


def test_one_that_another_host_makes_in_the_same_moment_is_taken(place, monkeypatch):
    """Two controllers share the folder of their state, and begin together."""
    mkdir = os.mkdir

    def late(name, mode=0o777, *, dir_fd=None):
        mkdir(name, 0o700, dir_fd=dir_fd)
        mkdir(name, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", late)
    assert folders.run([wanted(place / "a/b", 0o750)], check_mode=False)["changed"]
    monkeypatch.undo()
    assert (place / "a/b").stat().st_mode & 0o7777 == 0o750


def test_check_mode_tells_and_changes_nothing(place):
    assert folders.run([wanted(place / "a"), wanted(place / "a/b")], check_mode=True)["changed"]
    assert not (place / "a").exists()
    (place / "a").mkdir(mode=0o700)
    assert folders.run([wanted(place / "a")], check_mode=True)["diff"][0]["before"].endswith(
        "0700\n"
    )
    assert (place / "a").stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_role_stays_whose_it_is(place):
    kept = folders.Wanted(place / "a", os.geteuid(), os.getegid(), 0o755, keep=True)
    assert folders.run([kept], check_mode=False)["changed"]
    (place / "a").chmod(0o750)
    assert folders.run([kept], check_mode=False) == {"changed": False, "diff": []}
    assert (place / "a").stat().st_mode & 0o777 == 0o750
    assert folders.wanted_of({"path": str(place / "a"), "keep": True, "owner": "0"}).keep


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_link_where_others_may_write_is_not_followed(place, mode, below):
    victim = place / "victim"
    victim.mkdir(mode=0o700)
    service = place / "service"
    service.mkdir()
    service.chmod(mode)
    (service / "data").symlink_to(victim)
    for check_mode in (True, False):
        with pytest.raises(Refused, match=r"service/data is a link to .*victim, and who made it"):
            folders.run([wanted(service / "data" / below, 0o777)], check_mode)
    assert victim.stat().st_mode & 0o777 == 0o700
    assert list(victim.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user, as root")
def test_nor_one_in_a_folder_of_a_services_user(place):
    victim, service = place / "victim", place / "service"
    victim.mkdir()
    service.mkdir()
    (service / "data").symlink_to("../victim")
    os.chown(service, NOBODY, NOBODY)
    with pytest.raises(Refused, match="is a link to"):
        folders.run([wanted(service / "data", user=NOBODY)], check_mode=False)
    assert victim.stat().st_uid == 0
    # The folder is root's from this run on, and the link is still of the time before.
    os.chown(service / "data", NOBODY, NOBODY, follow_symlinks=False)
    os.chown(service, 0, 0)
    with pytest.raises(Refused, match="is a link to"):
        folders.run([wanted(service / "data", user=NOBODY)], check_mode=False)
    assert victim.stat().st_uid == 0
    # The same where root made it.
    os.chown(service / "data", 0, 0, follow_symlinks=False)
    assert folders.run([wanted(service / "data", user=NOBODY)], check_mode=False)["changed"]
    assert victim.stat().st_uid == NOBODY
    assert (service / "data").is_symlink()


@pytest.mark.parametrize("target", ["disk", "{place}/disk", "./x/../disk"])
def test_a_link_that_root_alone_could_make_is_followed(place, target):
    (place / "disk").mkdir(mode=0o700)
    (place / "x").mkdir()
    (place / "service").symlink_to(target.format(place=place))
    assert folders.run([wanted(place / "service"), wanted(place / "service/data")], False)[
        "changed"
    ]
    assert (place / "disk/data").is_dir()
    assert (place / "disk").stat().st_mode & 0o777 == 0o755


def test_what_is_no_folder_and_what_leads_in_circles_is_refused(place):
    (place / "file").touch()
    (place / "round").symlink_to("round")
    with pytest.raises(Refused, match="file is there and is no folder; move it away"):
        folders.run([wanted(place / "file/below")], check_mode=False)
    with pytest.raises(Refused, match="round is a link to round"):
        folders.run([wanted(place / "round")], check_mode=False)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"path": "var/lib"}, "is no absolute path"),
        ({"path": "/var/../etc"}, "is no absolute path"),
        ({"path": "/x", "owner": "no-such-user"}, "the host has no such account"),
        ({"path": "/x", "group": "no-such-group"}, "the host has no such account"),
    ],
)
def test_an_entry_that_cannot_be_is_refused(entry, words):
    with pytest.raises(Refused, match=words):
        folders.wanted_of(entry)


def test_an_entry_is_roots_unless_it_says_otherwise():
    assert folders.wanted_of({"path": "/x"}) == folders.Wanted(Path("/x"), 0, 0, 0o755)


def tasks(document: object):
    for task in document if isinstance(document, list) else ():
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks(task.get(part))


def test_folders_of_others_than_root_are_made_by_this_module_alone():
    """`file` follows a link that the owner of the folder above it made."""
    makes = {}
    for path in [*REPOSITORY.glob("roles/*/tasks/*.yml"), *REPOSITORY.glob("playbooks/**/*.yml")]:
        for task in tasks(yaml.safe_load(path.read_text(encoding="utf-8"))):
            arguments = task.get("ansible.builtin.file") or {}
            if arguments.get("state") == "directory":
                makes[f"{path.parent.parent.name}: {task['name']}"] = arguments.get("owner")
    assert makes
    assert {name: owner for name, owner in makes.items() if owner not in ("root", None)} == {}
