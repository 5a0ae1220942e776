"""The page of the cluster: of a real Prometheus' answers, of 1,000 nodes', and in a real browser.

Debian's package `chromium-headless-shell` (or `chromium`) has one. The pictures stay in
`.cache/test/dashboards`, for people to look at.
"""

import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from cluster.prometheus import NoAnswer, Series
from roles.grafana.page import boards, expected, page
from roles.grafana.page.page import BAD, DOUBTFUL, OUT_OF_SERVICE, Fault
from roles.grafana.tests import sample

PICTURES = Path(__file__).resolve().parents[3] / ".cache/test/dashboards"
BROWSER = next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None
)
END = 1_767_225_600


def numbers(text: str) -> dict[str, str]:
    """What stands below each title."""
    pairs = re.findall(r"<h3[^>]*>(.*?)</h3>\s*<p[^>]*>(.*?)</p>", text, re.DOTALL)
    return {unescape(title): unescape(shown) for title, shown in pairs}


def table(text: str, heading: str) -> list[list[str]]:
    """Words of the cells of a table below a heading, without its first row."""
    after = text.partition(f"<h1>{heading}</h1>")[2].partition("<h1>")[0]
    rows = (re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in after.split("<tr>")[2:])
    return [[" ".join(re.sub("<.*?>", " ", cell).split()) for cell in row] for row in rows]


# --- a real Prometheus ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page_file(program, prometheus, tmp_path_factory) -> Path:
    file: Path = tmp_path_factory.mktemp("page") / "page.html"
    done = program("page", "--prometheus", prometheus, "--end", str(sample.END), file)
    assert (done.returncode, done.stderr) == (0, "")
    return file


def test_it_has_the_numbers_the_worst_nodes_and_the_last_verdict(page_file):
    text = page_file.read_text(encoding="utf-8")
    shown = numbers(text)
    assert len(shown) == 13
    assert (shown["Nodes out of service"], shown["GPUs missing"]) == ("1", "1")
    assert shown["Hottest"] == "70 °C"
    node, fault = table(text, "Worst nodes")[0]
    assert (node, fault.partition(": ")[0]) == ("cpu1", "drain")
    assert table(text, "Last verdict")
    for nothing in ("No data", "NaN", "None"):
        assert nothing not in text


def test_the_page_needs_nothing_else(page_file):
    text = page_file.read_text(encoding="utf-8")
    assert not re.findall(r"""<script|\b(?:src|href)=["'](?!#)|@import|url\(""", text)


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("vector(1) > 0", 0, ""),
        ("not_there", 1, "dashboards: Prometheus has nothing for not_there, after 2 s.\n"),
    ],
)
def test_it_waits_for_a_query_and_not_for_ever(program, prometheus, tmp_path, query, code, words):
    file = tmp_path / "page.html"
    done = program("page", "--prometheus", prometheus, "--once", query, "--patience", "2", file)
    assert (done.returncode, done.stderr, file.exists()) == (code, words, not code)


def test_where_there_is_no_data_it_says_why(program, prometheus, tmp_path):
    file = tmp_path / "page.html"
    before = str(sample.END - 10 * sample.SPAN_S)
    assert program("page", "--prometheus", prometheus, "--end", before, file).returncode == 0
    text = file.read_text(encoding="utf-8")
    shown = numbers(text)
    assert shown["Hottest"] == "<b>No data</b> No exporter reads a GPU."
    assert shown["Jobs running"].endswith("explains it: something is wrong.")
    assert "Nothing was validated yet" in text


def test_a_prometheus_that_does_not_answer_is_told_once(program, tmp_path):
    file = tmp_path / "page.html"
    done = program("page", "--prometheus", "http://127.0.0.1:1", file)
    assert (done.returncode, file.exists()) == (1, False)
    (line,) = done.stderr.splitlines()
    assert line.startswith("dashboards: Prometheus at http://127.0.0.1:1 does not answer: ")


# --- generated answers ---------------------------------------------------------------------------


def series(value: float = 1, **labels: str) -> Series:
    return Series(labels, ((END, value),))


def ill(number: int) -> str:
    return f"gpu{number:04}"


