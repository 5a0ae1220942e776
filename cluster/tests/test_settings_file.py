"""A file that cannot be used is refused in one sentence, which names it."""

import re

import pytest

from cluster.settings_file import BadConfig, read


def parse(document):
    return float(document["interval_s"])


def test_what_parse_makes_of_it_comes_back(tmp_path):
    (tmp_path / "x.json").write_text('{"interval_s": 3}')
    assert read(tmp_path / "x.json", parse) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", " is no JSON: "),
        ("{}", " has no interval_s"),
        ('{"interval_s": "often"}', ": could not convert string to float: 'often'"),
        ("[]", ": list indices must be integers"),
    ],
)
def test_one_sentence(tmp_path, text, words):
    file = tmp_path / "x.json"
    file.write_text(text)
    with pytest.raises(BadConfig, match=re.escape(f"{file}{words}")):
        read(file, parse)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(BadConfig, match=r"none cannot be read: No such file or directory"):
        read(tmp_path / "none", parse)
