"""Versions of data sets: fetched, verified, unpacked, and there at once or not at all."""

from __future__ import annotations

import grp
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import textwrap
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.refused import Refused

from playbooks.module_utils.published import mount_of
from roles.datasets.library import datasets as m
from roles.datasets.module_utils.datasets_publish import Log, Settings
from tests.conftest import REPOSITORY
from tests.standins.ranges import serving

BIG = os.urandom(3_000_000)


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def tar(files: dict[str, bytes], *more: tarfile.TarInfo, mode: Any = "w:gz") -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode=mode) as file:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), 0o600, 1_000_000_000
            file.addfile(member, io.BytesIO(content))
        for member in more:
            file.addfile(member)
    return written.getvalue()


def member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zipped(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return written.getvalue()


@pytest.fixture
def web():
    with serving() as served:
        yield served


@pytest.fixture
def root(tmp_path):
    return tmp_path / "datasets"


@pytest.fixture
def publish(root):
    """A function that applies the module; entries are `entry(...)`."""

    def apply(*entries, check=False, **settings):
        return m.run(entries, Settings(root, pause=0, **settings), check)

    return apply


@pytest.fixture
def entry(web):
    """A function that serves files and declares them; of each the hash may be another one."""

    def declare(files, name="iris", version="1", **more):
        declared = [
            {
                "url": web.serve(f"/{file}", content),
                "sha256": sha(content),
                **more.pop("of_file", {}),
            }
            for file, content in files.items()
        ]
        words = {"description": "Measures of flowers.", "source": "https://example.org/iris"}
        head = {"name": name, "version": version, "licence": "CC0-1.0", "files": declared}
        return words | head | more

    return declare


def refused(apply, *entries, **settings) -> str:
    with pytest.raises(Refused) as problem:
        apply(*entries, **settings)
    return str(problem.value)


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


# --- what is published ---------------------------------------------------------------------------


def test_an_archive_becomes_a_folder_that_root_alone_writes(publish, root, entry):
    result = publish(entry({"iris.tar.gz": tar({"iris/data.csv": b"1,2\n", "LICENCE": b"free"})}))
    folder = root / "iris/1"
    assert tree(folder) == {".dataset.json", "iris", "iris/data.csv", "LICENCE"}
    assert (folder / "iris/data.csv").read_bytes() == b"1,2\n"
    assert (folder / "iris/data.csv").stat().st_mtime == 1_000_000_000
    modes = {path.stat().st_mode & 0o7777 for path in [folder, folder / "iris"]}
    assert modes == {0o755}
    assert (folder / "iris/data.csv").stat().st_mode & 0o7777 == 0o644
    assert {path.stat().st_uid for path in folder.rglob("*")} == {os.geteuid()}
    assert result["changed"]
    assert re.fullmatch(r"iris 1 is fetched: \d+ bytes from 127.0.0.1:\d+", result["steps"][0])


def test_a_second_run_asks_nobody_and_changes_nothing(publish, root, entry, web):
    declared = entry({"iris.tar.gz": tar({"data": b"1"})})
    publish(declared)
    web.asked.clear()
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*") if path.name != "log"}
    again = publish(declared)
    assert (again["changed"], again["steps"], web.asked) == (False, [], [])
    del before[root / ".incoming"], before[root / ".incoming/lock"]
    assert all(path.lstat().st_mtime_ns == then for path, then in before.items())


def test_check_mode_tells_and_fetches_nothing(publish, root, entry):
    declared = entry({"big.bin": BIG})
    result = publish(declared, check=True)
    assert result["changed"]
    assert result["steps"][0].startswith("iris 1 is fetched: 3.0 MB from 127.0.0.1")
    assert not root.exists()
    publish(declared)
    assert not publish(declared, check=True)["changed"]


def test_a_file_is_published_as_it_is_and_a_zip_is_unpacked(publish, root, entry):
    declared = entry({"a.csv": b"a", "b.zip": zipped({"b/b.csv": b"b"})})
    declared["files"][0]["folder"] = "tables"
    publish(declared)
    assert tree(root / "iris/1") == {".dataset.json", "tables", "tables/a.csv", "b", "b/b.csv"}
    assert (root / "iris/1/tables/a.csv").stat().st_mode & 0o7777 == 0o644


def test_a_new_version_lies_beside_the_old(publish, root, entry):
    old = entry({"one.csv": b"1"})
    publish(old)
    publish(old, entry({"two.csv": b"2"}, version="2"))
    assert (root / "iris/1/one.csv").read_bytes() == b"1"
    assert (root / "iris/2/two.csv").read_bytes() == b"2"
    assert (root / ".modulefiles/data/iris/2.lua").exists()


def test_what_leaves_the_list_stays(publish, root, entry):
    publish(entry({"one.csv": b"1"}))
    assert not publish()["changed"]
    assert (root / "iris/1/one.csv").exists()
    assert "iris/1" in (root / "iris/README.md").read_text()


def test_absent_removes_that_version_alone(publish, root, entry):
    publish(entry({"one.csv": b"1"}), entry({"two.csv": b"2"}, version="2"))
    gone = {"name": "iris", "version": "1", "state": "absent"}
    assert publish(gone, check=True)["steps"] == ["iris 1 is removed"]
    assert publish(gone)["steps"] == ["iris 1 is removed"]
    assert not publish(gone)["changed"]
    assert not (root / "iris/1").exists()
    assert (root / "iris/2/two.csv").exists()
    assert not (root / ".modulefiles/data/iris/1.lua").exists()
    publish(gone | {"version": "2"})
    assert tree(root) == {"README.md", ".incoming", ".incoming/log", ".incoming/lock"} | {
        ".modulefiles",
        ".modulefiles/data",
    }


def test_readers_of_a_group_alone(publish, root, entry):
    group = grp.getgrgid(os.getegid()).gr_name
    declared = entry({"one.csv": b"1"}, readers=group)
    publish(declared)
    assert (root / "iris/1").stat().st_mode & 0o7777 == 0o750
    assert f"the group {group}" in (root / "iris/README.md").read_text()
    del declared["readers"]
    assert publish(declared)["steps"] == [
        "iris 1 gets its new description",
        "iris 1 is readable for everybody",
    ]
    assert (root / "iris/1").stat().st_mode & 0o7777 == 0o755
    (root / "iris/1").chmod(0o777)
    assert publish(declared)["steps"] == ["iris 1 is readable for everybody"]


def test_pages_say_what_users_need(publish, root, entry, web):
    publish(entry({"one.csv": b"1"}, licence="CC-BY|4.0", description='Flowers "and" more'))
    page = (root / "iris/README.md").read_text()
    assert "sbatch --wrap='module load data/iris/1 && ls $DATASET_IRIS'" in page
    assert f"`{root}/iris/1`" in page
    assert "CC-BY\\|4.0" in page
    assert f"| 1 | <{web.address}/one.csv> | `{sha(b'1')}` |" in page
    index = (root / "README.md").read_text()
    assert "| [iris](iris/README.md) | 1 | 1 bytes |" in index
    module = (root / ".modulefiles/data/iris/1.lua").read_text()
    assert f'setenv("DATASET_IRIS", "{root}/iris/1")' in module
    assert 'whatis("Description: Flowers \\"and\\" more")' in module
    foreign = root / "theirs"
    foreign.mkdir()
    (foreign / "README.md").write_text("Mine")
    assert not publish()["changed"]
    assert (foreign / "README.md").exists()


def test_a_new_address_of_the_same_file_is_a_description(publish, root, entry, web):
    publish(entry({"one.tar": tar({"a": b"1"}, mode="w")}))
    body = web.files["/one.tar"].body
    moved = entry({"moved.tar": body})
    assert publish(moved)["steps"] == ["iris 1 gets its new description"]
    assert "moved.tar" in (root / "iris/README.md").read_text()
    assert not publish(moved)["changed"]


# --- what breaks off -----------------------------------------------------------------------------


def test_a_run_that_lost_its_server_goes_on(publish, root, entry, web):
    declared = entry({"big.bin": BIG})
    web.files["/big.bin"].cuts[:] = [99, 1_500_000, *[0] * 9]  # the first is asked for its length
    assert "broke off after 1500000 of 3000000" in refused(publish, declared, tries=2)
    assert not (root / "iris/1").exists()
    web.files["/big.bin"].cuts.clear()
    web.asked.clear()
    assert publish(declared, check=True)["steps"][0].startswith("iris 1 is fetched: 1.5 MB")
    publish(declared)
    assert web.asked[-1] == ("/big.bin", "bytes=1500000-")
    assert (root / "iris/1/big.bin").read_bytes() == BIG
    assert "published, 1 files, 3.0 MB" in (root / ".incoming/log").read_text()


def test_a_part_of_another_file_is_fetched_again(publish, root, entry, web):
    declared = entry({"big.bin": BIG})
    work = root / ".incoming/iris/1"
    work.mkdir(parents=True)
    root.chmod(0o755)
    (work / f"{sha(BIG)[:16]}-big.bin.part").write_bytes(b"x" * 1000)
    publish(declared)
    assert (root / "iris/1/big.bin").read_bytes() == BIG
    assert [span for _, span in web.asked] == ["", "bytes=1000-", ""]


def test_another_hash_publishes_nothing_and_leaves_nothing(publish, root, entry):
    declared = entry({"big.bin": BIG})
    declared["files"][0]["sha256"] = "0" * 64
    sentence = refused(publish, declared)
    assert f"has the SHA-256 {sha(BIG)}, and {'0' * 64} is declared; nothing was" in sentence
    assert not [path for path in tree(root) if "big" in path or path.startswith("iris")]


def test_mirrors_are_asked_in_their_order(publish, root, entry, web):
    declared = entry({"one.csv": b"1"})
    declared["files"][0] |= {"url": f"{web.address}/away/one.csv"}
    declared["files"][0] |= {"mirrors": [web.serve("/bad/one.csv", b"2"), f"{web.address}/one.csv"]}
    publish(declared)
    assert (root / "iris/1/one.csv").read_bytes() == b"1"


def test_a_version_that_cannot_be_had_keeps_no_other_away(publish, root, entry):
    bad, good = entry({"bad.csv": b"1"}, name="bad"), entry({"one.csv": b"1"})
    bad["files"][0]["sha256"] = "0" * 64
    refused(publish, bad, good)
    assert (root / "iris/1/one.csv").exists()
    assert (root / "iris/README.md").exists()


def test_what_is_declared_no_more_is_not_kept_half(publish, root, entry, web):
    declared = entry({"big.bin": BIG})
    web.files["/big.bin"].cuts[:] = [99, 1_500_000, *[0] * 9]
    refused(publish, declared, tries=0)
    assert publish()["steps"] == [f"{root}/.incoming/iris/1 is removed, which no entry asks for"]
    assert not publish()["changed"]


KILLED = """
    import sys
    from pathlib import Path
    import tests.conftest
    sys.path.insert(0, ".")
    import conftest
    from roles.datasets.library import datasets as m
    import ansible.module_utils.datasets_unpack as unpack
    entry = __import__("json").loads(sys.argv[2])
    one, at = unpack.Folder.add_file, sys.argv[3]

    def add_file(self, member, *rest):
        if str(member) == at:
            print("half", flush=True)
            __import__("time").sleep(60)
        return one(self, member, *rest)

    unpack.Folder.add_file = add_file
    m.run([entry], m.Settings(Path(sys.argv[1])), False)
"""


def test_a_run_that_is_killed_while_it_unpacks_is_repeated(publish, root, entry, web):
    archive = tar({f"file{number}": b"x" * 1000 for number in range(5)})
    declared = entry({"files.tgz": archive})
    program = [sys.executable, "-c", textwrap.dedent(KILLED)]
    with subprocess.Popen(
        [*program, root, json.dumps(declared), "file3"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout
        assert run.stdout.readline() == "half\n"
        # Meanwhile the folder is not there, and a second run is refused.
        assert not (root / "iris").exists()
        assert "another run of the role datasets works in" in refused(publish, declared)
        run.kill()
    assert "new/file2" in {path[len(".incoming/iris/1/") :] for path in tree(root)}
    web.asked.clear()
    publish(declared)
    assert len(tree(root / "iris/1")) == 6
    assert len(web.asked) == 1  # for its length: what was verified is not fetched again


def test_the_log_says_how_far_it_is(tmp_path):
    log = Log(tmp_path / "log")
    log.begin("imagenet 2012: train.tar", 0)
    log.began = time.monotonic() - 10
    log.told(5_000_000_000, 20_000_000_000)
    log.told(5_000_000_001, 20_000_000_000)  # not every megabyte
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert line.endswith("imagenet 2012: train.tar: 5.0 GB of 20.0 GB (25%), 500.0 MB/s")


# --- what is refused -----------------------------------------------------------------------------


def test_another_file_under_a_published_version(publish, root, entry):
    publish(entry({"one.csv": b"1"}))
    sentence = refused(publish, entry({"one.csv": b"2"}))
    assert f"with the files {sha(b'1')[:12]} (SHA-256), and {sha(b'2')[:12]} are" in sentence
    assert sentence.endswith("give it a new version")
    assert (root / "iris/1/one.csv").read_bytes() == b"1"


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_folder_of_somebody_else_has_the_place(publish, root, entry, state):
    (root / "iris/1").mkdir(parents=True)
    root.chmod(0o755)
    declared = entry({"one.csv": b"1"}, state=state)
    assert "iris/1 is there and was not published from a declaration" in refused(publish, declared)
    assert (root / "iris/1").exists()


def test_a_group_that_does_not_exist(publish, root, entry):
    sentence = refused(publish, entry({"one.csv": b"1"}, readers="nosuchgroup"), check=True)
    assert "iris 1: the group nosuchgroup does not exist on this host; create it" in sentence
    assert not root.exists()


def test_a_file_that_does_not_exist_is_known_before_anything_is_fetched(publish, root, entry, web):
    declared = entry({"one.csv": b"1", "two.csv": b"2"})
    del web.files["/two.csv"]
    assert "two.csv does not exist (404)" in refused(publish, declared)
    assert not [path for path in tree(root) if "one.csv" in path]


def disk(monkeypatch, free: int) -> None:
    fake = os.statvfs_result((1, 1, free, free, free, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: fake)


def test_a_disk_without_room_is_known_before_anything_is_fetched(
    publish, root, entry, web, monkeypatch
):
    """For the archive and what is in it."""
    archive = tar({"big": BIG})
    disk(monkeypatch, 4_000_000)
    declared = entry({"big.tgz": archive})
    sentence = refused(publish, declared)
    assert "datasets has 4.0 MB free, and 6.0 MB are needed until iris 1 is fetched and" in sentence
    assert [span for _, span in web.asked] == [""]
    assert not [path for path in tree(root) if "big" in path]
    disk(monkeypatch, 7_000_000)
    assert "9.0 MB are needed" in refused(publish, declared | {"size": 6_000_000}, check=True)
    publish(declared, check=True)
    two = entry({"other.bin": BIG + BIG[:2_000_000]}, name="other")
    assert "8.0 MB are needed until other 1" in refused(publish, declared, two, check=True)


def test_what_is_removed_makes_room(publish, root, entry, monkeypatch):
    publish(entry({"big.bin": BIG}))
    disk(monkeypatch, 1_000_000)
    gone = {"name": "iris", "version": "1", "state": "absent"}
    publish(entry({"big.bin": BIG}, name="new"), gone)
    assert (root / "new/1/big.bin").exists()


def test_a_zip_that_is_larger_inside_than_the_disk(publish, root, entry, monkeypatch):
    declared = entry({"zeros.zip": zipped({"zeros": bytes(5_000_000)})})
    disk(monkeypatch, 100_000)
    assert "free, and 5.0 MB are in zeros.zip; make room and run again" in refused(
        publish, declared
    )
    assert not (root / "iris").exists()


def test_a_disk_that_is_full_after_all(publish, root, entry, monkeypatch):
    declared = entry({"iris.tgz": tar({"data": BIG})})

    def full(*_):
        raise OSError(28, "No space left on device", "/shared/x")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        publish(declared)
    monkeypatch.undo()
    assert not (root / "iris").exists()
    publish(declared)
    assert (root / "iris/1/data").read_bytes() == BIG


def test_a_root_that_is_not_mounted_or_somebody_elses(publish, root, entry, tmp_path):
    declared = entry({"one.csv": b"1"})
    assert f"{tmp_path} is not mounted on this host, and {root} belongs on it" in refused(
        publish, declared, mounts=(str(tmp_path),)
    )
    assert not root.exists()
    root.mkdir()
    root.chmod(0o777)
    assert f"is no folder that user {os.geteuid()} alone writes to (drwxrwxrwx, user" in refused(
        publish, declared
    )
    root.rmdir()
    root.symlink_to(tmp_path)
    assert f"is no folder that user {os.geteuid()} alone writes to (lrwxrwxrwx" in refused(
        publish, declared
    )


def test_the_filesystem_that_a_root_is_on():
    root = Path("/shared/scratch/datasets")
    assert mount_of(root, ["/shared", "/shared/scratch", "/shared/scr"]) == "/shared/scratch"
    assert mount_of(root, ["/lustre"]) == ""


# --- archives ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (tar({"/etc/cron.d/evil": b"x"}), "'/etc/cron.d/evil' leaves the folder"),
        (tar({"../../evil": b"x"}), "'../../evil' leaves the folder"),
        (tar({"a/../../evil": b"x"}), "'a/../../evil' leaves the folder"),
        (tar({}, member("null", tarfile.CHRTYPE)), "'null' is a device or a pipe"),
        (tar({}, member("pipe", tarfile.FIFOTYPE)), "'pipe' is a device or a pipe"),
        (tar({}, member("out", tarfile.SYMTYPE, "/etc")), "'out' is a link to /etc, which leaves"),
        (tar({}, member("out", tarfile.SYMTYPE, "../x")), "'out' is a link to ../x, which leaves"),
        (tar({}, member("a/out", tarfile.SYMTYPE, "b/../../..")), "is a link to b/../../.., which"),
        (
            tar({}, member("in", tarfile.SYMTYPE, "."), member("in/x", tarfile.SYMTYPE, "..")),
            "'in/x' lies behind a link of the archive",
        ),
        (tar({}, member("same", tarfile.LNKTYPE, "/etc/shadow")), "'/etc/shadow' leaves the"),
        (tar({}, member("same", tarfile.LNKTYPE, "etc/shadow")), "is a hard link to etc/shadow"),
        (tar({"a": b"", "a/b": b""}), None),
        (b"no archive at all", "x.tar.gz is no tar archive that can be read"),
        (tar({"a": BIG})[:-100_000], "x.tar.gz is no tar archive that can be read"),
        (tar({".dataset.json": b"{}"}), "it contains .dataset.json"),
    ],
    ids=range(15),
)
@pytest.mark.parametrize("rules", ["with Python's rules", "without"])
def test_an_archive_that_would_leave_its_folder(
    publish, root, entry, tmp_path, monkeypatch, content, words, rules
):
    if rules == "without":  # before 3.11.4
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    declared = entry({"x.tar.gz": content})
    if words:
        assert words in refused(publish, declared)
        assert not (root / "iris").exists()
    else:
        publish(declared)
    assert {path.name for path in tmp_path.iterdir()} == {"datasets"}


@pytest.mark.parametrize("name", ["../evil", "/evil", "a\\..\\evil"])
def test_a_zip_that_would_leave_its_folder(publish, root, entry, tmp_path, name):
    assert "leaves the folder" in refused(publish, entry({"x.zip": zipped({name: b"x"})}))
    assert not (root / "iris").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"datasets"}


def test_a_zip_with_a_link(publish, entry):
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        file.writestr(info, "/etc/shadow")
    sentence = refused(publish, entry({"x.zip": written.getvalue()}))
    assert "its member 'link' is a link or a device" in sentence


def test_links_inside_of_an_archive_are_kept(publish, root, entry):
    content = tar(
        {"a/data": b"1"},
        member("a/link", tarfile.SYMTYPE, "data"),
        member("b/up", tarfile.SYMTYPE, "../a/data"),
        member("b/same", tarfile.LNKTYPE, "a/data"),
    )
    publish(entry({"x.tgz": content}))
    folder = root / "iris/1"
    assert {(folder / path).read_bytes() for path in ("a/link", "b/up", "b/same")} == {b"1"}
    assert (folder / "b/same").stat().st_nlink == 2


def test_the_last_member_of_a_name_counts_and_no_bit_of_a_mode_is_kept(publish, root, entry):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as file:
        for content, mode in ((b"old", 0o644), (b"new", 0o6777)):
            info = tarfile.TarInfo("run")
            info.size, info.mode, info.uid = 3, mode, 4711
            file.addfile(info, io.BytesIO(content))
    publish(entry({"x.tar": written.getvalue()}))
    path = root / "iris/1/run"
    assert path.read_bytes() == b"new"
    assert (path.stat().st_mode & 0o7777, path.stat().st_uid) == (0o755, os.geteuid())


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_every_compression_of_python_is_unpacked(publish, root, entry, mode):
    content = tar({"data": b"1"}, mode=mode)
    publish(entry({f"x.tar{'.' * (mode != 'w')}{mode[2:]}": content}))
    assert (root / "iris/1/data").read_bytes() == b"1"
