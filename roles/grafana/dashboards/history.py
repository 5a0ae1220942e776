"""Node history: how often do nodes fail, and which of them again and again?"""

from roles.grafana.dashboards.shared import (
    Column,
    Query,
    above,
    bars,
    board,
    highest,
    number,
    rows,
    section,
    share,
)

WORST = 20


def _of_nodes(name: str) -> str:
    """Once for each node, whichever controller tells it."""
    return f'max by (node) (plumbline_node_{name}{{node=~"$node"}})'


_WORST = f"max by (node) (topk({WORST}, {_of_nodes('interruptions')} > 0))"

BETWEEN = number(
    "Between interruptions",
    "Mean time of a node in service between two interruptions, over 28 days.",
    "s",
    highest("plumbline_nodes_between_interruptions_seconds"),
)

IN_SERVICE = share(
    "In service",
    "Time that the nodes were in service, over 28 days or since they were first seen.",
    # In the first ten minutes of a cluster nobody has observed anything.
    f"1 - sum({_of_nodes('out_seconds')}) / clamp_min(sum({_of_nodes('observed_seconds')}), 1)",
)

INTERRUPTIONS = number(
    "Interruptions",
    "How often a fault took a node out of service, over 28 days.",
    "short",
    f"sum({_of_nodes('interruptions')})",
)

LEMONS = number(
    "Lemons",
    "Nodes that fail again and again, more often than chance lets them.",
    "short",
    f"count({_of_nodes('lemon')} == 1) or vector(0)",
    above(1),
)

WORST_NODES = rows(
    "Nodes with the most interruptions",
    "The 20 worst, over 28 days. node-history on the first controller shows what befell them.",
    {"node": "Node"},
    Column(_WORST, "Interruptions"),
    Column(f"{_of_nodes('out_seconds')} and on (node) {_WORST}", "Out of service", "s"),
    Column(f"{_of_nodes('lemon')} and on (node) {_WORST}", "Lemon"),
)

WHY_LEMON = rows(
    "Why a node is a lemon",
    "The signals that name it, and how often each was in 28 days.",
    {"node": "Node", "signal": "Signal"},
    Column(
        f'topk({WORST}, max by (node, signal) (plumbline_node_lemon_signal{{node=~"$node"}}))',
        "Times",
    ),
)

BY_KIND = bars(
    "Incidents by kind",
    "All that the ledger has of these nodes.",
    "short",
    Query(
        'sum by (kind) (max by (node, kind) (plumbline_node_incidents_total{node=~"$node"}))',
        "{{kind}}",
    ),
)

BOARD = board(
    "history",
    "Node history",
    "How often do nodes fail, and which of them again and again?",
    section("28 days", [BETWEEN, IN_SERVICE, INTERRUPTIONS, LEMONS]),
    section("Which nodes", [WORST_NODES, WHY_LEMON], [BY_KIND]),
)
