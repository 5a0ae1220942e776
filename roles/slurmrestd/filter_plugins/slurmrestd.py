"""Filters of the role slurmrestd: what takes tokens away; what its last check asks and tells."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TYPES, PARAMETERS = "authalttypes", "authaltparameters"
PATH = re.compile(r"/slurm/v(\d+)\.(\d+)\.(\d+)/ping/?")


def problems(site: Mapping[str, Any], key: str) -> list[str]:
    """A sentence for each setting of the site that replaces what tokens need.

    `site` has settings, name to value, by the variable they are in.
    """
    needed = {TYPES: "auth/jwt", PARAMETERS: f"jwt_key={key}"}
    return [
        f"{where}.{name} is {_text(value) or 'empty'}, and replaces what tokens need; add "
        f"{needed[name.lower()]} to it, or remove it."
        for where, settings in site.items()
        if isinstance(settings, Mapping)
        for name, value in settings.items()
        if name.lower() in needed and needed[name.lower()] not in _text(value).split(",")
    ]


def _text(value: Any) -> str:
    listed = value if isinstance(value, (list, tuple)) else str(value or "").split(",")
    return ",".join(str(entry).strip() for entry in listed)


def newest(document: Any) -> str:
    """`v0.0.41`, the newest version of the API that an OpenAPI document has; "" without any."""
    paths = document.get("paths") if isinstance(document, Mapping) else None
    matches = [PATH.fullmatch(path) for path in paths or {}]
    versions = [tuple(map(int, match.groups())) for match in matches if match]
    return "v" + ".".join(map(str, max(versions))) if versions else ""


def questions(served: Mapping[str, Any], accounting: bool) -> list[str]:
    """What to ask, so that slurmctld and slurmdbd judge the token; none without a document."""
    try:
        version = newest(served.get("json") or json.loads(served.get("content") or "{}"))
    except ValueError:
        version = ""
    paths = [
        f"slurm/{version}/partitions",
        *([f"slurmdb/{version}/clusters"] if accounting else []),
    ]
    return paths if version else []


def complaint(answers: Sequence[Mapping[str, Any]], signed: int, served: int, host: str) -> str:
    """What is wrong, without an end; "" where every question was answered."""
    if signed != 0:
        return f"scontrol on {host} signs no token"
    if served != 200:
        return f"it does not answer, or not to a token ({_status(served)})"
    if not answers:
        return "its OpenAPI document names no version of Slurm's API"
    return ", ".join(
        f"{path.partition('/')[0]} takes no token of {host} ({path}: {_status(answer['status'])})"
        for answer in answers
        if answer["status"] != 200 and (path := str(answer["__slurmrestd_question"]))
    )


def _status(status: int) -> str:
    return f"HTTP {status}" if status > 0 else "no connection"


class FilterModule:
    """Registers the filters with Ansible."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "slurmrestd_problems": problems,
            "slurmrestd_questions": questions,
            "slurmrestd_complaint": complaint,
        }
