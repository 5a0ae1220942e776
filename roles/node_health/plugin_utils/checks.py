"""The checks of a node: those that are shipped, and what a site changes of them. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from validation.node_health.config import CONTEXTS, ON_FAIL
from validation.node_health.gpus import BUILTINS as GPU_BUILTINS
from validation.node_health.node import BUILTINS as NODE_BUILTINS

Checks = Mapping[str, Mapping[str, Any]]

BUILTINS = frozenset({*GPU_BUILTINS, *NODE_BUILTINS})
WORDS = frozenset(
    {"builtin", "command", "contexts", "on_fail", "timeout_s", "reason", "arguments", "enabled"}
)
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")

# A prolog holds a job back, and slurmd a whole node's launches; slurmd kills the HealthCheckProgram
# after 60 s, 20 of which belong to what it says to Slurm.
LONGEST_S = {"prolog": 9, "epilog": 9, "check": 30}


def merged(shipped: Checks, site: Checks, usual: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Every check of the node, whole; one that is switched off is not there.

    A site's word wins, word by word; of `arguments` too. A command of a site's own takes the place
    of a shipped builtin.
    """
    checks: dict[str, dict[str, Any]] = {}
    for name in [*shipped, *(name for name in site if name not in shipped)]:
        own, of_site = dict(shipped.get(name, {})), dict(site.get(name) or {})
        for word, other in (("command", "builtin"), ("builtin", "command")):
            if word in of_site:
                own.pop(other, None)
        arguments = {**own.get("arguments", {}), **of_site.get("arguments", {})}
        check = {**usual, **own, **of_site, "arguments": arguments}
        if check.pop("enabled", True):
            checks[name] = check
    return checks


def problems(shipped: Checks, site: Checks, usual: Mapping[str, Any]) -> list[str]:
    """What is wrong with a site's node_health_checks, as sentences."""
    sentences = [sentence for name, check in site.items() for sentence in _words(name, check)]
    if not sentences:
        whole = merged(shipped, site, usual)
        sentences = [sentence for name, check in whole.items() for sentence in _whole(name, check)]
    return sentences


def _words(name: str, check: Any) -> Iterator[str]:
    where = f"node_health_checks.{name}"
    if not NAME.fullmatch(name):
        yield f"{where} is no name of a check; use small letters, digits and _, at most 32."
    if not isinstance(check, Mapping):
        yield f"{where} is {check!r}; write a mapping such as {{enabled: false}}."
        return
    for word in sorted(set(check) - WORDS):
        yield f"{where} has {word}, which is no word of a check; use {', '.join(sorted(WORDS))}."
    for word, kind, form in (
        ("enabled", bool, "true or false"),
        ("contexts", list, f"a list of {', '.join(CONTEXTS)}"),
        ("command", list, "a list: the program's full path and its arguments"),
        ("arguments", Mapping, "a mapping"),
        ("reason", str, "a sentence"),
    ):
        if word in check and not isinstance(check[word], kind):
            yield f"{where}.{word} is {check[word]!r}; set it to {form}."


def _whole(name: str, check: Mapping[str, Any]) -> Iterator[str]:
    where = f"node_health_checks.{name}"
    if ("builtin" in check) == bool(check.get("command")):
        yield f"{where} needs either a command or a builtin."
    elif "builtin" in check and check["builtin"] not in BUILTINS:
        yield f"{where}.builtin is {check['builtin']}; use one of {', '.join(sorted(BUILTINS))}."
    elif "command" in check and not str(check["command"][0]).startswith("/"):
        yield f"{where}.command begins with {check['command'][0]}; write the program's full path."
    if strange := [word for word in check["contexts"] if word not in CONTEXTS]:
        yield f"{where}.contexts has {strange[0]}; use {', '.join(CONTEXTS)}."
        return
    if not check["contexts"]:
        yield f"{where}.contexts is empty; set enabled: false to switch the check off."
        return
    if check["on_fail"] not in ON_FAIL:
        yield f"{where}.on_fail is {check['on_fail']}; use {' or '.join(ON_FAIL)}."
    longest = min(LONGEST_S[context] for context in check["contexts"])
    limit = check["timeout_s"]
    if not isinstance(limit, (int, float)) or isinstance(limit, bool) or not 0 < limit <= longest:
        yield f"{where}.timeout_s is {limit}; set it to a number of seconds up to {longest}."


def rows(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """What `plumbline-health check --dry-run --json` says, as rows of the table of verification.

    What a check only logs is a row like any other, and says so: see `draining`.
    """
    table = []
    for check in document["checks"]:
        verdict, text = str(check["verdict"]), str(check["text"])
        logged = check["on_fail"] != "drain"
        table.append(
            {
                "component": "node_health",
                "what": f"{check['check']} (only logged)" if logged else str(check["check"]),
                "expected": "well",
                "found": "well" if verdict == "pass" else text or verdict,
                "verdict": {"pass": "PASS", "warn": "PASS", "skip": "SKIP"}.get(verdict, "FAIL"),
                "advice": "" if verdict in ("pass", "skip") else "see docs/operate/health.md",
            }
        )
    return table


def draining(checks: Mapping[str, Any]) -> list[dict[str, str]]:
    """Of these rows those that would take the node out of service."""
    return [row for row in rows(checks) if not row["what"].endswith("(only logged)")]
