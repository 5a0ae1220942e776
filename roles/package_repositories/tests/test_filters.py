"""What a list of repositories may say, and the rows of what was found."""

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


def test_good_ones():
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
def test_one_sentence_for_what_is_wrong(changed, words):
    (sentence,) = problems([FLAT | changed])
    assert words in sentence
    assert sentence.endswith(".")


def test_a_name_and_an_address_are_there_once():
    assert problems([FLAT, SUITES | {"name": "cuda"}]) == ["cuda is listed 2 times."]
    again = FLAT | {"name": "again", "uris": ["https://mirror.example.org/cuda"]}
    (sentence,) = problems([FLAT, again])
    assert sentence.startswith("again: https://mirror.example.org/cuda / is in cuda already;")


def test_rows_fail_for_all_but_what_is_in_place():
    table = rows([FLAT, SUITES], {"cuda": "in place", "tool": "different"})
    assert [row["verdict"] for row in table] == ["PASS", "FAIL"]
    assert [row["verdict"] for row in rows([FLAT], {})] == ["FAIL"]
    assert verify_failures(rows([], {})) == []


def test_a_row_says_what_to_do():
    conflict = "theirs.list has its address already; remove that file"
    cuda, tool = verify_failures(rows([FLAT, SUITES], {"cuda": "absent", "tool": conflict}))
    assert "repository cuda is absent, expected in place; apply the role" in cuda
    assert tool.endswith(f"repository tool is {conflict}, expected in place")
