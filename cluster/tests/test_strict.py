"""YAML that is read strictly, by libyaml and where PyYAML has none."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cluster import strict
from cluster.errors import DataError

# What the two could take for different things, and what we take otherwise than YAML does.
READ = {
    "": None,
    "a: 1": {"a": 1},
    "a: 2026-01-02": {"a": "2026-01-02"},
    "a: 2026-01-02T03:04:05Z": {"a": "2026-01-02T03:04:05Z"},
    "a: 010\nb: 1e3\nc: 1.0e+3\nd: 1:30": {"a": 8, "b": "1e3", "c": 1000.0, "d": 90},
    "a: yes\nb: ~\nc: 'no'": {"a": True, "b": None, "c": "no"},
    "a: &x {b: 1}\nc: *x": {"a": {"b": 1}, "c": {"b": 1}},
    "a: >-\n  b\n  c\nd: |\n  e\n": {"a": "b c", "d": "e\n"},
    'a: "\\u00e4\\/"\nb: ü': {"a": "ä/", "b": "ü"},
}
REFUSED = {
    "a: 1\na: 2": "the key 'a' is given twice",
    "a: {b: 1, b: 2}": "the key 'b' is given twice",
    "a: [1": "while parsing a flow sequence",
    "a:\n\t- b": "cannot start any token",
    "a: !own b": "could not determine a constructor for the tag '!own'",
    "a: &x {b: 1}\nc: {<<: *x}": "could not determine a constructor for the tag",
    "a: *x": "found undefined alias 'x'",
    "? [a]\n: b": "unhashable",
    "a: 1\n--- \nb: 2": "expected a single document",
}


@pytest.fixture(params=["libyaml", "none"], autouse=True)
def libyaml(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, and where PyYAML was built without."""
    if request.param == "none":
        monkeypatch.delattr(yaml, "CSafeLoader")
    else:
        assert hasattr(yaml, "CSafeLoader")


@pytest.mark.parametrize("text", READ)
def test_what_is_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "file.yml").write_text(text, encoding="utf-8")
    assert strict.load_yaml(tmp_path / "file.yml") == READ[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused_is_told_with_its_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "file.yml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as raised:
        strict.load_yaml(tmp_path / "file.yml")
    assert "is not valid YAML" in str(raised.value)
    assert REFUSED[text] in str(raised.value)