# Of 1,000 nodes all have warnings, 100 fail a check, 30 have an alert, 10 of these are down.
OF_1000 = {
    page.STATES: [
        series(node=ill(n), state=state) for n in range(10) for state in ("down", "drain")
    ],
    page.REASONS: [series(node=ill(n), reason="<b>XID 79</b>", user="root") for n in range(10)],
    page.ALERTS: [
        series(severity="warning", alertname="B"),
        *(series(node=ill(n), severity="critical", alertname="A") for n in range(30)),
    ],
    page.VERDICTS: [
        series(node=ill(n), subject=ill(n), suite="quick", check=f"check{which}", verdict=verdict)
        for n in range(1000)
        for which in range(8)
        for verdict in ["fail" if n < 100 and not which else "warn"]
    ],
    page.RESULTS: [
        series(count, suite="quick", verdict=verdict)
        for verdict, count in {"pass": 12000, "warn": 7900, "fail": 100}.items()
    ],
    page.LAST_RUNS: [series(END - 7200, suite="quick")],
}


def of_1000(expr: str) -> list[Series]:
    return OF_1000.get(expr, [series(1000)])


def refusing(*exprs: str) -> Callable[[str], list[Series]]:
    """A Prometheus that answers all but these."""

    def answer(expr: str) -> list[Series]:
        if expr in exprs:
            raise NoAnswer("Prometheus answers with 400: no.")
        return of_1000(expr)

    return answer


def test_a_page_of_1000_nodes_has_the_worst_and_the_number_of_the_others():
    result = page.page(of_1000, boards.own(), END, expected.read())
    assert result.failed == ()
    assert len(result.html) < 30_000
    nodes = table(result.html, "Worst nodes")
    assert [name for name, _ in nodes] == [ill(n) for n in range(page.SHOWN)]
    # What Slurm says comes from people: it is text.
    assert "&lt;b&gt;XID 79&lt;/b&gt; (root)" in result.html
    assert nodes[0][1].endswith("and 5 more")
    assert "The worst 20 of 1001 with something wrong" in result.html
    assert table(result.html, "Last verdict") == [
        ["quick", "100", "7900", "0", "0", "12000", "2 h before"]
    ]


def test_the_worst_fault_counts_before_their_number():
    faults = {
        "many": [(DOUBTFUL, "a"), (DOUBTFUL, "b")],
        "one": [(BAD, "c")],
        "down": [(OUT_OF_SERVICE, "d")],
        "two": [(DOUBTFUL, "f"), (BAD, "e")],
    }
    nodes = page.worst_first([(node, Fault(*one)) for node in faults for one in faults[node]])
    assert [node.name for node in nodes] == ["down", "two", "one", "many"]
    assert [fault.text for fault in nodes[1].faults] == ["e", "f"]


def test_nothing_is_wrong_only_where_everything_was_answered():
    def page_html(answers: Callable[[str], list[Series]]) -> str:
        return page.page(answers, boards.own(), END, {}).html

    well = "No alert fires, no node is out of service"
    assert well in page_html(lambda expr: [] if expr in OF_1000 else [series(1000)])
    silent = page_html(lambda expr: [])
    assert well not in silent
    assert "Nothing is known of the nodes" in silent
    assert well not in page_html(refusing(*OF_1000))


def test_what_prometheus_refuses_is_told_and_the_page_is_there():
    result = page.page(refusing(page.ALERTS), boards.own(), END, expected.read())
    assert result.failed == (f"Prometheus answers with 400: no. ({page.ALERTS})",)
    assert "answers with 400" in result.html


# --- in a browser --------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium-headless-shell")
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (420, False)])
def test_in_a_browser_nothing_is_cut(page_file, tmp_path, width, dark):
    assert BROWSER
    measure = "<script>document.title = document.documentElement.scrollWidth</script></body>"
    measured = tmp_path / "page.html"
    measured.write_text(page_file.read_text(encoding="utf-8").replace("</body>", measure))
    PICTURES.mkdir(parents=True, exist_ok=True)
    picture = PICTURES / f"{width}-{'dark' if dark else 'light'}.png"
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--window-size={width},800",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
    ]  # fmt: skip
    dom = subprocess.run(
        [*command, "--dump-dom", measured.as_uri()],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    needs = re.search(r"<title>(\d+)</title>", dom)
    assert needs
    # A window has at least 500 pixels in some browsers.
    assert int(needs[1]) <= max(width, 500)
    subprocess.run(
        [*command, f"--screenshot={picture}", page_file.as_uri()],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    assert picture.stat().st_size > 20_000
