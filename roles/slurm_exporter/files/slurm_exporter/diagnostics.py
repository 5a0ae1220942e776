"""slurmctld's statistics of itself, from sdiag, as JSON or text. Pure functions.

The values have the names under which slurmctld tells them itself where it has an OpenMetrics
endpoint (src/plugins/metrics/openmetrics of Slurm 26.05). Cycles are in microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roles.slurm_exporter.files.slurm_exporter.words import Nonsense, document, whole

JSON = ("sdiag", "--json")
TEXT = ("sdiag",)


@dataclass(frozen=True)
class Rpc:
    """How many requests of one kind slurmctld has answered since its statistics began."""

    count: int
    seconds: float


@dataclass(frozen=True)
class Diagnostics:
    values: Mapping[str, int]
    rpcs: Mapping[str, Rpc]


_MAIN, _BACKFILL = "Main schedule statistics", "Backfilling stats"

# Name, path in the JSON, section and label in the text; a None is not in that form.
_VALUES: tuple[tuple[str, tuple[str, ...], tuple[str, str] | None], ...] = (
    ("server_thread_cnt", ("server_thread_count",), ("", "Server thread count")),
    ("agent_queue_size", ("agent_queue_size",), ("", "Agent queue size")),
    ("agent_cnt", ("agent_count",), ("", "Agent count")),
    ("agent_thread_cnt", ("agent_thread_count",), ("", "Agent thread count")),
    ("slurmdbd_queue_size", ("dbd_agent_queue_size",), ("", "DBD Agent queue size")),
    ("sdiag_jobs_submitted", ("jobs_submitted",), ("", "Jobs submitted")),
    ("sdiag_jobs_started", ("jobs_started",), ("", "Jobs started")),
    ("sdiag_jobs_completed", ("jobs_completed",), ("", "Jobs completed")),
    ("sdiag_jobs_canceled", ("jobs_canceled",), ("", "Jobs canceled")),
    ("sdiag_jobs_failed", ("jobs_failed",), ("", "Jobs failed")),
    ("sdiag_jobs_pending", ("jobs_pending",), ("", "Jobs pending")),
    ("sdiag_jobs_running", ("jobs_running",), ("", "Jobs running")),
    ("schedule_cycle_last", ("schedule_cycle_last",), (_MAIN, "Last cycle")),
    ("schedule_cycle_max", ("schedule_cycle_max",), (_MAIN, "Max cycle")),
    ("schedule_cycle_cnt", ("schedule_cycle_total",), (_MAIN, "Total cycles")),
    ("schedule_cycle_tot", ("schedule_cycle_sum",), None),
    ("schedule_cycle_depth", ("schedule_cycle_depth",), None),
    ("schedule_queue_len", ("schedule_queue_length",), (_MAIN, "Last queue length")),
    ("sched_mean_cycle", ("schedule_cycle_mean",), (_MAIN, "Mean cycle")),
    ("sched_mean_depth_cycle", ("schedule_cycle_mean_depth",), (_MAIN, "Mean depth cycle")),
    ("sched_exit_end", ("schedule_exit", "end_job_queue"), None),
    ("sched_exit_max_depth", ("schedule_exit", "default_queue_depth"), None),
    ("sched_exit_max_job_start", ("schedule_exit", "max_job_start"), None),
    ("sched_exit_lic", ("schedule_exit", "licenses"), None),
    ("sched_exit_rpc_cnt", ("schedule_exit", "max_rpc_cnt"), None),
    ("sched_exit_timeout", ("schedule_exit", "max_sched_time"), None),
    (
        "backfilled_jobs",
        ("bf_backfilled_jobs",),
        (_BACKFILL, "Total backfilled jobs (since last slurm start)"),
    ),
    (
        "last_backfilled_jobs",
        ("bf_last_backfilled_jobs",),
        (_BACKFILL, "Total backfilled jobs (since last stats cycle start)"),
    ),
    ("bf_cycle_cnt", ("bf_cycle_counter",), (_BACKFILL, "Total cycles")),
    ("bf_cycle_last", ("bf_cycle_last",), (_BACKFILL, "Last cycle")),
    ("bf_cycle_max", ("bf_cycle_max",), (_BACKFILL, "Max cycle")),
    ("bf_cycle_tot", ("bf_cycle_sum",), None),
    ("bf_mean_cycle", ("bf_cycle_mean",), (_BACKFILL, "Mean cycle")),
    ("bf_depth_mean", ("bf_depth_mean",), (_BACKFILL, "Depth Mean")),
    ("bf_last_depth", ("bf_last_depth",), (_BACKFILL, "Last depth cycle")),
    ("bf_last_depth_try", ("bf_last_depth_try",), (_BACKFILL, "Last depth cycle (try sched)")),
    ("bf_queue_len", ("bf_queue_len",), (_BACKFILL, "Last queue length")),
    ("bf_queue_len_mean", ("bf_queue_len_mean",), (_BACKFILL, "Queue length mean")),
    ("bf_table_size", ("bf_table_size",), (_BACKFILL, "Last table size")),
    ("bf_when_last_cycle", ("bf_when_last_cycle",), (_BACKFILL, "Last cycle when")),
)
# What alerts look at. Of the rest a version may lack some.
_NEEDED = ("server_thread_cnt", "agent_queue_size", "slurmdbd_queue_size", "schedule_cycle_cnt")


def from_json(text: str) -> Diagnostics:
    """Raises Nonsense."""
    statistics = document(text, "statistics")
    values = {}
    for name, path, _ in _VALUES:
        value: Any = statistics
        for step in path:
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None:
            values[name] = whole(value)
    rpcs = statistics.get("rpcs_by_message_type") if isinstance(statistics, Mapping) else None
    if not isinstance(rpcs, list):
        raise Nonsense("there is no list of RPCs")
    try:
        by_type = {str(rpc["message_type"]): _rpc(rpc["count"], rpc["total_time"]) for rpc in rpcs}
    except (KeyError, TypeError):
        raise Nonsense("an RPC has no message_type, count or total_time") from None
    return _whole(values, by_type)


_LINE = re.compile(r"\t?(?P<label>[^\t:]+(?:\([^()]*\))?):\s*(?P<value>.*)")
_TIME = re.compile(r"\((\d+)\)$")
_RPC = re.compile(
    r"\t(?P<name>\S+)\s+\(\s*\d+\)\s+count:(?P<count>\d+).*\btotal_time:(?P<time>\d+)"
)
_BY_TYPE = "Remote Procedure Call statistics by message type"


def from_text(text: str) -> Diagnostics:
    """Raises Nonsense.

    What stands in a section begins with a tab; labels stand in more than one of them.
    """
    section, numbers, rpcs = "", dict[tuple[str, str], int](), dict[str, Rpc]()
    for line in text.splitlines():
        if not line.startswith("\t"):
            section = line.split(" (")[0].rstrip(":") if line.strip() else section
        if section == _BY_TYPE and (match := _RPC.match(line)):
            rpcs[match["name"]] = _rpc(int(match["count"]), int(match["time"]))
        elif match := _LINE.fullmatch(line):
            value = _TIME.search(match["value"])
            number = value[1] if value else match["value"]
            if number.isdecimal():
                key = (section if line.startswith("\t") else "", match["label"])
                numbers.setdefault(key, int(number))
    if _BY_TYPE not in text:
        raise Nonsense("there is no list of RPCs")
    values = {name: numbers[place] for name, _, place in _VALUES if place in numbers}
    return _whole(values, rpcs)


def _rpc(count: Any, microseconds: Any) -> Rpc:
    return Rpc(whole(count), whole(microseconds) / 1e6)


def _whole(values: Mapping[str, int], rpcs: Mapping[str, Rpc]) -> Diagnostics:
    if missing := [name for name in _NEEDED if name not in values]:
        raise Nonsense(f"there is no {missing[0]}")
    return Diagnostics(values, rpcs)
