"""All dashboards on one page, from a Prometheus' answers: one file that needs nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from roles.grafana.page import content, expected
from roles.grafana.page.boards import Board, Panel
from validation.prometheus import NoAnswer, Series, Server

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Drawn:
    """A panel, and what it shows; `data` is what the script draws."""

    panel: Panel
    kind: str
    shown: content.Content
    data: str = ""


@dataclass(frozen=True)
class Page:
    """`html`, and a sentence for each query that Prometheus refused."""

    html: str
    failed: tuple[str, ...]


def page(
    server: Server,
    boards: Iterable[Board],
    end: float,
    range_s: int,
    chosen: Mapping[str, str],
    listed: expected.Listed,
) -> Page:
    """`chosen` has patterns for variables; of the others everything is shown."""
    failed: list[str] = []
    drawn = [
        (board, list(_drawn(server, board.choosing(chosen), end, range_s, listed, failed)))
        for board in boards
    ]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("page.html.j2").render(
        drawn=drawn,
        end=_clock(end),
        start=_clock(end - range_s),
        chosen=chosen,
        styles=[_file("uplot/uPlot.min.css"), _file("page.css")],
        scripts=[_file("uplot/uPlot.iife.min.js"), _file("page.js")],
        licence=_file("uplot/LICENSE"),
    )
    return Page(text, tuple(failed))


def _file(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(seconds))


def _drawn(
    server: Server,
    board: Board,
    end: float,
    range_s: int,
    listed: expected.Listed,
    failed: list[str],
) -> Iterator[Drawn]:
    asked: dict[str, list[expected.Asked]] = {}
    for one in expected.of_panels([board], range_s):
        asked.setdefault(one.place[1], []).append(one)
    for panel in board.panels:
        if panel.kind == "row":
            yield Drawn(panel, "row", content.Nothing("", True))
            continue
        answers: dict[str, list[Series]] = {}
        try:
            for one in asked[panel.title]:
                answers[one.part] = expected.answer(server, one, end, range_s)
        except NoAnswer as error:
            failed.append(f"{one.name}: {error}")
            yield Drawn(panel, "nothing", content.Nothing(str(error), False))
            continue
        yield _of(panel, answers, asked[panel.title], end, range_s, listed)


def _of(
    panel: Panel,
    answers: content.Answers,
    asked: Iterable[expected.Asked],
    end: float,
    range_s: int,
    listed: expected.Listed,
) -> Drawn:
    if not any(answers.values()):
        reasons = {reason for one in asked if (reason := expected.why(listed, one))}
        why = " ".join(sorted(reason.why for reason in reasons))
        return Drawn(panel, "nothing", content.Nothing(why, bool(reasons)))
    steps = [one.step_s for one in asked if one.step_s]
    shown = content.of(panel, answers, content.Span(end - range_s, end, max(steps, default=15)))
    return Drawn(panel, panel.kind, shown, _data(shown))


def _data(shown: content.Content) -> str:
    """JSON that may stand inside a <script>."""
    if not isinstance(shown, content.Graph):
        return ""
    document = {
        "times": shown.times,
        "names": [line.name for line in shown.lines],
        "values": [line.values for line in shown.lines],
        "divisor": shown.divisor,
        "suffix": shown.suffix,
        "stacked": shown.stacked,
        "top": shown.top,
    }
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", " ").replace("\u2029", " ")
