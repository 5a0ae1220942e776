"""One page of a cluster from a Prometheus' answers: its numbers, its worst nodes, its last verdict.

It needs nothing else, so it can be mailed. With 1,000 nodes it is as long as with 30: what is not
among the worst is counted. Graphs are Grafana's.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from cluster.prometheus import NoAnswer, Series
from cluster.text import printable
from roles.grafana.page import expected, units
from roles.grafana.page.boards import Board, Panel

HERE = Path(__file__).parent
RANGE_S = 3600  # of queries that look back
SHOWN = 20  # nodes
LENGTH = 200  # of a name or a reason: people give them, and Slurm takes any

# A panel shows one number; of these dashboards all such panels, or those of these titles.
NUMBERS: Mapping[str, Sequence[str]] = {
    "Cluster overview": (),
    "GPU fleet": ("GPUs declared", "GPUs missing", "Hottest"),
}

STATES = (
    'max by (node, state) (slurm_node_state{state=~"down|error|fail|drain|not_responding"}) == 1'
)
REASONS = "max by (node, reason, user) (slurm_node_reason_info)"
ALERTS = 'max by (node, severity, alertname) (ALERTS{alertstate="firing",severity!="none"}) == 1'
VERDICTS = (
    "max by (node, subject, suite, check, verdict) "
    '(plumbline_validation_verdict{verdict=~"fail|warn|inconclusive"}) == 1'
)
RESULTS = "max by (suite, verdict) (plumbline_validation_results)"
LAST_RUNS = "max by (suite) (plumbline_validation_last_run_timestamp_seconds)"

CLUSTER = "the cluster"
OUT_OF_SERVICE, BAD, DOUBTFUL = 3, 2, 1
COLOURS = {OUT_OF_SERVICE: "red", BAD: "red", DOUBTFUL: "orange"}
WORST_FIRST = ("fail", "warn", "inconclusive", "skip", "pass")

Ask = Callable[[str], list[Series]]  # raises NoAnswer


@dataclass(frozen=True)
class Number:
    """`text` is "" where there is no data, and `why` says then why."""

    title: str
    description: str
    text: str
    colour: str = "text"
    why: str = ""
    board: str = ""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a node: an alert, a verdict, or Slurm's state with its reason."""

    rank: int
    text: str
    of_node: bool = True  # and not of a kind of node, or of the cluster

    @property
    def colour(self) -> str:
        return COLOURS[self.rank]


@dataclass(frozen=True)
class NodeFaults:
    name: str
    faults: tuple[Fault, ...]

    @property
    def is_node(self) -> bool:
        return any(fault.of_node for fault in self.faults)

    @property
    def order(self) -> tuple[int, int, str]:
        """The worst fault counts, then their number."""
        return -self.faults[0].rank, -len(self.faults), self.name


@dataclass(frozen=True)
class Suite:
    """The last run of a suite: how often each verdict was given, and how long ago that was."""

    name: str
    verdicts: Mapping[str, int]
    age: str


@dataclass(frozen=True)
class Page:
    """`html`, and a sentence for each query that Prometheus refused."""

    html: str
    failed: tuple[str, ...]


@dataclass(frozen=True)
class Grafana:
    """Where a Grafana with these boards is, and the time that its boards shall show; "" is none."""

    url: str
    end: float

    def link(self, board: str, **variables: str) -> str:
        if not self.url:
            return ""
        chosen = {f"var-{name}": value for name, value in variables.items()}
        span = {"from": round(1000 * (self.end - RANGE_S)), "to": round(1000 * self.end)}
        query = urllib.parse.urlencode({**chosen, **span}, quote_via=urllib.parse.quote)
        return f"{self.url.rstrip('/')}/d/{board}?{query}"


def page(
    ask: Ask, boards: Iterable[Board], end: float, listed: expected.Listed, grafana: str = ""
) -> Page:
    failed: list[str] = []

    def answer(expr: str) -> list[Series]:
        try:
            return ask(expr)
        except NoAnswer as error:
            failed.append(f"{error} ({expr})")
            return []

    numbers = list(_numbers(answer, boards, listed))
    nodes = worst_first(_faults(answer))
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("page.html.j2").render(
        at=time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(end)),
        numbers=numbers,
        is_known=any(number.title == "Nodes" and number.text for number in numbers),
        nodes=nodes[:SHOWN],
        ill=len(nodes),
        grafana=Grafana(grafana, end),
        verdicts=WORST_FIRST,
        suites=list(_suites(answer, end)),
        failed=failed,
        style=(HERE / "page.css").read_text(encoding="utf-8"),
    )
    return Page(text, tuple(failed))


