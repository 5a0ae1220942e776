"""The dashboards: what is made of them is the same each time, and Grafana and people can use it."""

import itertools
import json
import re
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from roles.grafana.dashboards import cluster, files
from roles.grafana.page import boards, expected, promql
from roles.grafana.tests import sample
from tests import promtool

# https://grafana.com/docs/grafana/latest/panels-visualizations/visualizations/; `graph`,
# `singlestat` and `table-old` were Angular's.
KINDS = {"bargauge", "gauge", "row", "stat", "state-timeline", "table", "timeseries"}
# That a unit is misspelt, Grafana does not say: it shows it behind the number.
UNITS = {
    "binBps", "Bps", "bps", "bool_yes_no", "bytes", "celsius", "hertz", "locale", "mbytes", "none",
    "ops", "percent", "percentunit", "reqps", "s", "short", "watt", "watth",
}  # fmt: skip

BOARDS = boards.own()
PANELS = [(board, panel) for board in BOARDS for panel in board.asking]
TARGETS = [
    (f"{board.title}/{panel.title}/{target.ref}", board, panel, target)
    for board, panel in PANELS
    for target in panel.targets
]
each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
KNOWN = sample.catalogue()


def expr(board: boards.Board, target: boards.Target) -> str:
    return boards.expanded(target.expr, board.variables, 3600)


# --- the files -----------------------------------------------------------------------------------


def test_the_program_writes_the_same_every_time(program, tmp_path):
    for _ in range(2):
        assert program("write", tmp_path).returncode == 0
        assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == (
            files()
        )


def test_a_folder_that_cannot_be_written_is_told(program, tmp_path):
    file = tmp_path / "file"
    file.touch()
    done = program("write", file)
    assert (done.returncode, done.stderr) == (1, f"dashboards: {file}: File exists.\n")


# --- boards --------------------------------------------------------------------------------------


def test_each_has_a_uid_and_a_title_of_its_own():
    assert len(BOARDS) >= 9
    for names in ({board.uid for board in BOARDS}, {board.title for board in BOARDS}):
        assert len(names) == len(BOARDS)


@each_board
def test_grafana_takes_the_board_as_it_is(board):
    text = str(board.document)
    assert 39 <= board.document["schemaVersion"] <= 41
    assert board.document.get("id") is None
    assert "__inputs" not in board.document
    assert "${DS_" not in text
    assert re.fullmatch(r"[a-z-]{1,40}", board.uid)
    assert board.description
    assert board.document["tags"] == ["plumbline"]
    assert board.document["editable"] is False


@each_board
def test_ids_and_titles_of_panels_are_there_once(board):
    ids = [panel.id for panel in board.panels]
    assert len(ids) == len(set(ids))
    titles = [panel.title for panel in board.asking]
    assert len(titles) == len(set(titles))


@each_board
def test_panels_lie_inside_the_grid_and_beside_each_other(board):
    taken: set[tuple[int, int]] = set()
    for panel in board.panels:
        assert panel.width >= 4
        assert panel.x + panel.width <= 24
        columns = range(panel.x, panel.x + panel.width)
        cells = set(itertools.product(columns, range(panel.y, panel.y + panel.height)))
        assert not cells & taken, panel.title
        taken |= cells
    # No hole either: a line is filled.
    assert len(taken) == 24 * max(panel.y + panel.height for panel in board.panels)


@each_board
def test_one_variable_for_the_source_and_one_for_nodes_the_same_everywhere(board):
    source, node, *_ = board.document["templating"]["list"]
    first = BOARDS[0].document["templating"]["list"]
    assert (source, node) == (first[0], first[1])
    assert {source["name"], source["type"]} == {"datasource"}
    assert source["query"] == "prometheus"
    assert source["current"]["value"] == "plumbline-prometheus"
    assert (node["name"], node["allValue"], node["multi"]) == ("node", ".*", True)
    assert node["query"]["query"] == 'label_values(up{job="node"}, node)'


@each_board
def test_every_variable_is_used(board):
    exprs = " ".join(target.expr for panel in board.asking for target in panel.targets)
    assert board.variables.keys() <= set(re.findall(r"\$(\w+)", exprs))


