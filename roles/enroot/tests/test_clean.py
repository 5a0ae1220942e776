"""What is removed of layers and containers, and what is not."""

import os
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.enroot.files.usr.local.libexec.plumbline import enroot_clean as clean

NOW, DAY = 1_800_000_000.0, 86_400


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    for folder in ("cache", "data", "temp", "gone", "jobs"):
        (tmp_path / folder).mkdir()
    return tmp_path


def layer(path: Path, days: float, size: int = 4096) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    then = time.time() - days * DAY
    os.utime(path, (then, then))
    return path


def run(scratch: Path, days: float = 14, most: int = 2**30) -> list[str]:
    return clean.clean(scratch, scratch / "jobs", scratch / "lock", days=days, most=most)


def test_old_layers_go_and_used_ones_stay(scratch):
    old = layer(scratch / "cache/user-1/aa", 15)
    used = layer(scratch / "cache/user-2/bb", 13)
    assert run(scratch) == []
    assert (old.exists(), used.exists()) == (False, True)


def test_the_oldest_go_until_the_rest_fits(scratch):
    kept = [layer(scratch / f"cache/user-1/{days}", days) for days in (1, 2)]
    gone = [layer(scratch / f"cache/user-2/{days}", days) for days in (3, 4)]
    assert run(scratch, most=2 * 4096) == []
    assert [path.exists() for path in [*kept, *gone]] == [True, True, False, False]


def test_a_layer_of_an_import_under_way_stays(scratch):
    young = layer(scratch / "cache/user-1/aa", 0.01)
    assert run(scratch, most=0) == []
    assert young.exists()


def test_what_a_link_leads_to_stays(scratch, tmp_path):
    kept = layer(tmp_path / "elsewhere", 99)
    (scratch / "cache/user-1").mkdir()
    (scratch / "cache/user-1/aa").symlink_to(kept)
    (scratch / "data/user-1").mkdir()
    (scratch / "data/user-1/box").symlink_to(tmp_path)
    assert run(scratch, days=-1) == []
    assert kept.exists()
    assert not (scratch / "data/user-1/box").is_symlink()


def test_containers_of_users_with_a_job_stay(scratch):
    for user in ("user-1", "user-2"):
        (scratch / "data" / user / "box").mkdir(parents=True)
        (scratch / "temp" / user / "enroot.x").mkdir(parents=True)
    (scratch / "jobs/1").mkdir()
    assert run(scratch, days=-1) == []  # everything is older than that
    assert (scratch / "data/user-1/box").exists()
    assert (scratch / "temp/user-1/enroot.x").exists()
    assert not (scratch / "data/user-2/box").exists()
    assert not (scratch / "temp/user-2/enroot.x").exists()
    assert (scratch / "data/user-2").exists()


def test_a_container_is_as_old_as_its_last_start(scratch):
    """Not as its image: unsquashfs gives the folder the time it had there."""
    box = scratch / "data/user-1/box"
    box.mkdir(parents=True)
    os.utime(box, (0, 0))
    assert time.time() - clean.last_started(box) < 60
    (box / ".lock").touch()
    os.utime(box / ".lock", (NOW, NOW))
    assert clean.last_started(box) == max(box.lstat().st_ctime, NOW)
    assert run(scratch) == []
    assert box.exists()


def test_what_was_moved_aside_goes(scratch):
    (scratch / "gone/abc/gone/deep").mkdir(parents=True)
    assert run(scratch) == []
    assert list((scratch / "gone").iterdir()) == []


def test_what_cannot_be_removed_is_told(scratch, monkeypatch):
    (scratch / "gone/abc").mkdir()

    def refuse(path: Path) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    assert run(scratch) == [f"{scratch}/gone/abc stays: Read-only file system."]


@given(
    ages=st.lists(st.floats(0, 60), max_size=20),
    days=st.floats(0, 30),
    most=st.integers(0, 25),
)
def test_what_stays_is_young_and_small_enough(ages, days, most):
    layers = [clean.Layer(Path(str(n)), 1, NOW - age * DAY) for n, age in enumerate(ages)]
    gone = clean.layers_to_remove(layers, NOW, days, most)
    stays = [item for item in layers if item not in gone]
    young = [item for item in stays if NOW - item.used <= clean.YOUNG]
    assert all(NOW - item.used <= max(days * DAY, clean.YOUNG) for item in stays)
    assert len(stays) <= max(most, len(young))
    assert all(NOW - item.used > clean.YOUNG for item in gone)
