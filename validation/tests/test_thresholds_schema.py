"""The form of the thresholds files, made of their readers: both take and refuse the same."""

import copy
import json

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster import strict
from cluster.errors import DataError
from validation import thresholds
from validation.tests.whole_thresholds import WHOLE
from validation.thresholds import __main__ as program

FILES = {path.stem: strict.load_yaml(path) for path in sorted(thresholds.SHIPPED.glob("*.yml"))}
SCHEMAS = thresholds.schemas()
READERS = {"model": thresholds.MODEL, "common": thresholds.COMMON}


def form(name):
    return "common" if name == "common" else "model"


def read(name, document):
    problems: strict.Problems = []
    READERS[form(name)](document, "", problems)
    return not problems


def valid(name, document):
    return jsonschema.Draft202012Validator(SCHEMAS[form(name)]).is_valid(document)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_one(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_program_prints_it(name, capsys):
    assert program.main(["schema", name]) == 0
    assert json.loads(capsys.readouterr().out) == SCHEMAS[name]


@pytest.mark.parametrize("name", FILES)
def test_what_is_shipped_has_the_published_form(name):
    assert read(name, FILES[name])
    jsonschema.validate(FILES[name], SCHEMAS[form(name)], jsonschema.Draft202012Validator)


def test_a_file_that_has_everything_has_the_published_form():
    assert read("x", WHOLE)
    jsonschema.validate(WHOLE, SCHEMAS["model"], jsonschema.Draft202012Validator)


def test_the_example_of_the_documentation_is_one(tmp_path):
    page = (thresholds.SHIPPED.parents[1] / "docs" / "reference" / "thresholds.md").read_text()
    section = page.partition("## Your own thresholds")[2]
    text = section.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "h100_sxm.yml").write_text(text)
    model = thresholds.load("h100_sxm", tmp_path).model
    assert model is not None
    rule = model.collectives[0]
    assert (rule.nodes, rule.fabric, rule.threshold.warn) == (None, "ib_ndr400", 342)
    assert valid("h100_sxm", strict.load_yaml(tmp_path / "h100_sxm.yml"))


def test_the_example_of_a_limit_is_one(tmp_path):
    page = (thresholds.SHIPPED.parents[1] / "docs" / "reference" / "thresholds.md").read_text()
    text = page.partition("### Limits")[2].partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "common.yml").write_text(text)
    limits = thresholds.load_common(tmp_path).limits
    shipped = thresholds.load_common().limits
    assert (limits["ib_link_downed"].value, limits["ib_link_downed"].warn) == (400, 100)
    assert {name for name in shipped if limits[name] != shipped[name]} == {"ib_link_downed"}


@pytest.mark.parametrize(
    ("name", "limit", "problem"),
    [
        ("disk_gbs", {"fail_below": 1e-300}, "fail_below: expected a number from 1e-06 to 1e+06"),
        ("core_speed_share", {"fail_below": 1e-9}, "fail_below: expected a number from 0.01 to 1"),
        ("gpu_remapped_rows", {"fail_above": -1}, "fail_above: expected a number from 0 to 1e+12"),
        ("gpu_remapped_rows", {"fail_below": 5}, "fail_below: unknown key"),
        (
            "gpu_remapped_rows",
            {"fail_above": 5, "warn_above": 6},
            "warn_above: lies beyond fail_above",
        ),
    ],
)
def test_a_limit_that_finds_nothing_is_refused(tmp_path, name, limit, problem):
    sourced = {"provenance": "derived", "source": "test", "date": "2026", **limit}
    (tmp_path / "common.yml").write_text(yaml.safe_dump({"limits": {name: sourced}}))
    with pytest.raises(DataError) as caught:
        thresholds.load_common(tmp_path)
    assert any(f"limits.{name}.{problem}" in sentence for sentence in caught.value.problems)


def places(value, path=()):
    """Every place in a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items if isinstance(value, (dict, list)) else ():
        if isinstance(item, (dict, list)):
            yield from places(item, (*path, key))
        else:
            yield (*path, key)


def at(document, path):
    for key in path:
        document = document[key]
    return document


# Whole numbers are written as such: to JSON 8.0 is one, to the readers it is not.
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10),
    st.sampled_from([0.5, -0.5, 1e-9, -1e-9]),
    st.sampled_from(["", " ", "any", "x", ">1", "nccl", "bf16", "gate", "2026-05", "2026-5", "8"]),
    st.lists(st.one_of(st.integers(0, 3), st.sampled_from(["", "X"])), max_size=4),
    st.dictionaries(st.sampled_from(["names", "date", "x"]), st.integers(0, 2), max_size=2),
)


@st.composite
def spoiled(draw):
    """The name and the content of a file in which one thing was changed."""
    name = draw(st.sampled_from(["whole", *FILES]))
    document = copy.deepcopy({**FILES, "whole": WHOLE}[name])
    path = draw(st.sampled_from(list(places(document))))
    how = draw(st.sampled_from(["replaced", "removed", "added"]))
    if not path or how == "added":
        target = at(document, path)
        if isinstance(target, dict):
            target[draw(st.sampled_from(["colour", "names", "date", "peak"]))] = draw(JUNK)
        elif isinstance(target, list):
            target.append(draw(JUNK))
    elif how == "removed":
        del at(document, path[:-1])[path[-1]]
    else:
        at(document, path[:-1])[path[-1]] = draw(JUNK)
    return name, document


@settings(deadline=None)
@given(spoiled())
def test_schema_and_readers_agree(case):
    name, document = case
    assert read(name, document) == valid(name, document)


@settings(deadline=None)  # writes files, and machines are busy
@given(spoiled())
def test_no_malformed_file_is_accepted(tmp_path_factory, case):
    name, document = case
    folder = tmp_path_factory.mktemp("own")
    stem = "common" if name == "common" else "x"
    if form(name) == "model" and isinstance(document.get("model"), str):
        document["model"] = "x"
    (folder / f"{stem}.yml").write_text(yaml.safe_dump(document))
    if not valid(name, document):
        with pytest.raises(DataError):
            thresholds.load("x", folder)


@settings(deadline=None)
@given(st.one_of(st.text(), st.binary()))
def test_no_text_whatever_is_taken_for_a_file_that_has_rules(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("own") / "x.yml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "replace"))
    with pytest.raises(DataError):
        thresholds.load("x", path.parent)


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf"])
def test_what_json_has_no_number_for_is_none_here_either(tmp_path, number):
    text = yaml.safe_dump(WHOLE).replace("fail_below_tflops: 1\n", f"fail_below_tflops: {number}\n")
    assert number in text
    (tmp_path / "x.yml").write_text(text)
    with pytest.raises(DataError, match="expected a number from"):
        thresholds.load("x", tmp_path)
