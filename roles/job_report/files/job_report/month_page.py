"""A month for people: a few lines, a page that needs nothing else, and rows for a spreadsheet.

Names of accounts, users and reasons are others' words: on a terminal they are one printable line,
on the page they are escaped, and in a spreadsheet none of them is a formula.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import socket
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from importlib import resources
from typing import Any

from cluster.slurm.job_outcomes import OUTCOMES
from cluster.text import printable
from roles.job_report.files.job_report import words
from roles.job_report.files.job_report.month import Month, NodeMonth, Sums

SHOWN = 20  # in a terminal
NODES = 100  # on the page: those with the least time in service
# OWASP, CSV Injection: what a spreadsheet takes for the begin of a formula.
_FORMULA = ("=", "+", "-", "@")


def text(month: Month) -> str:
    return "".join(f"{line.rstrip()}\n" for line in _lines(month))


def _lines(month: Month) -> Iterator[str]:
    total = month.total
    yield f"{month.name}{'' if month.whole else ', until now'}: {total.jobs} jobs ended"
    given = f"  GPU-hours  {total.gpu_hours:,.0f} given"
    if month.capacity_h:
        share = words.percent(total.gpu_hours / month.capacity_h)
        given += f" of {month.capacity_h:,.0f} ({share})"
    parts = ", ".join(f"{total.given[outcome]:,.0f} {outcome}" for outcome in OUTCOMES)
    yield f"{given}: {parts}"
    cpu = f"  CPU-hours  {total.cpu_given:,.0f} given"
    if total.cpu_efficiency is not None:
        cpu += f", {words.percent(total.cpu_efficiency)} busy where Slurm counted"
    yield cpu
    if total.metered:
        yield f"  energy     {total.energy_kwh:,.1f} kWh of jobs that Slurm metered"
    if month.availability is not None:
        between = month.between_interruptions_h
        yield (
            f"  nodes      {len(month.nodes)}, {100 * month.availability:.2f}% of the time in "
            "service" + (f"; {between:,.0f} h between interruptions of a node" if between else "")
        )
    header = ("account", "jobs", "GPU-hours", "wasted", "CPU-hours", "CPU busy", "kWh")
    rows: list[tuple[str, ...]] = [header]
    accounts = list(month.accounts())
    rows += [(printable(name, 40), *_cells(sums)) for name, sums in accounts[:SHOWN]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    yield ""
    for row in rows:
        first, *others = row
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        yield f"  {first.ljust(widths[0])}  {'  '.join(cells)}"
    if len(accounts) > SHOWN:
        yield f"  and {len(accounts) - SHOWN} accounts more; --html and --csv have all"
    for sentence in month.not_known:
        yield f"  {sentence}"


def _cells(sums: Sums) -> tuple[str, ...]:
    return (
        str(sums.jobs),
        f"{sums.gpu_hours:,.1f}",
        f"{sums.wasted:,.1f}",
        f"{sums.cpu_given:,.1f}",
        words.percent(sums.cpu_efficiency) if sums.cpu_efficiency is not None else "-",
        f"{sums.energy_kwh:,.1f}" if sums.metered else "-",
    )


# --- rows ----------------------------------------------------------------------------------------

COLUMNS = (
    *("kind", "account", "user", "node", "jobs", "gpu_hours"),
    *(f"gpu_hours_{outcome}" for outcome in OUTCOMES),
    *("gpu_hours_wasted", "cpu_hours", "cpu_efficiency", "energy_kwh"),
    *("down_hours", "planned_hours", "availability", "interruptions", "last_reason"),
)


def records(month: Month) -> Iterator[dict[str, Any]]:
    """The sum, each account, each user of an account, each node: numbers, and names as they are."""
    yield {"kind": "total", **_sums(month.total)}
    for account, sums in month.accounts():
        yield {"kind": "account", "account": account, **_sums(sums)}
    for (account, user), sums in month.users():
        yield {"kind": "user", "account": account, "user": user, **_sums(sums)}
    for node in month.nodes:
        yield {"kind": "node", "node": node.node, **_node(node, month)}


def _sums(sums: Sums) -> dict[str, Any]:
    return {
        "jobs": sums.jobs,
        "gpu_hours": round(sums.gpu_hours, 3),
        **{f"gpu_hours_{outcome}": round(sums.given[outcome], 3) for outcome in OUTCOMES},
        "gpu_hours_wasted": round(sums.wasted, 3),
        "cpu_hours": round(sums.cpu_given, 3),
        "cpu_efficiency": None if sums.cpu_efficiency is None else round(sums.cpu_efficiency, 4),
        "energy_kwh": round(sums.energy_kwh, 3) if sums.metered else None,
    }


def _node(node: NodeMonth, month: Month) -> dict[str, Any]:
    return {
        "down_hours": round(node.down_h, 3),
        "planned_hours": round(node.planned_h, 3),
        "availability": round(node.availability(month.span.seconds / 3600), 5),
        "interruptions": node.interruptions,
        "last_reason": node.last_reason,
    }


def rows(month: Month) -> str:
    """For a spreadsheet, RFC 4180."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for record in records(month):
        writer.writerow([_cell(record.get(column)) for column in COLUMNS])
    return file.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return "" if value is None else value
    line = printable(value)
    return f"'{line}" if line.startswith(_FORMULA) else line


def document(month: Month) -> dict[str, Any]:
    return {
        "month": month.name,
        "whole": month.whole,
        "begin": month.span.begin,
        "end": month.span.end,
        "gpu_hours_there": month.capacity_h,
        "availability": month.availability,
        "hours_between_interruptions": month.between_interruptions_h,
        "rows": list(records(month)),
        "not_known": list(month.not_known),
    }


# --- a page --------------------------------------------------------------------------------------


def page(month: Month) -> str:
    # Not imported above: a user who asks for a job does not wait for it.
    jinja2 = importlib.import_module("jinja2")
    environment = jinja2.Environment(
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else printable(str(value)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = resources.files(__package__).joinpath("month.html.j2").read_text(encoding="utf-8")
    hours = month.span.seconds / 3600
    rendered = environment.from_string(template).render(
        month=month,
        total=_told(month.total),
        outcomes=OUTCOMES,
        made=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        host=socket.gethostname(),
        uid=os.getuid(),
        accounts=[(name, _told(sums)) for name, sums in month.accounts()],
        users=[(by, _told(sums)) for by, sums in month.users()],
        nodes=[(node, f"{100 * node.availability(hours):.2f}%") for node in month.nodes[:NODES]],
        more_nodes=max(0, len(month.nodes) - NODES),
    )
    return str(rendered)


def _told(sums: Sums) -> Mapping[str, str]:
    """Numbers as the page has them."""
    jobs, gpus, wasted, cpus, busy, energy = _cells(sums)
    return {
        "jobs": jobs,
        "gpus": gpus,
        **{outcome: f"{sums.given[outcome]:,.1f}" for outcome in OUTCOMES},
        "wasted": wasted,
        "cpus": cpus,
        "busy": busy,
        "energy": energy,
        "share": words.percent(words.ratio(sums.wasted, sums.gpu_hours)) if sums.gpu_hours else "-",
    }
