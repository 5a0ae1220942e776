"""What the dashboards share: how a board is laid out, and the kinds of panels it is made of.

A board is a list of sections, a section a title and lines of panels; those of a line are equally
wide and fill it, so nothing overlaps. Ids are given in that order. What a panel has is what Grafana
calls it: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/.

A board is as readable with 1,000 nodes as with four: what there is one of for each node, GPU, job
or user is counted (`Query`s of their own), spread out (`spread`), or shown where it is worst
(`worst`, or topk in a table).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    gauge,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog import builder as cog
from grafana_foundation_sdk.models import common as words
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

TAG = "plumbline"
COLUMNS = 24  # of Grafana's grid
DATASOURCE = "plumbline-prometheus"  # the one that the role provisions
WORST = 20  # lines or rows, of what there may be thousands of
FEW = WORST // 2  # of each of two queries

Panel = model.Panel
Link = cog.Builder[model.DashboardLink]
Variable = dashboard.QueryVariable | dashboard.DatasourceVariable
Builder = TypeVar(
    "Builder",
    bargauge.Panel,
    gauge.Panel,
    stat.Panel,
    statetimeline.Panel,
    table.Panel,
    timeseries.Panel,
)


@dataclass(frozen=True)
class Query:
    """PromQL, and what a series of it is called: {{label}} stands for a label's value."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Column:
    """A value of a table's rows, from a query of its own. Without a title it is not shown."""

    expr: str
    title: str = ""
    unit: str = "short"


@dataclass(frozen=True)
class Section:
    title: str
    lines: tuple[Sequence[Panel], ...]


# --- colours -------------------------------------------------------------------------------------

Levels = Sequence[tuple[float | None, str]]
PLAIN: Levels = ((None, "blue"),)


def above(orange: float, red: float | None = None) -> Levels:
    """Green below both. Of `above(1)` any is red."""
    return ((None, "green"), *(((orange, "orange"), (red, "red")) if red else ((orange, "red"),)))


def below(red: float, orange: float) -> Levels:
    """Green above both."""
    return (None, "red"), (red, "orange"), (orange, "green")


def _thresholds(levels: Levels) -> dashboard.ThresholdsConfig:
    steps = [model.Threshold(value, colour) for value, colour in levels]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


# --- links ---------------------------------------------------------------------------------------

# The board about a thing, and what its link says, for each label that names one.
BOARDS_OF = {
    "node": ("node", "Show this node"),
    "hpc_job": ("job", "Show this job"),
    "user": ("user", "Show this user"),
}
OF_GPU = ("node", "Show this GPU")


def _link(label: str, chosen: Mapping[str, str]) -> Link:
    """To the board about a label's value: `chosen` has its variables, and what stands for each.

    https://grafana.com/docs/grafana/latest/panels-visualizations/configure-data-links/ has what may
    stand there. Names come from people: `percentencode` makes each of them one value.
    """
    board, title = OF_GPU if label == "gpu" else BOARDS_OF[label]
    variables = "".join(
        f"&var-{name}=${{{what}:percentencode}}" for name, what in sorted(chosen.items())
    )
    url = f"/d/{TAG}-{board}?${{datasource:queryparam}}{variables}&${{__url_time_range}}"
    return dashboard.DashboardLink(title).type(model.DashboardLinkType.LINK).url(url)


def _of_legends(queries: Sequence[Query]) -> list[Link]:
    """Links of lines and bars, for the labels that all of their names have."""
    named = [set(re.findall(r"{{(\w+)}}", query.legend)) for query in queries]
    labels = set.intersection(*named) if named else set()
    return [
        _link(label, {label: f"__field.labels.{label}"}) for label in BOARDS_OF if label in labels
    ]


def _of_columns(labels: Mapping[str, str]) -> Mapping[str, Link]:
    """Links of a table's cells, by the columns' titles."""
    links = {
        title: _link(label, {label: "__value.raw"})
        for label, title in labels.items()
        if label in BOARDS_OF
    }
    if {"node", "gpu"} <= labels.keys():
        node = f"__data.fields.{labels['node']}"
        links[labels["gpu"]] = _link("gpu", {"node": node, "gpu": "__value.raw"})
    return links


# --- panels --------------------------------------------------------------------------------------


def graph(
    title: str, description: str, unit: str, *queries: Query, stacked: bool = False,
    top: float | None = None, every: str | None = None,
) -> Panel:  # fmt: skip
    """Values over time, from 0 on; to `top` where there is a most.

    `every` is how often the values change, where that is less often than they are scraped.
    """
    legend = common.VizLegendOptions().show_legend(True).display_mode(words.LegendDisplayMode.LIST)
    tooltip = common.VizTooltipOptions().mode(words.TooltipDisplayMode.MULTI)
    stacking = words.StackingMode.NORMAL if stacked else words.StackingMode.NONE
    panel = (
        _panel(timeseries.Panel(), title, description, unit, 8)
        .legend(legend.placement(words.LegendPlacement.BOTTOM).calcs([]))
        .tooltip(tooltip.sort(words.SortOrder.DESCENDING))
        .stacking(common.StackingConfig().mode(stacking).group("A"))
        .fill_opacity(60 if stacked else 10)
        .line_width(1)
        .show_points(words.VisibilityMode.AUTO)
        .axis_soft_min(0)
        .data_links(_of_legends(queries))
    )
    if top is not None:
        panel = panel.max(top)
    if every is not None:
        panel = panel.interval(every)
    return _with(panel, queries).build()


