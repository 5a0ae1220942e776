"""What a list of repositories may say, and the rows of what was found."""

from __future__ import annotations

from typing import Any

import pytest

from playbooks.filter_plugins.verify import verify_failures
from roles.package_repositories.filter_plugins.package_repositories import problems, rows

FLAT: dict[str, Any] = {
    "name": "cuda",
    "uris": ["https://mirror.example.org/cuda/"],
    "suites": ["/"],
    "key_url": "https://mirror.example.org/key.pub",
    "key_fingerprint": "EB69 3B30 35CD 5710 E231  E123 A4B4 6996 3BF8 63CC",
}
SUITES = FLAT | {"name": "tool", "suites": ["stable"], "components": ["main"]}


def test_good_ones() -> None:
    by_file = {"name": "other", "suites": ["old"], "key_fingerprint": "", "key_sha256": "a" * 64}
    assert problems([FLAT, SUITES, SUITES | by_file]) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "../x"}, "the name becomes that of a file"),
        ({"uris": []}, "uris is empty"),
        ({"suites": []}, "suites is empty"),
        ({"uris": ["https://a b"]}, "uris has 'https://a b', which is not one word"),
        ({"uris": ["https://a\nTypes: deb-src"]}, "which is not one word"),
        ({"components": ["main"]}, "a flat repository (suite /) has no other suite"),
        ({"suites": ["/", "stable"]}, "a flat repository"),
        ({"suites": ["stable"]}, "its suites have components"),
        ({"key_url": "mirror/key.pub"}, "mirror/key.pub is no address"),
        ({"key_fingerprint": ""}, "its key is not pinned"),
        ({"key_fingerprint": "3BF863CC"}, "which is not the whole of 40 hexadecimal digits"),
        ({"key_sha256": "abc"}, "which is not 64 hexadecimal digits"),
    ],
)
def test_one_sentence_for_what_is_wrong(changed: dict[str, Any], words: str) -> None:
    sentences = problems([FLAT | changed])
    assert len(sentences) == 1
    assert words in sentences[0]
    assert sentences[0].endswith(".")


def test_a_name_is_there_once() -> None:
    assert problems([FLAT, SUITES | {"name": "cuda"}]) == ["cuda is listed 2 times."]


def test_an_address_is_there_once() -> None:
    again = FLAT | {"name": "again", "uris": ["https://mirror.example.org/cuda"]}
    sentences = ["again: https://mirror.example.org/cuda / is in cuda already; list it once."]
    assert problems([FLAT, again]) == sentences


def test_rows_fail_for_all_but_what_is_in_place() -> None:
    table = rows([FLAT, SUITES], {"cuda": "in place", "tool": "different"})
    assert [row["verdict"] for row in table] == ["PASS", "FAIL"]
    assert [row["verdict"] for row in rows([FLAT], {})] == ["FAIL"]
    assert verify_failures(rows([], {})) == []


def test_a_row_says_what_to_do() -> None:
    conflict = "theirs.list has its address already; remove that file"
    assert verify_failures(rows([FLAT, SUITES], {"cuda": "absent", "tool": conflict})) == [
        "package_repositories: repository cuda is absent, expected in place; "
        "apply the role package_repositories",
        f"package_repositories: repository tool is {conflict}, expected in place",
    ]
