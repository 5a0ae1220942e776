"""Validation history: what was proven, when, and how far from its threshold?"""

from roles.grafana.dashboards.shared import (
    FEW,
    WORST,
    Column,
    Query,
    above,
    bars,
    board,
    choice,
    graded,
    graph,
    number,
    rows,
    section,
    states,
    worst,
)

VERDICTS = {"pass": 1, "skip": 2, "inconclusive": 3, "warn": 4, "fail": 5}
GRADES = {
    1: ("pass", "green"),
    2: ("skip", "blue"),
    3: ("inconclusive", "purple"),
    4: ("warn", "orange"),
    5: ("fail", "red"),
}
_WHAT = 'suite=~"$suite",check=~"$check"'
_OF_NODES = f'{_WHAT},node=~"$node|"'
_EACH = "suite, check, subject, metric, unit"


def _family(name: str, where: str = 'suite=~"$suite"') -> str:
    return f"plumbline_validation_{name}{{{where}}}"


_WHOLE = f'{_WHAT},partial="false"'
_PASSED = f'{_WHOLE},verdict="pass"'
_SKIPPED = f'{_WHOLE},verdict="skip"'


def _count(verdict: str) -> str:
    where = f'{_OF_NODES},verdict="{verdict}"'
    return f"count({_family('verdict', where)} == 1) or vector(0)"


def _to_threshold(operator: str) -> str:
    """Of what is told by itself: failures, and what nodes did together."""
    value = f"max by ({_EACH}) ({_family('value', _OF_NODES)})"
    where = f'{_OF_NODES},op="{operator}"'
    return f"{value} / (max by ({_EACH}) ({_family('threshold', where)}) != 0)"


def _closest(operator: str, statistic: str) -> str:
    """Of the nodes that passed, the one that came closest to its threshold."""
    where = f'{_WHOLE},op="{operator}",statistic="{statistic}"'
    return f"max by (suite, check, metric) ({_family('margin', where)})"


_GRADED = graded("plumbline_validation_verdict", "verdict", VERDICTS, _OF_NODES)
_OF_EACH_NODE = graded(
    "plumbline_validation_node_verdict", "verdict", VERDICTS, 'suite=~"$suite",node=~"$node"'
)
# What passed is told as a number of nodes; what did not pass, by itself.
_COUNTED = " or ".join(
    f"({_family('judged', where)} >= bool 1) * {grade}"
    for where, grade in ((_PASSED, VERDICTS["pass"]), (_SKIPPED, VERDICTS["skip"]))
)
_WORST_OF_SUBJECTS = f"max by (subject) ({_GRADED} or {_OF_EACH_NODE})"
_WORST_OF_CHECKS = f"max by (check) ({_GRADED} or {_COUNTED})"

_BAD = 'verdict=~"fail|warn|inconclusive"'
# Of what is told by itself, what came closest to its threshold or is beyond it.
_AT_LEAST = f'{_OF_NODES},op="≥"'
_CLOSEST = (
    f"topk({WORST}, max by ({_EACH}) ({_family('threshold', _AT_LEAST)})"
    f" / (max by ({_EACH}) ({_family('value', _OF_NODES)}) != 0)"
    f" or {_to_threshold('≤')})"
)

FAILURES = number(
    "Failures",
    "Failures in the last runs.",
    "locale",
    _count("fail"),
    above(1),
)

PASSED = number(
    "Passed",
    "Passes of single nodes in the last complete runs.",
    "locale",
    f"sum({_family('judged', _PASSED)}) or vector(0)",
)

LAST_RUN = number(
    "Last run",
    "Time since the last run of any suite began.",
    "s",
    f"time() - max({_family('last_run_timestamp_seconds')})",
    above(8 * 86400),
)

LONGEST_WITHOUT = number(
    "Longest without",
    "Time since the least recently validated node was validated.",
    "s",
    "max(time() - max by (node) ("
    + _family("timestamp_seconds", 'suite=~"$suite",node=~"$node",node!=""')
    + "))",
    above(8 * 86400),
)

TOOK = number(
    "Took",
    "Duration of the last complete run; the longest, if there are several suites.",
    "s",
    f"max({_family('duration_seconds')})",
)

VERDICTS_BARS = bars(
    "Verdicts",
    "Results of the last run of each suite.",
    "short",
    Query(f"max by (suite, verdict) ({_family('results')})", "{{suite}} {{verdict}}"),
)

