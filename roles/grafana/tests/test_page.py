"""The page of all dashboards, made of a real Prometheus' answers, in a real browser.

Debian's package `chromium-headless-shell` (or `chromium`) has one. The pictures stay in
`.cache/test/dashboards`, for people to look at.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from roles.grafana.dashboards import FOLDER
from roles.grafana.page import boards
from roles.grafana.tests import sample
from tests import fed_prometheus

ROOT = Path(__file__).resolve().parents[3]
PICTURES = ROOT / ".cache/test/dashboards"
BOARDS = boards.read(FOLDER)
BROWSER = next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no browser: apt-get install chromium-headless-shell"
)

# What the page looks like once it is laid out, left as text for --dump-dom.
MEASURE = """
<script>
setTimeout(() => {
  const box = (one) => one.getBoundingClientRect();
  const all = [...document.querySelectorAll("article")];
  const meet = (one, other) => one.left < other.right - 1 && other.left < one.right - 1
    && one.top < other.bottom - 1 && other.top < one.bottom - 1;
  const begin = (one) => one.textContent.trim().slice(0, 40);
  const found = {
    width: innerWidth,
    needs: document.documentElement.scrollWidth,
    paper: getComputedStyle(document.body).backgroundColor,
    panels: all.length,
    overlaps: all.flatMap((one, at) => all.slice(at + 1)
      .filter((other) => meet(box(one), box(other)))
      .map((other) => `${begin(one)} / ${begin(other)}`)),
    graphs: document.querySelectorAll(".timeseries").length,
    drawn: [...document.querySelectorAll(".chart canvas")].filter((one) => {
      const pixels = one.getContext("2d").getImageData(0, 0, one.width, one.height).data;
      return box(one).height > 60 && pixels.some((value) => value > 0);
    }).length,
    cut: [...document.querySelectorAll("h3, .number, .none, th")].filter(
      (one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent),
  };
  const out = document.createElement("pre");
  out.id = "found";
  out.hidden = true;
  out.textContent = JSON.stringify(found);
  document.body.append(out);
}, 500);
</script>
</body>"""


def program(url: str, file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts/dashboards"), "page", "--prometheus", url]
    return subprocess.run(
        [*command, *arguments, str(file)], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    with fed_prometheus.running(folder, sample.text(lively=True)) as url:
        yield url


@pytest.fixture(scope="module")
def made(server, tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("page") / "page.html"
    done = program(server, file, "--end", str(sample.END))
    assert (done.returncode, done.stderr) == (0, "")
    return Path(file)


def test_every_panel_is_there_and_shows_something(made):
    text = made.read_text(encoding="utf-8")
    titles = [unescape(title) for title in re.findall(r"<h3[^>]*>(.*?)</h3>", text)]
    assert titles == [panel.title for board in BOARDS for panel in board.asking]
    assert "<b>No data</b>" not in text
    assert "NaN" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)


def test_the_page_needs_nothing_else(made):
    text = made.read_text(encoding="utf-8")
    assert not re.findall(r"""\b(?:src|href)=["'](?!#)""", text)
    assert not re.findall(r"@import|url\(", text)


def test_where_there_is_no_data_it_says_why(server, tmp_path):
    file = tmp_path / "page.html"
    done = program(server, file, "--end", str(sample.END - 10 * sample.SPAN_S))
    assert done.returncode == 0
    text = file.read_text(encoding="utf-8")
    why = dict(
        re.findall(r"<h3[^>]*>([^<]*)</h3>\s*<div[^>]*>\s*<p[^>]*><b>No data</b>\s*(.*?)</p>", text)
    )
    assert why["Hottest"] == "No GPU is there that an exporter reads."
    assert why["InfiniBand"] == "No node has an InfiniBand port."
    assert why["Jobs running"] == "Nothing is listed that explains it: something is wrong."


def test_one_node_can_be_chosen(server, tmp_path):
    file = tmp_path / "page.html"
    done = program(server, file, "--end", str(sample.END), "--set", "node=gpu2")
    assert done.returncode == 0
    text = file.read_text(encoding="utf-8")
    assert "node: gpu2" in text
    assert "gpu2 GPU 1" in text
    assert "gpu1 GPU 1" not in text


def test_what_prometheus_refuses_is_told_and_the_page_is_there(server, tmp_path):
    file = tmp_path / "page.html"
    done = program(server, file, "--end", str(sample.END), "--set", "node=(")
    assert done.returncode == 1
    assert "panel/GPU fleet/Hottest/A: " in done.stderr
    assert "answers with 400" in done.stderr
    assert "answers with 400" in file.read_text(encoding="utf-8")


def test_a_prometheus_that_does_not_answer_is_told_once(tmp_path):
    file = tmp_path / "page.html"
    done = program("http://127.0.0.1:1", file)
    assert done.returncode == 1
    assert done.stderr.startswith("dashboards: Prometheus at http://127.0.0.1:1 does not answer: ")
    assert done.stderr.count("\n") == 1
    assert not file.exists()


def test_a_variable_that_no_dashboard_has_is_refused(server, tmp_path):
    file = tmp_path / "page.html"
    done = program(server, file, "--set", "nodes=gpu2")
    assert done.returncode == 1
    assert done.stderr == (
        "dashboards: --set nodes: dashboards have check, hpc_job, node, suite.\n"
    )
    assert not file.exists()
    done = program(server, file, "--set", "gpu2")
    assert done.returncode == 2
    assert "--set gpu2: write NAME=PATTERN" in done.stderr


# --- in a browser --------------------------------------------------------------------------------


def browse(page: Path, width: int, height: int, dark: bool, *arguments: str) -> str:
    assert BROWSER
    done = subprocess.run(
        [
            BROWSER, "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--window-size={width},{height}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            "--virtual-time-budget=5000", *arguments, page.as_uri(),
        ],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(1500, False), (1500, True), (420, False)])
def test_in_a_browser_all_of_it_is_drawn_and_nothing_overlaps(made, tmp_path, width, dark):
    measured = tmp_path / "page.html"
    measured.write_text(made.read_text(encoding="utf-8").replace("</body>", MEASURE))
    dom = browse(measured, width, 2000, dark, "--dump-dom")
    text = re.search(r'<pre id="found" hidden="">(.*?)</pre>', dom, re.DOTALL)
    assert text
    found = json.loads(unescape(text[1]))
    assert found["needs"] <= found["width"]
    assert found["paper"] == ("rgb(17, 18, 23)" if dark else "rgb(244, 245, 245)")
    assert found["panels"] == sum(len(board.asking) for board in BOARDS)
    assert found["overlaps"] == []
    assert found["graphs"] == found["drawn"] > 30
    assert found["cut"] == []
    PICTURES.mkdir(parents=True, exist_ok=True)
    picture = PICTURES / f"{width}-{'dark' if dark else 'light'}.png"
    browse(made, width, 8800, dark, f"--screenshot={picture}")
    assert picture.stat().st_size > 50_000
