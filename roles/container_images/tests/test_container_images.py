"""Container images that are imported once, against a stand-in for enroot and its registry."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from ansible.module_utils.refused import Refused

from roles.container_images.library import container_image_copies as copies
from roles.container_images.library import container_images as m
from tests.conftest import REPOSITORY

IMAGE = "nvcr.io#nvidia/pytorch:25.06-py3"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture
def registry(tmp_path, monkeypatch):
    folder = tmp_path / "registry"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{REPOSITORY / 'tests/standins'}:{os.environ['PATH']}")
    monkeypatch.setenv("ENROOT_STANDIN", str(folder))
    monkeypatch.delenv("ENROOT_CONFIG_PATH", raising=False)
    return folder


@pytest.fixture
def push(registry):
    """A function that has the registry offer an image; its digest."""

    def offer(content: bytes, image: str = IMAGE) -> str:
        whole = b"hsqs" + content
        (registry / image.replace("/", "+").replace("#", "+")).write_bytes(whole)
        return digest(whole)

    return offer


@pytest.fixture
def root(tmp_path):
    return tmp_path / "images"


@pytest.fixture
def publish(root):
    def apply(*entries, check=False, **settings):
        return m.run(entries, m.Settings(root, **settings), check)

    return apply


def entry(image=IMAGE, **more):
    words = {"licence": "NVIDIA's", "description": "PyTorch with CUDA."}
    return {"name": "pytorch", "image": image} | words | more


def refused(apply, *entries, **settings) -> str:
    with pytest.raises(Refused) as problem:
        apply(*entries, **settings)
    return str(problem.value)


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in {"lock", "README.md"}
    }


def test_an_image_is_imported_once_under_a_name_that_jobs_use(publish, root, push, registry):
    is_now = push(b"one")
    assert publish(entry())["steps"] == [f"pytorch 25.06-py3 is imported from {IMAGE}"]
    file = root / "pytorch/25.06-py3.sqsh"
    assert file.read_bytes() == b"hsqsone"
    assert file.stat().st_mode & 0o7777 == 0o644
    imported = [line for line in (registry / "asked").read_text().splitlines() if "import" in line]
    assert len(imported) == 1
    assert f"docker://{IMAGE}@{is_now}" in imported[0]  # a tag that moves meanwhile is not it
    page = (root / "pytorch/README.md").read_text()
    assert f"srun --gpus=1 --container-image={file} nvidia-smi" in page
    assert is_now in page
    assert "NVIDIA's" in (root / "README.md").read_text()
    again = publish(entry())
    assert (again["changed"], again["moved"]) == (False, [])
    assert (registry / "asked").read_text().count("import --output") == 1


def test_check_mode_tells_and_imports_nothing(publish, root, push):
    push(b"one")
    assert publish(entry(), check=True)["steps"] == [f"pytorch 25.06-py3 is imported from {IMAGE}"]
    assert not root.exists()


def test_older_tags_stay_and_absent_removes_one(publish, root, push):
    push(b"one")
    newer = IMAGE.replace("25.06", "25.09")
    push(b"two", newer)
    publish(entry())
    publish(entry(newer))
    assert files(root) == {
        *("pytorch/25.06-py3.sqsh", "pytorch/.25.06-py3.json"),
        *("pytorch/25.09-py3.sqsh", "pytorch/.25.09-py3.json"),
    }
    assert publish(entry(state="absent"))["steps"] == ["pytorch 25.06-py3 is removed"]
    assert not publish(entry(state="absent"))["changed"]
    assert files(root) == {"pytorch/25.09-py3.sqsh", "pytorch/.25.09-py3.json"}


def test_a_tag_that_moved_is_told_and_replaced_on_request_alone(publish, root, push):
    before = push(b"one")
    publish(entry())
    after = push(b"two, longer")
    told = publish(entry())
    assert not told["changed"]
    assert f"it is {after} now, and {before} of " in told["moved"][0]
    assert f"declare `digest: {after}`" in told["moved"][0]
    file = root / "pytorch/25.06-py3.sqsh"
    assert file.read_bytes() == b"hsqsone"
    inode = file.stat().st_ino
    assert publish(entry(digest=after))["steps"] == [
        f"pytorch 25.06-py3 is replaced by {after[:19]}"
    ]
    assert file.read_bytes() == b"hsqstwo, longer"
    # Jobs that have the earlier one open keep it, and who needs it again finds it.
    kept = root / f"pytorch/25.06-py3.{before[7:19]}.sqsh"
    assert kept.stat().st_ino == inode
    assert not publish(entry(digest=after))["changed"]
    assert kept.name in (root / "pytorch/README.md").read_text()


def test_another_digest_than_declared_is_not_imported(publish, root, push):
    is_now = push(b"one")
    sentence = refused(publish, entry(digest="sha256:" + "0" * 64))
    assert f"the registry has {is_now} for {IMAGE}, and sha256:0000" in sentence
    assert files(root) == set()


def test_a_registry_that_is_away_is_no_failure_for_what_is_there(publish, push, registry):
    push(b"one")
    publish(entry())
    (registry / IMAGE.replace("/", "+").replace("#", "+")).unlink()
    result = publish(entry())
    assert not result["changed"]
    assert (
        "whether it moved is not known: enroot digest failed: [ERROR] URL https://"
        in (result["moved"][0])
    )
    assert "pytorch 25.09: enroot digest failed" in refused(publish, entry("a/b:25.09"))


def test_an_import_that_fails_leaves_nothing_and_keeps_no_other_away(publish, root, push, registry):
    push(b"one")
    (registry / "full").touch()
    assert "pytorch 25.06-py3: enroot import failed: [ERROR] No space left" in refused(
        publish, entry()
    )
    assert files(root) == set()
    (registry / "full").unlink()
    (registry / "x:1").write_bytes(b"no squashfs")
    sentence = refused(publish, entry("x:1", name="bad"), entry())
    assert "bad 1: enroot import left a file that is no squashfs image" in sentence
    assert files(root) == {"pytorch/25.06-py3.sqsh", "pytorch/.25.06-py3.json"}
    assert (root / "pytorch/README.md").exists()


def test_a_run_that_died_between_the_two_names_is_repeated(publish, root, push):
    push(b"one")
    publish(entry())
    (root / "pytorch/25.06-py3.sqsh").write_bytes(b"half")
    assert publish(entry())["steps"] == [f"pytorch 25.06-py3 is imported from {IMAGE}"]
    assert (root / "pytorch/25.06-py3.sqsh").read_bytes() == b"hsqsone"
    (root / ".incoming/pytorch-x.sqsh").touch()
    publish(entry())
    assert not (root / ".incoming/pytorch-x.sqsh").exists()


def test_what_is_refused(publish, root, push, tmp_path, monkeypatch):
    push(b"one")
    (root / "pytorch").mkdir(parents=True)
    root.chmod(0o755)
    (root / "pytorch/25.06-py3.sqsh").touch()
    assert "is there and was not imported from a declaration" in refused(publish, entry())
    (root / "pytorch/25.06-py3.sqsh").unlink()
    publish(entry())
    push(b"two", "other/pytorch:25.06-py3")
    assert f"was imported from {IMAGE}, and other/pytorch:25.06-py3 is declared" in refused(
        publish, entry("other/pytorch:25.06-py3")
    )
    assert "is not mounted on this host" in refused(publish, mounts=(str(tmp_path),))
    monkeypatch.setenv("PATH", "/nowhere")
    assert "enroot cannot be started on this host" in refused(publish, entry("new:1"))


@pytest.mark.parametrize("mode", [0o644, 0o640])
def test_credentials_that_others_may_read(publish, push, tmp_path, registry, mode):
    push(b"one")
    (tmp_path / ".credentials").write_text("machine nvcr.io login $oauthtoken password x\n")
    (tmp_path / ".credentials").chmod(mode)
    sentence = refused(publish, entry(), credentials=str(tmp_path))
    assert f"{tmp_path}/.credentials has the mode {mode:04o}, and others may read" in sentence
    assert not (registry / "asked").exists()
    (tmp_path / ".credentials").chmod(0o600)
    (registry / "private").write_text("nvcr.io\n")
    assert "enroot digest failed: [ERROR] URL https://nvcr.io/v2/ returned error code: 401" in (
        refused(publish, entry(), credentials=str(registry))
    )
    publish(entry(), credentials=str(tmp_path))
    assert f"({tmp_path})" in (registry / "asked").read_text()


def test_a_mirror_is_asked_in_place_of_all_registries(publish, root, push, registry):
    mirror = "http://192.0.2.1:8480"
    (registry / "plain").write_text("192.0.2.1:8480\n")
    is_now = push(b"one", "192.0.2.1:8480#nvcr.io/nvidia/pytorch:25.06-py3")
    publish(entry(), mirror=mirror)
    assert f"docker://192.0.2.1:8480#nvcr.io/nvidia/pytorch:25.06-py3@{is_now}" in (
        (registry / "asked").read_text()
    )
    page = (root / "pytorch/README.md").read_text()
    assert IMAGE in page
    assert "192.0.2.1" not in page
    # Back at the registry it is the same image.
    push(b"one")
    again = publish(entry())
    assert (again["changed"], again["moved"]) == (False, [])


def test_copies_on_a_nodes_own_disk(publish, root, push, tmp_path):
    local = tmp_path / "local"
    before, after = push(b"one"), b"two, longer"
    declared = entry(prefetch=True)
    with pytest.raises(Refused, match=r"25.06-py3.sqsh is not there; import it first"):
        copies.run([declared], root, local, False)
    assert copies.run([declared], root, local, True)["changed"]
    publish(declared)
    assert copies.run([declared], root, local, True)["changed"]
    assert not local.exists()
    assert copies.run([declared, entry(name="other")], root, local, False)["changed"]
    copy = local / "pytorch/25.06-py3.sqsh"
    assert copy.read_bytes() == b"hsqsone"
    assert not copies.run([declared], root, local, False)["changed"]
    publish(declared | {"digest": push(after)})
    copies.run([declared], root, local, False)
    assert copy.read_bytes() == b"hsqs" + after
    (local / "mine.sqsh").touch()
    assert copies.run([entry()], root, local, False)["changed"]
    assert files(local) == {"mine.sqsh"}
    assert before


def test_a_disk_without_room_for_copies(publish, root, push, tmp_path, monkeypatch):
    push(b"one")
    publish(entry())
    full = os.statvfs_result((1, 1, 5, 5, 5, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    with pytest.raises(Refused, match="has 5 bytes free, and 7 bytes are to be copied"):
        copies.run([entry(prefetch=True)], root, tmp_path / "local", False)