@each_board
def test_variables_list_values_of_labels_that_are_there(board):
    for variable in board.document["templating"]["list"][1:]:
        match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
        assert match
        assert match[2] == variable["name"]
        (selector,) = promql.selectors(match[1])
        assert {match[2], *selector.labels} <= KNOWN[selector.metric]


def test_a_node_is_as_bad_as_the_rule_records_it():
    rules = yaml.safe_load((expected.RULES / "boards.yml").read_text(encoding="utf-8"))
    (group,) = rules["groups"]
    # The sum of a series over time is so many minutes.
    assert group["interval"] == "1m"
    (rule,) = (one for one in group["rules"] if one["record"] == "node:slurm_node_state:worst")
    told = re.findall(r'slurm_node_state{state="(\w+)"} \* (\d)', rule["expr"])
    assert {state: int(grade) for state, grade in told} == cluster.STATES
    assert {int(grade) for _, grade in told} == set(cluster.GRADES)


def links(panel: boards.Panel) -> list[dict[str, Any]]:
    of_cells = (
        link
        for override in panel.settings["fieldConfig"]["overrides"]
        for change in override["properties"]
        if change["id"] == "links"
        for link in change["value"]
    )
    return [*panel.defaults.get("links", ()), *of_cells]


@pytest.mark.parametrize(
    ("panel", "link"),
    [
        ("Cluster overview/Nodes with alerts", "node?var-node=__value.raw"),
        ("GPU fleet/Errors of the boards", "node?var-node=__value.raw"),
        (
            "GPU fleet/Errors of the boards",
            "node?var-gpu=__value.raw&var-node=__data.fields.Node",
        ),
        ("GPU fleet/Hottest nodes", "node?var-node=__field.labels.node"),
        ("Node detail/Jobs on the GPUs", "job?var-hpc_job=__value.raw"),
        ("One job/Whose it is", "user?var-user=__value.raw"),
        ("One job/Its least busy GPUs", "node?var-node=__value.raw"),
        ("Users/Least busy jobs", "job?var-hpc_job=__value.raw"),
    ],
)
def test_a_name_leads_to_the_board_about_it(panel, link):
    (found,) = (one for board, one in PANELS if f"{board.title}/{one.title}" == panel)
    board, _, variables = link.partition("?")
    chosen = "".join(
        f"&{name}=${{{value}:percentencode}}"
        for name, value in (pair.split("=") for pair in variables.split("&"))
    )
    url = f"/d/plumbline-{board}?${{datasource:queryparam}}{chosen}&${{__url_time_range}}"
    assert url in [each["url"] for each in links(found)]


@each_board
def test_links_lead_to_boards_and_choose_what_these_have(board):
    by_uid = {one.uid: one for one in BOARDS}
    for panel in board.asking:
        for link in links(panel):
            uid, _, query = link["url"].removeprefix("/d/").partition("?")
            chosen = re.findall(r"var-(\w+)=\$\{[\w.]+:percentencode\}", query)
            assert chosen
            assert set(chosen) <= by_uid[uid].variables.keys(), panel.title


@each_board
def test_a_table_of_nodes_jobs_or_users_has_links(board):
    for panel in board.asking:
        if panel.kind == "table":
            (named,) = (
                step["options"]["renameByName"]
                for step in panel.settings["transformations"]
                if step["id"] == "organize"
            )
            assert len(links(panel)) == len(
                named.keys() & {"node", "hpc_job", "user", *(["gpu"] if "node" in named else [])}
            ), panel.title


@each_board
def test_grafanas_own_types_read_it_and_write_the_same(board):
    read = model.Dashboard.from_json(board.document)
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == board.document


# --- panels --------------------------------------------------------------------------------------