WHAT_IS_NOT_A_PASS = rows(
    "What is not a pass",
    f"The {WORST} worst last verdicts, failures first.",
    {"suite": "Suite", "check": "Check", "subject": "Subject", "verdict": "Verdict"},
    Column(
        f"topk({WORST}, max by (suite, check, subject, verdict) ("
        + graded(
            "plumbline_validation_verdict",
            "verdict",
            {verdict: grade for verdict, grade in VERDICTS.items() if grade > VERDICTS["skip"]},
            _OF_NODES,
        )
        + ") > 0)"
    ),
    none="All passed.",
)

CHECKS_THAT_ARE_NOT_A_PASS = rows(
    "Checks with the most",
    f"Of how many subjects a check warns, fails or is inconclusive; the {WORST} with the most.",
    {"suite": "Suite", "check": "Check", "verdict": "Verdict"},
    Column(
        f"topk({WORST}, count by (suite, check, verdict)"
        f" ({_family('verdict', f'{_OF_NODES},{_BAD}')} == 1))",
        "Subjects",
    ),
    none="All passed.",
)

VERDICTS_OF_THE_WORST_SUBJECTS = states(
    "Verdicts of the worst subjects",
    f"The worst verdict of a subject's checks, of the {WORST} that are worst at the end.",
    Query(worst(_WORST_OF_SUBJECTS), "{{subject}}"),
    GRADES,
)

VERDICTS_OF_THE_WORST_CHECKS = states(
    "Verdicts of the worst checks",
    f"The worst verdict of a check's subjects, of the {WORST} that are worst at the end.",
    Query(worst(_WORST_OF_CHECKS), "{{check}}"),
    GRADES,
)

NODES = graph(
    "Nodes",
    "Their state after the last run.",
    "short",
    Query(f"max by (suite, standing) ({_family('nodes')})", "{{suite}} {{standing}}"),
)

EXIT_CODE = graph(
    "Exit code",
    "Exit code of the last run of each suite. 0 means pass.",
    "short",
    Query(f"max by (suite) ({_family('exit_code')})", "{{suite}}"),
)

WHAT_MUST_BE_AT_LEAST_SOMETHING = graph(
    "What must be at least something",
    "The measured value as a percentage of its threshold; of nodes that pass, the lowest. "
    "Below 100 % it fails.",
    "percentunit",
    Query(worst(_to_threshold("≥"), FEW, least=True), "{{check}} {{subject}} {{metric}}"),
    Query(worst(_closest("≥", "min"), FEW, least=True), "{{check}} {{metric}}, passing nodes"),
)

WHAT_MUST_BE_AT_MOST_SOMETHING = graph(
    "What must be at most something",
    "The measured value as a percentage of its threshold; of nodes that pass, the highest. "
    "Above 100 % it fails.",
    "percentunit",
    Query(worst(_to_threshold("≤"), FEW), "{{check}} {{subject}} {{metric}}"),
    Query(worst(_closest("≤", "max"), FEW), "{{check}} {{metric}}, passing nodes"),
)

VALUES = rows(
    "Values",
    "What failed and what nodes did together: the last values and their thresholds, with units;"
    f" the {WORST} closest to their threshold or beyond it.",
    {
        "suite": "Suite",
        "check": "Check",
        "subject": "Subject",
        "metric": "Metric",
        "unit": "Unit",
        "op": "Must be",
    },
    Column(
        f"max by ({_EACH}) ({_family('value', _OF_NODES)}) and on ({_EACH}) {_CLOSEST}",
        "Measured",
    ),
    Column(
        f"max by ({_EACH}, op) ({_family('threshold', _OF_NODES)}) and on ({_EACH}) {_CLOSEST}",
        "Threshold",
    ),
)

BOARD = board(
    "validation",
    "Validation history",
    "What was validated, when, and how far from its threshold?",
    section(
        "The last runs",
        [FAILURES, PASSED, LAST_RUN, LONGEST_WITHOUT, TOOK],
        [VERDICTS_BARS, CHECKS_THAT_ARE_NOT_A_PASS, WHAT_IS_NOT_A_PASS],
    ),
    section(
        "History",
        [VERDICTS_OF_THE_WORST_SUBJECTS, VERDICTS_OF_THE_WORST_CHECKS],
        [NODES, EXIT_CODE],
    ),
    section(
        "Measured", [WHAT_MUST_BE_AT_LEAST_SOMETHING, WHAT_MUST_BE_AT_MOST_SOMETHING], [VALUES]
    ),
    variables=[
        choice("suite", "Suite", "plumbline_validation_judged"),
        choice("check", "Check", 'plumbline_validation_judged{suite=~"$suite"}'),
    ],
    since="now-30d",
)
