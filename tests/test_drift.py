"""tests/drift: how changes are drawn and made, and what counts as put right and reported."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.drift import catalogue, node, report
from tests.drift.catalogue import Drift
from tests.drift.changed_tasks import ChangedTask, read, reported_by
from tests.drift.cluster import Run, answer, members

GROUPS = {
    "slurm_cluster": ["ctl1", "gpu1", "login1"],
    "slurm_controller": ["ctl1"],
    "slurm_compute": ["gpu1"],
    "slurm_login": ["login1"],
}
KEY = "/etc/munge/munge.key"
HOST: dict[str, dict[str, str]] = {
    "file": {KEY: "0400 munge:munge 1", "/etc/slurm/slurm.conf": "absent"},
    "block": {"/etc/hosts": "0644 root:root 2"},
    "leftover": {
        "/etc/plumbline/cluster.json": "absent",
        "/etc/tmpfiles.d/pyxis.conf": "0644 root:root 3",
    },
    "package": {"munge": "installed", "chrony": "installed"},
    "unit": {"munge.service": "active enabled", "chrony.service": "disabled inactive"},
    "user": {"ada": "ada:x:2001:2001::/home/ada:/bin/bash in ada"},
    "alone": {"chrony": "yes"},
}
LOOKED = {"ctl1": HOST, "gpu1": HOST}


def could(host: str) -> set[str]:
    of = catalogue.candidates(LOOKED, GROUPS)
    return {f"{drift.kind} {drift.subject} {drift.how}" for drift in of if drift.host == host}


def test_what_can_be_changed_is_what_is_there_and_what_a_role_claims():
    everywhere = {
        *(f"file {KEY} {how}" for how in ("mode", "owner", "removed")),
        "block /etc/hosts shortened",
        "package chrony removed",
        *(f"unit munge.service {how}" for how in ("stopped", "disabled")),
        *(f"user ada {how}" for how in ("shell", "comment")),
    }
    assert could("ctl1") == everywhere  # whose key is the cluster's
    leftover = "leftover /etc/plumbline/cluster.json added"
    assert could("gpu1") == everywhere | {f"file {KEY} content", leftover}


def test_every_exception_says_why_and_of_what():
    kinds = catalogue.HOWS
    for exception in catalogue.UNCLAIMED:
        assert exception.reason
        assert exception.kind in kinds
    assert catalogue.MANAGED.keys() == kinds.keys() == node.LOOKS.keys() == set(catalogue.ORDER)


def many() -> list[Drift]:
    return [
        *(Drift("gpu1", "file", f"/{i}", how) for i in range(30) for how in ("mode", "owner")),
        Drift("gpu1", "unit", "munge.service", "stopped"),
        Drift("gpu1", "unit", "munge.service", "disabled"),
    ]


def test_a_seed_draws_the_same_changes_each_of_another_thing():
    drawn = catalogue.draw(many(), 20, seed=7)
    assert drawn == catalogue.draw(list(reversed(many())), 20, seed=7)
    assert drawn != catalogue.draw(many(), 20, seed=8)
    assert len({(drift.kind, drift.subject) for drift in drawn}) == len(drawn) == 20
    # What there is little of has its turn.
    assert "munge.service" in {drift.subject for drift in drawn}


def test_no_more_is_drawn_than_there_is():
    assert len(catalogue.draw(many(), 100, seed=1)) == 31


def test_packages_are_removed_last():
    drifts = [Drift("gpu1", "package", "munge", "removed"), Drift("gpu1", "file", "/a", "mode")]
    ordered = [("file", "/a", "mode"), ("package", "munge", "removed")]
    assert catalogue.changes(drifts) == {"gpu1": ordered}


# --- on a node -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["content", "mode", "removed"])
@pytest.mark.parametrize("text", ["#!/bin/sh\n", "{}\n", "a secret"])
def test_a_change_of_a_file_shows(tmp_path: Path, how: str, text: str):
    path = tmp_path / "file.conf"
    path.write_text(text)
    before = node.files([str(path)])
    node.change("file", str(path), how)
    assert node.files([str(path)]) != before


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    gone = str(tmp_path / "gone")
    assert node.files([gone, f"{tmp_path}/*"]) == {gone: "absent"}


def test_a_block_loses_its_last_line(tmp_path: Path):
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 localhost\n# BEGIN x\n1 a\n2 b\n# END x\nafter\n")
    plain = tmp_path / "plain"
    plain.write_text("127.0.0.1 localhost\n")
    assert list(node.blocks([str(path), str(plain)])) == [str(path)]
    node.change("block", str(path), "shortened")
    assert path.read_text() == "127.0.0.1 localhost\n# BEGIN x\n1 a\n# END x\nafter\n"


def test_mounts_of_a_role_are_units_like_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "shared.mount").write_text(f"{node.OWN}; changes made here are lost.\n[Mount]\n")
    (tmp_path / "own.mount").write_text("[Mount]\n")
    monkeypatch.setattr(node, "UNITS", str(tmp_path))
    assert node.mounts() == {"shared.mount"}


def test_what_nobody_knows_how_to_change_is_refused():
    with pytest.raises(SystemExit):
        node.change("file", os.devnull, "painted")


# --- what a run said -----------------------------------------------------------------------------


def entry(task: str, result: Any, hidden: bool = False, host: str = "gpu1") -> ChangedTask:
    return ChangedTask(host, task, json.dumps(result), hidden)


DRIFT = Drift("gpu1", "unit", "munge.service", "stopped")
FILE = Drift("gpu1", "file", KEY, "mode")


@pytest.mark.parametrize(
    ("drift", "result", "named"),
    [
        (DRIFT, {"name": "munge", "state": "started"}, True),
        (DRIFT, {"path": "/etc/munge/munge.key"}, False),
        (DRIFT, {"name": "munged"}, False),
        (FILE, {"dest": KEY}, True),
        (FILE, {"dest": f"{KEY}.new"}, False),
        (FILE, {"files": [f"{KEY} was changed"]}, True),
    ],
)
def test_a_task_tells_a_change_when_its_result_names_the_thing(drift, result, named):
    assert reported_by(drift, [entry("Do it", result)]) == (["Do it"] if named else [])


def test_of_a_task_with_many_files_those_that_it_changed_are_told(tmp_path: Path):
    items = [{"path": "/a", "changed": False}, {"path": "/b.service", "changed": True}]
    loop = {"changed": True, "results": items}
    arguments = {"folder": "/etc/p", "files": {"y.yml": 1}}
    kept = {"changed_files": ["rules/x.yml"], "invocation": {"module_args": arguments}}
    lines = [
        {"host": "gpu1", "task": name, "hidden": False, "result": result}
        for name, result in (("Loop", loop), ("Keep", kept))
    ]
    path = tmp_path / "task_results.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read(path)
    tasks = {
        subject: reported_by(Drift("gpu1", "file", subject, "mode"), run)
        for subject in ("/a", "/b.service", "/etc/p/rules/x.yml", "/etc/p/y.yml")
    }
    assert tasks == {
        "/a": [],
        "/b.service": ["Loop"],
        "/etc/p/rules/x.yml": ["Keep"],
        "/etc/p/y.yml": [],
    }


def test_a_key_that_is_made_anew_is_another_one_with_the_same_mode():
    key = "/etc/plumbline/tls/host.key"
    drift = Drift("gpu1", "file", key, "removed")
    before, after = ({"gpu1": {"file": {key: f"0640 root:tls {n}"}}} for n in (1, 2))
    assert report.same(drift, before, after)
    assert report.differences(before, after) == {}
    assert not report.same(drift, before, {"gpu1": {"file": {key: "absent"}}})
    assert not report.same(drift, before, {"gpu1": {"file": {key: "0641 root:tls 1"}}})


def test_a_hidden_task_counts_where_no_other_speaks_of_it():
    hidden = entry("Install the key", {"censored": "hidden"}, hidden=True)
    assert reported_by(FILE, [hidden]) == ["Install the key (its result is hidden)"]
    assert reported_by(FILE, [hidden, entry("Set the mode", {"path": KEY})]) == ["Set the mode"]
    assert reported_by(FILE, [entry("Elsewhere", {"path": KEY}, host="gpu2")]) == []


BEFORE = "0400 munge:munge 1"


def judged(after: str, run: Run, second: Run) -> report.Judged:
    before = {"gpu1": {"file": {KEY: BEFORE}, "alone": {}}}
    now = {"gpu1": {"file": {KEY: after}}}
    return report.judge([FILE], before, now, run, second)


PUT_RIGHT = Run(0, "", [entry("Set the mode", {"path": KEY})])
QUIET = Run(0, "", [])


def test_all_is_well():
    judgement = judged(BEFORE, PUT_RIGHT, QUIET)
    assert judgement.good
    assert "1 changes: 1 put right, 1 reported" in report.table(judgement)


@pytest.mark.parametrize(
    ("after", "run", "second", "words"),
    [
        ("0401 munge:munge 1", PUT_RIGHT, QUIET, "NO: 0401 munge:munge 1"),
        (BEFORE, QUIET, QUIET, "NOBODY"),
        (BEFORE, Run(2, "", PUT_RIGHT.changes), QUIET, "ended with 2"),
        (BEFORE, PUT_RIGHT, Run(4, "", []), "The run after it ended with 4"),
        (BEFORE, PUT_RIGHT, PUT_RIGHT, "The run after it changed gpu1: Set the mode"),
    ],
)
def test_what_is_not_well_is_said(after, run, second, words):
    judgement = judged(after, run, second)
    assert not judgement.good
    assert words in report.table(judgement)


def test_what_nobody_changed_by_hand_must_not_differ():
    before = {"gpu1": {"file": {KEY: "1", "/b": "2"}}}
    after = {"gpu1": {"file": {KEY: "1", "/b": "3", "/c": "4"}}}
    judgement = report.judge([FILE], before, after, PUT_RIGHT, QUIET)
    assert judgement.others == ("gpu1: file /b was 2, is 3", "gpu1: file /c was not there, is 4")
    assert not judgement.good


def test_nothing_changed_is_not_good():
    assert not report.judge([], {}, {}, QUIET, QUIET).good


def test_groups_in_groups_are_followed():
    listed = {
        "_meta": {},
        "slurm_cluster": {"children": ["slurm_compute"]},
        "slurm_compute": {"children": ["gpu"]},
        "gpu": {"hosts": ["gpu2", "gpu1"]},
    }
    assert members(listed)["slurm_cluster"] == ["gpu1", "gpu2"]


def test_words_of_sudo_before_the_answer_are_passed_over():
    """It cannot look up its host while /etc/hosts lacks the line."""
    assert answer('sudo: unable to resolve host gpu1\r\n{"file": {}}\r\n') == {"file": {}}