@each_board
def test_panels_say_what_they_are(board):
    for panel in board.panels:
        assert panel.kind in KINDS
        assert panel.title
        if panel.kind == "row":
            continue
        assert panel.description.endswith("."), panel.title
        assert panel.defaults["unit"] in UNITS, panel.title
        for override in panel.settings["fieldConfig"]["overrides"]:
            (what,) = override["properties"]
            assert what["id"] in {"unit", "links"}
            assert what["id"] == "links" or what["value"] in UNITS
        assert panel.settings["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel.targets
        assert len({target.ref for target in panel.targets}) == len(panel.targets)


@each_board
def test_what_shows_now_asks_for_now_and_what_shows_time_asks_for_all_of_it(board):
    for panel in board.asking:
        over_time = panel.kind in ("timeseries", "state-timeline")
        assert all(target.instant is not over_time for target in panel.targets), panel.title
        assert all(target.table is (panel.kind == "table") for target in panel.targets)


@each_board
def test_series_beside_each_other_have_names(board):
    for panel in board.asking:
        if panel.kind in ("timeseries", "state-timeline", "bargauge"):
            assert all(target.legend for target in panel.targets), panel.title
            names = [target.legend for target in panel.targets]
            assert len(names) == len(set(names)), panel.title


def test_legends_name_labels_that_are_left():
    for name, _, _, target in TARGETS:
        # The first grouping is the outermost; without one, series have all labels of their metrics.
        outermost = re.search(r"\bby \(([^)]*)\)", target.expr)
        metrics = {selector.metric for selector in promql.selectors(target.expr)}
        every = set().union(*(KNOWN[metric] for metric in metrics))
        left = set(outermost[1].split(", ")) if outermost else every
        assert {*re.findall(r"{{(\w+)}}", target.legend)} <= left, name


@each_board
def test_a_table_shows_each_label_that_is_left_and_no_other(board):
    for panel in board.asking:
        if panel.kind != "table":
            continue
        steps = {step["id"]: step["options"] for step in panel.settings["transformations"]}
        renamed = steps["organize"]["renameByName"]
        labels = {name for name in renamed if not name.startswith("Value")}
        left = set()
        for target in panel.targets:
            match = re.search(r"^\W*(?:(?:top|bottom)k.*?\(\d+, )?\w+ by \(([^)]*)\)", target.expr)
            assert match, target.expr
            left |= set(match[1].split(", "))
        assert left == labels, panel.title
        # Rows of several queries meet on what all of them have.
        assert (len(panel.targets) > 1) == ("merge" in steps)


# --- queries -------------------------------------------------------------------------------------


def test_promtool_reads_every_query(tmp_path):
    assert promtool.wrong((expr(board, target) for _, board, _, target in TARGETS), tmp_path) == ""


def test_promtool_is_heard(tmp_path):
    assert "could not parse expression" in promtool.wrong(["up", "sum(up"], tmp_path)


def test_every_metric_is_told_by_somebody_with_these_labels():
    for name, _, _, target in TARGETS:
        selectors = list(promql.selectors(target.expr))
        assert selectors or "vector" in target.expr, name
        for selector in selectors:
            assert selector.metric in KNOWN, f"{name}: nobody tells {selector.metric}"
            assert selector.labels <= KNOWN[selector.metric], f"{name}: {selector.text}"
        known = set().union(*(KNOWN[selector.metric] for selector in selectors))
        assert promql.grouped(target.expr) <= known, name


def test_the_list_of_metrics_of_others_has_nothing_that_nobody_uses():
    used = {
        selector.metric for _, _, _, target in TARGETS for selector in promql.selectors(target.expr)
    }
    listed = {item["name"] for item in sample.items(sample.OF_OTHERS)}
    assert listed <= used
    assert not listed & {item["name"] for item in sample.items(sample.OF_ALERTS)}


def test_rates_are_taken_over_what_grafana_works_out():
    for name, _, _, target in TARGETS:
        for function, range_ in re.findall(r"\b(i?rate|increase)\([^[]*\[([^]]*)\]", target.expr):
            allowed = {"$__rate_interval"} | ({"$__range"} if function == "increase" else set())
            assert range_ in allowed, name


def test_a_variable_with_several_values_is_matched_as_a_pattern():
    for name, board, _, target in TARGETS:
        for label, operator, variable in re.findall(r'(\w+)(=~?)"\$(\w+)\|?"', target.expr):
            assert (operator, variable) == ("=~", label), name
            assert variable in board.variables
        others = re.sub(r'=~"\$\w+\|?"', "", target.expr)
        assert not re.search(r"\$(?!__)", others), name


def test_names_of_series_are_found_in_promql():
    text = 'sum by (a) (rate(x_total{b="}",c!="d"}[5m])) / on (a) group_left (e) y offset 5m > 2'
    assert [(selector.metric, set(selector.labels)) for selector in promql.selectors(text)] == [
        ("x_total", {"b", "c"}),
        ("y", set()),
    ]
    assert promql.grouped(text) == {"a", "e"}
