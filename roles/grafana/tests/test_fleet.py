"""Boards and page of a fleet in which everything is ill: as much to read as of a small cluster.

By default of some more nodes than a panel shows; of 1,000 with 8 GPUs each where long tests run.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

import pytest

from cluster.prometheus import Series, Server
from roles.grafana.dashboards.shared import FEW, WORST
from roles.grafana.page import boards, expected, promql
from roles.grafana.tests import fleet, sample
from roles.grafana.tests.test_page import BROWSER, PICTURES, numbers, table
from tests import fed_prometheus

BOARDS = boards.own()
RANGE_S = 3600
ASKED = list(expected.of_panels(BOARDS, RANGE_S))
EXPRS = [*(query.expr for query in ASKED), *(rule["expr"] for rule in sample.rules())]
FIELDS = {one.metric for expr in EXPRS for one in promql.selectors(expr)}
KINDS = {(board.title, panel.title): panel.kind for board in BOARDS for panel in board.asking}
# What a person can tell apart or read: lines, bars and bands; rows of a table.
MOST = {"timeseries": WORST + 1, "bargauge": WORST, "state-timeline": WORST, "table": WORST + FEW}
# Of bytes and of seconds, for 1,000 nodes.
PAGE_BYTES, PAGE_S = 1_000_000, 30


@dataclass(frozen=True)
class Fleet:
    nodes: int
    gpus: int
    url: str


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((35, 2), id="35x2"),
        pytest.param((1000, 8), id="1000x8", marks=pytest.mark.long),
    ],
)
def ill(request, tmp_path_factory) -> Iterator[Fleet]:
    nodes, gpus = request.param
    series = fleet.everything(nodes, gpus, FIELDS)
    lines = sample.text(series, fleet.SPAN_S)
    folder, recorded = tmp_path_factory.mktemp("fleet"), sample.recorded(fleet.SPAN_S)
    with fed_prometheus.running(folder, lines, recorded) as url:
        yield Fleet(nodes, gpus, url)


def answers(ill: Fleet) -> dict[tuple[str, str], list[list[Series]]]:
    """What each panel gets, query by query."""
    server = Server(ill.url)
    result: dict[tuple[str, str], list[list[Series]]] = {}
    for query in ASKED:
        answer = expected.answer(server, query, fleet.END, RANGE_S)
        result.setdefault(query.place, []).append(answer)
    return result


def size(kind: str, answer: list[list[Series]]) -> int:
    if kind == "table":
        # Rows of several queries are one where their common labels are the same.
        return max(len(series) for series in answer)
    return sum(len(series) for series in answer)


def test_no_panel_is_empty_and_none_has_more_than_a_person_can_read(ill):
    empty, full = [], {}
    for place, answer in answers(ill).items():
        kind = KINDS[place]
        if not all(answer):
            empty.append(place)
        if (count := size(kind, answer)) > MOST.get(kind, 1):
            full[place] = count
    assert not empty
    assert not full


# --- the page ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page_file(program, ill, tmp_path_factory) -> Path:
    file: Path = tmp_path_factory.mktemp("page") / "page.html"
    begun = time.monotonic()
    done = program(
        *("page", "--prometheus", ill.url, "--end", str(fleet.END)),
        *("--grafana", "https://mon1:3000/", file),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - begun < PAGE_S
    return file


def test_the_page_is_small_and_says_of_how_many_it_shows_the_worst(ill, page_file):
    text = page_file.read_text(encoding="utf-8")
    assert len(text.encode()) < PAGE_BYTES
    assert f"The worst {WORST} of " in text
    ill_nodes = int(re.findall(r"The worst \d+ of (\d+)", text)[0])
    assert ill_nodes >= ill.nodes
    assert len(table(text, "Worst nodes")) == WORST
    assert "No data" not in text
    assert numbers(text)


def test_names_are_text_in_the_page_whoever_gave_them(page_file):
    text = page_file.read_text(encoding="utf-8")
    assert "&lt;script&gt;" in text
    assert not re.findall(r"<(script|img|b>)", text)
    body = text.partition("<body>")[2]
    assert all(letter.isprintable() or letter == "\n" for letter in body)
    longest = max(len(word) for word in re.findall(r"<span[^>]*>(.*?)</span>", body))
    assert longest < 5000


def test_nodes_lead_to_their_board_at_the_same_time(page_file):
    text = page_file.read_text(encoding="utf-8")
    (first, *_) = re.findall(r'href="([^"]*plumbline-node[^"]*)"', text)
    from_ms, to_ms = 1000 * (fleet.END - RANGE_S), 1000 * fleet.END
    assert re.fullmatch(
        r"https://mon1:3000/d/plumbline-node\?"
        rf"var-node=gpu\d{{4}}&amp;from={from_ms}&amp;to={to_ms}",
        first,
    )


def test_what_is_no_node_leads_nowhere(program, prometheus, tmp_path):
    file = tmp_path / "page.html"
    grafana = ("--grafana", "https://mon1/grafana")
    done = program("page", "--prometheus", prometheus, "--end", str(fleet.END), *grafana, file)
    assert done.returncode == 0
    text = file.read_text(encoding="utf-8")
    assert "https://mon1/grafana/d/plumbline-node?var-node=gpu3&amp;" in text
    names = {row[0] for row in table(text, "Worst nodes")}
    linked = set(re.findall(r"var-node=(\w+)", text))
    # Checks between nodes are of a kind of them.
    assert names - linked == {"virtual", "cpu", "h100_sxm"}


@pytest.mark.parametrize("url", ["javascript:alert(1)", "mon1:3000", ""])
def test_what_is_no_address_of_a_grafana_is_refused(program, tmp_path, url):
    done = program("page", "--prometheus", "http://127.0.0.1:1", "--grafana", url, tmp_path / "x")
    assert done.returncode == 2
    assert f"{url!r} is no address; give https://HOST:PORT" in done.stderr


# --- in a browser --------------------------------------------------------------------------------

# A frame is as wide as it is told to be; a window is not. What is cut is wider than it looks.
MEASURE = """
<!DOCTYPE html><title></title><body style="margin: 0"><script>
const frame = document.createElement("iframe");
frame.style = "width: WIDTHpx; height: 900px; border: 0";
frame.srcdoc = PAGE;
frame.onload = () => {
  const page = frame.contentDocument;
  const cut = [...page.querySelectorAll("h3, p, th, td")].filter(one =>
    one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display != "inline");
  const empty = [...page.querySelectorAll("article, td")].filter(one => !one.innerText.trim());
  const broken = [...page.querySelectorAll("td.name")].filter(one => {
    const range = page.createRange();
    range.selectNodeContents(one);
    const lines = new Set([...range.getClientRects()].map(line => line.top));
    return one.innerText.length < 15 && lines.size > 1;
  });
  document.title = JSON.stringify({
    width: page.documentElement.scrollWidth, hacked: page.title == "hacked",
    cut: cut.map(one => one.innerText.slice(0, 40)), empty: empty.length,
    broken: broken.map(one => one.innerText),
    panels: page.querySelectorAll("article").length, rows: page.querySelectorAll("tr").length,
  });
};
document.body.append(frame);
</script>
"""


def measured(text: str, width: int, folder: Path, picture: Path) -> dict[str, object]:
    assert BROWSER
    outer = folder / f"{width}.html"
    page = json.dumps(text).replace("</", "<\\/")
    outer.write_text(MEASURE.replace("WIDTH", str(width)).replace("PAGE", page), encoding="utf-8")
    picture.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--window-size={max(width, 500)},900", "--virtual-time-budget=3000", "--dump-dom",
            f"--screenshot={picture}", outer.as_uri(),
        ],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    (title,) = re.findall(r"<title>(\{.*?\})</title>", done.stdout)
    result: dict[str, object] = json.loads(title.replace("&amp;", "&"))
    return result


@pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium-headless-shell")
@pytest.mark.parametrize("width", [1280, 400])
def test_in_a_browser_nothing_is_cut_or_empty_and_names_do_nothing(ill, page_file, tmp_path, width):
    text = page_file.read_text(encoding="utf-8")
    picture = PICTURES / f"fleet-{ill.nodes}-{width}.png"
    seen = measured(text, width, tmp_path, picture)
    assert seen["width"] == width
    assert (seen["hacked"], seen["cut"], seen["empty"], seen["broken"]) == (False, [], 0, [])
    assert seen["panels"] == len(numbers(text))
    assert isinstance(seen["rows"], int)
    assert seen["rows"] > WORST


@pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium-headless-shell")
def test_a_page_that_is_cut_empty_or_hacked_is_seen(tmp_path):
    wide = escape("wide" * 200)
    text = (
        "<!DOCTYPE html><style>td { white-space: nowrap }</style><article></article>"
        f"<table><tr><td>{wide}</td><td class='name'>two<br>lines</td></tr></table>"
        f"<p style='width: 50px; overflow: hidden'>{wide}</p>"
        "<script>document.title = 'hacked'</script>"
    )
    seen = measured(text, 400, tmp_path, tmp_path / "picture.png")
    assert isinstance(seen["width"], int)
    assert seen["width"] > 400
    assert (seen["hacked"], seen["empty"]) == (True, 1)
    assert seen["cut"]
    assert seen["broken"] == ["two\nlines"]