# --- numbers -------------------------------------------------------------------------------------


def _numbers(ask: Ask, boards: Iterable[Board], listed: expected.Listed) -> Iterator[Number]:
    for board in (board for board in boards if board.title in NUMBERS):
        panels = {panel.title: panel for panel in board.asking if panel.kind in {"stat", "gauge"}}
        titles = NUMBERS[board.title] or panels
        for query in expected.of_panels([board], RANGE_S):
            title = query.place[1]
            if title in titles:
                reason = expected.why(listed, query)
                yield _number(board.uid, panels[title], ask(query.expr), reason)


def _number(
    board: str, panel: Panel, answer: Sequence[Series], reason: expected.Reason | None
) -> Number:
    if not answer:
        why = reason.why if reason else "Nothing is listed that explains it: something is wrong."
        return Number(panel.title, panel.description, "", why=why, board=board)
    value, colour = answer[0].last, "text"
    for step in panel.defaults.get("thresholds", {}).get("steps", ()):
        if step["value"] is None or value >= step["value"]:
            colour = step["color"]
    text = units.written(value, panel.defaults["unit"])
    return Number(panel.title, panel.description, text, colour, board=board)


# --- nodes ---------------------------------------------------------------------------------------


def _faults(ask: Ask) -> Iterator[tuple[str, Fault]]:
    """Names of nodes, each with a fault; what is of no node is the cluster's."""
    states: dict[str, list[str]] = {}
    for series in ask(STATES):
        states.setdefault(series.labels["node"], []).append(series.labels["state"])
    reasons = {series.labels["node"]: series.labels for series in ask(REASONS)}
    for node, words in states.items():
        text = ", ".join(sorted(words))
        if node in reasons:
            text += f": {_shown(reasons[node], 'reason')} ({_shown(reasons[node], 'user')})"
        yield node, Fault(OUT_OF_SERVICE, text)
    for series in ask(ALERTS):
        rank = BAD if series.labels.get("severity") == "critical" else DOUBTFUL
        of_node = bool(series.labels.get("node"))
        yield _of(series, "node"), Fault(rank, _shown(series.labels, "alertname"), of_node)
    for series in ask(VERDICTS):
        check, verdict, suite = (
            _shown(series.labels, label) for label in ("check", "verdict", "suite")
        )
        rank = BAD if verdict == "fail" else DOUBTFUL
        of_node = bool(series.labels.get("node"))
        yield _of(series, "node", "subject"), Fault(rank, f"{check}: {verdict} ({suite})", of_node)


def _of(series: Series, *labels: str) -> str:
    return next(filter(None, (_shown(series.labels, label) for label in labels)), CLUSTER)


def _shown(labels: Mapping[str, str], label: str) -> str:
    """One line without what is invisible or turns text round."""
    return printable(labels.get(label, ""), LENGTH)


def worst_first(faults: Iterable[tuple[str, Fault]]) -> list[NodeFaults]:
    of_nodes: dict[str, list[Fault]] = {}
    for name, fault in faults:
        of_nodes.setdefault(name, []).append(fault)
    nodes = (
        NodeFaults(name, tuple(sorted(of_node, key=lambda fault: (-fault.rank, fault.text))))
        for name, of_node in of_nodes.items()
    )
    return sorted(nodes, key=lambda node: node.order)


# --- the last verdict ----------------------------------------------------------------------------


def _suites(ask: Ask, end: float) -> Iterator[Suite]:
    verdicts: dict[str, dict[str, int]] = {}
    for series in ask(RESULTS):
        of_suite = verdicts.setdefault(_shown(series.labels, "suite"), {})
        of_suite[series.labels["verdict"]] = int(series.last)
    began = {_shown(series.labels, "suite"): series.last for series in ask(LAST_RUNS)}
    for name in sorted(verdicts):
        age = units.written(end - began[name], "s") if name in began else ""
        yield Suite(name, verdicts[name], age)