def number(title: str, description: str, unit: str, expr: str, levels: Levels = PLAIN) -> Panel:
    """One number: the value now."""
    panel = (
        _panel(stat.Panel(), title, description, unit, 4)
        .thresholds(_thresholds(levels))
        .reduce_options(_last())
        .graph_mode(words.BigValueGraphMode.NONE)
        .color_mode(words.BigValueColorMode.VALUE)
    )
    return _with(panel, [Query(expr)], instant=True).build()


def share(title: str, description: str, expr: str, levels: Levels = PLAIN) -> Panel:
    """One share of a whole, 0 to 1, as a gauge."""
    panel = (
        _panel(gauge.Panel(), title, description, "percentunit", 4)
        .thresholds(_thresholds(levels))
        .reduce_options(_last())
        .min(0)
        .max(1)
    )
    return _with(panel, [Query(expr)], instant=True).build()


def bars(
    title: str, description: str, unit: str, *queries: Query, levels: Levels = PLAIN,
    top: float | None = None,
) -> Panel:  # fmt: skip
    """A bar for each series: the value now."""
    panel = (
        _panel(bargauge.Panel(), title, description, unit, 8)
        .thresholds(_thresholds(levels))
        .reduce_options(_last())
        .orientation(words.VizOrientation.HORIZONTAL)
        .display_mode(words.BarGaugeDisplayMode.BASIC)
        .min(0)
        .data_links(_of_legends(queries))
    )
    if top is not None:
        panel = panel.max(top)
    return _with(panel, queries, instant=True).build()


def states(
    title: str, description: str, query: Query, names: Mapping[int, tuple[str, str]]
) -> Panel:
    """A band for each series over time; `names` has the word and the colour of each value."""
    mapping = model.ValueMap(
        {
            str(value): model.ValueMappingResult(text, colour, index=index)
            for index, (value, (text, colour)) in enumerate(names.items())
        }
    )
    panel = (
        _panel(statetimeline.Panel(), title, description, "none", 8)
        .mappings([mapping])
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .legend(common.VizLegendOptions().show_legend(True))
        .show_value(words.VisibilityMode.NEVER)
        .merge_values(True)
        .data_links(_of_legends([query]))
    )
    return _with(panel, [query]).build()


def rows(
    title: str, description: str, labels: Mapping[str, str], *columns: Column, none: str = "",
    first: str = "",
) -> Panel:  # fmt: skip
    """A table of the values now: columns for labels, by what they are titled, then for values.

    Rows of several queries are one where the labels that all of them have are the same. `first` is
    the column with the worst at its greatest, where one query alone does not order the rows. `none`
    says what it means that there are no rows, where that is good.
    """
    values = ["Value"] if len(columns) == 1 else [f"Value #{_ref(n)}" for n in range(len(columns))]
    shown = {name: column for name, column in zip(values, columns, strict=True) if column.title}
    order = [*labels, *shown]
    organised = {
        "excludeByName": {"Time": True} | {name: True for name in values if name not in shown},
        "indexByName": {name: index for index, name in enumerate(order)},
        "renameByName": dict(labels) | {name: column.title for name, column in shown.items()},
    }
    panel = _panel(table.Panel(), title, description, "short", 8)
    if none:
        panel = panel.no_value(none)
    for name, link in _of_columns(labels).items():
        panel = panel.override_by_name(name, [model.DynamicConfigValue("links", [link.build()])])
    for column in shown.values():
        unit = model.DynamicConfigValue("unit", column.unit)
        panel = panel.override_by_name(column.title, [unit])
    if len(columns) > 1:
        panel = panel.with_transformation(_transformation("merge", {}))
    panel = panel.with_transformation(_transformation("organize", organised))
    if first:
        panel = panel.sort_by([common.TableSortByFieldState().display_name(first).desc(True)])
    return _with(panel, [Query(column.expr) for column in columns], rows=True).build()


def _transformation(name: str, options: Mapping[str, object]) -> model.DataTransformerConfig:
    return model.DataTransformerConfig(id_val=name, options=options)


def _panel(panel: Builder, title: str, description: str, unit: str, height: int) -> Builder:
    return (
        panel.title(title)
        .description(description)
        .unit(unit)
        .height(height)
        .datasource(model.DataSourceRef("prometheus", "${datasource}"))
    )


def _with(
    panel: Builder, queries: Sequence[Query], instant: bool = False, rows: bool = False
) -> Builder:
    for number, query in enumerate(queries):
        target = prometheus.Dataquery().expr(query.expr).ref_id(_ref(number))
        target = target.instant() if instant or rows else target.range()
        target = target.format(PromQueryFormat.TABLE if rows else PromQueryFormat.TIME_SERIES)
        if query.legend:
            target = target.legend_format(query.legend)
        panel = panel.with_target(target)
    return panel


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _ref(number: int) -> str:
    return chr(ord("A") + number)


