"""What goes when a user's last job on a node has ended, and what never does."""

import dataclasses
import importlib.util
import os
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "files/etc/slurm/job_leftovers.py"
ADA, BOB = 2001, 2002


def _program():
    spec = importlib.util.spec_from_file_location("job_leftovers", PROGRAM)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


leftovers = _program()


@pytest.fixture
def node(tmp_path):
    """A node without processes and jobs, whose /tmp is in `tmp_path`."""
    places = leftovers.Places(tmp_path / "jobs", tmp_path / "proc", (str(tmp_path / "tmp"),))
    for folder in (places.jobs, places.proc, *places.folders):
        Path(folder).mkdir()
    return places


def process(node, number, user, command=b"", name="name", group="/system.slice/x.service"):
    folder = node.proc / str(number)
    folder.mkdir()
    (folder / "status").write_text(
        f"Name:\t{name}\nState:\tS\nUid:\t{user}\t{user}\t{user}\t{user}\n"
    )
    (folder / "cmdline").write_bytes(command)
    (folder / "cgroup").write_text(f"0::{group}\n")


def test_after_the_only_job_what_came_since_is_removed(node):
    leftovers.begin("7", ADA, node, now=100)
    assert leftovers.end("7", ADA, node) == leftovers.Presence(ADA, 100)
    assert not list(node.jobs.glob("[0-9]*"))


def test_while_another_job_of_the_user_is_there_nothing_is(node):
    leftovers.begin("7", ADA, node, now=100)
    leftovers.begin("8", ADA, node, now=200)
    assert leftovers.end("7", ADA, node) is None
    # And what the first left goes with the last.
    assert leftovers.end("8", ADA, node) == leftovers.Presence(ADA, 100)


def test_jobs_of_others_keep_nothing(node):
    leftovers.begin("7", ADA, node, now=100)
    leftovers.begin("8", BOB, node, now=50)
    assert leftovers.end("7", ADA, node) == leftovers.Presence(ADA, 100)


@pytest.mark.parametrize("user", [0, 1, 64, 999, 65534])
def test_system_accounts_keep_everything(node, user):
    leftovers.begin("7", user, node, now=100)
    assert leftovers.end("7", user, node) is None


def test_a_job_that_began_without_it_removes_nothing(node):
    assert leftovers.end("7", ADA, node) is None


def test_a_record_that_says_nothing_keeps_everything(node):
    leftovers.begin("7", ADA, node, now=100)
    (node.jobs / "8").write_text("?")
    assert leftovers.end("7", ADA, node) is None


def test_a_user_with_a_process_keeps_everything(node):
    leftovers.begin("7", ADA, node, now=100)
    process(node, 50, ADA, b"sshd")
    assert leftovers.end("7", ADA, node) is None


@pytest.mark.parametrize(
    ("group", "kept"),
    [
        ("/user.slice/user-2001.slice/user@2001.service/init.scope", False),
        ("/user.slice/user-2001.slice/user@2001.service/app.slice/agent.service", True),
        ("/user.slice/user-2001.slice/session-7.scope", True),
        ("/user.slice/user-2002.slice/user@2002.service/init.scope", True),
    ],
)
def test_a_service_manager_alone_keeps_nothing(node, group, kept):
    leftovers.begin("7", ADA, node, now=100)
    process(node, 1, ADA, name="systemd", group=group)
    assert (leftovers.end("7", ADA, node) is None) is kept


def test_no_name_of_a_process_says_whose_it_is(node):
    leftovers.begin("7", ADA, node, now=100)
    process(node, 50, ADA, name="x\\nUid:\t9")
    assert leftovers.end("7", ADA, node) is None


@pytest.mark.parametrize(
    ("user", "command", "kept"),
    [
        (0, b"slurmstepd: [9.extern]", True),  # who has it, nobody wrote down
        (0, b"slurmstepd: [9+1.0]", True),
        (0, b"slurmstepd: [7.extern]", False),  # its own
        (0, b"slurmstepd: [8.0]", False),  # bob's
        (0, b"/usr/sbin/slurmstepd\0infinity", False),
        (BOB, b"slurmstepd: [9.extern]", False),  # bob's joke
    ],
)
def test_a_job_that_nobody_wrote_down_may_be_the_users(node, user, command, kept):
    leftovers.begin("7", ADA, node, now=100)
    leftovers.begin("8", BOB, node, now=100)
    process(node, 50, user, command)
    assert (leftovers.end("7", ADA, node) is None) == kept


def test_shared_memory_of_the_user_since_then_is_named(node):
    (node.proc / "sysvipc").mkdir()
    head = "key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap"
    rows = [
        f"0 {number} 600 4096 1 1 0 {user} 1 1 1 0 0 {made} 0 0"
        for number, user, made in ((3, ADA, 150), (4, ADA, 50), (5, BOB, 150))
    ]
    (node.proc / "sysvipc/shm").write_text("\n".join([head, *rows]) + "\n")
    commands = list(leftovers.commands(leftovers.Presence(ADA, 100), node))
    assert commands[2:] == [["ipcrm", "--shmem-id", "3"]]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as another user")
def test_files_go_with_the_rights_of_the_user_alone(node, tmp_path):
    for folder in (*tmp_path.parents, tmp_path):
        if folder.stat().st_mode & 0o077 == 0:
            folder.chmod(0o755)  # pytest's own folders; another user passes through them
    tmp = Path(node.folders[0])
    tmp.chmod(0o1777)
    outside = tmp_path / "outside"
    outside.mkdir()
    for path, owner in ((tmp / "old", ADA), (tmp / "bob", BOB), (outside / "ada", ADA)):
        path.write_text("x")
        os.chown(path, owner, owner)
    since = int((tmp / "old").stat().st_ctime) + 1
    while int(os.stat(_touch(tmp / "clock")).st_ctime) <= since:
        pass
    (tmp / "closed/deep").mkdir(parents=True)
    (tmp / "closed/deep/file").write_text("x")
    (tmp / "link").symlink_to(outside)
    for path in (tmp / "closed", tmp / "closed/deep", tmp / "closed/deep/file", tmp / "link"):
        os.chown(path, ADA, ADA, follow_symlinks=False)
    (tmp / "closed").chmod(0)
    leftovers.remove(leftovers.Presence(ADA, since), node)
    assert sorted(path.name for path in tmp.iterdir()) == ["bob", "clock", "old"]
    assert (outside / "ada").exists()


def _touch(path):
    path.write_text("x")
    return path


def test_it_runs_without_a_library_and_writes_down_a_job(node, monkeypatch):
    places = dataclasses.replace(node, folders=())
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(ADA)}
    leftovers.main({**job, "SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}, places)
    assert (node.jobs / "7").read_text().startswith(f"{ADA} ")
    assert node.jobs.stat().st_mode & 0o777 == 0o700
    removed = []
    monkeypatch.setattr(leftovers, "remove", lambda presence, _: removed.append(presence.user))
    leftovers.main({**job, "SLURM_SCRIPT_CONTEXT": "epilog_slurmd"}, places)
    assert removed == [ADA]
