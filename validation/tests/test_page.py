"""The HTML report in a real browser: it fits on a telephone and on a desk, by day and by night.

Debian's package `chromium-headless-shell` (or `chromium`) has one. The pictures stay in
`.cache/test/report`, for people to look at.
"""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from validation.report import html
from validation.tests.sample_reports import evil, healthy, mixed_bag

PICTURES = Path(__file__).parents[2] / ".cache" / "test" / "report"
BROWSER = next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no browser: apt-get install chromium-headless-shell"
)

# Measures the page as it is laid out, and leaves what it found as text for --dump-dom.
MEASURE = """
<script>
const lines = (element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  return new Set(Array.from(range.getClientRects(), (box) => Math.round(box.top))).size;
};
const shown = (selector) =>
  Array.from(document.querySelectorAll(selector)).filter((one) => one.offsetParent !== null);
const contrast = (element) => {
  const light = (colour) => {
    const parts = colour.match(/[0-9.]+/g).slice(0, 3).map((part) => {
      const value = part / 255;
      return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2] + 0.05;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const ink = light(getComputedStyle(element).color);
  return Math.max(paper, ink) / Math.min(paper, ink);
};
const found = {
  width: innerWidth,
  needs: document.documentElement.scrollWidth,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  paper: getComputedStyle(document.body).backgroundColor,
  headers: shown("th").map((one) => [one.textContent, lines(one)]),
  narrow: shown("td, p, h1, h2, h3, pre").filter(
    (one) => one.textContent.trim().length > 8 && one.clientWidth < 60
  ).map((one) => one.textContent),
  cut: shown("td, th, pre, p, h1, h3").filter(
    (one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent),
  pale: shown("td, p, h1, .v, a, .quiet").filter((one) => contrast(one) < 4.5).map(
    (one) => one.textContent),
  small: shown("td, p, pre").filter(
    (one) => parseFloat(getComputedStyle(one).fontSize) < 13).map((one) => one.textContent),
  sections: shown("h2").map((one) => one.textContent),
  plots: shown("svg").map((one) => one.getBoundingClientRect().width),
};
const out = document.createElement("pre");
out.id = "found";
out.hidden = true;
out.textContent = JSON.stringify(found);
document.body.append(out);
</script>
</body>"""


def browse(page, width, scheme, *arguments):
    assert BROWSER
    return subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",  # root in a container; the page is ours
            "--disable-gpu",
            "--hide-scrollbars",
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
            f"--window-size={width},3000",
            *arguments,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout


def measured(tmp_path, text, width, scheme, *arguments):
    page = tmp_path / "measured.html"
    # The page's policy would not let another script run.
    text = re.sub(r"<meta http-equiv[^>]*>", "", text)
    page.write_text(text.replace("</body>", MEASURE))
    shown = browse(page, width, scheme, "--dump-dom", *arguments)
    match = re.search(r'<pre id="found"[^>]*>(.*?)</pre>', shown, re.DOTALL)
    assert match, "the page could not be measured"
    return json.loads(unescape(match[1]))


@pytest.mark.sample(3)
@needs_browser
@pytest.mark.parametrize("make", [mixed_bag, healthy, evil])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_is_readable(tmp_path, make, width, scheme):
    PICTURES.mkdir(parents=True, exist_ok=True)
    picture = PICTURES / f"{make.__name__}-{width}-{scheme}.png"
    text = html.render(make())
    layout = measured(tmp_path, text, width, scheme, f"--screenshot={picture}")
    assert picture.stat().st_size > 10_000
    assert (layout["width"], layout["dark"]) == (width, scheme == "dark")
    assert layout["needs"] <= width, "it must be scrolled sideways"
    assert layout["narrow"] == []
    assert layout["cut"] == []
    assert layout["pale"] == []
    assert layout["small"] == []
    assert [name for name, lines in layout["headers"] if lines > 1] == []
    assert all(plot > 300 for plot in layout["plots"])
    assert (layout["paper"] == "rgb(255, 255, 255)") == (scheme == "light")


@needs_browser
def test_what_is_wrong_stands_before_what_is_right(tmp_path):
    sections = measured(tmp_path, html.render(mixed_bag()), 1280, "light")["sections"]
    assert sections[:3] == ["What to do", "What did not pass", "Nodes"]
    assert sections.index("What passed, or does not apply") > sections.index("Bandwidth over size")


# --- without a browser -----------------------------------------------------------------------


def test_bandwidth_over_size_is_a_picture_with_its_threshold():
    text = html.render(healthy())
    (picture,) = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert 'aria-label="64 KiB: 1.2 GB/s, 1 MiB: 1.2 GB/s, 4 MiB: 1.2 GB/s"' in picture
    assert picture.count("<circle") == 3
    assert "at least 0.05, at the largest size" in picture
    # The same value at every size is a level line, above that of the threshold.
    heights = {point.split(",")[1] for point in re.findall(r'points="([^"]+)"', picture)[0].split()}
    limit = re.findall(r'class="limit" x1="58" x2="624" y1="([0-9.]+)"', picture)[0]
    assert len(heights) == 1
    assert float(heights.pop()) < float(limit)


@pytest.mark.parametrize(
    ("value", "top"),
    [(0.0, 1), (0.04, 0.04), (0.05, 0.06), (1.2, 2), (40, 40), (478.3, 600), (1e9, 1e9)],
)
def test_an_axis_ends_at_a_round_number_above_all_values(value, top):
    assert html._round_up(value) == pytest.approx(top)
