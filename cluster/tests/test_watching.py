"""The lines by which a run is watched: never wider than the terminal, never more than ASCII."""

from __future__ import annotations

import io

import pytest

from cluster import watching
from cluster.watching import Line, Step, clipped, folded, is_live, timing, wrapped

STEP = Step(
    what="Set up MUNGE on the hosts of Slurm",
    done=3,
    of=1000,
    unit="hosts",
    time="12 s of about 1 min 30 s",
    detail="munge : Install the packages",
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "live"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "CI": ""}, True),
        ({"TERM": "xterm", "CI": "true"}, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_a_line_changes_in_place_where_somebody_looks(
    environment: dict[str, str], live: bool
) -> None:
    assert is_live(Terminal(), environment) is live
    assert not is_live(io.StringIO(), environment)


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (
            120,
            "Set up MUNGE on the hosts of Slurm: 3 of 1000 hosts, 12 s of about 1 min 30 s, "
            "munge : Install the packages",
        ),
        (
            100,
            "Set up MUNGE on the hosts of Slurm: 3 of 1000 hosts, 12 s of about 1 min 30 s, "
            "munge : Install th...",
        ),
        (80, "Set up MUNGE on the hosts of Slurm: 3 of 1000 hosts, 12 s of about 1 min 30 s"),
        (60, "Set up MUNGE on the hos...: 3/1000, 12 s of about 1 min 30 s"),
        (40, "Set up MUNGE on the hos...: 3/1000, 12 s"),
    ],
)
def test_a_step_fits_its_terminal(width: int, text: str) -> None:
    assert STEP.line(width) == text


@pytest.mark.parametrize("width", range(20, 130))
def test_no_width_is_too_small(width: int) -> None:
    assert len(STEP.line(width)) <= width


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [("abcdef", 6, "abcdef"), ("abcdefg", 6, "abc..."), ("abc", 2, "..")],
)
def test_a_text_is_cut(text: str, width: int, short: str) -> None:
    assert clipped(text, width) == short


def test_names_are_folded() -> None:
    names = ["first", "second", "third"]
    assert folded(names, 80) == "first, second, third"
    assert folded(names, 19) == "first and 2 more"
    assert folded(names, 15) == "f... and 2 more"
    assert folded([], 8) == ""


def test_paths_stay_whole() -> None:
    path = "/" + "a" * 60
    assert wrapped(f"see {path} for it", 40) == ["see", f"    {path}", "    for it"]


def test_what_is_not_expected_is_not_said() -> None:
    assert timing(61, None) == "1 min 01 s"
    assert timing(61, 90) == "1 min 01 s of about 1 min 30 s"


def test_columns_are_those_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert watching.columns() == 40
    monkeypatch.setenv("COLUMNS", "3")
    assert watching.columns() == watching.LEAST


def test_a_line_is_drawn_once_and_cleared_once() -> None:
    stream = Terminal()
    line = Line(stream)
    for text in ("a", "a", "b"):
        line.show(text)
    line.clear()
    line.clear()
    assert stream.getvalue() == "\ra\x1b[K\rb\x1b[K\r\x1b[K"


def test_an_ascii_terminal_gets_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    Line(stream).show("Größe")
    assert raw.getvalue() == b"\rGr??e\x1b[K"


# --- tables --------------------------------------------------------------------------------------

CELLS = [
    ("check", "subject", "message", "verdict"),
    ("bandwidth", "gpu[001-512]", "a message of many words that no column holds", "PASS"),
]


def test_a_table_without_a_terminal_is_as_wide_as_its_cells() -> None:
    assert watching.table(CELLS) == [
        ["  check      subject       message                                       verdict"],
        ["  bandwidth  gpu[001-512]  a message of many words that no column holds  PASS"],
    ]


def test_long_cells_go_on_below_themselves() -> None:
    assert watching.table(CELLS, 62) == [
        ["  check      subject       message                     verdict"],
        [
            "  bandwidth  gpu[001-512]  a message of many words     PASS",
            "                           that no column holds",
        ],
    ]


def test_where_no_columns_fit_a_row_is_a_sentence() -> None:
    assert watching.table(CELLS, 40) == [
        [],
        [
            "  check bandwidth, subject gpu[001-512],",
            "    message a message of many words that",
            "    no column holds, verdict PASS",
        ],
    ]


@pytest.mark.parametrize("width", range(20, 100))
def test_no_table_is_wider_than_its_terminal(width: int) -> None:
    assert all(len(line) <= width for row in watching.table(CELLS, width) for line in row)
