"""Nothing malformed passes: one table over all checks that judge an answer.

judged_places.yml names what each check reads of an answer. Each odd value is put into each of these
places, and the check must not pass, but with the kinds of values that the table allows there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from validation.model import Verdict
from validation.tests import standin
from validation.tests.healthy_answers import ANSWERED, healthy, verdict
from validation.tests.judging import changed

TABLE: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "judged_places.yml").read_text())
GROUPS: dict[str, str] = TABLE.pop("groups")
ODD: dict[str, Any] = {
    "null": None,
    "true": True,
    "negative": -1,
    "fraction": 1.5,
    "empty": "",
    "text": "x",
    "nan": "nan",  # as payloads write it: JSON has no word for what is not finite
    "list": [],
    "object": {},
    "huge": 10**400,
    "vast": 1e308,  # a finite number of JSON, with which sums and differences are none
    "missing": ...,
}
TEXT = {"text": {"empty", "text", "nan"}, "word": {"text", "nan"}}
Place = tuple[str | int, ...]


def _words(text: str) -> Iterator[str]:
    """With those of the groups in their places; a group may have others in it."""
    for word in text.split():
        yield from _words(GROUPS[word[1:]]) if word.startswith("@") else (word,)


def table_of(check: str) -> dict[str, set[str]]:
    """The places that a check reads, and which odd values are right there."""
    words = _words(f"{TABLE['every']} {TABLE[check]}")
    split = (word.partition("=") for word in words)
    return {
        place: {kind for name in kinds.split(",") if name for kind in TEXT.get(name, {name})}
        for place, _, kinds in split
    }


def places_of(value: Any, path: Place = ()) -> Iterator[tuple[str, Place]]:
    """Every place of an answer, and its name in the table."""
    if path:
        name = ".".join("*" if isinstance(key, int) else key for key in path)
        yield name.removeprefix("measured."), path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places_of(inner, (*path, key))


def passing_kinds(check: str, path: Place) -> set[str]:
    """Which odd values in this place the check does not notice."""
    answer = healthy(check)
    unchanged = standin.line(answer.document)
    return {
        kind
        for kind, odd in ODD.items()
        if (text := standin.line(changed(answer.document, (path, odd)))) != unchanged
        and verdict(check, answer.job, text) is Verdict.PASS
    }


def test_every_check_that_judges_an_answer_has_its_places() -> None:
    assert list(TABLE) == ["every", *ANSWERED]


@pytest.mark.sample(24)
@pytest.mark.parametrize("check", ANSWERED)
def test_no_odd_value_passes(check: str) -> None:
    answer = healthy(check)
    assert verdict(check, answer.job, standin.line(answer.document)) is Verdict.PASS
    # Of a list's items the last stands for all of them.
    places = dict(places_of(answer.document))
    table = table_of(check)
    assert {place: passing_kinds(check, places[place]) for place in table} == table


@settings(max_examples=100, deadline=None)
@given(check=st.sampled_from(ANSWERED), text=st.text(max_size=200), cut=st.floats(0, 0.999))
def test_neither_another_text_nor_half_an_answer_passes(check: str, text: str, cut: float) -> None:
    answer = healthy(check)
    line = standin.line(answer.document).rstrip()
    for other in (text, line[: int(cut * len(line))]):
        assert verdict(check, answer.job, other) is not Verdict.PASS
