"""What cannot work of the role's variables: a sentence without its end, or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from roles.alertmanager.plugin_utils.durations import seconds

# What was told is known for so long (--data.retention, 120h); after it everything is told again.
LONGEST = "120h"
LEAST_S = 60  # of a dead man's switch
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
ADDRESS = re.compile(r"https?://[^/\s]+\S*")


def problem(
    repeat_interval: str,
    repeat_intervals: Mapping[str, Any],
    deadman: Mapping[str, Any],
    secret_files: Iterable[str],
) -> str:
    """The first of them."""
    intervals = {f"s.{name}": value for name, value in repeat_intervals.items()}
    return (
        _of_intervals({"": repeat_interval, **intervals})
        or (_of_switch(deadman) if deadman else "")
        or _of_names(secret_files)
    )


def _of_intervals(intervals: Mapping[str, Any]) -> str:
    for name, value in intervals.items():
        if not 0 < seconds(str(value)) <= seconds(LONGEST):
            return (
                f"alertmanager_repeat_interval{name} is {value!r}; set a duration such as 4h or "
                f"2d, {LONGEST} at most"
            )
    return ""


def _of_switch(deadman: Mapping[str, Any]) -> str:
    url, interval = deadman.get("url"), str(deadman.get("interval", "5m"))
    if unknown := sorted({*deadman} - {"url", "url_file", "interval"}):
        return f"alertmanager_deadman has {unknown[0]}; it takes url or url_file, and interval"
    if bool(url) == bool(deadman.get("url_file")):
        return (
            "alertmanager_deadman needs url, the address that expects a word of ours, or url_file, "
            "a file on the control node with it, and not both"
        )
    if url and not ADDRESS.fullmatch(str(url)):
        return "alertmanager_deadman.url is no address; it begins with https:// or http://"
    if seconds(interval) < LEAST_S:
        return (
            f"alertmanager_deadman.interval is {interval!r}; set a duration such as 5m, one minute "
            "at least"
        )
    return ""


def _of_names(names: Iterable[str]) -> str:
    for name in names:
        if not NAME.fullmatch(str(name)):
            return (
                f"alertmanager_secret_files has the name {name!r}; set a file's name of letters, "
                "digits, dots, - and _ that begins with a letter or digit"
            )
    return ""