# --- variables -----------------------------------------------------------------------------------


def _source() -> dashboard.DatasourceVariable:
    current = model.VariableOption(text="Prometheus", value=DATASOURCE, selected=True)
    return (
        dashboard.DatasourceVariable("datasource")
        .label("Source")
        .type("prometheus")
        .current(current)
    )


def choice(
    name: str, label: str, values: str, everything: str = ".*", *, one: bool = False
) -> dashboard.QueryVariable:
    """Some of what a label has, or all: `name=~"$name"`. What is about no node is about any.

    Of what must be `one` there is no "all", and Grafana chooses the first until somebody does. It
    escapes what is special in a pattern only where several may be chosen.
    """
    current = model.VariableOption(text=["All"], value=["$__all"], selected=True)
    built = (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(model.DataSourceRef("prometheus", "${datasource}"))
        .query({"qryType": 1, "query": f"label_values({values}, {name})", "refId": "A"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
        .multi(True)
        .include_all(not one)
        .all_value(everything)
    )
    return built if one else built.current(current)


# --- boards --------------------------------------------------------------------------------------


def section(title: str, *lines: Sequence[Panel]) -> Section:
    return Section(title, lines)


def board(
    uid: str, title: str, description: str, *sections: Section,
    variables: Sequence[dashboard.QueryVariable] = (), since: str = "now-6h",
) -> model.Dashboard:  # fmt: skip
    links = dashboard.DashboardLink("Plumbline").type(model.DashboardLinkType.DASHBOARDS)
    built = (
        dashboard.Dashboard(title)
        .uid(f"{TAG}-{uid}")
        .description(description)
        .tags([TAG])
        .time(since, "now")
        .refresh("1m")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(links.tags([TAG]).as_dropdown(True).include_vars(True).keep_time(True))
        .variables([_source(), choice("node", "Node", 'up{job="node"}'), *variables])
        .readonly()
        .build()
    )
    built.panels = _laid_out(sections)
    return built


def _laid_out(sections: Sequence[Section]) -> list[model.Panel | model.RowPanel]:
    placed: list[model.Panel | model.RowPanel] = []
    y = 0
    for part in sections:
        row = dashboard.Row(part.title).id(len(placed) + 1)
        placed.append(row.grid_pos(model.GridPos(x=0, y=y, w=COLUMNS, h=1)).build())
        y += 1
        for line in part.lines:
            width, rest = divmod(COLUMNS, len(line))
            height = max(panel.grid_pos.h for panel in line if panel.grid_pos)
            x = 0
            for number, panel in enumerate(line):
                w = width + (number < rest)
                panel.id_val = len(placed) + 1
                panel.grid_pos = model.GridPos(x=x, y=y, w=w, h=height)
                placed.append(panel)
                x += w
            y += height
    return placed


# --- queries -------------------------------------------------------------------------------------


def worst(expr: str, count: int = WORST, *, least: bool = False) -> str:
    """Of a graph's lines those that are highest at its end, or lowest.

    topk over each step by itself would have as many lines as ever were among the highest.
    """
    which = "bottomk" if least else "topk"
    return f"({expr}) and {which}({count}, last_over_time(({expr})[1m:1m] @ end()))"


def spread(expr: str) -> tuple[Query, ...]:
    """Five lines for however many: what the highest, the lowest and those between them have."""
    return (
        Query(f"max({expr})", "highest"),
        Query(f"quantile(0.9, {expr})", "highest tenth"),
        Query(f"quantile(0.5, {expr})", "median"),
        Query(f"quantile(0.1, {expr})", "lowest tenth"),
        Query(f"min({expr})", "lowest"),
    )


def of_node(name: str) -> str:
    """What rules/boards.yml of the role prometheus records of each node, of those chosen."""
    return f'max by (node) (node:{name}{{node=~"$node"}})'


def highest(metric: str) -> str:
    """Of the cluster: of two controllers that tell it, what either says."""
    return f"max({metric})"


def per_gpu(name: str, by: str = "node, gpu", where: str = 'node=~"$node"') -> str:
    """A field of DCGM once for each board, whichever instances and jobs it has."""
    return f"max by ({by}) (DCGM_FI_DEV_{name}{{{where}}})"


def gpu_memory(name: str, by: str = "node, gpu", where: str = 'node=~"$node"') -> str:
    """In MiB. Of a board that is split, its instances together."""
    each = ", ".join(dict.fromkeys([*by.split(", "), "node", "gpu", "GPU_I_ID"]))
    return f"sum by ({by}) (max by ({each}) (DCGM_FI_DEV_{name}{{{where}}}))"


def graded(metric: str, label: str, grades: Mapping[str, int], where: str) -> str:
    """The grades of those that are 1, to take the worst of: see `states`."""
    return " or ".join(
        f'{metric}{{{label}="{value}",{where}}} * {grade}' for value, grade in grades.items()
    )
