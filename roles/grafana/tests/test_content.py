"""What panels show, worked out of answers; and the page that is made of it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from roles.grafana.dashboards import FOLDER
from roles.grafana.page import boards, content, page
from roles.grafana.page.content import Span
from validation.prometheus import Series

BOARDS = {board.title: board for board in boards.read(FOLDER)}
UPLOT = Path(page.__file__).parent / "uplot"


def panel(board: str, title: str) -> boards.Panel:
    (found,) = (one for one in BOARDS[board].asking if one.title == title)
    return found


def series(*points: tuple[float, float], **labels: str) -> Series:
    return Series(labels, points)


def test_a_number_has_the_colour_of_its_level():
    hottest = panel("GPU fleet", "Hottest")
    for value, colour in ((79, "green"), (80, "orange"), (85, "red")):
        shown = content.of(hottest, {"A": [series((0, value))]}, Span(0, 60))
        assert shown == content.Values((content.Value("", f"{value} °C", colour, 1.0),))


def test_a_gauge_is_as_full_as_its_value():
    shown = content.of(panel("GPU fleet", "Memory used"), {"A": [series((0, 0.375))]}, Span(0, 60))
    assert isinstance(shown, content.Values)
    assert (shown.each[0].text, shown.each[0].share) == ("37.5%", 0.375)


def test_bars_are_told_apart_and_compared_with_the_longest():
    found = [series((0, 20), node="gpu10", gpu="0"), series((0, 40), node="gpu9", gpu="1")]
    shown = content.of(
        panel("GPU fleet", "Degrees left until the board slows down"), {"A": found}, Span(0, 60)
    )
    assert isinstance(shown, content.Values)
    assert [(one.name, one.text, one.share) for one in shown.each] == [
        ("gpu9 GPU 1", "40 °C", 1.0),
        ("gpu10 GPU 0", "20 °C", 0.5),
    ]


def test_a_graph_has_gaps_where_prometheus_has_none_of_its_values():
    found = {"A": [series((0, 1000), (30, 3000), node="a")]}
    shown = content.of(panel("GPU fleet", "Power, by node"), found, Span(0, 45, 15))
    assert isinstance(shown, content.Graph)
    assert shown.times == (0, 15, 30, 45)
    assert shown.lines == (content.Line("a", "3 kW", (1000, None, 3000, None)),)
    assert (shown.divisor, shown.suffix, shown.stacked) == (1000, " kW", True)


def test_a_share_of_the_whole_ends_at_the_whole():
    found = {"A": [series((0, 0.2), node="a")]}
    shown = content.of(panel("Node detail", "CPU busy"), found, Span(0, 15, 15))
    assert isinstance(shown, content.Graph)
    assert (shown.top, shown.stacked, shown.suffix) == (1, False, "%")


def test_a_band_is_cut_where_the_value_changes_and_where_there_is_none():
    found = {"A": [series((0, 1), (10, 1), (20, 0), (50, 0), node="a")]}
    shown = content.of(panel("Node detail", "Hosts"), found, Span(0, 100, 10))
    assert isinstance(shown, content.Bands)
    ((name, stretches),) = shown.rows
    assert name == "a"
    assert [
        (round(one.start, 3), round(one.length, 3), one.text, one.colour) for one in stretches
    ] == [
        (0, 0.2, "answers", "green"),
        (0.2, 0.1, "no answer", "red"),
        (0.5, 0.1, "no answer", "red"),
    ]
    assert shown.key == (("no answer", "red"), ("answers", "green"))


def test_one_value_at_the_end_is_a_band_no_longer_than_the_time():
    found = {"A": [series((100, 1), node="a")]}
    shown = content.of(panel("Node detail", "Hosts"), found, Span(0, 100, 10))
    assert isinstance(shown, content.Bands)
    assert shown.rows == (("a", ()),)
    found = {"A": [series((95, 7), node="a")]}
    shown = content.of(panel("Node detail", "Hosts"), found, Span(0, 100, 10))
    assert isinstance(shown, content.Bands)
    ((stretch,),) = (stretches for _, stretches in shown.rows)
    assert stretch.length == pytest.approx(0.05)
    assert (stretch.start, stretch.text, stretch.colour) == (0.95, "7", "text")


def test_rows_of_several_queries_meet():
    found = {
        "A": [series((0, 1), hpc_job="7", user="ada", account="x", partition="gpu")],
        "B": [series((0, 2), hpc_job="7"), series((0, 4), hpc_job="10")],
        "C": [series((0, 62.51), hpc_job="7")],
        "D": [],
    }
    shown = content.of(panel("Job view", "Jobs with GPUs"), found, Span(0, 60))
    assert isinstance(shown, content.Table)
    assert shown.header[:7] == (
        "Job", "User", "Account", "Partition", "Nodes", "GPUs", "GPUs busy",
    )  # fmt: skip
    assert [row[:7] for row in shown.rows] == [
        ("7", "ada", "x", "gpu", "1", "2", "62.5%"),
        ("10", "", "", "", "", "4", ""),
    ]


def test_a_table_without_values_shows_its_labels():
    found = {"A": [series((0, 1), node="a", reason="fan", user="root")]}
    shown = content.of(
        panel("Cluster overview", "Nodes out of service, and why"), found, Span(0, 60)
    )
    assert shown == content.Table(("Node", "Reason", "By"), (("a", "fan", "root"),))


def test_the_script_is_the_one_that_was_looked_at():
    listed = dict(re.findall(r"^\| `(\S+)` \| `(\w{64})` \|$", readme(), re.MULTILINE))
    assert listed == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in UPLOT.iterdir()
        if path.name != "README.md"
    }


def readme() -> str:
    return (UPLOT / "README.md").read_text(encoding="utf-8")


def test_a_name_cannot_end_the_script_that_it_is_in():
    graph = content.Graph((0,), (content.Line("</script>\u2028", "1", (1,)),), 1, "", False, None)
    text = page._data(graph)
    assert "<" not in text
    assert json.loads(text)["names"] == ["</script> "]
