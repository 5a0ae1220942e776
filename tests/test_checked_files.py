"""Configuration that its checker refused has changed nothing."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest
from ansible.module_utils.refused import Refused
from ansible.module_utils.whole_file import Access, NoPlace

from playbooks.library import checked_files

OURS = Access(0o640, os.getuid(), os.getgid())
# Refuses a file with the word `bad`, and says where it is.
CHECK = [
    sys.executable,
    "-c",
    "import pathlib, sys\n"
    "bad = [p for p in pathlib.Path().rglob('*.yml') if 'bad' in p.read_text()]\n"
    "print('Checking', *bad)\n"
    "bad and sys.exit(f'{pathlib.Path.cwd() / bad[0]}: it is bad')",
]


def run(folder, files, *, owned=(), checks=(CHECK,), check_mode=False):
    return checked_files.run(folder, files, owned, checks, OURS, check_mode)


def tree(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_is_accepted_is_written_once(tmp_path):
    files = {"main.yml": "one", "rules/a.yml": "two"}
    assert run(tmp_path, files) == {"changed": True, "changed_files": ["main.yml", "rules/a.yml"]}
    assert tree(tmp_path) == files
    assert run(tmp_path, files) == {"changed": False, "changed_files": []}


def test_of_what_is_refused_not_one_file_is_written(tmp_path):
    old = {"main.yml": "one", "rules/a.yml": "two"}
    run(tmp_path, old)
    with pytest.raises(Refused, match=r"refuses it: rules/a.yml: it is bad$"):
        run(tmp_path, {"main.yml": "new", "rules/a.yml": "bad"}, owned=["rules/*"])
    assert tree(tmp_path) == old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["main.yml", "rules"]


def test_all_checks_count(tmp_path):
    fine = [sys.executable, "-c", ""]
    with pytest.raises(Refused, match="it is bad"):
        run(tmp_path, {"a.yml": "bad"}, checks=[fine, CHECK])
    with pytest.raises(Refused, match="/no/such/program cannot be started: No such file"):
        run(tmp_path, {"a.yml": "good"}, checks=[["/no/such/program"]])
    assert tree(tmp_path) == {}


def test_a_checker_that_never_ends_accepts_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(checked_files, "PATIENCE_S", 0.2)
    with pytest.raises(Refused, match=r"gave no answer in 0\.2 s"):
        run(tmp_path, {}, checks=[[sys.executable, "-c", "import time; time.sleep(60)"]])


def test_what_is_no_longer_wanted_goes(tmp_path):
    run(tmp_path, {"main.yml": "one", "rules/a.yml": "two", "rules/b.yml": "three"})
    (tmp_path / "conf.yml").write_text("a site's own")
    result = run(tmp_path, {"main.yml": "one", "rules/b.yml": "three"}, owned=["rules/*.yml"])
    assert result == {"changed": True, "changed_files": ["rules/a.yml"]}
    assert sorted(tree(tmp_path)) == ["conf.yml", "main.yml", "rules/b.yml"]


def test_check_mode_checks_and_writes_nothing(tmp_path):
    result = run(tmp_path, {"main.yml": "one"}, check_mode=True)
    assert result == {"changed": True, "changed_files": ["main.yml"]}
    assert tree(tmp_path) == {}
    with pytest.raises(Refused, match="it is bad"):
        run(tmp_path, {"main.yml": "bad"}, check_mode=True)


def test_others_cannot_read_it(tmp_path):
    run(tmp_path, {"rules/a.yml": "one"})
    assert (tmp_path / "rules/a.yml").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "rules").stat().st_mode & 0o777 == 0o750
    (tmp_path / "rules/a.yml").chmod(0o644)
    assert run(tmp_path, {"rules/a.yml": "one"})["changed"]
    assert (tmp_path / "rules/a.yml").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "rules/../../a", ""])
def test_nothing_is_written_elsewhere(tmp_path, name):
    with pytest.raises(NoPlace, match="is no path of a file below the folder"):
        run(tmp_path, {name: "text"})


def test_a_long_answer_is_cut_at_its_beginning():
    reason = checked_files.reason("first\n" + "x" * 500 + "\nlast", "/copy")
    assert len(reason) == checked_files.LONGEST + 1
    assert reason.endswith("x; last")
    assert checked_files.reason("\n", "/copy") == "it said nothing"


def test_what_promtool_says_becomes_one_line():
    output = """Checking prometheus.yml
  SUCCESS: 1 rule files found
 SUCCESS: prometheus.yml is valid prometheus config file syntax

Checking rules/bad.yml
  FAILED:
rules/bad.yml: yaml: unmarshal errors:
  line 1: field alrt not found in type rulefmt.RuleNode
"""
    expected = "rules/bad.yml: yaml: unmarshal errors: line 1: field alrt not found in type"
    assert checked_files.reason(output, "/copy") == f"{expected} rulefmt.RuleNode"


def test_a_daemon_may_want_another_mode(tmp_path):
    private = replace(OURS, mode=0o600)
    for changed in (True, False):
        result = checked_files.run(tmp_path, {"a.yml": "x"}, (), (CHECK,), private, False)
        assert result["changed"] is changed
        assert (tmp_path / "a.yml").stat().st_mode & 0o7777 == 0o600
    assert run(tmp_path, {"a.yml": "x"})["changed_files"] == ["a.yml"]


def test_a_pattern_says_whether_folders_below_are_meant(tmp_path):
    for name in ("a.json", "one/b.json", "one/two/c.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    result = run(tmp_path, {}, owned=["*/*.json"], checks=(), check_mode=True)
    assert result["changed_files"] == ["one/b.json"]
    result = run(tmp_path, {}, owned=["**/*.json"], checks=())
    assert result["changed_files"] == ["a.json", "one/b.json", "one/two/c.json"]
    assert not list(tmp_path.rglob("*.json"))
