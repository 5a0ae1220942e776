"""Recorded machines, read by this project's readers and judged by its checks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from cluster.recorder import anonymous, archive
from tests.machines import replay, standin

ARCHIVES = sorted(replay.FOLDER.glob("*.tar.gz"))
# How the replacements of cluster/recorder/anonymous.py look.
REPLACED = {
    "uuid": r"a{8}-.*",
    "mac": r"(?:aa:)+..",
    "guid": r"(?:0x)?a{4}.*",
    "ipv4": r"198\.18\..*",
    "ipv6": r"2001:db8::.*",
    "account": r"user\d+@example\.org",
    "home": r"anybody\d+",
    "serial": r"90{5,}\d+",
    "host": r"host\d+",
    "domain": r"domain\d+\.example",
}


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_there_are_some() -> None:
    assert standin.ARCHIVE in ARCHIVES


def test_the_readers_say_what_is_true_of_it(path: Path) -> None:
    expected = path.with_name(path.name.replace(".tar.gz", ".yml")).read_text(encoding="utf-8")
    assert replay.said(replay.read(path)) == yaml.safe_load(expected)


def test_its_name_says_whether_there_was_hardware(path: Path) -> None:
    """Nothing that a stand-in said is taken for what a GPU says."""
    manifest = json.loads(replay.read(path)[archive.MANIFEST])
    assert (manifest["origin"] == archive.STAND_IN) == path.name.startswith("standin-")
    assert manifest["origin"] in (archive.STAND_IN, archive.HARDWARE)


def test_nothing_in_it_looks_as_if_it_told_the_machine(path: Path) -> None:
    for part in json.loads((files := replay.read(path))[archive.MANIFEST])["parts"]:
        for name in part["files"]:
            text, addresses = files[name], part["name"] not in ("packages", "system")
            for one in (*anonymous.labelled(text), *anonymous.formed(text, addresses)):
                assert re.fullmatch(REPLACED[one.kind], one.value), f"{name}: {one}"


def test_the_stand_in_is_what_the_recorder_makes_today(tmp_path: Path) -> None:
    """If not: `python -m tests.machines.standin`, and read the difference."""
    output = tmp_path / "it.tar.gz"
    standin.record(tmp_path, output)
    kept, made = replay.read(standin.ARCHIVE), replay.read(output)
    assert set(kept) == set(made)
    # These have a day, a commit, how long answers took, or the kernel of who recorded.
    of_the_day = (archive.MANIFEST, "nvml.json", "system.json")
    assert {k: v for k, v in kept.items() if k not in of_the_day} == {
        k: v for k, v in made.items() if k not in of_the_day
    }
    boards = [json.loads(files["nvml.json"])["gpus"] for files in (kept, made)]
    assert [gpu["values"] for gpu in boards[0]] == [gpu["values"] for gpu in boards[1]]
