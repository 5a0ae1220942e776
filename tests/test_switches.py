"""`-e NAME=true` is text to Ansible: what the pages and refusals tell an operator to type works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster import contract
from playbooks.plugin_utils.variables import read_specs, switched
from tests.processes import run
from tests.standins.inventories import REPOSITORY, good, judged, write

CONTRACT = contract.load()
OPTIONS = {
    name: option
    for role in read_specs(REPOSITORY / "roles").values()
    for name, option in role.items()
}
SWITCHES = sorted(CONTRACT.switches)
READERS = (
    "group_vars/all/*.yml",
    "playbooks/*.yml",
    "roles/*/tasks/*.yml",
    "roles/*/vars/*.yml",
)


def lines(pattern: str, *places: str) -> Iterator[tuple[str, str]]:
    """Lines of tracked files in which a pattern is: the file and the line."""
    done = run("git", "grep", "-zP", "--untracked", pattern, "--", *places, cwd=REPOSITORY)
    assert done.returncode < 2, done.stderr
    for line in done.stdout.splitlines():
        path, text = line.split("\0", 1)
        yield path, text


def test_every_switch_is_a_bool() -> None:
    for name in SWITCHES:
        assert (OPTIONS.get(name) or CONTRACT.variables[name])["type"] == "bool", name


def test_every_bool_that_is_told_for_a_command_line_is_a_switch() -> None:
    names = {
        name
        for _, text in lines(r"-e \w+=", "docs", "README.md", "playbooks", "roles", "inventory")
        for name, value in re.findall(r"-e (\w+)=(\w+)", text)
        if value.lower() in {"true", "yes", "false", "no"}
    }
    assert names - {"NAME"} <= CONTRACT.switches
    assert len(names) >= 5


def expressions(document: object, key: str = "") -> Iterator[str]:
    """Everything that Ansible evaluates in a file of tasks, without the words in quotes."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from expressions(value, name)
    elif isinstance(document, list):
        for value in document:
            yield from expressions(value, key)
    elif isinstance(document, str):
        whole = key in {"when", "that", "until", "failed_when", "changed_when"}
        for text in [document] if whole else re.findall(r"{{(.*?)}}", document, re.DOTALL):
            yield re.sub(r"'[^']*'|\"[^\"]*\"", "''", text)


def reads(name: str, text: str) -> list[bool]:
    """Of each place of an expression that reads a variable, whether it does so as a bool."""
    asks = re.compile(r"(\s*\|\s*default\(\w+\))?\s*\|\s*bool\b")
    return [
        asks.match(text, match.end()) is not None
        for match in re.finditer(rf"(?<!\| )\b{name}\b", text)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not x", [False]),
        ("x | bool and not x", [True, False]),
        ("x | default(false) | bool", [True]),
        ("a | x(b)", []),
        ("x_y", []),
    ],
)
def test_a_read_is_seen(text: str, expected: list[bool]) -> None:
    assert reads("x", text) == expected


def test_what_reads_a_switch_minds_that_it_may_be_text() -> None:
    """`not "false"` is false, and a bare text is no condition at all."""
    readers = {
        (path.relative_to(REPOSITORY), name, fine)
        for where in READERS
        for path in REPOSITORY.glob(where)
        for text in expressions(yaml.safe_load(path.read_text()))
        for name in SWITCHES
        for fine in reads(name, text)
    }
    assert not [reader for reader in readers if not reader[2]]
    assert {name for _, name, _ in readers} == set(SWITCHES)


def test_no_template_reads_one() -> None:
    """They would have to be looked through above."""
    places = (":(glob)roles/*/templates/**", ":(glob)roles/*/handlers/**")
    assert not list(lines(rf"\b({'|'.join(SWITCHES)})\b", *places))


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("true", ""),
        ("no", ""),
        (False, ""),
        ("perhaps", "must be of type bool, but is 'perhaps'"),
        ("", "must be of type bool, but is ''"),
    ],
)
def test_preflight_takes_the_text_of_a_switch(tmp_path: Path, value: object, sentence: str) -> None:
    files = {"group_vars/all.yml": {SWITCHES[1]: value}}
    refusals = judged(write(tmp_path, good(), files)).sentences
    assert len(refusals) == bool(sentence)
    assert sentence in " ".join(refusals)


@pytest.mark.parametrize(
    ("value", "meant"),
    [("true", True), ("yes", True), ("False", False), (True, True), ("perhaps", "perhaps"), (2, 2)],
)
def test_a_text_is_what_it_says(value: object, meant: object) -> None:
    assert switched(value) is meant or switched(value) == meant
